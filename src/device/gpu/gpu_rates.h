/* Estimates the speeds of a GPU from properties that its driver reports before
 * it is opened. The estimates are peak values from data sheets, or guesses.
 * Measured values replace them (cost/calibration.h). Speeds never affect the
 * bits of results. */
#ifndef DEVICE_GPU_GPU_RATES_H
#define DEVICE_GPU_GPU_RATES_H

#include "device/gpu/gpu_driver.h"

/* Sets the speeds of *i, a CUDA GPU with i->n_unit multiprocessors of compute
 * capability `level` (90 is 9.0) and a clock of `hz`. `overlaps` is true if
 * graphs use programmatic dependent launch. */
void gpu_speeds_cuda(struct gpu_info *i, int level, bool overlaps, double hz);

/* Sets the speeds of *i, a HIP GPU with i->n_unit compute units. `generation`
 * is the major number of its architecture, 9 for gfx90a. `paired` is true if it
 * multiplies floats in pairs, as gfx90a does. i->has must be set. */
void gpu_speeds_hip(struct gpu_info *i, int generation, bool paired, double hz);

/* Sets the speeds of *i, an OpenCL device with i->n_unit compute units;
 * i->on_cores must be set. `hz` is 0 if unknown. `vendor` is the PCI vendor id.
 * `shared` is true if the device uses the host's memory. */
void gpu_speeds_opencl(struct gpu_info *i, uint32_t vendor, double hz,
                       bool shared);

#endif
