/* pl_engine: weights on devices, sequences, batches cut into steps. */
#include "engine/engine.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static pl_status load(pl_engine *e, const pl_options *opt, pl_err *err)
{
    const pl_graph *g = e->plan->graph;
    const void **data = calloc((size_t)g->n_node + 1, sizeof *data);
    pl_status s = PL_OK;

    if (!data)
        return err_no_memory(err, "loading weights");
    for (int i = 0; i < g->n_node && s == PL_OK; i++) {
        const struct gguf_tensor *t;

        if (g->node[i].op != OP_weight)
            continue;
        t = gguf_find_tensor(e->plan->model->file, g->node[i].name);
        if (!t || !t->data)
            s = err_set(err, PL_BAD_FILE, "%s: tensor %s has no data",
                        gguf_path(e->plan->model->file), g->node[i].name);
        else
            data[i] = t->data;
    }
    if (s == PL_OK)
        s = exec_load(e->exec, data, opt, err);
    free(data);
    return s;
}

static pl_status tables(pl_engine *e, pl_err *err)
{
    const struct planned *p = e->plan->planned;
    size_t n = (size_t)p->max.n_tok;

    e->token = calloc(n, sizeof *e->token);
    e->position = calloc(n, sizeof *e->position);
    e->seq = calloc(n, sizeof *e->seq);
    e->out_row = calloc(n, sizeof *e->out_row);
    e->from = calloc(n, sizeof *e->from);
    e->row_of = calloc(n, sizeof *e->row_of);
    e->n_new = calloc((size_t)p->n_seq, sizeof *e->n_new);
    if (!e->token || !e->position || !e->seq || !e->out_row || !e->from ||
        !e->row_of || !e->n_new)
        return err_no_memory(err, "an engine");
    return kv_init(&e->kv, p->n_seq, p->page_stride, err);
}

pl_status pl_engine_create(pl_engine **out, const pl_model *m,
                           const pl_options *opt, pl_err *err)
{
    const pl_options defaults = {0};
    pl_engine *e = calloc(1, sizeof *e);
    pl_status s;

    *out = NULL;
    opt = opt ? opt : &defaults;
    if (!e)
        return err_no_memory(err, "an engine");
    e->log = opt->log;
    e->log_user = opt->log_user;
    s = pl_plan_create(&e->plan, m, opt, err);
    if (s == PL_OK)
        s = exec_create(&e->exec, e->plan->planned, opt, err);
    if (s == PL_OK)
        s = tables(e, err);
    if (s == PL_OK)
        s = load(e, opt, err);
    if (s != PL_OK) {
        pl_engine_free(e);
        return s;
    }
    e->ids = pl_tensor_find(e->plan->graph, "ids");
    e->pos = pl_tensor_find(e->plan->graph, "pos");
    e->out_ids = pl_tensor_find(e->plan->graph, "out_ids");
    e->logits = pl_tensor_find(e->plan->graph, "logits");
    *out = e;
    return PL_OK;
}

void pl_engine_free(pl_engine *e)
{
    if (!e)
        return;
    pl_exec_free(e->exec);
    pl_plan_free(e->plan);
    kv_fini(&e->kv);
    free(e->token);
    free(e->position);
    free(e->seq);
    free(e->out_row);
    free(e->from);
    free(e->row_of);
    free(e->n_new);
    free(e);
}

const pl_plan *pl_engine_plan(const pl_engine *e)
{
    return e->plan;
}

void pl_engine_counters(const pl_engine *e, pl_counters *out)
{
    pl_exec_counters(e->exec, out);
}

int64_t pl_engine_n_ctx(const pl_engine *e)
{
    return e->plan->n_ctx;
}

/* Batches ---------------------------------------------------------------- */

pl_status engine_copy_page(void *user, int from, int to, pl_err *err)
{
    pl_engine *e = user;

    return exec_copy_page(e->exec, from, to, err);
}

static int seq_of(const pl_batch *b, int64_t i)
{
    return b->seq ? b->seq[i] : 0;
}

static pl_status check(pl_engine *e, const pl_batch *b, pl_err *err)
{
    const struct planned *p = e->plan->planned;
    int64_t n_vocab = e->plan->model->model->n_vocab;
    int need = 0;

    if (b->n < 0 || (b->n > 0 && !b->token))
        return err_set(err, PL_BAD_ARGUMENT, "a batch of %" PRId64 " tokens",
                       b->n);
    memset(e->n_new, 0, (size_t)p->n_seq * sizeof *e->n_new);
    for (int64_t i = 0; i < b->n; i++) {
        if (seq_of(b, i) < 0 || seq_of(b, i) >= p->n_seq)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64 " of the batch: sequence %d; 0 to "
                           "%d are planned",
                           i, seq_of(b, i), p->n_seq - 1);
        if (b->token[i] < 0 || b->token[i] >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64 " of the batch is %d; the "
                           "vocabulary has 0 to %" PRId64,
                           i, b->token[i], n_vocab - 1);
        if ((!b->wanted || b->wanted[i]) && !b->logits)
            return err_set(err, PL_BAD_ARGUMENT,
                           "logits are wanted and there is no room for them");
        e->n_new[seq_of(b, i)]++;
    }
    for (int s = 0; s < p->n_seq; s++) {
        int64_t have = e->kv.length[s];

        need += kv_need(&e->kv, s, e->n_new[s]);
        if (e->n_new[s] && have + e->n_new[s] > e->plan->n_ctx)
            return err_set(err, PL_FULL,
                           "sequence %d has %" PRId64 " tokens; %" PRId64
                           " more do not fit into a context of %" PRId64
                           ": give a larger one",
                           s, have, e->n_new[s], e->plan->n_ctx);
    }
    if (need > e->kv.n_free)
        return err_set(err, PL_FULL,
                       "the batch needs %d pages of %d tokens, %d of %d are "
                       "free: give a larger context or end a sequence",
                       need, KV_PAGE, e->kv.n_free, e->kv.n_page);
    return PL_OK;
}

/* Tokens [*next, ..) that make one step, grouped by sequence. Returns their
 * number; *n_out rows are wanted. */
static int64_t gather_step(pl_engine *e, const pl_batch *b, int64_t *next,
                           int64_t *row, int64_t *n_out)
{
    const struct planned *p = e->plan->planned;
    int64_t end = *next, wanted = 0, n = 0;

    while (end < b->n && end - *next < p->max.n_tok) {
        bool w = !b->wanted || b->wanted[end];

        if (w && wanted == p->max.n_out)
            break;
        wanted += w;
        end++;
    }
    *n_out = 0;
    for (int64_t i = *next; i < end; i++) {
        int s = seq_of(b, i);
        bool first = true;

        for (int64_t k = *next; k < i && first; k++)
            first = seq_of(b, k) != s;
        if (!first && b->seq)
            continue;
        if (!first)
            break;
        for (int64_t k = i; k < end; k++) {
            if (seq_of(b, k) != s)
                continue;
            e->from[n] = k;
            e->token[n] = b->token[k];
            e->seq[n] = s;
            n++;
        }
    }
    for (int64_t k = 0, at; k < n; k++) {
        if (b->wanted && !b->wanted[e->from[k]])
            continue;
        at = *row; /* logits keep the batch's order */
        for (int64_t i = *next; i < e->from[k]; i++)
            at += !b->wanted || b->wanted[i];
        e->out_row[*n_out] = (int32_t)k;
        e->row_of[(*n_out)++] = at;
    }
    *row += wanted;
    *next = end;
    return n;
}

/* Tokens of the sequence whose tokens begin at i. */
static int64_t seq_run(const pl_engine *e, int64_t i, int64_t n)
{
    int64_t k = i;

    while (k < n && e->seq[k] == e->seq[i])
        k++;
    return k - i;
}

static pl_status run_step(pl_engine *e, const pl_batch *b, int64_t n,
                          int64_t n_out, pl_err *err)
{
    size_t n_vocab = (size_t)e->plan->model->model->n_vocab;
    pl_rows rows = {.n_tok = n,
                    .n_out = n_out,
                    .pos = e->position,
                    .seq = e->seq,
                    .pages = e->kv.table,
                    .page_stride = e->kv.stride};

    PL_TRY(pl_tensor_set(e->exec, e->ids, e->token, 0, 4 * (size_t)n, err));
    PL_TRY(pl_tensor_set(e->exec, e->pos, e->position, 0, 4 * (size_t)n, err));
    PL_TRY(pl_tensor_set(e->exec, e->out_ids, e->out_row, 0, 4 * (size_t)n_out,
                         err));
    PL_TRY(pl_exec_step(e->exec, &rows, err));
    for (int64_t k = 0; k < n_out; k++)
        PL_TRY(pl_tensor_get(e->exec, e->logits,
                             b->logits + (size_t)e->row_of[k] * n_vocab,
                             4 * (size_t)k * n_vocab, 4 * n_vocab, err));
    return PL_OK;
}

/* One step; the sequences grow only if it succeeds. */
static pl_status step(pl_engine *e, const pl_batch *b, int64_t n, int64_t n_out,
                      pl_err *err)
{
    pl_status s = PL_OK;
    int64_t reserved = 0;

    for (int64_t i = 0, len; i < n && s == PL_OK; i += len) {
        len = seq_run(e, i, n);
        for (int64_t k = 0; k < len; k++)
            e->position[i + k] = (int32_t)(e->kv.length[e->seq[i]] + k);
        s = kv_reserve(&e->kv, e->seq[i], len, engine_copy_page, e, err);
        if (s == PL_OK)
            reserved = i + len;
    }
    if (s == PL_OK)
        s = run_step(e, b, n, n_out, err);
    for (int64_t i = 0, len; i < reserved; i += len) {
        len = seq_run(e, i, n);
        if (s == PL_OK)
            kv_advance(&e->kv, e->seq[i], len);
        else
            kv_unreserve(&e->kv, e->seq[i], len);
    }
    return s;
}

pl_status pl_engine_decode(pl_engine *e, const pl_batch *b,
                           const volatile int *cancel, pl_err *err)
{
    int64_t next = 0, row = 0;

    PL_TRY(check(e, b, err));
    while (next < b->n) {
        int64_t n_out, n;

        if (cancel && *cancel)
            return err_set(err, PL_CANCELLED, "stopped on request");
        n = gather_step(e, b, &next, &row, &n_out);
        PL_TRY(step(e, b, n, n_out, err));
    }
    return PL_OK;
}

/* Sequences -------------------------------------------------------------- */

bool engine_is_seq(const pl_engine *e, int seq)
{
    return seq >= 0 && seq < e->kv.n_seq;
}

pl_status engine_no_seq(const pl_engine *e, int seq, pl_err *err)
{
    return err_set(err, PL_NOT_FOUND, "sequence %d; 0 to %d are planned", seq,
                   e->kv.n_seq - 1);
}

int64_t pl_seq_length(const pl_engine *e, int seq)
{
    return engine_is_seq(e, seq) ? e->kv.length[seq] : 0;
}

pl_status pl_seq_trim(pl_engine *e, int seq, int64_t n_keep, pl_err *err)
{
    if (!engine_is_seq(e, seq))
        return engine_no_seq(e, seq, err);
    if (n_keep < 0 || n_keep > e->kv.length[seq])
        return err_set(err, PL_BAD_ARGUMENT,
                       "%" PRId64 " tokens of sequence %d are to be kept; it "
                       "has %" PRId64,
                       n_keep, seq, e->kv.length[seq]);
    kv_trim(&e->kv, seq, n_keep);
    return PL_OK;
}

pl_status pl_seq_copy(pl_engine *e, int dst, int src, pl_err *err)
{
    if (!engine_is_seq(e, dst) || !engine_is_seq(e, src))
        return engine_no_seq(e, engine_is_seq(e, dst) ? src : dst, err);
    return kv_copy(&e->kv, dst, src, engine_copy_page, e, err);
}
