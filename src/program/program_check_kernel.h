/* Checks KERNEL instructions: shapes and formats of a call's tensors must fit
 * together, and its rank tree, spans and attributes must stay inside the
 * tensors. */
#ifndef PROGRAM_PROGRAM_CHECK_KERNEL_H
#define PROGRAM_PROGRAM_CHECK_KERNEL_H

#include "program/program.h"

/* Returns the fault of a kernel call as the end of an error message, or NULL if
 * the call is valid. `t` is the array of the program's tensors. The caller has
 * checked that the arguments exist and have the access of kernels.def. */
const char *program_kernel_fault(const struct insn_kernel *k,
                                 const struct prog_tensor *t);

#endif
