/* The kernels of AArch64 on any machine: tests/long/arm64.sh builds the tests
 * for it and runs those of kernels in an emulator. */
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

TEST_LONG(arm64_kernels_have_the_bits_of_generic)
{
    const char *script = test_file("tests/long/arm64.sh");
    char command[4096];
    int status;

    assert_non_null(script);
    snprintf(command, sizeof command, "'%s'", script);
    status = system(command);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        TEST_SKIP("no cross compiler for AArch64, no qemu-aarch64-static, or "
                  "no libraries: see above");
    assert_int_equal(WEXITSTATUS(status), 0);
}
