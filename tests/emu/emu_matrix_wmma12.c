/* The matrix kernels with the matrix units of AMD's RDNA 4. */
#define EMU_WMMA 12
#define TABLE    emu_kernels_wmma12
#include "emu/emu_matrix_tmpl.h"
