/* A GPU that has what all have: no matrix units, no permutation of bytes. */
#define TABLE emu_kernels_plain
#include "device/gpu/emu/emu_text_tmpl.h"
