/* The other kernels of a kernel set, besides contractions: rows by index,
 * activations to 8 bits, sums, names. */
#include "lib/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cpu_weights.h"

/* ---- rows by index ------------------------------------------------------- */

static float *gather(const struct cpu_kernels *k, const struct weights *w,
                     bool plain, const int32_t *id, int64_t n_id,
                     const struct rank_span *span, int n_span,
                     const struct rank_tree *tree, int nth)
{
    int64_t count = n_id * w->k;
    float *out = weights_alloc((size_t)(count * tree->n_out) * sizeof(float));
    struct cpu_call c = {
        .n_in = 2,
        .tree = *tree,
        .span = span,
        .n_span = n_span,
        .out_stride = (size_t)count * sizeof(float),
        .nth = nth,
    };

    weights_dims(&c.in[0], 2, w->n, w->k, 0);
    weights_dims(&c.in[1], 1, n_id, 0, 0);
    weights_dims(&c.out, 2, n_id, w->k, 0);
    c.in[0].data = plain ? (void *)w->value : w->data;
    c.in[0].format = plain ? PL_F32 : w->pack.format;
    c.in[0].pack = plain ? NULL : &w->pack;
    c.in[1].data = (void *)id;
    c.out.data = out;
    for (c.ith = 0; c.ith < nth; c.ith++)
        k->kernel[KERNEL_gather_rows].run(&c);
    return out;
}

TEST(gather_rows_decodes_and_pads)
{
    static const int32_t id[] = {3, 0, -1, 18, 19, 7, 3, INT32_MAX, INT32_MIN};
    enum { N_ID = sizeof(id) / sizeof(id[0]) };
    uint64_t seed = test_seed() + 6;
    struct cpu_kernels k;
    struct weights_tree t;

    cpu_kernels_init(&k, kernel_set_best());
    weights_tree_single(&t, 0);
    for (int i = 0; i < 2 * WEIGHTS_N_FORMAT; i++) {
        /* The device holds values 32 .. 95 and 160 .. 255 of each row. */
        struct pack_span span[] = {{32, 64, 0}, {160, 96, 1}};
        struct weights w = weights_make(i / 2, 1, 19, 256, span, 2, &seed);
        float *got = gather(&k, &w, i % 2, id, N_ID, NULL, 0, &t.t, 1 + i % 3);

        assert_int_equal(w.k, 160);
        for (int j = 0; j < N_ID; j++) {
            for (int64_t v = 0; v < w.k; v++) {
                bool in = id[j] >= 0 && id[j] < 19;
                float want = in ? w.value[id[j] * w.k + v] + 0.0f : 0.0f;

                assert_memory_equal(&got[j * w.k + v], &want, sizeof(want));
            }
        }
        free(got);
        weights_free(&w);
    }
}

/* Five ranks share a table of 50 rows, 10 each. The device carries 1 .. 3, and
 * also stores rows of rank 4, which another device computes. */
TEST(gather_rows_of_a_split_table)
{
    static const struct rank_span span[] = {
        {10, 0, 10, 1}, {20, 10, 10, 2}, {30, 20, 10, 3}, {40, 30, 10, 4}};
    uint64_t seed = test_seed() + 7;
    struct pack_span all = {0, 64, 0};
    struct weights w = weights_make(3, 1, 40, 64, &all, 1, &seed);
    int32_t id[52];
    struct cpu_kernels k;
    struct weights_tree t;
    float *got;

    for (int i = 0; i < 52; i++)
        id[i] = i - 1;
    cpu_kernels_init(&k, kernel_set_best());
    weights_tree_make(&t, 5, 1, 4, 0);
    /* this device has the subtrees {1} and {2, 3} */
    assert_int_equal(t.t.n_out, 2);
    got = gather(&k, &w, false, id, 52, span, 4, &t.t, 2);
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < 52; i++) {
            bool in =
                e == 0 ? id[i] >= 10 && id[i] < 20 : id[i] >= 20 && id[i] < 40;

            for (int v = 0; v < 64; v++) {
                float want = in ? w.value[(id[i] - 10) * 64 + v] + 0.0f : 0.0f;

                assert_memory_equal(&got[(e * 52 + i) * 64 + v], &want,
                                    sizeof(want));
            }
        }
    }
    free(got);
    weights_free(&w);
}

/* ---- activations, sums, names -------------------------------------------- */

TEST(q8_has_one_form)
{
    static const float edge[] = {0.0f,      -0.0f,     1.0f,      0x1p-149f,
                                 0x1p-126f, 0x1p-120f, -0x1p127f, 0x1p-121f,
                                 INFINITY,  -INFINITY, NAN,       127.5f};
    uint64_t seed = test_seed() + 8;
    float *x = weights_alloc(400 * 32 * sizeof(float));
    struct q8_block *want = weights_alloc(400 * sizeof(*want));
    struct q8_block *got = weights_alloc(400 * sizeof(*got));
    struct cpu_kernels k;

    for (int b = 0; b < 400; b++) {
        float size = ldexpf(1.0f, (int)test_below(&seed, 60) - 40);

        for (int i = 0; i < 32; i++)
            x[b * 32 + i] = b % 4 == 1 ? (float)test_below(&seed, 255) - 127
                                       : size * test_unit(&seed);
        if (b % 4 == 2)
            x[b * 32 + test_below(&seed, 32)] = edge[test_below(&seed, 12)];
        if (b % 4 == 3) {
            for (int i = 0; i < 32; i++)
                x[b * 32 + i] = edge[test_below(&seed, 8)] * (i < b / 8);
        }
    }
    for (int share = 32; share <= 256; share += 32) {
        q8_encode(want, x, 400 * 32, share);
        for (int f = -1; weights_next_kernel_set(&f, &k);) {
            memset(got, 0xa5, 400 * sizeof(*got));
            k.q8(got, x, 400 * 32, share);
            for (int b = 0; b < 400; b++)
                if (memcmp(&got[b], &want[b], sizeof(got[b])) != 0)
                    fail_msg("%s, a scale for %d: block %d differs",
                             kernel_set_name(k.kernel_set), share, b);
        }
    }
    free(x);
    free(want);
    free(got);
}

TEST(add_adds_in_place_too)
{
    uint64_t seed = test_seed() + 9;
    struct cpu_kernels k;

    for (int f = -1; weights_next_kernel_set(&f, &k);) {
        for (int64_t n = 0; n < 70; n++) {
            float *a = weights_floats(n, &seed), *b = weights_floats(n, &seed);
            float *want = weights_alloc((size_t)n * sizeof(float));
            float *got = weights_alloc((size_t)n * sizeof(float));

            for (int64_t i = 0; i < n; i++)
                want[i] = a[i] + b[i];
            k.add(got, a, b, n);
            assert_memory_equal(got, want, (size_t)n * sizeof(float));
            memcpy(got, b, (size_t)n * sizeof(float));
            k.add(got, a, got, n);
            assert_memory_equal(got, want, (size_t)n * sizeof(float));
            k.add(a, a, b, n);
            assert_memory_equal(a, want, (size_t)n * sizeof(float));
            free(a);
            free(b);
            free(want);
            free(got);
        }
    }
}

TEST(kernel_sets_have_names)
{
    struct cpu_kernels k;
    enum kernel_set set;
    pl_err err;

    for (int f = 0; f < KERNEL_SET_COUNT; f++) {
        const char *name = kernel_set_name((enum kernel_set)f);
        pl_status s = kernel_set_find(&set, name, false, &err);

        if (kernel_set_runs((enum kernel_set)f))
            TEST_OK(s, err);
        else
            assert_int_equal(s, PL_UNSUPPORTED);
        TEST_OK(kernel_set_find(&set, name, true, &err), err);
        assert_int_equal(set, f);
    }
    assert_int_equal(kernel_set_find(&set, "sse", true, &err), PL_BAD_ARGUMENT);
    assert_string_equal(
        err.message,
        "unknown kernel set 'sse'; known are reference, generic, avx2, "
        "avx_vnni, avx512, avx512_vnni, avx512_bf16, amx, neon, dotprod, i8mm");
    TEST_OK(kernel_set_find(&set, "", false, &err), err);
    assert_int_equal(set, kernel_set_best());
    assert_true(kernel_set_runs(set));
    cpu_kernels_init(&k, KERNEL_SET_REFERENCE);
    assert_false(cpu_wants_q8(&k, KERNEL_matmul, PL_Q4_K));
    cpu_kernels_init(&k, kernel_set_best());
    assert_true(cpu_wants_q8(&k, KERNEL_expert_down, PL_MXFP4));
    assert_false(cpu_wants_q8(&k, KERNEL_matmul, PL_F16));
    assert_false(cpu_wants_q8(&k, KERNEL_gather_rows, PL_Q8_0));
}

/* A processor with AVX-512 but not VNNI gets the ops of AVX-512 and the
 * contractions of a lower set. */
TEST(kernel_sets_stand_on_those_that_need_less)
{
    struct cpu_kernels generic, avx2, avx512, vnni;

    /* The code that fills a set's table is compiled for its processors too. */
    if (!kernel_set_runs(KERNEL_SET_AVX512_VNNI))
        TEST_SKIP("this machine does not run avx512_vnni");
    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    cpu_kernels_init(&avx2, KERNEL_SET_AVX2);
    cpu_kernels_init(&avx512, KERNEL_SET_AVX512);
    cpu_kernels_init(&vnni, KERNEL_SET_AVX512_VNNI);
    for (int i = 0; i < KERNEL_COUNT; i++) {
        cpu_kernel *run = avx512.kernel[i].run;

        assert_true(run == (kernel_is_contraction((enum kernel)i)
                                ? avx2.kernel[i].run
                                : vnni.kernel[i].run));
        assert_true((run == NULL) == (generic.kernel[i].run == NULL));
    }
}
