/* The matrix kernels with the matrix units of AMD's RDNA 3. */
#define EMU_WMMA 11
#define TABLE    emu_kernels_wmma11
#include "emu/emu_matrix_tmpl.h"
