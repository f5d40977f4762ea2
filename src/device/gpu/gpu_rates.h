/* How fast a GPU is taken to be, from what its driver tells before it is
 * opened. They are ceilings by data sheets, or guesses; what is measured
 * replaces them (cost/calibration.h), and none decides a bit. */
#ifndef DEVICE_GPU_GPU_RATES_H
#define DEVICE_GPU_GPU_RATES_H

#include "device/gpu/gpu_driver.h"

/* Of i->n_unit multiprocessors of compute capability `level` (90: 9.0).
 * overlaps: launches of graphs do. */
void gpu_speeds_cuda(struct gpu_info *i, int level, bool overlaps, double hz);

/* Of i->n_unit units of HIP, of a generation: 9 is that of gfx90a, which is
 * `paired`: it multiplies floats in pairs. i->has is known. */
void gpu_speeds_hip(struct gpu_info *i, int generation, bool paired, double hz);

/* Of i->n_unit units of OpenCL, i->on_cores known. hz 0: unknown. shared: its
 * memory is the machine's. */
void gpu_speeds_opencl(struct gpu_info *i, uint32_t vendor, double hz,
                       bool shared);

#endif
