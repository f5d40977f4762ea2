/* NVIDIA's GPUs from compute capability 8.0 on. */
#define EMU_CUDA
#define TABLE emu_kernels
#include "device/gpu/emu/emu_text_tmpl.h"
