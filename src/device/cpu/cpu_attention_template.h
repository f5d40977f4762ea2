/* Attention over the paged cache. Included by cpu_ops_template.h.
 *
 * The order of every sum, for one token t and one query head:
 *
 *   Positions are walked in blocks of 64 by absolute position. The visible ones
 *   are pos - window < u <= pos; a block without one is skipped. What is not
 *   visible may hold anything: it is never added or multiplied in.
 *   score = chain of fmaf over the head's d values, from 0, times attr.scale;
 *   with a soft cap c, c * tanh(score / c).
 *   Inside a span of 256 positions the softmax runs online: with m' the
 *   maximum so far and f = exp(m - m'), l[j mod 16] and acc[e] are multiplied
 *   by f, p_j = exp(score_j - m') is added to l[j mod 16], and
 *   acc[e] = fmaf(p_j, V[j][e], acc[e]), j ascending.
 *   Two spans merge by m = max, each side times exp(m_side - m), the upper
 *   fused onto the lower; the spans of a token merge along the tree whose left
 *   part is the largest power of two below the count.
 *   out = acc / (sum of l along its tree + exp(sink - m)).
 *
 * So a token's bits depend on its own query and cache alone. What is ours to
 * choose is the work: a task is a tile of consecutive tokens of one sequence
 * and the query heads of one KV head, whose blocks of K and V are converted to
 * float once for all its rows. Of a block all scores come first, then all
 * probabilities, then all sums, so that first its keys and then its values stay
 * in the processor's first cache.
 *
 * Latent attention is the same, with the first e of a key's d values for V. A
 * position's values lie side by side there, as values do elsewhere; so scores
 * are computed with the rows of queries side by side, and then turned.
 * Source: online softmax, arXiv:1805.02867. */
#ifndef DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H
#define DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H

#include "device/cpu/cpu_cache_template.h"

enum {
    TILE_ROWS = 96,  /* rows (token, head) a tile aims at */
    DIRECT_ROWS = 8, /* up to so many read the cache's elements */
    SPAN_BLOCKS = 256 / PAGE_TOKENS, /* blocks a span */
};

/* ---- one row's softmax --------------------------------------------------- */

/* Online softmax state; acc follows in memory: [wide]. */
struct soft {
    float l[LANES];
    float m;
    float pad[LANES - 1];
};

/* A row of a task: one token, one query head. */
struct row {
    struct soft *now;    /* the open span */
    struct soft *done;   /* stack of merged spans, `depth` of them */
    const float *q;      /* [d]; latent: of all rows together, [d][rows] */
    float *out;          /* [e] */
    int64_t first, last; /* visible positions */
    int32_t head;
    int32_t n_span; /* closed */
    int32_t n_done; /* on the stack */
    int32_t lo, hi; /* visible part of the current block */
    bool open;
};

static inline int64_t up_to_lanes(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* What a task reads all the time. */
struct view {
    const struct cpu_call *c;
    bool latent;
    int64_t d, e, wide;   /* wide: e, as a multiple of 16 */
    int64_t wide_d;       /* and d */
    size_t soft_bytes;    /* a state with its acc */
    int depth;            /* states on a row's stack */
    float *keys, *values; /* converted tiles */
    float *key_scale, *value_scale;
    float *p;      /* [max_rows][64] scores, then probabilities */
    float *turned; /* latent: [64][rows] scores */
    struct row *row;
    struct soft *soft; /* the rows' states, depth + 1 each */
    int32_t *head;
    int64_t max_rows;
};

static inline float *soft_acc(struct soft *s)
{
    return (float *)(s + 1);
}

/* x[0 .. n - 1] *= f, n a multiple of 16. */
static inline void times(float *x, int64_t n, lanes f)
{
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store(x + i, lanes_mul(lanes_load(x + i), f));
}

/* a = a and b, b the upper one. */
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

/* Puts the open span onto the stack; as a binary counter carries, so spans
 * merge. */
static inline void span_close(const struct view *v, struct row *r)
{
    struct soft *s = r->now;

    if (!r->open)
        return;
    r->open = false;
    r->n_span++;
    for (int32_t n = r->n_span; n % 2 == 0; n /= 2) {
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

/* Lanes that are left of 0 .. 15 when i is their first. */
static inline int clamp_lane(int i)
{
    return i < 0 ? 0 : i > LANES ? LANES : i;
}

/* Makes sums of products s[64] scores, -infinity where r does not see; returns
 * the greatest. */
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

/* Sums of products p[n][64] of a block become probabilities (0 where a row
 * does not see), and the states of n rows, at most 16, take their sums. No step
 * of one row waits for another's. */
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

/* Merges what is left from the top down, adds the sink, divides. */
static inline void row_finish(const struct view *v, struct row *r)
{
    const struct cpu_tensor *sink = &v->c->in[3];
    float f[LANES] = {0};
    struct soft *o;
    float sum;
    int64_t i = 0;

    o = r->open ? r->now : soft_at(v, r->done, --r->n_done);
    while (r->n_done > 0) {
        struct soft *lower = soft_at(v, r->done, --r->n_done);

        soft_merge(lower, o, v->wide);
        o = lower;
    }
    sum = lanes_sum(lanes_load(o->l));
    if (sink->data != NULL) {
        f[0] = *floats(sink, r->head, 1, f) - o->m;
        lanes_store(f, lanes_exp(lanes_load(f)));
        sum = sum + f[0];
    }
    for (; i < v->e; i += LANES) {
        int64_t n = v->e - i < LANES ? v->e - i : LANES;

        lanes_store_n(r->out + i,
                      lanes_div(lanes_load(soft_acc(o) + i), lanes_set(sum)),
                      n);
    }
}

/* ---- one task ------------------------------------------------------------ */

/* The next rows from *i on that see anything of the block: at most as many as
 * one pass takes. Returns their number, 0 at the end; *i is the first. */
static inline int next_group(const struct view *v, int64_t n_row, int64_t *i)
{
    int n = 0;

    while (*i < n_row && !sees(&v->row[*i]))
        (*i)++;
    while (*i + n < n_row && n < CHAIN_ROWS && sees(&v->row[*i + n]))
        n++;
    return n;
}

/* p = q K for the n rows from `first`, in the vectors of positions that any of
 * them sees. */
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
                                    .b = keys,
                                    .hi = v->d,
                                    .c = v->p + first * PAGE_TOKENS,
                                    .ldc = PAGE_TOKENS,
                                    .first = lo / LANES * LANES,
                                    .end = (hi + LANES - 1) / LANES * LANES,
                                    .from_zero = true});
}

/* p = q K for all rows at the positions lo .. hi - 1, of floats. */
static inline void add_latent_scores(const struct view *v, int64_t n_row,
                                     int lo, int hi,
                                     const struct operand *latents)
{
    int64_t rows = up_to_lanes(n_row);
    struct operand q = {.kind = KIND_F32, .x = v->row[0].q, .ld = rows};

    chain_rows(hi - lo, &(struct product){.a = (const float *)latents->x +
                                               lo * latents->ld,
                                          .lda = latents->ld,
                                          .b = &q,
                                          .hi = v->d,
                                          .c = v->turned + lo * rows,
                                          .ldc = rows,
                                          .end = rows,
                                          .from_zero = true});
    for (int64_t i = 0; i < n_row; i++) {
        for (int u = lo; u < hi; u++)
            v->p[i * PAGE_TOKENS + u] = v->turned[u * rows + i];
    }
}

/* acc += p V for the n rows from `first`. What all of them see is done
 * together; what only some see, before it (windows) and behind it (causal), row
 * by row. */
static inline void add_values(const struct view *v, int64_t first, int n,
                              const struct operand *values)
{
    const struct row *row = v->row + first;
    struct product all = {.a = v->p + first * PAGE_TOKENS,
                          .lda = PAGE_TOKENS,
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
    if (all.lo >= all.hi) /* nothing in common: then each row by itself */
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

/* One block of 64 positions for all rows: its tiles of K and V, then those of
 * the block that follows. */
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
        operand_convert(&values, lo, hi, v->wide_d, v->keys);
        add_latent_scores(v, n_row, lo, hi, &values);
    } else {
        keys = operand_open(c->in[1].format, false, key_tile[0], key_tile[1],
                            v->d, PAGE_TOKENS, v->key_scale);
        values = operand_open(c->in[2].format, true, value_tile[0],
                              value_tile[1], PAGE_TOKENS, v->e, v->value_scale);
        if (n_row > DIRECT_ROWS)
            operand_convert(&keys, 0, v->d, PAGE_TOKENS, v->keys);
        for (int64_t i = 0; (n = next_group(v, n_row, &i)) > 0; i += n)
            add_scores(v, i, n, &keys);
    }
    for (int64_t i = 0; i < n_row; i += LANES)
        soft_rows(v, v->row + i, n_row - i < LANES ? n_row - i : LANES,
                  v->p + i * PAGE_TOKENS);
    if (!v->latent && (n_row > DIRECT_ROWS || v->wide != v->e))
        operand_convert(&values, lo, hi, v->wide, v->values);
    for (int64_t i = 0; (n = next_group(v, n_row, &i)) > 0; i += n)
        add_values(v, i, n, &values);
}

/* Tokens t0 .. t1 - 1 of one sequence, `n_head` query heads of one KV head. */
static inline void task_run(struct view *v, int64_t t0, int64_t t1,
                            int64_t kv_head, const int32_t *head,
                            int64_t n_head, float *q)
{
    const struct cpu_call *c = v->c;
    const struct token_table *b = c->table;
    int64_t all_heads = c->out.dim[1];
    int64_t n_kv = c->in[1].dim[1];
    int64_t n_row = 0;
    int64_t first = INT64_MAX;
    int64_t last = -1;
    size_t key_bytes = cache_tile_bytes(c->in[1].format, v->d);
    size_t value_bytes =
        v->latent ? 0 : cache_tile_bytes(c->in[2].format, v->e);
    int64_t rows = up_to_lanes((t1 - t0) * n_head);
    const int32_t *pages = b->pages + b->seq[t0] * b->page_stride;

    for (int64_t t = t0; t < t1; t++) {
        for (int64_t i = 0; i < n_head; i++, n_row++) {
            struct row *r = &v->row[n_row];
            const float *x =
                (const float *)c->in[0].data + (t * all_heads + head[i]) * v->d;
            int64_t window = c->attr->window;

            r->now = soft_at(v, v->soft, n_row);
            r->done = soft_at(v, v->soft, v->max_rows + n_row * v->depth);
            r->q = v->latent ? q : q + n_row * v->d;
            r->out = (float *)c->out.data + (t * all_heads + head[i]) * v->e;
            r->first = 0;
            r->last = b->pos[t];
            r->head = head[i];
            r->n_span = r->n_done = 0;
            r->open = false;
            if (window > 0 && r->last >= window)
                r->first = r->last - window + 1;
            if (!v->latent)
                memcpy(q + n_row * v->d, x, (size_t)v->d * sizeof(float));
            for (int64_t k = 0; v->latent && k < v->d; k++)
                q[k * rows + n_row] = x[k];
            first = r->first < first ? r->first : first;
            last = r->last > last ? r->last : last;
        }
    }
    for (int64_t block = first / PAGE_TOKENS; block <= last / PAGE_TOKENS;
         block++) {
        const char *key_tile[2], *value_tile[2];

        if (block % SPAN_BLOCKS == 0) {
            for (int64_t i = 0; i < n_row; i++)
                span_close(v, &v->row[i]);
        }
        for (int i = 0; i < 2; i++) { /* behind the last block: itself */
            int64_t page = pages[block + (block < last / PAGE_TOKENS ? i : 0)];

            key_tile[i] = (const char *)c->in[1].data +
                          (size_t)(page * n_kv + kv_head) * key_bytes;
            value_tile[i] =
                v->latent ? NULL
                          : (const char *)c->in[2].data +
                                (size_t)(page * n_kv + kv_head) * value_bytes;
        }
        block_run(v, n_row, block, key_tile, value_tile);
    }
    for (int64_t i = 0; i < n_row; i++)
        row_finish(v, &v->row[i]);
}

/* ---- the kernel ---------------------------------------------------------- */

/* Lays the scratch out; returns its size. `v` gets the pointers. */
static inline size_t view_init(struct view *v, const struct cpu_call *c,
                               bool latent, float **q)
{
    char *base = c->scratch;
    int64_t n_head = c->out.dim[1];
    size_t at = 0;
    size_t part[10];
    char *p[10];

    *v = (struct view){
        .c = c, .latent = latent, .d = c->in[1].dim[2], .e = c->out.dim[2]};
    v->wide = up_to_lanes(v->e);
    v->wide_d = up_to_lanes(v->d);
    v->soft_bytes = sizeof(struct soft) + (size_t)v->wide * sizeof(float);
    v->max_rows = n_head > TILE_ROWS ? n_head : TILE_ROWS;
    /* A token sees at most n_slot positions, so at most n_slot / 256 + 2
     * spans; the stack holds one entry a bit, and one being pushed. */
    v->depth = 2;
    for (int64_t n = c->in[1].dim[0] / (SPAN_BLOCKS * PAGE_TOKENS) + 2; n > 0;
         n /= 2)
        v->depth++;
    part[0] = (size_t)(v->wide_d * PAGE_TOKENS) * sizeof(float);
    part[1] = latent ? 0 : (size_t)(v->wide * PAGE_TOKENS) * sizeof(float);
    part[2] = (size_t)(v->max_rows * PAGE_TOKENS) * sizeof(float);
    part[3] = (size_t)(up_to_lanes(v->max_rows) * v->d) * sizeof(float);
    part[4] = (size_t)v->max_rows * sizeof(struct row);
    part[5] = (size_t)(v->max_rows * (v->depth + 1)) * v->soft_bytes;
    part[6] = (size_t)n_head * sizeof(int32_t);
    part[7] = (size_t)(v->d * PAGE_TOKENS / Q8_SIZE) * sizeof(float);
    part[8] = (size_t)(v->e * PAGE_TOKENS / Q8_SIZE) * sizeof(float);
    part[9] = (size_t)(latent ? up_to_lanes(v->max_rows) * PAGE_TOKENS : 0) *
              sizeof(float);
    for (int i = 0; i < 10; i++) {
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

static inline size_t latent_attention_scratch(const struct cpu_call *c)
{
    return scratch_of(c, true);
}

/* Positions that token t sees: what its rows cost. */
static inline int64_t cost(const struct cpu_call *c, int64_t t)
{
    int64_t n = c->table->pos[t] + 1;

    return c->attr->window > 0 && n > c->attr->window ? c->attr->window : n;
}

/*   q     [n_tok, n_head, d]      f32, RoPE applied
 *   k, v  [n_slot, n_kv, d or e]  caches, this step's rows written; latent: one
 *                                 [n_slot, n_kv, d] is both
 *   sinks [n_head] or absent
 *   out   [n_tok, n_head, e]
 *
 * Query head h reads KV head head_map[h]. Rows are put in a line, by KV head,
 * then by token, and each thread takes a stretch of the line that costs as much
 * as the others'. When there are fewer tokens than threads, the heads of a
 * group are dealt out too. */
static void attend(const struct cpu_call *c, bool latent)
{
    const struct token_table *b = c->table;
    int64_t n_head = c->out.dim[1];
    int64_t n_kv = c->in[1].dim[1];
    int64_t n_part = 1, total = 0;
    int64_t at = 0; /* twice the cost of what lies before in the line */
    int64_t from, to;
    struct view v;
    float *q;

    if (n_kv == 0)
        return;
    if (b->n_tok * n_kv < c->nth)
        n_part = (c->nth + n_kv - 1) / n_kv;
    view_init(&v, c, latent, &q);
    for (int64_t t = 0; t < b->n_tok; t++)
        total += 2 * n_head * cost(c, t);
    from = total / c->nth * c->ith;
    to = c->ith + 1 < c->nth ? from + total / c->nth : total;
    for (int64_t kv = 0; kv < n_kv; kv++) {
        int64_t n = 0;

        for (int64_t h = 0; h < n_head; h++) {
            if (c->head_map[h] == kv)
                v.head[n++] = (int32_t)h;
        }
        for (int64_t i = 0; i < n_part; i++) {
            int64_t lo = n * i / n_part;
            int64_t rows = n * (i + 1) / n_part - lo; /* a token */
            int64_t t = 0;

            for (int64_t end = 0; end < b->n_tok && rows > 0; end++) {
                int64_t half = rows * cost(c, end);
                bool mine = at + half >= from && at + half < to;

                at += 2 * half;
                if (end > t && (!mine || b->seq[end] != b->seq[t] ||
                                (end - t + 1) * rows > TILE_ROWS)) {
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

static inline void latent_attention_run(const struct cpu_call *c)
{
    attend(c, true);
}

#endif
