/* The Python package in python/ does what the header and the command do, and
 * neither a wrong call nor an odd order of freeing ends the interpreter.
 * tests/tools/python_cases.py has the cases; each runs in a Python of its own,
 * on the library built here. 5 s of processor time in all. */
#include "lib/command.h"
#include "lib/support.h"
#include "test_paths.h"

#include <stdio.h>
#include <stdlib.h>

static void run(const char *name)
{
    char *line;

    if (TEST_SANITIZED)
        TEST_SKIP("Python loads no library built with a sanitizer");
    if (system("python3 -c 'import sys, ctypes; "
               "sys.exit(sys.version_info < (3, 9))' 2>/dev/null") != 0)
        TEST_SKIP("no Python of 3.9 or later");
    if (asprintf(&line,
                 "export PLAIT_LIBRARY='%s' PYTHONPATH='%s' "
                 "PLAIT_INCLUDE='%s' PLAIT_DOCUMENT='%s' "
                 "PYTHONDONTWRITEBYTECODE=1; "
                 "python3 '%s' %s",
                 PLAIT_SHARED, test_file("python"), test_file("include"),
                 test_file("doc/python.md"),
                 test_file("tests/tools/python_cases.py"), name) < 0)
        fail_msg("no memory");
    sh(0, line);
    free(line);
}

TEST(python_declarations_are_those_of_the_compiler)
{
    if (system("command -v cc >/dev/null") != 0)
        TEST_SKIP("no cc");
    run("declarations");
}

TEST(python_keywords_are_those_of_the_header)
{
    run("keywords");
}

TEST(python_writes_what_the_command_writes)
{
    run("same_text_as_the_command");
}

TEST(python_text_ends_where_it_is_told_to)
{
    run("generation");
}

TEST(python_document_says_what_runs)
{
    run("document");
}

TEST(python_receipts_are_those_of_the_command)
{
    run("receipts");
}

TEST(python_logits_of_a_batch_are_those_of_each_sequence_alone)
{
    run("logits_and_sequences");
}

TEST(python_embeddings_are_the_same_on_all_devices)
{
    run("embeddings");
}

TEST(python_models_take_overrides)
{
    run("overrides");
}

TEST(python_states_go_on_with_the_same_bits)
{
    run("states");
}

TEST(python_wrong_calls_raise_and_change_nothing)
{
    run("failures");
}

TEST(python_objects_are_freed_after_those_that_borrow)
{
    run("owners");
}

TEST(python_threads_wait_for_one_another)
{
    run("threads");
}
