/* Quantizes weights for files: searches the scales and codes that lose least.
 *
 * The encoders of format.h round with a scale that follows from the largest
 * value. Those here are slower. They try several scales for each block, and
 * solve for the best scale and the best minimum by weighted least squares. They
 * minimise the sum of w_i (x_i - q_i)^2 over the values x_i of a block, where
 * q_i is the decoded value. w_i is the importance of the column: the mean
 * square of the activation that the value is multiplied with. For activations
 * that are independent, that sum is the mean square error of the product.
 *
 * The blocks are those of block.h, and values decode by the formula of pack.h.
 * Results depend on the arguments alone: not on the CPU, nor on threads. */
#ifndef QUANT_SEARCH_H
#define QUANT_SEARCH_H

#include "pl.h"

/* Returns true if quant_search can write format f: all formats but I32. */
bool quant_can_search(pl_format f);

/* The greatest magnitude of a value in `src` that all formats can have a scale
 * for, that of F16. */
#define QUANT_SEARCH_MOST 65504.0f

/* Quantizes a row of n values, a multiple of the format's block, to `dst`.
 * importance[n] are positive numbers, about 1 on average; NULL if all columns
 * are alike. In formats other than F32, F16 and BF16 all values must be finite
 * and at most QUANT_SEARCH_MOST. */
void quant_search(pl_format f, void *dst, const float *src,
                  const float *importance, int64_t n);

/* Quantizes a row like quant_search, but without a search: the largest value
 * of a block gets the outermost level. */
void quant_round(pl_format f, void *dst, const float *src, int64_t n);

#endif
