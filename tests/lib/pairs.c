/* Finds few combinations of parameters in which all pairs of values occur;
 * pairs.h describes the functions. */
#include "lib/pairs.h"

#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

enum { N_TRY = 50 };

void pairs_init(struct pairs *s, int n_param, int (*n_value)(int p))
{
    assert_in_range(n_param, 2, PAIRS_MAX_PARAM);
    *s = (struct pairs){.n_param = n_param};
    for (int p = 0; p < n_param; p++) {
        s->base[p] = s->n_total;
        s->n_value[p] = n_value(p);
        s->n_total += s->n_value[p];
    }
    s->met = test_need((size_t)s->n_total, (size_t)s->n_total);
}

void pairs_fini(struct pairs *s)
{
    free(s->met);
}

/* Returns how many pairs of the values v[] have not occurred together yet.
 * Marks them as occurred if `mark`. */
static int meet(struct pairs *s, const int *v, bool mark)
{
    int n = 0;

    for (int a = 0; a < s->n_param; a++)
        for (int b = a + 1; b < s->n_param; b++) {
            unsigned char *m =
                &s->met[(s->base[a] + v[a]) * s->n_total + s->base[b] + v[b]];

            n += !*m;
            *m |= mark;
        }
    return n;
}

void pairs_draw(const struct pairs *s, int *v, uint64_t *random)
{
    for (int p = 0; p < s->n_param; p++)
        v[p] = (int)test_below(random, s->n_value[p]);
}

/* Returns the parameter to which value number `i` belongs, counted over the
 * values of all parameters. */
static int param_of(const struct pairs *s, int i)
{
    int p = 0;

    while (p + 1 < s->n_param && s->base[p + 1] <= i)
        p++;
    return p;
}

bool pairs_next(struct pairs *s, int *best, uint64_t *random)
{
    for (int at = 0; at < s->n_total * s->n_total; at++) {
        int i = at / s->n_total, j = at % s->n_total, most = -1;
        int a = param_of(s, i), b = param_of(s, j);

        if (a >= b || s->met[at])
            continue;
        for (int t = 0; t < N_TRY; t++) {
            int v[PAIRS_MAX_PARAM], n;

            pairs_draw(s, v, random);
            v[a] = i - s->base[a];
            v[b] = j - s->base[b];
            n = meet(s, v, false);
            if (n > most) {
                most = n;
                memcpy(best, v, (size_t)s->n_param * sizeof *v);
            }
        }
        meet(s, best, true);
        return true;
    }
    return false;
}
