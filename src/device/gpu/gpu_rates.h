/* Assumed speeds of a GPU, from what its driver reports before it is opened.
 * They are ceilings from data sheets, or guesses. Measured values replace them
 * (cost/calibration.h), and none decides a bit. */
#ifndef DEVICE_GPU_GPU_RATES_H
#define DEVICE_GPU_GPU_RATES_H

#include "device/gpu/gpu_driver.h"

/* For i->n_unit multiprocessors of compute capability `level` (90: 9.0).
 * overlaps: graphs use programmatic dependent launch. */
void gpu_speeds_cuda(struct gpu_info *i, int level, bool overlaps, double hz);

/* For i->n_unit compute units of HIP, of a generation: 9 is that of gfx90a,
 * which is `paired`: it multiplies floats in pairs. i->has is set. */
void gpu_speeds_hip(struct gpu_info *i, int generation, bool paired, double hz);

/* For i->n_unit compute units of OpenCL; i->on_cores is set. hz 0: unknown.
 * shared: it uses the host's memory. */
void gpu_speeds_opencl(struct gpu_info *i, uint32_t vendor, double hz,
                       bool shared);

#endif
