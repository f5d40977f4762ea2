/* The kernels of an emulated NVIDIA GPU of compute capability 8.0 or higher. */
#define EMU_CUDA
#define TABLE emu_kernels
#include "emu/emu_text_tmpl.h"
