/* The web UI of plait serve: what the server sends, and, in a headless
 * Chromium, what it does. See tests/tools/serve_page.py. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>

static int look(const char *how)
{
    const char *script = test_file("tests/tools/serve_page.py");
    char line[9000];

    assert_non_null(script);
    snprintf(line, sizeof line, "python3 '%s' '%s' '%s' %s 2>&1", script,
             command_path(), test_model(), how);
    return command_status(system(line));
}

TEST(serve_page_is_one_file_and_its_policy_allows_its_scripts_alone)
{
    assert_int_equal(look("--served"), 0);
}

TEST(serve_page_does_what_it_shows)
{
    int status = look("");

    if (status == 77)
        TEST_SKIP("there is no chromium (make test-long installs it)");
    assert_int_equal(status, 0);
}
