/* Environment variables that turn a feature off (NAME=0), to find out whether
 * it causes a fault. */
#ifndef DEVICE_GPU_GPU_SWITCH_H
#define DEVICE_GPU_GPU_SWITCH_H

#include <stdbool.h>

#include "pl.h"

/* Sets *on to true if the environment variable `name` is unset, empty or "1",
 * else to false. Returns PL_BAD_ARGUMENT if it has any other value than these
 * and "0". `off` describes the effect of 0, for the message: "keeps GPUs from
 * ..". */
pl_status gpu_switch(const char *name, const char *off, bool *on, pl_err *err);

#endif
