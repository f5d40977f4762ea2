/* Environment variables that turn a feature off (NAME=0), to find out whether
 * it causes a fault. */
#ifndef DEVICE_GPU_GPU_SWITCH_H
#define DEVICE_GPU_GPU_SWITCH_H

#include <stdbool.h>

#include "pl.h"

/* Sets *on to false if the environment variable `name` is "0", else to true.
 * Returns PL_BAD_ARGUMENT if it is set to neither 0 nor 1. `off` describes the
 * effect of 0, for the message: "keeps GPUs from ..". */
pl_status gpu_switch(const char *name, const char *off, bool *on, pl_err *err);

#endif
