/* For tests that try all kernel sets: reports the sets that this processor
 * cannot run. */
#ifndef TEST_KERNEL_SETS_H
#define TEST_KERNEL_SETS_H

#include "lib/support.h"

#include <string.h>

#include "device/kernel_set.h"

/* Ends the running case as skipped, with the names of the kernel sets that this
 * processor cannot run; does nothing if it can run all. Sets of another
 * architecture do not count: tests/long/arm64.sh runs those of AArch64. */
static inline void kernel_sets_skip_absent(void)
{
#ifdef __aarch64__
    enum { FIRST = KERNEL_SET_NEON, END = KERNEL_SET_COUNT };
#else
    enum { FIRST = 0, END = KERNEL_SET_NEON };
#endif
    char names[256] = "";

    for (int f = FIRST; f < END; f++)
        if (!kernel_set_runs((enum kernel_set)f))
            strcat(strcat(names, " "), kernel_set_name((enum kernel_set)f));
    if (names[0])
        TEST_SKIP("this machine does not run%s", names);
}

#endif
