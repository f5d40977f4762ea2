/* The kernels of AMX with tiles and vectors in plain C: runs the source of the
 * kernel set `amx` (device/cpu/cpu_gemm_amx_tmpl.h) on any processor. */
#ifndef TEST_TILES_PLAIN_H
#define TEST_TILES_PLAIN_H

#include "device/cpu/cpu_kernel.h"

/* Replaces the table's contractions: those for many rows of activations with
 * these, and those for few with jobs of AMX where the processor has the vectors
 * for them. */
void tiles_plain_init(struct cpu_kernels *k);

#endif
