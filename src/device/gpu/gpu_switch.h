/* Variables of the environment that turn something off, to find out whether it
 * is what goes wrong: NAME=0. */
#ifndef DEVICE_GPU_GPU_SWITCH_H
#define DEVICE_GPU_GPU_SWITCH_H

#include <stdbool.h>

#include "pl.h"

/* True unless it is off. PL_BAD_ARGUMENT if the variable is neither 0 nor 1;
 * `off` then tells what 0 does: "keeps GPUs from .." */
pl_status gpu_switch(const char *name, const char *off, bool *on, pl_err *err);

#endif
