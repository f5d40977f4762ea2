/* Man pages and shell completions, which the build makes from the option table:
 * man and the shells accept them, and bash offers what it should. 0.7 s of
 * processor time. */
#include "lib/command.h"
#include "lib/support.h"
#include "test_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const char *tool)
{
    char line[64];

    snprintf(line, sizeof line, "command -v %s >/dev/null", tool);
    return system(line) == 0;
}

/* Completes the last word of a line and prints the offers, a line each. */
#define COMPLETE                                                               \
    "complete() { :; }; compopt() { :; }; . " PLAIT_MANUAL "/plait; "          \
    "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _plait; "                    \
    "printf \"%%s\\n\" \"${COMPREPLY[@]}\""

TEST(manual_bash_completes_options_words_and_files)
{
    static const struct {
        const char *line, *offers;
    } list[] = {
        {"pl", "plan"},
        {"--he", "--help\n--help-all"},
        {"run --sta", "--state-load\n--state-save"},
        {"run --port", ""},
        {"serve --port", "--port"},
        {"run -sm t", "tensor"},
        {"run --split-mode = t", "tensor"},
        {"run --split-mode =", "auto\nnone\nlayer\ntensor\nhybrid:"},
        {"plan -ctk f", "f16\nf32"},
        {"bench -o ", "md\ncsv\njson\njsonl\nsql"},
        {"logits -o two", "two words"},
        {"run -m two", "two words"},
        {"run -p two", ""},
        {"run -v two", ""},
        {"inspect two", "two words"},
        {"inspect --js", "--json"},
        {"serve --cache-dir f", "folder"},
        {"serve --slot-save-path t", ""},
    };

    if (!has("bash"))
        TEST_SKIP("bash is not installed");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *line = list[i].line;
        char all[1024], offers[128];
        struct ran r;

        snprintf(all, sizeof all,
                 "touch 'two words'; mkdir -p folder; "
                 "bash -c '" COMPLETE "' bash plait %s%s",
                 line, line[strlen(line) - 1] == ' ' ? "''" : "");
        snprintf(offers, sizeof offers, "%s\n", list[i].offers);
        r = sh(0, all);
        if (strcmp(r.out, offers) != 0 || r.err[0] != '\0')
            fail_msg("plait %s: bash offers\n%s, not\n%s%s", line, r.out,
                     offers, r.err);
    }
}

static void must_parse(const char *shell, const char *file)
{
    char line[512];

    if (!has(shell))
        TEST_SKIP("%s is not installed", shell);
    snprintf(line, sizeof line, "%s -n " PLAIT_MANUAL "/%s", shell, file);
    assert_string_equal(sh(0, line).err, "");
}

TEST(manual_completion_is_valid_bash)
{
    must_parse("bash", "plait");
}

TEST(manual_completion_is_valid_zsh)
{
    must_parse("zsh", "_plait");
}

TEST(manual_completion_is_valid_fish)
{
    must_parse("fish", "plait.fish");
}

/* groff warns of macros and escapes that it does not know. */
TEST(manual_pages_are_read_without_a_warning)
{
    struct ran r;

    if (!has("man") || !has("groff"))
        TEST_SKIP("man and groff are not installed");
    r = sh(0, "for page in " PLAIT_MANUAL "/*.1; do "
              "MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l \"$page\" || exit; "
              "done");
    assert_string_equal(r.err, "");
    for (const char *const *s =
             (const char *const[]){"plait-run(1)", "--state-load FILE",
                                   "\\n, \\t, \\\\", "PLAIT_CPU", "/clear",
                                   "Default: 0.8.", NULL};
         *s != NULL; s++)
        if (strstr(r.out, *s) == NULL)
            fail_msg("no man page has \"%s\"", *s);
}

TEST(manual_pages_are_clean_to_mandoc)
{
    struct ran r;

    if (!has("mandoc"))
        TEST_SKIP("mandoc is not installed");
    r = sh(0, "mandoc -T lint -W warning " PLAIT_MANUAL "/*.1 | "
              "grep -v 'missing date' || true");
    assert_string_equal(r.out, "");
}
