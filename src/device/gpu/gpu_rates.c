/* Computes speeds from the clocks and unit counts that drivers report.
 * Multiply-adds per clock and unit are from the vendors' data sheets and
 * programming guides. */
#include "device/gpu/gpu_rates.h"

#include <math.h>

/* ---- CUDA ---------------------------------------------------------------- */

/* lanes: float lanes of a multiprocessor (CUDA C++ Programming Guide, table of
 * arithmetic throughput). block: multiply-adds of quantized weights per lane
 * and clock. Before capability 8.0 a lane does four with one dp4a. From 8.0 on
 * kernels use matrix units, and a lane applies the scales of 32 multiply-adds
 * in four instructions. Capability 10.3 has few int8 units. */
static const struct {
    int level, lanes, block; /* `level` is the least compute capability of the
                                row */
} cuda_unit[] = {
    {104, 128, 8}, {103, 128, 2}, {81, 128, 8},
    {80, 64, 8},   {70, 64, 4},   {0, 128, 4},
};

/* Seconds per launch in a graph, without and with programmatic dependent
 * launch. Both are guesses; llama.cpp saved some 0.7 us per kernel with
 * programmatic dependent launch (its pull request 22522, gpt-oss 20B on an RTX
 * PRO 6000). */
static const double cuda_launch_s = 1.5e-6, cuda_overlapped_s = 0.8e-6;

void gpu_speeds_cuda(struct gpu_info *i, int level, bool overlaps, double hz)
{
    int k = 0;

    while (cuda_unit[k].level > level)
        k++;
    i->float_macs_per_s = cuda_unit[k].lanes * i->n_unit * hz;
    i->block_macs_per_s = cuda_unit[k].block * i->float_macs_per_s;
    i->launch_s = overlaps ? cuda_overlapped_s : cuda_launch_s;
}

/* ---- HIP ----------------------------------------------------------------- */

/* Returns the multiply-adds of quantized weights per lane and clock. dot4
 * computes four, and applying scales takes half of the time. CDNA's matrix
 * units work in parallel with the lanes, which can apply the scales of eight
 * multiply-adds per clock. On RDNA the matrix units block the lanes: 32
 * multiply-adds take eight clocks (two on RDNA 4), and applying their scales
 * takes four. Sources: AMD's CDNA and RDNA white papers. */
static double hip_block(const struct gpu_info *i, int generation)
{
    if (i->has >> GPU_MMA & 1)
        return generation < 10 ? 8 : generation == 11 ? 32.0 / 12 : 32.0 / 6;
    return i->has >> GPU_DOT4 & 1 ? 2 : 0.5;
}

/* seconds per launch with HIP; a guess */
static const double hip_launch_s = 5e-6;

void gpu_speeds_hip(struct gpu_info *i, int generation, bool paired, double hz)
{
    double lanes = (generation >= 10 ? 128.0 : 64.0) * i->n_unit;

    i->float_macs_per_s = (paired ? 2 : 1) * lanes * hz;
    i->block_macs_per_s = hip_block(i, generation) * lanes * hz;
    i->launch_s = hip_launch_s;
}

/* ---- OpenCL -------------------------------------------------------------- */

/* Float lanes of what each vendor reports as a compute unit. */
static const struct {
    uint32_t vendor; /* PCI vendor ID */
    int lanes;
} opencl_unit[] = {
    {0x10de, 128}, /* NVIDIA: a multiprocessor */
    {0x1002, 64},  /* AMD: a compute unit */
    {0x8086, 8},   /* Intel: an execution unit */
    {0, 32},
};
enum { LANES_OF_CORE = 8, BLOCK_MACS_PER_LANE = 2 };

/* clock rates in Hz that are assumed if a driver reports none: of a GPU, and of
 * a CPU core */
static const double hz_gpu = 1e9, hz_core = 2e9;
/* Multiply-adds of floats per byte of memory bandwidth. OpenCL reports no
 * bandwidth. Most cards of 2016 to 2024 have about this ratio; the extremes are
 * 6 (with HBM) and 40. */
static const double macs_per_byte = 20;
/* memory bandwidth, in bytes per second, that is assumed for a device in the
 * host's memory: two channels of DDR5 */
static const double shared_bytes_per_s = 50e9;
static const double opencl_launch_s = 10e-6;

void gpu_speeds_opencl(struct gpu_info *i, uint32_t vendor, double hz,
                       bool shared)
{
    int k = 0, n_unit = i->n_unit > 0 ? i->n_unit : 1, lanes;

    while (opencl_unit[k].vendor && opencl_unit[k].vendor != vendor)
        k++;
    lanes = i->on_cores ? LANES_OF_CORE : opencl_unit[k].lanes;
    if (!(hz > 0))
        hz = i->on_cores ? hz_core : hz_gpu;
    i->float_macs_per_s = (double)lanes * n_unit * hz;
    i->block_macs_per_s = BLOCK_MACS_PER_LANE * i->float_macs_per_s;
    i->mem_bytes_per_s = i->float_macs_per_s / macs_per_byte;
    if (shared || i->on_cores)
        i->mem_bytes_per_s = fmin(i->mem_bytes_per_s, shared_bytes_per_s);
    i->launch_s = opencl_launch_s;
}
