/* Lists the formats that caches may have, float formats before block
 * formats. */
#ifndef TEST_CACHE_FORMATS_H
#define TEST_CACHE_FORMATS_H

#include "pl.h"

static const pl_format cache_formats[] = {PL_F32,  PL_F16,  PL_BF16,
                                          PL_Q8_0, PL_Q4_0, PL_Q4_1,
                                          PL_Q5_0, PL_Q5_1, PL_IQ4_NL};
enum {
    N_CACHE_FORMAT = sizeof cache_formats / sizeof *cache_formats,
    N_CACHE_FLOAT = 3
};

/* Returns a block format for caches; different ones for successive i >= 0. */
static inline pl_format cache_block(int i)
{
    return cache_formats[N_CACHE_FLOAT + i % (N_CACHE_FORMAT - N_CACHE_FLOAT)];
}

#endif
