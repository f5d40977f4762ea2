/* The option table: what --help, the man pages and doc/commands.md say of an
 * option is what the parser does. 0.01 s of processor time. */
#include "cli/option_set.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_name(const struct option_row *row, const char *name)
{
    for (int k = 0; k < 3; k++)
        if (row->name[k] != NULL && strcmp(row->name[k], name) == 0)
            return true;
    return false;
}

static unsigned commands_of(const struct option_row *row)
{
    return row->commands & ((1u << N_COMMAND) - 1);
}

TEST(options_stand_under_headings_of_all_their_commands)
{
    const struct option_row *heading = NULL;
    unsigned below = 0;

    for (int i = 0; i <= n_option_row; i++) {
        const struct option_row *row = &option_table[i];

        if (i == n_option_row || row->set == NULL) {
            if (heading != NULL && below != heading->commands)
                fail_msg("\"%s\" is of commands %x, its rows are of %x",
                         heading->help, heading->commands, below);
            heading = row;
            below = 0;
            continue;
        }
        assert_non_null(heading);
        if (commands_of(row) & ~heading->commands)
            fail_msg("%s stands under \"%s\"", row->name[0], heading->help);
        below |= commands_of(row);
    }
}

TEST(options_have_names_of_their_own_in_each_command)
{
    for (int i = 0; i < n_option_row; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < 3; k++) {
                const char *name = option_table[i].name[k];

                if (name != NULL && has_name(&option_table[j], name) &&
                    (commands_of(&option_table[i]) &
                     commands_of(&option_table[j])))
                    fail_msg("%s is two options of a command", name);
            }
}

TEST(options_of_llama_cpp_that_are_refused_do_not_exist_here)
{
    for (int i = 0; i < n_llama_option; i++) {
        char names[512], *next = names;

        snprintf(names, sizeof names, "%s", llama_options[i].names);
        for (char *s; (s = strsep(&next, " ")) != NULL;)
            if (option_find(s, ~0u) != NULL)
                fail_msg("%s is an option, so what is said of llama.cpp's is "
                         "never read",
                         s);
    }
}

TEST(options_help_is_sentences_of_which_the_first_is_short)
{
    for (int i = 0; i < n_option_row; i++) {
        const struct option_row *row = &option_table[i];
        const char *end = strstr(row->help, ". ");
        size_t len = strlen(row->help);
        unsigned brief = row->commands >> OPTION_BRIEF_SHIFT;

        if (row->set == NULL)
            continue;
        if (row->help[len - 1] != '.')
            fail_msg("%s: no period at the end", row->name[0]);
        if (brief & commands_of(row) & ~row->commands)
            fail_msg("%s: brief for a command that lacks it", row->name[0]);
        len = end != NULL ? (size_t)(end - row->help) : len - 1;
        if (row->value != NULL)
            len += strlen(row->value) + 3;
        if ((brief & ((1u << N_COMMAND) - 1)) && len > 53)
            fail_msg("%s: %zu characters in --help, one line has 53",
                     row->name[0], len);
    }
}

/* Sets up the options of `command`, with one option or none. */
static bool parse(struct options *o, enum command command,
                  const struct option_row *row, const char *value)
{
    char want[OPTION_WANT];
    char *none[] = {NULL};

    assert_int_equal(options_parse(o, command, 0, none), EXIT_DONE);
    o->word = NULL;
    return row == NULL || row->set(o, row, value, want);
}

static enum command first_command(const struct option_row *row)
{
    int c = 0;

    while (!(row->commands & (1u << c)))
        c++;
    return (enum command)c;
}

TEST(options_accept_every_word_that_completion_offers)
{
    for (int i = 0; i < n_option_row; i++) {
        const struct option_row *row = &option_table[i];

        for (int k = 0; row->words != NULL && row->words[k] != NULL; k++) {
            char word[32];
            struct options o;
            size_t n = (size_t)snprintf(word, sizeof word, "%s", row->words[k]);

            if (word[n - 1] == ':') /* hybrid:N */
                strcpy(word + n, "2");
            if (!parse(&o, first_command(row), row, word))
                fail_msg("%s does not take %s", row->name[0], word);
            options_free(&o);
        }
    }
}

/* Returns true for an option whose default is a text, or is 0 in struct options
 * for the library to replace or to choose. */
static bool chosen_later(const struct option_row *row)
{
    static const char *const names[] = {"--dry-sequence-breaker",
                                        "--prefill-share",
                                        "--cache-disk",
                                        "-ngl",
                                        "-fitc",
                                        "-ub",
                                        "--checkpoints",
                                        "-ctk",
                                        "-ctv",
                                        "--n-prompt",
                                        "--n-gen",
                                        "--n-depth",
                                        "--n-seq",
                                        "--concurrency",
                                        "--requests",
                                        NULL};

    for (int i = 0; names[i] != NULL; i++)
        if (has_name(row, names[i]))
            return true;
    return row->set == option_set_text;
}

/* A default that the option accepts as a value changes nothing. */
TEST(options_defaults_shown_are_those_taken)
{
    int n = 0;

    for (int i = 0; i < n_option_row; i++) {
        const struct option_row *row = &option_table[i];
        enum command c;
        struct options bare, given;

        if (row->value == NULL || chosen_later(row))
            continue;
        c = first_command(row);
        parse(&bare, c, NULL, NULL);
        if (parse(&given, c, row, row->value)) {
            n++;
            if (memcmp(&bare, &given, sizeof bare) != 0)
                fail_msg("%s %s differs from leaving it out", row->name[0],
                         row->value);
        }
        options_free(&given);
        options_free(&bare);
    }
    assert_true(n > 40);
}
