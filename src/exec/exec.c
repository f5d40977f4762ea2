/* The executor (pl_exec): creation, access to tensors, and steps. */
#include "exec/exec.h"

#include "base/err.h"
#include "base/sized.h"
#include "exec/cache_io.h"
#include "kv/pages.h"
#include "plan/options_read.h"
#include "program/cache_tile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- creating and freeing an executor ---------------------------------- */

/* Fills x->group_dev and x->group_ranks, the tables with the devices of each
 * group and the ranks that each device carries. */
static pl_status group_tables(pl_exec *x, pl_err *err)
{
    const struct lowered *l = x->plan->low;
    size_t n = (size_t)l->n_group;

    x->group_dev = arena_alloc(&x->arena, n, sizeof *x->group_dev);
    x->group_ranks = arena_alloc(&x->arena, n, sizeof *x->group_ranks);
    PL_TRY(arena_check(&x->arena, "an executor", err));
    for (int g = 0; g < l->n_group; g++) {
        size_t m = (size_t)l->group[g].n;

        x->group_dev[g] = arena_alloc(&x->arena, m, sizeof **x->group_dev);
        x->group_ranks[g] = arena_alloc(&x->arena, m, sizeof **x->group_ranks);
        PL_TRY(arena_check(&x->arena, "an executor", err));
        for (int k = 0; k < l->group[g].n; k++) {
            x->group_dev[g][k] = l->shard[l->group[g].first + k].dev;
            x->group_ranks[g][k] = l->shard[l->group[g].first + k].ranks;
        }
    }
    return PL_OK;
}

/* Allocates the executor's tables and its buffer for one cache page in advance,
 * so that steps and copies of pages need not allocate memory. */
static pl_status tables(pl_exec *x, pl_err *err)
{
    const struct compiled *p = x->plan;
    const pl_graph *g = p->g;
    size_t page = 1;

    PL_TRY(group_tables(x, err));
    x->io = p->low->n_dev - 1;
    x->n_micro = p->low->n_micro;
    x->zeros = calloc((size_t)p->max.n_tok + STATE_WORDS, sizeof *x->zeros);
    x->seq = calloc((size_t)p->max.n_tok + 1, sizeof *x->seq);
    x->row = calloc((size_t)p->max.n_seq + 1, sizeof *x->row);
    if (!x->zeros || !x->seq || !x->row)
        return err_no_memory(err, "an executor");
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        if (n->op == OP_memory &&
            (size_t)n->dim[1].n * memory_tile_bytes(n) > page)
            page = (size_t)n->dim[1].n * memory_tile_bytes(n);
    }
    x->page = malloc(page);
    return x->page ? PL_OK : err_no_memory(err, "an executor");
}

/* Returns true if `word` is in the environment variable PL_DEBUG, a
 * comma-separated list that tests set. */
static bool debug_asks(const char *word)
{
    const char *s = getenv("PL_DEBUG");
    size_t n = strlen(word);

    for (; s && *s; s += *s == ',') {
        size_t len = strcspn(s, ",");

        if (len == n && !memcmp(s, word, n))
            return true;
        s += len;
    }
    return false;
}

pl_status exec_create(pl_exec **out, struct compiled *p, const pl_options *opt,
                      pl_err *err)
{
    struct device_options dopt = {.no_pin = opt->no_pin,
                                  .inexact = opt->inexact,
                                  .guard = debug_asks("guard"),
                                  .sim_merge = debug_asks("merge"),
                                  .kernel_set = p->kernel_set,
                                  .sim_seed = opt->sim_seed,
                                  .plan_hash = p->numeric_hash,
                                  .trace = opt->trace != NULL,
                                  .progress = opt->progress,
                                  .progress_user = opt->progress_user,
                                  .cancel = opt->cancel};
    pl_exec *x = calloc(1, sizeof *x);
    pl_status s;

    *out = NULL;
    if (!x)
        return err_no_memory(err, "an executor");
    x->plan = p;
    x->owner = getpid();
    if (p->paper) {
        s = err_set(err, PL_BAD_ARGUMENT,
                    "a described machine can be planned for but not run on; "
                    "leave out the device description");
        goto done;
    }
    s = tables(x, err);
    if (s == PL_OK)
        s = device_set_create(&x->set, &p->list, &dopt, err);
    if (s == PL_OK)
        s = device_set_load(x->set, p->low->prog, err);
    if (s == PL_OK)
        p->numeric_hash ^= device_set_inexact_hash(x->set);
    if (s == PL_OK && opt->trace)
        s = exec_trace_create(&x->trace, p, opt->trace, opt->trace_user, err);
done:
    if (s == PL_OK)
        *out = x;
    else
        exec_free(x);
    return s;
}

pl_status pl_exec_create(pl_exec **out, const pl_graph *g,
                         const pl_options *opt, pl_err *err)
{
    struct compiled *p;
    pl_options own;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(g, err);
    PL_TRY(options_read(&own, opt, err));
    if (own.machines)
        return err_set(err, PL_UNSUPPORTED,
                       "graphs of a caller run on one machine; leave out "
                       "options.machines");
    graph_hold(g);
    s = compile_graph(&p, g, &own, err);
    if (s == PL_OK) {
        s = exec_create(out, p, &own, err);
        if (s == PL_OK)
            (*out)->own_plan = true;
        else
            compiled_free(p);
    }
    if (s != PL_OK)
        graph_let_go(g);
    return s;
}

void pl_exec_free(pl_exec *x)
{
    if (x && x->own_plan && exec_may_free(x))
        exec_free(x);
}

void exec_free(pl_exec *x)
{
    if (!x)
        return;
    exec_async_free(x);
    exec_trace_free(x->trace);
    device_set_free(x->set);
    if (x->own_plan) {
        graph_let_go(x->plan->g);
        compiled_free(x->plan);
    }
    free(x->zeros);
    free(x->seq);
    free(x->row);
    free(x->page);
    arena_fini(&x->arena);
    free(x);
}

/* Checks that this process created the executor. A forked child has neither its
 * threads nor its devices. The check is made in each public call; it costs one
 * system call, about 50 ns. */
static pl_status check_owner(const pl_exec *x, pl_err *err)
{
    pid_t here = getpid();

    if (x->owner == here)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "created by process %d; this process, %d, is a fork without "
                   "its threads and devices; create a new one here",
                   (int)x->owner, (int)here);
}

bool exec_may_free(pl_exec *x)
{
    return x->owner != getpid() || exec_enter(x, NULL) == PL_OK;
}

pl_status exec_enter(pl_exec *x, pl_err *err)
{
    PL_TRY(check_owner(x, err));
    if (!atomic_exchange_explicit(&x->busy, true, memory_order_acquire))
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "the engine is busy in another thread, or in the call that "
                   "invoked this callback; it takes one call at a time: wait, "
                   "or use one engine per thread");
}

void exec_leave(pl_exec *x)
{
    atomic_store_explicit(&x->callback_reads, false, memory_order_relaxed);
    atomic_store_explicit(&x->busy, false, memory_order_release);
}

void exec_allow_callback_reads(pl_exec *x)
{
    x->callback_thread = pthread_self();
    atomic_store_explicit(&x->callback_reads, true, memory_order_release);
}

pl_status exec_enter_reading(pl_exec *x, bool *in_callback, pl_err *err)
{
    *in_callback =
        atomic_load_explicit(&x->callback_reads, memory_order_acquire) &&
        pthread_equal(x->callback_thread, pthread_self());
    return *in_callback ? PL_OK : exec_enter(x, err);
}

void exec_leave_reading(pl_exec *x, bool in_callback)
{
    if (!in_callback)
        exec_leave(x);
}

/* ---- access to tensors ------------------------------------------------- */

struct exec_owners exec_owners(const pl_exec *x, int num)
{
    const struct lowered_placed *h =
        num >= 0 ? lowered_stored(x->plan->low, num) : NULL;

    if (!h)
        return (struct exec_owners){0};
    return (struct exec_owners){x->plan->low->group[h->group].n,
                                x->group_dev[h->group],
                                x->group_ranks[h->group], h->v};
}

static const struct graph_node *node_of(const pl_exec *x, pl_tensor t)
{
    return t >= 0 && t < x->plan->g->n_node ? &x->plan->g->node[t] : NULL;
}

/* Arguments of an access to a tensor `t`: the micro-batch of the last step
 * whose values are accessed, and the direction. The caller's data is written to
 * the tensor if `put`, else read from it. */
struct tensor_access {
    pl_exec *x;
    pl_tensor t;
    int micro;
    struct graph_sizes sizes; /* numbers of tokens, outputs and sequences of
                                 micro-batch `micro` */
    bool put;
    pl_err *err;
};

static size_t tensor_bytes(const struct tensor_access *j,
                           const struct graph_node *n)
{
    struct graph_sizes s = j->sizes;
    int64_t row = dim_value(n->dim[n->n_dim - 1], &s);

    memcpy(s.n_slot, j->x->plan->max.n_slot, sizeof s.n_slot);
    if (format_info(n->format)->block == 1)
        return format_row_bytes(n->format, 1) * (size_t)graph_count(n, &s);
    return row ? format_row_bytes(n->format, row) *
                     (size_t)(graph_count(n, &s) / row)
               : 0;
}

static pl_status check_range(const struct tensor_access *j, size_t offset,
                             size_t bytes)
{
    const struct graph_node *n = node_of(j->x, j->t);
    pl_err *err = j->err;
    size_t size;

    if (!n)
        return err_set(err, PL_BAD_ARGUMENT,
                       "tensor %d is not in this graph, which has 0 to %d",
                       (int)j->t, j->x->plan->g->n_node - 1);
    if (n->op != OP_weight && n->op != OP_memory && n->op != OP_input &&
        (j->put || !(n->output || n->keep)))
        return err_set(err, PL_BAD_ARGUMENT, "%s: %s", n->name,
                       j->put
                           ? "a computed value cannot be set; inputs, weights "
                             "and caches can"
                           : "its memory is reused during a step; mark it with "
                             "pl_keep before planning");
    size = n->op == OP_input && j->put
               ? 4 * (size_t)graph_count(n, &j->x->plan->max)
               : tensor_bytes(j, n);
    if (offset > size || bytes > size - offset)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: %zu bytes from byte %zu requested, it has %zu",
                       n->name, bytes, offset, size);
    return PL_OK;
}

typedef pl_status part_fn(const struct tensor_access *j, int64_t first,
                          int64_t n, void *data, bool put);

/* Accesses bytes [offset, offset + bytes) of a tensor by the function `part`,
 * which accesses only whole elements or whole rows of `unit` bytes. If the
 * range begins or ends within one, all elements or rows that the range touches
 * pass through a temporary buffer. */
static pl_status widened(const struct tensor_access *j, unsigned char *data,
                         size_t offset, size_t bytes, size_t unit,
                         part_fn *part)
{
    int64_t first = (int64_t)(offset / unit);
    int64_t end = (int64_t)((offset + bytes + unit - 1) / unit);
    size_t before = offset - (size_t)first * unit;
    unsigned char *tmp;
    pl_status s;

    if (bytes == 0)
        return PL_OK;
    if (before == 0 && bytes % unit == 0)
        return part(j, first, end - first, data, j->put);
    tmp = calloc((size_t)(end - first), unit);
    if (!tmp)
        return err_no_memory(j->err, "a range of a tensor");
    s = part(j, first, end - first, tmp, false);
    if (s == PL_OK && j->put) {
        memcpy(tmp + before, data, bytes);
        s = part(j, first, end - first, tmp, true);
    } else if (s == PL_OK) {
        memcpy(data, tmp + before, bytes);
    }
    free(tmp);
    return s;
}

/* Reads or writes n elements of an input or a result, from element `first`. All
 * elements of such a tensor are in the memory of the io device. */
static pl_status value_part(const struct tensor_access *j, int64_t first,
                            int64_t n, void *data, bool put)
{
    pl_exec *x = j->x;
    const struct lowered *l = x->plan->low;
    size_t at = (size_t)j->micro * (size_t)x->plan->g->n_node + (size_t)j->t;
    int t = l->input[at] >= 0 ? l->input[at]
                              : l->variant[x->last_variant].result[at];
    const struct prog_tensor *p;
    size_t from, bytes = 4 * (size_t)n;

    if (t < 0)
        return err_set(j->err, PL_NOT_FOUND, "%s is not computed by any device",
                       node_of(x, j->t)->name);
    p = &l->prog[x->io].tensor[t];
    from = p->offset + 4 * (size_t)first;
    return put ? device_write(x->set, x->io, p->region, from, data, bytes,
                              j->err)
               : device_read(x->set, x->io, p->region, from, data, bytes,
                             j->err);
}

static pl_status weight_part(const struct tensor_access *j, int64_t first,
                             int64_t n, void *data, bool put)
{
    return put ? exec_put_rows(j->x, j->t, first, n, data, j->err)
               : exec_get_rows(j->x, j->t, first, n, data, j->err);
}

static pl_status cache_part(const struct tensor_access *j, int64_t first,
                            int64_t n, void *data, bool put)
{
    return exec_cache_slots(j->x, j->t, first, n, data, put, j->err);
}

static pl_status range(const struct tensor_access *j, unsigned char *data,
                       size_t offset, size_t bytes)
{
    const struct graph_node *n = node_of(j->x, j->t);

    PL_TRY(exec_wait_async(j->x, j->err));
    PL_TRY(check_range(j, offset, bytes));
    j->x->n_set += j->put && (n->op == OP_weight || n->op == OP_memory);
    if (n->op == OP_weight)
        return widened(j, data, offset, bytes,
                       format_row_bytes(n->format, n->dim[n->n_dim - 1].n),
                       weight_part);
    if (n->op == OP_memory)
        return widened(j, data, offset, bytes,
                       (size_t)n->dim[1].n *
                           format_row_bytes(n->format, n->dim[2].n),
                       cache_part);
    return widened(j, data, offset, bytes, 4, value_part);
}

pl_status pl_tensor_set(pl_exec *x, pl_tensor t, const void *data,
                        size_t offset, size_t bytes, pl_err *err)
{
    pl_status s;

    PL_NEED(x, err);
    PL_NEED_ARRAY(data, bytes, err);
    PL_TRY(exec_enter(x, err));
    s = exec_set_input(x, 0, t, data, offset, bytes, err);
    exec_leave(x);
    return s;
}

pl_status pl_tensor_get(pl_exec *x, pl_tensor t, void *data, size_t offset,
                        size_t bytes, pl_err *err)
{
    bool in_callback;
    pl_status s;

    PL_NEED(x, err);
    PL_NEED_ARRAY(data, bytes, err);
    PL_TRY(exec_enter_reading(x, &in_callback, err));
    s = exec_get_output(x, x->last_micro, t, data, offset, bytes, err);
    exec_leave_reading(x, in_callback);
    return s;
}

pl_status exec_set_input(pl_exec *x, int micro, pl_tensor t, const void *data,
                         size_t offset, size_t bytes, pl_err *err)
{
    const struct tensor_access j = {x, t, micro, x->sizes[micro], true, err};

    return range(&j, (unsigned char *)data, offset, bytes);
}

pl_status exec_get_output(pl_exec *x, int micro, pl_tensor t, void *data,
                          size_t offset, size_t bytes, pl_err *err)
{
    const struct tensor_access j = {x, t, micro, x->sizes[micro], false, err};

    return range(&j, data, offset, bytes);
}

/* Checking and running a step -------------------------------------------- */

/* Checks that the state slots of token i are in the pool. Also checks that the
 * token follows the previous one of its sequence, because recurrent states are
 * updated token by token. */
static pl_status check_state(const struct token_table *b, int64_t n_slot,
                             int64_t i, pl_err *err)
{
    const int32_t *w = b->pages + b->seq[i] * b->page_stride;
    int32_t pos = b->pos[i];
    bool first = i == 0 || b->seq[i - 1] != b->seq[i];

    if (b->page_stride < STATE_WORDS || w[STATE_WRITTEN] < 0 ||
        w[STATE_WRITTEN] >= n_slot ||
        (first && pos > 0 && pos == w[STATE_AT] &&
         (w[STATE_READ] < 0 || w[STATE_READ] >= n_slot)))
        return err_set(err, PL_BAD_ARGUMENT,
                       "token %" PRId64 " of the step: the state slot of its "
                       "sequence is not one of %" PRId64,
                       i, n_slot);
    if (first ? pos < w[STATE_AT] : pos != b->pos[i - 1] + 1)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "token %" PRId64
            " of the step is at position %d, which does not continue the state "
            "of its sequence; give a sequence's tokens in order",
            i, pos);
    for (int64_t k = first ? i - 1 : -1; k >= 0; k--)
        if (b->seq[k] == b->seq[i])
            return err_set(
                err, PL_BAD_ARGUMENT,
                "token %" PRId64
                " of the step: the tokens of sequence %d are not contiguous",
                i, b->seq[i]);
    return PL_OK;
}

/* Checks that all pages that token i may read or write exist in the pool. */
static pl_status check_pages(const pl_exec *x, const struct token_table *b,
                             int pool, int64_t i, pl_err *err)
{
    int32_t pos = b->pos[i], seq = b->seq[i];
    const struct graph_pool *rule = &x->plan->g->pool[pool];
    int64_t n_page = x->plan->max.n_slot[pool] / pool_page_slots(rule);
    int64_t from = kv_first_visible(rule->window, pos);

    if (rule->state)
        return check_state(b, n_page, i, err);
    if (i > 0 && b->seq[i - 1] == seq && b->pos[i - 1] <= pos &&
        b->pos[i - 1] / PAGE_TOKENS > from)
        /* The pages before this one were checked for the previous token of the
         * same sequence. */
        from = b->pos[i - 1] / PAGE_TOKENS;
    for (int64_t k = from; k <= pos / PAGE_TOKENS; k++) {
        int32_t page = b->pages[seq * b->page_stride + k];

        if (page < 0 || page >= n_page)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64
                           " of the step: page %d is not one of %" PRId64,
                           i, page, n_page);
    }
    return PL_OK;
}

/* Checks position and sequence of token i, and its pages if there is a page
 * table. Without a page table all tokens share one page, which restricts
 * positions and sequences only if the graph has a cache. */
static pl_status check_token(const pl_exec *x, const pl_step_tokens *r,
                             struct token_table *b, int64_t i, pl_err *err)
{
    int32_t pos = b->pos[i], seq = b->seq[i];
    int n_pool = x->plan->g->n_pool;
    bool table = r->pages[0] != NULL;

    if (seq < 0 || seq >= x->plan->max.n_seq || pos < 0 ||
        ((table || n_pool > 0) && pos / PAGE_TOKENS >= b->page_stride) ||
        (!table && n_pool > 0 && seq > 0))
        return err_set(
            err, PL_BAD_ARGUMENT,
            "token %" PRId64
            " of the step: no page in the table for position %d of sequence %d",
            i, pos, seq);
    for (int k = 0; k < n_pool && table; k++) {
        b->pages = r->pages[k];
        PL_TRY(check_pages(x, b, k, i, err));
    }
    return PL_OK;
}

static pl_status check_rows(const pl_exec *x, const pl_step_tokens *r,
                            pl_err *err)
{
    const struct compiled *p = x->plan;

    if (r->n_tok >= 1 && r->n_tok <= p->max.n_tok && r->n_out >= 0 &&
        r->n_out <= p->max.n_out)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "a step of %" PRId64 " tokens and %" PRId64
                   " results; planned were 1 to %" PRId64 " and 0 to %" PRId64,
                   r->n_tok, r->n_out, p->max.n_tok, p->max.n_out);
}

static pl_status check_tokens(const pl_exec *x, const pl_step_tokens *r,
                              pl_err *err)
{
    const struct compiled *p = x->plan;
    struct token_table b = {.n_tok = r->n_tok,
                            .n_out = r->n_out,
                            .pos = r->pos ? r->pos : x->zeros,
                            .seq = r->seq ? r->seq : x->zeros,
                            .page_stride = r->pages[0] ? r->page_stride : 1};
    int32_t n_seq = 1;

    for (int k = 1; k < p->g->n_pool; k++)
        if (!r->pages[k] != !r->pages[0])
            return err_set(
                err, PL_BAD_ARGUMENT,
                "a step needs a page table for each of %d cache pools",
                p->g->n_pool);
    for (int64_t i = 0; i < r->n_tok; i++) {
        PL_TRY(check_token(x, r, &b, i, err));
        if (b.seq[i] >= n_seq)
            n_seq = b.seq[i] + 1;
    }
    if (r->pages[0] && (r->page_stride < 0 || r->page_stride > p->page_stride))
        return err_set(err, PL_BAD_ARGUMENT,
                       "a step of %d sequences of %" PRId64
                       " pages; planned were %" PRId64 " of %d",
                       n_seq, r->page_stride, p->max.n_seq, p->page_stride);
    return PL_OK;
}

/* ---- writing the token table ----------------------------------------- */

/* Writes n 32-bit words to the token table of micro-batch k, beginning at index
 * `word`. The table is in the memory of the io device. */
static pl_status put_words(pl_exec *x, int k, int64_t word, const int32_t *v,
                           int64_t n, pl_err *err)
{
    const struct program *p = &x->plan->low->prog[x->io];
    const struct prog_tensor *t = &p->tensor[x->plan->low->token_table[k]];

    return device_write(x->set, x->io, t->region, t->offset + 4 * (size_t)word,
                        v, 4 * (size_t)n, err);
}

/* Assigns rows of the token table to the sequences of the micro-batch, in the
 * order of first use. Sets x->seq[i] to the row of token i. Returns the number
 * of sequences. */
static int64_t assign_table_rows(pl_exec *x, const pl_step_tokens *r)
{
    int32_t n = 0;

    for (int64_t i = 0; i < r->n_tok; i++)
        x->row[r->seq[i]] = -1;
    for (int64_t i = 0; i < r->n_tok; i++) {
        int32_t *row = &x->row[r->seq[i]];

        if (*row < 0)
            *row = n++;
        x->seq[i] = *row;
    }
    return n;
}

/* Writes the page table of a pool to the token table of micro-batch k. The page
 * table has one row per sequence of the micro-batch, with the numbers of its
 * pages. */
static pl_status put_pages(pl_exec *x, int k, const pl_step_tokens *r,
                           int64_t n_seq, int pool, pl_err *err)
{
    int64_t at = program_pages_word(&x->plan->low->prog[x->io], pool);
    int64_t n_row = 0;

    if (!r->pages[pool]) /* The caller passed no page table, so all tokens use
                            page 0. */
        return put_words(x, k, at, x->zeros,
                         x->plan->g->pool[pool].state ? STATE_WORDS : 1, err);
    for (int64_t i = 0; i < r->n_tok && n_row < n_seq; i++) {
        int32_t seq = r->seq ? r->seq[i] : 0;

        if (r->seq && x->seq[i] < n_row)
            continue;
        PL_TRY(put_words(x, k, at + n_row * x->plan->page_stride,
                         r->pages[pool] + seq * r->page_stride, r->page_stride,
                         err));
        n_row++;
    }
    return PL_OK;
}

/* Returns an upper bound of the number of pages that any sequence of the step
 * occupies, which follows from the greatest position. */
static int64_t pages_reached(const pl_step_tokens *r)
{
    int32_t last = 0;

    for (int64_t i = 0; i < r->n_tok && r->pos; i++)
        last = r->pos[i] > last ? r->pos[i] : last;
    return last / PAGE_TOKENS + 1;
}

/* Writes the token table of micro-batch k. Sets *n_seq to the number of its
 * sequences, and *n_page to the maximum number of pages per sequence. */
static pl_status put_token_table(pl_exec *x, int k, const pl_step_tokens *r,
                                 int64_t *n_seq, int64_t *n_page, pl_err *err)
{
    int64_t n_tok = x->plan->max.n_tok;

    *n_seq = 1;
    if (x->plan->g->n_pool == 0)
        return PL_OK;
    if (r->seq)
        *n_seq = assign_table_rows(x, r);
    *n_page = pages_reached(r);
    PL_TRY(put_words(x, k, 0, r->pos ? r->pos : x->zeros, r->n_tok, err));
    PL_TRY(put_words(x, k, n_tok, r->seq ? x->seq : x->zeros, r->n_tok, err));
    for (int i = 0; i < x->plan->g->n_pool; i++)
        PL_TRY(put_pages(x, k, r, *n_seq, i, err));
    return PL_OK;
}

int exec_n_micro(const pl_exec *x)
{
    return x->n_micro;
}

pl_status exec_run_micro_batches(pl_exec *x, int n, const pl_step_tokens *rows,
                                 pl_err *err)
{
    const struct compiled *p = x->plan;
    struct device_run run = {.n_micro = n};
    const struct device_timing *event;

    PL_TRY(exec_wait_async(x, err));
    if (n < 1 || n > x->n_micro)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d micro-batches in one step; planned were 1 to %d", n,
                       x->n_micro);
    for (int k = 0; k < n; k++) {
        PL_TRY(check_rows(x, &rows[k], err));
        PL_TRY(check_tokens(x, &rows[k], err));
    }
    for (int k = 0; k < n; k++) {
        struct graph_sizes *z = &run.sizes[k];

        *z = graph_sizes_of(&p->max, rows[k].n_tok, rows[k].n_out, 1);
        PL_TRY(put_token_table(x, k, &rows[k], &z->n_seq, &run.n_page[k], err));
    }
    run.variant = p->variant[variants_of_step(&p->variants, n, rows->n_tok)];
    memcpy(x->sizes, run.sizes, (size_t)n * sizeof *run.sizes);
    x->last_variant = run.variant;
    x->last_micro = n - 1;
    if (!x->trace)
        return device_set_run(x->set, &run, err);
    exec_trace_start(x->trace);
    PL_TRY(device_set_run(x->set, &run, err));
    event = device_set_trace(x->set, &n);
    exec_trace_run(x->trace, run.variant, event, n);
    return PL_OK;
}

void pl_exec_traced(const pl_exec *x, pl_traced *out, size_t size)
{
    pl_traced sums = {0};

    if (x && exec_enter((pl_exec *)x, NULL) == PL_OK) {
        exec_trace_sums(x->trace, &sums);
        exec_leave((pl_exec *)x);
    }
    sized_write(out, size, &sums, sizeof sums);
}

pl_status pl_exec_step(pl_exec *x, const pl_step_tokens *rows, pl_err *err)
{
    pl_step_tokens own = {0};
    const pl_step_tokens *r = rows;
    pl_status s;

    PL_NEED(x, err);
    PL_NEED(rows, err);
    if (r->size != sizeof own) {
        PL_TRY(sized_read(&own, sizeof own, r, "pl_step_tokens",
                          "call pl_rows_init", err));
        r = &own;
    }
    PL_TRY(exec_enter(x, err));
    s = x->own_plan
            ? exec_run_micro_batches(x, 1, r, err)
            : err_set(
                  err, PL_BAD_ARGUMENT,
                  "the executor belongs to an engine, which runs its own "
                  "steps; call pl_engine_decode, or create another executor");
    exec_leave(x);
    return s;
}

int exec_devices(const pl_exec *x, pl_device_counters *out, int n, size_t size)
{
    for (int i = 0; i < n && i < x->io; i++) {
        pl_device_counters c;

        device_set_device(x->set, i, &c);
        sized_write((char *)out + (size_t)i * size, size, &c, sizeof c);
    }
    return x->io;
}

int exec_traffic(const pl_exec *x, pl_device_traffic *out, int n, size_t size)
{
    for (int i = 0; i < n && i < x->io; i++) {
        pl_device_traffic t = device_set_traffic(x->set, i);

        sized_write((char *)out + (size_t)i * size, size, &t, sizeof t);
    }
    return x->io;
}

/* Adds the bytes of all weights to the counters of the ranks. Rows that several
 * ranks hold count as weight for the lowest of these ranks, and as replica for
 * the others. */
static void count_weights(const struct compiled *p, pl_counters *c)
{
    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *n = &p->num->node[i];
        const struct graph_node *g = &p->g->node[n->node];
        double bytes;

        if (g->op != OP_weight || n->kind != NUM_OP)
            continue;
        bytes = (double)format_info(g->format)->block_bytes /
                format_info(g->format)->block * (double)graph_count(g, &p->max);
        if (n->layout->kind != PL_SPLIT) {
            c->weight_bytes[0] += (uint64_t)bytes;
            for (int r = 1; r < p->num->n_rank; r++)
                c->replica_bytes[r] += (uint64_t)bytes;
            continue;
        }
        for (int k = 0; k < n->layout->n_run; k++) {
            rankset o = n->layout->run[k].owners;
            double part = bytes * (double)n->layout->run[k].len /
                          (double)n->layout->period;

            c->weight_bytes[rank_first(o)] += (uint64_t)part;
            for (o &= o - 1; o; o &= o - 1)
                c->replica_bytes[rank_first(o)] += (uint64_t)part;
        }
    }
}

void pl_exec_counters(const pl_exec *x, pl_counters *out, size_t size)
{
    pl_counters c = {0};

    if (x && exec_enter((pl_exec *)x, NULL) == PL_OK) {
        device_set_counters(x->set, &c);
        count_weights(x->plan, &c);
        exec_leave((pl_exec *)x);
    }
    sized_write(out, size, &c, sizeof c);
}
