/* The kernels of the kernel set `amx` with tiles and vectors in plain C, so
 * that their source (device/cpu/cpu_gemm_amx_tmpl.h) runs on any processor. */
#ifndef TEST_TILES_PLAIN_H
#define TEST_TILES_PLAIN_H

#include "device/cpu/cpu_kernel.h"

/* Replaces the contractions of the table: GEMM by the kernels of AMX with tiles
 * in plain C; skinny GEMM by AMX's own panel calls if the processor has the
 * vector instructions for them. */
void tiles_plain_init(struct cpu_kernels *k);

#endif
