/* Graphs that no model builds, and steps with wrong tables. Wrong input is
 * rejected, unusual input is accepted, and no memory outside the executor's is
 * accessed. These cases are most effective in the sanitizer builds. */
#include "pl_graph.h"

#include "lib/support.h"

#include <math.h>
#include <string.h>

static pl_exec *create(const pl_graph *g, const char *devices)
{
    const pl_options o = {.size = sizeof o,
                          .devices = devices,
                          .n_threads = 1,
                          .n_ubatch = 4,
                          .n_ctx = 128,
                          .n_seq = 2,
                          .no_pin = true};
    pl_exec *x;
    pl_err err;

    TEST_OK(pl_exec_create(&x, g, &o, &err), err);
    return x;
}

/* A step reads all pages up to a token's position, not only those of its own
 * tokens. */
TEST(exec_refuses_steps_whose_pages_are_not_the_caches)
{
    static const int32_t zero[2] = {0}, one[2] = {1, 1}, far[2] = {5, 9000};
    static const int32_t at_70[2] = {70, 71};
    static const int32_t good[4] = {0, 1, 1, 0}, first_bad[4] = {7, 1, 1, 0};
    enum { SIZE = sizeof(pl_step_tokens) };
    static const struct {
        pl_step_tokens rows;
        pl_status status;
    } cases[] = {
        {{SIZE, 2, 0, at_70, zero, {good}, 2}, PL_OK},
        {{SIZE, 2, 0, at_70, one, {good}, 2}, PL_OK},
        {{SIZE, 2, 0, zero, NULL, {NULL}, 0}, PL_OK},
        {{SIZE, 2, 0, at_70, zero, {first_bad}, 2}, PL_BAD_ARGUMENT},
        {{SIZE, 2, 0, at_70, zero, {good}, 1}, PL_BAD_ARGUMENT},
        {{SIZE, 2, 0, far, zero, {good}, 2}, PL_BAD_ARGUMENT},
        {{SIZE, 2, 0, far, zero, {NULL}, 0}, PL_BAD_ARGUMENT},
        {{SIZE, 2, 0, zero, one, {NULL}, 0}, PL_BAD_ARGUMENT},
    };
    const pl_dim dim[3] = {{1, PL_N_TOK}, {1, PL_CONST}, {8, PL_CONST}};
    pl_graph *g;
    pl_tensor x, k, v;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 3, dim);
    k = pl_cache_write(g, pl_cache(g, "k", PL_F32, 1, 8, false, 0), x);
    v = pl_cache_write(g, pl_cache(g, "v", PL_F32, 1, 8, true, 0), x);
    pl_output(g, pl_attention(g, x, k, v, -1, 1.0f, 0, 0.0f));
    for (int d = 0; d < 2; d++) {
        pl_exec *e = create(g, d ? "sim*2" : "cpu*2");
        const float values[16] = {0};

        assert_int_equal(pl_tensor_set(e, x, values, 0, sizeof values, NULL),
                         PL_OK);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            pl_status s = pl_exec_step(e, &cases[i].rows, NULL);

            if (s != cases[i].status)
                fail_msg("case %zu: %s", i, pl_status_name(s));
        }
        pl_exec_free(e);
    }
    pl_graph_free(g);
}

/* A sequence's state has a slot to read and one to write, and its tokens are in
 * order and adjacent. */
TEST(exec_refuses_steps_that_do_not_follow_on_states)
{
    static const int32_t one[3] = {0}, two[3] = {0, 1, 0};
    static const int32_t at_0[3] = {0, 1, 2}, at_2[3] = {2, 3, 4};
    static const int32_t gap[3] = {2, 3, 5}, back[3] = {2, 3, 3};
    static const int32_t split[3] = {0, 0, 1};
    /* Page tables of a pool of states: slot to read, slot to write, and the
     * length so far; for one sequence or two. */
    static const int32_t fresh[6] = {-1, 0, 0, -1, 1, 0};
    static const int32_t on[3] = {0, 1, 2}, same[3] = {0, 0, 2};
    static const int32_t later[3] = {-1, 1, 1}, before[3] = {0, 1, 3};
    static const int32_t unread[3] = {-1, 1, 2}, far[3] = {9000, 1, 2};
    static const int32_t unwritten[3] = {0, -1, 2}, beyond[3] = {0, 9000, 2};
    enum { SIZE = sizeof(pl_step_tokens) };
    static const struct {
        pl_step_tokens rows;
        pl_status status;
    } cases[] = {
        {{SIZE, 3, 0, at_0, one, {fresh}, 3}, PL_OK},
        {{SIZE, 3, 0, at_2, one, {on}, 3}, PL_OK},
        {{SIZE, 3, 0, at_2, one, {same}, 3}, PL_OK},
        {{SIZE, 3, 0, at_2, one, {later}, 3}, PL_OK},
        {{SIZE, 3, 0, at_0, NULL, {NULL}, 0}, PL_OK},
        {{SIZE, 3, 0, at_2, one, {before}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, at_2, one, {unread}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, at_2, one, {far}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, at_2, one, {unwritten}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, at_2, one, {beyond}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, at_2, one, {on}, 2}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, gap, one, {on}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, back, one, {on}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 3, 0, split, two, {fresh}, 3}, PL_BAD_ARGUMENT},
        {{SIZE, 2, 0, split, two, {fresh}, 3}, PL_OK},
    };
    const pl_dim dim[2] = {{1, PL_N_TOK}, {6, PL_CONST}};
    const int64_t taps[2] = {6, 4};
    pl_graph *g;
    pl_tensor x, w;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, dim);
    w = pl_weight(g, "w", PL_F32, 2, taps, PL_ROLE_CONV);
    pl_output(g,
              pl_short_conv(g, x, w, pl_state(g, "s", 6, 3, PL_ROLE_CONV_STATE),
                            false));
    for (int d = 0; d < 2; d++) {
        pl_exec *e = create(g, d ? "sim*2" : "cpu*2");
        const float values[24] = {0};

        assert_int_equal(
            pl_tensor_set(e, x, values, 0, 18 * sizeof *values, NULL), PL_OK);
        assert_int_equal(pl_tensor_set(e, w, values, 0, sizeof values, NULL),
                         PL_OK);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            pl_status s = pl_exec_step(e, &cases[i].rows, NULL);

            if (s != cases[i].status)
                fail_msg("case %zu: %s", i, pl_status_name(s));
        }
        pl_exec_free(e);
    }
    pl_graph_free(g);
}

static pl_exec *without_options(const pl_graph *g)
{
    pl_exec *x;

    assert_int_equal(pl_exec_create(&x, g, NULL, NULL), PL_OK);
    return x;
}

/* No op takes whole matrices apportioned to ranks. Only a requested layout, or
 * a role that means something else, leads to this. */
TEST(exec_keeps_matrices_dealt_out_whole)
{
    enum { BYTES = 3 * 20 * 2 * 34 }; /* size of a weight [3, 20, 64] in Q8_0 */
    const int64_t dim[3] = {3, 20, 64};
    const pl_dim rows[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    unsigned char put[BYTES], got[BYTES];
    uint64_t seed = test_seed();
    pl_graph *g;
    pl_tensor w;

    for (int i = 0; i < BYTES; i++)
        put[i] = (unsigned char)test_below(&seed, 256);
    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    w = pl_weight(g, "w", PL_Q8_0, 3, dim, PL_ROLE_TOKEN_EMBD);
    pl_output(g, pl_relu(g, pl_input(g, "x", PL_F32, 2, rows)));
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    pl_exec_free(without_options(g));
    for (int d = 0; d < 3; d++) {
        static const char *const devices[] = {"cpu*2", "sim*3", "cpu*5"};
        pl_exec *e = create(g, devices[d]);
        pl_err err;

        for (size_t at = 0, n; at < BYTES; at += n) {
            n = 1 + (size_t)test_below(&seed, 2000);
            n = n < BYTES - at ? n : BYTES - at;
            TEST_OK(pl_tensor_set(e, w, put + at, at, n, &err), err);
        }
        memset(got, 0, sizeof got);
        TEST_OK(pl_tensor_get(e, w, got, 0, BYTES, &err), err);
        assert_memory_equal(got, put, BYTES);
        pl_exec_free(e);
    }
    pl_graph_free(g);
}

/* The message repeats the request, also for sums that overflow. */
TEST(exec_refuses_bytes_beyond_a_tensor)
{
    static const struct {
        /* set: the call is pl_tensor_set, else pl_tensor_get; kept: on the kept
         * value, else on the weight */
        bool set, kept;
        size_t offset, bytes;
        const char *words;
    } cases[] = {
        {false, false, 33, 0, "0 bytes from byte 33 requested, it has"},
        {true, false, 32, 1, "1 bytes from byte 32 requested"},
        {false, false, SIZE_MAX - 3, 8,
         "8 bytes from byte 18446744073709551612"},
        {true, true, 0, 4, "cannot be set; inputs, weights and caches can"},
    };
    const int64_t dim[1] = {8};
    const pl_dim rows[2] = {{1, PL_N_TOK}, {8, PL_CONST}};
    pl_tensor w, y;
    pl_graph *g;
    pl_exec *e;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    w = pl_weight(g, "w", PL_F32, 1, dim, PL_ROLE_NORM);
    y = pl_mul(g, pl_input(g, "x", PL_F32, 2, rows), w);
    pl_output(g, y);
    pl_keep(g, y);
    e = create(g, "cpu*2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_tensor t = cases[i].kept ? y : w;
        float v[8] = {0};
        pl_err err;
        pl_status s =
            cases[i].set
                ? pl_tensor_set(e, t, v, cases[i].offset, cases[i].bytes, &err)
                : pl_tensor_get(e, t, v, cases[i].offset, cases[i].bytes, &err);

        assert_int_equal(s, PL_BAD_ARGUMENT);
        if (!strstr(err.message, cases[i].words))
            fail_msg("case %zu: %s", i, err.message);
    }
    pl_exec_free(e);
    pl_graph_free(g);
}

/* Angles that overflow give meaningless values, and sums may be NaN, but
 * nothing worse. A model's factors are checked when it is opened. */
TEST(exec_rope_takes_any_factors)
{
    static const float factor[][2] = {{0, 1},       {NAN, INFINITY},
                                      {-1, 1e-45f}, {1e-31f, -0.0f},
                                      {1e38f, 1},   {-INFINITY, 1e-12f}};
    static const int32_t pos[4] = {0, 1, 127, INT32_MAX};
    const pl_dim token = {1, PL_N_TOK};
    const pl_dim dim[3] = {{1, PL_N_TOK}, {2, PL_CONST}, {6, PL_CONST}};
    const int64_t half = 2;

    for (int neox = 0; neox < 2; neox++) {
        const pl_rope rope = {
            .size = sizeof rope, .n_rot = 4, .neox = neox, .base = 10000};
        const pl_step_tokens rows = {.size = sizeof rows, .n_tok = 4};
        float x[48], y[48];
        pl_graph *g;
        pl_tensor in, at, f, out;
        pl_exec *e;

        for (int i = 0; i < 48; i++)
            x[i] = (float)(i % 7) - 3;
        assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
        in = pl_input(g, "x", PL_F32, 3, dim);
        at = pl_input(g, "at", PL_I32, 1, &token);
        f = pl_weight(g, "f", PL_F32, 1, &half, PL_ROLE_ROPE_FREQS);
        out = pl_rope_apply(g, in, at, f, &rope);
        pl_output(g, out);
        e = create(g, "cpu");
        for (size_t k = 0; k < sizeof factor / sizeof factor[0]; k++) {
            assert_int_equal(pl_tensor_set(e, in, x, 0, sizeof x, NULL), PL_OK);
            assert_int_equal(pl_tensor_set(e, at, pos, 0, sizeof pos, NULL),
                             PL_OK);
            assert_int_equal(pl_tensor_set(e, f, factor[k], 0, 8, NULL), PL_OK);
            assert_int_equal(pl_exec_step(e, &rows, NULL), PL_OK);
            assert_int_equal(pl_tensor_get(e, out, y, 0, sizeof y, NULL),
                             PL_OK);
            /* values of a head after the first n_rot are not rotated */
            for (int i = 0; i < 48; i++)
                if (i % 6 >= 4)
                    assert_true(y[i] == x[i]);
        }
        pl_exec_free(e);
        pl_graph_free(g);
    }
}
