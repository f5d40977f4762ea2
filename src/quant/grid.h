/* The tables of IQ1, IQ2 and IQ3, which name eight or four codes at once:
 * internal to quant. */
#ifndef QUANT_GRID_H
#define QUANT_GRID_H

#include <stdint.h>

/* Entry i holds the codes of index i, the first one in the lowest bits: eight
 * codes of 2 bits, or four of 4 bits in IQ3. Entries ascend. */
extern const uint16_t quant_grid_iq1[2048]; /* IQ1_S, IQ1_M */
extern const uint16_t quant_grid_iq2_xxs[256];
extern const uint16_t quant_grid_iq2_xs[512];
extern const uint16_t quant_grid_iq2_s[1024];
extern const uint16_t quant_grid_iq3_xxs[256];
extern const uint16_t quant_grid_iq3_s[512];

#endif
