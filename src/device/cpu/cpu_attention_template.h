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
 * float once for all its rows.
 * Source: online softmax, arXiv:1805.02867. */
#ifndef DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H
#define DEVICE_CPU_CPU_ATTENTION_TEMPLATE_H

#include "device/cpu/cpu_cache_template.h"

enum {
    TILE_ROWS = 64,  /* rows (token, head) a task aims at */
    DIRECT_ROWS = 8, /* up to so many read the cache's elements */
    SPAN_BLOCKS = 256 / PAGE_TOKENS,  /* blocks a span */
    PAGE_LANES = PAGE_TOKENS / LANES, /* vectors a block of positions */
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
    const float *q;      /* [d] */
    float *out;          /* [e] */
    int64_t first, last; /* visible positions */
    int32_t head;
    int32_t n_span; /* closed */
    int32_t n_done; /* on the stack */
    int32_t lo, hi; /* visible part of the current block */
    bool open;
};

/* What a task reads all the time. */
struct view {
    const struct cpu_call *c;
    int64_t d, e, wide;
    size_t soft_bytes;    /* a state with its acc */
    int depth;            /* states on a row's stack */
    float *keys, *values; /* converted tiles */
    float *key_scale, *value_scale;
    float *p; /* [4][64] scores, then probabilities */
    struct row *row;
    char *soft; /* the rows' states, depth + 1 each */
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
    float f[LANES] = {a->m - m, b->m - m};
    float *x = soft_acc(a);
    const float *y = soft_acc(b);
    lanes fa, fb;

    lanes_store(f, lanes_exp(lanes_load(f)));
    fa = lanes_set(f[0]);
    fb = lanes_set(f[1]);
    a->m = m;
    lanes_store(
        a->l, lanes_fma(lanes_load(b->l), fb, lanes_mul(lanes_load(a->l), fa)));
    for (int64_t i = 0; i < wide; i += LANES)
        lanes_store(x + i, lanes_fma(lanes_load(y + i), fb,
                                     lanes_mul(lanes_load(x + i), fa)));
}

static inline struct soft *soft_at(const struct view *v, struct soft *base,
                                   int i)
{
    return (struct soft *)((char *)base + (size_t)i * v->soft_bytes);
}

/* Pushes the open span; as a binary counter carries, so spans merge. */
static inline void span_close(const struct view *v, struct row *r)
{
    if (!r->open)
        return;
    memcpy(soft_at(v, r->done, r->n_done++), r->now, v->soft_bytes);
    r->open = false;
    r->n_span++;
    for (int32_t n = r->n_span; n % 2 == 0; n /= 2) {
        r->n_done--;
        soft_merge(soft_at(v, r->done, r->n_done - 1),
                   soft_at(v, r->done, r->n_done), v->wide);
    }
}

/* Scores s[64] of a block, visible in r->lo .. r->hi - 1, become p[64] (0 where
 * not visible), and the state takes their sum. */
static inline void soft_block(const struct view *v, struct row *r, float *s)
{
    const struct graph_attr *a = v->c->attr;
    struct soft *o = r->now;
    lanes scale = lanes_set(a->scale);
    lanes top = lanes_set(-INFINITY);
    lanes x[PAGE_LANES];
    lanes l;
    float m;

#pragma GCC unroll 4
    for (int i = 0; i < PAGE_LANES; i++) {
        int lo = r->lo - i * LANES;
        int hi = r->hi - i * LANES;

        lo = lo < 0 ? 0 : lo > LANES ? LANES : lo;
        hi = hi < 0 ? 0 : hi > LANES ? LANES : hi;
        x[i] = lanes_mul(lanes_load(s + i * LANES), scale);
        if (a->softcap != 0)
            x[i] = lanes_mul(lanes_tanh(lanes_div(x[i], lanes_set(a->softcap))),
                             lanes_set(a->softcap));
        x[i] = lanes_range(x[i], lo, hi, -INFINITY);
        top = lanes_max(x[i], top);
    }
    m = lanes_top(top);
    if (!r->open) {
        r->open = true;
        o->m = m;
        memset(o->l, 0, sizeof(o->l));
        memset(soft_acc(o), 0, (size_t)v->wide * sizeof(float));
    } else if (o->m >= m) {
        m = o->m; /* the factor would be exp(0), exactly 1 */
    } else {
        lanes f = lanes_exp(lanes_set(o->m - m));

        lanes_store(o->l, lanes_mul(lanes_load(o->l), f));
        times(soft_acc(o), v->wide, f);
        o->m = m;
    }
    l = lanes_load(o->l);
#pragma GCC unroll 4
    for (int i = 0; i < PAGE_LANES; i++) {
        x[i] = lanes_exp(lanes_sub(x[i], lanes_set(m)));
        l = lanes_add(l, x[i]);
        lanes_store(s + i * LANES, x[i]);
    }
    lanes_store(o->l, l);
}

/* Merges what is left from the top down, adds the sink, divides. */
static inline void row_finish(const struct view *v, struct row *r)
{
    const struct cpu_tensor *sink = &v->c->in[3];
    float f[LANES] = {0};
    struct soft *o;
    float sum;
    int64_t i = 0;

    if (r->open && r->n_span == 0) {
        o = r->now;
    } else {
        span_close(v, r);
        while (r->n_done > 1) {
            r->n_done--;
            soft_merge(soft_at(v, r->done, r->n_done - 1),
                       soft_at(v, r->done, r->n_done), v->wide);
        }
        o = r->done;
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

/* acc += p V for 1 to 4 rows. What all of them see is done together; what only
 * some see, before it (windows) and behind it (causal), row by row. */
static inline void add_values(const struct view *v, struct row *const *row,
                              int n, const float *p,
                              const struct operand *values)
{
    int64_t step = n > 1 ? soft_acc(row[1]->now) - soft_acc(row[0]->now) : 0;
    int lo = 0;
    int hi = PAGE_TOKENS;

    for (int i = 0; i < n; i++) {
        lo = row[i]->lo > lo ? row[i]->lo : lo;
        hi = row[i]->hi < hi ? row[i]->hi : hi;
    }
    if (lo >= hi) /* nothing in common: then each row by itself */
        lo = hi = PAGE_TOKENS;
    for (int i = 0; i < n; i++)
        chain_rows(1, p + i * PAGE_TOKENS, PAGE_TOKENS, values, row[i]->lo,
                   row[i]->hi < lo ? row[i]->hi : lo, soft_acc(row[i]->now), 0,
                   v->wide);
    chain_rows(n, p, PAGE_TOKENS, values, lo, hi, soft_acc(row[0]->now), step,
               v->wide);
    for (int i = 0; i < n; i++)
        chain_rows(1, p + i * PAGE_TOKENS, PAGE_TOKENS, values, hi, row[i]->hi,
                   soft_acc(row[i]->now), 0, v->wide);
}

/* One block of 64 positions for all rows; K and V are its tiles. */
static inline void block_run(const struct view *v, int64_t n_row, int64_t block,
                             const void *key_tile, const void *value_tile)
{
    const struct cpu_call *c = v->c;
    struct operand keys, values;
    int lo = PAGE_TOKENS;
    int hi = 0;

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
    keys = operand_open(c->in[1].format, false, key_tile, v->d, PAGE_TOKENS,
                        v->key_scale);
    values = operand_open(c->in[2].format, true, value_tile, PAGE_TOKENS, v->e,
                          v->value_scale);
    if (n_row > DIRECT_ROWS)
        operand_convert(&keys, 0, v->d, PAGE_TOKENS, v->keys);
    if (n_row > DIRECT_ROWS || v->wide != v->e)
        operand_convert(&values, lo, hi, v->wide, v->values);
    for (int64_t i = 0; i < n_row;) {
        struct row *some[4];
        float *p = v->p;
        int n = 0;

        /* neighbours that see anything of the block */
        while (i < n_row && v->row[i].lo >= v->row[i].hi)
            i++;
        while (i < n_row && n < 4 && v->row[i].lo < v->row[i].hi)
            some[n++] = &v->row[i++];
        if (n == 0)
            break;
        for (int k = 0; k < n * PAGE_TOKENS; k += LANES)
            lanes_store(p + k, lanes_set(0));
        chain_rows(n, some[0]->q, v->d, &keys, 0, v->d, p, PAGE_TOKENS,
                   PAGE_TOKENS);
        for (int k = 0; k < n; k++)
            soft_block(v, some[k], p + k * PAGE_TOKENS);
        add_values(v, some, n, p, &values);
    }
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
    size_t value_bytes = cache_tile_bytes(c->in[2].format, v->e);
    const int32_t *pages = b->pages + b->seq[t0] * b->page_stride;

    for (int64_t t = t0; t < t1; t++) {
        for (int64_t i = 0; i < n_head; i++, n_row++) {
            struct row *r = &v->row[n_row];
            int64_t window = c->attr->window;

            *r = (struct row){
                .now = (struct soft *)(v->soft + (size_t)n_row * v->soft_bytes),
                .done = (struct soft *)(v->soft + (size_t)(v->max_rows +
                                                           n_row * v->depth) *
                                                      v->soft_bytes),
                .q = q + n_row * v->d,
                .out = (float *)c->out.data + (t * all_heads + head[i]) * v->e,
                .last = b->pos[t],
                .head = head[i],
            };
            if (window > 0 && r->last >= window)
                r->first = r->last - window + 1;
            memcpy(q + n_row * v->d,
                   (const float *)c->in[0].data +
                       (t * all_heads + head[i]) * v->d,
                   (size_t)v->d * sizeof(float));
            first = r->first < first ? r->first : first;
            last = r->last > last ? r->last : last;
        }
    }
    for (int64_t block = first / PAGE_TOKENS; block <= last / PAGE_TOKENS;
         block++) {
        size_t tile;

        if (block % SPAN_BLOCKS == 0) {
            for (int64_t i = 0; i < n_row; i++)
                span_close(v, &v->row[i]);
        }
        tile = (size_t)(pages[block] * n_kv + kv_head);
        block_run(v, n_row, block,
                  (const char *)c->in[1].data + tile * key_bytes,
                  (const char *)c->in[2].data + tile * value_bytes);
    }
    for (int64_t i = 0; i < n_row; i++)
        row_finish(v, &v->row[i]);
}

/* ---- the kernel ---------------------------------------------------------- */

/* Lays the scratch out; returns its size. `v` gets the pointers. */
static inline size_t view_init(struct view *v, const struct cpu_call *c,
                               float **q)
{
    char *base = c->scratch;
    int64_t n_head = c->out.dim[1];
    size_t at = 0;
    size_t part[9];
    char *p[9];

    *v = (struct view){.c = c, .d = c->in[1].dim[2], .e = c->in[2].dim[2]};
    v->wide = (v->e + LANES - 1) / LANES * LANES;
    v->soft_bytes = sizeof(struct soft) + (size_t)v->wide * sizeof(float);
    v->max_rows = n_head > TILE_ROWS ? n_head : TILE_ROWS;
    /* A token sees at most n_slot positions, so at most n_slot / 256 + 2
     * spans; the stack holds one entry a bit, and one being pushed. */
    v->depth = 2;
    for (int64_t n = c->in[1].dim[0] / (SPAN_BLOCKS * PAGE_TOKENS) + 2; n > 0;
         n /= 2)
        v->depth++;
    part[0] = (size_t)(v->d * PAGE_TOKENS) * sizeof(float);
    part[1] = (size_t)(v->wide * PAGE_TOKENS) * sizeof(float);
    part[2] = 4 * PAGE_TOKENS * sizeof(float);
    part[3] = (size_t)(v->max_rows * v->d) * sizeof(float);
    part[4] = (size_t)v->max_rows * sizeof(struct row);
    part[5] = (size_t)(v->max_rows * (v->depth + 1)) * v->soft_bytes;
    part[6] = (size_t)n_head * sizeof(int32_t);
    part[7] = (size_t)(v->d * PAGE_TOKENS / Q8_SIZE) * sizeof(float);
    part[8] = (size_t)(v->e * PAGE_TOKENS / Q8_SIZE) * sizeof(float);
    for (int i = 0; i < 9; i++) {
        p[i] = base != NULL ? base + at : NULL;
        at += (part[i] + 63) / 64 * 64;
    }
    v->keys = (float *)p[0];
    v->values = (float *)p[1];
    v->p = (float *)p[2];
    *q = (float *)p[3];
    v->row = (struct row *)p[4];
    v->soft = p[5];
    v->head = (int32_t *)p[6];
    v->key_scale = (float *)p[7];
    v->value_scale = (float *)p[8];
    return at;
}

static inline size_t attention_scratch(const struct cpu_call *c)
{
    struct cpu_call call = *c;
    struct view v;
    float *q;

    call.scratch = NULL;
    return view_init(&v, &call, &q);
}

/*   q     [n_tok, n_head, d]      f32, RoPE applied
 *   k, v  [n_slot, n_kv, d or e]  caches, this step's rows written
 *   sinks [n_head] or absent
 *   out   [n_tok, n_head, e]
 *
 * Query head h reads KV head head_map[h]. When there are fewer tasks than
 * threads, the heads of a group are dealt out too. */
static inline void attention_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    int64_t n_head = c->out.dim[1];
    int64_t n_kv = c->in[1].dim[1];
    int64_t task = 0;
    struct view v;
    float *q;

    view_init(&v, c, &q);
    for (int64_t kv = 0; kv < n_kv; kv++) {
        int64_t n = 0;
        int64_t n_tok, n_part;

        for (int64_t h = 0; h < n_head; h++) {
            if (c->head_map[h] == kv)
                v.head[n++] = (int32_t)h;
        }
        if (n == 0)
            continue;
        /* two tasks a thread at least, so that causal ones even out */
        n_tok = n < TILE_ROWS ? TILE_ROWS / n : 1;
        if (c->nth > 1 && n_tok > b->n_tok * n_kv / (2 * c->nth))
            n_tok = b->n_tok * n_kv / (2 * c->nth);
        n_tok = n_tok > 0 ? n_tok : 1;
        n_part = b->n_tok * n_kv >= c->nth ? 1 : (c->nth + n_kv - 1) / n_kv;
        n_part = n_part < n ? n_part : n;
        for (int64_t t = 0, end; t < b->n_tok; t = end) {
            end = t + 1;
            while (end < b->n_tok && end - t < n_tok &&
                   b->seq[end] == b->seq[t])
                end++;
            for (int64_t i = 0; i < n_part; i++, task++) {
                int64_t lo = n * i / n_part;
                int64_t hi = n * (i + 1) / n_part;

                if (task % c->nth == c->ith)
                    task_run(&v, t, end, kv, v.head + lo, hi - lo, q);
            }
        }
    }
}

#endif
