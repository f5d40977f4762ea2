/* What a KERNEL step may ask for: operands of shapes and formats that go
 * together, trees, spans and attributes that stay inside them. */
#ifndef PROGRAM_PROGRAM_CHECK_KERNEL_H
#define PROGRAM_PROGRAM_CHECK_KERNEL_H

#include "program/program.h"

/* What is wrong with the step's kernel, as errors end, or NULL. t: the tensors
 * of its program; its arguments are there and are used as kernels.def says. */
const char *program_kernel_fault(const struct insn_kernel *k,
                                 const struct prog_tensor *t);

#endif
