/* Decoders give the reference vectors, encoders keep their error bounds, and
 * half floats follow arithmetic. */
#include "lib/support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "quant/format.h"

static void check_vectors(pl_format f, const char *stem)
{
    const struct format_info *fi = format_info(f);
    char name[64];
    const char *blocks_path, *values_path;
    uint8_t *blocks;
    float *want, *got;
    size_t blocks_size, values_size;
    int64_t n;

    snprintf(name, sizeof(name), "tests/refs/quant/%s.blocks.bin", stem);
    blocks_path = test_file(name);
    snprintf(name, sizeof(name), "tests/refs/quant/%s.f32.bin", stem);
    values_path = test_file(name);
    assert_true(blocks_path && values_path);
    blocks = test_read(blocks_path, &blocks_size);
    want = test_read(values_path, &values_size);
    n = (int64_t)(values_size / sizeof(float));
    assert_true(n > 0);
    assert_int_equal(format_row_bytes(f, n), blocks_size);
    got = test_need(1, values_size);
    fi->decode(got, blocks, n);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
            fail_msg("%s: value %d is %a, should be %a", stem, (int)i,
                     (double)got[i], (double)want[i]);
    }
    free(blocks);
    free(want);
    free(got);
}

#define VECTORS(law, format, stem)                                             \
    TEST(law)                                                                  \
    {                                                                          \
        check_vectors(PL_##format, stem);                                      \
    }
VECTORS(quant_decode_equals_reference_f16, F16, "f16")
VECTORS(quant_decode_equals_reference_bf16, BF16, "bf16")
VECTORS(quant_decode_equals_reference_q8_0, Q8_0, "q8_0")
VECTORS(quant_decode_equals_reference_q4_0, Q4_0, "q4_0")
VECTORS(quant_decode_equals_reference_q4_1, Q4_1, "q4_1")
VECTORS(quant_decode_equals_reference_q5_0, Q5_0, "q5_0")
VECTORS(quant_decode_equals_reference_q5_1, Q5_1, "q5_1")
VECTORS(quant_decode_equals_reference_q2_k, Q2_K, "q2_k")
VECTORS(quant_decode_equals_reference_q3_k, Q3_K, "q3_k")
VECTORS(quant_decode_equals_reference_q4_k, Q4_K, "q4_k")
VECTORS(quant_decode_equals_reference_q5_k, Q5_K, "q5_k")
VECTORS(quant_decode_equals_reference_q6_k, Q6_K, "q6_k")
VECTORS(quant_decode_equals_reference_iq4_nl, IQ4_NL, "iq4_nl")
VECTORS(quant_decode_equals_reference_iq4_xs, IQ4_XS, "iq4_xs")
VECTORS(quant_decode_equals_reference_mxfp4, MXFP4, "mxfp4")
VECTORS(quant_decode_equals_reference_mxfp4x, MXFP4, "mxfp4x")
VECTORS(quant_decode_equals_reference_iq1_s, IQ1_S, "iq1_s")
VECTORS(quant_decode_equals_reference_iq1_m, IQ1_M, "iq1_m")
VECTORS(quant_decode_equals_reference_iq2_xxs, IQ2_XXS, "iq2_xxs")
VECTORS(quant_decode_equals_reference_iq2_xs, IQ2_XS, "iq2_xs")
VECTORS(quant_decode_equals_reference_iq2_s, IQ2_S, "iq2_s")
VECTORS(quant_decode_equals_reference_iq3_xxs, IQ3_XXS, "iq3_xxs")
VECTORS(quant_decode_equals_reference_iq3_s, IQ3_S, "iq3_s")
VECTORS(quant_decode_equals_reference_tq1_0, TQ1_0, "tq1_0")
VECTORS(quant_decode_equals_reference_tq2_0, TQ2_0, "tq2_0")
VECTORS(quant_decode_equals_reference_nvfp4, NVFP4, "nvfp4")

/* tests/long/quant_against_gguf_py.py does the comparison; its driver was built
 * next to this program. */
TEST_LONG(quant_decode_equals_gguf_python_package)
{
    const char *script = test_file("tests/long/quant_against_gguf_py.py");
    char self[4096] = "", command[9000], *slash;
    int status;

    assert_non_null(script);
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    slash = strrchr(self, '/');
    assert_non_null(slash);
    *slash = '\0';
    snprintf(command, sizeof(command),
             "'%s' '%s/tests/quant-decode' 20000 %llu", script, self,
             (unsigned long long)test_seed());
    status = system(command);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        TEST_SKIP("the Python package gguf cannot be installed");
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(quant_decode_mxfp4_is_exact_at_every_scale)
{
    static const double twice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                     0, -1, -2, -3, -4, -6, -8, -12};

    for (int e = 0; e < 256; e++) {
        uint8_t block[17] = {(uint8_t)e};
        float got[32];

        for (int i = 0; i < 16; i++)
            block[1 + i] = (uint8_t)(i | (15 - i) << 4);
        format_info(PL_MXFP4)->decode(got, block, 32);
        for (int i = 0; i < 16; i++) {
            if (e == 255) {
                assert_true(isnan(got[i]) && isnan(got[31 - i]));
                continue;
            }
            /* the cast rounds, but only to infinity: all else is exact */
            assert_true(got[i] == (float)ldexp(twice[i], e - 128));
            assert_true(got[31 - i] == (float)ldexp(twice[i], e - 128));
        }
    }
}

TEST(quant_decode_reads_i32_and_f32)
{
    int32_t ints[3] = {-7, 0, 1 << 24};
    float floats[2] = {-0.0f, 1e-45f}, got[3];

    format_info(PL_I32)->decode(got, ints, 3);
    for (int i = 0; i < 3; i++)
        assert_true(got[i] == (float)ints[i]);
    format_info(PL_F32)->decode(got, floats, 2);
    assert_memory_equal(got, floats, sizeof(floats));
}

/* ---- encoders ------------------------------------------------------------ */

static float row_scale(uint64_t *seed)
{
    return ldexpf(1, (int)test_below(seed, 24) - 12);
}

TEST(quant_encode_is_within_half_a_step)
{
    uint64_t seed = test_seed();

    for (int round = 0; round < 2000; round++) {
        float x[64], y[64], scale = row_scale(&seed);
        uint8_t q8[68], q4[36];

        for (int i = 0; i < 64; i++)
            x[i] = scale * test_unit(&seed);
        format_info(PL_Q8_0)->encode(q8, x, 64);
        format_info(PL_Q8_0)->decode(y, q8, 64);
        for (int i = 0; i < 64; i++) {
            uint16_t d;
            float step;

            memcpy(&d, q8 + 34 * (i / 32), 2);
            step = f16_to_f32(d);
            /* half a step, and where d was rounded down up to 127 * 2^-11 of
             * one more at the end of the range */
            assert_true(fabsf(x[i] - y[i]) <= 0.57f * step + 0x1p-24f * 127);
        }
        format_info(PL_Q4_0)->encode(q4, x, 64);
        format_info(PL_Q4_0)->decode(y, q4, 64);
        for (int i = 0; i < 64; i++) {
            uint16_t d;
            float step;

            memcpy(&d, q4 + 18 * (i / 32), 2);
            step = f16_to_f32(d);
            /* codes run from -8 to 7: beyond 7 a whole step may be missed */
            assert_true(fabsf(x[i] - y[i]) <=
                        (x[i] / step <= 7 ? 0.501f : 1.01f) * fabsf(step));
        }
    }
}

TEST(quant_encode_returns_what_was_decoded)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    uint64_t seed = test_seed();

    for (int round = 0; round < 500; round++) {
        const struct format_info *fi = format_info(formats[round % 3]);
        float x[32], y[32], scale = row_scale(&seed);
        uint8_t once[128], twice[128];

        for (int i = 0; i < 32; i++)
            x[i] = scale * test_unit(&seed);
        fi->encode(once, x, 32);
        fi->decode(y, once, 32);
        fi->encode(twice, y, 32);
        assert_memory_equal(once, twice, 32 * fi->block_bytes);
    }
}

TEST(quant_encode_zero_and_damage)
{
    static const pl_format formats[] = {PL_Q8_0, PL_Q4_0};

    for (size_t j = 0; j < 2; j++) {
        const struct format_info *fi = format_info(formats[j]);
        float x[32] = {0}, y[32];
        uint8_t block[34];

        fi->encode(block, x, 32);
        fi->decode(y, block, 32);
        for (int i = 0; i < 32; i++)
            assert_true(y[i] == 0);
        x[5] = 1;
        x[7] = NAN;
        fi->encode(block, x, 32);
        fi->decode(y, block, 32);
        assert_true(isnan(y[7]));
        x[7] = -INFINITY;
        fi->encode(block, x, 32);
        fi->decode(y, block, 32);
        assert_false(isfinite(y[7]));
    }
}

TEST(quant_encode_rounds_ties_to_even)
{
    float x[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.5f};
    static const int8_t want[8] = {127, 0, 2, 2, 0, -2, -2, 4};
    uint8_t block[34];

    format_info(PL_Q8_0)->encode(block, x, 32);
    for (int i = 0; i < 8; i++)
        assert_int_equal((int8_t)block[2 + i], want[i]);
}

/* ---- half floats --------------------------------------------------------- */

static double half_value(int h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);

    return h & 0x8000 ? -v : v;
}

TEST(half_to_float_is_exact_for_all)
{
    for (int h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);

        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            assert_true((f32_to_f16(f) & 0x7c00) == 0x7c00);
            assert_true((f32_to_f16(f) & 0x3ff) != 0);
        } else {
            if ((h & 0x7fff) == 0x7c00)
                assert_true(isinf(f) && (f < 0) == (h >> 15));
            else
                assert_true((double)f == half_value(h));
            assert_int_equal(f32_to_f16(f), h);
        }
    }
}

TEST(half_from_float_rounds_to_nearest_even)
{
    /* between h and h + 1, with 65536 standing for the half above the last */
    for (int h = 0; h < 0x7c00; h++) {
        double lo = half_value(h), hi = half_value(h + 1);
        /* half way between two half floats; 12 bits, so exact in a float */
        float mid = (float)((lo + hi) / 2);

        assert_int_equal(f32_to_f16(mid), h + (h & 1));
        assert_int_equal(f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-mid), (h + (h & 1)) | 0x8000);
    }
    assert_int_equal(f32_to_f16(FLT_MAX), 0x7c00);
    assert_int_equal(f32_to_f16(1e-45f), 0);
}

TEST(bf16_rounds_to_nearest_even_for_all)
{
    for (int h = 0; h < 65536; h++) {
        float f = bf16_to_f32((uint16_t)h);

        if (isnan(f)) {
            assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
            continue;
        }
        assert_int_equal(f32_to_bf16(f), h);
        if (isinf(f))
            continue;
        for (int side = -1; side <= 1; side++) {
            float near = float_from_bits((uint32_t)h << 16 | (0x8000 + side));
            int up = side > 0 || (side == 0 && (h & 1));

            assert_int_equal(f32_to_bf16(near), h + up);
        }
    }
}

/* ---- the table ----------------------------------------------------------- */

TEST(quant_format_found_by_id_and_name)
{
#define ROW(format, id)                                                        \
    assert_int_equal(format_from_id(id), PL_##format);                         \
    assert_int_equal(format_from_name(#format), PL_##format);                  \
    assert_string_equal(format_info(PL_##format)->name, #format);
    PL_FORMAT_MAP(ROW)
#undef ROW
    assert_int_equal(format_from_name("q4_k"), PL_Q4_K);
    assert_int_equal(format_from_name("q4"), PL_FORMAT_COUNT);
    assert_int_equal(format_from_name(""), PL_FORMAT_COUNT);
    assert_int_equal(format_from_id(4), PL_FORMAT_COUNT);
    assert_int_equal(format_from_id(UINT32_MAX), PL_FORMAT_COUNT);
    assert_int_equal(format_row_bytes(PL_Q6_K, 512), 420);
}
