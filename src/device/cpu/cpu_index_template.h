/* Choice of the positions to which attention attends (index_topk), or of blocks
 * of positions for each KV head (index_blocks). Included by cpu_ops_template.h.
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
 *   index_blocks does this for each head alone: score_u = s_i + 0. The score of
 *   a block of attr.block positions is the largest of its positions up to
 *   `pos`. The last attr.local blocks are above all others. If the token has at
 *   most k blocks, all are chosen.
 *
 * So a token's bits depend only on its own query and cache. Scores are mapped
 * to unsigned integers of the same order, ranks. The ranks of a token are kept
 * until all are known, those of blocks as the largest in each page. Then three
 * passes find the k-th largest: each counts how often the next 11, 11 and 10
 * bits occur. A last pass writes the chosen.
 *
 * If there are fewer tokens than threads, the threads divide the 64-position
 * blocks of each token, and the thread that finishes a token last chooses. */
#ifndef DEVICE_CPU_CPU_INDEX_TEMPLATE_H
#define DEVICE_CPU_CPU_INDEX_TEMPLATE_H

#include "device/cpu/cpu_attention_template.h"
#include "device/cpu/cpu_steal.h"

enum { INDEX_BUCKETS = 1 << 11 };

/* Ranks of adjacent pages, computed by one thread: n pages, or n ranks. */
struct index_part {
    const uint32_t *rank;
    int64_t n;
};

/* Arguments of one call of the kernel, and the arrays in the scratch of the
 * thread that executes it. */
struct index_view {
    const struct cpu_call *c;
    int64_t n_head, d, k;
    int64_t block; /* positions of a block; 1 in index_topk */
    /* number of pieces of blocks in a page at most, and of a page's ranks: a
     * piece has one for each head; 64 in index_topk */
    int64_t n_piece, n_rank;
    uint32_t *rank;          /* [n_page + 2][n_rank] the ranks of this thread */
    float *dot;              /* [n_head][64] products of a page */
    float *keys;             /* [d][64] a page's keys as floats */
    float *key_scale;        /* scales and minima of a page's keys */
    int32_t *count;          /* [INDEX_BUCKETS] */
    struct index_part *part; /* [nth] the ranks of a token */
    uint32_t *best;          /* index_blocks: the ranks of a token's blocks */
    float *page; /* [d][64] keys of a page, of which some are compressed */
};

static inline const struct cpu_tensor *index_keys(const struct cpu_call *c)
{
    return &c->in[c->attr->block > 0 ? 1 : 2];
}

/* Lays out the arrays in c->scratch and returns their size in bytes. If
 * c->scratch is NULL, only the size is meaningful. */
static inline size_t index_init(struct index_view *v, const struct cpu_call *c)
{
    enum { N_PART = 8 };
    const bool blocks = c->attr->block > 0;
    int64_t n_slot = index_keys(c)->dim[0];
    char *base = c->scratch, *p[N_PART];
    size_t part[N_PART], at = 0;

    *v = (struct index_view){.c = c,
                             .n_head = c->in[0].dim[1],
                             .d = c->in[0].dim[2],
                             .k = c->out.dim[c->out.n_dim - 1],
                             .block = blocks ? c->attr->block : 1};
    v->n_piece = (PAGE_TOKENS - 2 + v->block) / v->block + 1;
    v->n_rank = blocks ? v->n_head * v->n_piece : PAGE_TOKENS;
    part[0] =
        (size_t)((n_slot / PAGE_TOKENS + 2) * v->n_rank) * sizeof(uint32_t);
    part[1] = (size_t)(v->n_head * PAGE_TOKENS) * sizeof(float);
    part[2] = (size_t)(v->d * PAGE_TOKENS) * sizeof(float);
    part[3] = (size_t)(v->d * PAGE_TOKENS / Q8_SIZE) * 2 * sizeof(float);
    part[4] = INDEX_BUCKETS * sizeof(int32_t);
    part[5] = (size_t)c->nth * sizeof(struct index_part);
    part[6] = blocks ? (size_t)(n_slot / v->block + 2) * sizeof(uint32_t) : 0;
    part[7] = c->attr->ratio > 1 ? part[2] : 0;
    for (int i = 0; i < N_PART; i++) {
        p[i] = base != NULL ? base + at : NULL;
        at += (part[i] + 63) / 64 * 64;
    }
    v->rank = (uint32_t *)p[0];
    v->dot = (float *)p[1];
    v->keys = (float *)p[2];
    v->key_scale = (float *)p[3];
    v->count = (int32_t *)p[4];
    v->part = (struct index_part *)p[5];
    v->best = (uint32_t *)p[6];
    v->page = (float *)p[7];
    return at;
}

static inline size_t index_scratch(const struct cpu_call *c)
{
    struct cpu_call call = *c;
    struct index_view v;

    call.scratch = NULL;
    return index_init(&v, &call);
}

/* Maps a score to an integer, larger for larger scores; 0 for NaN. */
static inline uint32_t index_rank(float score)
{
    uint32_t b = float_bits(score);

    return score != score ? 0 : b >> 31 ? ~b : b | 1u << 31;
}

/* Writes to rank[] the ranks of the 64 positions of a page, from the products
 * of all heads, for index_topk. */
static inline void index_weigh(const struct index_view *v, int64_t t,
                               uint32_t *rank)
{
    const float *w = (const float *)v->c->in[1].data + t * v->n_head;
    float score[PAGE_TOKENS];

    for (int u = 0; u < PAGE_TOKENS; u += LANES) {
        lanes s = lanes_set(0);

        for (int64_t i = 0; i < v->n_head; i++)
            s = lanes_fma(lanes_set(w[i]),
                          lanes_max(lanes_load(v->dot + i * PAGE_TOKENS + u),
                                    lanes_set(0)),
                          s);
        lanes_store(score + u, lanes_add(s, lanes_set(0)));
    }
    for (int u = 0; u < PAGE_TOKENS; u++)
        rank[u] = index_rank(score[u]);
}

/* Writes to rank[] the largest ranks of the pieces of blocks in page `page` of
 * token t, for each head. */
static inline void index_fold(const struct index_view *v, int64_t t,
                              int64_t page, uint32_t *rank)
{
    int64_t n = v->c->table->pos[t] + 1 - page * PAGE_TOKENS;
    int64_t first = page * PAGE_TOKENS / v->block;

    n = n < PAGE_TOKENS ? n : PAGE_TOKENS;
    memset(rank, 0, (size_t)v->n_rank * sizeof *rank);
    for (int64_t i = 0; i < v->n_head; i++) {
        const float *dot = v->dot + i * PAGE_TOKENS;

        for (int64_t k = 0, u = 0; u < n; k++) {
            int64_t end = (first + k + 1) * v->block - page * PAGE_TOKENS;
            uint32_t top = 0;

            for (; u < end && u < n; u++) {
                uint32_t x = index_rank(dot[u] + 0.0f);

                top = x > top ? x : top;
            }
            rank[i * v->n_piece + k] = top;
        }
    }
}

/* Returns the number of keys that token t sees: its positions, or the
 * compressed keys up to its own position. */
static inline int64_t index_key_count(const struct index_view *v, int64_t t)
{
    int64_t n = (int64_t)v->c->table->pos[t] + 1, ratio = v->c->attr->ratio;

    return ratio > 1 ? n / ratio : n;
}

/* Returns the number of keys or blocks of keys among which token t chooses. */
static inline int64_t index_count(const struct index_view *v, int64_t t)
{
    return (index_key_count(v, t) + v->block - 1) / v->block;
}

/* Returns the keys of page `page` of a sequence. */
static inline struct operand index_open(const struct index_view *v,
                                        int32_t page)
{
    const struct cpu_tensor *keys = index_keys(v->c);
    const char *tile = (const char *)keys->data +
                       (size_t)page * cache_tile_bytes(keys->format, v->d);

    return operand_open(keys->format, false, tile, tile, v->d, PAGE_TOKENS,
                        v->key_scale);
}

/* Returns the compressed keys first .. first + 63 as floats, v->keys, with
 * zeros for those that token t does not see. */
static inline struct operand index_gather(const struct index_view *v, int64_t t,
                                          int64_t first, const int32_t *pages)
{
    int64_t n = index_key_count(v, t), ratio = v->c->attr->ratio, open = -1;
    struct operand o = {.kind = KIND_F32, .x = v->keys, .ld = PAGE_TOKENS};
    struct operand page = o;

    for (int64_t u = 0; u < PAGE_TOKENS; u++) {
        int64_t at = (first + u + 1) * ratio - 1;

        if (first + u < n && at / PAGE_TOKENS != open) {
            open = at / PAGE_TOKENS;
            page = index_open(v, pages[open]);
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

/* Computes the ranks of token t for 64 of its keys, number `page`. */
static inline void index_page(const struct index_view *v, int64_t t,
                              int64_t page, uint32_t *rank)
{
    const struct cpu_call *c = v->c;
    const struct token_table *b = c->table;
    const int32_t *pages = b->pages + b->seq[t] * b->page_stride;
    struct operand keys;

    if (c->attr->ratio > 1) {
        keys = index_gather(v, t, page * PAGE_TOKENS, pages);
    } else {
        keys = index_open(v, pages[page]);
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
    if (c->attr->block > 0)
        index_fold(v, t, page, rank);
    else
        index_weigh(v, t, rank);
}

/* Counts in v->count[] how often the bits from `shift` on, at most
 * INDEX_BUCKETS values, occur among the ranks whose bits above them are those
 * of `top`. Returns the largest value of which, together with all above it,
 * there are at least *need, and subtracts those above it from *need. */
static inline uint32_t index_digit(const struct index_view *v,
                                   const struct index_part *part, int n_part,
                                   uint32_t top, int shift, int bits,
                                   int64_t *need)
{
    const int above = shift + bits;
    uint32_t i = 1u << bits;

    memset(v->count, 0, INDEX_BUCKETS * sizeof *v->count);
    for (int p = 0; p < n_part; p++) {
        for (int64_t u = 0; u < part[p].n; u++) {
            uint32_t x = part[p].rank[u];

            if (above >= 32 || x >> above == top >> above)
                v->count[x >> shift & ((1u << bits) - 1)]++;
        }
    }
    while (i-- > 0 && v->count[i] < *need)
        *need -= v->count[i];
    return i;
}

/* Writes the places of the k largest of the ranks part[n_part]. */
static inline void index_largest(const struct index_view *v,
                                 const struct index_part *part, int n_part,
                                 int32_t *out)
{
    int64_t need = v->k, n = 0, at = 0;
    uint32_t least = index_digit(v, part, n_part, 0, 21, 11, &need) << 21;

    least |= index_digit(v, part, n_part, least, 10, 11, &need) << 10;
    least |= index_digit(v, part, n_part, least, 0, 10, &need);
    for (int p = 0; p < n_part; p++) {
        for (int64_t u = 0; u < part[p].n; u++, at++) {
            uint32_t x = part[p].rank[u];

            if (x > least || (x == least && need-- > 0))
                out[n++] = (int32_t)at;
        }
    }
}

/* Writes the chosen positions, or a head's chosen blocks, of token t, whose
 * pages have the ranks v->part[n_part]. */
static inline void index_choose(const struct index_view *v, int64_t t,
                                int n_part)
{
    int32_t *out = (int32_t *)v->c->out.data;
    int64_t own = index_count(v, t) - 1;

    if (v->c->attr->block == 0) {
        int64_t left = own + 1;

        for (int p = 0; p < n_part; p++) {
            int64_t n = v->part[p].n * PAGE_TOKENS;

            v->part[p].n = n < left ? n : left;
            left -= v->part[p].n;
        }
        index_largest(v, v->part, n_part, out + t * v->k);
        return;
    }
    for (int64_t h = 0; h < v->n_head; h++) {
        const struct index_part all = {v->best, own + 1};
        int64_t page = 0;

        memset(v->best, 0, (size_t)(own + 1) * sizeof *v->best);
        for (int p = 0; p < n_part; p++) {
            for (int64_t i = 0; i < v->part[p].n; i++, page++) {
                const uint32_t *x =
                    v->part[p].rank + i * v->n_rank + h * v->n_piece;
                int64_t first = page * PAGE_TOKENS / v->block;

                for (int64_t k = 0; k < v->n_piece && first + k <= own; k++)
                    if (x[k] > v->best[first + k])
                        v->best[first + k] = x[k];
            }
        }
        for (int64_t i = 0; i < v->c->attr->local && i <= own; i++)
            v->best[own - i] = UINT32_MAX;
        index_largest(v, &all, 1, out + (t * v->n_head + h) * v->k);
    }
}

/* Returns the number of pages of token t whose ranks are needed; 0 if it
 * attends to all of its positions. */
static inline int64_t index_pages(const struct index_view *v, int64_t t)
{
    int64_t n = index_key_count(v, t);

    return index_count(v, t) > v->k ? (n + PAGE_TOKENS - 1) / PAGE_TOKENS : 0;
}

/* Chooses all positions or blocks of token t. */
static inline void index_all(const struct index_view *v, int64_t t)
{
    int64_t n_row = v->c->attr->block > 0 ? v->n_head : 1;
    int32_t *out = (int32_t *)v->c->out.data + t * n_row * v->k;

    for (int64_t i = 0; i < n_row * v->k; i++)
        out[i] = i % v->k < index_count(v, t) ? (int32_t)(i % v->k) : -1;
}

/* Chooses the positions or blocks of token t, alone. */
static inline void index_token(const struct index_view *v, int64_t t)
{
    int64_t n_page = index_pages(v, t);

    if (n_page == 0) {
        index_all(v, t);
        return;
    }
    for (int64_t i = 0; i < n_page; i++)
        index_page(v, t, i, v->rank + i * v->n_rank);
    v->part[0] = (struct index_part){v->rank, n_page};
    index_choose(v, t, 1);
}

/* Returns the pages lo .. hi - 1 that thread `thread` computes, of all pages of
 * all tokens, 0 .. line - 1. */
static inline struct cpu_part index_share(const struct index_view *v,
                                          int64_t line, int thread)
{
    return cpu_part(line, 1, thread, v->c->nth);
}

/* Collects in v->part[] the ranks of a token, whose pages are at .. at + n_page
 * - 1, from the scratch of all threads. Returns the number of parts. */
static inline int index_collect(const struct index_view *v, int64_t line,
                                int64_t at, int64_t n_page)
{
    int n = 0;

    for (int th = 0; th < v->c->nth; th++) {
        struct cpu_part own = index_share(v, line, th);
        int64_t lo = own.lo > at ? own.lo : at;
        int64_t hi = own.hi < at + n_page ? own.hi : at + n_page;
        const char *rank = (const char *)v->rank +
                           (th - v->c->ith) * (int64_t)v->c->scratch_stride;

        if (lo < hi)
            v->part[n++] = (struct index_part){
                (const uint32_t *)rank + (lo - own.lo) * v->n_rank, hi - lo};
    }
    return n;
}

/* Computes this thread's share of the pages of all tokens. The counters
 * cpu_call.taken[].n have the finished pages of two tokens each, in 32 bits
 * each. */
static inline void index_shared(const struct index_view *v, int64_t line)
{
    const struct cpu_call *c = v->c;
    struct cpu_part own = index_share(v, line, c->ith);
    int64_t at = 0;

    for (int64_t t = 0; t < c->table->n_tok; t++) {
        int64_t n_page = index_pages(v, t);
        int64_t lo = own.lo > at ? own.lo : at;
        int64_t hi = own.hi < at + n_page ? own.hi : at + n_page;
        int shift = 32 * (int)(t & 1);
        int64_t was;

        if (n_page == 0 && t % c->nth == c->ith)
            index_all(v, t);
        if (lo < hi) {
            for (int64_t i = lo; i < hi; i++)
                index_page(v, t, i - at, v->rank + (i - own.lo) * v->n_rank);
            was = atomic_fetch_add_explicit(
                &c->taken[t / 2].n, (hi - lo) << shift, memory_order_acq_rel);
            if ((was >> shift & INT32_MAX) + hi - lo == n_page)
                index_choose(v, t, index_collect(v, line, at, n_page));
        }
        at += n_page;
    }
}

/* Computes index_topk or index_blocks for all tokens. */
static inline void index_run(const struct cpu_call *c)
{
    struct index_view v;
    int64_t line = 0;

    if (c->in[0].dim[1] == 0)
        return;
    index_init(&v, c);
    for (int64_t t = 0; t < c->table->n_tok; t++)
        line += index_pages(&v, t);
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

/* Computes index_topk:
 *
 *   q    [n_tok, n_head, d]  f32, RoPE applied
 *   w    [n_tok, n_head]     f32
 *   keys [n_slot, 1, d]      cache, which has this step's keys
 *   out  [n_tok, k]          i32 */
static inline void index_topk_run(const struct cpu_call *c)
{
    index_run(c);
}

/* Computes index_blocks:
 *
 *   q    [n_tok, n_head, d]  f32, RoPE applied
 *   keys [n_slot, 1, d]      cache, which has this step's keys
 *   out  [n_tok, n_head, k]  i32 */
static inline void index_blocks_run(const struct cpu_call *c)
{
    index_run(c);
}

#endif
