/* Implements pl_engine: creation with weights on devices, counters, and
 * sequences. batch.c runs batches. */
#include "engine/engine.h"

#include "base/err.h"
#include "base/hash64.h"
#include "base/sized.h"
#include "device/machines.h"
#include "engine/machine_plan.h"
#include "engine/model_sum.h"
#include "fit/fit.h"
#include "plan/options_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Checks that the model's file still contains a part of a weight. Loading would
 * crash at a file that was truncated since it was opened. Called as
 * exec_source.check. */
static pl_status check_whole(void *user, int node, int64_t part, pl_err *err)
{
    const pl_engine *e = user;
    const struct model *m = e->plan->model->model;

    return gguf_check_whole(
        m->file, model_weight_part(m, e->plan->graph->node[node].name, part),
        err);
}

/* Sets *out to the addresses of the parts of a weight in the mapped file. */
static pl_status find_parts(const struct model *m, const char *name,
                            struct arena *a, struct exec_parts *out,
                            pl_err *err)
{
    int64_t n = model_weight_parts(m, name);
    const void **data = arena_alloc(a, (size_t)n + 1, sizeof *data);

    if (!data)
        return err_no_memory(err, "loading weights");
    for (int64_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = model_weight_part(m, name, i);

        data[i] = t ? t->data : NULL;
        if (!data[i])
            return err_set(err, PL_BAD_FILE, "%s: tensor %s has no data",
                           gguf_path(m->file), t ? t->name : name);
    }
    *out = (struct exec_parts){n, data};
    return PL_OK;
}

static pl_status load(pl_engine *e, const pl_options *opt, pl_err *err)
{
    const pl_graph *g = e->plan->graph;
    struct arena a = {0};
    struct exec_parts *weight =
        arena_alloc(&a, (size_t)g->n_node + 1, sizeof *weight);
    const struct exec_source from = {weight, check_whole, e};
    pl_status s = weight ? PL_OK : err_no_memory(err, "loading weights");

    for (int i = 0; i < g->n_node && s == PL_OK; i++) {
        weight[i].n = 0;
        if (g->node[i].op == OP_weight)
            s = find_parts(e->plan->model->model, g->node[i].name, &a,
                           &weight[i], err);
    }
    if (s == PL_OK)
        s = exec_load(e->exec, &from, opt, err);
    arena_fini(&a);
    return s;
}

/* Returns the tensor with this name in the engine's graph. Returns -1 if there
 * is none or if it is not kept after a step (pl_keep). */
static pl_tensor find_kept(const pl_engine *e, const char *name)
{
    const pl_graph *g = e->plan->graph;
    pl_tensor t = pl_tensor_find(g, name);

    return t >= 0 && g->node[t].keep ? t : -1;
}

static void find_tensors(pl_engine *e)
{
    e->ids = pl_tensor_find(e->plan->graph, "ids");
    e->pos = pl_tensor_find(e->plan->graph, "pos");
    e->out_ids = pl_tensor_find(e->plan->graph, "out_ids");
    e->logits = pl_tensor_find(e->plan->graph, "logits");
    e->hidden = pl_tensor_find(e->plan->graph, "hidden");
    e->hidden_out = find_kept(e, "result_hidden");
    e->hidden_rows =
        e->receive ? pl_tensor_find(e->plan->graph, "hidden_rows") : -1;
    e->ends = pl_tensor_find(e->plan->graph, "ends");
    e->scores = pl_tensor_find(e->plan->graph, "scores");
    e->norm_out = engine_is_encoder(e)
                      ? pl_tensor_find(e->plan->graph, "result_norm")
                      : find_kept(e, "result_norm");
}

pl_status engine_sum(pl_engine *e, const volatile int *cancel, pl_err *err)
{
    const struct device_list *l = &e->plan->compiled->list;
    int n_thread = 0;

    if (e->has_weights)
        return PL_OK;
    for (int d = 0; d < l->n; d++)
        n_thread += l->dev[d].n_thread;
    if (n_thread == 0) /* No device has threads: all are accelerators, so the
                          number does not follow from the plan. */
        n_thread = 8;
    PL_TRY(model_sum(&e->weights, e->plan->model->file, n_thread,
                     MODEL_SUM_LEAST, cancel, err));
    e->has_weights = true;
    return PL_OK;
}

pl_status pl_engine_sum(pl_engine *e, const volatile int *cancel, pl_err *err)
{
    pl_status s;

    PL_NEED(e, err);
    PL_TRY(exec_enter(e->exec, err));
    s = engine_sum(e, cancel, err);
    exec_leave(e->exec);
    return s;
}

/* Returns a random number that identifies the engine among the engines of all
 * processes. */
static uint64_t draw_mark(const pl_engine *e)
{
    struct {
        uint64_t chance, at;
        struct timespec time;
    } is = {.at = (uintptr_t)e};

    (void)!getrandom(&is.chance, sizeof is.chance, GRND_NONBLOCK);
    clock_gettime(CLOCK_MONOTONIC, &is.time);
    return hash64(0, &is, sizeof is);
}

static void engine_free(pl_engine *e)
{
    if (e->block)
        engine_free(e->block);
    exec_free(e->exec);
    if (e->machines)
        e->machines->busy = false;
    if (!e->is_block)
        plan_free(e->plan);
    kv_fini(&e->kv);
    batch_fini(e);
    free(e);
}

static pl_engine *new_engine(const pl_options *opt, pl_err *err)
{
    pl_engine *e = calloc(1, sizeof *e);

    if (!e) {
        err_no_memory(err, "an engine");
        return NULL;
    }
    e->log = opt->log;
    e->log_user = opt->log_user;
    e->receive = opt->hidden;
    e->receive_user = opt->hidden_user;
    e->mark = draw_mark(e);
    return e;
}

/* Allocates what an engine with a plan needs, and loads its weights. */
static pl_status open_engine(pl_engine *e, const pl_options *opt, pl_err *err)
{
    pl_status s = exec_create(&e->exec, e->plan->compiled, opt, err);

    if (s == PL_NO_DEVICE_MEMORY)
        fit_explain(err, e->plan->compiled);
    if (s == PL_OK)
        s = batch_init(e, err);
    if (s == PL_OK)
        find_tensors(e);
    if (s == PL_OK && opt->prefix_cache && e->hidden < 0 &&
        !engine_is_encoder(e))
        s = prefix_init(&e->kv, err);
    return s == PL_OK ? load(e, opt, err) : s;
}

/* Creates the engine of the plan's block for multi-token prediction. */
static pl_status open_block(pl_engine *e, const pl_options *opt, pl_err *err)
{
    const pl_options own = plan_block_options(e->plan, opt);

    e->block = new_engine(&own, err);
    if (!e->block)
        return PL_NO_MEMORY;
    e->block->is_block = true;
    e->block->plan = e->plan->block;
    return open_engine(e->block, &own, err);
}

pl_status pl_engine_create(pl_engine **out, const pl_model *m,
                           const pl_options *opt, pl_err *err)
{
    pl_options own;
    pl_engine *e;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(m, err);
    PL_TRY(options_read(&own, opt, err));
    opt = &own;
    e = new_engine(opt, err);
    if (!e)
        return PL_NO_MEMORY;
    s = pl_plan_create(&e->plan, m, opt, err);
    if (s == PL_OK) {
        e->plan->borrowed = true;
        s = machine_plan_send(e->plan, opt, err);
        if (s == PL_OK)
            e->machines = opt->machines;
    }
    if (s == PL_OK)
        s = open_engine(e, opt, err);
    if (s == PL_OK && e->plan->block)
        s = open_block(e, opt, err);
    if (s == PL_OK && e->machines && e->machines->net->machine == 0)
        s = device_set_await(e->exec->set, err);
    if (s != PL_OK) {
        machine_plan_failed(e->machines, err);
        engine_free(e);
        return s;
    }
    *out = e;
    return PL_OK;
}

int64_t pl_engine_max_text(const pl_engine *e)
{
    int64_t n = pl_engine_n_ctx(e);

    if (e && engine_is_encoder(e)) {
        const int64_t step = e->plan->compiled->max.n_tok;
        const int64_t trained = e->plan->model->model->n_ctx_train;

        n = step < n ? step : n;
        /* There is no embedding of a later position. */
        if (pl_tensor_find(e->plan->graph, "position_embd.weight") >= 0 &&
            trained < n)
            n = trained;
    }
    return n;
}

void pl_engine_free(pl_engine *e)
{
    if (e && !e->is_block && exec_may_free(e->exec))
        engine_free(e);
}

pl_engine *pl_engine_mtp(pl_engine *e)
{
    return e ? e->block : NULL;
}

const pl_plan *pl_engine_plan(const pl_engine *e)
{
    return e ? e->plan : NULL;
}

void pl_engine_counters(const pl_engine *e, pl_counters *out, size_t size)
{
    pl_exec_counters(e ? e->exec : NULL, out, size);
}

/* Begins a public call of a function that returns numbers instead of a status.
 * Returns false if e is NULL or the engine is busy with another call. The
 * function then returns zeros. */
static bool enter(const pl_engine *e)
{
    return e && exec_enter(e->exec, NULL) == PL_OK;
}

int pl_engine_devices(const pl_engine *e, pl_device_counters *out, int n,
                      size_t size)
{
    int n_device = 0;

    for (int i = 0; i < n && out; i++)
        memset((char *)out + (size_t)i * size, 0, size);
    if (enter(e)) {
        n_device = exec_devices(e->exec, out, out ? n : 0, size);
        exec_leave(e->exec);
    }
    return n_device;
}

int pl_engine_traffic(const pl_engine *e, pl_device_traffic *out, int n,
                      size_t size)
{
    int n_device = 0;

    for (int i = 0; i < n && out; i++)
        memset((char *)out + (size_t)i * size, 0, size);
    if (enter(e)) {
        n_device = exec_traffic(e->exec, out, out ? n : 0, size);
        exec_leave(e->exec);
    }
    return n_device;
}

/* Reports the pages of the pool without a window, if there is one, because that
 * pool is the first to run out of pages. */
void pl_engine_cache(const pl_engine *e, pl_cache_counters *out, size_t size)
{
    pl_cache_counters c = {0};
    const struct kv_pool *p = NULL;

    if (enter(e)) {
        for (int k = e->kv.n_pool - 1; k >= 0; k--)
            if (!p || (!e->kv.pool[k].state && e->kv.pool[k].window == 0) ||
                p->state)
                p = &e->kv.pool[k];
        if (p)
            c = (pl_cache_counters){p->n_page,
                                    p->n_page - p->n_free - p->n_evictable,
                                    p->n_evictable};
        exec_leave(e->exec);
    }
    sized_write(out, size, &c, sizeof c);
}

void pl_engine_traced(const pl_engine *e, pl_traced *out, size_t size)
{
    pl_exec_traced(e ? e->exec : NULL, out, size);
}

int64_t pl_engine_n_ctx(const pl_engine *e)
{
    return e ? e->plan->n_ctx : 0;
}

pl_status engine_copy_page(void *user, int pool, int from, int to, pl_err *err)
{
    pl_engine *e = user;

    return exec_copy_page(e->exec, pool, from, to, err);
}

/* Sequences of an engine ------------------------------------------------- */

bool engine_is_seq(const pl_engine *e, int seq)
{
    return seq >= 0 && seq < e->kv.n_seq;
}

bool engine_reads_file(const pl_engine *e, const char *path)
{
    return gguf_has_file(e->plan->model->file, path);
}

pl_status engine_no_seq(const pl_engine *e, int seq, pl_err *err)
{
    return err_set(err, PL_BAD_ARGUMENT,
                   "sequence %d is not in 0 .. %d; raise options.n_seq", seq,
                   e->kv.n_seq - 1);
}

int64_t pl_seq_length(const pl_engine *e, int seq)
{
    int64_t n = 0;

    if (enter(e)) {
        n = engine_is_seq(e, seq) ? e->kv.length[seq] : 0;
        exec_leave(e->exec);
    }
    return n;
}

static pl_status trim(pl_engine *e, int seq, int64_t n_keep, int64_t *kept,
                      pl_err *err)
{
    int64_t nearest;

    if (!engine_is_seq(e, seq))
        return engine_no_seq(e, seq, err);
    if (n_keep < 0 || n_keep > e->kv.length[seq])
        return err_set(err, PL_BAD_ARGUMENT,
                       "cannot keep %" PRId64
                       " tokens of sequence %d, which has %" PRId64,
                       n_keep, seq, e->kv.length[seq]);
    nearest = kv_trimmable_length(&e->kv, seq, n_keep);
    if (nearest < n_keep && !kept)
        return err_set(err, PL_NOT_FOUND,
                       "cannot trim to %" PRId64
                       " tokens of sequence %d: its window or state data there "
                       "was evicted; %" PRId64 " can be kept",
                       n_keep, seq, nearest);
    if (nearest < e->kv.length[seq])
        prefix_insert_state(&e->kv, seq);
    kv_trim(&e->kv, seq, nearest);
    if (kept)
        *kept = nearest;
    return PL_OK;
}

static pl_status copy(pl_engine *e, int dst, int src, pl_err *err)
{
    if (!engine_is_seq(e, dst) || !engine_is_seq(e, src))
        return engine_no_seq(e, engine_is_seq(e, dst) ? src : dst, err);
    if (dst != src)
        prefix_insert_state(&e->kv, dst);
    return kv_copy(&e->kv, dst, src, engine_copy_page, e, err);
}

void engine_trust_prefixes(pl_engine *e)
{
    if (e->n_set != e->exec->n_set)
        prefix_clear(&e->kv);
    e->n_set = e->exec->n_set;
}

static pl_status share(pl_engine *e, int seq, const int32_t *token, int64_t n,
                       int64_t *n_shared, pl_err *err)
{
    int64_t n_vocab = e->plan->model->model->n_vocab;

    if (!engine_is_seq(e, seq))
        return engine_no_seq(e, seq, err);
    if (n < 0)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "cannot look up a prefix of %" PRId64 " tokens; give 0 or more", n);
    if (e->kv.length[seq] > 0)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "sequence %d has %" PRId64
            " tokens, so it cannot start with a cached prefix; empty it first",
            seq, e->kv.length[seq]);
    if (n > e->plan->n_ctx)
        return err_set(
            err, PL_FULL,
            "%" PRId64
            " tokens for sequence %d do not fit into the context of %" PRId64
            "; use a larger one",
            n, seq, e->plan->n_ctx);
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= n_vocab)
            return err_set(
                err, PL_BAD_ARGUMENT,
                "token %" PRId64
                " of the prefix is %d, outside the vocabulary of 0 .. %" PRId64,
                i, token[i], n_vocab - 1);
    /* Asynchronous transfers may still change weights or caches, which makes
     * cached prefixes invalid. */
    PL_TRY(exec_wait_async(e->exec, err));
    engine_trust_prefixes(e);
    if (n > 0)
        *n_shared = prefix_match(&e->kv, seq, token, n - 1);
    return PL_OK;
}

pl_status pl_seq_share(pl_engine *e, int seq, const int32_t *token, int64_t n,
                       int64_t *n_shared, pl_err *err)
{
    pl_status s;

    PL_CLEAR(n_shared);
    PL_NEED(e, err);
    PL_NEED_ARRAY(token, n, err);
    PL_NEED(n_shared, err);
    PL_TRY(exec_enter(e->exec, err));
    s = share(e, seq, token, n, n_shared, err);
    exec_leave(e->exec);
    return s;
}

int64_t pl_prefix_match_length(pl_engine *e, const int32_t *token, int64_t n)
{
    int64_t length = 0;

    if (n < 1 || !token || !e || n > e->plan->n_ctx || !enter(e))
        return 0;
    if (exec_wait_async(e->exec, NULL) == PL_OK) {
        engine_trust_prefixes(e);
        length = prefix_match_length(&e->kv, token, n - 1);
    }
    exec_leave(e->exec);
    return length;
}

static pl_status tell(pl_engine *e, int seq, const int32_t *token, int64_t n,
                      pl_err *err)
{
    int64_t n_vocab = e->plan->model->model->n_vocab;

    if (!engine_is_seq(e, seq))
        return engine_no_seq(e, seq, err);
    if (n != e->kv.length[seq] ||
        (n > 0 && e->kv.prefix && e->kv.prefix->seq[seq].n > 0))
        return err_set(err, PL_BAD_ARGUMENT,
                       "sequence %d was given %" PRId64
                       " token ids; it has %" PRId64 "%s",
                       seq, n, e->kv.length[seq],
                       n == e->kv.length[seq] ? ", whose ids are known" : "");
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64
                           " of sequence %d was given as %d, outside the "
                           "vocabulary of 0 .. %" PRId64,
                           i, seq, token[i], n_vocab - 1);
    PL_TRY(exec_wait_async(e->exec, err));
    if (e->kv.prefix)
        engine_trust_prefixes(e);
    prefix_insert(&e->kv, seq, 0, token, n);
    return PL_OK;
}

pl_status pl_seq_set_tokens(pl_engine *e, int seq, const int32_t *token,
                            int64_t n, pl_err *err)
{
    pl_status s;

    PL_NEED(e, err);
    PL_NEED_ARRAY(token, n, err);
    PL_TRY(exec_enter(e->exec, err));
    s = tell(e, seq, token, n, err);
    exec_leave(e->exec);
    return s;
}

/* Returns the number of tokens that still fit into a pool: those of its free
 * pages and, if `seq` is not -1, of the free space in the last page of that
 * sequence. */
static int64_t pool_room(const struct kv *kv, int pool, int seq)
{
    const struct kv_pool *p = &kv->pool[pool];
    int64_t room = (int64_t)kv_free_pages(kv, pool) * PAGE_TOKENS;

    if (p->state || p->window > 0)
        return INT64_MAX; /* A pool of states or with a window never runs out of
                             pages. */
    if (seq < 0 || kv->length[seq] % PAGE_TOKENS == 0)
        return room;
    /* If other sequences share the last page of `seq`, it must be copied before
     * a token is added, and the copy takes a free page. */
    room -= (int64_t)kv_pages_needed(kv, pool, seq, 1, false) * PAGE_TOKENS;
    return room < 0 ? 0 : room + PAGE_TOKENS - kv->length[seq] % PAGE_TOKENS;
}

static int64_t room_of(const pl_engine *e, int seq)
{
    const struct kv *kv = &e->kv;
    int64_t room = 0;

    if (seq >= kv->n_seq || seq < -1)
        return 0;
    for (int s = 0; s < kv->n_seq; s++)
        if (seq < 0 || s == seq)
            room += e->plan->n_ctx - kv->length[s];
    for (int k = 0; k < kv->n_pool; k++)
        if (pool_room(kv, k, seq) < room)
            room = pool_room(kv, k, seq);
    return room;
}

int64_t pl_engine_free_tokens(const pl_engine *e, int seq)
{
    int64_t room = 0;

    if (enter(e)) {
        room = room_of(e, seq);
        exec_leave(e->exec);
    }
    return room;
}

pl_status pl_seq_trim(pl_engine *e, int seq, int64_t n_keep, int64_t *kept,
                      pl_err *err)
{
    pl_status s;

    PL_CLEAR(kept);
    PL_NEED(e, err);
    PL_TRY(exec_enter(e->exec, err));
    s = trim(e, seq, n_keep, kept, err);
    exec_leave(e->exec);
    return s;
}

pl_status pl_seq_copy(pl_engine *e, int dst, int src, pl_err *err)
{
    pl_status s;

    PL_NEED(e, err);
    PL_TRY(exec_enter(e->exec, err));
    s = copy(e, dst, src, err);
    exec_leave(e->exec);
    return s;
}
