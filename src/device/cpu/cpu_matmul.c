/* The kernels of matrix products, on top of the panel functions of an
 * instruction set: which rows of activations are multiplied by which matrix,
 * how threads divide the work, and how the addends of ranks are summed. The
 * panel functions do all arithmetic with weights.
 *
 * Rows of activations form blocks of at most 16, so that weights are unpacked
 * once per block. Blocks form batches that stay in the cache while the panels
 * of weight rows are read. Neither changes the bits, because an accumulator
 * depends only on one weight row and one row of activations. */
#include "device/cpu/cpu_matmul.h"

#include <string.h>

#include "device/cpu/cpu_ops.h"

enum {
    /* maximum number of rows of activations that are multiplied by a group of
     * panels before the next panels are read */
    BATCH = 64,
    /* Minimum number of entries for which stacks of rank sums have space. It
     * suffices for any interval of up to 64 ranks, because that has at most 6
     * complete subtrees of the rank tree at each end. */
    MIN_DEPTH = 16,
};

/* ---- weights and rows of activations ------------------------------------- */

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The weight operand of an op: one matrix, or one for each head or expert. */
struct weight {
    const uint8_t *data;
    size_t matrix_bytes, panel_bytes;
    int64_t n, n_panel; /* number of rows and of 16-row panels of each matrix */
    /* maximum number of panels that one panel call multiplies */
    int panels;
    bool q8;
    cpu_panel_fn *multiply;
    /* GEMM functions for the weight's format; NULL if the instruction set has
     * none */
    const struct cpu_gemm *gemm;
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

/* Returns the GEMM functions for weights of format f. Returns NULL if the
 * instruction set has none, so that panel calls are used for any number of rows
 * of activations. */
static const struct cpu_gemm *gemm_of(const struct cpu_matmul_isa *isa,
                                      pl_format f)
{
    return isa->gemm && isa->gemm[f].run ? &isa->gemm[f] : NULL;
}

/* Returns the weight operand in[1]. Sets the arguments in *s that are the same
 * in all panel calls of the op. */
static struct weight weight_of(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa,
                               struct cpu_panel_args *s)
{
    const struct cpu_tensor *t = &c->in[1];
    struct weight w = {
        .data = t->data,
        .n = t->dim[t->n_dim - 2],
        .add = isa->jobs->add,
        .panels = 1,
    };
    int64_t k = t->dim[t->n_dim - 1];

    w.n_panel = (w.n + PACK_ROWS - 1) / PACK_ROWS;
    *s = (struct cpu_panel_args){
        .pack = t->pack,
        .span = c->span,
        .n_span = c->n_span,
        .k = k,
        .format = t->format,
        .n_panel = 1,
    };
    if (t->pack != NULL) {
        w.matrix_bytes = t->pack->matrix_bytes;
        w.panel_bytes = t->pack->panel_bytes;
        w.multiply = isa->jobs->packed[t->format];
        w.q8 = isa->jobs->q8 && t->pack->rule->tile_values > 1;
        w.gemm = gemm_of(isa, t->format);
        if (isa->jobs->panels > 1)
            w.panels = isa->jobs->panels;
    } else {
        w.matrix_bytes = format_row_bytes(t->format, k) * (size_t)w.n;
        w.panel_bytes = format_row_bytes(t->format, k) * PACK_ROWS;
        w.multiply = isa->jobs->plain;
    }
    return w;
}

/* The activations in[0]: rows of float, or of struct q8_block if quantized. A
 * row has all values of k that this device holds. */
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

/* Returns the number of panels that one panel call multiplies by n_tok rows of
 * activations. */
static int panels_of(const struct weight *w, int64_t n_tok)
{
    int64_t n = n_tok > 0 ? CPU_PANEL_TOK / n_tok : 1;

    return (int)(n < 1 ? 1 : min64(n, w->panels));
}

/* Threads divide n_panel panels into parts that are multiples of this number of
 * panels. It is the number of panels of a panel call if there are enough panels
 * for all threads, else 1. */
static int64_t panel_grain(const struct cpu_call *c, const struct weight *w,
                           int64_t n_tok, int64_t n_panel)
{
    int n = panels_of(w, n_tok);

    return n_panel >= (int64_t)4 * n * c->nth ? n : 1;
}

/* Sets the weight arguments in *s of a panel call that begins at panel `panel`
 * of matrix `matrix`. The call prefetches the panels of the next call, which
 * begins at panel next_panel of matrix next_matrix. */
static void panel_set(struct cpu_panel_args *s, const struct weight *w,
                      int64_t matrix, int64_t panel, int64_t next_matrix,
                      int64_t next_panel)
{
    s->panel = panel_at(w, matrix, panel);
    s->next =
        panel_at(w, next_matrix, min64(next_panel, w->n_panel - s->n_panel));
    s->n_row = (int)min64(PACK_ROWS, w->n - panel * PACK_ROWS);
}

/* ---- sums over ranks ----------------------------------------------------- */

/* A stack on which the addends of ranks are summed along the rank tree. Each
 * entry is an array of n floats, the sum of one subtree of ranks. */
struct stack {
    float *data;
    int64_t n;
    int n_entry;
    void (*add)(float *out, const float *a, const float *b, int64_t n);
};

/* Pushes an array of n floats, not initialized, and returns it. */
static float *stack_take(struct stack *s)
{
    return s->data + s->n_entry++ * s->n;
}

/* Pushes an array of n zeros and returns it. */
static float *stack_push(struct stack *s)
{
    return memset(stack_take(s), 0, (size_t)s->n * sizeof(float));
}

/* Called when the top of the stack holds the addend of `item`, a rank. Adds the
 * two topmost arrays item->n_add times: once for each subtree of ranks that
 * this addend completes. */
static void stack_fold(struct stack *s, const struct tree_addend *item)
{
    for (int a = 0; a < item->n_add; a++) {
        float *upper = s->data + --s->n_entry * s->n;

        s->add(upper - s->n, upper - s->n, upper, s->n);
    }
}

/* A call writes one result for each complete subtree of ranks that it sums.
 * Returns the address of result number e. */
static float *result_at(const struct cpu_call *c, int e)
{
    return (float *)((uint8_t *)c->out.data + (size_t)e * c->out_stride);
}

/* ---- few rows of activations and one matrix ------------------------------ */

/* The rows that are multiplied by one matrix. A pair is a row of activations
 * and the row of the result that it gives. */
struct pairs {
    /* [n] indices of the result rows; NULL for rows 0 .. n - 1 */
    const int32_t *list;
    int64_t n;
    /* how many result rows use the same row of activations: result row i uses
     * row i / share */
    int64_t share;
};

static int64_t pair_row(const struct pairs *p, int64_t i)
{
    return p->list != NULL ? p->list[i] : i;
}

/* Multiplies s->n_panel panels, from panel `panel`, by s->n_tok rows of
 * activations, those of the pairs (of a row of activations and a result row)
 * from `first` on. Sums the addends of the ranks and writes these panels' part
 * of the result rows. */
static void block_run(const struct cpu_call *c, const struct weight *w,
                      struct cpu_panel_args *s, const struct rows *x,
                      const struct pairs *p, int64_t first, int64_t panel)
{
    static const int32_t at[CPU_PANEL_TOK] = {0, 1, 2,  3,  4,  5,  6,  7,
                                              8, 9, 10, 11, 12, 13, 14, 15};
    struct stack stack = {c->scratch, s->n_panel * s->n_tok * PACK_ROWS, 0,
                          w->add};
    const void *x_row[CPU_PANEL_TOK];
    int64_t row[CPU_PANEL_TOK];
    int64_t width = cpu_last(&c->out);

    for (int j = 0; j < s->n_tok; j++) {
        row[j] = pair_row(p, first + j);
        x_row[j] = x->data + (size_t)(row[j] / p->share) * x->row_bytes;
    }
    s->x = x_row;
    s->at = at;
    for (int i = 0; i < c->tree.n; i++) {
        s->acc = stack_push(&stack);
        s->rank = c->tree.item[i].rank;
        w->multiply(s);
        stack_fold(&stack, &c->tree.item[i]);
    }
    for (int e = 0; e < stack.n_entry; e++) {
        const float *sum = stack.data + e * stack.n;

        for (int i = 0; i < s->n_panel; i++) {
            int64_t first_row = (panel + i) * PACK_ROWS;
            int64_t n = min64(PACK_ROWS, w->n - first_row);

            for (int j = 0; j < s->n_tok; j++)
                memcpy(result_at(c, e) + row[j] * width + first_row,
                       sum + (i * s->n_tok + j) * PACK_ROWS,
                       (size_t)n * sizeof(float));
        }
    }
}

/* Computes panels g0 .. g1 - 1 of one matrix, by panel calls, for pairs first
 * .. end - 1. A pair is a row of activations and the result row that it
 * gives. */
static void pairs_run(const struct cpu_call *c, const struct weight *w,
                      struct cpu_panel_args *s, const struct rows *x,
                      const struct pairs *p, int64_t first, int64_t end,
                      int64_t matrix, int64_t g0, int64_t g1)
{
    for (int64_t b = first; b < end; b += BATCH) {
        int64_t stop = min64(b + BATCH, end);
        int panels = panels_of(w, stop - b);

        for (int64_t g = g0; g < g1; g += s->n_panel) {
            s->n_panel = (int)min64(panels, g1 - g);
            panel_set(s, w, matrix, g, matrix, g + s->n_panel);
            for (int64_t i = b; i < stop; i += s->n_tok) {
                s->n_tok = (int)min64(CPU_PANEL_TOK, stop - i);
                block_run(c, w, s, x, p, i, g);
            }
        }
    }
}

static size_t stack_bytes(const struct cpu_call *c, int64_t n_tok)
{
    int depth = c->tree.depth > MIN_DEPTH ? c->tree.depth : MIN_DEPTH;

    return (size_t)(n_tok * PACK_ROWS * depth) * sizeof(float);
}

/* ---- many rows of activations (GEMM) ------------------------------------- */

enum {
    /* maximum number of rows of activations that a GEMM arranges and multiplies
     * together, a batch */
    MANY_ROWS = 516,
    /* maximum size in bytes of the arranged rows of activations of a batch, so
     * that they stay in the cache */
    MANY_BYTES = 2 << 20,
    /* expert_down by panel calls: maximum product of panels and tokens that one
     * loop over the experts computes */
    DOWN_ROWS = 128,
    /* expert_down by GEMM: maximum size in bytes of the accumulators that one
     * loop over the experts uses */
    DOWN_BYTES = 1 << 19,
    /* Minimum number of rows of activations in a part, if the rows of a GEMM
     * are divided among threads. With fewer rows, threads divide only the
     * weight rows. */
    MANY_ROWS_A_PART = 96,
};

static int64_t n_block(const struct weight *w)
{
    return (w->n_panel + GEMM_PANELS - 1) / GEMM_PANELS;
}

/* Returns the number of rows of activations that a GEMM arranges and multiplies
 * together, if there are n rows in all. */
static int64_t many_rows(const struct cpu_gemm *m, const struct pack *p,
                         int64_t n)
{
    int64_t row = gemm_units(p) * (int64_t)m->act_bytes() / m->tok + 1;
    int64_t most = min64(MANY_ROWS, MANY_BYTES / row);

    most = most < MANY_ROWS_A_PART ? MANY_ROWS_A_PART : most;
    return min64(n, most / m->tok * m->tok);
}

static int64_t entries(const struct cpu_call *c)
{
    return c->tree.depth > 1 ? c->tree.depth : 1;
}

/* A thread's state for a GEMM. In the thread's scratch, a stack of
 * accumulators, `acc`, is followed by the memory of gemm_work. */
struct many {
    struct gemm_work g;
    float *acc;
    /* The pairs (of a row of activations and a result row) whose activations
     * are arranged in `g` now: pairs first .. first + n - 1 of the array
     * `list`. */
    const int32_t *list;
    int64_t first, n;
};

static size_t many_init(struct many *m, const struct cpu_call *c,
                        const struct cpu_gemm *gemm, int64_t n_row,
                        size_t acc_bytes, void *memory)
{
    const struct pack *p = c->in[1].pack;
    int64_t rows = many_rows(gemm, p, n_row);

    *m = (struct many){.acc = memory};
    return acc_bytes +
           gemm_work_init(&m->g, gemm, p, rows,
                          memory ? (uint8_t *)memory + acc_bytes : NULL);
}

static size_t many_acc_bytes(const struct cpu_call *c,
                             const struct cpu_gemm *gemm, int64_t n_row)
{
    return (size_t)(entries(c) * many_rows(gemm, c->in[1].pack, n_row) *
                    GEMM_WIDTH) *
           sizeof(float);
}

static const uint8_t *row_at(const struct rows *x, const struct pairs *p,
                             int64_t i)
{
    return x->data + (size_t)(pair_row(p, i) / p->share) * x->row_bytes;
}

/* Arranges the activations of pairs first .. first + n - 1 (of a row of
 * activations and a result row) in m->g, in the order in which the GEMM reads
 * them. Does nothing if these are already arranged there. */
static void many_arrange(struct many *m, const struct rows *x,
                         const struct pairs *p, int64_t first, int64_t n)
{
    if (m->list == p->list && m->first == first && m->n == n)
        return;
    for (int64_t j = 0; j < n; j++)
        m->g.x[j] = row_at(x, p, first + j);
    gemm_arrange(&m->g, n);
    m->list = p->list;
    m->first = first;
    m->n = n;
}

/* A call writes one result for each complete subtree of ranks that it sums.
 * Returns where in result number e the 16 sums of panel `panel` are, in the
 * result row of pair i. */
static float *out_at(const struct cpu_call *c, const struct pairs *p, int64_t i,
                     int e, int64_t panel)
{
    return result_at(c, e) + pair_row(p, i) * cpu_last(&c->out) +
           panel * PACK_ROWS;
}

/* Multiplies weight block `block` (two panels) of one matrix by the arranged
 * activations of n pairs from `first` (of a row of activations and a result
 * row). Sums the addends of the ranks and writes this block's part of the
 * result rows. If there is one rank and the block has all its GEMM_WIDTH rows,
 * products are accumulated in the result itself. */
static void many_block(const struct cpu_call *c, const struct weight *w,
                       struct many *m, const struct pairs *p, int64_t first,
                       int64_t n, int64_t matrix, int64_t block)
{
    struct stack stack = {m->acc, n * GEMM_WIDTH, 0, w->add};
    int64_t panel = block * GEMM_PANELS;
    int64_t n_row = min64(GEMM_WIDTH, w->n - panel * PACK_ROWS);
    int n_panel = (int)min64(GEMM_PANELS, w->n_panel - panel);
    bool direct = c->tree.n == 1 && n_row == GEMM_WIDTH;

    for (int i = 0; i < c->tree.n; i++) {
        float *top = stack_take(&stack);

        for (int64_t j = 0; j < n; j++)
            m->g.acc[j] = direct ? out_at(c, p, first + j, 0, panel)
                                 : top + j * GEMM_WIDTH;
        gemm_add(&m->g, panel_at(w, matrix, panel), n_panel,
                 c->tree.item[i].rank, n, true);
        stack_fold(&stack, &c->tree.item[i]);
    }
    for (int e = 0; e < stack.n_entry && !direct; e++)
        for (int64_t j = 0; j < n; j++)
            memcpy(out_at(c, p, first + j, e, panel),
                   stack.data + e * stack.n + j * GEMM_WIDTH,
                   (size_t)n_row * sizeof(float));
}

/* Computes weight blocks b0 .. b1 - 1 (two panels each) of one matrix, by GEMM,
 * for pairs first .. end - 1. A pair is a row of activations and the result row
 * that it gives. */
static void many_run(const struct cpu_call *c, const struct weight *w,
                     struct many *m, const struct rows *x,
                     const struct pairs *p, int64_t first, int64_t end,
                     int64_t matrix, int64_t b0, int64_t b1)
{
    int64_t batch = many_rows(w->gemm, c->in[1].pack, end - first);

    for (int64_t i = first, n; i < end && b0 < b1; i += n) {
        n = min64(batch, end - i);
        many_arrange(m, x, p, i, n);
        for (int64_t b = b0; b < b1; b++)
            many_block(c, w, m, p, i, n, matrix, b);
    }
}

/* ---- matmul -------------------------------------------------------------- */

size_t cpu_matmul_scratch(const struct cpu_call *c,
                          const struct cpu_matmul_isa *isa)
{
    const struct cpu_gemm *gemm = gemm_of(isa, c->in[1].format);
    int64_t n = cpu_rows(&c->in[0]);
    struct many m;

    if (!gemm || !c->in[1].pack || n < gemm->min_rows)
        return stack_bytes(c, CPU_PANEL_TOK);
    return stack_bytes(c, CPU_PANEL_TOK) +
           many_init(&m, c, gemm, n, many_acc_bytes(c, gemm, n), NULL);
}

/* Computes a matmul by GEMM. A unit of work is a part of the rows of
 * activations times a weight block of two panels; threads divide these. The
 * rows are split into more parts only if there would be too few units for the
 * threads. */
static void matmul_many(const struct cpu_call *c, const struct weight *w,
                        const struct rows *x, const struct pairs *p)
{
    int64_t batch = many_rows(w->gemm, c->in[1].pack, p->n), rows;
    int64_t blocks = n_block(w), n_part = (p->n + batch - 1) / batch;
    struct cpu_steal deal;
    struct cpu_part part;
    struct many m;

    many_init(&m, c, w->gemm, p->n, many_acc_bytes(c, w->gemm, p->n),
              (uint8_t *)c->scratch + stack_bytes(c, CPU_PANEL_TOK));
    while (n_part * blocks < 8 * c->nth &&
           p->n / (2 * n_part) >= MANY_ROWS_A_PART)
        n_part *= 2;
    rows = (p->n + n_part - 1) / n_part;
    rows = (rows + w->gemm->tok - 1) / w->gemm->tok * w->gemm->tok;
    n_part = (p->n + rows - 1) / rows;
    deal = cpu_steal(c, n_part * blocks, 1);
    gemm_begin(&m.g);
    while (cpu_steal_next(&deal, &part))
        while (part.lo < part.hi) {
            int64_t i = part.lo / blocks, b0 = part.lo % blocks;
            int64_t b1 = min64(blocks, b0 + part.hi - part.lo);

            many_run(c, w, &m, x, p, i * rows, min64((i + 1) * rows, p->n), 0,
                     b0, b1);
            part.lo += b1 - b0;
        }
    gemm_end(&m.g);
}

/* Computes out[i, :] = W x[i, :], where i counts over all leading dimensions. A
 * unit of work is a batch of rows of activations times a panel. Threads divide
 * these, so that many threads have work even if the weight has few rows. */
void cpu_matmul(const struct cpu_call *c, const struct cpu_matmul_isa *isa)
{
    struct cpu_panel_args s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct pairs p = {.n = cpu_rows(&c->in[0]), .share = 1};
    int64_t batch = BATCH;
    struct cpu_steal deal;
    struct cpu_part part;

    if (p.n == 0 || w.n == 0)
        return;
    if (w.gemm && p.n >= w.gemm->min_rows) {
        matmul_many(c, &w, &x, &p);
        return;
    }
    while (batch > CPU_PANEL_TOK &&
           (p.n + batch - 1) / batch * w.n_panel < 8 * c->nth)
        batch /= 2;
    deal = cpu_steal(c, (p.n + batch - 1) / batch * w.n_panel,
                     panel_grain(c, &w, p.n, w.n_panel));
    while (cpu_steal_next(&deal, &part))
        while (part.lo < part.hi) {
            int64_t b = part.lo / w.n_panel;
            int64_t g0 = part.lo % w.n_panel;
            int64_t g1 = min64(w.n_panel, g0 + part.hi - part.lo);

            pairs_run(c, &w, &s, &x, &p, b * batch, min64((b + 1) * batch, p.n),
                      0, g0, g1);
            part.lo += g1 - g0;
        }
}

/* ---- head_matmul and expert_matmul --------------------------------------- */

/* The assignment of rows of activations to experts. A pair is choice u of token
 * t, with index t * n_used + u. Pairs are sorted by expert, then by index.
 * head_matmul treats a head as an expert that every token chooses once. */
struct routing {
    /* [n_expert + 1] index in pair[] of each expert's first pair; the last
     * entry is the number of pairs */
    int32_t *start;
    /* [start[n_expert]] t * n_used + u of each pair (choice u of token t),
     * sorted by expert */
    int32_t *pair;
    /* [start[n_expert]] index of the token of each pair in pair[] */
    int32_t *token;
};

static size_t routing_bytes(const struct cpu_call *c, int64_t n_pair)
{
    size_t n = (size_t)(c->in[1].dim[0] + 2 + 2 * n_pair) * sizeof(int32_t);

    return (n + 63) & ~(size_t)63;
}

/* Sorts the experts' ids in c->in[2] by expert; the result's arrays are in
 * `memory`. Every thread does this itself, because that is cheaper than a
 * barrier. */
static struct routing route(const struct cpu_call *c, void *memory)
{
    const int32_t *id = c->in[2].data;
    int64_t n_expert = c->in[1].dim[0];
    int64_t n_tok = c->in[2].dim[0], n_used = c->in[2].dim[1];
    struct routing r = {.start = memory};
    /* first, each expert's number of pairs; then, while pairs are sorted, the
     * index of its next pair */
    int32_t *next = r.start + 1;

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

/* Assigns rows of activations to the heads of head_matmul, which multiplies a
 * row of each token by each head's matrix: pair t * n_head + h (token t)
 * belongs to head h. */
static struct routing route_heads(const struct cpu_call *c, void *memory)
{
    int64_t n_head = c->in[1].dim[0], n_tok = c->in[0].dim[0];
    struct routing r = {.start = memory};

    r.pair = r.start + n_head + 2;
    r.token = r.pair + n_tok * n_head;
    for (int64_t h = 0; h <= n_head; h++)
        r.start[h] = (int32_t)(h * n_tok);
    for (int64_t h = 0; h < n_head; h++) {
        for (int64_t t = 0; t < n_tok; t++) {
            r.pair[h * n_tok + t] = (int32_t)(t * n_head + h);
            r.token[h * n_tok + t] = (int32_t)t;
        }
    }
    return r;
}

/* Returns the scratch size in bytes that a thread needs for head_matmul or
 * expert_matmul with n_pair pairs of a row of activations and a matrix. At most
 * `most` pairs have the same matrix. */
static size_t routed_scratch(const struct cpu_call *c,
                             const struct cpu_matmul_isa *isa, int64_t n_pair,
                             int64_t most)
{
    const struct cpu_gemm *gemm = gemm_of(isa, c->in[1].format);
    size_t bytes = stack_bytes(c, CPU_PANEL_TOK) + routing_bytes(c, n_pair);
    struct many m;

    if (!gemm || !c->in[1].pack || most < gemm->min_rows)
        return bytes;
    return bytes +
           many_init(&m, c, gemm, most, many_acc_bytes(c, gemm, most), NULL);
}

size_t cpu_head_matmul_scratch(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa)
{
    return routed_scratch(c, isa, cpu_rows(&c->in[0]), c->in[0].dim[0]);
}

size_t cpu_expert_matmul_scratch(const struct cpu_call *c,
                                 const struct cpu_matmul_isa *isa)
{
    int64_t n_pair = cpu_count(&c->in[2]);

    return routed_scratch(c, isa, n_pair, n_pair);
}

/* A token's choice whose expert id is invalid gives a result row of zeros.
 * Writes these rows. */
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

/* Returns the number of panels of an expert that are multiplied together: two
 * by GEMM, else one. `m` is NULL if no expert has enough rows of activations
 * for GEMM. */
static int64_t expert_grain(const struct many *m)
{
    return m ? GEMM_PANELS : 1;
}

static int64_t expert_units(const struct weight *w, const struct many *m)
{
    return (w->n_panel + expert_grain(m) - 1) / expert_grain(m);
}

/* Computes the units part.lo .. part.hi - 1 of head_matmul or expert_matmul. A
 * unit is a pair (a row of activations and its expert) times expert_grain()
 * panels of the expert. Units are ordered by expert, then by panel. `share`
 * pairs use the same row of activations. */
static void expert_part(const struct cpu_call *c, const struct weight *w,
                        struct cpu_panel_args *s, struct many *m,
                        const struct rows *x, const struct routing *r,
                        int64_t share, struct cpu_part part)
{
    int64_t grain = expert_grain(m), n_unit = expert_units(w, m);

    for (int64_t e = 0; e < c->in[1].dim[0]; e++) {
        int64_t n = r->start[e + 1] - r->start[e];
        int64_t base = r->start[e] * n_unit;
        struct pairs p = {
            .list = r->pair + r->start[e],
            .n = n,
            .share = share,
        };
        int64_t g0, g1;

        if (n == 0 || base + n * n_unit <= part.lo || base >= part.hi)
            continue;
        /* A group of panels has n units, one for each pair of the expert. The
         * thread whose part contains the first of these units computes the
         * group for all n pairs. */
        g0 = part.lo > base ? (part.lo - base + n - 1) / n : 0;
        g1 = min64((part.hi - base + n - 1) / n, n_unit);
        if (m && n >= w->gemm->min_rows)
            many_run(c, w, m, x, &p, 0, n, e, g0, g1);
        else
            pairs_run(c, w, s, x, &p, 0, n, e, g0 * grain,
                      min64(g1 * grain, w->n_panel));
    }
}

/* Computes head_matmul or expert_matmul: the n_pair pairs of a row of
 * activations and its matrix, at most `most` of which have the same matrix.
 * Threads divide the panels of all matrices. In this division a panel counts
 * once for each pair of its matrix. */
static void routed_run(const struct cpu_call *c,
                       const struct cpu_matmul_isa *isa,
                       const struct routing *r, int64_t n_pair, int64_t most,
                       int64_t share)
{
    struct cpu_panel_args s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct many memory, *m = NULL;
    struct cpu_steal deal;
    struct cpu_part part;
    int64_t n_unit;

    if (w.n == 0)
        return;
    if (w.gemm && most >= w.gemm->min_rows) {
        m = &memory;
        many_init(m, c, w.gemm, most, many_acc_bytes(c, w.gemm, most),
                  (uint8_t *)c->scratch + stack_bytes(c, CPU_PANEL_TOK) +
                      routing_bytes(c, n_pair));
        gemm_begin(&m->g);
    }
    n_unit = r->start[c->in[1].dim[0]] * expert_units(&w, m);
    deal = cpu_steal(c, n_unit, m ? 1 : panel_grain(c, &w, 1, n_unit));
    while (cpu_steal_next(&deal, &part))
        expert_part(c, &w, &s, m, &x, r, share, part);
    if (m)
        gemm_end(&m->g);
}

/* Computes out[t, h, :] = W[h] x[t, h, :] for all tokens t and heads h. */
void cpu_head_matmul(const struct cpu_call *c, const struct cpu_matmul_isa *isa)
{
    struct routing r =
        route_heads(c, (uint8_t *)c->scratch + stack_bytes(c, CPU_PANEL_TOK));

    routed_run(c, isa, &r, cpu_rows(&c->in[0]), c->in[0].dim[0], 1);
}

/* Computes out[t, u, :] = W[id[t, u]] x[t, u, :] for all tokens t and their
 * chosen experts u. If x has one row per token, that row serves all u. An id
 * out of range gives zeros. */
void cpu_expert_matmul(const struct cpu_call *c,
                       const struct cpu_matmul_isa *isa)
{
    struct routing r =
        route(c, (uint8_t *)c->scratch + stack_bytes(c, CPU_PANEL_TOK));
    int64_t n_pair = cpu_count(&c->in[2]);

    clear_unrouted(c);
    routed_run(c, isa, &r, n_pair, n_pair,
               c->in[0].dim[1] == 1 ? c->in[2].dim[1] : 1);
}

/* ---- expert_down --------------------------------------------------------- */

/* The routing of expert_down, in which the pairs of a row of activations and
 * its expert are grouped into blocks for panel calls. A block has at most 16
 * pairs, all of one expert and each of a different token. */
struct down {
    struct routing r;
    /* [number of pairs] pointer to the row of activations of each pair */
    const void **x;
    /* [n_block + 1] index of each block's first pair; the last entry is the
     * number of pairs */
    int32_t *block;
    /* number of blocks; a block has up to 16 pairs of a row of activations and
     * an expert */
    int64_t n_block;
};

static size_t down_bytes(const struct cpu_call *c)
{
    size_t n_pair = (size_t)cpu_count(&c->in[2]);
    size_t n = n_pair * sizeof(void *) + (n_pair + 1) * sizeof(int32_t);

    return (n + 63) & ~(size_t)63;
}

/* Returns the number of ranks that one loop over the experts of expert_down
 * computes: all ranks if there are few tokens, else one. */
static int down_ranks(const struct cpu_call *c)
{
    return c->in[2].dim[0] > DOWN_ROWS ? 1 : c->tree.n;
}

/* Returns the size in bytes of the stack on which down_panels() sums the
 * addends of ranks. With few tokens an entry holds a group of panels, and all
 * ranks are on the stack at once. With many tokens an entry holds one panel for
 * all tokens. The size must not decrease as the number of tokens grows, because
 * scratch is allocated for the maximum number. */
static size_t down_stack_bytes(const struct cpu_call *c)
{
    int64_t n_tok = c->in[2].dim[0];
    size_t ranks = (size_t)c->tree.n * DOWN_ROWS * PACK_ROWS * sizeof(float);
    size_t depth = stack_bytes(c, n_tok > DOWN_ROWS ? n_tok : DOWN_ROWS);

    return ranks > depth ? ranks : depth;
}

/* Returns the size in bytes of the accumulators that expert_down needs by GEMM
 * for a weight block of two panels, for all tokens and all entries of the rank
 * stack. */
static int64_t down_block_bytes(const struct cpu_call *c)
{
    return entries(c) * c->in[2].dim[0] * GEMM_WIDTH * (int64_t)sizeof(float);
}

/* Returns the number of weight blocks, of two panels each, that one loop over
 * the experts of expert_down computes by GEMM. */
static int64_t down_blocks(const struct cpu_call *c)
{
    int64_t one = down_block_bytes(c);

    return one < DOWN_BYTES ? DOWN_BYTES / one : 1;
}

static size_t down_acc_bytes(const struct cpu_call *c)
{
    int64_t one = down_block_bytes(c);

    return (size_t)(one > DOWN_BYTES ? one : DOWN_BYTES);
}

size_t cpu_expert_down_scratch(const struct cpu_call *c,
                               const struct cpu_matmul_isa *isa)
{
    const struct cpu_gemm *gemm = gemm_of(isa, c->in[1].format);
    size_t bytes = down_stack_bytes(c) + down_bytes(c) +
                   routing_bytes(c, cpu_count(&c->in[2]));
    struct many m;

    if (!gemm || !c->in[1].pack || c->in[2].dim[0] < gemm->min_rows)
        return bytes;
    return bytes +
           many_init(&m, c, gemm, c->in[2].dim[0], down_acc_bytes(c), NULL);
}

static int32_t expert_of(const struct cpu_call *c, const struct down *d,
                         int64_t i)
{
    return ((const int32_t *)c->in[2].data)[d->r.pair[i]];
}

static struct down down_plan(const struct cpu_call *c, const struct rows *x)
{
    uint8_t *memory = (uint8_t *)c->scratch + down_stack_bytes(c);
    int64_t n_pair = cpu_count(&c->in[2]);
    struct down d = {.r = route(c, memory + down_bytes(c))};
    int32_t n = d.r.start[c->in[1].dim[0]];

    d.x = (const void **)memory;
    d.block = (int32_t *)(d.x + n_pair);
    for (int32_t i = 0; i < n; i++) {
        int32_t first = d.n_block > 0 ? d.block[d.n_block - 1] : 0;

        d.x[i] = x->data + (size_t)d.r.pair[i] * x->row_bytes;
        if (i == 0 || i - first == CPU_PANEL_TOK ||
            expert_of(c, &d, i) != expert_of(c, &d, i - 1) ||
            d.r.token[i] == d.r.token[i - 1])
            d.block[d.n_block++] = i;
    }
    d.block[d.n_block] = n;
    return d;
}

/* Returns how many panels of one expert expert_down reads, if it uses panel
 * calls, before it reads the next expert's. A single panel is too short for
 * hardware prefetching: with 8 experts of 768 values per row, a Zen 4 core
 * reads half as fast. */
static int64_t down_group(const struct weight *w, int64_t n_tok)
{
    int64_t n = n_tok > 0 ? DOWN_ROWS / n_tok : 1;

    n = n / w->panels * w->panels;
    return n > w->panels ? n : w->panels;
}

/* Threads divide the panels of expert_down into parts that are multiples of
 * this number of panels. It is as large as the number of panels permits,
 * because short parts would make short reads. `group` is down_group(). */
static int64_t down_grain(const struct cpu_call *c, const struct weight *w,
                          int64_t group)
{
    int64_t n = min64(group, 8);

    while (n > w->panels && w->n_panel < 4 * n * c->nth)
        n /= 2;
    return n > w->panels ? n : panel_grain(c, w, 1, w->n_panel);
}

/* Computes the addends of ranks rank .. rank + n_rank - 1 of expert_down, for
 * all tokens and panels panel .. panel + n - 1. Adds them to acc
 * [rank][panel][token][PACK_ROWS]. A token's experts are added in ascending
 * order. For each panel, the weights of all ranks are read one after another,
 * as they are in memory. */
static void down_addends(const struct cpu_call *c, const struct weight *w,
                         struct cpu_panel_args *s, const struct down *d,
                         float *acc, int rank, int n_rank, int64_t panel,
                         int64_t n)
{
    int64_t one = c->in[2].dim[0] * PACK_ROWS;

    for (int64_t b = 0; b < d->n_block; b++) {
        int32_t first = d->block[b], end = d->block[b + 1];
        int64_t e = expert_of(c, d, first), next_e = e, next;
        bool last = b + 1 == d->n_block;

        s->n_tok = end - first;
        s->x = d->x + first;
        s->at = d->r.token + first;
        for (int64_t i = 0; i < n; i += s->n_panel) {
            s->n_panel = (int)min64(w->panels, n - i);
            next = panel + i + s->n_panel;
            if (i + s->n_panel == n) {
                next_e = expert_of(c, d, last ? 0 : end);
                next = last ? next : panel;
            }
            panel_set(s, w, e, panel + i, next_e, next);
            for (int j = 0; j < n_rank; j++) {
                s->acc = acc + (j * n + i) * one;
                s->rank = c->tree.item[rank + j].rank;
                w->multiply(s);
            }
        }
    }
}

/* Returns true if some token has chosen expert e twice. Its two products must
 * be added to the same accumulator one after the other, which GEMM cannot
 * do. */
static bool has_twice(const struct down *d, int64_t e)
{
    for (int32_t i = d->r.start[e] + 1; i < d->r.start[e + 1]; i++)
        if (d->r.token[i] == d->r.token[i - 1])
            return true;
    return false;
}

/* Computes the products of all pairs of one expert for n weight blocks (two
 * panels each) from `block`, by panel calls. Adds them to acc [weight
 * block][token][GEMM_WIDTH]. On entry *j is the index of the expert's first
 * block of pairs in d->block; on return, that of the next expert's. */
static void down_jobs(const struct cpu_call *c, const struct weight *w,
                      struct cpu_panel_args *s, const struct down *d,
                      int64_t *j, float *acc, int64_t block, int64_t n)
{
    int32_t e = expert_of(c, d, d->block[*j]);
    int64_t n_tok = c->in[2].dim[0];

    for (; *j < d->n_block && expert_of(c, d, d->block[*j]) == e; ++*j) {
        int32_t first = d->block[*j], at[CPU_PANEL_TOK];

        s->n_tok = d->block[*j + 1] - first;
        s->x = d->x + first;
        s->at = at;
        for (int64_t i = 0; i < n * GEMM_PANELS; i++) {
            int64_t panel = block * GEMM_PANELS + i;

            if (panel >= w->n_panel)
                break;
            s->acc = acc + i / GEMM_PANELS * n_tok * GEMM_WIDTH;
            for (int t = 0; t < s->n_tok; t++)
                at[t] = d->r.token[first + t] * GEMM_PANELS +
                        (int32_t)(i % GEMM_PANELS);
            panel_set(s, w, e, panel, e, panel + 1);
            w->multiply(s);
        }
    }
}

/* Computes the products of all pairs of expert e for n weight blocks (two
 * panels each) from `block`, by GEMM, over the k that `rank` owns. Adds them to
 * acc [weight block][token][GEMM_WIDTH]. */
static void down_gemm(const struct cpu_call *c, const struct weight *w,
                      struct many *m, const struct down *d, int64_t e,
                      int32_t rank, float *acc, int64_t block, int64_t n)
{
    int64_t n_tok = c->in[2].dim[0], end = d->r.start[e + 1];
    int64_t batch = many_rows(w->gemm, c->in[1].pack, n_tok);

    for (int64_t i = d->r.start[e], some; i < end; i += some) {
        some = min64(batch, end - i);
        for (int64_t j = 0; j < some; j++)
            m->g.x[j] = d->x[i + j];
        gemm_arrange(&m->g, some);
        for (int64_t b = 0; b < n; b++) {
            int64_t panel = (block + b) * GEMM_PANELS;

            for (int64_t j = 0; j < some; j++)
                m->g.acc[j] =
                    acc + (b * n_tok + d->r.token[i + j]) * GEMM_WIDTH;
            gemm_add(&m->g, panel_at(w, e, panel),
                     (int)min64(GEMM_PANELS, w->n_panel - panel), rank, some,
                     false);
        }
    }
}

/* Computes expert_down for n weight blocks (two panels each) from `block`, for
 * all tokens and ranks, and writes the results. Experts with few pairs use
 * panel calls, the others GEMM. */
static void down_many(const struct cpu_call *c, const struct weight *w,
                      struct cpu_panel_args *s, struct many *m,
                      const struct down *d, int64_t block, int64_t n)
{
    int64_t n_tok = c->in[2].dim[0];
    struct stack stack = {m->acc, n * n_tok * GEMM_WIDTH, 0, w->add};

    for (int i = 0; i < c->tree.n; i++) {
        float *top = stack_push(&stack);

        s->rank = c->tree.item[i].rank;
        for (int64_t j = 0; j < d->n_block;) {
            int64_t e = expert_of(c, d, d->block[j]);

            if (d->r.start[e + 1] - d->r.start[e] < w->gemm->min_rows ||
                has_twice(d, e)) {
                down_jobs(c, w, s, d, &j, top, block, n);
                continue;
            }
            down_gemm(c, w, m, d, e, s->rank, top, block, n);
            while (j < d->n_block && expert_of(c, d, d->block[j]) == e)
                j++;
        }
        stack_fold(&stack, &c->tree.item[i]);
    }
    for (int e = 0; e < stack.n_entry; e++)
        for (int64_t b = 0; b < n; b++) {
            int64_t row = (block + b) * GEMM_WIDTH;
            const float *sum =
                stack.data + e * stack.n + b * n_tok * GEMM_WIDTH;

            for (int64_t t = 0; t < n_tok; t++)
                memcpy(result_at(c, e) + t * w->n + row, sum + t * GEMM_WIDTH,
                       (size_t)min64(GEMM_WIDTH, w->n - row) * sizeof(float));
        }
}

/* Computes expert_down for panels panel .. panel + n - 1, for all tokens and
 * ranks, by panel calls, and writes the results. */
static void down_panels(const struct cpu_call *c, const struct weight *w,
                        struct cpu_panel_args *s, const struct down *d,
                        int64_t panel, int64_t n)
{
    int64_t n_tok = c->in[2].dim[0];
    struct stack stack = {c->scratch, n * n_tok * PACK_ROWS, 0, w->add};
    int some = down_ranks(c);

    for (int i = 0; i < c->tree.n; i += some) {
        float *acc = stack.data + stack.n_entry * stack.n;

        memset(acc, 0, (size_t)(some * stack.n) * sizeof(float));
        down_addends(c, w, s, d, acc, i, some, panel, n);
        for (int j = 0; j < some; j++) {
            float *entry = stack_take(&stack);

            if (entry != acc + j * stack.n)
                memcpy(entry, acc + j * stack.n,
                       (size_t)stack.n * sizeof(float));
            stack_fold(&stack, &c->tree.item[i + j]);
        }
    }
    for (int e = 0; e < stack.n_entry; e++)
        for (int64_t p = 0; p < n; p++) {
            int64_t row = (panel + p) * PACK_ROWS;
            const float *sum = stack.data + e * stack.n + p * n_tok * PACK_ROWS;

            for (int64_t t = 0; t < n_tok; t++)
                memcpy(result_at(c, e) + t * w->n + row, sum + t * PACK_ROWS,
                       (size_t)min64(PACK_ROWS, w->n - row) * sizeof(float));
        }
}

/* Computes out[t, :] = sum over u of W[id[t, u]] x[t, u, :], as one sum over
 * the chosen experts and k. For each rank an accumulator starts at 0. It adds
 * the token's experts in ascending order, equal ones in order of u, and for
 * each expert the rank's k in ascending order. A choice whose expert id is out
 * of range adds nothing. */
void cpu_expert_down(const struct cpu_call *c, const struct cpu_matmul_isa *isa)
{
    struct cpu_panel_args s;
    struct weight w = weight_of(c, isa, &s);
    struct rows x = rows_of(c, w.q8);
    struct down d = down_plan(c, &x);
    int64_t n_tok = c->in[2].dim[0], group;
    struct cpu_steal deal;
    struct cpu_part part;

    if (w.gemm && n_tok >= w.gemm->min_rows) {
        struct many m;

        many_init(&m, c, w.gemm, n_tok, down_acc_bytes(c),
                  (uint8_t *)c->scratch + down_stack_bytes(c) + down_bytes(c) +
                      routing_bytes(c, cpu_count(&c->in[2])));
        part = cpu_part(n_block(&w), 1, c->ith, c->nth);
        gemm_begin(&m.g);
        for (int64_t b = part.lo, n; b < part.hi; b += n) {
            n = min64(down_blocks(c), part.hi - b);
            down_many(c, &w, &s, &m, &d, b, n);
        }
        gemm_end(&m.g);
        return;
    }
    if (n_tok > 1)
        w.panels = 1;
    group = down_group(&w, n_tok);
    deal = cpu_steal(c, w.n_panel, down_grain(c, &w, group));
    while (cpu_steal_next(&deal, &part))
        for (int64_t g = part.lo; g < part.hi; g += group)
            down_panels(c, &w, &s, &d, g, min64(group, part.hi - g));
}
