/* The kernels of an emulated GPU that has neither matrix units nor an
 * instruction that permutes bytes. */
#define TABLE emu_kernels_plain
#include "emu/emu_text_tmpl.h"
