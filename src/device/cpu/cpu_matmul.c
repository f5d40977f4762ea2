/* The three contractions over any family's slices: which rows of activations
 * meet which matrix, how work is dealt to threads, and how rank addends are
 * summed. No arithmetic on weights happens here.
 *
 * Rows of activations go in blocks of at most 16, so that weights are unpacked
 * once a block, and blocks in batches that stay in the cache while the panels
 * of weight rows pass by. Neither shows in the bits: an accumulator sees one
 * row of weights and one of activations, whoever is computed beside it. */
#include "device/cpu/cpu_matmul.h"

#include <string.h>

#include "device/cpu/cpu_ops.h"

enum {
    BATCH = 64, /* rows of activations that pass over a panel together */
    /* Entries of a stack of subtree sums that are always there: enough for any
     * run of 64 ranks, which has at most 6 complete subtrees at each end. */
    MIN_DEPTH = 16,
};

/* ---- shapes -------------------------------------------------------------- */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A weight operand: the matrices of all experts. */
struct weight {
    const uint8_t *data;
    size_t matrix_bytes, panel_bytes;
    int64_t n, n_panel; /* rows of one matrix */
    bool q8;
    cpu_slice_fn *slice;
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

/* The weight in[1], and in *s what is common to all slices of the call. */
static struct weight weight_of(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa,
                               struct cpu_slice *s)
{
    const struct cpu_tensor *t = &c->in[1];
    struct weight w = {
        .data = t->data,
        .n = t->dim[t->n_dim - 2],
        .add = isa->add,
    };
    int64_t k = t->dim[t->n_dim - 1];

    w.n_panel = (w.n + PACK_ROWS - 1) / PACK_ROWS;
    *s = (struct cpu_slice){
        .pack = t->pack,
        .span = c->span,
        .n_span = c->n_span,
        .k = k,
        .format = t->format,
    };
    if (t->pack != NULL) {
        w.matrix_bytes = t->pack->matrix_bytes;
        w.panel_bytes = t->pack->panel_bytes;
        w.slice = isa->packed[t->format];
        w.q8 = isa->q8 && t->pack->rule->tile_values > 1;
    } else {
        w.matrix_bytes = format_row_bytes(t->format, k) * (size_t)w.n;
        w.panel_bytes = format_row_bytes(t->format, k) * PACK_ROWS;
        w.slice = isa->plain;
    }
    return w;
}

/* The activations in[0]: row i of the local k. */
struct rows {
    const uint8_t *data;
    size_t row_bytes;
};

static struct rows rows_of(const struct cpu_call *c, bool q8)
{
    int64_t k = cpu_last(&c->in[0]);

    if (q8)
        return (struct rows){(const uint8_t *)c->q8,
                             (size_t)(k / 32) * sizeof(struct q8_block)};
    return (struct rows){c->in[0].data, (size_t)k * sizeof(float)};
}

static const uint8_t *panel_at(const struct weight *w, int64_t matrix,
                               int64_t panel)
{
    return w->data + (size_t)matrix * w->matrix_bytes +
           (size_t)panel * w->panel_bytes;
}

/* The panel to work on and the one to come. */
static void panel_set(struct cpu_slice *s, const struct weight *w,
                      int64_t matrix, int64_t panel, int64_t next_matrix,
                      int64_t next_panel)
{
    s->panel = panel_at(w, matrix, panel);
    s->next = panel_at(w, next_matrix, min64(next_panel, w->n_panel - 1));
    s->n_row = (int)min64(PACK_ROWS, w->n - panel * PACK_ROWS);
}

/* ---- the tree ------------------------------------------------------------ */

/* A stack of entries of n floats each, where subtrees are summed. */
struct stack {
    float *data;
    int64_t n;
    int n_entry;
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

/* A new entry, all 0. */
static float *stack_push(struct stack *s)
{
    float *top = s->data + s->n_entry++ * s->n;

    return memset(top, 0, (size_t)s->n * sizeof(float));
}

/* The newest entry is the addend of `item`: what it completes is summed. */
static void stack_fold(struct stack *s, const struct rank_item *item)
{
    for (int a = 0; a < item->n_add; a++) {
        float *upper = s->data + --s->n_entry * s->n;

        s->add(upper - s->n, upper - s->n, upper, s->n);
    }
}

/* Where the tree's result e begins. */
static float *result_at(const struct cpu_call *c, int e)
{
    return (float *)((uint8_t *)c->out.data + (size_t)e * c->out_stride);
}

/* ---- rows of activations against one matrix ------------------------------ */

/* Which pairs of rows (activations, result) meet the matrix. */
struct pairs {
    const int32_t *list; /* [n] indices of result rows; NULL: 0 .. n-1 */
    int64_t n;
    int64_t share; /* result rows i use row i / share of the activations */
};

/* Result rows first .. first+s->n_tok-1 of *p against the panel set in *s. */
static void block_run(const struct cpu_call *c, const struct weight *w,
                      struct cpu_slice *s, const struct rows *x,
                      const struct pairs *p, int64_t first, int64_t panel)
{
    static const int32_t at[CPU_SLICE_TOK] = {0, 1, 2,  3,  4,  5,  6,  7,
                                              8, 9, 10, 11, 12, 13, 14, 15};
    struct stack stack = {c->scratch, s->n_tok * PACK_ROWS, 0, w->add};
    const void *x_row[CPU_SLICE_TOK];
    int64_t row[CPU_SLICE_TOK];
    int64_t width = cpu_last(&c->out);

    for (int j = 0; j < s->n_tok; j++) {
        row[j] = p->list != NULL ? p->list[first + j] : first + j;
        x_row[j] = x->data + (size_t)(row[j] / p->share) * x->row_bytes;
    }
    s->x = x_row;
    s->at = at;
    for (int i = 0; i < c->tree.n; i++) {
        s->acc = stack_push(&stack);
        s->rank = c->tree.item[i].rank;
        w->slice(s);
        stack_fold(&stack, &c->tree.item[i]);
    }
    for (int e = 0; e < stack.n_entry; e++) {
        const float *sum = stack.data + e * stack.n;

        for (int j = 0; j < s->n_tok; j++)
            memcpy(result_at(c, e) + row[j] * width + panel * PACK_ROWS,
                   sum + j * PACK_ROWS, (size_t)s->n_row * sizeof(float));
    }
}

/* Pairs first .. end-1 against panels panel0 .. panel1-1 of one matrix. */
static void pairs_run(const struct cpu_call *c, const struct weight *w,
                      struct cpu_slice *s, const struct rows *x,
                      const struct pairs *p, int64_t first, int64_t end,
                      int64_t matrix, int64_t panel0, int64_t panel1)
{
    for (int64_t b = first; b < end; b += BATCH) {
        int64_t stop = min64(b + BATCH, end);

        for (int64_t panel = panel0; panel < panel1; panel++) {
            panel_set(s, w, matrix, panel, matrix, panel + 1);
            for (int64_t i = b; i < stop; i += s->n_tok) {
                s->n_tok = (int)min64(CPU_SLICE_TOK, stop - i);
                block_run(c, w, s, x, p, i, panel);
            }
        }
    }
}

static size_t stack_bytes(const struct cpu_call *c, int64_t n_tok)
{
    int depth = c->tree.depth > MIN_DEPTH ? c->tree.depth : MIN_DEPTH;

    return (size_t)(n_tok * PACK_ROWS * depth) * sizeof(float);
}

size_t cpu_matmul_scratch(const struct cpu_call *c)
{
    return stack_bytes(c, CPU_SLICE_TOK);
}

/* out[i, :] = W x[i, :], all leading dimensions flattened into i. Threads share
 * units of one batch and one panel, so few rows of weights still feed many. */
void cpu_matmul(const struct cpu_call *c, const struct cpu_matmul_isa *isa)
{
    struct cpu_slice s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct pairs p = {.n = cpu_rows(&c->in[0]), .share = 1};
    int64_t batch = BATCH;
    struct cpu_part part;

    if (p.n == 0 || w.n == 0)
        return;
    while (batch > CPU_SLICE_TOK &&
           (p.n + batch - 1) / batch * w.n_panel < 8 * c->nth)
        batch /= 2;
    part = cpu_part((p.n + batch - 1) / batch * w.n_panel, 1, c->ith, c->nth);
    while (part.lo < part.hi) {
        int64_t b = part.lo / w.n_panel;
        int64_t panel0 = part.lo % w.n_panel;
        int64_t panel1 = min64(w.n_panel, panel0 + part.hi - part.lo);

        pairs_run(c, &w, &s, &x, &p, b * batch, min64((b + 1) * batch, p.n), 0,
                  panel0, panel1);
        part.lo += panel1 - panel0;
    }
}

/* ---- experts ------------------------------------------------------------- */

/* Who goes where: pairs t * n_used + u sorted by expert, else as they were. */
struct routing {
    int32_t *start; /* [n_expert + 1] */
    int32_t *pair;  /* [start[n_expert]] */
    int32_t *token; /* [start[n_expert]] pair / n_used */
};

static size_t routing_bytes(const struct cpu_call *c)
{
    int64_t n_pair = cpu_count(&c->in[2]);
    size_t n = (size_t)(c->in[1].dim[0] + 2 + 2 * n_pair) * sizeof(int32_t);

    return (n + 63) & ~(size_t)63;
}

/* Every thread counts for itself: cheaper than a barrier. */
static struct routing route(const struct cpu_call *c, void *memory)
{
    const int32_t *id = c->in[2].data;
    int64_t n_expert = c->in[1].dim[0];
    int64_t n_tok = c->in[2].dim[0], n_used = c->in[2].dim[1];
    struct routing r = {.start = memory};
    int32_t *next = r.start + 1; /* counts, then where an expert's next goes */

    r.pair = r.start + n_expert + 2;
    r.token = r.pair + n_tok * n_used;
    memset(r.start, 0, (size_t)(n_expert + 2) * sizeof(int32_t));
    for (int64_t i = 0; i < n_tok * n_used; i++) {
        if (id[i] >= 0 && id[i] < n_expert)
            r.start[id[i] + 2]++;
    }
    for (int64_t e = 1; e < n_expert; e++)
        next[e + 1] += next[e];
    for (int64_t t = 0; t < n_tok; t++) {
        for (int64_t i = t * n_used; i < (t + 1) * n_used; i++) {
            if (id[i] < 0 || id[i] >= n_expert)
                continue;
            r.token[next[id[i]]] = (int32_t)t;
            r.pair[next[id[i]]++] = (int32_t)i;
        }
    }
    return r;
}

size_t cpu_expert_matmul_scratch(const struct cpu_call *c)
{
    return stack_bytes(c, CPU_SLICE_TOK) + routing_bytes(c);
}

/* Rows of slots whose expert does not exist. */
static void clear_unrouted(const struct cpu_call *c)
{
    const int32_t *id = c->in[2].data;
    int64_t width = cpu_last(&c->out);
    struct cpu_part part = cpu_part(cpu_count(&c->in[2]), 1, c->ith, c->nth);

    for (int64_t i = part.lo; i < part.hi; i++) {
        if (id[i] >= 0 && id[i] < c->in[1].dim[0])
            continue;
        for (int e = 0; e < c->tree.n_out; e++)
            memset(result_at(c, e) + i * width, 0,
                   (size_t)width * sizeof(float));
    }
}

/* out[t, u, :] = W[id[t, u]] x[t, u, :]; x may have one row a token. Threads
 * share (expert, panel) units weighted by the expert's tokens. A slot with an
 * id out of range gives zeros. */
void cpu_expert_matmul(const struct cpu_call *c,
                       const struct cpu_matmul_isa *isa)
{
    struct cpu_slice s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct routing r =
        route(c, (uint8_t *)c->scratch + stack_bytes(c, CPU_SLICE_TOK));
    int64_t n_expert = c->in[1].dim[0];
    struct cpu_part part; /* in units of one pair and one panel */

    clear_unrouted(c);
    if (w.n == 0)
        return;
    part = cpu_part(r.start[n_expert] * w.n_panel, 1, c->ith, c->nth);
    for (int64_t e = 0; e < n_expert; e++) {
        int64_t n = r.start[e + 1] - r.start[e];
        int64_t base = r.start[e] * w.n_panel;
        struct pairs p = {
            .list = r.pair + r.start[e],
            .n = n,
            .share = c->in[0].dim[1] == 1 ? c->in[2].dim[1] : 1,
        };
        int64_t panel0, panel1;

        if (n == 0 || base + n * w.n_panel <= part.lo || base >= part.hi)
            continue;
        /* A panel belongs to the thread in whose part its first unit lies. */
        panel0 = part.lo > base ? (part.lo - base + n - 1) / n : 0;
        panel1 = min64((part.hi - base + n - 1) / n, w.n_panel);
        pairs_run(c, &w, &s, &x, &p, 0, n, e, panel0, panel1);
    }
}

/* ---- expert_down --------------------------------------------------------- */

/* The routed pairs in blocks for a slice: one expert, no token twice. */
struct down {
    struct routing r;
    const void **x;  /* [pairs] their activations */
    int32_t *block;  /* [n_block + 1] first pair of each block */
    int64_t n_block; /* at most one a pair */
};

static size_t down_bytes(const struct cpu_call *c)
{
    size_t n_pair = (size_t)cpu_count(&c->in[2]);
    size_t n = n_pair * sizeof(void *) + (n_pair + 1) * sizeof(int32_t);

    return (n + 63) & ~(size_t)63;
}

size_t cpu_expert_down_scratch(const struct cpu_call *c)
{
    return stack_bytes(c, c->in[2].dim[0]) + down_bytes(c) + routing_bytes(c);
}

static int32_t expert_of(const struct cpu_call *c, const struct down *d,
                         int64_t i)
{
    return ((const int32_t *)c->in[2].data)[d->r.pair[i]];
}

static struct down down_plan(const struct cpu_call *c, const struct rows *x)
{
    uint8_t *memory = (uint8_t *)c->scratch + stack_bytes(c, c->in[2].dim[0]);
    int64_t n_pair = cpu_count(&c->in[2]);
    struct down d = {.r = route(c, memory + down_bytes(c))};
    int32_t n = d.r.start[c->in[1].dim[0]];

    d.x = (const void **)memory;
    d.block = (int32_t *)(d.x + n_pair);
    for (int32_t i = 0; i < n; i++) {
        int32_t first = d.n_block > 0 ? d.block[d.n_block - 1] : 0;

        d.x[i] = x->data + (size_t)d.r.pair[i] * x->row_bytes;
        if (i == 0 || i - first == CPU_SLICE_TOK ||
            expert_of(c, &d, i) != expert_of(c, &d, i - 1) ||
            d.r.token[i] == d.r.token[i - 1])
            d.block[d.n_block++] = i;
    }
    d.block[d.n_block] = n;
    return d;
}

/* The addend of the rank set in *s: every token's accumulator runs over its
 * experts, ascending. */
static void down_addend(const struct cpu_call *c, const struct weight *w,
                        struct cpu_slice *s, const struct down *d,
                        int64_t panel)
{
    for (int64_t b = 0; b < d->n_block; b++) {
        int32_t first = d->block[b], end = d->block[b + 1];
        bool last = b + 1 == d->n_block;

        s->n_tok = end - first;
        s->x = d->x + first;
        s->at = d->r.token + first;
        panel_set(s, w, expert_of(c, d, first), panel,
                  expert_of(c, d, last ? 0 : end), panel + last);
        w->slice(s);
    }
}

/* out[t, :] = sum over u of W[id[t, u]] x[t, u, :]: one contraction over expert
 * and k. For each rank an accumulator starts at 0 and runs over the token's
 * experts, ascending, equal ones in slot order, and inside each over the rank's
 * k. A slot with an id out of range adds nothing. */
void cpu_expert_down(const struct cpu_call *c, const struct cpu_matmul_isa *isa)
{
    struct cpu_slice s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct down d = down_plan(c, &x);
    int64_t n_tok = c->in[2].dim[0];
    struct cpu_part part = cpu_part(w.n_panel, 1, c->ith, c->nth);

    for (int64_t panel = part.lo; panel < part.hi; panel++) {
        struct stack stack = {c->scratch, n_tok * PACK_ROWS, 0, w.add};
        int64_t n_row = min64(PACK_ROWS, w.n - panel * PACK_ROWS);

        for (int i = 0; i < c->tree.n; i++) {
            s.acc = stack_push(&stack);
            s.rank = c->tree.item[i].rank;
            down_addend(c, &w, &s, &d, panel);
            stack_fold(&stack, &c->tree.item[i]);
        }
        for (int e = 0; e < stack.n_entry; e++) {
            const float *sum = stack.data + e * stack.n;

            for (int64_t t = 0; t < n_tok; t++)
                memcpy(result_at(c, e) + t * w.n + panel * PACK_ROWS,
                       sum + t * PACK_ROWS, (size_t)n_row * sizeof(float));
        }
    }
}
