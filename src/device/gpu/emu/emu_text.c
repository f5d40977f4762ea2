/* A GPU that has all that any has. */
#define TABLE emu_kernels
#include "device/gpu/emu/emu_text_tmpl.h"
