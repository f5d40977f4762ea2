/* Implements pl_engine_decode: splits a batch, which has tokens of any
 * sequences, into steps of micro-batches, and runs them.
 *
 * A micro-batch has at most as many tokens, and as many rows of logits, as the
 * programs support. Its tokens are grouped by sequence. If the layers are
 * distributed over several groups of devices, a step has several micro-batches,
 * so that the groups compute at the same time. The split does not change any
 * bit. */
#include "engine/engine.h"

#include "base/err.h"
#include "base/sized.h"
#include "plan/microbatch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tokens of one micro-batch. Arrays have space for the largest
 * micro-batch. */
struct micro {
    int64_t n, n_out;
    /* Owned; id, position and sequence of each token; out_row has, for each
     * output token, its index in the micro-batch. */
    int32_t *token, *position, *seq, *out_row;
    int32_t *end; /* owned; for each token, the last position of its text */
    /* Owned; for each token of the micro-batch, its index in the caller's
     * batch. */
    int64_t *from;
    /* owned; for each token of the micro-batch, the row of the caller's results
     * to which its logits are copied, or -1 if the caller wants none */
    int64_t *row;
    /* owned; for each output token of the micro-batch, the row of the caller's
     * results */
    int64_t *row_of;
};

struct batch_seq {
    int64_t n_new; /* number of tokens of this sequence in the caller's batch; 0
                      between batches */
    int64_t n_old; /* length of the sequence in tokens before the batch */
    int64_t n_run; /* length of the sequence in tokens before the last step */
    /* index in the micro-batch at which the next token of this sequence is put;
     * -1 if the micro-batch has no token of the sequence yet */
    int64_t at;
};

pl_status batch_init(pl_engine *e, pl_err *err)
{
    const struct compiled *p = e->plan->compiled;
    size_t n = (size_t)p->max.n_tok;
    int n_page[PL_MAX_POOL];

    e->n_micro = exec_n_micro(e->exec);
    e->micro = calloc((size_t)e->n_micro, sizeof *e->micro);
    e->batch_seq = calloc((size_t)p->max.n_seq, sizeof *e->batch_seq);
    e->of = calloc((size_t)p->max.n_seq, sizeof *e->of);
    if (e->receive)
        e->rows =
            calloc(n * (size_t)e->plan->model->model->d_model, sizeof *e->rows);
    if (!e->micro || !e->batch_seq || !e->of || (e->receive && !e->rows))
        return err_no_memory(err, "an engine");
    for (int k = 0; k < e->n_micro; k++) {
        struct micro *m = &e->micro[k];

        m->token = calloc(n, sizeof *m->token);
        m->position = calloc(n, sizeof *m->position);
        m->seq = calloc(n, sizeof *m->seq);
        m->out_row = calloc(n, sizeof *m->out_row);
        m->end = calloc(n, sizeof *m->end);
        m->from = calloc(n, sizeof *m->from);
        m->row = calloc(n, sizeof *m->row);
        m->row_of = calloc(n, sizeof *m->row_of);
        if (!m->token || !m->position || !m->seq || !m->out_row || !m->end ||
            !m->from || !m->row || !m->row_of)
            return err_no_memory(err, "an engine");
    }
    for (int k = 0; k < e->plan->graph->n_pool; k++)
        n_page[k] =
            (int)(p->max.n_slot[k] / pool_page_slots(&e->plan->graph->pool[k]));
    return kv_init(&e->kv, (int)p->max.n_seq, p->page_stride, e->plan->graph,
                   n_page, err);
}

void batch_fini(pl_engine *e)
{
    for (int k = 0; e->micro && k < e->n_micro; k++) {
        free(e->micro[k].token);
        free(e->micro[k].position);
        free(e->micro[k].seq);
        free(e->micro[k].out_row);
        free(e->micro[k].end);
        free(e->micro[k].from);
        free(e->micro[k].row);
        free(e->micro[k].row_of);
    }
    free(e->micro);
    free(e->batch_seq);
    free(e->of);
    free(e->rows);
}

static int seq_of(const pl_batch *b, int64_t i)
{
    return b->seq ? b->seq[i] : 0;
}

static bool is_wanted(const pl_batch *b, int64_t i)
{
    return !b->wanted || b->wanted[i];
}

/* Checks that enough pages are free for the whole batch. Pools with windows
 * always have the pages that a step needs. */
static pl_status check_room(const pl_engine *e, pl_err *err)
{
    for (int k = 0; k < e->kv.n_pool; k++) {
        const struct kv_pool *p = &e->kv.pool[k];
        int need = 0;

        for (int i = 0; i < e->n_batch_seq && p->window == 0; i++) {
            int s = e->batch_seq[i];

            need += kv_pages_needed(&e->kv, k, s, e->of[s].n_new, false);
        }
        if (need > kv_free_pages(&e->kv, k))
            return err_set(
                err, PL_FULL,
                "the batch needs %d pages of %d tokens, but %d of %d are free; "
                "use a larger context or end a sequence",
                need, PAGE_TOKENS, kv_free_pages(&e->kv, k), p->n_page);
    }
    return PL_OK;
}

static pl_status check_hidden(const pl_engine *e, const pl_batch *b,
                              pl_err *err)
{
    if (e->hidden >= 0 && b->n > 0 && !b->hidden)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a multi-token prediction block needs the model's "
                       "hidden values; set the batch's hidden");
    if (e->hidden < 0 && b->hidden)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "hidden values given, but the engine does not run a multi-token "
            "prediction block; open one with options.mtp");
    if (e->hidden_out < 0 && b->hidden_out)
        return err_set(err, PL_BAD_ARGUMENT,
                       "hidden values requested but not kept; add "
                       "\"result_hidden\" to options.keep");
    if (e->logits < 0 && b->logits)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: an encoder (%s) has no logits; request embeddings "
                       "(norm_out), as `plait serve --embeddings` does",
                       gguf_path(e->plan->model->file),
                       e->plan->model->model->family->arch);
    if (e->scores < 0 && b->scores)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: the model has no class head (pooling_type is not "
                       "4, rank), so there are no scores; use a reranker",
                       gguf_path(e->plan->model->file));
    if (e->norm_out < 0 && b->norm_out)
        return err_set(err, PL_BAD_ARGUMENT,
                       "normed values requested but not kept; add "
                       "\"result_norm\" to options.keep");
    return PL_OK;
}

static pl_status check_tokens(const pl_engine *e, const pl_batch *b,
                              pl_err *err)
{
    int64_t n_vocab = e->plan->model->model->n_vocab;
    int n_seq = e->kv.n_seq;

    for (int64_t i = 0; i < b->n; i++) {
        if (seq_of(b, i) < 0 || seq_of(b, i) >= n_seq)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64 " of the batch: sequence %d is not "
                           "in 0 .. %d; raise options.n_seq",
                           i, seq_of(b, i), n_seq - 1);
        if (b->token[i] < 0 || b->token[i] >= n_vocab)
            return err_set(
                err, PL_BAD_ARGUMENT,
                "token %" PRId64
                " of the batch is %d, outside the vocabulary of 0 .. %" PRId64,
                i, b->token[i], n_vocab - 1);
        if (is_wanted(b, i) && !b->logits && !b->hidden_out && !b->norm_out &&
            !b->scores)
            return err_set(err, PL_BAD_ARGUMENT,
                           "logits requested, but the output buffer is NULL");
    }
    return PL_OK;
}

/* Lists the sequences of the batch in e->batch_seq, and counts the tokens of
 * each. */
static void list_seqs(pl_engine *e, const pl_batch *b)
{
    for (int i = 0; i < e->n_batch_seq; i++)
        e->of[e->batch_seq[i]].n_new = 0;
    e->n_batch_seq = 0;
    for (int64_t i = 0; i < b->n; i++) {
        int s = seq_of(b, i);

        if (e->of[s].n_new++ > 0)
            continue;
        e->batch_seq[e->n_batch_seq++] = s;
        e->of[s].n_old = e->kv.length[s];
        e->of[s].at = -1;
    }
}

/* Checks that the batch of an encoder has whole texts, each of which fits into
 * a micro-batch. */
static pl_status check_texts(const pl_engine *e, const pl_batch *b, pl_err *err)
{
    const int64_t most = pl_engine_max_text(e);
    const int64_t most_out = e->plan->compiled->max.n_out;

    for (int64_t i = 0, n, wanted; i < b->n; i += n) {
        const int s = seq_of(b, i);

        for (n = wanted = 0; i + n < b->n && seq_of(b, i + n) == s; n++)
            wanted += is_wanted(b, i + n);
        if (e->of[s].n_old > 0)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sequence %d has %" PRId64
                           " tokens; an encoder computes texts whole, so empty "
                           "the sequence first (pl_seq_trim)",
                           s, e->of[s].n_old);
        if (n < e->of[s].n_new)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sequence %d: its %" PRId64
                           " tokens are not adjacent in the batch; an encoder "
                           "needs whole texts one after another",
                           s, e->of[s].n_new);
        if (n > most)
            return err_set(err, PL_FULL,
                           "sequence %d: the text has %" PRId64
                           " tokens; an encoder computes it in one "
                           "micro-batch, of at most %" PRId64
                           "; raise n_ubatch (-ub), or shorten the text",
                           s, n, most);
        if (wanted > most_out)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sequence %d: %" PRId64
                           " rows wanted, but a micro-batch returns %" PRId64
                           "; raise options.n_out",
                           s, wanted, most_out);
    }
    return PL_OK;
}

static pl_status check(pl_engine *e, const pl_batch *b, pl_err *err)
{
    if (b->n < 0 || (b->n > 0 && !b->token))
        return err_set(err, PL_BAD_ARGUMENT, "a batch of %" PRId64 " tokens%s",
                       b->n, b->n < 0 ? "" : " without ids");
    PL_TRY(check_hidden(e, b, err));
    PL_TRY(check_tokens(e, b, err));
    list_seqs(e, b);
    if (engine_is_encoder(e))
        PL_TRY(check_texts(e, b, err));
    for (int i = 0; i < e->n_batch_seq; i++) {
        int s = e->batch_seq[i];
        const struct batch_seq *q = &e->of[s];

        if (q->n_old + q->n_new > e->plan->n_ctx)
            return err_set(err, PL_FULL,
                           "sequence %d has %" PRId64 " tokens; %" PRId64
                           " more do not fit into the context of %" PRId64
                           "; use a larger one",
                           s, q->n_old, q->n_new, e->plan->n_ctx);
        if (e->kv.states >= 0 && q->n_old > 0 &&
            kv_state(&e->kv, s, q->n_old) < 0)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sequence %d has %" PRId64
                           " tokens, but its state was lost; trim it",
                           s, q->n_old);
    }
    return check_room(e, err);
}

/* Returns the end of a micro-batch that begins with token `next` of the batch.
 * The micro-batch has at most `most` tokens, and at most as many rows of logits
 * as the programs compute. */
static int64_t micro_end(const pl_engine *e, const pl_batch *b, int64_t next,
                         int64_t most)
{
    int64_t end = next, wanted = 0;

    for (; end < b->n && end - next < most; end++) {
        wanted += is_wanted(b, end);
        if (wanted > e->plan->compiled->max.n_out)
            break;
    }
    return end;
}

/* Like micro_end, for an encoder: the micro-batch has whole texts, at least one
 * of them. */
static int64_t texts_end(const pl_engine *e, const pl_batch *b, int64_t next,
                         int64_t most)
{
    int64_t end = next, wanted = 0;

    while (end < b->n) {
        int64_t n = 0;

        for (; end + n < b->n && seq_of(b, end + n) == seq_of(b, end); n++)
            wanted += is_wanted(b, end + n);
        if (end > next &&
            (end + n - next > most || wanted > e->plan->compiled->max.n_out))
            break;
        end += n;
    }
    return end;
}

/* Lists the sequences that tokens [from, end) of the batch belong to, by first
 * use, in m->seq, which is scratch memory here. In the micro-batch the tokens
 * of a sequence are adjacent. Sets `at` of each sequence to the index of its
 * first token there. */
static void place_seqs(pl_engine *e, const pl_batch *b, int64_t from,
                       int64_t end, struct micro *m)
{
    int n_seq = 0;
    int64_t at = 0;

    for (int64_t i = from; i < end; i++) {
        struct batch_seq *q = &e->of[seq_of(b, i)];

        if (q->at < 0) {
            q->at = 0;
            m->seq[n_seq++] = seq_of(b, i);
        }
        q->at++;
    }
    for (int k = 0; k < n_seq; k++) {
        struct batch_seq *q = &e->of[m->seq[k]];
        int64_t n = q->at;

        q->at = at;
        at += n;
    }
}

/* Fills micro-batch *m with at most `most` tokens of the batch from *next,
 * grouped by sequence. Advances *next. *row is the row of the caller's results
 * for the next output token, and is advanced. */
static void gather(pl_engine *e, const pl_batch *b, int64_t most, int64_t *next,
                   int64_t *row, struct micro *m)
{
    int64_t end = engine_is_encoder(e) ? texts_end(e, b, *next, most)
                                       : micro_end(e, b, *next, most);

    m->n = end - *next;
    m->n_out = 0;
    place_seqs(e, b, *next, end, m);
    for (int64_t i = *next; i < end; i++) {
        int64_t at = e->of[seq_of(b, i)].at++;

        m->from[at] = i;
        m->token[at] = b->token[i];
        m->seq[at] = seq_of(b, i);
        /* Rows of the caller's results are numbered in the order of the batch,
         * not of the micro-batch. */
        m->row[at] = is_wanted(b, i) ? (*row)++ : -1;
    }
    for (int64_t k = 0; k < m->n; k++) {
        e->of[m->seq[k]].at = -1;
        if (m->row[k] < 0)
            continue;
        m->out_row[m->n_out] = (int32_t)k;
        m->row_of[m->n_out++] = m->row[k];
    }
    *next = end;
}

/* Reserves cache pages for the tokens of a micro-batch, and commits them at
 * once, so that the lengths of the sequences include them. */
static pl_status reserve(pl_engine *e, struct micro *m, pl_err *err)
{
    for (int64_t i = 0, len; i < m->n; i += len) {
        int s = m->seq[i];

        for (len = 0; i + len < m->n && m->seq[i + len] == s; len++)
            m->position[i + len] = (int32_t)(e->kv.length[s] + len);
        PL_TRY(kv_reserve(&e->kv, s, len, false, engine_copy_page, e, err));
        kv_commit(&e->kv, s, len, false);
    }
    return PL_OK;
}

/* Checks that the logits `row` [n] of output token i of a micro-batch are
 * finite. Other logits mean damaged weights or an unsuitable format. */
static pl_status check_logits(const struct micro *m, int64_t i,
                              const float *row, size_t n, pl_err *err)
{
    /* Bits of infinity as a float. With the sign bit cleared, the bits of a NaN
     * are a greater integer, those of a finite number a smaller one. */
    const uint32_t infinity = 0x7f800000;
    int32_t at = m->out_row[i];
    uint32_t most = 0, v;
    size_t k = 0;

    for (; k < n; k++) {
        memcpy(&v, &row[k], sizeof v);
        v &= 0x7fffffff;
        most = v > most ? v : most;
    }
    if (most < infinity)
        return PL_OK;
    for (k = 0; isfinite(row[k]);)
        k++;
    return err_set(err, PL_BAD_FILE,
                   "token %" PRId64
                   " of the batch (sequence %d, position %d): logit %zu is %g: "
                   "the weights are damaged, or the format of the weights or "
                   "cache cannot represent the model's values; convert the "
                   "model again, or try F32 for the cache",
                   m->from[at], m->seq[at], m->position[at], k, (double)row[k]);
}

static size_t hidden_width(const pl_engine *e)
{
    return (size_t)e->plan->model->model->d_model;
}

/* Copies the caller's hidden values to the input of micro-batch k, in the order
 * of the micro-batch's tokens. */
static pl_status put_hidden(pl_engine *e, const pl_batch *b, int k, pl_err *err)
{
    const struct micro *m = &e->micro[k];
    const size_t width = hidden_width(e);

    for (int64_t i = 0; i < m->n && e->hidden >= 0; i++)
        PL_TRY(exec_set_input(e->exec, k, e->hidden,
                              b->hidden + (size_t)m->from[i] * width,
                              4 * (size_t)i * width, 4 * width, err));
    return PL_OK;
}

/* Sets the input `ends` of micro-batch k: for each token, the last position of
 * its text. */
static pl_status put_ends(pl_engine *e, int k, pl_err *err)
{
    const struct micro *m = &e->micro[k];

    for (int64_t i = 0; i < m->n; i++)
        m->end[i] = (int32_t)(e->kv.length[m->seq[i]] - 1);
    return exec_set_input(e->exec, k, e->ends, m->end, 0, 4 * (size_t)m->n,
                          err);
}

/* Copies row i of tensor `from`, which micro-batch k of the last step computed,
 * to the caller's array `to`. Does nothing if `to` is NULL. */
static pl_status get_output(pl_engine *e, int k, pl_tensor from, int64_t i,
                            size_t width, float *to, pl_err *err)
{
    if (!to)
        return PL_OK;
    return exec_get_output(e->exec, k, from,
                           to + (size_t)e->micro[k].row_of[i] * width,
                           4 * (size_t)i * width, 4 * width, err);
}

/* Copies all outputs that the caller requested for output token i of
 * micro-batch k, and checks the logits. */
static pl_status get_row(pl_engine *e, const pl_batch *b, int k, int64_t i,
                         pl_err *err)
{
    const struct micro *m = &e->micro[k];
    const size_t n_vocab = (size_t)e->plan->model->model->n_vocab;
    const size_t width = hidden_width(e);

    PL_TRY(get_output(e, k, e->logits, i, n_vocab, b->logits, err));
    PL_TRY(get_output(e, k, e->hidden_out, i, width, b->hidden_out, err));
    PL_TRY(get_output(e, k, e->norm_out, i, width, b->norm_out, err));
    PL_TRY(get_output(e, k, e->scores, i,
                      (size_t)e->plan->model->model->n_label, b->scores, err));
    if (!b->logits)
        return PL_OK;
    return check_logits(m, i, b->logits + (size_t)m->row_of[i] * n_vocab,
                        n_vocab, err);
}

static pl_status run(pl_engine *e, const pl_batch *b, int n, pl_err *err)
{
    pl_step_tokens rows[PROG_MAX_MICRO] = {{0}};

    for (int k = 0; k < n; k++) {
        const struct micro *m = &e->micro[k];
        size_t all = 4 * (size_t)m->n, out = 4 * (size_t)m->n_out;

        rows[k] = (pl_step_tokens){.size = sizeof rows[k],
                                   .n_tok = m->n,
                                   .n_out = m->n_out,
                                   .pos = m->position,
                                   .seq = m->seq,
                                   .page_stride = e->kv.stride};
        for (int i = 0; i < e->kv.n_pool; i++)
            rows[k].pages[i] = e->kv.pool[i].table;
        PL_TRY(exec_set_input(e->exec, k, e->ids, m->token, 0, all, err));
        PL_TRY(exec_set_input(e->exec, k, e->pos, m->position, 0, all, err));
        PL_TRY(exec_set_input(e->exec, k, e->out_ids, m->out_row, 0, out, err));
        PL_TRY(put_hidden(e, b, k, err));
        if (engine_is_encoder(e))
            PL_TRY(put_ends(e, k, err));
    }
    PL_TRY(exec_run_micro_batches(e->exec, n, rows, err));
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < e->micro[k].n_out; i++)
            PL_TRY(get_row(e, b, k, i, err));
    return PL_OK;
}

/* Number of tokens between checkpoints. A recurrent model keeps a checkpoint
 * where a batch of several tokens begins or ends, because turns of a
 * conversation begin and end there. Long batches get further ones at this
 * interval. */
enum { CHECKPOINT_EVERY = 4096 };

static void checkpoint(pl_engine *e, int seq)
{
    const struct batch_seq *q = &e->of[seq];
    int64_t n = e->kv.length[seq];

    if ((q->n_new > 1 && n == q->n_old + q->n_new) ||
        n / CHECKPOINT_EVERY != q->n_run / CHECKPOINT_EVERY)
        kv_checkpoint(&e->kv, seq);
}

/* Inserts the tokens of a successful step of n micro-batches into the prefix
 * tree. */
static void add_prefixes(pl_engine *e, int n)
{
    if (!e->kv.prefix)
        return;
    engine_trust_prefixes(e);
    for (int k = 0; k < n; k++) {
        const struct micro *m = &e->micro[k];

        for (int64_t i = 0, len; i < m->n; i += len) {
            for (len = 1; i + len < m->n && m->seq[i + len] == m->seq[i];)
                len++;
            prefix_insert(&e->kv, m->seq[i], m->position[i], m->token + i, len);
        }
    }
}

/* Gives the hidden values of a step of n micro-batches to options.hidden. */
static pl_status give_hidden(pl_engine *e, int n, pl_err *err)
{
    const size_t width = hidden_width(e);

    for (int k = 0; k < n && e->hidden_rows >= 0; k++) {
        const struct micro *m = &e->micro[k];
        const pl_hidden_rows rows = {.n = m->n,
                                     .token = m->token,
                                     .seq = m->seq,
                                     .pos = m->position,
                                     .d_model = (int64_t)width,
                                     .value = e->rows};

        PL_TRY(exec_get_output(e->exec, k, e->hidden_rows, e->rows, 0,
                               4 * (size_t)m->n * width, err));
        e->receive(e->receive_user, &rows);
    }
    return PL_OK;
}

/* Runs one step of n micro-batches. If the step fails, trims each sequence to
 * its length before the batch. If pages for that length are no longer held,
 * trims it to its length before the step. */
static pl_status step(pl_engine *e, const pl_batch *b, int n, pl_err *err)
{
    pl_status s = PL_OK;

    for (int i = 0; i < e->n_batch_seq; i++)
        e->of[e->batch_seq[i]].n_run = e->kv.length[e->batch_seq[i]];
    for (int k = 0; k < n && s == PL_OK; k++)
        s = reserve(e, &e->micro[k], err);
    if (s == PL_OK)
        s = run(e, b, n, err);
    if (s == PL_OK)
        s = give_hidden(e, n, err);
    if (s == PL_OK)
        add_prefixes(e, n);
    for (int i = 0; i < e->n_batch_seq; i++) {
        int k = e->batch_seq[i];
        int64_t old = e->of[k].n_old;

        if (s == PL_OK) {
            kv_trim_windows(&e->kv, k);
            checkpoint(e, k);
        } else if (kv_trimmable_length(&e->kv, k, old) == old) {
            kv_trim(&e->kv, k, old);
        } else {
            kv_trim(&e->kv, k, e->of[k].n_run);
        }
    }
    return s;
}

static pl_status decode(pl_engine *e, const pl_batch *b,
                        const volatile int *cancel, pl_err *err)
{
    int64_t next = 0, row = 0;

    PL_TRY(check(e, b, err));
    for (int i = 0; i < e->n_batch_seq; i++)
        if (e->of[e->batch_seq[i]].n_new > 1)
            kv_checkpoint(&e->kv, e->batch_seq[i]);
    while (next < b->n) {
        int64_t most = microbatch_tokens(
            b->n - next, e->plan->compiled->max.n_tok, e->n_micro);
        int n = 0;

        if (cancel && *cancel)
            return err_set(err, PL_CANCELLED, "stopped on request");
        while (n < e->n_micro && next < b->n)
            gather(e, b, most, &next, &row, &e->micro[n++]);
        PL_TRY(step(e, b, n, err));
    }
    return PL_OK;
}

pl_status pl_engine_decode(pl_engine *e, const pl_batch *b,
                           const volatile int *cancel, pl_err *err)
{
    pl_batch own = {0};
    pl_status s;

    PL_NEED(e, err);
    PL_NEED(b, err);
    if (b->size != sizeof own) {
        PL_TRY(sized_read(&own, sizeof own, b, "pl_batch", "call pl_batch_init",
                          err));
        b = &own;
    }
    PL_TRY(exec_enter(e->exec, err));
    s = decode(e, b, cancel, err);
    exec_leave(e->exec);
    return s;
}
