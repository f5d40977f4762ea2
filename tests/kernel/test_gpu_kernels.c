/* The GPUs' kernels in the emulator have the bits of generic C where tests of
 * the CPU's kernels do not reach: sizes beyond a group's memory and beyond a
 * lane's single element, formats as in a file, states in their slots. Also
 * those without a CPU kernel: copies by copy descriptors, sums of collectives,
 * pages. */
#include "lib/cpu_call.h"

#include <math.h>

#include "device/gpu/gpu_launch.h"
#include "emu/emu_run.h"
#include "lib/cpu_weights.h"
#include "quant/q8.h"

static size_t bytes_of(const struct cpu_tensor *t)
{
    return (size_t)cpu_count(t) *
           (t->format == PL_F16 || t->format == PL_BF16 ? 2 : 4);
}

static void free_call(struct cpu_call *c)
{
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        free(c->in[i].data);
    free(c->out.data);
}

/* ---- elements and rows --------------------------------------------------- */

/* More elements than two thousand groups have lanes, so that a lane takes
 * several. */
TEST(gpu_lanes_take_elements_in_turn)
{
    static const int64_t many[] = {3, 180001}, row[] = {180001}, one[] = {3, 1};
    const struct graph_attr attr = {.scale = 0.3f};
    uint64_t seed = test_seed() + 31;
    struct cpu_call c = {.n_in = 2, .attr = &attr};

    c.in[0] = call_tensor(PL_F32, 2, many, 2, &seed);
    c.out = call_tensor(PL_F32, 2, many, 2, &seed);
    call_all(KERNEL_scale, &c, bytes_of(&c.out));
    c.in[1] = call_tensor(PL_F16, 1, row, 2, &seed);
    call_all(KERNEL_add, &c, bytes_of(&c.out));
    free(c.in[1].data);
    c.in[1] = call_tensor(PL_F32, 2, one, 2, &seed);
    call_all(KERNEL_mul, &c, bytes_of(&c.out));
    free(c.in[1].data);
    c.in[1] = call_tensor(PL_F32, 2, many, 2, &seed);
    call_all(KERNEL_swiglu, &c, bytes_of(&c.out));
    free(c.out.data);
    c.out = call_tensor(PL_BF16, 2, many, 2, &seed);
    call_all(KERNEL_cast, &c, bytes_of(&c.out));
    free_call(&c);
}

/* Rows with more values than a GPU's group of threads keeps of one row. */
TEST(gpu_rows_of_any_length)
{
    static const int64_t length[] = {4095, 4096, 4097, 9001};
    const struct graph_attr attr = {.eps = 1e-5f};
    uint64_t seed = test_seed() + 32;

    for (int i = 0; i < 4; i++) {
        const int64_t dim[] = {2, length[i]};
        struct cpu_call c = {.n_in = 2, .attr = &attr};

        c.in[0] = call_tensor(PL_F32, 2, dim, 3, &seed);
        c.in[1] = call_tensor(PL_F16, 1, dim + 1, 1, &seed);
        c.out = call_tensor(PL_F32, 2, dim, 1, &seed);
        call_all(KERNEL_rms_norm, &c, bytes_of(&c.out));
        call_all(KERNEL_layer_norm, &c, bytes_of(&c.out));
        call_all(KERNEL_softmax, &c, bytes_of(&c.out));
        free_call(&c);
    }
}

/* Rank 1 has no rows here but an addend; columns exceed a group. */
TEST(gpu_sum_of_wide_rows)
{
    static const struct rank_span span[] = {
        {0, 0, 3, 0}, {3, 3, 0, 1}, {3, 3, 2, 2}, {5, 5, 4, 0}};
    const int64_t in[] = {2, 9, 700}, out[] = {2, 700};
    uint64_t seed = test_seed() + 33;
    struct weights_tree t;
    struct cpu_call c = {
        .n_in = 1, .span = span, .n_span = 4, .out_stride = 2 * 700 * 4};

    weights_tree_make(&t, 3, 0, 3, 0);
    c.tree = t.t;
    c.in[0] = call_tensor(PL_F32, 3, in, 1, &seed);
    c.out = call_tensor(PL_F32, 2, out, 1, &seed);
    call_all(KERNEL_sum, &c, bytes_of(&c.out));
    free_call(&c);
}

/* ---- routers ------------------------------------------------------------- */

static void route(const struct graph_attr *a, int64_t e, uint64_t *seed)
{
    const int64_t in[] = {3, e}, used[] = {3, a->n_used};
    struct cpu_call c = {.n_in = 2, .attr = a}, w = {.n_in = 2, .attr = a};
    float *x;

    c.in[0] = call_tensor(PL_F32, 2, in, 4, seed);
    c.out = call_tensor(PL_I32, 2, used, 1, seed);
    w.out = call_tensor(PL_F32, 2, used, 1, seed);
    if (test_below(seed, 2))
        c.in[1] = call_tensor(PL_F16, 1, &e, 1, seed);
    x = c.in[0].data;
    for (int64_t i = 0; i < e; i++) /* row 1 has many equal logits */
        x[e + i] = (float)test_below(seed, 5);
    /* row 2 has infinite logits, and few that differ */
    if (a->gating != PL_GATING_SOFTMAX)
        for (int64_t i = 0; i < e; i++)
            x[2 * e + i] = i % 7 == 3            ? (float)(i % 4)
                           : i % 5 == 0          ? -INFINITY
                           : test_below(seed, 3) ? NAN
                                                 : -2.5f;
    call_all(KERNEL_router_topk, &c, bytes_of(&c.out));
    w.in[0] = c.in[0];
    w.in[1] = c.out;
    /* no NaN, because its bits are not specified */
    for (int i = 0; i < 3 * a->n_used; i++)
        if (isnan(x[i / a->n_used * e + ((int32_t *)c.out.data)[i]]))
            x[i / a->n_used * e + ((int32_t *)c.out.data)[i]] = 1;
    call_all(KERNEL_router_weights, &w, bytes_of(&w.out));
    free(w.out.data);
    free_call(&c);
}

TEST(gpu_routers_of_any_size)
{
    static const struct {
        int64_t e;
        int n_used, n_group, n_group_used;
    } sizes[] = {{1, 1, 0, 0},      {2, 2, 0, 0},      {300, 12, 0, 0},
                 {300, 6, 3, 1},    {256, 8, 8, 4},    {1500, 8, 0, 0},
                 {1500, 9, 300, 4}, {1100, 70, 11, 2}, {12, 5, 12, 6}};
    uint64_t seed = test_seed() + 34;

    for (int i = 0; i < 9; i++)
        for (int gating = 0; gating < 3; gating++) {
            const struct graph_attr a = {.gating = gating,
                                         .n_used = sizes[i].n_used,
                                         .n_group = sizes[i].n_group,
                                         .n_group_used = sizes[i].n_group_used,
                                         .normalise = (i + gating) % 2,
                                         .scale = i % 3 ? 0 : 2.5f};

            route(&a, sizes[i].e, &seed);
        }
}

/* ---- quantize ------------------------------------------------------------ */

TEST(gpu_quantize_by_blocks_and_by_parts_of_spans)
{
    /* Local values 0 .. 959 of a row of 1,600, of three ranks. */
    static const struct rank_span span[] = {{64, 0, 416, 0},
                                            {480, 416, 0, 1},
                                            {800, 416, 32, 1},
                                            {1024, 448, 512, 2}};
    static const float edge[] = {0x1p-121f, INFINITY, NAN, -0x1p127f, 1e-30f};
    const int64_t in[] = {5, 960}, out[] = {5, 960 / 32 * 10};
    uint64_t seed = test_seed() + 35;

    for (int i = 0; i < 20; i++) {
        struct cpu_call c = {.n_in = 1};
        float *x;

        c.in[0] = call_tensor(PL_F32, 2, in, ldexpf(1, i - 10), &seed);
        c.out = call_tensor(PL_I32, 2, out, 1, &seed);
        x = c.in[0].data;
        for (int k = 0; k < 5; k++)
            x[test_below(&seed, 5 * 960)] = edge[k];
        memset(x + 960, 0, 300 * sizeof *x);
        call_all(KERNEL_quantize, &c, 5 * 30 * sizeof(struct q8_block));
        c.span = span;
        c.n_span = 4;
        call_all(KERNEL_quantize, &c, 5 * 30 * sizeof(struct q8_block));
        free_call(&c);
    }
}

/* ---- rows by index ------------------------------------------------------- */

/* Returns the weights as rows in the file's format, one after the other. The
 * caller frees them. */
static void *plain_rows(const struct weights *w)
{
    size_t row = format_row_bytes(w->pack.format, w->k);
    uint8_t *all = test_need((size_t)w->n * row + 1, 1);

    for (int64_t i = 0; i < w->n; i++)
        unpack_row(&w->pack, w->data + (size_t)(i / 16) * w->pack.panel_bytes,
                   (int)(i % 16), all + (size_t)i * row);
    return all;
}

static void gather(const struct weights *w, bool plain,
                   const struct rank_span *span, int n_span,
                   const struct rank_tree *tree, uint64_t *seed)
{
    const int64_t n_id[] = {2, 6}, out[] = {2, 6, w->k};
    struct cpu_call c = {.n_in = 2,
                         .span = span,
                         .n_span = n_span,
                         .tree = *tree,
                         .out_stride = (size_t)(12 * w->k) * 4};
    void *rows = plain ? plain_rows(w) : w->data;

    weights_dims(&c.in[0], 2, w->n, w->k, 0);
    c.in[0].format = w->pack.format;
    c.in[0].pack = plain ? NULL : &w->pack;
    c.in[0].data = rows;
    c.in[1] = call_tensor(PL_I32, 2, n_id, 1, seed);
    c.out = call_tensor(PL_F32, 3, out, 1, seed);
    c.out.data = realloc(c.out.data, c.out_stride * 3 + 1);
    assert_non_null(c.out.data);
    for (int i = 0; i < 12; i++)
        ((int32_t *)c.in[1].data)[i] =
            i == 7 ? INT32_MIN : (int32_t)test_below(seed, w->n + 3) - 1;
    call_all(KERNEL_gather_rows, &c, c.out_stride * (size_t)tree->n_out);
    free(c.in[1].data);
    free(c.out.data);
    if (plain)
        free(rows);
}

TEST(gpu_gather_reads_every_format)
{
    static const struct rank_span span[] = {
        {0, 0, 7, 0}, {7, 7, 9, 1}, {16, 16, 8, 2}};
    static const struct pack_span parts[] = {{0, 96, 0}, {96, 1440, 1}};
    uint64_t seed = test_seed() + 36;
    struct weights_tree one, three;

    weights_tree_single(&one, 0);
    weights_tree_make(&three, 4, 0, 3, 0);
    /* this device has the subtrees {0, 1} and {2} */
    assert_int_equal(three.t.n_out, 2);
    for (int i = 0; i < WEIGHTS_N_FORMAT; i++) {
        struct weights w = weights_make(i, 1, 24, 1536, parts, 2, &seed);

        for (int plain = 0; plain < 2; plain++) {
            gather(&w, plain, NULL, 0, &one.t, &seed);
            gather(&w, plain, span, 3, &three.t, &seed);
        }
        weights_free(&w);
    }
}

/* ---- few rows and many --------------------------------------------------- */

enum contraction { DENSE, UP, DOWN };

/* Returns the kernel of a contraction with [n, 256] for each of n_expert
 * experts, of which a token has two, without the kernels that sort. */
static enum gpu_kernel contracts_by(enum contraction x, int64_t n,
                                    int64_t n_expert, int n_unit, int64_t n_tok)
{
    const struct tree_addend item = {0};
    const struct gpu_tensor id = {1, PL_I32, 2, {n_tok, 2}, NULL, 0, 0};
    struct gpu_tensor w = {1, PL_F32, 3, {n_expert, n, 256}, NULL, 0, 0};
    struct gpu_tensor in = {1,    PL_F32, 3, {n_tok, x == DOWN ? 2 : 1, 256},
                            NULL, 0,      0};
    struct gpu_tensor out = {1, PL_F32, 3, {n_tok, 2, n}, NULL, 0, 0};
    struct gpu_call c = {.n_in = x == DENSE ? 2 : 3,
                         .n_unit = n_unit,
                         .tree = {.item = &item, .n = 1, .n_out = 1}};
    struct launch_list l = {0};
    enum gpu_kernel k;

    if (x == DENSE) {
        w = (struct gpu_tensor){1, PL_F32, 2, {n, 256}, NULL, 0, 0};
        in = (struct gpu_tensor){1, PL_F32, 2, {n_tok, 256}, NULL, 0, 0};
    }
    if (x != UP)
        out = (struct gpu_tensor){1, PL_F32, 2, {n_tok, n}, NULL, 0, 0};
    c.in[0] = in;
    c.in[1] = w;
    c.in[2] = id;
    c.out = out;
    (x == DENSE ? gpu_launch_matmul
     : x == UP  ? gpu_launch_expert_matmul
                : gpu_launch_expert_down)(&l, &c);
    assert_false(l.no_memory);
    k = l.launch[l.n - 1].kernel;
    gpu_list_free(&l);
    return k;
}

/* Returns the fewest tokens for which the kernel for many rows is used. */
static int64_t many_from(enum contraction x, int64_t n, int64_t n_expert,
                         int n_unit)
{
    int64_t from = 0;

    for (int64_t t = 1; t <= 6000; t += t < 700 ? 1 : t / 50) {
        enum gpu_kernel k = contracts_by(x, n, n_expert, n_unit, t);

        assert_true(k == GPU_matvec_f32 || k == GPU_matmul_f32);
        if (from == 0 && k == GPU_matmul_f32)
            from = t;
        else if (from > 0 && k != GPU_matmul_f32)
            fail_msg("%lld tokens are many, %lld are not", (long long)from,
                     (long long)t);
    }
    return from;
}

/* Kernels for many rows begin at more rows if their groups leave units of the
 * GPU idle. From some number on they are always used, because a program lists
 * its kernels in advance from its largest sizes. */
TEST(gpu_few_rows_are_what_fills_few_units)
{
    static const struct {
        enum contraction x;
        int64_t n, n_expert;
        int n_unit;
        int64_t from;
    } wanted[] = {{DENSE, 16, 1, 0, 9},       {DENSE, 4096, 1, 0, 9},
                  {DENSE, 4096, 1, 1, 9},     {DENSE, 4096, 1, 132, 33},
                  {DENSE, 1024, 1, 132, 129}, {DENSE, 14336, 1, 132, 9},
                  {DENSE, 152064, 1, 132, 9}, {DENSE, 16, 1, 1, 61},
                  {UP, 768, 128, 0, 128},     {UP, 768, 128, 132, 198},
                  {UP, 768, 128, 1, 192},     {DOWN, 2048, 128, 0, 128},
                  {DOWN, 2048, 128, 132, 396}};

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int64_t from = many_from(wanted[i].x, wanted[i].n, wanted[i].n_expert,
                                 wanted[i].n_unit);

        if (from != wanted[i].from)
            fail_msg("case %d: from %lld on", (int)i, (long long)from);
    }
    for (int64_t n = 16; n < 3000; n = n * 3 / 2 / 16 * 16 + 16)
        for (int n_unit = 0; n_unit < 300; n_unit = n_unit * 3 + 1)
            for (int x = DENSE; x <= DOWN; x++)
                many_from((enum contraction)x, n, 1 + n % 37, n_unit);
}

/* ---- attention ----------------------------------------------------------- */

/* Returns the kernel of attention with one KV head. */
static enum gpu_kernel attends_by(int64_t n_head, int64_t n_tok, int64_t n_seq)
{
    static const struct graph_attr attr = {.scale = 1};
    static const int32_t map[4];
    const struct gpu_tensor q = {1, PL_F32, 3, {n_tok, n_head, 64}, NULL, 0, 0};
    const struct gpu_tensor cache = {1, PL_F16, 3, {4096, 1, 64}, NULL, 0, 0};
    const struct gpu_call c = {.out = q,
                               .in = {q, cache, cache},
                               .n_in = 3,
                               .attr = &attr,
                               .table = {.n_tok = n_tok, .page_stride = 64},
                               .n_seq = n_seq,
                               .head_map = map};
    struct launch_list l = {0};
    enum gpu_kernel k;

    gpu_launch_attention(&l, &c);
    assert_false(l.no_memory);
    assert_true(l.n > 1);
    k = l.launch[0].kernel;
    gpu_list_free(&l);
    return k;
}

/* The rows of a tile are those of one sequence: rows for other sequences'
 * tokens would be wasted. */
TEST(gpu_attention_has_rows_for_tokens_that_share_keys)
{
    static const struct {
        int64_t n_head, n_tok, n_seq;
        enum gpu_kernel kernel;
    } wanted[] = {
        {4, 1, 1, GPU_attend_4},         {4, 8, 1, GPU_attend_4},
        {4, 9, 1, GPU_attend_16},        {4, 9, 9, GPU_attend_4},
        {3, 64, 64, GPU_attend_4},       {3, 64, 32, GPU_attend_4},
        {3, 64, 31, GPU_attend_16},      {3, 64, 3, GPU_attend_tile_64},
        {3, 64, 4, GPU_attend_16},       {3, 64, 0, GPU_attend_tile_64},
        {1, 500, 400, GPU_attend_4},     {2, 500, 10, GPU_attend_tile_64},
        {4, 2048, 1, GPU_attend_tile_64}};

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_int_equal(
            attends_by(wanted[i].n_head, wanted[i].n_tok, wanted[i].n_seq),
            wanted[i].kernel);
}

/* Checks attention's launches: groups of the first, levels of the tree. */
static void attention_takes(const struct gpu_call *c, int64_t groups, int level)
{
    struct launch_list l = {0};

    gpu_launch_attention(&l, c);
    assert_false(l.no_memory);
    assert_int_equal(l.launch[0].n_group, groups);
    assert_int_equal(l.n, 1 + level);
    gpu_list_free(&l);
}

/* In a large table, only the pages that the step's sequences use get groups. */
TEST(gpu_attention_has_groups_for_pages_in_use)
{
    static const int32_t map[4];
    struct graph_attr attr = {.scale = 1};
    const struct gpu_tensor q = {1, PL_F32, 3, {2, 4, 64}, NULL, 0, 0};
    const struct gpu_tensor cache = {1,    PL_F16, 3, {1 << 17, 1, 64},
                                     NULL, 0,      0};
    struct gpu_call c = {.out = q,
                         .in = {q, cache, cache},
                         .n_in = 3,
                         .attr = &attr,
                         .table = {.n_tok = 2, .page_stride = 1 << 11},
                         .n_seq = 2,
                         .head_map = map};

    attention_takes(&c, 2 * 512, 2);
    c.n_page = 1;
    attention_takes(&c, 2, 1);
    c.n_page = 5;
    attention_takes(&c, 2 * 2, 1);
    c.n_page = 512;
    attention_takes(&c, 2 * 128, 1);
    c.n_page = 513;
    attention_takes(&c, 2 * 129, 2);
    c.n_page = 1 << 12;
    attention_takes(&c, 2 * 512, 2);
    attr.window = 600;
    attention_takes(&c, 2 * 4, 1);
    c.n_page = 8;
    attention_takes(&c, 2 * 2, 1);
    assert_true(gpu_attention_scratch(&c) > 0);
}

/* ---- moves --------------------------------------------------------------- */

TEST(gpu_permute_in_squares_and_by_elements)
{
    static const int64_t dim[] = {2, 37, 3, 70};
    static const int order[][4] = {
        {0, 3, 2, 1}, {3, 0, 1, 2}, {1, 0, 3, 2}, {1, 2, 0, 3}, {2, 3, 1, 0}};
    uint64_t seed = test_seed() + 37;

    for (int i = 0; i < 10; i++) {
        const int *p = order[i / 2];
        const struct graph_attr a = {
            .perm0 = p[0], .perm1 = p[1], .perm2 = p[2], .perm3 = p[3]};
        const int64_t out[] = {dim[p[0]], dim[p[1]], dim[p[2]], dim[p[3]]};
        pl_format f = i % 2 ? PL_F16 : PL_F32;
        struct cpu_call c = {.n_in = 1, .attr = &a};

        c.in[0] = call_tensor(f, 4, dim, 1, &seed);
        c.out = call_tensor(f, 4, out, 1, &seed);
        call_all(KERNEL_permute, &c, bytes_of(&c.out));
        free_call(&c);
    }
}

TEST(gpu_moves_of_narrow_elements_and_of_one_that_repeats)
{
    static const int64_t whole[] = {7, 11, 5}, part[] = {7, 4, 5};
    static const int64_t few[] = {7, 1, 5}, wide[] = {7, 11, 5};
    struct graph_attr a = {.axis = 1, .start = 3};
    uint64_t seed = test_seed() + 38;
    struct cpu_call c = {.n_in = 1, .attr = &a};

    for (int k = 0; k < 2; k++) {
        pl_format f = k ? PL_BF16 : PL_F32;

        c.n_in = 1;
        c.in[0] = call_tensor(f, 3, whole, 1, &seed);
        c.out = call_tensor(f, 3, part, 1, &seed);
        call_all(KERNEL_slice, &c, bytes_of(&c.out));
        free(c.out.data);
        c.out = call_tensor(f, 3, whole, 1, &seed);
        call_all(KERNEL_contiguous, &c, bytes_of(&c.out));
        free_call(&c);
        c.n_in = GRAPH_MAX_IN;
        for (int i = 0; i < GRAPH_MAX_IN; i++) {
            const int64_t d[] = {7, i == 3 ? 0 : i + 1, 5};

            c.in[i] = call_tensor(f, 3, d, 1, &seed);
        }
        c.out = call_tensor(f, 3, (int64_t[]){7, 17, 5}, 1, &seed);
        call_all(KERNEL_concat, &c, bytes_of(&c.out));
        free_call(&c);
        memset(c.in, 0, sizeof c.in);
    }
    c.n_in = 1;
    c.in[0] = call_tensor(PL_F32, 3, few, 1, &seed);
    c.out = call_tensor(PL_F32, 3, wide, 1, &seed);
    call_all(KERNEL_contiguous, &c, bytes_of(&c.out));
    free_call(&c);
}

/* ---- recurrent layers ---------------------------------------------------- */

enum { N_SEQ = 5, N_SLOT = 12, PAGE_STRIDE = 4 };

/* Sequences mixed in no order, each with slots of its own. Some begin, some
 * continue in place, some continue from a slot that they leave. */
struct sequences {
    int32_t pos[64], seq[64], pages[N_SEQ * PAGE_STRIDE];
    struct token_table table;
};

static void sequences_make(struct sequences *s, int64_t longest, uint64_t *seed)
{
    int32_t slot[N_SLOT], n = 0;

    for (int i = 0; i < N_SLOT; i++)
        slot[i] = i;
    for (int i = N_SLOT - 1; i > 0; i--) {
        int k = (int)test_below(seed, i + 1);
        int32_t x = slot[i];

        slot[i] = slot[k];
        slot[k] = x;
    }
    for (int q = N_SEQ - 1; q >= 0; q--) {
        int64_t tokens = 1 + test_below(seed, longest);
        int32_t pos = (int32_t)(test_below(seed, 3) * test_below(seed, 9));
        int32_t *w = s->pages + q * PAGE_STRIDE;

        w[STATE_READ] = slot[2 * q];
        w[STATE_WRITTEN] = slot[2 * q + test_below(seed, 2)];
        w[STATE_AT] = pos + (int32_t)test_below(seed, 2);
        for (int64_t t = 0; t < tokens; t++, n++) {
            s->seq[n] = q;
            s->pos[n] = pos + (int32_t)t;
        }
    }
    s->table = (struct token_table){.n_tok = n,
                                    .pos = s->pos,
                                    .seq = s->seq,
                                    .pages = s->pages,
                                    .page_stride = PAGE_STRIDE};
}

/* The GPU's kernel gives generic C's result and the same states. */
static void same_states(enum kernel kernel, struct cpu_call c, int state)
{
    size_t n_out = bytes_of(&c.out), n_state = bytes_of(&c.in[state]);
    void *before = c.in[state].data, *want_out = c.out.data;
    void *want = test_need(n_state + 1, 1), *got = test_need(n_state + 1, 1);
    struct cpu_kernels gpu;

    gpu_bridge_init(&gpu);
    assert_true(gpu_bridge_has(kernel));
    memcpy(want, before, n_state);
    memcpy(got, before, n_state);
    c.in[state].data = want;
    call_run(KERNEL_SET_GENERIC, kernel, c, 1);
    c.in[state].data = got;
    c.out.data = test_need(n_out + 1, 1);
    memset(c.out.data, 0xa5, n_out);
    call_table(&gpu, kernel, c, 1);
    assert_memory_equal(c.out.data, want_out, n_out);
    assert_memory_equal(got, want, n_state);
    free(c.out.data);
    free(want);
    free(got);
}

TEST(gpu_short_conv_goes_on_from_slots)
{
    uint64_t seed = test_seed() + 39;

    for (int i = 0; i < 40; i++) {
        const struct graph_attr a = {.silu = i % 2};
        int64_t n_tap = i % 3 ? 4 : 1 + test_below(&seed, 9);
        int64_t n = 1 + test_below(&seed, 600);
        struct cpu_call c = {.n_in = 3, .attr = &a};
        struct sequences s;

        sequences_make(&s, i % 4 ? 4 : 12, &seed);
        c.table = &s.table;
        c.in[0] =
            call_tensor(PL_F32, 2, (int64_t[]){s.table.n_tok, n}, 2, &seed);
        c.in[1] = call_tensor(PL_F32, 2, (int64_t[]){n, n_tap}, 1, &seed);
        c.in[2] =
            call_tensor(PL_F32, 3, (int64_t[]){N_SLOT, n, n_tap - 1}, 2, &seed);
        c.out = call_tensor(PL_F32, 2, (int64_t[]){s.table.n_tok, n}, 2, &seed);
        same_states(KERNEL_short_conv, c, 2);
        free_call(&c);
    }
}

static void delta(bool channels, int64_t d_k, int64_t d_v, int64_t longest,
                  uint64_t *seed)
{
    const struct graph_attr a = {.eps = channels ? 0.1f : 1e-6f};
    int64_t n_k = 1 + test_below(seed, 3), n_v = 1 + test_below(seed, 4);
    struct cpu_call c = {.n_in = 6, .attr = &a};
    int32_t map[4];
    struct sequences s;
    int64_t n;

    sequences_make(&s, longest, seed);
    n = s.table.n_tok;
    for (int i = 0; i < 4; i++)
        map[i] = (int32_t)test_below(seed, n_k);
    c.table = &s.table;
    c.head_map = map;
    c.in[0] = call_tensor(PL_F32, 3, (int64_t[]){n, n_k, d_k}, 2, seed);
    c.in[1] = call_tensor(PL_F32, 3, (int64_t[]){n, n_k, d_k}, 1, seed);
    c.in[2] = call_tensor(PL_F32, 3, (int64_t[]){n, n_v, d_v}, 1, seed);
    c.in[3] = call_tensor(PL_F32, channels ? 3 : 2, (int64_t[]){n, n_v, d_k}, 1,
                          seed);
    c.in[4] = call_tensor(PL_F32, 2, (int64_t[]){n, n_v}, 1, seed);
    c.in[5] =
        call_tensor(PL_F32, 3, (int64_t[]){N_SLOT, n_v, d_k * d_v}, 1, seed);
    c.out = call_tensor(PL_F32, 3, (int64_t[]){n, n_v, d_v}, 1, seed);
    for (int64_t i = 0; i < n * n_v * (channels ? d_k : 1); i++)
        ((float *)c.in[3].data)[i] = -fabsf(((float *)c.in[3].data)[i]);
    /* keys of length zero, by which the norm would divide */
    if (test_below(seed, 2))
        memset(c.in[1].data, 0, (size_t)(n_k * d_k) * sizeof(float));
    same_states(channels ? KERNEL_delta_net_channels : KERNEL_delta_net, c, 5);
    free_call(&c);
}

TEST(gpu_delta_net_goes_on_from_slots)
{
    static const int64_t d_k[] = {1, 5, 64, 65, 128, 130, 256, 257, 300};
    uint64_t seed = test_seed() + 40;

    for (int i = 0; i < 9; i++) {
        delta(false, d_k[i], 1 + test_below(&seed, 70), 3, &seed);
        delta(false, d_k[i], 64, 1, &seed);
    }
    delta(false, 100, 40, 12, &seed);
}

TEST(gpu_delta_net_channels_goes_on_from_slots)
{
    static const int64_t d_k[] = {1, 5, 65, 128, 130};
    uint64_t seed = test_seed() + 43;

    for (int i = 0; i < 5; i++)
        delta(true, d_k[i], 1 + test_below(&seed, 70), 3, &seed);
    delta(true, 100, 40, 12, &seed);
}

/* More runs than groups that take them, and more tokens than a group lists at
 * once. */
TEST(gpu_delta_net_of_many_sequences)
{
    enum { N = 300, N_RUN = 40, D = 8 };
    const struct graph_attr a = {.eps = 1e-6f};
    static const int32_t map[1];
    uint64_t seed = test_seed() + 41;
    int32_t pos[N], seq[N], pages[N_RUN * PAGE_STRIDE];
    struct token_table table = {.n_tok = N,
                                .pos = pos,
                                .seq = seq,
                                .pages = pages,
                                .page_stride = PAGE_STRIDE};
    struct cpu_call c = {.n_in = 6, .attr = &a};

    for (int i = 0; i < N; i++) {
        seq[i] = i < 200 ? i / 50 : 4 + (i - 200) * 36 / 100;
        pos[i] = i > 0 && seq[i] == seq[i - 1] ? pos[i - 1] + 1 : seq[i] % 3;
    }
    for (int i = 0; i < N_RUN; i++) {
        pages[i * PAGE_STRIDE + STATE_READ] = i;
        pages[i * PAGE_STRIDE + STATE_WRITTEN] = i;
        pages[i * PAGE_STRIDE + STATE_AT] = 0;
    }
    c.table = &table;
    c.head_map = map;
    for (int i = 0; i < 3; i++)
        c.in[i] = call_tensor(PL_F32, 3, (int64_t[]){N, 1, D}, 1, &seed);
    for (int i = 3; i < 5; i++)
        c.in[i] = call_tensor(PL_F32, 2, (int64_t[]){N, 1}, 0.5f, &seed);
    c.in[5] = call_tensor(PL_F32, 3, (int64_t[]){N_RUN, 1, D * D}, 1, &seed);
    c.out = call_tensor(PL_F32, 3, (int64_t[]){N, 1, D}, 1, &seed);
    same_states(KERNEL_delta_net, c, 5);
    free_call(&c);
}

static void scan(int64_t d_state, int64_t d_head, int64_t longest,
                 uint64_t *seed)
{
    static const struct graph_attr a;
    int64_t n_b = 1 + test_below(seed, 3), n_x = 1 + test_below(seed, 4);
    struct cpu_call c = {.n_in = 5, .attr = &a};
    int32_t map[4];
    struct sequences s;
    int64_t n;

    sequences_make(&s, longest, seed);
    n = s.table.n_tok;
    for (int i = 0; i < 4; i++)
        map[i] = (int32_t)test_below(seed, n_b);
    c.table = &s.table;
    c.head_map = map;
    c.in[0] = call_tensor(PL_F32, 3, (int64_t[]){n, n_b, d_state}, 1, seed);
    c.in[1] = call_tensor(PL_F32, 3, (int64_t[]){n, n_b, d_state}, 1, seed);
    c.in[2] = call_tensor(PL_F32, 3, (int64_t[]){n, n_x, d_head}, 1, seed);
    c.in[3] = call_tensor(PL_F32, 2, (int64_t[]){n, n_x}, 1, seed);
    c.in[4] = call_tensor(PL_F32, 3, (int64_t[]){N_SLOT, n_x, d_state * d_head},
                          1, seed);
    c.out = call_tensor(PL_F32, 3, (int64_t[]){n, n_x, d_head}, 1, seed);
    for (int64_t i = 0; i < n * n_x; i++)
        ((float *)c.in[3].data)[i] = -fabsf(((float *)c.in[3].data)[i]);
    same_states(KERNEL_ssm_scan, c, 4);
    free_call(&c);
}

TEST(gpu_ssm_scan_goes_on_from_slots)
{
    static const int64_t d_state[] = {1, 5, 64, 65, 128, 130, 256, 257, 300};
    uint64_t seed = test_seed() + 42;

    for (int i = 0; i < 9; i++) {
        scan(d_state[i], 1 + test_below(&seed, 70), 3, &seed);
        scan(d_state[i], 64, 1, &seed);
    }
    scan(100, 40, 12, &seed);
}

/* ---- copies of instructions ---------------------------------------------- */

static void launch(enum gpu_kernel k, int64_t n_group, const void *args)
{
    struct emu *e = emu_new(7);
    const char *wrong;

    assert_non_null(e);
    wrong = emu_launch(e, k, (int32_t)n_group, args);
    if (wrong)
        fail_msg("%s: %s", gpu_kernel_name(k), wrong);
    emu_free(e);
}

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* Draws a copy descriptor whose runs do not overlap at the destination, in
 * `unit`s. */
static struct text_piece random_piece(int64_t unit, uint64_t *seed)
{
    struct text_piece p = {.unit = (int32_t)unit};

    p.bytes = unit * (1 + test_below(seed, 40));
    p.n1 = 1 + test_below(seed, 4);
    p.n0 = 1 + test_below(seed, 4);
    p.dst_s1 = p.bytes + unit * test_below(seed, 3);
    p.dst_s0 = p.dst_s1 * p.n1 + unit * test_below(seed, 3);
    p.src_s1 = unit * test_below(seed, 50);
    p.src_s0 = unit * test_below(seed, 100);
    return p;
}

static int64_t piece_end(const struct text_piece *p)
{
    return p->dst_s0 * p->n0;
}

/* Copies as program.h specifies it, with nested loops. */
static void copy_plain(const struct text_piece *p, unsigned char *dst,
                       const unsigned char *src)
{
    for (int64_t i0 = 0; i0 < p->n0; i0++)
        for (int64_t i1 = 0; i1 < p->n1; i1++)
            memcpy(dst + i0 * p->dst_s0 + i1 * p->dst_s1,
                   src + i0 * p->src_s0 + i1 * p->src_s1, (size_t)p->bytes);
}

TEST(gpu_copy_pieces_follows_the_loops)
{
    enum { SRC = 16384, DST = 65536 };
    static const int64_t unit[] = {1, 2, 4, 8};
    uint64_t seed = test_seed() + 42;
    unsigned char *src = weights_alloc(SRC);
    unsigned char *got = weights_alloc(DST), *want = weights_alloc(DST);

    for (int i = 0; i < SRC; i++)
        src[i] = (unsigned char)test_random(&seed);
    for (int round = 0; round < 60; round++) {
        struct copy_pieces_args a = {0};
        int64_t n_group = 0, at = 0;

        memset(got, 0xa5, DST);
        memset(want, 0xa5, DST);
        a.n = (int32_t)(1 + test_below(&seed, TEXT_PIECES));
        for (int i = 0; i < a.n; i++) {
            struct text_piece p =
                random_piece(unit[test_below(&seed, 4)], &seed);
            int64_t from = test_below(&seed, 1000) * p.unit;

            at = (at + 7) / 8 * 8;
            p.first = (int32_t)n_group;
            p.dst = address(got + at);
            p.src = address(src + from);
            copy_plain(&p, want + at, src + from);
            at += piece_end(&p);
            n_group += 1 + test_below(&seed, 2);
            a.piece[i] = p;
        }
        assert_true(at <= DST);
        launch(GPU_copy_pieces, n_group, &a);
        assert_memory_equal(got, want, DST);
    }
    free(src);
    free(got);
    free(want);
}

/* Computes the stack program of struct merge_item, value by value. */
static float merge_plain(const struct merge_tree_args *a,
                         const float *const *addend, int64_t at)
{
    const struct merge_tree_addend *d =
        (const struct merge_tree_addend *)(uintptr_t)a->addend;
    float stack[TEXT_DEPTH];
    int top = 0;

    for (int64_t i = 0; i < a->n; i++) {
        int64_t skip = d[i].skip_tok * a->n_tok + d[i].skip_out * a->n_out;

        stack[top++] = addend[i][(at - skip) / 4];
        for (int64_t k = 0; k < d[i].n_add; k++) {
            top--;
            stack[top - 1] = stack[top - 1] + stack[top];
        }
    }
    assert_int_equal(top, 1);
    return stack[0];
}

TEST(gpu_merge_tree_adds_along_the_stack)
{
    enum { N = 16, LENGTH = 4096, DST = 16384 };
    uint64_t seed = test_seed() + 43;
    float *got = weights_alloc(DST * sizeof(float));
    float *want = weights_alloc(DST * sizeof(float));

    for (int round = 0; round < 40; round++) {
        struct merge_tree_addend d[N] = {{0}};
        const float *addend[N];
        struct weights_tree t;
        struct text_piece p = random_piece(4, &seed);
        int64_t from = 4 * test_below(&seed, 400);
        struct merge_tree_args a = {.addend = address(d),
                                    .n_tok = test_below(&seed, 5),
                                    .n_out = test_below(&seed, 3)};

        weights_tree_make(&t, (int)(1 + test_below(&seed, N)), 0, N, 0);
        a.n = t.t.n;
        for (int i = 0; i < t.t.n; i++) {
            d[i].skip_tok = 8 * test_below(&seed, 3);
            d[i].skip_out = -4 * test_below(&seed, 3);
            addend[i] = weights_floats(LENGTH, &seed);
            addend[i] += 64; /* the addend is a part of a larger buffer */
            d[i].at = address(addend[i]);
            d[i].n_add = t.item[i].n_add;
        }
        memset(got, 0xa5, DST * sizeof(float));
        memset(want, 0xa5, DST * sizeof(float));
        a.piece = (struct tree_piece){.dst = address(got),
                                      .src_at = from,
                                      .bytes = p.bytes,
                                      .n0 = p.n0,
                                      .dst_s0 = p.dst_s0,
                                      .src_s0 = p.src_s0,
                                      .n1 = p.n1,
                                      .dst_s1 = p.dst_s1,
                                      .src_s1 = p.src_s1};
        for (int64_t i = 0; i < p.n0 * p.n1 * p.bytes / 4; i++) {
            int64_t b = i % (p.bytes / 4) * 4, run = i / (p.bytes / 4);
            int64_t i0 = run / p.n1, i1 = run % p.n1;

            want[(i0 * p.dst_s0 + i1 * p.dst_s1 + b) / 4] = merge_plain(
                &a, addend, from + i0 * p.src_s0 + i1 * p.src_s1 + b);
        }
        launch(GPU_merge_tree, gpu_groups(p.n0 * p.n1 * p.bytes / 4, 256), &a);
        assert_memory_equal(got, want, DST * sizeof(float));
        for (int i = 0; i < t.t.n; i++)
            free((void *)(uintptr_t)(addend[i] - 64));
    }
    free(got);
    free(want);
}

/* Copies as cpu_pages.c does: of each sequence in the table, the pages from
 * its first to the one of its last token, without holes. */
static void pages_plain(const struct pages_args *a, const int32_t *pages,
                        const int32_t *map, const int32_t *last, int n_row,
                        unsigned char *out, const unsigned char *x)
{
    for (int row = 0; row < n_row; row++)
        for (int64_t k = 0; k < a->n_entry; k++)
            for (int h = 0; h < a->n_head; h++) {
                int32_t page = pages[row * a->page_stride + k];

                if (last[row] < 0 || k > last[row] / PAGE_TOKENS || page < 0 ||
                    page >= a->n_page || map[h] < 0)
                    continue;
                memcpy(out + (page * a->n_head + h) * a->tile_bytes,
                       x + (page * a->n_head_x + map[h]) * a->tile_bytes,
                       (size_t)a->tile_bytes);
            }
}

TEST(gpu_pages_copies_the_tiles_in_use)
{
    enum { ROWS = 4, STRIDE = 6, PAGES = 20, TOK = 600, HEADS = 3 };
    enum { TILE = 9000 }; /* greatest size of a tile in bytes */
    static const int64_t tile[] = {TILE, 64, 4140, 4};
    uint64_t seed = test_seed() + 44;
    unsigned char *x = weights_alloc(PAGES * 2 * TILE);
    unsigned char *got = weights_alloc(PAGES * HEADS * TILE);
    unsigned char *want = weights_alloc(PAGES * HEADS * TILE);

    for (int i = 0; i < PAGES * 2 * TILE; i++)
        x[i] = (unsigned char)test_random(&seed);
    for (int round = 0; round < 30; round++) {
        static const int32_t map[HEADS] = {1, -1, 0};
        int32_t pos[TOK], seq[TOK], pages[ROWS * STRIDE];
        int32_t last[ROWS] = {-1, -1, -1, -1};
        struct pages_args a = {.out = address(got),
                               .x = address(x),
                               .map = address(map),
                               .pos = address(pos),
                               .seq = address(seq),
                               .pages = address(pages),
                               .page_stride = STRIDE,
                               .n_page = PAGES - 2,
                               .tile_bytes = tile[round % 4],
                               .n_head = HEADS,
                               .n_head_x = 2,
                               .n_entry = STRIDE,
                               .page_tokens = PAGE_TOKENS};

        for (int i = 0; i < ROWS * STRIDE; i++)
            pages[i] = (int32_t)test_below(&seed, PAGES + 3) - 3;
        for (int row = ROWS - 1; row >= 0; row--) {
            int64_t first = test_below(&seed, 200);
            int64_t n = test_below(&seed, 3) * test_below(&seed, 75);

            for (int64_t i = 0; i < n; i++, a.n_tok++) {
                seq[a.n_tok] = row;
                pos[a.n_tok] = last[row] = (int32_t)(first + i);
            }
        }
        memset(got, 0xa5, PAGES * HEADS * TILE);
        memset(want, 0xa5, PAGES * HEADS * TILE);
        pages_plain(&a, pages, map, last, ROWS, want, x);
        launch(GPU_pages, ROWS * STRIDE * HEADS, &a);
        assert_memory_equal(got, want, PAGES * HEADS * TILE);
    }
    free(x);
    free(got);
    free(want);
}
