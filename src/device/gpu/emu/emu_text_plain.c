/* A GPU with only the common features: no matrix units, no byte permutation. */
#define TABLE emu_kernels_plain
#include "device/gpu/emu/emu_text_tmpl.h"
