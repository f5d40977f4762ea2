/* Exports single pages of the prefix tree as streams of bytes for the tiers,
 * and imports such a page at the end of a sequence.
 *
 * A page is stored as a saved state (state.h) of one sequence that has only the
 * page's positions. If the engine has computed the hash of its weights
 * (engine_sum), the head has it, so that other engines with the same weights
 * can import the page; otherwise only the same engine can. If the model has
 * recurrent layers, but the tree has no state for the end of the page, the head
 * lists only the other caches. A sequence may be assembled from several pages.
 * It can be continued only after a page with the recurrent states. */
#include "state/state_io.h"

#include "base/err.h"
#include "exec/cache_io.h"
#include "kv/states.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The resources of exporting or importing one page. */
struct carrier {
    pl_engine *e;
    struct arena arena;
    struct exec_caches io;
    struct state_head ours;
    struct state_seq seq;
    /* Owned: buffer for the rows that one cache has in the page. */
    unsigned char *rows;
};

static void carrier_close(struct carrier *c)
{
    exec_caches_close(&c->io);
    arena_fini(&c->arena);
    free(c->rows);
}

static pl_status carrier_open(struct carrier *c, pl_engine *e, pl_err *err)
{
    size_t most = 1;

    memset(c, 0, sizeof *c);
    c->e = e;
    PL_TRY(state_describe(&c->ours, &c->arena, e, err));
    PL_TRY(exec_caches_open(&c->io, e->exec, -1, err));
    for (int i = 0; i < c->ours.n_cache; i++) {
        const struct state_cache *k = &c->ours.cache[i];
        size_t n = state_row_bytes(k) * (k->state ? 1 : STATE_CHUNK);

        most = n > most ? n : most;
    }
    c->rows = malloc(most);
    return c->rows ? PL_OK : err_no_memory(err, "rows of the cache");
}

static int pool_of(const struct carrier *c, int cache)
{
    return dim_pool(c->io.cache[cache].g->dim[0]);
}

/* Returns the number of rows that a cache has in the page c->seq. It is 0 for a
 * recurrent state unless `states`. */
static int64_t rows_of(const struct carrier *c, int cache, bool states)
{
    if (c->ours.cache[cache].state && !states)
        return 0;
    return state_rows(&c->ours.cache[cache], &c->seq, c->seq.first);
}

/* ---- export: from the prefix tree to a tier ------------------------------ */

/* Returns true if the node has a page in each pool whose caches have rows to
 * export. Sets *states if it also has the recurrent states at its end. */
static bool is_whole(const struct carrier *c, const struct prefix_node *v,
                     bool *states)
{
    int of_states = c->e->kv.states;

    *states = of_states >= 0 && v->page[of_states] >= 0;
    for (int i = 0; i < c->io.n; i++)
        if (v->page[pool_of(c, i)] < 0 && rows_of(c, i, *states) > 0)
            return false;
    return true;
}

/* Sets *out to the head of the exported page c->seq. It lists the recurrent
 * states only if `states`. */
static pl_status own_head(struct carrier *c, bool states,
                          struct state_head *out, pl_err *err)
{
    *out = c->ours;
    out->n_seq = 1;
    out->seq = &c->seq;
    out->cache =
        arena_alloc(&c->arena, (size_t)c->ours.n_cache + 1, sizeof *out->cache);
    if (!out->cache)
        return err_no_memory(err, "the header of a page");
    out->n_cache = 0;
    for (int i = 0; i < c->ours.n_cache; i++)
        if (states || !c->ours.cache[i].state)
            out->cache[out->n_cache++] = c->ours.cache[i];
    return PL_OK;
}

struct grown {
    unsigned char *data; /* owned: the exported bytes */
    size_t n, size;
};

static bool grow(void *user, const void *data, size_t n)
{
    struct grown *g = user;

    if (n > g->size - g->n)
        return false;
    memcpy(g->data + g->n, data, n);
    g->n += n;
    return true;
}

static pl_status write_page(struct carrier *c, const struct prefix_node *v,
                            bool states, struct grown *to, pl_err *err)
{
    struct state_head h;
    struct state_writer w;

    PL_TRY(own_head(c, states, &h, err));
    if (c->e->has_weights)
        PL_TRY(state_lasts(&h, c->e, err));
    to->size = (size_t)state_bytes(&h);
    to->data = malloc(to->size);
    if (!to->data)
        return err_no_memory(err, "a page of a cached prefix");
    state_writer_init(&w, grow, to);
    PL_TRY(state_put_head(&w, &h, err));
    for (int i = 0; i < c->io.n; i++) {
        int64_t n = rows_of(c, i, states);

        if (n == 0)
            continue;
        PL_TRY(exec_cache_read(&c->io, i, v->page[pool_of(c, i)], 0, (int)n,
                               c->rows, err));
        PL_TRY(state_put(&w, c->rows,
                         (size_t)n * state_row_bytes(&c->ours.cache[i]), err));
    }
    return state_put_sum(&w, err);
}

static pl_status take(struct carrier *c, int32_t *token, int64_t *n,
                      bool *goes_on, struct grown *to, pl_err *err)
{
    struct kv *kv = &c->e->kv;
    bool states = false;
    int node;

    for (; (node = prefix_next_dirty(kv)) >= 0; *n = 0) {
        const struct prefix_node *v = &kv->prefix->node[node];

        /* The node becomes clean even if the export fails; otherwise every
         * later call would try it again. */
        prefix_mark_clean(kv, node);
        *n = prefix_path(kv, node, token);
        c->seq = (struct state_seq){0, 0, *n - v->n_tok, v->n_tok, 0};
        *goes_on = is_whole(c, v, &states) && (states || kv->states < 0);
        if (is_whole(c, v, &states))
            return write_page(c, v, states, to, err);
    }
    return PL_OK;
}

pl_status pl_prefix_export_page(pl_engine *e, int32_t *token, int64_t room,
                                int64_t *n, bool *goes_on, void **data,
                                size_t *bytes, pl_err *err)
{
    struct carrier c = {0};
    struct grown to = {0};
    pl_status s;

    PL_CLEAR(n);
    PL_CLEAR(goes_on);
    PL_CLEAR(data);
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(token, err);
    PL_NEED(n, err);
    PL_NEED(goes_on, err);
    PL_NEED(data, err);
    PL_NEED(bytes, err);
    if (room < e->plan->n_ctx)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the buffer takes %" PRId64
                       " tokens, but a cached prefix may have %" PRId64
                       " (pl_engine_n_ctx)",
                       room, e->plan->n_ctx);
    PL_TRY(exec_enter(e->exec, err));
    /* Waits for asynchronous transfers, which may still write to the caches. */
    s = exec_wait_async(e->exec, err);
    if (s == PL_OK)
        engine_trust_prefixes(e);
    if (s == PL_OK && prefix_next_dirty(&e->kv) >= 0) {
        s = carrier_open(&c, e, err);
        if (s == PL_OK)
            s = take(&c, token, n, goes_on, &to, err);
        carrier_close(&c);
    }
    exec_leave(e->exec);
    if (s != PL_OK) {
        free(to.data);
        *n = 0;
        *goes_on = false;
        return s;
    }
    *data = to.data;
    *bytes = to.n;
    return PL_OK;
}

/* ---- import: from a tier to a sequence ----------------------------------- */

struct given {
    const unsigned char *data;
    size_t n, at;
};

static int64_t give(void *user, void *data, size_t n)
{
    struct given *g = user;

    n = n < g->n - g->at ? n : g->n - g->at;
    if (n > 0)
        memcpy(data, g->data + g->at, n);
    g->at += n;
    return (int64_t)n;
}

static bool same_cache(const struct state_cache *a, const struct state_cache *b)
{
    return a->layer == b->layer && a->values == b->values &&
           a->state == b->state && a->format == b->format &&
           a->n_head == b->n_head && a->d_head == b->d_head &&
           a->window == b->window;
}

/* Returns true if head h lists the caches of this engine: all of them, or all
 * without recurrent states. Sets *states to true if all are listed. */
static bool same_caches(const struct carrier *c, const struct state_head *h,
                        bool *states)
{
    int k = 0;

    *states = h->n_cache == c->ours.n_cache;
    for (int i = 0; i < c->ours.n_cache; i++)
        if (*states || !c->ours.cache[i].state)
            if (k == h->n_cache ||
                !same_cache(&h->cache[k++], &c->ours.cache[i]))
                return false;
    return k == h->n_cache;
}

static pl_status check_page(struct carrier *c, const struct state_head *h,
                            int64_t length, int64_t n, bool *states,
                            pl_err *err)
{
    if (!h->aside)
        PL_TRY(state_lasts(&c->ours, c->e, err));
    if (h->model != c->ours.model || h->numeric != c->ours.numeric ||
        h->n_vocab != c->ours.n_vocab || !same_caches(c, h, states))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the page was computed by another model or with other "
                       "numerics (%016" PRIx64 ", %016" PRIx64
                       "; here %016" PRIx64 ", %016" PRIx64 ")",
                       h->model, h->numeric, c->ours.model, c->ours.numeric);
    if (h->n_seq != 1 || h->whole || h->seq[0].first != length ||
        h->seq[0].n != n)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the page does not hold positions %" PRId64
                       " to %" PRId64,
                       length, length + n - 1);
    c->seq = h->seq[0];
    return PL_OK;
}

/* Reads the rows of the imported page into the pages and the state slot that
 * are reserved for `seq`. They become a part of the sequence later. */
static pl_status read_page(struct carrier *c, int seq, struct state_reader *r,
                           bool states, pl_err *err)
{
    const struct kv *kv = &c->e->kv;

    for (int i = 0; i < c->io.n; i++) {
        int64_t n = rows_of(c, i, states);
        int32_t page;

        if (n == 0)
            continue;
        page = c->ours.cache[i].state
                   ? kv_state_written(kv, seq)
                   : kv_page(kv, pool_of(c, i), seq, c->seq.first);
        PL_TRY(state_get(r, c->rows,
                         (size_t)n * state_row_bytes(&c->ours.cache[i]), err));
        PL_TRY(exec_cache_write(&c->io, i, page, 0, (int)n, c->rows, err));
    }
    PL_TRY(state_get_sum(r, err));
    return state_get_end(r, err);
}

static pl_status put(struct carrier *c, int seq, const int32_t *token,
                     int64_t n, struct given *from, pl_err *err)
{
    struct kv *kv = &c->e->kv;
    struct state_reader r;
    struct state_head h;
    bool states = false;
    pl_status s;

    state_reader_init(&r, give, from);
    PL_TRY(state_get_head(&r, &h, &c->arena, err));
    PL_TRY(check_page(c, &h, kv->length[seq], n, &states, err));
    PL_TRY(kv_reserve(kv, seq, n, true, engine_copy_page, c->e, err));
    s = read_page(c, seq, &r, states, err);
    if (s != PL_OK) {
        kv_cancel_reserve(kv, seq, n);
        return s;
    }
    if (!states)
        states_unreserve(kv, seq);
    kv_commit(kv, seq, n, true);
    prefix_insert(kv, seq, kv->length[seq] - n, token, n);
    kv_trim_windows(kv, seq);
    if (states)
        prefix_insert_state(kv, seq);
    /* Marks the node clean: the tier from which the page came has a copy of
     * it. */
    prefix_mark_clean(kv, prefix_node_of(kv, seq));
    return PL_OK;
}

static pl_status check_extend(const pl_engine *e, int seq, const int32_t *token,
                              int64_t n, pl_err *err)
{
    int64_t n_vocab = e->plan->model->model->n_vocab;

    if (!engine_is_seq(e, seq))
        return engine_no_seq(e, seq, err);
    if (n < 1 || n > PAGE_TOKENS)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a page of %" PRId64 " tokens; it must have 1 to %d", n,
                       PAGE_TOKENS);
    if (e->kv.length[seq] % PAGE_TOKENS != 0 || !e->kv.prefix ||
        e->kv.prefix->seq[seq].n != e->kv.length[seq])
        return err_set(
            err, PL_BAD_ARGUMENT,
            "cannot append a page to sequence %d of %" PRId64
            " tokens: they must fill whole pages, and their ids must be known",
            seq, e->kv.length[seq]);
    if (e->kv.length[seq] + n > e->plan->n_ctx)
        return err_set(err, PL_FULL,
                       "sequence %d has %" PRId64 " tokens, and %" PRId64
                       " more do not fit into the context of %" PRId64,
                       seq, e->kv.length[seq], n, e->plan->n_ctx);
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64 " of a page is %" PRId32
                           ", outside the vocabulary of 0 .. %" PRId64,
                           i, token[i], n_vocab - 1);
    return PL_OK;
}

pl_status pl_seq_import_page(pl_engine *e, int seq, const int32_t *token,
                             int64_t n, const void *data, size_t bytes,
                             pl_err *err)
{
    struct carrier c = {0};
    struct given from = {data, bytes, 0};
    pl_status s;

    PL_NEED(e, err);
    PL_NEED_ARRAY(token, n, err);
    PL_NEED_ARRAY(data, bytes, err);
    PL_TRY(exec_enter(e->exec, err));
    s = exec_wait_async(e->exec, err);
    if (s == PL_OK)
        engine_trust_prefixes(e);
    if (s == PL_OK)
        s = check_extend(e, seq, token, n, err);
    if (s == PL_OK) {
        s = carrier_open(&c, e, err);
        if (s == PL_OK)
            s = put(&c, seq, token, n, &from, err);
        carrier_close(&c);
    }
    exec_leave(e->exec);
    return s;
}
