/* The choice of positions (index_topk) or blocks (index_blocks), and attention
 * to them, against their definitions one number at a time. Kernel sets,
 * threads, other tokens and GPUs' kernels do not change bits (lib/cpu_call.h).
 * About 2 CPU seconds of the gate. */
#include "lib/cache_formats.h"
#include "lib/cache_rows.h"
#include "lib/cpu_call.h"
#include "quant/format.h"

#include <math.h>

enum { MAX_TOK = 24, MAX_PAGE = 24, MAX_K = 700, MAX_HEAD = 24, MAX_D = 96 };

/* A batch of tokens of two sequences, and a cache of random values. */
struct batch {
    int32_t pos[MAX_TOK], seq[MAX_TOK], pages[MAX_PAGE], head_map[MAX_HEAD];
    struct token_table table;
    struct graph_attr attr;
    struct cpu_call call;
    struct cpu_tensor *cache; /* the operand that is the last cache */
    bool values;
};

/* Draws n tokens of the first sequence up to position `last`, and some of the
 * second, which is shorter. */
static void batch_tokens(struct batch *b, int n, int last, uint64_t *seed)
{
    int stride = MAX_PAGE / 2, few = n / 3;

    *b = (struct batch){.table = {n, n, b->pos, b->seq, b->pages, stride}};
    assert_in_range(last, n, stride * PAGE_TOKENS - 1);
    for (int t = 0; t < n; t++) {
        b->seq[t] = t >= n - few;
        b->pos[t] =
            t >= n - few ? t - (n - few) + last / 3 : last - n + few + t;
    }
    for (int32_t i = 0; i < MAX_PAGE; i++) {
        int64_t j = test_below(seed, i + 1);

        b->pages[i] = b->pages[j];
        b->pages[j] = i;
    }
    b->call.attr = &b->attr;
    b->call.table = &b->table;
}

/* Fills the cache with values of -2 .. 2 at all positions that a token may
 * attend to; others are NaN. */
static void batch_cache(struct batch *b, struct cpu_tensor *c, pl_format f,
                        bool values, int n_kv, int d, uint64_t *seed)
{
    size_t bytes = cache_tile_bytes(f, d);

    *c = (struct cpu_tensor){test_need((size_t)(MAX_PAGE * n_kv), bytes),
                             f,
                             3,
                             {MAX_PAGE * PAGE_TOKENS, n_kv, d},
                             NULL};
    b->cache = c;
    b->values = values;
    memset(c->data, 0xff, (size_t)(MAX_PAGE * n_kv) * bytes);
    for (int q = 0; q < 2; q++) {
        int32_t end = 0;

        for (int t = 0; t < b->table.n_tok; t++)
            if (b->seq[t] == q && b->pos[t] >= end)
                end = b->pos[t] + 1;
        for (int64_t u = 0; u < end * n_kv; u++) {
            int64_t at = u / n_kv,
                    page =
                        b->pages[q * b->table.page_stride + at / PAGE_TOKENS];
            char *tile =
                (char *)c->data + (size_t)(page * n_kv + u % n_kv) * bytes;
            float x[MAX_D];
            char row[4 * MAX_D];

            for (int i = 0; i < d; i++)
                x[i] = 2 * test_unit(seed);
            cpu_cache_encode_row(f, row, x, d);
            cache_row_write(f, d, values, tile, (int)(at % PAGE_TOKENS), row);
        }
    }
}

/* Reads the cache's row of a token's position u. */
static void read_row(const struct batch *b, int t, int64_t u, int kv, float *x)
{
    const struct cpu_tensor *c = b->cache;
    int64_t page = b->pages[b->seq[t] * b->table.page_stride + u / PAGE_TOKENS];
    char row[4 * MAX_D];

    cache_row_read(c->format, c->dim[2], b->values,
                   (char *)c->data + (size_t)(page * c->dim[1] + kv) *
                                         cache_tile_bytes(c->format, c->dim[2]),
                   (int)(u % PAGE_TOKENS), row);
    format_info(c->format)->decode(x, row, c->dim[2]);
}

/* ---- the choice ---------------------------------------------------------- */

/* Computes the score of position u in the order that cpu_index_template.h
 * states. */
static float score_of(const struct batch *b, int t, int64_t u)
{
    const struct cpu_call *c = &b->call;
    int n_head = (int)c->in[0].dim[1], d = (int)c->in[0].dim[2];
    const float *q = (const float *)c->in[0].data + (int64_t)t * n_head * d;
    const float *w = (const float *)c->in[1].data + (int64_t)t * n_head;
    float x[MAX_D], sum = 0;

    if (b->attr.ratio > 0)
        u = (u + 1) * b->attr.ratio - 1;
    read_row(b, t, u, 0, x);
    for (int h = 0; h < n_head; h++) {
        float s = 0;

        for (int i = 0; i < d; i++)
            s = fmaf(q[h * d + i], x[i], s);
        sum = fmaf(w[h], s > 0 ? s : 0, sum);
    }
    return sum;
}

/* Checks a token's row: position u is chosen if fewer than k positions have a
 * larger score, or an equal one and come before it. */
static void check_choice(const struct batch *b, int t)
{
    const int64_t k = b->call.out.dim[1], ratio = b->attr.ratio;
    const int64_t n = (b->pos[t] + 1) / (ratio > 0 ? ratio : 1);
    const int32_t *got = (const int32_t *)b->call.out.data + t * k;
    float s[MAX_PAGE * PAGE_TOKENS];
    int64_t at = 0;

    for (int64_t u = 0; u < n; u++)
        s[u] = score_of(b, t, u);
    for (int64_t u = 0; u < n; u++) {
        int64_t before = 0;

        for (int64_t v = 0; v < n; v++)
            before += s[v] > s[u] || (s[v] == s[u] && v < u);
        if (before < k)
            assert_int_equal(got[at++], u);
    }
    assert_int_equal(at, n < k ? n : k);
    for (; at < k; at++)
        assert_int_equal(got[at], -1);
}

/* Every cache format; more and fewer positions than k, k of several pages,
 * ties of most scores. Blocks of tokens are chosen likewise. */
TEST(cpu_index_chooses_the_best_positions)
{
    static const struct {
        int n_tok, last, n_head, d, k;
        float w;   /* greatest weight of a head; 0: all scores are equal */
        int ratio; /* tokens of a block; 0: positions are chosen */
    } sizes[] = {{1, 700, 24, 96, 300, 1, 0}, {2, 130, 5, 32, 7, 1, 0},
                 {9, 64, 1, 64, 64, 1, 0},    {24, 90, 3, 32, 1, 1, 0},
                 {7, 640, 8, 64, 640, 1, 0},  {12, 300, 2, 32, 100, 0, 0},
                 {3, 50, 9, 64, 700, 1, 0},   {5, 257, 17, 32, 129, 1, 0},
                 {4, 99, 3, 7, 40, 1, 0},     {2, 700, 24, 96, 20, 1, 4},
                 {9, 400, 3, 32, 5, 1, 8},    {5, 500, 2, 7, 1, 1, 128},
                 {12, 300, 2, 32, 30, 0, 4}};
    uint64_t seed = test_seed();

    for (int i = 0; i < 2 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 2, d = sizes[k].d, n = sizes[k].n_tok;
        pl_format f = cache_formats[d % 32 ? i % 3 : i % N_CACHE_FORMAT];
        struct batch b;
        struct cpu_call *c = &b.call;

        batch_tokens(&b, n, sizes[k].last, &seed);
        b.attr.n_used = sizes[k].k;
        b.attr.ratio = sizes[k].ratio;
        c->n_in = 3;
        c->in[0] = call_tensor(
            PL_F32, 3, (const int64_t[]){n, sizes[k].n_head, d}, 1.0f, &seed);
        c->in[1] = call_tensor(PL_F32, 2, (const int64_t[]){n, sizes[k].n_head},
                               sizes[k].w, &seed);
        batch_cache(&b, &c->in[2], f, false, 1, d, &seed);
        c->out =
            call_tensor(PL_F32, 2, (const int64_t[]){n, sizes[k].k}, 1, &seed);
        c->out.format = PL_I32;
        call_all(KERNEL_index_topk, c, (size_t)(n * sizes[k].k) * 4);
        for (int t = 0; t < n; t++)
            check_choice(&b, t);
        for (int j = 0; j < 3; j++)
            free(c->in[j].data);
        free(c->out.data);
    }
}

/* Checks the row of a token's head: block i is chosen if it is among the last
 * ones, or if fewer than k blocks are among these, have a larger score, or an
 * equal one and come before it. */
static void check_blocks(const struct batch *b, int t, int h)
{
    const struct cpu_call *c = &b->call;
    const int n_head = (int)c->in[0].dim[1], d = (int)c->in[0].dim[2];
    const int64_t k = c->out.dim[2], own = b->pos[t] / b->attr.block;
    const int64_t row = (int64_t)t * n_head + h;
    const float *q = (const float *)c->in[0].data + row * d;
    const int32_t *got = (const int32_t *)c->out.data + row * k;
    float s[MAX_PAGE * PAGE_TOKENS], x[MAX_D];
    int64_t at = 0;

    for (int64_t i = 0; i <= own; i++)
        s[i] = i > own - b->attr.local ? INFINITY : -INFINITY;
    for (int64_t u = 0; u <= b->pos[t]; u++) {
        float sum = 0;

        read_row(b, t, u, 0, x);
        for (int i = 0; i < d; i++)
            sum = fmaf(q[i], x[i], sum);
        if (sum > s[u / b->attr.block])
            s[u / b->attr.block] = sum;
    }
    for (int64_t i = 0; i <= own; i++) {
        int64_t before = 0;

        for (int64_t j = 0; j <= own; j++)
            before += s[j] > s[i] || (s[j] == s[i] && j < i);
        if (before < k)
            assert_int_equal(got[at++], i);
    }
    assert_int_equal(at, own < k ? own + 1 : k);
    for (; at < k; at++)
        assert_int_equal(got[at], -1);
}

/* Blocks of a part of a page, of several pages and across pages; last blocks
 * that are always chosen; ties, also between a block of which only the first
 * positions are visible and others; many heads. */
TEST(cpu_index_chooses_the_best_blocks)
{
    static const struct {
        int n_tok, last, n_head, d, k, block, local;
        float q; /* greatest value of a query; 0: all scores are equal */
    } sizes[] = {{1, 700, 2, 96, 3, 128, 1, 1},  {2, 130, 5, 32, 7, 4, 2, 1},
                 {9, 200, 1, 64, 2, 64, 0, 1},   {24, 90, 3, 32, 1, 7, 1, 1},
                 {7, 640, 18, 32, 4, 100, 2, 1}, {12, 300, 2, 32, 5, 6, 1, 0},
                 {3, 50, 9, 64, 60, 1, 3, 1},    {5, 257, 4, 32, 129, 1, 0, 1},
                 {4, 99, 3, 7, 2, 33, 2, 1},     {24, 150, 6, 32, 3, 40, 0, 1}};
    uint64_t seed = test_seed();

    for (int i = 0; i < 2 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 2, d = sizes[k].d, n = sizes[k].n_tok;
        int64_t n_out = (int64_t)n * sizes[k].n_head * sizes[k].k;
        pl_format f = cache_formats[d % 32 ? i % 3 : i % N_CACHE_FORMAT];
        struct batch b;
        struct cpu_call *c = &b.call;

        batch_tokens(&b, n, sizes[k].last, &seed);
        b.attr.n_used = sizes[k].k;
        b.attr.block = sizes[k].block;
        b.attr.local = sizes[k].local;
        c->n_in = 2;
        c->in[0] =
            call_tensor(PL_F32, 3, (const int64_t[]){n, sizes[k].n_head, d},
                        sizes[k].q, &seed);
        batch_cache(&b, &c->in[1], f, false, 1, d, &seed);
        c->out = call_tensor(PL_F32, 3,
                             (const int64_t[]){n, sizes[k].n_head, sizes[k].k},
                             1, &seed);
        c->out.format = PL_I32;
        call_all(KERNEL_index_blocks, c, (size_t)n_out * 4);
        for (int t = 0; t < n; t++)
            for (int h = 0; h < sizes[k].n_head; h++)
                check_blocks(&b, t, h);
        for (int j = 0; j < 2; j++)
            free(c->in[j].data);
        free(c->out.data);
    }
}

/* ---- attention to chosen positions --------------------------------------- */

/* Computes latent attention with a cache in which the chosen positions of token
 * t are the first ones of a sequence, by the kernel without chosen positions,
 * and compares the bits. */
static void check_attention(const struct batch *b, int t)
{
    const struct cpu_call *c = &b->call;
    const struct cpu_tensor *x = &c->in[1];
    const int64_t k = c->in[2].dim[1], n = b->pos[t] + 1;
    const int64_t row = c->out.dim[1] * c->out.dim[2];
    const int32_t *chosen = (const int32_t *)c->in[2].data + t * k;
    const int n_kv = (int)x->dim[1], d = (int)x->dim[2];
    const size_t bytes = cache_tile_bytes(x->format, d);
    int32_t pages[MAX_PAGE], pos = (int32_t)(n < k ? n : k) - 1, seq = 0;
    struct token_table table = {1, 1, &pos, &seq, pages, MAX_PAGE};
    struct cpu_call own = *c;
    char *out = test_need((size_t)row, 4);

    own.in[0].data = (float *)c->in[0].data + t * c->in[0].dim[1] * d;
    own.in[0].dim[0] = own.out.dim[0] = 1;
    own.in[1].data = test_need((size_t)(MAX_PAGE * n_kv), bytes);
    own.in[2] = (struct cpu_tensor){0};
    own.n_in = 2;
    own.table = &table;
    own.out.data = out;
    for (int i = 0; i < MAX_PAGE; i++)
        pages[i] = i;
    for (int64_t j = 0; j <= pos; j++)
        for (int kv = 0; kv < n_kv; kv++) {
            int64_t u = n > k ? chosen[j] : j;
            char raw[4 * MAX_D];

            u = u < 0 ? 0 : u < n ? u : n - 1;
            cache_row_read(
                x->format, d, true,
                (char *)x->data +
                    (size_t)(b->pages[b->seq[t] * b->table.page_stride +
                                      u / PAGE_TOKENS] *
                                 n_kv +
                             kv) *
                        bytes,
                (int)(u % PAGE_TOKENS), raw);
            cache_row_write(x->format, d, true,
                            (char *)own.in[1].data +
                                (size_t)(j / PAGE_TOKENS * n_kv + kv) * bytes,
                            (int)(j % PAGE_TOKENS), raw);
        }
    call_run(KERNEL_SET_GENERIC, KERNEL_latent_attention, own, 1);
    assert_memory_equal(out, (float *)c->out.data + t * row, (size_t)row * 4);
    free(own.in[1].data);
    free(out);
}

/* Every cache format, BF16 products; rows of chosen positions with repetitions
 * and values out of range, which are limited; k of several spans. */
TEST(cpu_latent_attention_attends_to_chosen_positions)
{
    static const struct {
        int n_tok, last, n_head, n_kv, d, e, k;
    } sizes[] = {{1, 700, 6, 1, 96, 64, 600}, {5, 140, 24, 1, 32, 20, 70},
                 {9, 64, 3, 1, 64, 32, 64},   {24, 90, 4, 2, 32, 32, 5},
                 {3, 600, 2, 1, 7, 3, 300},   {2, 50, 9, 1, 64, 64, 90},
                 {12, 300, 1, 1, 32, 1, 290}};
    uint64_t seed = test_seed();

    for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 3, d = sizes[k].d, n = sizes[k].n_tok;
        pl_format f = cache_formats[d % 32 ? i % 3 : i % N_CACHE_FORMAT];
        struct batch b;
        struct cpu_call *c = &b.call;
        int32_t *chosen;

        batch_tokens(&b, n, sizes[k].last, &seed);
        b.attr.scale = 0.25f;
        b.attr.d_value = sizes[k].e;
        b.attr.bf16 = i % 3 == 2;
        c->n_in = 3;
        c->head_map = b.head_map;
        for (int h = 0; h < sizes[k].n_head; h++)
            b.head_map[h] = h * sizes[k].n_kv / sizes[k].n_head;
        c->in[0] = call_tensor(
            PL_F32, 3, (const int64_t[]){n, sizes[k].n_head, d}, 1.0f, &seed);
        batch_cache(&b, &c->in[1], f, true, sizes[k].n_kv, d, &seed);
        c->in[2] =
            call_tensor(PL_F32, 2, (const int64_t[]){n, sizes[k].k}, 1, &seed);
        c->in[2].format = PL_I32;
        chosen = c->in[2].data;
        for (int j = 0; j < n * sizes[k].k; j++)
            chosen[j] = (int32_t)test_below(&seed, sizes[k].last + 3) - 1;
        c->out = call_tensor(PL_F32, 3,
                             (const int64_t[]){n, sizes[k].n_head, sizes[k].e},
                             1, &seed);
        call_all(KERNEL_latent_attention, c,
                 (size_t)(n * sizes[k].n_head * sizes[k].e) * 4);
        for (int t = 0; t < n; t++)
            check_attention(&b, t);
        for (int j = 0; j < 3; j++)
            free(c->in[j].data);
        free(c->out.data);
    }
}

/* ---- attention to chosen blocks ------------------------------------------ */

/* Lists in at[] the positions that token t attends to with KV head kv. Returns
 * their number. */
static int blocks_seen(const struct batch *b, int t, int kv, int32_t *at)
{
    const struct cpu_tensor *x = &b->call.in[3];
    const int k = (int)x->dim[2], block = b->attr.block;
    const int32_t *chosen = (const int32_t *)x->data + (t * x->dim[1] + kv) * k;
    const bool all = b->pos[t] / block < k;
    int n = 0;

    for (int j = 0; j < (all ? b->pos[t] / block + 1 : k); j++)
        for (int i = 0; i < block; i++) {
            int u = (all ? j : chosen[j]) * block + i;

            if (u <= b->pos[t])
                at[n++] = u;
        }
    return n;
}

/* Moves the chosen positions of a cache operand to the start of a sequence of
 * one KV head, in *own. */
static void move_seen(const struct batch *b, int operand, int t, int kv,
                      const int32_t *at, int n, struct cpu_tensor *own)
{
    const struct cpu_tensor *x = &b->call.in[operand];
    const bool values = operand == 2;
    const int64_t d = x->dim[2];
    const size_t bytes = cache_tile_bytes(x->format, d);

    *own = *x;
    own->dim[1] = 1;
    own->data = test_need(MAX_PAGE, bytes);
    for (int j = 0; j < n; j++) {
        int64_t page =
            b->pages[b->seq[t] * b->table.page_stride + at[j] / PAGE_TOKENS];
        char row[4 * MAX_D];

        cache_row_read(x->format, d, values,
                       (char *)x->data +
                           (size_t)(page * x->dim[1] + kv) * bytes,
                       at[j] % PAGE_TOKENS, row);
        cache_row_write(x->format, d, values,
                        (char *)own->data + (size_t)(j / PAGE_TOKENS) * bytes,
                        j % PAGE_TOKENS, row);
    }
}

/* Computes attention of query head h of token t with caches that have only the
 * chosen positions, by the kernel that attends to all. Compares the bits. */
static void check_head(const struct batch *b, int t, int h)
{
    const struct cpu_call *c = &b->call;
    const int64_t row = t * c->out.dim[1] + h, e = c->out.dim[2];
    const int kv = b->head_map[h];
    int32_t at[MAX_PAGE * PAGE_TOKENS], pages[MAX_PAGE], zero = 0;
    int32_t n = blocks_seen(b, t, kv, at), pos = n - 1;
    struct token_table table = {1, 1, &pos, &zero, pages, MAX_PAGE};
    const struct graph_attr attr = {.scale = b->attr.scale,
                                    .bf16 = b->attr.bf16};
    struct cpu_call own = *c;
    float out[MAX_D];

    for (int i = 0; i < MAX_PAGE; i++)
        pages[i] = i;
    own.in[0].data = (float *)c->in[0].data + row * c->in[0].dim[2];
    own.in[0].dim[0] = own.in[0].dim[1] = 1;
    own.out.dim[0] = own.out.dim[1] = 1;
    own.out.data = out;
    own.in[3] = (struct cpu_tensor){0};
    own.n_in = 3;
    own.attr = &attr;
    own.table = &table;
    own.head_map = &zero;
    for (int i = 1; i < 3; i++)
        move_seen(b, i, t, kv, at, n, &own.in[i]);
    call_run(KERNEL_SET_GENERIC, KERNEL_attention, own, 1);
    assert_memory_equal(out, (float *)c->out.data + row * e, (size_t)e * 4);
    free(own.in[1].data);
    free(own.in[2].data);
}

/* Draws k different blocks in ascending order, for each token and KV head; for
 * a token with at most k blocks any numbers. */
static void draw_blocks(struct batch *b, uint64_t *seed)
{
    const struct cpu_tensor *x = &b->call.in[3];
    int32_t *chosen = x->data;
    const int k = (int)x->dim[2];

    for (int64_t i = 0; i < x->dim[0] * x->dim[1] * k; i++) {
        int own = b->pos[i / k / x->dim[1]] / b->attr.block;
        int least = i % k ? chosen[i - 1] + 1 : 0, most = own - k + 1;

        most += (int)(i % k);
        chosen[i] = own < k ? (int)test_below(seed, 99) - 9
                            : least + (int)test_below(seed, most - least + 1);
    }
}

/* Every cache format, BF16 products; blocks of whole pages and others; KV heads
 * with other choices, with and without the token's own block; query heads in
 * any order; so many positions that threads divide spans. */
TEST(cpu_attention_attends_to_chosen_blocks)
{
    static const struct {
        int n_tok, last, n_head, n_kv, d, e, k, block;
        bool crossed;
    } sizes[] = {{1, 760, 6, 2, 96, 64, 5, 128, false},
                 {5, 140, 24, 4, 32, 20, 9, 7, false},
                 {9, 200, 3, 1, 64, 32, 2, 64, false},
                 {24, 90, 4, 2, 32, 32, 5, 3, true},
                 {3, 600, 2, 2, 7, 3, 3, 100, false},
                 {2, 500, 9, 3, 64, 64, 2, 192, true},
                 {1, 740, 5, 2, 32, 32, 300, 2, true},
                 {12, 300, 1, 1, 32, 1, 290, 1, false},
                 {2, 60, 4, 2, 32, 20, 800, 1, false}};
    uint64_t seed = test_seed();

    for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 3, d = sizes[k].d, e = sizes[k].e, n = sizes[k].n_tok;
        int n_kv = sizes[k].n_kv, n_head = sizes[k].n_head;
        bool plain = d % 32 || e % 32;
        struct batch b;
        struct cpu_call *c = &b.call;

        batch_tokens(&b, n, sizes[k].last, &seed);
        b.attr.scale = 0.25f;
        b.attr.block = sizes[k].block;
        b.attr.bf16 = i % 3 == 2;
        c->n_in = 4;
        c->head_map = b.head_map;
        for (int h = 0; h < n_head; h++)
            b.head_map[h] = sizes[k].crossed ? h % n_kv : h * n_kv / n_head;
        c->in[0] =
            call_tensor(PL_F32, 3, (const int64_t[]){n, n_head, d}, 1, &seed);
        batch_cache(&b, &c->in[1],
                    cache_formats[plain ? i % 3 : i % N_CACHE_FORMAT], false,
                    n_kv, d, &seed);
        batch_cache(
            &b, &c->in[2],
            cache_formats[plain ? (i + 1) % 3 : (i + 2) % N_CACHE_FORMAT], true,
            n_kv, e, &seed);
        c->in[3] = call_tensor(
            PL_F32, 3, (const int64_t[]){n, n_kv, sizes[k].k}, 1, &seed);
        c->in[3].format = PL_I32;
        draw_blocks(&b, &seed);
        c->out =
            call_tensor(PL_F32, 3, (const int64_t[]){n, n_head, e}, 1, &seed);
        call_all(KERNEL_attention_blocks, c, (size_t)(n * n_head * e) * 4);
        for (int t = 0; t < n; t++)
            for (int h = 0; h < n_head; h++)
                check_head(&b, t, h);
        for (int j = 0; j < 4; j++)
            free(c->in[j].data);
        free(c->out.data);
    }
}

/* ---- attention to a window and to blocks --------------------------------- */

/* Computes latent attention to a cache that has the keys of token t's window
 * and blocks as the first positions of a sequence, and compares the bits. */
static void check_compressed(const struct batch *b, int t)
{
    const struct cpu_call *c = &b->call;
    const int64_t k = c->in[4].data ? c->in[4].dim[1] : INT64_MAX;
    const int64_t end = b->pos[t] + 1, n = end / b->attr.ratio;
    const int64_t n_near = end < b->attr.window ? end : b->attr.window;
    const int64_t row = c->out.dim[1] * c->out.dim[2];
    const int n_kv = (int)c->in[1].dim[1], d = (int)c->in[1].dim[2];
    const pl_format f = c->in[1].format;
    const size_t bytes = cache_tile_bytes(f, d);
    const struct graph_attr attr = {
        .scale = b->attr.scale, .d_value = d, .bf16 = b->attr.bf16};
    int32_t pages[MAX_PAGE], pos = (int32_t)(n_near + (n < k ? n : k)) - 1;
    int32_t seq = 0;
    struct token_table table = {1, 1, &pos, &seq, pages, MAX_PAGE};
    struct cpu_call own = *c;
    char *out = test_need((size_t)row, 4);

    own.attr = &attr;
    own.in[0].data = (float *)c->in[0].data + t * row;
    own.in[0].dim[0] = own.out.dim[0] = 1;
    own.in[1].data = test_need((size_t)(MAX_PAGE * n_kv), bytes);
    own.in[2] = own.in[4] = (struct cpu_tensor){0};
    own.table = &table;
    own.out.data = out;
    for (int i = 0; i < MAX_PAGE; i++)
        pages[i] = i;
    for (int64_t j = 0; j <= pos; j++)
        for (int kv = 0; kv < n_kv; kv++) {
            int64_t i = j - n_near, u = end - n_near + j;
            char raw[4 * MAX_D];

            if (i >= 0) {
                u = n > k ? ((const int32_t *)c->in[4].data)[t * k + i] : i;
                u = u < 0 ? 0 : u < n ? u : n - 1;
                u = (u + 1) * b->attr.ratio - 1;
            }
            cache_row_read(
                f, d, true,
                (char *)c->in[i < 0 ? 1 : 2].data +
                    (size_t)(b->pages[b->seq[t] * b->table.page_stride +
                                      u / PAGE_TOKENS] *
                                 n_kv +
                             kv) *
                        bytes,
                (int)(u % PAGE_TOKENS), raw);
            cache_row_write(f, d, true,
                            (char *)own.in[1].data +
                                (size_t)(j / PAGE_TOKENS * n_kv + kv) * bytes,
                            (int)(j % PAGE_TOKENS), raw);
        }
    call_run(KERNEL_SET_GENERIC, KERNEL_latent_attention, own, 1);
    assert_memory_equal(out, (float *)c->out.data + t * row, (size_t)row * 4);
    free(own.in[1].data);
    free(out);
}

/* Every cache format, BF16 products; tokens with fewer than `window` positions,
 * without a block, with all blocks and with chosen ones. */
TEST(cpu_compressed_attention_attends_to_a_window_and_blocks)
{
    static const struct {
        int n_tok, last, n_head, n_kv, d, window, ratio, k; /* k 0: all */
    } sizes[] = {{1, 700, 6, 1, 96, 128, 4, 100}, {5, 140, 24, 1, 32, 8, 4, 3},
                 {9, 64, 3, 1, 64, 70, 128, 0},   {24, 90, 4, 2, 32, 9, 4, 0},
                 {3, 600, 2, 1, 7, 300, 2, 0},    {12, 300, 1, 1, 32, 1, 4, 74},
                 {2, 700, 9, 1, 64, 128, 128, 0}};
    uint64_t seed = test_seed();

    for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 3, d = sizes[k].d, n = sizes[k].n_tok;
        int64_t heads = sizes[k].n_head;
        pl_format f = cache_formats[d % 32 ? i % 3 : i % N_CACHE_FORMAT];
        struct batch b;
        struct cpu_call *c = &b.call;

        batch_tokens(&b, n, sizes[k].last, &seed);
        b.attr.scale = 0.25f;
        b.attr.window = sizes[k].window;
        b.attr.ratio = sizes[k].ratio;
        b.attr.bf16 = i % 3 == 2;
        c->n_in = sizes[k].k ? 5 : 4;
        c->head_map = b.head_map;
        for (int h = 0; h < heads; h++)
            b.head_map[h] = h * sizes[k].n_kv / (int)heads;
        c->in[0] =
            call_tensor(PL_F32, 3, (const int64_t[]){n, heads, d}, 1.0f, &seed);
        batch_cache(&b, &c->in[1], f, true, sizes[k].n_kv, d, &seed);
        batch_cache(&b, &c->in[2], f, true, sizes[k].n_kv, d, &seed);
        c->in[3] = call_tensor(PL_F32, 1, &heads, 1.0f, &seed);
        if (sizes[k].k) {
            c->in[4] = call_tensor(PL_F32, 2, (const int64_t[]){n, sizes[k].k},
                                   1, &seed);
            c->in[4].format = PL_I32;
            for (int j = 0; j < n * sizes[k].k; j++)
                ((int32_t *)c->in[4].data)[j] =
                    (int32_t)test_below(&seed, sizes[k].last) - 1;
        }
        c->out =
            call_tensor(PL_F32, 3, (const int64_t[]){n, heads, d}, 1, &seed);
        call_all(KERNEL_compressed_attention, c, (size_t)(n * heads * d) * 4);
        for (int t = 0; t < n; t++)
            check_compressed(&b, t);
        for (int j = 0; j < 5; j++)
            free(c->in[j].data);
        free(c->out.data);
    }
}

/* ---- means of blocks ----------------------------------------------------- */

/* Returns the mean of channel i for token t in double precision. */
static double mean_of(const struct batch *b, int t, int64_t i)
{
    const struct cpu_call *c = &b->call;
    const int64_t ratio = c->in[2].dim[0], w = c->in[2].dim[1];
    const int64_t d = c->out.dim[1], end = b->pos[t] + 1;
    const int64_t first = end - (w > d && end > ratio ? 2 : 1) * ratio;
    double sum = 0, all = 0;

    if (end % ratio != 0)
        return 0;
    for (int64_t u = first; u < end; u++) {
        int64_t at = u < end - ratio ? i : w - d + i;
        float x[MAX_D];
        double p;

        read_row(b, t, u, 0, x);
        p = exp((double)x[w + at] +
                (double)call_value(&c->in[2], u % ratio * w + at));
        all += p;
        sum += p * (double)x[at];
    }
    return sum / all;
}

/* Blocks that overlap and blocks that do not, of one page and of two; the first
 * block; tokens that end no block; a bias of each format. */
TEST(cpu_block_mean_weighs_tokens_by_their_gates)
{
    static const struct {
        int n_tok, last, ratio, d;
        bool both;
    } sizes[] = {{12, 40, 4, 17, true},
                 {24, 90, 4, 24, true},
                 {7, 258, 128, 40, false},
                 {9, 130, 128, 3, false},
                 {24, 70, 2, 20, false}};
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    uint64_t seed = test_seed();

    for (int i = 0; i < 3 * (int)(sizeof sizes / sizeof *sizes); i++) {
        int k = i / 3, n = sizes[k].n_tok, d = sizes[k].d, n_end = 0;
        int w = sizes[k].both ? 2 * d : d;
        struct batch b;
        struct cpu_call *c = &b.call;

        batch_tokens(&b, n, sizes[k].last, &seed);
        c->n_in = 3;
        batch_cache(&b, &c->in[0], PL_F32, true, 1, 2 * w, &seed);
        c->in[1] = (struct cpu_tensor){b.pos, PL_I32, 1, {n}, NULL};
        c->in[2] = call_tensor(formats[i % 3], 2,
                               (const int64_t[]){sizes[k].ratio, w}, 1, &seed);
        c->out = call_tensor(PL_F32, 2, (const int64_t[]){n, d}, 1, &seed);
        call_all(KERNEL_block_mean, c, (size_t)(n * d) * 4);
        for (int t = 0; t < n; t++) {
            n_end += (b.pos[t] + 1) % sizes[k].ratio == 0;
            for (int j = 0; j < d; j++) {
                double want = mean_of(&b, t, j);
                double got = (double)((float *)c->out.data)[t * d + j];

                if (!(fabs(got - want) <= 1e-5))
                    fail_msg("%d, token %d, channel %d: %g, not %g", k, t, j,
                             got, want);
            }
        }
        assert_in_range(n_end, 1, n - 1);
        free(c->in[0].data);
        free(c->in[2].data);
        free(c->out.data);
    }
}
