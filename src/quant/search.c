/* Quantizes rows of weights: calls the search of the format for each block. */
#include "quant/search.h"

#include <string.h>

#include "quant/search_block.h"

static quant_search_fn *const searches[PL_FORMAT_COUNT] = {
    [PL_Q8_0] = quant_search_plain,   [PL_Q4_0] = quant_search_plain,
    [PL_Q4_1] = quant_search_plain,   [PL_Q5_0] = quant_search_plain,
    [PL_Q5_1] = quant_search_plain,   [PL_IQ4_NL] = quant_search_plain,
    [PL_MXFP4] = quant_search_plain,  [PL_NVFP4] = quant_search_plain,
    [PL_TQ1_0] = quant_search_plain,  [PL_TQ2_0] = quant_search_plain,
    [PL_Q2_K] = quant_search_super,   [PL_Q3_K] = quant_search_super,
    [PL_Q4_K] = quant_search_super,   [PL_Q5_K] = quant_search_super,
    [PL_Q6_K] = quant_search_super,   [PL_IQ4_XS] = quant_search_super,
    [PL_IQ1_S] = quant_search_grid,   [PL_IQ1_M] = quant_search_grid,
    [PL_IQ2_XXS] = quant_search_grid, [PL_IQ2_XS] = quant_search_grid,
    [PL_IQ2_S] = quant_search_grid,   [PL_IQ3_XXS] = quant_search_grid,
    [PL_IQ3_S] = quant_search_grid,
};

static bool is_float(pl_format f)
{
    return f == PL_F32 || f == PL_F16 || f == PL_BF16;
}

bool quant_can_search(pl_format f)
{
    return (unsigned)f < PL_FORMAT_COUNT && (is_float(f) || searches[f]);
}

/* Quantizes a row; `simple` as in struct levels. */
static void quantize(pl_format f, bool simple, void *dst, const float *src,
                     const float *importance, int64_t n)
{
    static const float alike[QUANT_MAX_BLOCK] = {[0 ... QUANT_MAX_BLOCK - 1] =
                                                     1};
    const struct format_info *fi = format_info(f);
    uint8_t *block = dst;
    struct levels v;

    if (is_float(f)) {
        fi->encode(dst, src, n);
        return;
    }
    if (searches[f] == quant_search_grid)
        quant_search_grid_levels(f, &v);
    else
        quant_search_levels(f, &v);
    v.simple = simple;
    memset(dst, 0, format_row_bytes(f, n));
    for (; n > 0; n -= fi->block, src += fi->block, block += fi->block_bytes) {
        searches[f](f, &v, block, src, importance ? importance : alike);
        if (importance)
            importance += fi->block;
    }
}

void quant_search(pl_format f, void *dst, const float *src,
                  const float *importance, int64_t n)
{
    quantize(f, false, dst, src, importance, n);
}

void quant_round(pl_format f, void *dst, const float *src, int64_t n)
{
    quantize(f, true, dst, src, NULL, n);
}
