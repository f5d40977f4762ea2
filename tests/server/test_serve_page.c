/* The web UI of plait serve works in a headless Chromium: see
 * tests/tools/serve_page.py. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>

TEST(serve_page_does_what_it_shows)
{
    const char *script = test_file("tests/tools/serve_page.py");
    char line[9000];
    int status;

    assert_non_null(script);
    snprintf(line, sizeof line, "python3 '%s' '%s' '%s' 2>&1", script,
             command_path(), test_model());
    status = command_status(system(line));
    if (status == 77)
        TEST_SKIP("there is no chromium (make test-long installs it)");
    assert_int_equal(status, 0);
}
