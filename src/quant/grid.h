/* The code tables of the formats IQ1, IQ2 and IQ3. Blocks of these formats have
 * indices; each selects a table entry that has the codes of eight values, or of
 * four. Used by src/quant, and by devices that read blocks without packing. */
#ifndef QUANT_GRID_H
#define QUANT_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "pl.h"

/* Entry i has the codes for index i, the first code in the lowest bits: eight
 * codes of 2 bits, or in IQ3 four of 4 bits. Entries are ascending, so that an
 * entry's index can be found. */
extern const uint16_t quant_grid_iq1[2048]; /* for IQ1_S and IQ1_M */
extern const uint16_t quant_grid_iq2_xxs[256];
extern const uint16_t quant_grid_iq2_xs[512];
extern const uint16_t quant_grid_iq2_s[1024];
extern const uint16_t quant_grid_iq3_xxs[256];
extern const uint16_t quant_grid_iq3_s[512];

/* Returns the code table of a format and sets *bytes to its size. Returns NULL
 * and sets *bytes to 0 for formats other than IQ1, IQ2 and IQ3. */
const uint16_t *quant_grid(pl_format f, size_t *bytes);

#endif
