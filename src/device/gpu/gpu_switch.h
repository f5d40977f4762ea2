/* Environment variables that turn a feature off, to find out whether it causes
 * a fault: NAME=0. */
#ifndef DEVICE_GPU_GPU_SWITCH_H
#define DEVICE_GPU_GPU_SWITCH_H

#include <stdbool.h>

#include "pl.h"

/* Sets *on to false if the variable is 0, else to true. Returns PL_BAD_ARGUMENT
 * if it is neither 0 nor 1; the message uses `off`, the effect of 0: "keeps
 * GPUs from .." */
pl_status gpu_switch(const char *name, const char *off, bool *on, pl_err *err);

#endif
