/* Runs one Knuth-Morris-Pratt automaton per stop string. Each automaton keeps
 * the length of the longest prefix of its stop string with which the text ends,
 * and the text of this length is held back. So the cost does not depend on how
 * the text is divided into chunks. Source: doi:10.1137/0206024. */
#include "stop_strings.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>

struct stop_match {
    char *s; /* the stop string, [len]; owned */
    /* back[i]: length of the longest proper prefix of s[0 ... i] that is also a
     * suffix of it; [len]; owned. */
    size_t *back;
    size_t len;
    size_t n; /* length of the longest prefix of `s` with which the text ends */
};

static bool match_init(struct stop_match *m, const char *s)
{
    m->len = strlen(s);
    m->s = strdup(s);
    m->back = calloc(m->len, sizeof(*m->back));
    if (m->s == NULL || m->back == NULL)
        return false;
    for (size_t i = 1, k = 0; i < m->len; i++) {
        while (k > 0 && s[i] != s[k])
            k = m->back[k - 1];
        if (s[i] == s[k])
            k++;
        m->back[i] = k;
    }
    return true;
}

pl_status stop_init(struct stops *s, const char *const *string, int n,
                    pl_err *err)
{
    *s = (struct stops){.hit = -1};
    for (int i = 0; i < n; i++) {
        if (string[i][0] == '\0')
            return server_fail(err, PL_BAD_ARGUMENT,
                               "stop string %d is empty; leave it out", i);
    }
    s->match = calloc((size_t)n + 1, sizeof(*s->match));
    for (; s->match != NULL && s->n < n; s->n++) {
        size_t len = strlen(string[s->n]);

        s->cap = len > s->cap ? len : s->cap;
        if (!match_init(&s->match[s->n], string[s->n]))
            break;
    }
    s->held = malloc(s->cap + 1);
    if (s->match != NULL && s->n == n && s->held != NULL)
        return PL_OK;
    /* Counts the automaton whose initialization failed, so that stop_fini frees
     * its memory. */
    s->n += s->match != NULL && s->n < n;
    stop_fini(s);
    return server_fail(err, PL_NO_MEMORY, "out of memory for %d stop strings",
                       n);
}

void stop_fini(struct stops *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->match[i].s);
        free(s->match[i].back);
    }
    free(s->match);
    free(s->held);
    *s = (struct stops){.hit = -1};
}

/* Advances all automata by the byte `b` of the text. Returns how many of the
 * last bytes of the text may be the beginning of a stop string and must be held
 * back. If a stop string was found (s->hit), returns its length instead. */
static size_t step(struct stops *s, char b)
{
    size_t most = 0;

    for (int i = 0; i < s->n; i++) {
        struct stop_match *m = &s->match[i];

        while (m->n > 0 && m->s[m->n] != b)
            m->n = m->back[m->n - 1];
        if (m->s[m->n] == b)
            m->n++;
        if (m->n == m->len && s->muted)
            m->n = m->back[m->n - 1];
        else if (m->n == m->len &&
                 (s->hit < 0 || m->len > s->match[s->hit].len))
            s->hit = i;
        most = m->n > most ? m->n : most;
    }
    return s->hit < 0 ? most : s->shown ? 0 : s->match[s->hit].len;
}

bool stop_add(struct stops *s, const char *text, size_t len,
              stop_write_fn *write, void *user)
{
    size_t held = s->n_held, n = 0, keep;
    char *all;
    bool ok;

    if (s->hit >= 0 || len == 0)
        return true;
    if (s->n == 0)
        return write(user, text, len);
    for (keep = held; n < len && s->hit < 0; n++)
        keep = step(s, text[n]);
    all = malloc(held + n);
    if (all == NULL)
        return false;
    memcpy(all, s->held, held);
    memcpy(all + held, text, n);
    /* From here on, n is the number of bytes of `all` that cannot belong to a
     * stop string. */
    n += held - keep;
    s->n_held = s->hit >= 0 ? 0 : keep;
    memcpy(s->held, all + n, s->n_held);
    ok = n == 0 || write(user, all, n);
    free(all);
    return ok;
}

bool stop_end(struct stops *s, stop_write_fn *write, void *user)
{
    size_t n = s->n_held;

    s->n_held = 0;
    for (int i = 0; i < s->n; i++)
        s->match[i].n = 0;
    return n == 0 || write(user, s->held, n);
}
