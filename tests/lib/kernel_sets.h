/* What tests that go through the kernel sets say of those that do not run
 * here. */
#ifndef TEST_KERNEL_SETS_H
#define TEST_KERNEL_SETS_H

#include "lib/support.h"

#include <string.h>

#include "device/kernel_set.h"

/* Ends the running case as skipped, and names them, if there are any. */
static inline void kernel_sets_skip_absent(void)
{
    char names[256] = "";

    for (int f = 0; f < KERNEL_SET_COUNT; f++)
        if (!kernel_set_runs((enum kernel_set)f))
            strcat(strcat(names, " "), kernel_set_name((enum kernel_set)f));
    if (names[0])
        TEST_SKIP("this machine does not run%s", names);
}

#endif
