/* The matrix kernels with the matrix units of AMD's CDNA 3. */
#define EMU_MFMA 32
#define TABLE    emu_kernels_mfma32
#include "emu/emu_matrix_tmpl.h"
