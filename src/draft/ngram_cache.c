/* Statistics of n-grams, and their files; see ngram_cache.h. */
#include "draft/ngram_cache.h"

#include "base/err.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

void ngram_cache_fini(struct ngram_cache *c)
{
    free(c->ngram);
    free(c->edge);
    free(c->ngram_at);
    free(c->edge_at);
    *c = (struct ngram_cache){0};
}

/* ---- tables -------------------------------------------------------------- */

static uint64_t mix(uint64_t h, int32_t v)
{
    h = (h ^ (uint32_t)v) * 0x9e3779b97f4a7c15u; /* as in base/hash64.c */
    return h ^ h >> 29;
}

static uint64_t hash_ngram(const int32_t token[NGRAM_MOST])
{
    uint64_t h = 0;

    for (int i = 0; i < NGRAM_MOST; i++)
        h = mix(h, token[i]);
    return h;
}

/* Returns the entry of the table for an n-gram: its index, or -1 if it is
 * new. */
static int32_t *ngram_entry(const struct ngram_cache *c,
                            const int32_t token[NGRAM_MOST])
{
    uint64_t h = hash_ngram(token);

    for (;; h++) {
        int32_t *at = &c->ngram_at[h & (uint64_t)(c->n_ngram_at - 1)];

        if (*at < 0 ||
            memcmp(c->ngram[*at].token, token, sizeof c->ngram[*at].token) == 0)
            return at;
    }
}

static int32_t *edge_entry(const struct ngram_cache *c, int32_t ngram,
                           int32_t token)
{
    uint64_t h = mix(mix(0, ngram), token);

    for (;; h++) {
        int32_t *at = &c->edge_at[h & (uint64_t)(c->n_edge_at - 1)];

        if (*at < 0 ||
            (c->edge[*at].ngram == ngram && c->edge[*at].token == token))
            return at;
    }
}

/* Makes space for another element of `size` bytes after n in an array. *max is
 * the number of elements for which it has space. Returns false if out of
 * memory. */
static bool reserve(void *array, int32_t n, int32_t *max, size_t size)
{
    int32_t more = *max > 0 ? 2 * *max : 256;
    void *p, *old;

    if (n < *max)
        return true;
    if (*max > INT32_MAX / 4)
        return false;
    memcpy(&old, array, sizeof old);
    p = realloc(old, (size_t)more * size);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *max = more;
    return true;
}

/* Replaces *table by an empty one of *n = 2 * max entries. */
static bool renew(int32_t **table, int64_t *n, int32_t max)
{
    int32_t *p = malloc(2 * (size_t)max * sizeof *p);

    if (!p)
        return false;
    memset(p, -1, 2 * (size_t)max * sizeof *p);
    free(*table);
    *table = p;
    *n = 2 * (int64_t)max;
    return true;
}

/* Makes space for one more n-gram and one more edge. */
static bool grow(struct ngram_cache *c)
{
    if (!reserve(&c->ngram, c->n_ngram, &c->max_ngram, sizeof *c->ngram))
        return false;
    if (2 * (int64_t)c->max_ngram > c->n_ngram_at) {
        if (!renew(&c->ngram_at, &c->n_ngram_at, c->max_ngram))
            return false;
        for (int32_t i = 0; i < c->n_ngram; i++)
            *ngram_entry(c, c->ngram[i].token) = i;
    }
    if (!reserve(&c->edge, c->n_edge, &c->max_edge, sizeof *c->edge))
        return false;
    if (2 * (int64_t)c->max_edge > c->n_edge_at) {
        if (!renew(&c->edge_at, &c->n_edge_at, c->max_edge))
            return false;
        for (int32_t i = 0; i < c->n_edge; i++)
            *edge_entry(c, c->edge[i].ngram, c->edge[i].token) = i;
    }
    return true;
}

/* Counts `times` more occurrences of `token` after an n-gram. Returns false if
 * out of memory. */
static bool count(struct ngram_cache *c, const int32_t ngram[NGRAM_MOST],
                  int32_t token, int32_t times)
{
    int32_t *at, *edge;

    if (!grow(c))
        return false;
    at = ngram_entry(c, ngram);
    if (*at < 0) {
        *at = c->n_ngram++;
        memcpy(c->ngram[*at].token, ngram, sizeof c->ngram[*at].token);
        c->ngram[*at].first = -1;
    }
    edge = edge_entry(c, *at, token);
    if (*edge < 0) {
        *edge = c->n_edge++;
        c->edge[*edge] =
            (struct ngram_edge){*at, token, 0, c->ngram[*at].first};
        c->ngram[*at].first = *edge;
    }
    c->edge[*edge].count = c->edge[*edge].count > INT32_MAX - times
                               ? INT32_MAX
                               : c->edge[*edge].count + times;
    return true;
}

/* Sets ngram to the last `size` tokens of text [n], followed by draft
 * [n_draft]. Returns false if there are fewer. */
static bool last_tokens(int32_t ngram[NGRAM_MOST], int size,
                        const int32_t *text, int64_t n, const int32_t *draft,
                        int n_draft)
{
    if (n + n_draft < size)
        return false;
    for (int i = 0; i < NGRAM_MOST; i++) {
        int64_t at = n + n_draft - size + i;

        ngram[i] = i >= size ? -1 : at < n ? text[at] : draft[at - n];
    }
    return true;
}

bool ngram_cache_add(struct ngram_cache *c, const int32_t *text, int64_t n)
{
    int32_t ngram[NGRAM_MOST];

    for (; c->n < n; c->n++)
        for (int size = 1; size <= NGRAM_MOST; size++)
            if (last_tokens(ngram, size, text, c->n, NULL, 0) &&
                !count(c, ngram, text[c->n], 1))
                return false;
    return true;
}

bool ngram_cache_merge(struct ngram_cache *c, const struct ngram_cache *from)
{
    for (int32_t i = 0; i < from->n_edge; i++) {
        const struct ngram_edge *e = &from->edge[i];

        if (!count(c, from->ngram[e->ngram].token, e->token, e->count))
            return false;
    }
    return true;
}

/* ---- drafts -------------------------------------------------------------- */

/* Evidence that an n-gram of 1, 2, 3 or 4 tokens must have: how often it
 * occurred, and the share in percent of the most frequent follower. The values
 * are those of llama.cpp. The text itself is trusted more than other texts. */
struct need {
    int32_t count[NGRAM_MOST], percent[NGRAM_MOST];
};
static const struct need lax = {{2, 2, 1, 1}, {66, 50, 50, 50}};
static const struct need strict = {{4, 3, 2, 2}, {75, 66, 66, 66}};

static int32_t find(const struct ngram_cache *c,
                    const int32_t ngram[NGRAM_MOST])
{
    return c->n_ngram > 0 ? *ngram_entry(c, ngram) : -1;
}

/* Returns how often `token` followed an n-gram, at least 1. */
static int64_t weight(const struct ngram_cache *c, int32_t ngram, int32_t token)
{
    int32_t at = ngram >= 0 ? *edge_entry(c, ngram, token) : -1;

    return at >= 0 ? c->edge[at].count : 1;
}

/* Returns the token that followed an n-gram most often in `c`, each token
 * weighted by how often it followed n-gram `other` of `fixed`; -1 if not enough
 * is known. */
static int32_t best_follower(const struct ngram_cache *c,
                             const int32_t ngram[NGRAM_MOST], int size,
                             const struct need *need,
                             const struct ngram_cache *fixed, int32_t other,
                             int32_t *chance)
{
    const int32_t at = find(c, ngram);
    int64_t sum = 0, most = 0;
    double best = 0;
    int32_t token = -1;

    for (int32_t i = at >= 0 ? c->ngram[at].first : -1; i >= 0;) {
        const struct ngram_edge *e = &c->edge[i];
        double product =
            (double)e->count * (double)weight(fixed, other, e->token);

        sum += e->count;
        if (product > best) {
            best = product;
            most = e->count;
            token = e->token;
        }
        i = e->next;
    }
    if (sum < need->count[size - 1] ||
        100 * most < need->percent[size - 1] * sum)
        return -1;
    *chance = (int32_t)(most * 65536 / sum);
    return token;
}

int32_t ngram_cache_next(const struct ngram_cache *own,
                         const struct ngram_cache *earlier,
                         const struct ngram_cache *fixed, const int32_t *text,
                         int64_t n, const int32_t *draft, int n_draft,
                         int32_t *chance)
{
    enum { OF_FIXED = 2 }; /* tokens of the n-grams that back others */
    static const struct ngram_cache none = {0};
    const struct {
        const struct ngram_cache *of, *by;
        const struct need *need;
        int from, to;
    } pass[] = {{own, fixed, &lax, NGRAM_MOST, 1},
                {earlier, fixed, &strict, NGRAM_MOST, 1},
                {fixed, &none, &strict, OF_FIXED, OF_FIXED}};
    int32_t ngram[NGRAM_MOST], other = -1, token = -1;

    if (last_tokens(ngram, OF_FIXED, text, n, draft, n_draft))
        other = find(fixed, ngram);
    for (int i = 0; i < 3; i++)
        for (int size = pass[i].from; size >= pass[i].to && token < 0; size--)
            if (last_tokens(ngram, size, text, n, draft, n_draft))
                token = best_follower(pass[i].of, ngram, size, pass[i].need,
                                      pass[i].by, i < 2 ? other : -1, chance);
    return token;
}

/* ---- files --------------------------------------------------------------- */

/* Returns int32_t number i of a file. */
static int32_t number(const unsigned char *data, size_t i)
{
    uint32_t v;

    memcpy(&v, data + 4 * i, sizeof v);
    return (int32_t)le32toh(v);
}

static pl_status damaged(pl_err *err, const char *name, size_t at,
                         const char *fact, int32_t value)
{
    return err_set(err, PL_BAD_FILE,
                   "%s: offset %zu: %s (%d); give a lookup file that "
                   "llama.cpp or plait wrote, or none",
                   name, 4 * at, fact, value);
}

/* Checks the tokens of an n-gram: 1 to 4 of them, then -1. */
static bool is_ngram(const int32_t token[NGRAM_MOST])
{
    int n = 0;

    while (n < NGRAM_MOST && token[n] >= 0)
        n++;
    for (int i = n; i < NGRAM_MOST; i++)
        if (token[i] != -1)
            return false;
    return n > 0;
}

/* Reads the followers of an n-gram, whose tokens begin at number *at, and
 * advances *at past them. The file has n numbers. */
static pl_status parse_ngram(struct ngram_cache *c, const unsigned char *data,
                             size_t n, size_t *at, const char *name,
                             pl_err *err)
{
    int32_t ngram[NGRAM_MOST], n_follower;

    if (n - *at <= NGRAM_MOST)
        return damaged(err, name, *at, "the file ends within an n-gram",
                       (int32_t)(n - *at));
    for (int i = 0; i < NGRAM_MOST; i++)
        ngram[i] = number(data, (*at)++);
    if (!is_ngram(ngram))
        return damaged(err, name, *at - NGRAM_MOST,
                       "not an n-gram: its first token or its end is wrong",
                       ngram[0]);
    n_follower = number(data, (*at)++);
    if (n_follower < 1 || (size_t)n_follower > (n - *at) / 2)
        return damaged(err, name, *at - 1,
                       "the number of tokens after an n-gram is not positive, "
                       "or more than the file has",
                       n_follower);
    for (; n_follower > 0; n_follower--, *at += 2) {
        int32_t token = number(data, *at), times = number(data, *at + 1);

        if (token < 0 || times < 1)
            return damaged(err, name, *at,
                           "a token is negative, or its count is not positive",
                           token < 0 ? token : times);
        if (!count(c, ngram, token, times))
            return err_no_memory(err, name);
    }
    return PL_OK;
}

pl_status ngram_cache_parse(struct ngram_cache *c, const void *data,
                            size_t bytes, const char *name, pl_err *err)
{
    size_t n = bytes / 4, at = 0;

    if (bytes % 4 != 0)
        return damaged(err, name, n, "the file ends within a number",
                       (int32_t)(bytes % 4));
    while (at < n)
        PL_TRY(parse_ngram(c, data, n, &at, name, err));
    return PL_OK;
}

static void put(pl_write_fn *write, void *user, int32_t v)
{
    uint32_t bytes = htole32((uint32_t)v);

    write(user, (const char *)&bytes, sizeof bytes);
}

void ngram_cache_write(const struct ngram_cache *c, pl_write_fn *write,
                       void *user)
{
    for (int32_t i = 0; i < c->n_ngram; i++) {
        int32_t n = 0;

        for (int k = 0; k < NGRAM_MOST; k++)
            put(write, user, c->ngram[i].token[k]);
        for (int32_t e = c->ngram[i].first; e >= 0; e = c->edge[e].next)
            n++;
        put(write, user, n);
        for (int32_t e = c->ngram[i].first; e >= 0; e = c->edge[e].next) {
            put(write, user, c->edge[e].token);
            put(write, user, c->edge[e].count);
        }
    }
}
