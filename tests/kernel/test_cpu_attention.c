/* Attention and its cache against a naive softmax in double, and against
 * itself: kernel sets, threads, other tokens, page numbers do not change bits.
 *
 * Cache slots that a token may not see are NaN: slots never written, keys after
 * its position (unless other tokens of the batch need them), keys before every
 * window. One trace of them in a sum would show. */
#include "base/bf16.h"
#include "device/cpu/cpu_lanes_math.h"
#include "lib/cache_formats.h"
#include "lib/cache_rows.h"
#include "lib/cpu_call.h"
#include "quant/format.h"

#include <math.h>

enum { MAX_TOK = 100, MAX_SEQ = 70, SPAN = 256 };

/* A setting; zeros mean: F32 caches, no window, no soft cap. */
struct setting {
    int n_head, n_kv, d, e;
    bool latent; /* the values are the first e of a key's d */
    bool both;   /* bidirectional: tokens see later positions, too */
    bool bf16;   /* true for products of BF16 */
    pl_format key, value;
    int window;
    float softcap;
    bool sinks;
    int room; /* number of empty pages in each sequence's page table */
    int n_seq;
    struct {
        int first, n; /* tokens at positions first .. first + n - 1 */
    } seq[MAX_SEQ];
};

/* A setting filled with data. */
struct scene {
    struct setting s;
    struct graph_attr attr;
    struct token_table table;
    struct cpu_call call;
    int32_t pos[MAX_TOK], seq[MAX_TOK], head_map[64];
    int64_t n_page;
    size_t out_bytes;
};

static size_t tile_bytes(const struct cpu_tensor *t)
{
    return cache_tile_bytes(t->format, t->dim[2]);
}

static char *tile(const struct scene *s, const struct cpu_tensor *cache,
                  int seq, int64_t pos, int head)
{
    int64_t page =
        s->table.pages[seq * s->table.page_stride + pos / PAGE_TOKENS];

    return (char *)cache->data +
           (size_t)(page * cache->dim[1] + head) * tile_bytes(cache);
}

static enum kernel kernel_of(const struct setting *s)
{
    return s->latent ? KERNEL_latent_attention
           : s->both ? KERNEL_bidirectional_attention
                     : KERNEL_attention;
}

/* Writes positions lo .. hi - 1 of a sequence through the kernel, `values`
 * times per token's width. The numbers depend only on the position. */
static void fill(const struct scene *s, const struct cpu_tensor *cache,
                 bool values, int seq, int64_t lo, int64_t hi)
{
    const struct graph_attr attr = {.values = values};
    int64_t n = hi - lo;
    int64_t dim[] = {n, cache->dim[1], cache->dim[2]};
    struct token_table b = s->table;
    struct cpu_call c = {.out = *cache, .n_in = 2, .attr = &attr, .table = &b};
    uint64_t seed = 77 + (uint64_t)(2 * seq + values);
    int32_t *pos = malloc((size_t)n * 4 + 1);
    int32_t *row = malloc((size_t)n * 4 + 1);
    float *x;

    assert_true(pos != NULL && row != NULL);
    c.in[0] = *cache;
    c.in[1] = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
    x = c.in[1].data;
    for (int64_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(lo + i);
        row[i] = seq;
        seed = 1000003 * (uint64_t)(lo + i) + (uint64_t)(2 * seq + values);
        for (int64_t j = 0; j < dim[1] * dim[2]; j++)
            *x++ = 2 * test_unit(&seed);
    }
    b.n_tok = n;
    b.pos = pos;
    b.seq = row;
    call_run(KERNEL_SET_GENERIC, KERNEL_cache_write, c, 2);
    free(c.in[1].data);
    free(pos);
    free(row);
}

/* Returns the least position that any token of sequence `seq` sees. */
static int64_t first_seen(const struct setting *s, int seq)
{
    int64_t first = (int64_t)s->seq[seq].first - s->window + 1;

    return s->window > 0 && first > 0 ? first : 0;
}

static void scene_fill(struct scene *s)
{
    for (int i = 1; i < (s->s.latent ? 2 : 3); i++) {
        struct cpu_tensor *t = &s->call.in[i];

        memset(t->data, 0xff, (size_t)(s->n_page * t->dim[1]) * tile_bytes(t));
        for (int q = 0; q < s->s.n_seq; q++)
            fill(s, t, i == 2 || s->s.latent, q, first_seen(&s->s, q),
                 s->s.seq[q].first + s->s.seq[q].n);
    }
}

/* Assigns all pages at random. */
static void scene_pages(struct scene *s, uint64_t *seed)
{
    int32_t *page = (int32_t *)(uintptr_t)s->table.pages;

    for (int32_t i = 0; i < s->n_page; i++) {
        int64_t j = test_below(seed, i + 1);

        page[i] = page[j];
        page[j] = i;
    }
}

/* Sets operand `ends` of bidirectional attention: mostly the last position of
 * the token's sequence, sometimes any from its own on. */
static void scene_ends(struct scene *s, uint64_t *seed)
{
    const int64_t n = s->table.n_tok;
    int32_t *end = test_need((size_t)n, sizeof *end);

    for (int64_t t = 0; t < n; t++) {
        int64_t last = s->s.seq[s->seq[t]].first + s->s.seq[s->seq[t]].n - 1;
        int64_t less = test_below(seed, 4) ? 0 : last - s->pos[t];

        end[t] = (int32_t)(last - test_below(seed, less + 1));
    }
    s->call.in[3] = (struct cpu_tensor){end, PL_I32, 1, {n}, NULL};
}

static void scene_init(struct scene *s, const struct setting *set,
                       uint64_t *seed)
{
    int64_t n_tok = 0;
    int64_t last = 0;
    struct cpu_call *c = &s->call;

    *s = (struct scene){.s = *set};
    s->attr.scale = 1.0f / sqrtf((float)set->d);
    s->attr.window = set->window;
    s->attr.softcap = set->softcap;
    s->attr.bf16 = set->bf16;
    for (int q = 0; q < set->n_seq; q++) {
        for (int i = 0; i < set->seq[q].n; i++) {
            s->pos[n_tok] = set->seq[q].first + i;
            s->seq[n_tok++] = q;
        }
        if (set->seq[q].first + set->seq[q].n > last)
            last = set->seq[q].first + set->seq[q].n;
    }
    assert_in_range(n_tok, 1, MAX_TOK);
    s->table =
        (struct token_table){.n_tok = n_tok,
                             .n_out = n_tok,
                             .pos = s->pos,
                             .seq = s->seq,
                             .page_stride = last / PAGE_TOKENS + 2 + set->room};
    s->n_page = s->table.page_stride * set->n_seq;
    s->table.pages = test_need(1, (size_t)s->n_page * 4);
    scene_pages(s, seed);

    c->n_in = set->latent ? 2 : 4;
    s->attr.d_value = set->latent ? set->e : 0;
    c->attr = &s->attr;
    c->table = &s->table;
    c->head_map = s->head_map;
    c->in[0] = call_tensor(
        PL_F32, 3, (const int64_t[]){n_tok, set->n_head, set->d}, 2.0f, seed);
    c->in[1] = (struct cpu_tensor){
        NULL, set->key, 3, {s->n_page * PAGE_TOKENS, set->n_kv, set->d}, NULL};
    if (!set->latent)
        c->in[2] =
            (struct cpu_tensor){NULL,
                                set->value,
                                3,
                                {s->n_page * PAGE_TOKENS, set->n_kv, set->e},
                                NULL};
    if (set->sinks)
        c->in[3] =
            call_tensor(PL_F32, 1, (const int64_t[]){set->n_head}, 3.0f, seed);
    if (set->both)
        scene_ends(s, seed);
    for (int i = 1; i < (set->latent ? 2 : 3); i++) {
        c->in[i].data = aligned_alloc(64, (size_t)(s->n_page * set->n_kv) *
                                              tile_bytes(&c->in[i]));
        assert_non_null(c->in[i].data);
    }
    scene_fill(s);
    c->out = call_tensor(
        PL_F32, 3, (const int64_t[]){n_tok, set->n_head, set->e}, 1.0f, seed);
    s->out_bytes = (size_t)(n_tok * set->n_head * set->e) * 4;
    /* any map is allowed: the last KV head gets most, out of order */
    for (int h = 0; h < set->n_head; h++)
        s->head_map[h] = h < set->n_kv ? set->n_kv - 1 - h
                         : h % 3 == 0  ? (int32_t)test_below(seed, set->n_kv)
                                       : set->n_kv - 1;
}

static void scene_fini(struct scene *s)
{
    for (int i = 0; i < 4; i++)
        free(s->call.in[i].data);
    free(s->call.out.data);
    free((void *)(uintptr_t)s->table.pages);
}

/* Reads a key or its value; of latents both are one. */
static void read_row(const struct scene *s, int which, int seq, int64_t pos,
                     int head, float *x)
{
    const struct cpu_tensor *t = &s->call.in[s->s.latent ? 1 : which];
    char raw[4 * 512];

    cache_row_read(t->format, t->dim[2], which == 2 || s->s.latent,
                   tile(s, t, seq, pos, head), (int)(pos % PAGE_TOKENS), raw);
    format_info(t->format)->decode(x, raw, t->dim[2]);
}

/* Returns x as the kernel multiplies it: rounded to BF16 if products are of
 * BF16. */
static float taken(const struct scene *s, float x)
{
    return s->s.bf16 ? bf16_to_f32(bf16_round(x)) : x;
}

/* Returns the last position that token t sees. */
static int64_t last_seen(const struct scene *s, int t)
{
    int64_t last = s->s.both ? ((int32_t *)s->call.in[3].data)[t] : s->pos[t];

    return s->s.window > 0 && last - s->pos[t] >= s->s.window
               ? s->pos[t] + s->s.window - 1
               : last;
}

/* Checks token t, query head h by the definition, to 2e-6 of values of up to 2
 * (sums of some thousand products in float). A probability rounded to BF16 is
 * off by at most 2^-9 of itself. */
static void check_head(const struct scene *s, int t, int h)
{
    const struct setting *set = &s->s;
    const float *q =
        (float *)s->call.in[0].data + (int64_t)(t * set->n_head + h) * set->d;
    const float *got =
        (float *)s->call.out.data + (int64_t)(t * set->n_head + h) * set->e;
    double sum = 0;
    double acc[512] = {0};
    float x[512];
    int64_t first = set->window > 0 ? s->pos[t] - set->window + 1 : 0;
    double limit = set->bf16 ? 4e-6 + 2 * 0x1p-9 : 4e-6;

    if (set->sinks)
        sum = exp((double)((float *)s->call.in[3].data)[h]);
    for (int64_t u = first > 0 ? first : 0; u <= last_seen(s, t); u++) {
        double p = 0;

        read_row(s, 1, s->seq[t], u, s->head_map[h], x);
        for (int i = 0; i < set->d; i++)
            p += (double)taken(s, q[i]) * (double)taken(s, x[i]);
        p *= (double)s->attr.scale;
        if (set->softcap != 0)
            p = (double)set->softcap * tanh(p / (double)set->softcap);
        p = exp(p);
        sum += p;
        read_row(s, 2, s->seq[t], u, s->head_map[h], x);
        for (int i = 0; i < set->e; i++)
            acc[i] += p * (double)taken(s, x[i]);
    }
    for (int i = 0; i < set->e; i++) {
        if (!(fabs((double)got[i] - acc[i] / sum) <= limit))
            fail_msg("token %d head %d value %d: %.9g instead of %.9g", t, h, i,
                     (double)got[i], acc[i] / sum);
    }
}

/* The order of additions that cpu_attention_template.h states, one number at a
 * time. It gives the kernels' bits, not only their values. */
struct spec {
    float m, l[16], acc[512];
};

static float spec_exp(float x)
{
    float y[LANES];

    lanes_store(y, lanes_exp(lanes_set(x)));
    return y[0];
}

/* Computes a score before it is scaled. */
static float spec_score(const struct scene *s, const float *q, const float *x)
{
    float p = 0;

    if (!s->s.bf16)
        for (int i = 0; i < s->s.d; i++)
            p = fmaf(q[i], x[i], p);
    for (int i = 0; s->s.bf16 && i < s->s.d; i += 2) {
        bool both = i + 1 < s->s.d;

        p = bf16_pair_add(p, bf16_pair(q[i], both ? q[i + 1] : 0),
                          bf16_pair(x[i], both ? x[i + 1] : 0));
    }
    return p;
}

/* Adds the values of positions u and u + 1 to acc; [lo, hi) of them are
 * seen. */
static void spec_pair(const struct scene *s, int t, int h, int64_t u,
                      int64_t lo, int64_t hi, const float p[2], float *acc)
{
    float x[2][512] = {{0}};
    float q[2] = {0};

    for (int j = 0; j < 2; j++) {
        if (u + j < lo || u + j >= hi)
            continue;
        q[j] = p[j];
        read_row(s, 2, s->seq[t], u + j, s->head_map[h], x[j]);
    }
    for (int i = 0; i < s->s.e; i++)
        acc[i] = bf16_pair_add(acc[i], bf16_pair(q[0], q[1]),
                               bf16_pair(x[0][i], x[1][i]));
}

/* Computes the positions lo .. hi - 1 of one span. */
static void spec_span(const struct scene *s, int t, int h, int64_t lo,
                      int64_t hi, struct spec *o)
{
    const struct setting *set = &s->s;
    const float *q =
        (float *)s->call.in[0].data + (int64_t)(t * set->n_head + h) * set->d;
    float x[512], p[PAGE_TOKENS];

    *o = (struct spec){.m = -INFINITY};
    for (int64_t b = lo / PAGE_TOKENS * PAGE_TOKENS; b < hi; b += PAGE_TOKENS) {
        float m = o->m;
        float f;

        for (int64_t u = b; u < b + PAGE_TOKENS; u++) {
            if (u < lo || u >= hi)
                continue;
            read_row(s, 1, s->seq[t], u, s->head_map[h], x);
            p[u - b] = spec_score(s, q, x) * s->attr.scale;
            m = p[u - b] > m ? p[u - b] : m;
        }
        f = spec_exp(o->m - m);
        o->m = m;
        for (int i = 0; i < 16; i++)
            o->l[i] *= f;
        for (int i = 0; i < set->e; i++)
            o->acc[i] *= f;
        for (int64_t u = b; u < b + PAGE_TOKENS; u++) {
            if (u < lo || u >= hi)
                continue;
            f = p[u - b] = spec_exp(p[u - b] - m);
            o->l[u % 16] += f;
            read_row(s, 2, s->seq[t], u, s->head_map[h], x);
            for (int i = 0; !set->bf16 && i < set->e; i++)
                o->acc[i] = fmaf(f, x[i], o->acc[i]);
        }
        for (int64_t u = b; set->bf16 && u < b + PAGE_TOKENS; u += 2)
            if (u + 1 >= lo && u < hi)
                spec_pair(s, t, h, u, lo, hi, p + (u - b), o->acc);
    }
}

/* Computes n spans from `first`, positions lo .. hi - 1 of them. */
static void spec_tree(const struct scene *s, int t, int h, int64_t first,
                      int64_t n, int64_t lo, int64_t hi, struct spec *o)
{
    struct spec b;
    int64_t left = 1;
    float m, fa, fb;

    if (n == 1) {
        spec_span(s, t, h, lo > first * SPAN ? lo : first * SPAN,
                  hi < (first + 1) * SPAN ? hi : (first + 1) * SPAN, o);
        return;
    }
    while (2 * left < n)
        left *= 2;
    spec_tree(s, t, h, first, left, lo, hi, o);
    spec_tree(s, t, h, first + left, n - left, lo, hi, &b);
    m = o->m > b.m ? o->m : b.m;
    fa = spec_exp(o->m - m);
    fb = spec_exp(b.m - m);
    o->m = m;
    for (int i = 0; i < 16; i++)
        o->l[i] = fmaf(b.l[i], fb, o->l[i] * fa);
    for (int i = 0; i < s->s.e; i++)
        o->acc[i] = fmaf(b.acc[i], fb, o->acc[i] * fa);
}

static void check_bits(const struct scene *s, int t, int h)
{
    const float *got =
        (float *)s->call.out.data + (int64_t)(t * s->s.n_head + h) * s->s.e;
    int64_t hi = last_seen(s, t) + 1, next = s->pos[t] + 1;
    int64_t lo = s->s.window > 0 && next > s->s.window ? next - s->s.window : 0;
    struct spec o;

    spec_tree(s, t, h, lo / SPAN, (hi - 1) / SPAN - lo / SPAN + 1, lo, hi, &o);
    for (int w = 8; w > 0; w /= 2) {
        for (int i = 0; i < w; i++)
            o.l[i] = o.l[i] + o.l[i + w];
    }
    if (s->s.sinks)
        o.l[0] += spec_exp(((float *)s->call.in[3].data)[h] - o.m);
    for (int i = 0; i < s->s.e; i++)
        assert_true(got[i] == o.acc[i] / o.l[0]);
}

static void check_one(const struct setting *set, uint64_t *seed)
{
    struct scene s;
    float *first;
    int n_tok, tok_step, head_step;

    scene_init(&s, set, seed);
    n_tok = (int)s.table.n_tok;
    call_all(kernel_of(set), &s.call, s.out_bytes);
    tok_step = n_tok > 17 ? 7 : 1;
    head_step = set->n_head > 4 ? 3 : 1;
    for (int t = 0; t < n_tok; t += tok_step) {
        for (int h = 0; h < set->n_head; h += head_step) {
            check_head(&s, t, h);
            if (set->softcap == 0 && set->d <= 32)
                check_bits(&s, t, h);
        }
    }
    first = malloc(s.out_bytes);
    memcpy(first, s.call.out.data, s.out_bytes);
    scene_pages(&s, seed);
    scene_fill(&s);
    call_run(kernel_set_best(), kernel_of(set), s.call, 2);
    assert_memory_equal(s.call.out.data, first, s.out_bytes);
    free(first);
    scene_fini(&s);
}

static void check(const struct setting *set, uint64_t *seed)
{
    struct setting fast = *set;

    /* only a third of the cases, because plain C is slow with BF16 */
    fast.bf16 = test_below(seed, 3) == 0;
    check_one(&fast, seed);
}

/* ---- the cases ----------------------------------------------------------- */

/* Each format of keys with two of values, in the long tier with all. */
TEST(cpu_attention_equals_double_in_every_format)
{
    enum { N = N_CACHE_FORMAT };
    uint64_t seed = test_seed();

    for (int k = 0; k < (test_long() ? N * N : 2 * N); k++)
        check(&(struct setting){.n_head = 6,
                                .n_kv = 2,
                                .d = 64,
                                .e = k % 2 == 0 ? 96 : 32,
                                .key = cache_formats[k % N],
                                .value = cache_formats[(k + k / N * 4) % N],
                                .n_seq = 1,
                                .seq = {{90 + k, 9}}},
              &seed);
}

TEST(cpu_attention_any_head_size)
{
    static const int size[][2] = {{4, 4},    {8, 20},   {16, 16}, {80, 80},
                                  {96, 128}, {128, 64}, {7, 33},  {256, 256}};
    uint64_t seed = test_seed();

    for (int k = 0; k < 8; k++)
        check(&(struct setting){.n_head = 1 + k,
                                .n_kv = 1 + k / 3,
                                .d = size[k][0],
                                .e = size[k][1],
                                .key = PL_F16,
                                .value = k % 2 ? PL_F32 : PL_F16,
                                .n_seq = 1,
                                .seq = {{61, 5}}},
              &seed);
}

/* Any number of query heads a KV head; so few tokens that the cache's own
 * elements are read, one more than that, and more than a tile has. Their
 * positions cross blocks and a span. */
TEST(cpu_attention_any_number_of_rows)
{
    static const int first[] = {250, 0, 63, 180};
    static const int d[] = {16, 20, 7, 32}, e[] = {33, 16, 20, 64};
    uint64_t seed = test_seed();

    for (int n = 1; n <= 8; n++) {
        const int n_tok[] = {1, 8 / n + 1, 7, 96 / n + 1};
        const pl_format formats[] = {PL_F16, PL_F32, PL_BF16, cache_block(n)};

        for (int k = 0; k < 4; k++)
            check(
                &(struct setting){.n_head = n,
                                  .n_kv = 1,
                                  .d = d[(n + k) % 4],
                                  .e = e[(n + k) % 4],
                                  .key = formats[(n + k) % 4],
                                  .value = formats[(n + k) % 4],
                                  .window = (n + k) % 3 == 0 ? 70 : 0,
                                  .sinks = n % 2,
                                  .n_seq = 1,
                                  .seq = {{first[(n / 2 + k) % 4], n_tok[k]}}},
                &seed);
    }
}

/* So many tokens that a device computes them in tiles. */
TEST(cpu_attention_of_prompts)
{
    static const int size[][2] = {{32, 128}, {40, 100}, {64, 32}, {7, 64}};
    uint64_t seed = test_seed();

    for (int k = 0; k < 16; k++) {
        /* odd cases have formats of floats only */
        int any = k % 2 ? N_CACHE_FLOAT : N_CACHE_FORMAT;

        check(&(struct setting){.n_head = 2 + k % 5,
                                .n_kv = 1 + k % 2,
                                .d = size[k % 4][0],
                                .e = size[k % 4][1],
                                .key = cache_formats[k / 2 % any],
                                .value = cache_formats[(k / 2 + 4) % any],
                                .window = k % 3 == 1 ? 90 : 0,
                                .softcap = k % 6 == 5 ? 2.0f : 0,
                                .sinks = k % 2,
                                .n_seq = 1 + k % 2,
                                .seq = {{37 * k, 60}, {240, 33}}},
              &seed);
    }
}

TEST(cpu_attention_windows_cross_blocks_and_spans)
{
    static const int window[] = {1, 2, 8, 63, 64, 65, 130, 256, 1100};
    static const int first[] = {0, 60, 120, 1020, 1085};
    uint64_t seed = test_seed();

    for (int w = 0; w < 9; w++) {
        for (int f = 0; f < 5; f++)
            check(&(struct setting){.n_head = 2,
                                    .n_kv = 1,
                                    .d = 16,
                                    .e = 16,
                                    .key = PL_F16,
                                    .value = PL_BF16,
                                    .window = window[w],
                                    .sinks = (w + f) % 2,
                                    .n_seq = 1,
                                    .seq = {{first[f], 17}}},
                  &seed);
    }
}

TEST(cpu_attention_merges_spans_of_long_contexts)
{
    static const int first[] = {255, 256, 1023, 3000, 7200, 33500};
    uint64_t seed = test_seed();

    for (int k = 0; k < 6; k++)
        check(&(struct setting){.n_head = 3,
                                .n_kv = 1,
                                .d = 16,
                                .e = k < 5 ? 32 : 8,
                                .key = PL_F16,
                                .value = PL_F16,
                                .sinks = k % 2,
                                .n_seq = 1,
                                .seq = {{first[k], 2}}},
              &seed);
}

/* So many heads, tokens and cache slots that a device computes them in parts,
 * or several spans one after another. */
TEST(cpu_attention_of_much_at_once)
{
    const struct setting set[] = {
        {.n_head = 40, .n_kv = 33, .seq = {{520, 32}}},
        {.n_head = 64, .n_kv = 8, .window = 300, .seq = {{450, MAX_TOK}}},
        {.n_head = 48, .n_kv = 8, .room = 9000, .seq = {{500, 12}}},
        {.n_head = 48, .n_kv = 1, .room = 9000, .seq = {{500, 12}}},
        {.n_head = 16, .n_kv = 1, .room = 8000, .seq = {{4090, 33}}},
    };
    uint64_t seed = test_seed();

    for (int k = 0; k < 5; k++) {
        struct setting s = set[k];

        s.d = s.e = 4;
        s.key = s.value = PL_F16;
        s.latent = k == 3;
        s.n_seq = 1;
        check(&s, &seed);
    }
}

TEST(cpu_attention_softcap_and_sinks)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < 4; k++)
        check(&(struct setting){.n_head = 4,
                                .n_kv = 2,
                                .d = 64,
                                .e = 64,
                                .key = PL_F16,
                                .value = PL_F16,
                                .softcap = k & 1 ? 1.5f : 0,
                                .sinks = k & 2,
                                .n_seq = 1,
                                .seq = {{100, 3}}},
              &seed);
}

TEST(cpu_attention_two_sequences_in_a_batch)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < 6; k++)
        check(&(struct setting){.n_head = 5,
                                .n_kv = 2,
                                .d = 32,
                                .e = 32,
                                .key = PL_F16,
                                .value = PL_Q8_0,
                                .window = k % 2 ? 40 : 0,
                                .n_seq = 2,
                                .seq = {{k * 30, 1 + 7 * k}, {200, 1 + k}}},
              &seed);
}

/* Tokens that see later ones: in the same block, in later blocks and spans, of
 * a text or of one that goes on; with and without a window. */
TEST(cpu_bidirectional_attention_equals_double)
{
    static const int window[] = {0, 0, 1, 2, 40, 64, 65, 300};
    static const int n[] = {1, 17, 64, 65, 90};
    uint64_t seed = test_seed();

    for (int k = 0; k < 16; k++)
        check(&(struct setting){.n_head = 1 + k % 3,
                                .n_kv = 1,
                                .d = 16 + 16 * (k % 2),
                                .e = 16,
                                .both = true,
                                .key = cache_formats[k % 3],
                                .value = k % 5 ? PL_F16 : PL_F32,
                                .window = window[k % 8],
                                .softcap = k % 7 == 3 ? 5 : 0,
                                .n_seq = 2,
                                .seq = {{k % 4 ? 0 : 230, n[k % 5]},
                                        {k % 3 * 200, 1 + k % 9}}},
              &seed);
}

/* As in generation: about as many sequences as tokens, more than a device takes
 * for few, with a prompt among them. */
TEST(cpu_attention_many_sequences_in_a_batch)
{
    static const int n_seq[] = {9, 33, 40, 70}, heads[] = {1, 4, 6, 2};
    uint64_t seed = test_seed();

    for (int k = 0; k < 8; k++) {
        struct setting s = {.n_head = heads[k % 4],
                            .n_kv = 1 + k % 2,
                            .d = 16,
                            .e = 20,
                            .latent = k >= 6,
                            .key = PL_F16,
                            .value = PL_F16,
                            .window = k == 5 ? 40 : 0,
                            .n_seq = n_seq[k % 4]};

        s.e = s.latent ? 12 : s.e;
        for (int q = 0; q < s.n_seq; q++) {
            s.seq[q].first = (int)test_below(&seed, 300);
            s.seq[q].n = q == 3 && k < 4 ? 1 + k * 4 : 1 + (q % 5 == 0);
        }
        check(&s, &seed);
    }
}

/* Any width and format, a value as wide as its key or narrower, any number of
 * query heads; positions that cross blocks and a span; two sequences. */
TEST(cpu_latent_attention_equals_double_in_every_format)
{
    static const int size[][2] = {{96, 64}, {20, 20}, {32, 7}, {48, 32},
                                  {7, 3},   {32, 32}, {64, 1}, {288, 256}};
    static const int first[] = {0, 60, 250, 1020};
    uint64_t seed = test_seed();
    int n_block = 0;

    for (int k = 0; k < 32; k++) {
        int wide = k / 4;
        pl_format f = k % 4 == 3 ? PL_F16 : cache_formats[k % 4];

        if (size[wide][0] % 32 == 0 && (k % 4 == 3 || wide == 6))
            f = cache_block(n_block++);
        check(&(struct setting){.n_head = 1 + k % 7 * 3,
                                .n_kv = 1 + (k % 5 == 0 && k % 7 > 0),
                                .d = size[wide][0],
                                .e = size[wide][1],
                                .latent = true,
                                .key = f,
                                .n_seq = 1 + k % 2,
                                .seq = {{first[k / 2 % 4], 1 + 5 * (k % 3)},
                                        {30 + k, 1 + k}}},
              &seed);
    }
}

/* n_tok = 1 .. 33: the batch gives what each token alone gives. */
TEST(cpu_attention_tokens_do_not_depend_on_company)
{
    uint64_t seed = test_seed();

    for (int n = 1; n <= 33; n++) {
        struct scene s;
        size_t width;

        scene_init(
            &s,
            &(struct setting){.n_head = 3,
                              .n_kv = 2,
                              .d = 32,
                              .e = 48,
                              .key = PL_F16,
                              .value = PL_F16,
                              .bf16 = n % 2,
                              .window = n % 3 == 0 ? 69 : 0,
                              .n_seq = 2,
                              .seq = {{20 * n, (n + 1) / 2}, {1000, n / 2}}},
            &seed);
        width = s.out_bytes / (size_t)n;
        call_run(KERNEL_SET_GENERIC, KERNEL_attention, s.call, 1);
        for (int f = KERNEL_SET_GENERIC; f < KERNEL_SET_COUNT; f++) {
            for (int t = 0; kernel_set_runs(f) && t < n; t++) {
                struct token_table b = s.table;
                struct cpu_call c = s.call;
                float out[3 * 48];

                if (f == KERNEL_SET_GENERIC && n % 8 != 0)
                    /* the generic kernels are slow, and were compared with the
                     * others above */
                    continue;
                b.n_tok = 1;
                b.pos += t;
                b.seq += t;
                c.table = &b;
                c.in[0].dim[0] = c.out.dim[0] = 1;
                c.in[0].data = (float *)s.call.in[0].data + t * 3 * 32;
                c.out.data = out;
                call_run(f, KERNEL_attention, c, 1 + t % 3);
                assert_memory_equal(out, (char *)s.call.out.data + t * width,
                                    width);
            }
        }
        scene_fini(&s);
    }
}

/* ---- the cache ----------------------------------------------------------- */

/* Encodes x[32] in codes of 4 or 5 bits as doc/numerics.md says, a value after
 * another. */
static void plain_block(pl_format f, const float *x, unsigned char *to)
{
    static const int level[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    bool least = f == PL_Q4_1 || f == PL_Q5_1;
    int n = f == PL_Q5_0 || f == PL_Q5_1 ? 32 : 16, code[32];
    float lo = x[0], hi = x[0], far = 0, d, inverse, xl = 0, ll = 0;
    uint16_t h;

    for (int i = 0; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    }
    d = least            ? (hi - lo) / (float)(n - 1)
        : f == PL_IQ4_NL ? far / -127
                         : far / (float)(-n / 2);
    h = f32_to_f16(d);
    inverse = f16_to_f32(h) == 0 ? 0 : 1 / d;
    for (int i = 0; i < 32; i++) {
        float y = (x[i] - (least ? lo : 0)) * inverse;
        float up = y + (least ? 0.5f : (float)(n / 2) + 0.5f);

        code[i] = up < 0 ? 0 : up >= (float)n ? n - 1 : (int)floorf(up);
        if (f != PL_IQ4_NL)
            continue;
        code[i] = 0;
        for (int k = 1; k < 16; k++)
            if (fabs((double)y - level[k]) <= fabs((double)y - level[code[i]]))
                code[i] = k;
        up = x[i] * x[i] * (float)level[code[i]];
        xl = fmaf(up, x[i], xl);
        ll = fmaf(up, (float)level[code[i]], ll);
    }
    if (f == PL_IQ4_NL && inverse != 0)
        h = f32_to_f16(xl / ll);
    h = f16_to_f32(h) == 0 ? 0 : h;
    memcpy(to, &h, 2);
    to += 2;
    if (least) {
        h = lo == 0 ? 0 : f32_to_f16(lo);
        memcpy(to, &h, 2);
        to += 2;
    }
    if (n == 32) {
        memset(to, 0, 4);
        for (int i = 0; i < 32; i++)
            to[i / 8] |= (unsigned char)(code[i] / 16 << i % 8);
        to += 4;
    }
    for (int i = 0; i < 16; i++)
        to[i] = (unsigned char)(code[i] % 16 | code[i + 16] % 16 << 4);
}

/* Fills some blocks with what has no ordinary scale: zeros of one sign or both,
 * values hardly large enough for one in F16, equal ones, two of the largest
 * magnitude. */
static void odd_blocks(float *x)
{
    for (int i = 0; i < 32; i++) {
        x[32 + i] = i % 3 ? 0.0f : -0.0f;
        x[64 + i] = -0.0f;
        x[96 + i] = i % 2 ? -1.5f : 1.5f;
        x[128 + i] = -2.5f;
        x[160 + i] = i % 5 == 1 ? 3e-7f : -1e-7f;
        x[192 + i] = (float)(i - 9) / 8; /* values half way between two codes */
        x[224 + i] = 40000.0f * (float)(i % 7);
    }
}

TEST(cpu_cache_rows_are_the_format_s_encoding)
{
    enum { D = 96 };
    uint64_t seed = test_seed();

    for (int k = 0; k < 2 * N_CACHE_FORMAT; k++) {
        pl_format f = cache_formats[k % N_CACHE_FORMAT];
        bool values = k / N_CACHE_FORMAT;
        bool codes = format_info(f)->block > 1 && f != PL_Q8_0;
        const struct graph_attr attr = {.values = values};
        const int32_t pos[] = {62, 63, 64, 5}, seq[] = {0, 0, 0, 1};
        const int32_t pages[] = {2, 0, 1, 3};
        struct token_table b = {4, 0, pos, seq, pages, 2};
        struct cpu_call c = {.n_in = 2, .attr = &attr, .table = &b};
        size_t bytes = cache_tile_bytes(f, D);
        size_t row_bytes = format_row_bytes(f, D);

        c.in[1] =
            call_tensor(PL_F32, 3, (const int64_t[]){4, 3, D}, 3.0f, &seed);
        /* values so small that an f16 scale becomes zero */
        for (int i = 0; i < 32; i++)
            ((float *)c.in[1].data)[i] = 1e-9f;
        if (codes)
            odd_blocks(c.in[1].data);
        c.out = (struct cpu_tensor){
            malloc(4 * 3 * bytes), f, 3, {4 * PAGE_TOKENS, 3, D}, NULL};
        c.in[0] = c.out;
        call_all(KERNEL_cache_write, &c, 4 * 3 * bytes);
        for (int i = 0; i < 12; i++) {
            int t = i / 3, h = i % 3;
            int page = pages[seq[t] * 2 + pos[t] / PAGE_TOKENS];
            const float *x = (float *)c.in[1].data + i * D;
            char *at = (char *)c.out.data + (size_t)(page * 3 + h) * bytes;
            char row[4 * D], copy[4 * D];
            float y[D];

            cache_row_read(f, D, values, at, pos[t] % PAGE_TOKENS, row);
            format_info(f)->decode(y, row, D);
            for (int j = 0; j < D; j++) {
                float top = 0;

                for (int m = j / 32 * 32; m < j / 32 * 32 + 32; m++)
                    top = fmaxf(top, fabsf(x[m]));
                if (f == PL_F32)
                    assert_true(y[j] == x[j]);
                else if (f == PL_F16)
                    assert_true(y[j] == f16_to_f32(f32_to_f16(x[j])));
                else if (f == PL_BF16)
                    assert_true(y[j] == bf16_to_f32(f32_to_bf16(x[j])));
                else if (f == PL_Q8_0)
                    /* half a step of the code, and the rounding of the
                     * scale */
                    assert_true(fabsf(y[j] - x[j]) <= 0.00446f * top + 1e-8f);
                else
                    assert_true(fabsf(y[j] - x[j]) <= 0.2f * top + 4e-7f);
            }
            for (int j = 0; codes && j < D / 32; j++) {
                int size = format_info(f)->block_bytes;
                unsigned char want[24];

                plain_block(f, x + 32 * j, want);
                assert_memory_equal(row + j * size, want, (size_t)size);
            }
            /* the value must be at the offset that the layout of a page
             * gives */
            if (f == PL_F16) {
                int p = pos[t] % PAGE_TOKENS;

                for (int j = 0; j < D; j++)
                    assert_int_equal(
                        ((uint16_t *)at)[values ? p * D + j : j * 64 + p],
                        f32_to_f16(x[j]));
            }
            cache_row_write(f, D, values, at, 17, row);
            cache_row_read(f, D, values, at, 17, copy);
            assert_memory_equal(copy, row, row_bytes);
        }
        free(c.in[1].data);
        free(c.out.data);
    }
}

/* Adjacent tokens are written at once: any number of them, after others of
 * their sequence, across pages, and with gaps between. */
TEST(cpu_cache_takes_any_run_of_tokens)
{
    enum { D = 32, HEADS = 2, MOST = 70 };
    static const int32_t pages[] = {2, 0, 1, 3, 5, 4};
    uint64_t seed = test_seed();

    for (int k = 0; k < 64; k++) {
        pl_format f = cache_formats[k % N_CACHE_FORMAT];
        const struct graph_attr attr = {.values = k / N_CACHE_FORMAT % 2};
        int n_tok = 1 + (int)test_below(&seed, MOST);
        /* index of the first token of the second sequence */
        int cut = (int)test_below(&seed, n_tok + 1);
        int gap = (int)test_below(&seed, n_tok + 1);
        int32_t pos[MOST], seq[MOST];
        struct token_table b = {n_tok, 0, pos, seq, pages, 3};
        struct cpu_call c = {.n_in = 2, .attr = &attr, .table = &b};
        size_t bytes = cache_tile_bytes(f, D);
        size_t row_bytes = format_row_bytes(f, D);
        int32_t at[2] = {(int32_t)test_below(&seed, 2 * PAGE_TOKENS - 16),
                         (int32_t)test_below(&seed, 2 * PAGE_TOKENS - 16)};

        for (int t = 0; t < n_tok; t++) {
            seq[t] = t >= cut;
            at[seq[t]] += t == gap ? 5 : 0;
            pos[t] = at[seq[t]]++;
        }
        c.in[1] = call_tensor(PL_F32, 3, (const int64_t[]){n_tok, HEADS, D},
                              3.0f, &seed);
        c.out = (struct cpu_tensor){test_need(6 * HEADS, bytes),
                                    f,
                                    3,
                                    {6 * PAGE_TOKENS, HEADS, D},
                                    NULL};
        c.in[0] = c.out;
        call_all(KERNEL_cache_write, &c, 6 * HEADS * bytes);
        for (int i = 0; i < n_tok * HEADS; i++) {
            int t = i / HEADS;
            int page = pages[seq[t] * 3 + pos[t] / PAGE_TOKENS];
            char want[4 * D], row[4 * D];

            cpu_cache_encode_row(f, want, (float *)c.in[1].data + i * D, D);
            cache_row_read(f, D, attr.values,
                           (char *)c.out.data +
                               (size_t)(page * HEADS + i % HEADS) * bytes,
                           pos[t] % PAGE_TOKENS, row);
            assert_memory_equal(row, want, row_bytes);
        }
        free(c.in[1].data);
        free(c.out.data);
    }
}
