/* Any bytes as a lookup file of drafts: they are rejected by name, or they give
 * drafts, and what is written of them is read again as the same. */
#include "pl_draft.h"

#include <stdlib.h>
#include <string.h>

int fuzz_lookup(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

struct file {
    char *s;
    size_t n;
};

static void add(void *user, const char *s, size_t n)
{
    struct file *f = user;

    f->s = realloc(f->s, f->n + n);
    require(f->s != NULL);
    memcpy(f->s + f->n, s, n);
    f->n += n;
}

/* Creates a drafter with a lookup file; NULL if it was rejected. */
static pl_drafter *load(const void *data, size_t n, bool fixed)
{
    pl_draft_options o;
    pl_drafter *d;
    pl_err err;
    pl_status s;

    pl_draft_init(&o);
    o.limits.sources = 1 << PL_DRAFT_NGRAM_CACHE;
    o.limits.n_max = 4;
    require(pl_drafter_create(&d, &o, NULL) == PL_OK);
    s = pl_draft_load(d, fixed, data, n, "file", &err);
    require(s == PL_OK ||
            (s == PL_BAD_FILE && strstr(err.message, "file: offset ")));
    if (s == PL_OK)
        return d;
    pl_drafter_free(d);
    return NULL;
}

/* Proposes tokens after each beginning of a text. */
static void propose(pl_drafter *d, const int32_t *text, int64_t n)
{
    int32_t token[PL_DRAFT_MAX];
    pl_draft q = {.text = text, .n_most = 4, .token = token};

    for (q.n_text = 0; q.n_text < n && q.n_text < 16; q.n_text++) {
        require(pl_draft_propose(d, &q, 1, 1, 4, NULL) == PL_OK);
        require(q.n >= 0 && q.n <= 4);
        for (int i = 0; i < q.n; i++)
            require(token[i] >= 0);
    }
}

int fuzz_lookup(const uint8_t *data, size_t n)
{
    struct file once = {0}, twice = {0};
    int32_t *text = malloc(n + 4);
    pl_drafter *d = load(data, n, false), *fixed;

    require(text != NULL);
    if (n > 0)
        memcpy(text, data, n);
    if (d) {
        propose(d, text, (int64_t)(n / 4));
        pl_draft_save(d, add, &once);
        fixed = load(data, n, true);
        require(fixed != NULL);
        propose(fixed, text, (int64_t)(n / 4));
        pl_drafter_free(fixed);
        pl_drafter_free(d);
        d = load(once.s, once.n, false);
        require(d != NULL);
        pl_draft_save(d, add, &twice);
        /* followers of an n-gram are written in the opposite order */
        require(once.n == twice.n && once.n <= n);
    }
    pl_drafter_free(d);
    free(once.s);
    free(twice.s);
    free(text);
    return 0;
}
