/* The tables of IQ1, IQ2 and IQ3, whose indices denote eight or four codes at
 * once. For quant, and for devices that read blocks unpacked. */
#ifndef QUANT_GRID_H
#define QUANT_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "pl.h"

/* Entry i holds the codes of index i, the first one in the lowest bits: eight
 * codes of 2 bits, or four of 4 bits in IQ3. Entries ascend. */
extern const uint16_t quant_grid_iq1[2048]; /* IQ1_S, IQ1_M */
extern const uint16_t quant_grid_iq2_xxs[256];
extern const uint16_t quant_grid_iq2_xs[512];
extern const uint16_t quant_grid_iq2_s[1024];
extern const uint16_t quant_grid_iq3_xxs[256];
extern const uint16_t quant_grid_iq3_s[512];

/* Returns the table that a format's blocks index, and its size. NULL if the
 * format has none. */
const uint16_t *quant_grid(pl_format f, size_t *bytes);

#endif
