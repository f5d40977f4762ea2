/* The kinds of devices: to add one, write its folder and name it here. */
#include "device/device_ops.h"

const struct device_ops *const device_kinds[] = {
    &cpu_ops,  &sim_ops,
    &proc_ops, &paper_ops, /* the one that cannot be opened */
    NULL,
};
