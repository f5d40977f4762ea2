/* The table of element formats, one row per format, and the look-ups into it.
 * To add a format, add a row here, its name to PL_FORMAT_MAP (pl.h) and
 * CODEC_BLOCK_MAP (codec.h), and a function with the positions of its bits to
 * block.c. The format then works on all devices with generic kernels; kernels
 * of its own make it faster. */
#include "quant/format.h"

#include <stdio.h>

#include "base/ascii.h"

#include "quant/codec.h"
#include "quant/pack.h"

/* The levels L(c) (pack.h) of the sixteen codes c of IQ4_NL and IQ4_XS. */
static const int8_t nonlinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* The levels of MXFP4 and NVFP4: the E2M1 numbers of OCP Microscaling (MX) 1.0,
 * doubled so that they are integers. -0 becomes 0. */
static const int8_t e2m1_doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                        0, -1, -2, -3, -4, -6, -8, -12};

/* The levels of IQ2 and IQ3: first magnitudes, then the same negated, because
 * the highest bit of a code is the sign. They are 8 times those of the formats'
 * definition, and the scales are an eighth (PACK_SUP_D_8TH). Codes with the
 * level 0 do not occur. */
static const int8_t grid2[16] = {8, 25, 43, 0, -8, -25, -43, 0};
static const int8_t grid3_xxs[16] = {8,  24,  40,  56,  72,  88,  104,  124,
                                     -8, -24, -40, -56, -72, -88, -104, -124};
static const int8_t grid3_s[16] = {8,  24,  40,  56,  72,  88,  104,  120,
                                   -8, -24, -40, -56, -72, -88, -104, -120};
/* The levels of IQ1_M times 8. Codes 0 to 2 are -1, 0 and 1 plus 1/8, codes 4
 * to 6 the same minus 1/8. */
static const int8_t grid1_m[16] = {-7, 1, 9, 0, -9, -1, 7, 0};

enum {
    SUB_BYTES_NONE = 0,
    SUB_BYTES_F16 = 2 * PACK_ROWS,
    SUB_BYTES_F16_MIN = 4 * PACK_ROWS,
    SUB_BYTES_E8M0 = PACK_ROWS,
    SUB_BYTES_S8 = PACK_ROWS,
    SUB_BYTES_S8X2 = 2 * PACK_ROWS,
    SUB_BYTES_U8_MIN = 2 * PACK_ROWS,
    SUB_BYTES_U8X2_MIN = 2 * PACK_ROWS,
    SUB_BYTES_ODD4X2 = PACK_ROWS,
    SUB_BYTES_UE4M3X2 = 2 * PACK_ROWS,
    SUP_BYTES_NONE = 0,
    SUP_BYTES_D = 2 * PACK_ROWS,
    SUP_BYTES_D_8TH = 2 * PACK_ROWS,
    SUP_BYTES_D_DMIN = 4 * PACK_ROWS,
};

/* The pack_rule of a quantized format, whose tiles have 32 values of 16 rows. A
 * plane with w bits of each code has 64 w bytes. */
#define TILE32(low, high, sub_, sup_, bias_, table_, move_, weave_)            \
    &(const struct pack_rule)                                                  \
    {                                                                          \
        .tile_values = 32, .low_bits = low, .high_bits = high,                 \
        .sub = PACK_SUB_##sub_, .sup = PACK_SUP_##sup_, .bias = bias_,         \
        .table = table_, .tile_bytes = SUB_BYTES_##sub_ + 64 * (low + high),   \
        .sup_bytes = SUP_BYTES_##sup_, .sub_bytes = SUB_BYTES_##sub_,          \
        .low_bytes = 64 * low, .move = quant_move_##move_, .weave = weave_,    \
    }

#define TILE1(bits)                                                            \
    &(const struct pack_rule)                                                  \
    {                                                                          \
        .tile_values = 1, .low_bits = bits, .tile_bytes = 2 * bits,            \
        .low_bytes = 2 * bits, .weave = quant_weave_##bits,                    \
    }

/* clang-format off */
static const struct format_info formats[PL_FORMAT_COUNT] = {
    /* Columns: name; values in a block; bytes of a block; grain; decoder;
     * encoder; pack_rule: bits in low and high plane, sub scales, super scales,
     * bias, table of levels, quant_move, quant_weave; true if caches may have
     * the format */
    [PL_F32] = {"F32", 1, 4, 32, quant_decode_f32, quant_encode_f32,
        TILE1(32), true},
    [PL_F16] = {"F16", 1, 2, 32, quant_decode_f16, quant_encode_f16,
        TILE1(16), true},
    [PL_BF16] = {"BF16", 1, 2, 32, quant_decode_bf16, quant_encode_bf16,
        TILE1(16), true},
    [PL_Q8_0] = {"Q8_0", 32, 34, 32, quant_decode_q8_0, quant_encode_q8_0,
        TILE32(8, 0, F16, NONE, 128, NULL, q8_0, quant_weave_q8_0), true},
    [PL_Q4_0] = {"Q4_0", 32, 18, 32, quant_decode_q4_0, quant_encode_q4_0,
        TILE32(4, 0, F16, NONE, 8, NULL, q4_0, quant_weave_q4_0), true},
    [PL_Q4_1] = {"Q4_1", 32, 20, 32, quant_decode_q4_1, NULL,
        TILE32(4, 0, F16_MIN, NONE, 0, NULL, q4_1, NULL), true},
    [PL_Q5_0] = {"Q5_0", 32, 22, 32, quant_decode_q5_0, NULL,
        TILE32(4, 1, F16, NONE, 16, NULL, q5_0, NULL), true},
    [PL_Q5_1] = {"Q5_1", 32, 24, 32, quant_decode_q5_1, NULL,
        TILE32(4, 1, F16_MIN, NONE, 0, NULL, q5_1, NULL), true},
    [PL_Q2_K] = {"Q2_K", 256, 84, 32, quant_decode_q2_k, NULL,
        TILE32(2, 0, U8X2_MIN, D_DMIN, 0, NULL, q2_k, NULL), false},
    [PL_Q3_K] = {"Q3_K", 256, 110, 32, quant_decode_q3_k, NULL,
        TILE32(2, 1, S8X2, D, 4, NULL, q3_k, NULL), false},
    [PL_Q4_K] = {"Q4_K", 256, 144, 32, quant_decode_q4_k, NULL,
        TILE32(4, 0, U8_MIN, D_DMIN, 0, NULL, q4_k, quant_weave_q4_k), false},
    [PL_Q5_K] = {"Q5_K", 256, 176, 32, quant_decode_q5_k, NULL,
        TILE32(4, 1, U8_MIN, D_DMIN, 0, NULL, q5_k, quant_weave_q5_k), false},
    [PL_Q6_K] = {"Q6_K", 256, 210, 32, quant_decode_q6_k, NULL,
        TILE32(4, 2, S8X2, D, 32, NULL, q6_k, quant_weave_q6_k), false},
    [PL_IQ4_NL] = {"IQ4_NL", 32, 18, 32, quant_decode_iq4_nl, NULL,
        TILE32(4, 0, F16, NONE, 0, nonlinear4, q4_0, quant_weave_q4_0), true},
    [PL_IQ4_XS] = {"IQ4_XS", 256, 136, 32, quant_decode_iq4_xs, NULL,
        TILE32(4, 0, S8, D, 0, nonlinear4, iq4_xs, NULL), false},
    [PL_MXFP4] = {"MXFP4", 32, 17, 32, quant_decode_mxfp4, NULL,
        TILE32(4, 0, E8M0, NONE, 0, e2m1_doubled, mxfp4, quant_weave_mxfp4),
        false},
    [PL_IQ1_S] = {"IQ1_S", 256, 50, 32, quant_decode_iq1_s, NULL,
        TILE32(2, 0, U8_MIN, D_8TH, 0, NULL, iq1_s, NULL), false},
    [PL_IQ1_M] = {"IQ1_M", 256, 56, 32, quant_decode_iq1_m, NULL,
        TILE32(2, 1, ODD4X2, D_8TH, 0, grid1_m, iq1_m, NULL), false},
    [PL_IQ2_XXS] = {"IQ2_XXS", 256, 66, 32, quant_decode_iq2_xxs, NULL,
        TILE32(2, 1, ODD4X2, D_8TH, 0, grid2, iq2_xxs, NULL), false},
    [PL_IQ2_XS] = {"IQ2_XS", 256, 74, 32, quant_decode_iq2_xs, NULL,
        TILE32(2, 1, ODD4X2, D_8TH, 0, grid2, iq2_xs, NULL), false},
    [PL_IQ2_S] = {"IQ2_S", 256, 82, 32, quant_decode_iq2_s, NULL,
        TILE32(2, 1, ODD4X2, D_8TH, 0, grid2, iq2_s, NULL), false},
    [PL_IQ3_XXS] = {"IQ3_XXS", 256, 98, 32, quant_decode_iq3_xxs, NULL,
        TILE32(4, 0, ODD4X2, D_8TH, 0, grid3_xxs, iq3_xxs, NULL), false},
    [PL_IQ3_S] = {"IQ3_S", 256, 110, 32, quant_decode_iq3_s, NULL,
        TILE32(4, 0, ODD4X2, D_8TH, 0, grid3_s, iq3_s, NULL), false},
    [PL_TQ1_0] = {"TQ1_0", 256, 54, 32, quant_decode_tq1_0, NULL,
        TILE32(2, 0, NONE, D, 1, NULL, tq1_0, NULL), false},
    [PL_TQ2_0] = {"TQ2_0", 256, 66, 32, quant_decode_tq2_0, NULL,
        TILE32(2, 0, NONE, D, 1, NULL, tq2_0, NULL), false},
    [PL_NVFP4] = {"NVFP4", 64, 36, 32, quant_decode_nvfp4, NULL,
        TILE32(4, 0, UE4M3X2, NONE, 0, e2m1_doubled, nvfp4, NULL), false},
    [PL_I32] = {"I32", 1, 4, 1, quant_decode_i32, NULL, NULL, false},
};
/* clang-format on */

static const uint32_t ids[] = {
#define ID(name, id) id,
    PL_FORMAT_MAP(ID)
#undef ID
};

const struct format_info *format_info(pl_format f)
{
    return &formats[f];
}

pl_format format_from_id(uint32_t id)
{
    int f = 0;

    while (f < PL_FORMAT_COUNT && ids[f] != id)
        f++;
    return (pl_format)f;
}

pl_format format_from_name(const char *name)
{
    int f = 0;

    while (f < PL_FORMAT_COUNT && !ascii_same(formats[f].name, name))
        f++;
    return (pl_format)f;
}

bool format_is_cache(pl_format f)
{
    return (unsigned)f < PL_FORMAT_COUNT && formats[f].cache;
}

const char *format_cache_names(char buf[static FORMAT_NAMES])
{
    int last = PL_FORMAT_COUNT - 1;
    size_t n = 0;

    while (!formats[last].cache)
        last--;
    for (int f = 0; f <= last && n < FORMAT_NAMES; f++)
        if (formats[f].cache)
            n += (size_t)snprintf(buf + n, FORMAT_NAMES - n, "%s%s",
                                  n == 0      ? ""
                                  : f == last ? " or "
                                              : ", ",
                                  formats[f].name);
    return buf;
}

size_t format_row_bytes(pl_format f, int64_t n)
{
    return (size_t)(n / formats[f].block) * (size_t)formats[f].block_bytes;
}
