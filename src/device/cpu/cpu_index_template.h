/* Choice of the positions to which attention attends (index_topk). Included by
 * cpu_ops_template.h.
 *
 * Definition, with the order of all operations, for one token at position `pos`
 * and k chosen positions:
 *
 *   If pos < k, the positions are 0 .. pos, and the rest of the row is -1.
 *   Else, for positions u = 0 .. pos: s_i = chain of fmaf over the d values of
 *   head i's query and of key u, from 0; score_u = chain of fmaf(w_i, max(s_i,
 *   0), .) over the heads, ascending, from 0, plus +0.
 *   With attr.ratio R > 0 the token chooses blocks 0 .. (pos + 1) / R - 1
 *   instead of positions; the key of block u is at position (u + 1) R - 1.
 *   A NaN is below all other scores. The k largest are chosen; of equal ones
 *   the lower position. They are written in ascending order.
 *
 * So a token's bits depend only on its own query and cache. The scores of a
 * token are kept until all are known. Then three passes over the scores, mapped
 * to unsigned integers of the same order, find the k-th largest: each counts
 * how often the next 11, 11 and 10 bits occur. A last pass writes the chosen.
 *
 * If there are fewer tokens than threads, the threads divide the 64-position
 * blocks of each token, and the thread that finishes a token last chooses. */
#ifndef DEVICE_CPU_CPU_INDEX_TEMPLATE_H
#define DEVICE_CPU_CPU_INDEX_TEMPLATE_H

#include "device/cpu/cpu_attention_template.h"
#include "device/cpu/cpu_steal.h"

enum { INDEX_BUCKETS = 1 << 11 };

/* Scores of adjacent positions, computed by one thread. */
struct index_part {
    const float *score;
    int64_t n;
};

/* Arguments of one call of the kernel, and the arrays in the scratch of the
 * thread that executes it. */
struct index_view {
    const struct cpu_call *c;
    int64_t n_head, d, k;
    float *score;     /* [n_slot + 128] the scores of this thread */
    float *dot;       /* [n_head][64] products of a block */
    float *keys;      /* [d][64] a block's keys as floats */
    float *page;      /* the same of a page, of which some are keys of blocks */
    float *key_scale; /* scales and minima of a block's keys */
    int32_t *count;   /* [INDEX_BUCKETS] */
    struct index_part *part; /* [nth] the scores of a token */
};

/* Lays out the arrays in c->scratch and returns their size in bytes. If
 * c->scratch is NULL, only the size is meaningful. */
static inline size_t index_init(struct index_view *v, const struct cpu_call *c)
{
    enum { N_PART = 7 };
    char *base = c->scratch, *p[N_PART];
    size_t part[N_PART], at = 0;

    *v = (struct index_view){.c = c,
                             .n_head = c->in[0].dim[1],
                             .d = c->in[0].dim[2],
                             .k = c->out.dim[1]};
    part[0] = (size_t)(c->in[2].dim[0] + 2 * PAGE_TOKENS) * sizeof(float);
    part[1] = (size_t)(v->n_head * PAGE_TOKENS) * sizeof(float);
    part[2] = (size_t)(v->d * PAGE_TOKENS) * sizeof(float);
    part[3] = (size_t)(v->d * PAGE_TOKENS / Q8_SIZE) * 2 * sizeof(float);
    part[4] = INDEX_BUCKETS * sizeof(int32_t);
    part[5] = (size_t)c->nth * sizeof(struct index_part);
    part[6] = c->attr->ratio > 1 ? part[2] : 0;
    for (int i = 0; i < N_PART; i++) {
        p[i] = base != NULL ? base + at : NULL;
        at += (part[i] + 63) / 64 * 64;
    }
    v->score = (float *)p[0];
    v->dot = (float *)p[1];
    v->keys = (float *)p[2];
    v->key_scale = (float *)p[3];
    v->count = (int32_t *)p[4];
    v->part = (struct index_part *)p[5];
    v->page = (float *)p[6];
    return at;
}

static inline size_t index_scratch(const struct cpu_call *c)
{
    struct cpu_call call = *c;
    struct index_view v;

    call.scratch = NULL;
    return index_init(&v, &call);
}

/* Returns the number of positions or blocks among which token t chooses. */
static inline int64_t index_count(const struct index_view *v, int64_t t)
{
    int64_t n = (int64_t)v->c->table->pos[t] + 1, ratio = v->c->attr->ratio;

    return ratio > 1 ? n / ratio : n;
}

/* Returns the keys of page `page` of a sequence. */
static inline struct operand index_page(const struct index_view *v,
                                        int32_t page)
{
    const struct cpu_tensor *keys = &v->c->in[2];
    const char *tile = (const char *)keys->data +
                       (size_t)page * cache_tile_bytes(keys->format, v->d);

    return operand_open(keys->format, false, tile, tile, v->d, PAGE_TOKENS,
                        v->key_scale);
}

/* Returns the keys of blocks first .. first + 63 as floats, v->keys, with zeros
 * for blocks that token t does not see. */
static inline struct operand index_gather(const struct index_view *v, int64_t t,
                                          int64_t first, const int32_t *pages)
{
    int64_t n = index_count(v, t), ratio = v->c->attr->ratio, open = -1;
    struct operand o = {.kind = KIND_F32, .x = v->keys, .ld = PAGE_TOKENS};
    struct operand page = o;

    for (int64_t u = 0; u < PAGE_TOKENS; u++) {
        int64_t at = (first + u + 1) * ratio - 1;

        if (first + u < n && at / PAGE_TOKENS != open) {
            open = at / PAGE_TOKENS;
            page = index_page(v, pages[open]);
            operand_convert(&page, 0, (int)v->d, PAGE_TOKENS, v->page);
        }
        for (int64_t i = 0; i < v->d; i++)
            v->keys[i * PAGE_TOKENS + u] =
                first + u < n ? ((const float *)
                                     page.x)[i * PAGE_TOKENS + at % PAGE_TOKENS]
                              : 0;
    }
    return o;
}

/* Computes the scores of token t for 64 positions or blocks, number `block` of
 * its sequence. */
static inline void index_block(const struct index_view *v, int64_t t,
                               int64_t block, float *score)
{
    const struct cpu_call *c = v->c;
    const struct token_table *b = c->table;
    const int32_t *pages = b->pages + b->seq[t] * b->page_stride;
    const float *w = (const float *)c->in[1].data + t * v->n_head;
    struct operand keys;

    if (c->attr->ratio > 1) {
        keys = index_gather(v, t, block * PAGE_TOKENS, pages);
    } else {
        keys = index_page(v, pages[block]);
        if (v->n_head > DIRECT_ROWS || is_codes(&keys))
            operand_convert(&keys, 0, v->d, PAGE_TOKENS, v->keys);
    }
    chain_rows((int)v->n_head,
               &(struct product){.a = (const float *)c->in[0].data +
                                      t * v->n_head * v->d,
                                 .lda = v->d,
                                 .b = &keys,
                                 .hi = v->d,
                                 .c = v->dot,
                                 .ldc = PAGE_TOKENS,
                                 .end = PAGE_TOKENS,
                                 .from_zero = true});
    for (int u = 0; u < PAGE_TOKENS; u += LANES) {
        lanes s = lanes_set(0);

        for (int64_t i = 0; i < v->n_head; i++)
            s = lanes_fma(lanes_set(w[i]),
                          lanes_max(lanes_load(v->dot + i * PAGE_TOKENS + u),
                                    lanes_set(0)),
                          s);
        lanes_store(score + u, lanes_add(s, lanes_set(0)));
    }
}

/* Maps a score to an integer, larger for larger scores; 0 for NaN. */
static inline uint32_t index_rank(float score)
{
    uint32_t b = float_bits(score);

    return score != score ? 0 : b >> 31 ? ~b : b | 1u << 31;
}

/* Counts in v->count[] how often the bits from `shift` on, at most
 * INDEX_BUCKETS values, occur among the scores whose bits above them are those
 * of `top`. Returns the largest value of which, together with all above it,
 * there are at least *need, and subtracts those above it from *need. */
static inline uint32_t index_digit(const struct index_view *v, int n_part,
                                   uint32_t top, int shift, int bits,
                                   int64_t *need)
{
    const int above = shift + bits;
    uint32_t i = 1u << bits;

    memset(v->count, 0, INDEX_BUCKETS * sizeof *v->count);
    for (int p = 0; p < n_part; p++) {
        for (int64_t u = 0; u < v->part[p].n; u++) {
            uint32_t x = index_rank(v->part[p].score[u]);

            if (above >= 32 || x >> above == top >> above)
                v->count[x >> shift & ((1u << bits) - 1)]++;
        }
    }
    while (i-- > 0 && v->count[i] < *need)
        *need -= v->count[i];
    return i;
}

/* Writes the chosen positions of token t, whose scores are v->part[n_part]. */
static inline void index_choose(const struct index_view *v, int64_t t,
                                int n_part)
{
    int32_t *out = (int32_t *)v->c->out.data + t * v->k;
    int64_t need = v->k, n = 0, at = 0;
    uint32_t least = index_digit(v, n_part, 0, 21, 11, &need) << 21;

    least |= index_digit(v, n_part, least, 10, 11, &need) << 10;
    least |= index_digit(v, n_part, least, 0, 10, &need);
    for (int p = 0; p < n_part; p++) {
        for (int64_t u = 0; u < v->part[p].n; u++, at++) {
            uint32_t x = index_rank(v->part[p].score[u]);

            if (x > least || (x == least && need-- > 0))
                out[n++] = (int32_t)at;
        }
    }
}

/* Returns the number of blocks of token t whose scores are needed; 0 if it
 * attends to all of its positions. */
static inline int64_t index_blocks(const struct index_view *v, int64_t t)
{
    int64_t n = index_count(v, t);

    return n > v->k ? (n + PAGE_TOKENS - 1) / PAGE_TOKENS : 0;
}

static inline void index_all(const struct index_view *v, int64_t t)
{
    int32_t *out = (int32_t *)v->c->out.data + t * v->k;

    for (int64_t i = 0; i < v->k; i++)
        out[i] = i < index_count(v, t) ? (int32_t)i : -1;
}

/* Chooses the positions of token t, alone. */
static inline void index_token(const struct index_view *v, int64_t t)
{
    int64_t n_block = index_blocks(v, t);

    if (n_block == 0) {
        index_all(v, t);
        return;
    }
    for (int64_t i = 0; i < n_block; i++)
        index_block(v, t, i, v->score + i * PAGE_TOKENS);
    v->part[0] = (struct index_part){v->score, index_count(v, t)};
    index_choose(v, t, 1);
}

/* Returns the blocks lo .. hi - 1 that thread `thread` computes, of all blocks
 * of all tokens, 0 .. line - 1. */
static inline struct cpu_part index_share(const struct index_view *v,
                                          int64_t line, int thread)
{
    return cpu_part(line, 1, thread, v->c->nth);
}

/* Collects in v->part[] the scores of token t, whose blocks are at .. at +
 * n_block - 1, from the scratch of all threads. Returns the number of parts. */
static inline int index_collect(const struct index_view *v, int64_t t,
                                int64_t line, int64_t at, int64_t n_block)
{
    int64_t left = index_count(v, t);
    int n = 0;

    for (int th = 0; th < v->c->nth; th++) {
        struct cpu_part own = index_share(v, line, th);
        int64_t lo = own.lo > at ? own.lo : at;
        int64_t hi = own.hi < at + n_block ? own.hi : at + n_block;
        const char *score = (const char *)v->score +
                            (th - v->c->ith) * (int64_t)v->c->scratch_stride;
        int64_t some = (hi - lo) * PAGE_TOKENS;

        if (lo >= hi)
            continue;
        some = some < left ? some : left;
        left -= some;
        v->part[n++] = (struct index_part){
            (const float *)score + (lo - own.lo) * PAGE_TOKENS, some};
    }
    return n;
}

/* Computes this thread's share of the blocks of all tokens. The counters
 * cpu_call.taken[].n have the finished blocks of two tokens each, in 32 bits
 * each. */
static inline void index_shared(const struct index_view *v, int64_t line)
{
    const struct cpu_call *c = v->c;
    struct cpu_part own = index_share(v, line, c->ith);
    int64_t at = 0;

    for (int64_t t = 0; t < c->table->n_tok; t++) {
        int64_t n_block = index_blocks(v, t);
        int64_t lo = own.lo > at ? own.lo : at;
        int64_t hi = own.hi < at + n_block ? own.hi : at + n_block;
        int shift = 32 * (int)(t & 1);
        int64_t was;

        if (n_block == 0 && t % c->nth == c->ith)
            index_all(v, t);
        if (lo < hi) {
            for (int64_t i = lo; i < hi; i++)
                index_block(v, t, i - at,
                            v->score + (i - own.lo) * PAGE_TOKENS);
            was = atomic_fetch_add_explicit(
                &c->taken[t / 2].n, (hi - lo) << shift, memory_order_acq_rel);
            if ((was >> shift & INT32_MAX) + hi - lo == n_block)
                index_choose(v, t, index_collect(v, t, line, at, n_block));
        }
        at += n_block;
    }
}

/* Computes index_topk:
 *
 *   q    [n_tok, n_head, d]  f32, RoPE applied
 *   w    [n_tok, n_head]     f32
 *   keys [n_slot, 1, d]      cache, which has this step's keys
 *   out  [n_tok, k]          i32 */
static inline void index_topk_run(const struct cpu_call *c)
{
    struct index_view v;
    int64_t line = 0;

    index_init(&v, c);
    for (int64_t t = 0; t < c->table->n_tok; t++)
        line += index_blocks(&v, t);
    if (c->taken && c->table->n_tok < c->nth) {
        index_shared(&v, line);
    } else {
        struct cpu_steal d = cpu_steal(c, c->table->n_tok, 1);
        struct cpu_part part;

        while (cpu_steal_next(&d, &part))
            for (int64_t t = part.lo; t < part.hi; t++)
                index_token(&v, t);
    }
}

#endif
