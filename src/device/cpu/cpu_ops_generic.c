/* The kernels of cpu_ops.h, plain C: the specification of the others. */
#define CPU_OPS_INIT cpu_ops_init_generic
#include "device/cpu/cpu_ops_template.h"
