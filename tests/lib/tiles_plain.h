/* The kernels of AMX with tiles and vectors in plain C: the text that the
 * kernel set `amx` is compiled from (device/cpu/cpu_gemm_amx_tmpl.h), tried on
 * any processor. */
#ifndef TEST_TILES_PLAIN_H
#define TEST_TILES_PLAIN_H

#include "device/cpu/cpu_kernel.h"

/* Puts contractions into the table that take many rows of activations so, and
 * few in jobs of AMX where the processor has the vectors for them. */
void tiles_plain_init(struct cpu_kernels *k);

#endif
