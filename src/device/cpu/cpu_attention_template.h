/* Attention over the paged cache. Included by cpu_ops_template.h.
 *
 * Definition, with the order of all operations, for one token at position `pos`
 * and one query head:
 *
 *   The token attends to the *visible* positions u, pos - window < u <= pos.
 *   In bidirectional attention it also attends to later positions up to its
 *   operand `ends`, pos < u < pos + window and u <= ends. Without a window,
 *   these limits of u are left out.
 *   Positions are processed in *blocks* of 64 (a page), in ascending order.
 *   Blocks without a visible position are skipped. Invisible positions may
 *   hold any bits: they are never added or multiplied.
 *   score_j = chain of fmaf over the head's d values, from 0, times attr.scale;
 *   with a soft cap c, c * tanh(score_j / c).
 *   Four blocks form a *span* of 256 positions. Within a span the softmax is
 *   online: m is the maximum so far, l[16] are sums of probabilities, and
 *   acc[e] are weighted sums of values. If a block raises m to m', l and acc
 *   are multiplied by f = exp(m - m'). Then p_j = exp(score_j - m') is added to
 *   l[j mod 16], and acc[e] = fmaf(p_j, V[j][e], acc[e]), j ascending.
 *   Two spans merge: m becomes the larger m; l and acc of each span are
 *   multiplied by exp(m of the span - m) and added, with fmaf for the upper
 *   span. The spans of a token merge along a tree, in which the left part of n
 *   spans is the largest power of two below n.
 *   out = acc / (sum of l along its tree + exp(sink - m)).
 *
 * So a token's bits depend only on its own query and cache, however the work is
 * divided. A *task* is some consecutive tokens of one sequence and the query
 * heads that share one KV head. A *row* is one of its tokens with one of its
 * heads. Each block of K and V is converted to float once for all rows of a
 * task. All scores of a block are computed first, then all probabilities, then
 * all sums, so that first the block's keys and then its values stay in the
 * first-level cache.
 *
 * If there are few pairs of a token and a KV head per thread, threads instead
 * divide the spans of each pair, so that the cache is read only once. The
 * partial results stay in the scratch of the threads, and the thread that
 * finishes a pair last merges them.
 *
 * With attr.bf16, q, k, v and p are rounded to BF16 before they are multiplied.
 * bf16_pair_add() of base/bf16.h then replaces fmaf and adds two products at a
 * time: of values 2i and 2i + 1 of a head for scores, and of positions 2i and
 * 2i + 1 for acc. An invisible position of a pair counts as 0.
 *
 * Latent attention (MLA) is the same, but the first e of a key's d values serve
 * as V. Its cache is laid out like V, with the d values of a position
 * contiguous, whereas K is transposed otherwise. So scores are computed as
 * [position][row] from interleaved queries, and then transposed. Source of the
 * online softmax: arXiv:1805.02867.
 *
 * Latent attention may have chosen positions, k for each token. A token with
 * more than k positions attends to these, in the order of its row, as if they
 * were its positions 0 .. k - 1 and there were no others. They are gathered
 * into a tile before a block is computed. Each token is a task of its own then,
 * because tokens share no tiles.
 *
 * In attention_blocks, k blocks of attr.block positions are chosen for each KV
 * head of a token. The positions of these blocks up to the token's own count as
 * positions 0, 1, .. in the same way. If the blocks are whole pages, tiles are
 * read where they are; else they are gathered.
 *
 * Compressed attention is the same with two caches of keys that are values,
 * too: a token attends to its last `window` positions in the first, ascending,
 * and then to the blocks in the second, ascending or in the order of its row of
 * chosen ones, as if all these were its positions 0, 1, .. They are gathered
 * likewise. */
#ifndef DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H
#define DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H

#include "device/cpu/cpu_cache_template.h"

enum {
    /* Maximum number of rows (pairs of a token and a query head) that a thread
     * computes together. One token may have more, if more of its query heads
     * share a KV head. */
    TILE_ROWS = 96,
    /* A thread that computes at most this number of rows (pairs of a token and
     * a query head) together multiplies the elements of K and V as the cache
     * stores them. With more rows, or if the cache has codes of 4 or 5 bits,
     * each tile is first converted to floats. */
    DIRECT_ROWS = 8,
    /* number of 64-position blocks in a span */
    SPAN_BLOCKS = 256 / PAGE_TOKENS,
};

/* ---- softmax of one query head of one token ------------------------------ */

/* State of the online softmax of one query head of one token, over a span of
 * 256 positions or over several merged spans. The weighted sum of values, float
 * acc[wide], follows the struct in memory. */
struct soft {
    float l[LANES];
    float m;
    float pad[LANES - 1];
};

/* One token and one query head, for which a thread computes attention. A thread
 * computes several such rows together, because they read the same keys and
 * values. */
struct row {
    /* softmax state of the 256-position span that is being computed */
    struct soft *now;
    /* Stack of softmax states of finished spans, some of them merged. It has
     * space for view.depth states. */
    struct soft *done;
    /* The query: d floats. In latent attention all rows share one array
     * [d][rows], in which each row is a column. With attr.bf16,
     * queries_convert() turns the floats into BF16 pairs. */
    const float *q;
    float *out; /* result of the row, e floats, in the output tensor */
    /* first and last cache position that the token may attend to */
    int64_t first, last;
    int32_t head;
    /* Number of the token's 256-position spans before the one being computed.
     * Spans that other threads compute are included. */
    int32_t n_span;
    /* number of the token's spans that come before this thread's first one */
    int32_t n_begin;
    int32_t n_done; /* number of softmax states on the stack `done` */
    /* Positions lo .. hi - 1 of the current 64-position block are visible to
     * the token. */
    int32_t lo, hi;
    bool open;
};

static inline int64_t up_to_lanes(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* Arguments of one call of an attention kernel, and the arrays in the scratch
 * of the thread that executes it. */
struct view {
    const struct cpu_call *c;
    bool latent;
    bool by_pairs;
    /* d: values per key; e: values per value vector; wide: e rounded up to a
     * multiple of 16 */
    int64_t d, e, wide;
    /* values per key, d, rounded up to a multiple of 16 */
    int64_t wide_d;
    /* size in bytes of a struct soft and the acc[wide] after it */
    size_t soft_bytes;
    /* number of softmax states for which each row's stack has space */
    int depth;
    /* true if threads may divide one token's 256-position spans among them */
    bool by_span;
    /* K and V of the current 64-position block, converted to floats or to BF16
     * pairs */
    float *keys, *values;
    /* For caches with quantization blocks: the scales, followed by the minima,
     * of the current 64-position block of K and of V, as floats. */
    float *key_scale, *value_scale;
    /* [max_rows][64]: for each row (token and query head), the scores of the
     * current 64 positions, which then become probabilities */
    float *p;
    /* Used only in latent attention: [64][rows] scores as computed, with a
     * position's scores of all rows adjacent. They are then transposed into
     * p. */
    float *turned;
    /* Used only in latent attention with BF16 products: [64][wide_d / 2] pairs
     * of adjacent values of each position's latent, for the scores. */
    uint32_t *latents;
    /* tiles of K and V with the chosen positions of a block, in the caches'
     * formats; used only if positions are chosen */
    char *gathered, *gathered_values;
    struct row *row;
    /* First the current softmax state of each of max_rows rows, then the rows'
     * stacks of finished states. */
    struct soft *soft;
    int32_t *head;
    int64_t max_rows;
};

static inline float *soft_acc(struct soft *s)
{
    return (float *)(s + 1);
}

/* Multiplies x[0 .. n - 1] by f; n is a multiple of 16. */
static inline void times(float *x, int64_t n, lanes f)
{
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store(x + i, lanes_mul(lanes_load(x + i), f));
}

/* Merges two softmax states of one row (token and query head): adds b, of some
 * spans of positions, to a, of the spans just before them. */
static inline void soft_merge(struct soft *a, struct soft *b, int64_t wide)
{
    float m = a->m > b->m ? a->m : b->m;
    lanes fa = lanes_exp(lanes_set(a->m - m));
    lanes fb = lanes_exp(lanes_set(b->m - m));
    float *x = soft_acc(a);
    const float *y = soft_acc(b);

    a->m = m;
    lanes_store(
        a->l, lanes_fma(lanes_load(b->l), fb, lanes_mul(lanes_load(a->l), fa)));
    for (int64_t i = 0; i < wide; i += LANES)
        lanes_store(x + i, lanes_fma(lanes_load(y + i), fb,
                                     lanes_mul(lanes_load(x + i), fa)));
}

static inline struct soft *soft_at(const struct view *v, struct soft *base,
                                   int64_t i)
{
    return (struct soft *)((char *)base + (size_t)i * v->soft_bytes);
}

/* Ends the current 256-position span of row r, if one is open: pushes its
 * softmax state onto the row's stack. Then merges the two topmost states of the
 * stack as long as both cover equally many spans, like carries of a binary
 * counter. */
static inline void span_close(const struct view *v, struct row *r)
{
    struct soft *s = r->now;

    if (!r->open)
        return;
    r->open = false;
    r->n_span++;
    for (int32_t n = 1; r->n_span / n % 2 == 0; n *= 2) {
        if (r->n_span - 2 * n < r->n_begin)
            break;
        r->n_done--;
        soft_merge(soft_at(v, r->done, r->n_done), s, v->wide);
        s = soft_at(v, r->done, r->n_done);
    }
    if (s == r->now)
        memcpy(soft_at(v, r->done, r->n_done), s, v->soft_bytes);
    r->n_done++;
}

static inline bool sees(const struct row *r)
{
    return r->lo < r->hi;
}

/* Limits i, an index of a vector lane, to 0 .. 16. */
static inline int clamp_lane(int i)
{
    return i < 0 ? 0 : i > LANES ? LANES : i;
}

/* Turns s[64], the dot products of row r's query with the keys of a 64-position
 * block, into scores. Multiplies them by attr.scale, applies the soft cap, and
 * sets positions invisible to the row's token to -infinity. Returns the largest
 * score. */
static inline float soft_top(const struct view *v, const struct row *r,
                             float *s)
{
    lanes scale = lanes_set(v->c->attr->scale);
    lanes cap = lanes_set(v->c->attr->softcap);
    lanes top = lanes_set(-INFINITY);
    bool all = r->lo == 0 && r->hi == PAGE_TOKENS;

#pragma GCC unroll 4
    for (int i = 0; i < PAGE_TOKENS; i += LANES)
        lanes_store(s + i, lanes_mul(lanes_load(s + i), scale));
    for (int i = 0; v->c->attr->softcap != 0 && i < PAGE_TOKENS; i += LANES) {
        lanes x = lanes_div(lanes_load(s + i), cap);

        lanes_store(s + i, lanes_mul(lanes_tanh(x), cap));
    }
    for (int i = 0; !all && i < PAGE_TOKENS; i += LANES)
        lanes_store(s + i, lanes_range(lanes_load(s + i), clamp_lane(r->lo - i),
                                       clamp_lane(r->hi - i), -INFINITY));
#pragma GCC unroll 4
    for (int i = 0; i < PAGE_TOKENS; i += LANES)
        top = lanes_max(lanes_load(s + i), top);
    return lanes_top(top);
}

/* Updates the softmax of n <= 16 rows (pairs of a token and a query head) by
 * one block of 64 positions. p[n][64] holds the dot products of the rows'
 * queries with the block's keys and becomes their probabilities, 0 at invisible
 * positions. The probabilities are added to the sums l in each row's state; if
 * the block raises the row's maximum, l and acc are scaled down first. The rows
 * are independent, so that the processor can overlap them. */
static inline void soft_rows(const struct view *v, struct row *row, int64_t n,
                             float *p)
{
    float f[LANES] = {0};

    for (int64_t k = 0; k < n; k++) {
        struct soft *o = row[k].now;
        float m;

        if (!sees(&row[k]))
            continue;
        m = soft_top(v, &row[k], p + k * PAGE_TOKENS);
        if (!row[k].open) {
            row[k].open = true;
            o->m = m;
            lanes_store(o->l, lanes_set(0));
            for (int64_t i = 0; i < v->wide; i += LANES)
                lanes_store(soft_acc(o) + i, lanes_set(0));
        }
        if (m > o->m) {
            f[k] = o->m - m;
            o->m = m;
        }
    }
    lanes_store(f, lanes_exp(lanes_load(f)));
    for (int64_t k = 0; k < n; k++) {
        float *s = p + k * PAGE_TOKENS;
        struct soft *o = row[k].now;
        lanes m, l;

        if (!sees(&row[k]))
            continue;
        m = lanes_set(o->m);
        l = lanes_load(o->l);
        if (f[k] < 1) {
            l = lanes_mul(l, lanes_set(f[k]));
            times(soft_acc(o), v->wide, lanes_set(f[k]));
        }
#pragma GCC unroll 4
        for (int i = 0; i < PAGE_TOKENS; i += LANES) {
            lanes x = lanes_exp(lanes_sub(lanes_load(s + i), m));

            l = lanes_add(l, x);
            lanes_store(s + i, x);
        }
        lanes_store(o->l, l);
    }
}

/* Returns true if operand 3 is that of bidirectional attention, `ends`. Else it
 * is `sinks`, or in attention_blocks `chosen`. */
static inline bool has_ends(const struct cpu_call *c)
{
    return c->in[3].format == PL_I32 && c->attr->block == 0;
}

/* Writes the attention result of a token and its query head `head` to `out`:
 * the weighted sum of values, divided by the sum of probabilities. The head's
 * sink is added to the divisor. `o` is the softmax state after all visible
 * positions. */
static inline void row_write(const struct view *v, int32_t head, struct soft *o,
                             float *out)
{
    const struct cpu_tensor *sink = &v->c->in[3];
    float f[LANES] = {0};
    float sum = lanes_sum(lanes_load(o->l));
    int64_t i = 0;

    if (sink->data != NULL && sink->format != PL_I32) {
        f[0] = *floats(sink, head, 1, f) - o->m;
        lanes_store(f, lanes_exp(lanes_load(f)));
        sum = sum + f[0];
    }
    for (; i < v->e; i += LANES) {
        int64_t n = v->e - i < LANES ? v->e - i : LANES;

        lanes_store_n(
            out + i, lanes_div(lanes_load(soft_acc(o) + i), lanes_set(sum)), n);
    }
}

/* Merges the softmax states on row r's stack, from the top down, and writes the
 * result of the row (a token and a query head). */
static inline void row_finish(const struct view *v, struct row *r)
{
    struct soft *o = r->open ? r->now : soft_at(v, r->done, --r->n_done);

    while (r->n_done > 0) {
        struct soft *lower = soft_at(v, r->done, --r->n_done);

        soft_merge(lower, o, v->wide);
        o = lower;
    }
    row_write(v, r->head, o, r->out);
}

/* ---- attention of one task: some tokens, one KV head --------------------- */

/* Finds up to CHAIN_ROWS consecutive rows (pairs of a token and a query head),
 * from row *i on, that each see a position of the current 64-position block.
 * Sets *i to the first of them. Returns their number, or 0 if no rows are
 * left. */
static inline int next_group(const struct view *v, int64_t n_row, int64_t *i)
{
    int n = 0;

    while (*i < n_row && !sees(&v->row[*i]))
        (*i)++;
    while (*i + n < n_row && n < CHAIN_ROWS && sees(&v->row[*i + n]))
        n++;
    return n;
}

/* Computes the dot products of the queries of rows first .. first + n - 1 with
 * the keys of a 64-position block, and writes them to v->p. Positions are
 * computed in vectors of 16; vectors that none of the rows sees are skipped. */
static inline void add_scores(const struct view *v, int64_t first, int n,
                              const struct operand *keys)
{
    const struct row *row = v->row + first;
    int lo = PAGE_TOKENS;
    int hi = 0;

    for (int i = 0; i < n; i++) {
        lo = row[i].lo < lo ? row[i].lo : lo;
        hi = row[i].hi > hi ? row[i].hi : hi;
    }
    chain_rows(n, &(struct product){.a = row->q,
                                    .lda = v->d,
                                    .by_pairs = v->by_pairs,
                                    .b = keys,
                                    .hi = v->d,
                                    .c = v->p + first * PAGE_TOKENS,
                                    .ldc = PAGE_TOKENS,
                                    .first = lo / LANES * LANES,
                                    .end = (hi + LANES - 1) / LANES * LANES,
                                    .from_zero = true});
}

/* For latent attention: computes the dot products of the queries of all rows
 * (pairs of a token and a query head) with the latents of positions lo .. hi -
 * 1 of a 64-position block, and writes them to v->p. */
static inline void add_latent_scores(const struct view *v, int64_t n_row,
                                     int lo, int hi,
                                     const struct operand *latents)
{
    int64_t rows = up_to_lanes(n_row);
    struct operand q = {.kind = v->by_pairs ? KIND_PAIRS : KIND_F32,
                        .x = v->row[0].q,
                        .ld = rows};
    struct product all = {.a = (const float *)latents->x + lo * latents->ld,
                          .lda = latents->ld,
                          .by_pairs = v->by_pairs,
                          .b = &q,
                          .hi = v->d,
                          .c = v->turned + lo * rows,
                          .ldc = rows,
                          .end = rows,
                          .from_zero = true};

    if (v->by_pairs) {
        all.lda = v->wide_d / 2;
        all.a = (const float *)(v->latents + lo * all.lda);
    }
    chain_rows(hi - lo, &all);
    for (int64_t i = 0; i < n_row; i++) {
        for (int u = lo; u < hi; u++)
            v->p[i * PAGE_TOKENS + u] = v->turned[u * rows + i];
    }
}

/* Adds the values V of a 64-position block, weighted with the probabilities in
 * v->p, to the sums acc of rows first .. first + n - 1 (pairs of a token and a
 * query head). Positions visible to all n rows are computed for all of them
 * together. Earlier positions, which only some rows see because of a window,
 * and later ones, because of causality, are computed row by row. */
static inline void add_values(const struct view *v, int64_t first, int n,
                              const struct operand *values)
{
    const struct row *row = v->row + first;
    struct product all = {.a = v->p + first * PAGE_TOKENS,
                          .lda = PAGE_TOKENS,
                          .by_pairs = v->by_pairs,
                          .b = values,
                          .lo = 0,
                          .hi = PAGE_TOKENS,
                          .c = soft_acc(row->now),
                          .ldc = (int64_t)(v->soft_bytes / sizeof(float)),
                          .end = v->wide};
    struct product one = all;

    for (int i = 0; i < n; i++) {
        all.lo = row[i].lo > all.lo ? row[i].lo : all.lo;
        all.hi = row[i].hi < all.hi ? row[i].hi : all.hi;
    }
    /* BF16 products take positions in pairs, so the range of positions that is
     * common to all rows begins and ends at a whole pair. */
    if (v->by_pairs) {
        all.lo += all.lo & 1;
        all.hi -= all.hi & 1;
    }
    if (all.lo >= all.hi) /* no position is visible to all n rows */
        all.lo = all.hi = PAGE_TOKENS;
    for (int i = 0; i < n; i++, one.a += one.lda, one.c += one.ldc) {
        one.lo = row[i].lo;
        one.hi = row[i].hi < all.lo ? row[i].hi : all.lo;
        chain_rows(1, &one);
    }
    chain_rows(n, &all);
    for (int i = n - 1; i >= 0; i--) {
        one.a -= one.lda;
        one.c -= one.ldc;
        one.lo = all.hi;
        one.hi = row[i].hi;
        chain_rows(1, &one);
    }
}

/* Converts rows lo .. hi - 1 of a cache tile, *o, to floats in `buf`, or to
 * BF16 pairs if the products are BF16. */
static inline void tile_convert(const struct view *v, struct operand *o, int lo,
                                int hi, int64_t wide, float *buf)
{
    if (v->by_pairs)
        operand_to_pairs(o, lo, hi, wide, buf);
    else
        operand_convert(o, lo, hi, wide, buf);
}

/* Converts the latents of positions lo .. hi - 1 of a cache tile to floats,
 * which *o then refers to. With attr.bf16 it also makes BF16 pairs in two
 * forms. v->latents gets pairs of adjacent values of one position, for the
 * scores. *o gets pairs of the same value of two adjacent positions, for the
 * weighted sums. */
static inline void latents_convert(const struct view *v, struct operand *o,
                                   int lo, int hi)
{
    int64_t wide = v->wide_d;

    operand_convert(o, lo, hi, wide, v->keys);
    if (!v->by_pairs)
        return;
    for (int u = lo; u < hi; u++)
        pairs_of_row(v->latents + u * wide / 2, (const float *)o->x + u * wide,
                     wide);
    pairs_of_rows((uint32_t *)v->keys, o->x, lo, hi, wide);
    *o = (struct operand){.kind = KIND_PAIRS, .x = v->keys, .ld = wide};
}

/* Computes attention over one block of 64 positions for n_row rows (pairs of a
 * token and a query head). key_tile[0] and value_tile[0] are the block's tiles
 * of K and V in the cache. key_tile[1] and value_tile[1] are the next block's,
 * which are prefetched. */
static inline void block_run(const struct view *v, int64_t n_row, int64_t block,
                             const char *const key_tile[2],
                             const char *const value_tile[2])
{
    const struct cpu_call *c = v->c;
    struct operand keys, values;
    int lo = PAGE_TOKENS;
    int hi = 0;
    int n;

    for (int64_t i = 0; i < n_row; i++) {
        struct row *r = &v->row[i];
        int64_t first = r->first - block * PAGE_TOKENS;
        int64_t end = r->last + 1 - block * PAGE_TOKENS;

        r->lo = first < 0             ? 0
                : first > PAGE_TOKENS ? PAGE_TOKENS
                                      : (int32_t)first;
        r->hi = end < 0 ? 0 : end > PAGE_TOKENS ? PAGE_TOKENS : (int32_t)end;
        if (r->lo >= r->hi)
            continue;
        lo = r->lo < lo ? r->lo : lo;
        hi = r->hi > hi ? r->hi : hi;
    }
    if (lo >= hi)
        return;
    if (v->latent) {
        values = operand_open(c->in[1].format, true, key_tile[0], key_tile[1],
                              PAGE_TOKENS, v->d, v->key_scale);
        latents_convert(v, &values, lo, hi);
        add_latent_scores(v, n_row, lo, hi, &values);
    } else {
        keys = operand_open(c->in[1].format, false, key_tile[0], key_tile[1],
                            v->d, PAGE_TOKENS, v->key_scale);
        values = operand_open(c->in[2].format, true, value_tile[0],
                              value_tile[1], PAGE_TOKENS, v->e, v->value_scale);
        if (n_row > DIRECT_ROWS || is_codes(&keys))
            tile_convert(v, &keys, 0, (int)v->d, PAGE_TOKENS, v->keys);
        for (int64_t i = 0; (n = next_group(v, n_row, &i)) > 0; i += n)
            add_scores(v, i, n, &keys);
    }
    for (int64_t i = 0; i < n_row; i += LANES)
        soft_rows(v, v->row + i, n_row - i < LANES ? n_row - i : LANES,
                  v->p + i * PAGE_TOKENS);
    for (int64_t i = 0; v->by_pairs && i < n_row; i++) {
        if (sees(&v->row[i]))
            pairs_of_row((uint32_t *)v->p + i * PAGE_TOKENS,
                         v->p + i * PAGE_TOKENS, PAGE_TOKENS);
    }
    if (!v->latent &&
        (n_row > DIRECT_ROWS || v->wide != v->e || is_codes(&values)))
        tile_convert(v, &values, lo, hi, v->wide, v->values);
    for (int64_t i = 0; (n = next_group(v, n_row, &i)) > 0; i += n)
        add_values(v, i, n, &values);
}

/* Operand of compressed attention with the cache of blocks, in the order of
 * latent attention. */
enum { BLOCKS = 4 };

/* Returns true for compressed attention, with operands in the order of latent
 * attention. */
static inline bool compresses(const struct cpu_call *c)
{
    return c->attr->ratio > 0;
}

/* Returns the operand `chosen` of attention_blocks, of latent or of compressed
 * attention, or NULL if there is none. */
static inline const struct cpu_tensor *chosen_of(const struct cpu_call *c)
{
    return c->attr->block > 0          ? &c->in[3]
           : c->in[2].format == PL_I32 ? &c->in[2]
                                       : NULL;
}

/* Returns true if token t attends to gathered positions only. */
static inline bool has_chosen(const struct cpu_call *c, int64_t t)
{
    const struct cpu_tensor *x = chosen_of(c);
    int64_t block = c->attr->block > 0 ? c->attr->block : 1;

    return compresses(c) ||
           (x && c->table->pos[t] / block >= x->dim[x->n_dim - 1]);
}

/* Return the number of positions in the window of token t, and the number of
 * blocks that it attends to, in compressed attention. */
static inline int64_t window_seen(const struct cpu_call *c, int64_t t)
{
    int64_t n = (int64_t)c->table->pos[t] + 1;

    return n < c->attr->window ? n : c->attr->window;
}

static inline int64_t blocks_seen(const struct cpu_call *c, int64_t t)
{
    const struct cpu_tensor *x = chosen_of(c);
    int64_t n = ((int64_t)c->table->pos[t] + 1) / c->attr->ratio;

    return x && n > x->dim[1] ? x->dim[1] : n;
}

/* Returns entry i of the chosen positions or blocks of token t and a KV head,
 * limited to those that the token has. */
static inline int64_t chosen_entry(const struct cpu_call *c, int64_t t,
                                   int64_t kv_head, int64_t i)
{
    const struct cpu_tensor *x = chosen_of(c);
    int64_t k = x->dim[x->n_dim - 1], block = c->attr->block;
    int64_t row = block > 0 ? t * c->in[1].dim[1] + kv_head : t;
    int64_t own = block > 0 ? c->table->pos[t] / block
                  : !compresses(c)
                      ? c->table->pos[t]
                      : (c->table->pos[t] + 1) / c->attr->ratio - 1;
    int64_t u = ((const int32_t *)x->data)[row * k + i];

    return u < 0 ? 0 : u < own ? u : own;
}

/* Returns the number of gathered positions of a token that has some. */
static inline int64_t n_chosen(const struct cpu_call *c, int64_t t,
                               int64_t kv_head)
{
    const struct cpu_tensor *x = chosen_of(c);
    int64_t block = c->attr->block, pos = c->table->pos[t], k;

    if (compresses(c))
        return window_seen(c, t) + blocks_seen(c, t);
    k = x->dim[x->n_dim - 1];
    if (block == 0)
        return k;
    /* only the last one may be the token's own block */
    return chosen_entry(c, t, kv_head, k - 1) == pos / block
               ? (k - 1) * block + pos % block + 1
               : k * block;
}

/* Returns gathered position i of token t in compressed attention, and sets
 * *cache to its cache. */
static inline int64_t compressed_position(const struct cpu_call *c, int64_t t,
                                          int64_t i,
                                          const struct cpu_tensor **cache)
{
    int64_t n = window_seen(c, t), pos = c->table->pos[t], u = i - n;

    *cache = &c->in[i < n ? 1 : BLOCKS];
    if (i < n)
        return pos - n + 1 + i;
    if (chosen_of(c) && (pos + 1) / c->attr->ratio > chosen_of(c)->dim[1])
        u = chosen_entry(c, t, 0, u);
    return (u + 1) * c->attr->ratio - 1;
}

/* Returns chosen position i of token t and a KV head. Sets *n to how many
 * chosen positions from it on are adjacent in the cache and in one page. */
static inline int64_t chosen_position(const struct cpu_call *c, int64_t t,
                                      int64_t kv_head, int64_t i, int64_t *n)
{
    int64_t block = c->attr->block > 0 ? c->attr->block : 1;
    int64_t u = chosen_entry(c, t, kv_head, i / block) * block + i % block;
    int64_t pos = c->table->pos[t], in_page;

    u = u < pos ? u : pos;
    *n = block - i % block;
    in_page = PAGE_TOKENS - u % PAGE_TOKENS;
    *n = *n < in_page ? *n : in_page;
    *n = *n < pos - u + 1 ? *n : pos - u + 1;
    return u;
}

/* Returns the first cache position that token t attends to, given the
 * window. */
static inline int64_t first_seen(const struct cpu_call *c, int64_t t)
{
    int64_t window = c->attr->window, pos = c->table->pos[t];

    if (compresses(c))
        return 0;
    return window > 0 && pos >= window ? pos - window + 1 : 0;
}

/* Returns the last cache position to which token t attends with the query heads
 * of a KV head, given the window: its own, or in bidirectional attention its
 * end. Chosen positions count as positions 0, 1, .. */
static inline int64_t last_seen(const struct cpu_call *c, int64_t t,
                                int64_t kv_head)
{
    int64_t window = c->attr->window, pos = c->table->pos[t], end = pos;

    if (has_chosen(c, t))
        return n_chosen(c, t, kv_head) - 1;
    if (has_ends(c))
        end = ((const int32_t *)c->in[3].data)[t];
    if (window > 0 && end - pos >= window)
        end = pos + window - 1;
    return end < pos ? pos : end;
}

/* Initializes v->row[i] for token t and query head `head`. Copies the token's
 * query to row i of q, or, in latent attention, to column i of q [d][rows]. */
static inline void row_open(struct view *v, int64_t i, int64_t t, int32_t head,
                            float *q, int64_t rows)
{
    const struct cpu_call *c = v->c;
    int64_t at = t * c->out.dim[1] + head;
    const float *x = (const float *)c->in[0].data + at * v->d;
    struct row *r = &v->row[i];

    r->now = soft_at(v, v->soft, i);
    r->done = soft_at(v, v->soft, v->max_rows + i * v->depth);
    r->q = v->latent ? q : q + i * v->d;
    r->out = (float *)c->out.data + at * v->e;
    r->first = first_seen(c, t);
    r->last = last_seen(c, t, c->head_map[head]);
    r->head = head;
    r->n_span = r->n_begin = r->n_done = 0;
    r->open = false;
    if (!v->latent)
        memcpy(q + i * v->d, x, (size_t)v->d * sizeof(float));
    for (int64_t k = 0; v->latent && k < v->d; k++)
        q[k * rows + i] = x[k];
}

/* With attr.bf16, converts the queries of all n_row rows (pairs of a token and
 * a query head) from floats to BF16 pairs in place. */
static inline void queries_convert(const struct view *v, int64_t n_row,
                                   float *q)
{
    if (v->by_pairs && v->latent)
        pairs_of_rows((uint32_t *)q, q, 0, v->d, up_to_lanes(n_row));
    for (int64_t i = 0; v->by_pairs && !v->latent && i < n_row; i++)
        pairs_of_row((uint32_t *)q + i * v->d, q + i * v->d, v->d);
}

/* Gathers the chosen positions of token t's block into a tile of K and one of
 * V. */
static inline void gather(const struct view *v, int64_t t, int64_t kv_head,
                          int64_t block)
{
    const struct cpu_call *c = v->c;
    const struct token_table *b = c->table;
    const int32_t *pages = b->pages + b->seq[t] * b->page_stride;
    int64_t from = block * PAGE_TOKENS, end = n_chosen(c, t, kv_head), n = 1;

    end = end < from + PAGE_TOKENS ? end : from + PAGE_TOKENS;
    for (int64_t i = from; i < end; i += n) {
        const struct cpu_tensor *keys = &c->in[1];
        int64_t u = compresses(c) ? compressed_position(c, t, i, &keys)
                                  : chosen_position(c, t, kv_head, i, &n);
        int64_t tile = pages[u / PAGE_TOKENS] * keys->dim[1] + kv_head;

        n = n < end - i ? n : end - i;
        cache_tile_copy(keys->format, v->d, v->latent, v->gathered,
                        (int)(i - from),
                        (const char *)keys->data +
                            (size_t)tile * cache_tile_bytes(keys->format, v->d),
                        (int)(u % PAGE_TOKENS), (int)n);
        if (!v->latent)
            cache_tile_copy(c->in[2].format, v->e, true, v->gathered_values,
                            (int)(i - from),
                            (const char *)c->in[2].data +
                                (size_t)tile *
                                    cache_tile_bytes(c->in[2].format, v->e),
                            (int)(u % PAGE_TOKENS), (int)n);
    }
}

/* Returns true if chosen blocks are whole pages, whose tiles are read where
 * they are. */
static inline bool chosen_pages(const struct cpu_call *c)
{
    return c->attr->block > 0 && c->attr->block % PAGE_TOKENS == 0;
}

/* Returns the page of the 64-position block `block` of token t's sequence, or
 * of its chosen positions if they are whole pages. */
static inline int64_t page_of(const struct cpu_call *c, int64_t t,
                              int64_t kv_head, int64_t block)
{
    const struct token_table *b = c->table;
    const int32_t *pages = b->pages + b->seq[t] * b->page_stride;
    int64_t n;

    if (chosen_pages(c) && has_chosen(c, t))
        block = chosen_position(c, t, kv_head, block * PAGE_TOKENS, &n) /
                PAGE_TOKENS;
    return pages[block];
}

/* Computes attention over the 64-position blocks `block` .. end - 1 of the
 * sequence or the chosen positions of token t, for n_row rows (pairs of a token
 * and a query head). */
static inline void blocks_run(struct view *v, int64_t t, int64_t kv_head,
                              int64_t n_row, int64_t block, int64_t end)
{
    const struct cpu_call *c = v->c;
    int64_t n_kv = c->in[1].dim[1];
    size_t key_bytes = cache_tile_bytes(c->in[1].format, v->d);
    size_t value_bytes =
        v->latent ? 0 : cache_tile_bytes(c->in[2].format, v->e);

    for (; block < end; block++) {
        const char *key_tile[2] = {0}, *value_tile[2] = {0};

        if (block % SPAN_BLOCKS == 0) {
            for (int64_t i = 0; i < n_row; i++)
                span_close(v, &v->row[i]);
        }
        /* Index 0 is the current page, 1 the next one, which is prefetched.
         * After the last page there is none, so that page is prefetched
         * again. */
        for (int i = 0; i < 2; i++) {
            int64_t page;

            if (compresses(c)) /* its tiles are gathered */
                break;
            page = page_of(c, t, kv_head, block + (block + 1 < end ? i : 0));
            key_tile[i] = (const char *)c->in[1].data +
                          (size_t)(page * n_kv + kv_head) * key_bytes;
            value_tile[i] =
                v->latent ? NULL
                          : (const char *)c->in[2].data +
                                (size_t)(page * n_kv + kv_head) * value_bytes;
        }
        if (has_chosen(c, t) && !chosen_pages(c)) {
            gather(v, t, kv_head, block);
            key_tile[0] = key_tile[1] = v->gathered;
            value_tile[0] = value_tile[1] = v->gathered_values;
        }
        block_run(v, n_row, block, key_tile, value_tile);
    }
}

/* Computes attention for tokens t0 .. t1 - 1 of one sequence, with the n_head
 * query heads head[] that read KV head kv_head, and writes the results. */
static inline void task_run(struct view *v, int64_t t0, int64_t t1,
                            int64_t kv_head, const int32_t *head,
                            int64_t n_head, float *q)
{
    int64_t rows = up_to_lanes((t1 - t0) * n_head);
    int64_t first = INT64_MAX, last = -1;
    int64_t n_row = 0;

    for (int64_t t = t0; t < t1; t++) {
        for (int64_t i = 0; i < n_head; i++, n_row++) {
            row_open(v, n_row, t, head[i], q, rows);
            first = v->row[n_row].first < first ? v->row[n_row].first : first;
            last = v->row[n_row].last > last ? v->row[n_row].last : last;
        }
    }
    queries_convert(v, n_row, q);
    blocks_run(v, t0, kv_head, n_row, first / PAGE_TOKENS,
               last / PAGE_TOKENS + 1);
    for (int64_t i = 0; i < n_row; i++)
        row_finish(v, &v->row[i]);
}

/* ---- layout of a thread's scratch ---------------------------------------- */

/* Initializes *v for the call and lays out its arrays in c->scratch. Sets *q to
 * the array for queries. Returns the size in bytes of the scratch that the
 * kernel needs. If c->scratch is NULL, only this size is meaningful. */
static inline size_t view_init(struct view *v, const struct cpu_call *c,
                               bool latent, float **q)
{
    char *base = c->scratch;
    int64_t n_head = c->out.dim[1], n_soft;
    const bool gathers = compresses(c) || (chosen_of(c) && !chosen_pages(c));
    size_t at = 0;
    enum { N_PART = 13 };
    size_t part[N_PART];
    char *p[N_PART];

    *v = (struct view){.c = c,
                       .latent = latent,
                       .by_pairs = is_by_pairs(c->attr),
                       .d = c->in[1].dim[2],
                       .e = c->out.dim[2]};
    v->wide = up_to_lanes(v->e);
    v->wide_d = up_to_lanes(v->d);
    v->soft_bytes = sizeof(struct soft) + (size_t)v->wide * sizeof(float);
    v->max_rows = n_head > TILE_ROWS ? n_head : TILE_ROWS;
    /* A token sees at most n_slot positions, which lie in at most n_slot / 256
     * + 2 spans. A row's stack of softmax states has one entry for each bit of
     * that number, and one for the state that is being pushed. With blocks it
     * may see twice as many. */
    v->depth = compresses(c) ? 3 : 2;
    for (int64_t n = c->in[1].dim[0] / (SPAN_BLOCKS * PAGE_TOKENS) + 2; n > 0;
         n /= 2)
        v->depth++;
    v->by_span = c->nth > 1 && c->in[1].dim[1] < 2 * c->nth;
    n_soft = v->max_rows * v->depth;
    if (v->by_span && n_soft < 3 * n_head * v->depth)
        n_soft = 3 * n_head * v->depth;
    part[0] = (size_t)(v->wide_d * PAGE_TOKENS) * sizeof(float);
    part[1] = latent ? 0 : (size_t)(v->wide * PAGE_TOKENS) * sizeof(float);
    part[2] = (size_t)(v->max_rows * PAGE_TOKENS) * sizeof(float);
    part[3] = (size_t)(up_to_lanes(v->max_rows) * v->d) * sizeof(float);
    part[4] = (size_t)v->max_rows * sizeof(struct row);
    part[5] = (size_t)(v->max_rows + n_soft) * v->soft_bytes;
    part[6] = (size_t)n_head * sizeof(int32_t);
    part[7] = (size_t)(v->d * PAGE_TOKENS / Q8_SIZE) * 2 * sizeof(float);
    part[8] = (size_t)(v->e * PAGE_TOKENS / Q8_SIZE) * 2 * sizeof(float);
    part[9] = (size_t)(latent ? up_to_lanes(v->max_rows) * PAGE_TOKENS : 0) *
              sizeof(float);
    part[10] = latent && v->by_pairs
                   ? (size_t)(v->wide_d / 2 * PAGE_TOKENS) * sizeof(uint32_t)
                   : 0;
    part[11] = gathers ? cache_tile_bytes(c->in[1].format, v->d) : 0;
    part[12] = gathers && !latent ? cache_tile_bytes(c->in[2].format, v->e) : 0;
    for (int i = 0; i < N_PART; i++) {
        p[i] = base != NULL ? base + at : NULL;
        at += (part[i] + 63) / 64 * 64;
    }
    v->keys = (float *)p[0];
    v->values = (float *)p[1];
    v->p = (float *)p[2];
    *q = (float *)p[3];
    v->row = (struct row *)p[4];
    v->soft = (struct soft *)p[5];
    v->head = (int32_t *)p[6];
    v->key_scale = (float *)p[7];
    v->value_scale = (float *)p[8];
    v->turned = (float *)p[9];
    v->latents = (uint32_t *)p[10];
    v->gathered = p[11];
    v->gathered_values = p[12];
    return at;
}

static inline size_t scratch_of(const struct cpu_call *c, bool latent)
{
    struct cpu_call call = *c;
    struct view v;
    float *q;

    call.scratch = NULL;
    return view_init(&v, &call, latent, &q);
}

static inline size_t attention_scratch(const struct cpu_call *c)
{
    return scratch_of(c, false);
}

static inline size_t bidirectional_attention_scratch(const struct cpu_call *c)
{
    return scratch_of(c, false);
}

static inline size_t attention_blocks_scratch(const struct cpu_call *c)
{
    return scratch_of(c, false);
}

static inline size_t latent_attention_scratch(const struct cpu_call *c)
{
    return scratch_of(c, true);
}

/* Returns a call of compressed attention with the operands in the order of
 * latent attention: keys, chosen blocks, sinks, then the cache of blocks. */
static inline struct cpu_call compressed_call(const struct cpu_call *c)
{
    struct cpu_call own = *c;

    own.in[2] = c->in[4];
    own.in[BLOCKS] = c->in[2];
    return own;
}

static inline size_t compressed_attention_scratch(const struct cpu_call *c)
{
    struct cpu_call own = compressed_call(c);

    return scratch_of(&own, true);
}

/* ---- division of a token's spans among threads --------------------------- */

/* A pair of a token and a KV head, for threads that divide the 256-position
 * spans. The spans of all such groups are numbered consecutively from 0, and
 * each thread computes a range of these numbers. */
struct group {
    int64_t t, kv_head;
    /* number of the group, counted by token, then by KV head */
    int64_t index;
    /* at: number of the group's first span, counted over all groups; n_span:
     * how many 256-position spans the group has */
    int64_t at, n_span;
    /* index of the first 256-position span that the token sees, counted from
     * the start of its sequence */
    int64_t first_span;
    int64_t line;
};

static inline int64_t span_of(int64_t pos)
{
    return pos / (SPAN_BLOCKS * PAGE_TOKENS);
}

static inline int64_t spans_seen(const struct cpu_call *c, int64_t t,
                                 int64_t kv_head)
{
    return span_of(last_seen(c, t, kv_head)) - span_of(first_seen(c, t)) + 1;
}

/* Returns the range lo .. hi - 1 of a group's 256-position spans that thread
 * `thread` computes; 0 is the group's first span. If lo >= hi, the thread
 * computes none. (A group is a token with a KV head.) */
static inline struct cpu_part group_part(const struct view *v,
                                         const struct group *g, int thread)
{
    int nth = v->c->nth;
    struct cpu_part p = {g->line * thread / nth - g->at,
                         g->line * (thread + 1) / nth - g->at};

    p.lo = p.lo < 0 ? 0 : p.lo;
    p.hi = p.hi > g->n_span ? g->n_span : p.hi;
    return p;
}

/* Returns the stack on which thread c->ith + ahead leaves its softmax states
 * for query head i of a group (a token with a KV head). `lo` is the first of
 * the group's spans that the thread computes. A thread has two such stacks for
 * each query head. One is for a group whose first spans other threads compute
 * (lo > 0), the other for the remaining groups. */
static inline struct soft *kept(const struct view *v, int64_t ahead, int64_t i,
                                int64_t lo)
{
    int64_t n_head = v->c->out.dim[1];
    int64_t at = lo > 0 ? 2 * i * v->depth : (2 * n_head + i) * v->depth;
    char *soft = (char *)v->soft + ahead * (int64_t)v->c->scratch_stride;

    return soft_at(v, (struct soft *)soft, v->max_rows + at);
}

/* A thread computes spans lo .. end - 1 of a token, and span_close() merges
 * them like carries of a binary counter. Returns how many of these spans the
 * state that begins with span lo covers. */
static inline int64_t state_spans(int64_t lo, int64_t end)
{
    int64_t n = 1;

    while (lo % (2 * n) == 0 && lo + 2 * n <= end)
        n *= 2;
    return n;
}

/* Merges the softmax states that all threads computed for query head i of a
 * group (a token with a KV head), and writes the result. States are merged in
 * the order in which a single thread would merge them, so that the bits are the
 * same. */
static inline void row_gather(const struct view *v, const struct group *g,
                              int64_t i)
{
    enum { MOST = 64 };
    struct {
        struct soft *soft;
        /* first span that the state covers, and number of spans */
        int64_t lo, n;
    } stack[MOST];
    int n = 0;

    for (int th = 0; th < v->c->nth; th++) {
        struct cpu_part part = group_part(v, g, th);
        struct soft *from = kept(v, th - v->c->ith, i, part.lo);

        for (int64_t lo = part.lo, k = 0; lo < part.hi; k++) {
            int64_t n_span = state_spans(lo, part.hi), first = lo;
            struct soft *s = soft_at(v, from, k);

            lo += n_span;
            while (n > 0 && stack[n - 1].n == n_span &&
                   stack[n - 1].lo % (2 * n_span) == 0) {
                n--;
                soft_merge(stack[n].soft, s, v->wide);
                s = stack[n].soft;
                first = stack[n].lo;
                n_span *= 2;
            }
            stack[n].soft = s;
            stack[n].lo = first;
            stack[n++].n = n_span;
        }
    }
    for (; n > 1; n--)
        soft_merge(stack[n - 2].soft, stack[n - 1].soft, v->wide);
    row_write(v, v->row[i].head, stack[0].soft, v->row[i].out);
}

/* Records that this thread has finished n more spans of a group (a token with a
 * KV head). Returns true if all threads together have now finished all spans of
 * the group. Each counter cpu_call.taken[].n holds the counts of two groups, in
 * 32 bits each. */
static inline bool group_done(const struct view *v, const struct group *g,
                              int64_t n)
{
    int shift = 32 * (int)(g->index & 1);
    int64_t was = atomic_fetch_add_explicit(&v->c->taken[g->index / 2].n,
                                            n << shift, memory_order_acq_rel);

    return (was >> shift & INT32_MAX) + n == g->n_span;
}

/* Computes attention over the spans `part` of a group (a token with a KV head).
 * If the other threads have already finished their spans of the group, also
 * merges the states of all threads and writes the results. */
static inline void group_run(struct view *v, const struct group *g,
                             struct cpu_part part, int64_t n_head, float *q)
{
    int64_t first = first_seen(v->c, g->t) / PAGE_TOKENS;
    int64_t end = last_seen(v->c, g->t, g->kv_head) / PAGE_TOKENS + 1;
    int64_t from = (g->first_span + part.lo) * SPAN_BLOCKS;
    int64_t to = (g->first_span + part.hi) * SPAN_BLOCKS;

    for (int64_t i = 0; i < n_head; i++) {
        struct row *r = &v->row[i];

        row_open(v, i, g->t, v->head[i], q, up_to_lanes(n_head));
        r->done = kept(v, 0, i, part.lo);
        r->n_span = r->n_begin = (int32_t)part.lo;
    }
    queries_convert(v, n_head, q);
    blocks_run(v, g->t, g->kv_head, n_head, from > first ? from : first,
               to < end ? to : end);
    for (int64_t i = 0; i < n_head; i++)
        span_close(v, &v->row[i]);
    if (!group_done(v, g, part.hi - part.lo))
        return;
    for (int64_t i = 0; i < n_head; i++)
        row_gather(v, g, i);
}

/* ---- the kernel, and how threads divide it ------------------------------- */

/* Returns the number of positions visible to token t, with the first KV head.
 * This is taken as the cost of computing one query head of the token. */
static inline int64_t cost(const struct cpu_call *c, int64_t t)
{
    return last_seen(c, t, 0) - first_seen(c, t) + 1;
}

/* Lists the query heads that read KV head `kv` in v->head. Returns how many
 * they are. */
static inline int64_t heads_of(const struct view *v, int64_t kv)
{
    int64_t n = 0;

    for (int64_t h = 0; h < v->c->out.dim[1]; h++)
        if (v->c->head_map[h] == kv)
            v->head[n++] = (int32_t)h;
    return n;
}

/* Returns the number of 256-position spans, summed over all pairs of a token
 * and a KV head, if threads should divide spans. Returns 0 if they should
 * divide whole pairs or query heads instead, for example because each thread
 * gets equally many pairs with equally many spans. */
static inline int64_t spans_to_deal(const struct view *v)
{
    const struct cpu_call *c = v->c;
    int64_t n_kv = c->in[1].dim[1], n_group = c->table->n_tok * n_kv, n = 0;
    bool even = n_group % c->nth == 0;

    if (!v->by_span || !c->taken || n_group >= 2 * c->nth)
        return 0;
    for (int64_t i = 0; i < n_group; i++) {
        int64_t seen = spans_seen(c, i / n_kv, i % n_kv);

        n += seen;
        even = even && seen == spans_seen(c, 0, 0);
    }
    return even || n < c->nth ? 0 : n;
}

static inline void attend_spans(struct view *v, int64_t line, float *q)
{
    const struct cpu_call *c = v->c;
    int64_t n_kv = c->in[1].dim[1];
    struct group g = {.line = line};

    for (g.t = 0; g.t < c->table->n_tok; g.t++) {
        g.first_span = span_of(first_seen(c, g.t));
        for (g.kv_head = 0; g.kv_head < n_kv; g.kv_head++) {
            struct cpu_part part;

            g.n_span = spans_seen(c, g.t, g.kv_head);
            part = group_part(v, &g, c->ith);
            if (part.lo < part.hi)
                group_run(v, &g, part, heads_of(v, g.kv_head), q);
            g.at += g.n_span;
            g.index++;
        }
    }
}

/* Computes attention:
 *
 *   q     [n_tok, n_head, d]      f32, RoPE applied
 *   k, v  [n_slot, n_kv, d or e]  caches, which have this step's keys and
 *                                 values; if `latent`, k [n_slot, n_kv, d]
 *                                 serves as both
 *   chosen [n_tok, k] I32         only if `latent`, or absent
 *   chosen [n_tok, n_kv, k] I32   only in attention_blocks: ascending numbers
 *                                 of blocks
 *   sinks [n_head], or absent     only in attention
 *   ends  [n_tok] I32             only in bidirectional_attention: the last
 *                                 position that each token attends to
 *   out   [n_tok, n_head, e]
 *
 * Query head h reads KV head head_map[h]. If there are few pairs of a token and
 * a KV head, and counters for the threads (c->taken), threads divide the
 * 256-position spans of each pair. Otherwise the pairs of a token and a query
 * head, ordered by KV head and then by token, are divided: each thread computes
 * consecutive ones of equal total cost. If there are fewer pairs of a token and
 * a KV head than threads, the query heads that share a KV head are divided
 * among threads, too. */
static void attend(const struct cpu_call *c, bool latent)
{
    const struct token_table *b = c->table;
    int64_t n_head = c->out.dim[1];
    int64_t n_kv = c->in[1].dim[1];
    int64_t n_part = 1, total = 0;
    /* Total cost of the pairs of a token and a query head that precede the
     * current ones, times two, so that half a cost is an integer. */
    int64_t at = 0;
    int64_t from, to, line;
    struct view v;
    float *q;

    if (n_kv == 0)
        return;
    view_init(&v, c, latent, &q);
    line = spans_to_deal(&v);
    if (line > 0) {
        attend_spans(&v, line, q);
        return;
    }
    if (b->n_tok * n_kv < c->nth)
        n_part = (c->nth + n_kv - 1) / n_kv;
    for (int64_t t = 0; t < b->n_tok; t++)
        total += 2 * n_head * cost(c, t);
    from = total / c->nth * c->ith;
    to = c->ith + 1 < c->nth ? from + total / c->nth : total;
    for (int64_t kv = 0; kv < n_kv; kv++) {
        int64_t n = heads_of(&v, kv);

        for (int64_t i = 0; i < n_part; i++) {
            int64_t lo = n * i / n_part;
            /* number of the KV head's query heads that belong to part i of
             * n_part */
            int64_t rows = n * (i + 1) / n_part - lo;
            int64_t t = 0;

            for (int64_t end = 0; end < b->n_tok && rows > 0; end++) {
                int64_t half = rows * cost(c, end);
                bool mine = at + half >= from && at + half < to;

                at += 2 * half;
                if (end > t &&
                    (!mine || b->seq[end] != b->seq[t] || has_chosen(c, t) ||
                     has_chosen(c, end) || (end - t + 1) * rows > TILE_ROWS)) {
                    task_run(&v, t, end, kv, v.head + lo, rows, q);
                    t = end;
                }
                if (!mine)
                    t = end + 1;
            }
            if (t < b->n_tok && rows > 0)
                task_run(&v, t, b->n_tok, kv, v.head + lo, rows, q);
        }
    }
}

static inline void attention_run(const struct cpu_call *c)
{
    attend(c, false);
}

static inline void bidirectional_attention_run(const struct cpu_call *c)
{
    attend(c, false);
}

static inline void attention_blocks_run(const struct cpu_call *c)
{
    attend(c, false);
}

static inline void latent_attention_run(const struct cpu_call *c)
{
    attend(c, true);
}

static inline void compressed_attention_run(const struct cpu_call *c)
{
    struct cpu_call own = compressed_call(c);

    attend(&own, true);
}

static inline void attention_init_bf16(struct cpu_kernels *k)
{
    k->bf16[KERNEL_attention] =
        (struct cpu_entry){attention_run, attention_scratch};
    k->bf16[KERNEL_bidirectional_attention] = (struct cpu_entry){
        bidirectional_attention_run, bidirectional_attention_scratch};
    k->bf16[KERNEL_attention_blocks] =
        (struct cpu_entry){attention_blocks_run, attention_blocks_scratch};
    k->bf16[KERNEL_latent_attention] =
        (struct cpu_entry){latent_attention_run, latent_attention_scratch};
    k->bf16[KERNEL_compressed_attention] = (struct cpu_entry){
        compressed_attention_run, compressed_attention_scratch};
}

#endif
