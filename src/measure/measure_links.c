/* Finds link domains in the measured links. Two devices are close if their link
 * is more than twice as fast as the slowest link of all pairs. A smaller
 * difference may be noise, or a bus that is slightly wider. A set of devices
 * that are connected by close pairs is a link domain if every pair in it is
 * close. */
#include "measure/measure_links.h"

#include "base/hash64.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double closer = 2;

struct measure_links *measure_links_new(const struct device_list *l)
{
    struct measure_links *k = calloc(1, sizeof *k);

    for (int d = 0; k && d < l->n && k->n < LINKS_MAX; d++)
        if (l->dev[d].accelerator) {
            k->bus[k->n] = l->dev[d].bus;
            k->dev[k->n++] = d;
        }
    return k;
}

void measure_links_put(struct measure_links *k, int i, int j, double seconds,
                       double bytes_per_s)
{
    k->link[i][j] = k->link[j][i] = (struct measure_link){seconds, bytes_per_s};
}

static double slowest(const struct measure_links *k)
{
    double least = INFINITY;

    for (int i = 0; i < k->n; i++)
        for (int j = 0; j < i; j++)
            least = fmin(least, k->link[i][j].bytes_per_s);
    return least;
}

/* Sets of[i] to the first device that a chain of close pairs connects with
 * device i, or to i itself if there is none. */
static void find_link_domains(const struct measure_links *k, int *of)
{
    const double limit = closer * slowest(k);

    for (int i = 0; i < k->n; i++)
        of[i] = i;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < k->n; i++)
            for (int j = 0; j < k->n; j++)
                if (i != j && of[j] < of[i] &&
                    k->link[i][j].bytes_per_s > limit) {
                    of[i] = of[j];
                    more = true;
                }
    }
}

static void take(double *seconds, double *bytes_per_s,
                 const struct measure_link *x)
{
    *seconds = fmax(*seconds, x->seconds);
    *bytes_per_s =
        *bytes_per_s > 0 ? fmin(*bytes_per_s, x->bytes_per_s) : x->bytes_per_s;
}

/* Returns the number of the link domain whose first device is `first`. It is a
 * hash of that device's bus address, so link domains of different measurements
 * differ. */
static int number(const struct measure_links *k, int first)
{
    uint64_t h = hash64(1, k->bus[first], strlen(k->bus[first]));

    return 1 + (int)(h % INT_MAX);
}

void measure_links_of(const struct measure_links *k, int i,
                      struct cost_rates *r)
{
    int of[LINKS_MAX];
    double within = INFINITY;

    find_link_domains(k, of);
    r->p2p_s = r->p2p_bytes_per_s = 0;
    r->bridge_s = r->bridge_bytes_per_s = 0;
    r->link_domain = 0;
    for (int a = 0; a < k->n; a++)
        for (int b = 0; b < a; b++)
            if (of[a] == of[i] && of[b] == of[i])
                within = fmin(within, k->link[a][b].bytes_per_s);
    if (isfinite(within) && within > closer * slowest(k))
        r->link_domain = number(k, of[i]);
    for (int j = 0; j < k->n; j++)
        if (j != i && r->link_domain && of[j] == of[i])
            take(&r->bridge_s, &r->bridge_bytes_per_s, &k->link[i][j]);
        else if (j != i)
            take(&r->p2p_s, &r->p2p_bytes_per_s, &k->link[i][j]);
}
