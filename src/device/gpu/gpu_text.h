/* The kernels' text (text/) as strings, for drivers that have it compiled: a
 * prelude, then what all share. Nothing is included in them any more. Made by
 * scripts/embed_text.py while building. */
#ifndef DEVICE_GPU_GPU_TEXT_H
#define DEVICE_GPU_GPU_TEXT_H

extern const char gpu_text[];
extern const char gpu_prelude_hip[], gpu_prelude_opencl[];

#endif
