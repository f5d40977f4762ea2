/* Checks KERNEL instructions: shapes and formats of operands must fit together;
 * trees, spans and attributes must stay inside them. */
#ifndef PROGRAM_PROGRAM_CHECK_KERNEL_H
#define PROGRAM_PROGRAM_CHECK_KERNEL_H

#include "program/program.h"

/* Returns the fault of a kernel call, as the end of an error message, or NULL
 * if the call is valid. `t` are the tensors of the program. The caller has
 * checked that the arguments exist and have the access of kernels.def. */
const char *program_kernel_fault(const struct insn_kernel *k,
                                 const struct prog_tensor *t);

#endif
