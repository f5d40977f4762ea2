/* The matrix kernels with the matrix units of AMD's CDNA 1 and 2. */
#define EMU_MFMA 16
#define TABLE    emu_kernels_mfma16
#include "emu/emu_matrix_tmpl.h"
