/* README.md and doc/ are correct: each command line in them works and prints
 * what is shown. scripts/documents.py runs them, and explains how a page marks
 * differences. Output depends on the NUMA nodes, which share the memory of
 * PLAIT_MEMORY. */
#include "lib/command.h"
#include "lib/support.h"
#include "machine/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_documents(const char *flags)
{
    char *build = strdup(command_path());
    char line[4096];

    *strrchr(build, '/') = '\0';
    snprintf(line, sizeof line, "python3 '%s' run %s %s %s '%s' >&2",
             test_file("scripts/documents.py"), flags,
             topology_one_node() ? "" : "--any-output",
             TEST_SANITIZED ? "--only-compile" : "", build);
    free(build);
    sh(0, line);
}

TEST(documents_have_commands_that_work)
{
    run_documents("");
}

TEST_LONG(documents_have_long_commands_that_work)
{
    run_documents("--long");
}

/* Runs scripts/documents.py on pages that break one rule each, which it must
 * report. */
TEST(documents_that_lie_are_found)
{
    static const char *const lies[][2] = {
        {"    plait plan -m NONE.gguf\n", "lie.md:1: exit status 1"},
        {"    plait run -m MODEL.gguf --no-such\n", "lie.md:1: exit status 2"},
        {"    $ echo a b c\n    a b\n", "lie.md:1: it does not print as shown"},
        {"    $ echo a b c\n    a\n    [...]\n    d\n", "shown: d"},
        {"    $ printf 'a\\nb\\nc\\n'\n    [...]\n    b\n", "shown: the end"},
        {"    make no-such\n", "lie.md:1: exit status 2"},
        {"    build/plait-test --no-such\n", "no such option, group or case"},
        {"```sh\nfalse\n```\n", "lie.md:2: exit status 1"},
        {"<!-- test: long -->\n\n    false\n", NULL},
        {"<!-- test: no, why -->\n\n    false\n", NULL},
        {"```text\nfalse\n```\n", NULL},
        {"    $ printf 'a\\nb\\nc\\n'\n    a\n    [...]\n    c\n", NULL},
    };

    setenv("LIE", test_temp("lie.md"), 1);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        FILE *f = fopen(test_temp("lie.md"), "w");
        char line[4096];
        char *build = strdup(command_path());

        assert_non_null(f);
        fputs(lies[i][0], f);
        fclose(f);
        *strrchr(build, '/') = '\0';
        snprintf(line, sizeof line, "python3 '%s' run '%s' \"$LIE\" >&2",
                 test_file("scripts/documents.py"), build);
        free(build);
        if (lies[i][1] != NULL)
            must_say(sh(1, line), lies[i][1]);
        else
            sh(0, line);
    }
    unsetenv("LIE");
}
