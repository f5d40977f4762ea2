/* Launches that do the work of others: instructions in, launches out, and a
 * program's values stay the same. */
#include "lib/program_build.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_fuse.h"
#include "device/gpu/gpu_launch.h"

/* ---- instructions by hand ------------------------------------------------ */

enum { MOST = 8, ROW = 512, FLOATS = ROW * 4, BLOCKS = ROW / 32 * 40 };

/* Addresses of buffers: offsets in one memory, far enough apart not to
 * overlap. */
enum place {
    X = 0x10000,
    Y = 0x20000,
    SUM = 0x30000,
    OUT = 0x40000,
    OTHER = 0x50000,
    Q8 = 0x60000,
    W = 0x70000,
    FAR = 0x80000
};

struct steps {
    struct launch_list list;
    int n, queue[MOST], first[MOST + 1], touched[MOST + 1], host[MOST];
    bool bars[MOST];
    struct gpu_access touch[MOST * 4];
    /* tokens of a launch on heads, and partial results of attention; 0 means
     * 1 */
    int n_tok, n_state;
};

/* Adds an access of the instruction whose launches were added last. */
static void touches(struct steps *s, size_t at, size_t bytes, bool writes)
{
    s->touch[s->touched[s->n]++] =
        (struct gpu_access){.from = at, .to = at + bytes, .writes = writes};
}

static void next(struct steps *s)
{
    s->n++;
    s->first[s->n] = s->list.n;
    s->touched[s->n] = s->touched[s->n - 1];
}

/* Adds an instruction that computes out = x op y for `rows` rows. */
static void put_binary(struct steps *s, int op, uint64_t x, uint64_t y,
                       uint64_t out, int rows)
{
    struct binary_args a = {.out = out,
                            .x = x,
                            .y = y,
                            .n = rows * ROW,
                            .dim = {rows * ROW, 1, 1, 1},
                            .stride_x = {1},
                            .stride_y = {1},
                            .op = op};

    gpu_list_add(&s->list, GPU_binary, gpu_groups(a.n, 256), &a);
    touches(s, x, (size_t)rows * FLOATS, false);
    touches(s, y, (size_t)rows * FLOATS, false);
    touches(s, out, (size_t)rows * FLOATS, true);
    next(s);
}

static void put_norm(struct steps *s, uint64_t x, uint64_t out, int rows)
{
    struct rms_norm_args a = {
        .out = out, .x = x, .w = W, .d = ROW, .eps = 1, .n_row = rows};

    gpu_list_add(&s->list, GPU_rms_norm, rows, &a);
    touches(s, x, (size_t)rows * FLOATS, false);
    touches(s, out, (size_t)rows * FLOATS, true);
    next(s);
}

static void put_blocks(struct steps *s, uint64_t x, uint64_t out, int rows)
{
    struct quantize_args a = {.out = out, .x = x, .k = ROW, .n_row = rows};

    gpu_list_add(&s->list, GPU_quantize, gpu_groups(rows * ROW / 32, 32), &a);
    touches(s, x, (size_t)rows * FLOATS, false);
    touches(s, out, (size_t)rows * BLOCKS, true);
    next(s);
}

static int tokens(const struct steps *s)
{
    return s->n_tok ? s->n_tok : 1;
}

/* Adds rope of heads of ROW values of each token. Declares the accesses of one
 * token. */
static void put_rope(struct steps *s, uint64_t x, uint64_t out, int heads)
{
    struct rope_args a = {.out = out,
                          .x = x,
                          .pos = W,
                          .n_tok = tokens(s),
                          .n_head = heads,
                          .d = ROW,
                          .n_rot = ROW};

    gpu_list_add(&s->list, GPU_rope, tokens(s) * gpu_groups(heads, ROPE_HEADS),
                 &a);
    touches(s, x, (size_t)heads * FLOATS, false);
    touches(s, out, (size_t)heads * FLOATS, true);
    next(s);
}

/* Adds an instruction that writes rows of `heads` heads into a cache. */
static void put_write(struct steps *s, uint64_t x, uint64_t cache, int heads)
{
    struct cache_write_args a = {.cache = cache,
                                 .x = x,
                                 .pos = W,
                                 .seq = W + 4,
                                 .pages = W + 8,
                                 .n_tok = tokens(s),
                                 .n_head = heads,
                                 .d = ROW};

    gpu_list_add(&s->list, GPU_cache_write, heads * ROW / CACHE_VALUES, &a);
    touches(s, x, (size_t)heads * FLOATS, false);
    touches(s, cache, FLOATS, true);
    next(s);
}

/* Adds a choice of two of ROW experts for each of two tokens, with their
 * weights. */
static void put_choice(struct steps *s, uint64_t x, uint64_t out)
{
    struct router_topk_args a = {
        .out = out, .x = x, .scratch = FAR, .e = ROW, .n_used = 2};

    gpu_list_add(&s->list, GPU_router_topk, 2, &a);
    touches(s, x, (size_t)2 * FLOATS, false);
    touches(s, out, 16, true);
    touches(s, FAR, (size_t)4 * FLOATS, true);
    next(s);
}

static void put_weights(struct steps *s, uint64_t x, uint64_t id, uint64_t out,
                        int gating)
{
    struct router_weights_args a = {.out = out,
                                    .x = x,
                                    .id = id,
                                    .e = ROW,
                                    .n_used = 2,
                                    .gating = gating,
                                    .scale = 1};

    gpu_list_add(&s->list, GPU_router_weights, 2, &a);
    touches(s, x, (size_t)2 * FLOATS, false);
    touches(s, id, 16, false);
    touches(s, out, 16, true);
    next(s);
}

/* Adds attention of a token as its two launches; the result is two heads of
 * half a row. */
static void put_attention(struct steps *s, uint64_t q, uint64_t out)
{
    struct attend_args a = {.q = q, .part = FAR};
    struct attend_merge_args m = {.part = FAR,
                                  .out = out,
                                  .pos = W,
                                  .n_head = 2,
                                  .e = ROW / 2,
                                  .n_state = s->n_state ? s->n_state : 1,
                                  .n_block = 1,
                                  .n_column = ROW / 2 / MERGE_COLUMNS};

    gpu_list_add(&s->list, GPU_attend_4, 2, &a);
    gpu_list_add(&s->list, GPU_attend_merge, 2 * m.n_column, &m);
    touches(s, q, FLOATS, false);
    touches(s, out, FLOATS, true);
    touches(s, FAR, (size_t)2 * FLOATS, true);
    next(s);
}

static void put_matrix(struct steps *s, enum gpu_kernel k, uint64_t x,
                       uint64_t out, int n)
{
    struct contract_args a = {
        .w = W + out,
        .x = x,
        .out = out,
        .n = n,
        .n_panel = n / 16,
        .x_step = BLOCKS / 4,
        .n_tok = 1,
        .n_head = 1,
        .share = 1,
        .n_out = 1,
        .n_run = 1,
        .more = {{.first = CONTRACT_NO_MORE}, {.first = CONTRACT_NO_MORE}}};

    gpu_list_add(&s->list, k, a.n_panel, &a);
    touches(s, x, BLOCKS, false);
    touches(s, out, (size_t)n * 4, true);
    next(s);
}

/* Adds an instruction of another device or the host; it accesses nothing. */
static void put_bar(struct steps *s, int queue)
{
    s->queue[s->n] = queue;
    s->bars[s->n] = true;
    next(s);
}

/* Returns the number of launches after fusion, and frees the list. */
static int fused(struct steps *s)
{
    struct gpu_fuse_insns in = {.n = s->n,
                                .queue = s->queue,
                                .is_fusion_barrier = s->bars,
                                .touch = s->touch,
                                .touched = s->touched};
    int n;

    /* touched[i] counts up to the end of instruction i; shift it to count up to
     * the start */
    memmove(s->touched + 1, s->touched, sizeof(int) * (size_t)s->n);
    s->touched[0] = 0;
    gpu_fuse_insns(&s->list, s->first, &in, s->host);
    assert_false(s->list.no_memory);
    assert_int_equal(s->first[s->n], s->list.n);
    n = s->list.n;
    gpu_list_free(&s->list);
    return n;
}

TEST(gpu_fuse_joins_matrices_of_the_same_rows)
{
    struct steps s = {.n = 0};

    put_matrix(&s, GPU_matvec_q4_k, Q8, OUT, 64);
    put_matrix(&s, GPU_matvec_q4_k, Q8, SUM, 32);
    put_matrix(&s, GPU_matvec_q4_k, Q8, Y, 16);
    /* a fourth product, more than one launch can take */
    put_matrix(&s, GPU_matvec_q4_k, Q8, OTHER, 16);
    /* a product of another kernel */
    put_matrix(&s, GPU_matvec_q6_k, Q8, FAR, 16);
    /* a product with other rows of activations */
    put_matrix(&s, GPU_matvec_q6_k, X, FAR + 64, 16);
    assert_int_equal(s.list.launch[0].n_group, 4);
    assert_int_equal(fused(&s), 4);
    assert_true(s.host[0] == 0 && s.host[1] == 0 && s.host[2] == 0);
    assert_true(s.host[3] == 3 && s.host[4] == 4 && s.host[5] == 5);
    assert_true(s.first[1] == 1 && s.first[2] == 1 && s.first[3] == 1);
}

/* Returns the number of launches for two matrices, to OUT and OTHER, and then x
 * op y. */
static int with_binary(int op, uint64_t x, uint64_t y, uint64_t out)
{
    struct steps s = {.n = 0};

    put_matrix(&s, GPU_matvec_q4_k, Q8, OUT, ROW);
    put_matrix(&s, GPU_matvec_q4_k, Q8, OTHER, ROW);
    put_binary(&s, op, x, y, out, 1);
    return fused(&s);
}

/* Sums join if they add to a row, but not to what other groups write or
 * read. */
TEST(gpu_fuse_joins_matrices_with_sums)
{
    struct steps s = {.n = 0};

    assert_int_equal(with_binary(TEXT_ADD, OUT, Y, SUM), 1);
    assert_int_equal(with_binary(TEXT_ADD, OTHER, Y, SUM), 1);
    assert_int_equal(with_binary(TEXT_SUB, OUT, Y, SUM), 2);
    assert_int_equal(with_binary(TEXT_ADD, Y, OUT, SUM), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, OTHER, SUM), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, OUT, SUM), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, Y, OTHER), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, Y, OUT), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, Y, Y), 2);
    assert_int_equal(with_binary(TEXT_ADD, OUT, Y, Q8), 2);
    put_matrix(&s, GPU_matvec_q4_k, Q8, OUT, ROW);
    put_binary(&s, TEXT_ADD, OUT, Y, SUM, 1);
    /* a second sum is not fused, because the matrix has one already */
    put_binary(&s, TEXT_ADD, OUT, Y, FAR, 1);
    put_matrix(&s, GPU_matvec_q4_k, Q8, OTHER, ROW);
    assert_int_equal(fused(&s), 2);
    assert_true(s.host[1] == 0 && s.host[2] == 2 && s.host[3] == 0);
}

/* A norm joins with the sum before it and the blocks after it. */
TEST(gpu_fuse_joins_norms_with_sums_and_blocks)
{
    for (int rows = 1; rows < 4; rows++) {
        struct steps s = {.n = 0};

        put_binary(&s, TEXT_ADD, X, Y, SUM, rows);
        put_norm(&s, SUM, OUT, rows);
        put_blocks(&s, OUT, Q8, rows);
        assert_int_equal(fused(&s), 1);
        assert_true(s.host[1] == 0 && s.host[2] == 0);
    }
}

/* A launch moves before those that are independent of it, and no others. */
TEST(gpu_fuse_keeps_what_is_read_and_written_between)
{
    static const struct {
        uint64_t x, y, out;
        /* index of the launch that quantizes to blocks after fusion */
        int host;
    } between[] = {
        /* an instruction in between that has no buffer in common */
        {FAR, FAR + 0x8000, OTHER, 0},
        {OUT, FAR, OTHER, 0}, /* one that reads what both launches read */
        {FAR, FAR, Q8, 2},    /* one that writes where the blocks are written */
        {Q8, FAR, OTHER, 2},  /* one that reads what the blocks overwrite */
        {FAR, FAR, OUT, 1},   /* one that writes the values to quantize */
    };

    for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
        struct steps s = {.n = 0};

        put_norm(&s, X, OUT, 1);
        put_binary(&s, TEXT_SUB, between[i].x, between[i].y, between[i].out, 1);
        put_blocks(&s, OUT, Q8, 1);
        assert_int_equal(fused(&s), between[i].host == 2 ? 3 : 2);
        assert_int_equal(s.host[2], between[i].host);
    }
}

TEST(gpu_fuse_keeps_queues_and_events_apart)
{
    /* the instruction in between: on this queue, on the other, none; last, the
     * second launch on the other queue */
    static const struct {
        int bar, queue, n;
    } of[] = {{0, 0, 2}, {1, 0, 1}, {-1, 0, 1}, {1, 1, 2}};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct steps s = {.n = 0};

        put_norm(&s, X, OUT, 1);
        put_bar(&s, of[i].bar);
        s.queue[s.n] = of[i].queue;
        put_blocks(&s, OUT, Q8, 1);
        assert_int_equal(fused(&s), of[i].n);
    }
}

/* Groups run in any order, so none may read what another writes. */
TEST(gpu_fuse_keeps_groups_apart)
{
    struct steps q = {.n = 0}, s = {.n = 0}, t = {.n = 0};

    /* the second matrix product writes over what the first one reads */
    put_matrix(&q, GPU_matvec_q8_0, Q8, OUT, 64);
    put_matrix(&q, GPU_matvec_q8_0, Q8, Q8 + 16, 64);
    assert_int_equal(fused(&q), 2);
    /* the blocks are written over values that the sum still reads for other
     * rows */
    for (int rows = 1; rows < 3; rows++) {
        struct steps r = {.n = 0};

        put_binary(&r, TEXT_ADD, X, Y, SUM, rows);
        put_norm(&r, SUM, OUT, rows);
        put_blocks(&r, OUT, Y, rows);
        assert_int_equal(fused(&r), rows);
    }
    /* the norm writes its rows over other rows that are added, then over the
     * same ones */
    put_binary(&s, TEXT_ADD, X, Y, SUM, 3);
    put_norm(&s, SUM, Y + FLOATS, 3);
    assert_int_equal(fused(&s), 2);
    put_binary(&t, TEXT_ADD, X, Y, SUM, 3);
    put_norm(&t, SUM, Y, 3);
    assert_int_equal(fused(&t), 1);
}

/* Norms of two kinds of heads and their ropes, as in a layer. */
TEST(gpu_fuse_joins_norms_of_heads_with_turns)
{
    static const struct {
        /* addresses of the results: of the second norm, and of the two ropes */
        uint64_t norm, turn, other;
        int n, host[4];
    } of[] = {
        {OTHER, FAR, SUM, 1, {0, 0, 0, 0}},
        /* a result lies over what the first norm reads */
        {X, FAR, SUM, 2, {0, 1, 0, 1}},
        /* a result lies over what the second norm reads */
        {OTHER, Y, SUM, 2, {0, 0, 2, 2}},
        {OTHER, FAR, X, 2, {0, 0, 0, 3}},
        /* results lie over the same heads' own operands */
        {OTHER, X, Y, 1, {0, 0, 0, 0}},
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct steps s = {.n = 0};

        put_norm(&s, X, OUT, 6);
        put_norm(&s, Y, of[i].norm, 3);
        put_rope(&s, OUT, of[i].turn, 6);
        put_rope(&s, of[i].norm, of[i].other, 3);
        assert_int_equal(fused(&s), of[i].n);
        assert_memory_equal(s.host, of[i].host, sizeof of[i].host);
    }
}

/* Heads with RoPE, and heads without, are written to caches in one launch. */
TEST(gpu_fuse_joins_turns_with_caches)
{
    static const struct {
        /* addresses of the caches, and of the second cache's source */
        uint64_t keys, values, x;
        int n_tok, n, host[4];
    } of[] = {
        {Q8, FAR, OTHER, 1, 1, {0, 0, 0, 0}},
        /* a cache lies over the source of other heads */
        {X, FAR, OTHER, 1, 2, {0, 0, 2, 2}},
        {Q8, Y, OTHER, 1, 2, {0, 0, 0, 3}},
        /* the second cache's source is the result of RoPE, too */
        {Q8, FAR, OUT, 1, 2, {0, 0, 0, 3}},
        {Q8, FAR, OTHER, CACHE_TOKENS + 1, 2, {0, 0, 2, 2}},
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct steps s = {.n_tok = of[i].n_tok};

        put_rope(&s, X, OUT, 4);
        put_rope(&s, Y, SUM, 1);
        put_write(&s, SUM, of[i].keys, 1);
        put_write(&s, of[i].x, of[i].values, 1);
        assert_int_equal(s.list.n, 4);
        assert_int_equal(fused(&s), of[i].n);
        assert_memory_equal(s.host, of[i].host, sizeof of[i].host);
    }
}

TEST(gpu_fuse_joins_choices_with_their_weights)
{
    static const struct {
        uint64_t x, id, out;
        int gating, n;
    } of[] = {{X, OUT, SUM, 0, 1},
              /* weights of experts chosen from other logits */
              {Y, OUT, SUM, 0, 2},
              {X, OUT, SUM, 1, 2}, /* another gating than that of the choice */
              /* the weights overwrite logits of other rows */
              {X, OUT, X, 0, 2},
              /* the weights overwrite scratch of the choice */
              {X, OUT, FAR + FLOATS, 0, 2}};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct steps s = {.n = 0};

        put_choice(&s, X, OUT);
        put_weights(&s, of[i].x, of[i].id, of[i].out, of[i].gating);
        assert_int_equal(fused(&s), of[i].n);
    }
}

/* The last launch of attention also quantizes if its groups have whole blocks.
 * Nothing runs at the same time. */
TEST(gpu_fuse_joins_attention_with_blocks)
{
    struct steps s = {.n = 0}, t = {.n = 0};
    struct quantize_args a = {.out = Q8,
                              .x = OUT,
                              .span = W,
                              .k = ROW,
                              .n_row = 1,
                              .n_span = 1,
                              .n_part = ROW / 256};

    put_attention(&s, X, OUT);
    put_blocks(&s, OUT, Q8, 1);
    assert_int_equal(fused(&s), 2);
    assert_true(s.host[1] == 0 && s.first[1] == 2);
    put_attention(&t, X, OUT);
    /* the blocks overwrite the partial results of attention */
    put_blocks(&t, OUT, FAR, 1);
    assert_int_equal(fused(&t), 3);
    /* blocks of which 256 values share a scale join only in whole rows and with
     * few states */
    for (a.whole = 0; a.whole < 2; a.whole++)
        for (int states = 1; states < 2 * PART_STATES; states += PART_STATES) {
            struct steps u = {.n_state = states};

            put_attention(&u, X, OUT);
            gpu_list_add(&u.list, GPU_quantize, 1, &a);
            touches(&u, OUT, FLOATS, false);
            touches(&u, Q8, BLOCKS, true);
            next(&u);
            assert_int_equal(fused(&u), a.whole && states == 1 ? 2 : 3);
        }
}

/* ---- programs ------------------------------------------------------------ */

enum { TOK = 3, WIDE = 64, N_OUT = TOK * WIDE };

static const char head[] = "programs 1\n"
                           "max n_tok 3\n"
                           "device 0\n"
                           "  %0: f32[n_tok, 64]\n"
                           "  %1: f32[n_tok, 64]\n"
                           "  %2: f32[64, 64] weights packed\n"
                           "  %3: f32[n_tok, 64]\n"
                           "  %4: f32[n_tok, 64]\n"
                           "  %5: f32[n_tok, 64]\n"
                           "  %6: f32[n_tok, 64]\n"
                           "variant\n";

/* Returns the program's launches on a GPU, whose %3 .. %6 must have the CPU's
 * bits. */
static int launches(const char *steps)
{
    struct arena a = {0};
    struct device_run run = build_run(TOK);
    float x[2][N_OUT], w[WIDE * WIDE], out[2][4][N_OUT];
    char text[1000];
    uint64_t seed = 5;
    int n = 0;

    for (int i = 0; i < N_OUT; i++) {
        x[0][i] = test_unit(&seed);
        x[1][i] = test_unit(&seed);
    }
    for (int i = 0; i < WIDE * WIDE; i++)
        w[i] = test_unit(&seed);
    strcat(strcpy(text, head), steps);
    for (int k = 0; k < 2; k++) {
        struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
        struct device_set *s = build_set_as(k ? "emu" : "cpu", 1, &opt);

        LOAD_OK(s, build_text(&a, text, 1));
        build_put(s, 0, 0, x[0], N_OUT);
        build_put(s, 0, 1, x[1], N_OUT);
        build_put(s, 0, 2, w, WIDE * WIDE);
        for (int i = 0; i < 4; i++)
            build_put(s, 0, 3 + i, x[0], N_OUT);
        for (int i = 0; i < 3; i++)
            RUN_OK(s, &run);
        for (int i = 0; i < 4; i++)
            build_get(s, 0, 3 + i, out[k][i], N_OUT);
        if (k)
            n = ((const struct gpu_device *)device_of(s, 0)->own)->image.list.n;
        device_set_free(s);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    arena_fini(&a);
    return n;
}

TEST(gpu_programs_have_fewer_launches_and_the_same_values)
{
    assert_int_equal(launches("  0: %3 = add(%0, %1)\n"
                              "  0: %4 = rms_norm(%3, -) eps=1e-5\n"
                              "  0: %5 = matmul(%4, %2, -)\n"
                              "  0: %6 = matmul(%4, %2, -)\n"),
                     2);
    /* the operand of both products is one tensor, but it is computed again in
     * between */
    assert_int_equal(launches("  0: %5 = matmul(%0, %2, -)\n"
                              "  0: %0 = scale(%0) scale=2\n"
                              "  0: %6 = matmul(%0, %2, -)\n"),
                     3);
    /* an instruction in between reads what the second product overwrites */
    assert_int_equal(launches("  0: %5 = matmul(%0, %2, -)\n"
                              "  0: %3 = scale(%6) scale=2\n"
                              "  0: %6 = matmul(%0, %2, -)\n"),
                     3);
    assert_int_equal(launches("  0: %5 = matmul(%0, %2, -)\n"
                              "  0: %3 = scale(%1) scale=2\n"
                              "  0: %6 = matmul(%0, %2, -)\n"),
                     2);
}
