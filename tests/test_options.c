/* The option table: what --help, the man pages and doc/commands.md say of an
 * option is what the parser does. 0.01 s of processor time. */
#include "cli/option_set.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool has_name(const struct option_row *row, const char *name)
{
    for (int k = 0; k < OPTION_NAMES; k++)
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
                         heading->help, (unsigned)heading->commands,
                         (unsigned)below);
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
            for (int k = 0; k < OPTION_NAMES; k++) {
                const char *name = option_table[i].name[k];

                if (name != NULL && has_name(&option_table[j], name) &&
                    (commands_of(&option_table[i]) &
                     commands_of(&option_table[j])))
                    fail_msg("%s is two options of a command", name);
            }
}

/* ---- start lines of llama.cpp -------------------------------------------- */

/* Calls `each` with every row of llama_table.c, command and spelling. */
static void llama_rows(enum llama_effect here,
                       void (*each)(const struct llama_option *l,
                                    enum command c, char *name))
{
    int n = 0;

    for (int i = 0; i < n_llama_option; i++)
        for (int c = 0; c < N_COMMAND; c++) {
            const struct llama_option *l = &llama_options[i];
            char names[2048], *next = names;

            if (l->here != here || !(l->commands & (1u << c)))
                continue;
            snprintf(names, sizeof names, "%s", l->names);
            for (char *s; (s = strsep(&next, " ")) != NULL; n++)
                each(l, (enum command)c, s);
        }
    assert_true(n > 2);
}

/* Parses `words`, up to NULL, into *o. Returns what was printed on standard
 * error in said[400]. */
static enum exit_code parse_words(struct options *o, enum command c,
                                  char *const *words, char *said)
{
    int n = 0;
    enum exit_code code;
    FILE *out = tmpfile();
    int old = dup(2);

    while (words[n] != NULL)
        n++;
    assert_non_null(out);
    fflush(stderr);
    dup2(fileno(out), 2);
    code = options_parse(o, c, n, (char **)words);
    fflush(stderr);
    dup2(old, 2);
    close(old);
    rewind(out);
    said[fread(said, 1, 399, out)] = '\0';
    fclose(out);
    return code;
}

/* Returns true if both have the same values, other than addresses. */
static bool same_options(struct options *a, struct options *b)
{
    struct word_list none = {0}, words_a = a->words, words_b = b->words;
    bool same;

    a->words = b->words = none;
    same = memcmp(a, b, sizeof *a) == 0;
    a->words = words_a;
    b->words = words_b;
    return same;
}

/* Returns the example value of a row of llama_table.c, without the mark that
 * the value may be left out; NULL if there is none. */
static char *example(const struct llama_option *l, char value[static 64])
{
    if (l->example == NULL)
        return NULL;
    snprintf(value, 64, "%.*s", (int)strcspn(l->example, "|"), l->example);
    return value;
}

static void must_work(const struct llama_option *l, enum command c, char *name)
{
    struct options bare, given;
    char said[400], value[64];
    char *const none[] = {NULL};
    char *const words[] = {name, example(l, value), NULL};

    parse_words(&bare, c, none, said);
    if (parse_words(&given, c, words, said) != EXIT_DONE || said[0] != '\0')
        fail_msg("plait %s %s %s: %s", command_name(c), name,
                 l->example != NULL ? l->example : "", said);
    if (same_options(&bare, &given))
        fail_msg("plait %s %s changes nothing", command_name(c), name);
    options_free(&bare);
    options_free(&given);
}

/* Drafts change no result, so a type that is not here stops no start line. */
TEST(llama_types_of_drafts_that_are_absent_draft_nothing)
{
    static const struct {
        char *types;
        uint32_t sources;
        const char *said;
    } rows[] = {
        {"none", 0, ""},
        {"draft", 1u << PL_DRAFT_SIMPLE, ""},
        {"draft-simple", 1u << PL_DRAFT_SIMPLE, ""},
        {"draft-eagle3", 0, "passing over"},
        {"draft-mtp", 1u << PL_DRAFT_MTP, ""},
        {"draft-dflash", 0, "passing over"},
        {"draft-dspark", 0, "passing over"},
        {"ngram-map-k4v", 0, "passing over"},
        {"ngram-mod", 0, "passing over"},
        {"ngram-mod,ngram-simple", 1u << PL_DRAFT_NGRAM_SIMPLE,
         "ngram-mod,ngram-simple: passing over"},
        {"ngram-simple,ngram-cache",
         1u << PL_DRAFT_NGRAM_SIMPLE | 1u << PL_DRAFT_NGRAM_CACHE, ""},
        {"ngram-mods", 0, NULL},
        {"ngram-simple,", 0, NULL},
        {"caller", 0, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *const words[] = {"--spec-type", rows[i].types, NULL};
        struct options o;
        char said[400];
        enum exit_code c = parse_words(&o, CMD_SERVE, words, said);

        print_message("%s: %s\n", rows[i].types, said);
        if (rows[i].said == NULL) {
            assert_int_equal(c, EXIT_USAGE);
            continue;
        }
        assert_int_equal(c, EXIT_DONE);
        assert_int_equal(o.drafts.limits.sources, rows[i].sources);
        if (rows[i].said[0] == '\0')
            assert_string_equal(said, "");
        else
            assert_non_null(strstr(said, rows[i].said));
        options_free(&o);
    }
}

TEST(llama_options_that_work_change_the_options)
{
    llama_rows(LLAMA_WORKS, must_work);
}

static void must_mean(const struct llama_option *l, enum command c, char *name)
{
    struct options other, given;
    char said[400];
    char *const words[] = {name, NULL};
    char *const same[] = {(char *)l->text, (char *)l->example, NULL};

    if (parse_words(&given, c, words, said) != EXIT_DONE)
        fail_msg("plait %s %s: %s", command_name(c), name, said);
    assert_int_equal(parse_words(&other, c, same, said), EXIT_DONE);
    if (!same_options(&other, &given))
        fail_msg("plait %s: %s is not %s", command_name(c), name, l->text);
    options_free(&other);
    options_free(&given);
}

TEST(llama_options_that_mean_another_equal_it)
{
    llama_rows(LLAMA_MEANS, must_mean);
}

static void must_unset(const struct llama_option *l, enum command c, char *name)
{
    struct options bare, given;
    char said[400];
    char *const none[] = {NULL};
    char *const words[] = {(char *)l->text, name, NULL};

    parse_words(&bare, c, none, said);
    assert_int_equal(parse_words(&given, c, words, said), EXIT_DONE);
    if (!same_options(&bare, &given))
        fail_msg("plait %s %s %s sets something", command_name(c), l->text,
                 name);
    options_free(&bare);
    options_free(&given);
}

TEST(llama_options_that_unset_a_flag_take_it_back)
{
    llama_rows(LLAMA_UNSETS, must_unset);
}

/* Checks that an option without effect is skipped, with its value or, if the
 * value may be left out, without it. The word after it is another option, and
 * the note names the skipped one. */
static void must_be_passed_over(const struct llama_option *l, enum command c,
                                char *name)
{
    struct options bare, given;
    char said[400], value[64];
    char *const none[] = {"-v", NULL};
    char *words[] = {name, example(l, value), "-v", NULL};

    parse_words(&bare, c, none, said);
    for (int bare_too = 0; bare_too <= llama_may_lack_value(l); bare_too++) {
        if (bare_too || words[1] == NULL)
            memmove(&words[1], &words[2], 2 * sizeof words[0]);
        if (option_find(name, 1u << c) != NULL)
            fail_msg("%s is an option of plait %s", name, command_name(c));
        if (parse_words(&given, c, words, said) != EXIT_DONE)
            fail_msg("plait %s %s: %s", command_name(c), name, said);
        if (strstr(said, "change no result here: ") == NULL ||
            strstr(said, name) == NULL)
            fail_msg("plait %s %s: no note: %s", command_name(c), name, said);
        if (!same_options(&bare, &given))
            fail_msg("plait %s %s changes something", command_name(c), name);
        options_free(&given);
    }
    options_free(&bare);
}

TEST(llama_options_passed_over_change_nothing)
{
    llama_rows(LLAMA_PASSED, must_be_passed_over);
}

/* Checks that the command rejects an option, with an error whose remedy names
 * only options that the command has. */
static void must_be_refused(const struct llama_option *l, enum command c,
                            char *name)
{
    struct options o;
    char said[400], value[64], text[400], *next = text;
    char *const words[] = {name, example(l, value), NULL};

    if (parse_words(&o, c, words, said) != EXIT_USAGE ||
        strstr(said, name) == NULL || strstr(said, l->text) == NULL)
        fail_msg("plait %s %s: %s", command_name(c), name, said);
    options_free(&o);
    snprintf(text, sizeof text, "%s", l->text);
    for (char *s; (s = strsep(&next, " ,;()")) != NULL;)
        if (s[0] == '-' && s[1] != '\0' && strchr(l->text, '`') == NULL &&
            option_find(s, 1u << c) == NULL)
            fail_msg("plait %s %s: its remedy %s is no option", command_name(c),
                     name, s);
}

TEST(llama_options_refused_say_what_to_do)
{
    llama_rows(LLAMA_REFUSED, must_be_refused);
}

TEST(llama_options_may_have_underscores)
{
    static char *const lines[][4] = {
        {"--ctx-size", "256", "--ignore-eos", NULL},
        {"--ctx_size", "256", "--ignore_eos", NULL},
        {"--ctx_size=256", "--ignore_eos", NULL},
    };
    char *const text[] = {"--prompt", "a_b", NULL};
    char *const passed[] = {"--no_webui", NULL};
    char *const refused[] = {"--context_shift", NULL};
    struct options o[3], other;
    char said[400];

    for (int i = 0; i < 3; i++) {
        assert_int_equal(parse_words(&o[i], CMD_SERVE, lines[i], said),
                         EXIT_DONE);
        assert_string_equal(said, "");
        assert_true(same_options(&o[0], &o[i]));
    }
    for (int i = 0; i < 3; i++)
        options_free(&o[i]);
    assert_int_equal(parse_words(&other, CMD_RUN, text, said), EXIT_DONE);
    assert_string_equal(other.prompt, "a_b");
    options_free(&other);
    assert_int_equal(parse_words(&other, CMD_SERVE, passed, said), EXIT_DONE);
    assert_non_null(strstr(said, "--no-webui"));
    options_free(&other);
    assert_int_equal(parse_words(&other, CMD_SERVE, refused, said), EXIT_USAGE);
    assert_non_null(strstr(said, "--context-shift of llama.cpp"));
    options_free(&other);
}

/* Words that llama.cpp takes in place of on, off and auto. */
TEST(llama_options_take_its_words_for_switches)
{
    static char *const lines[][2][4] = {
        {{"-fit", "0", NULL}, {"-fit", "off", NULL}},
        {{"-fit", "disabled", NULL}, {"-fit", "off", NULL}},
        {{"-fit", "true", NULL}, {"-fit", "on", NULL}},
        {{"-rea", "1", NULL}, {"-rea", "on", NULL}},
        {{"-rea", "false", NULL}, {"-rea", "off", NULL}},
        {{"-rea", "-1", NULL}, {"-rea", "auto", NULL}},
        {{"--op-offload", "enabled", NULL}, {"--op-offload", "on", NULL}},
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct options o[2];
        char said[400];

        for (int k = 0; k < 2; k++)
            if (parse_words(&o[k], CMD_SERVE, lines[i][k], said) != EXIT_DONE)
                fail_msg("%s %s: %s", lines[i][k][0], lines[i][k][1], said);
        assert_true(same_options(&o[0], &o[1]));
        options_free(&o[0]);
        options_free(&o[1]);
    }
}

/* The note names what the user wrote: a variable, not its option. */
TEST(llama_options_passed_over_by_variables_are_named_by_these)
{
    struct options o;
    char said[400];
    char *const words[] = {"LLAMA_ARG_NO_WEBUI", "--metrics",
                           "MTMD_BACKEND_DEVICE", NULL};
    char *const other[] = {"LLAMA_ARG_CTX_SIZE", NULL};

    assert_int_equal(parse_words(&o, CMD_SERVE, words, said), EXIT_DONE);
    assert_non_null(
        strstr(said, ": LLAMA_ARG_NO_WEBUI, --metrics, MTMD_BACKEND_DEVICE\n"));
    options_free(&o);
    assert_int_equal(parse_words(&o, CMD_SERVE, other, said), EXIT_USAGE);
    options_free(&o);
}

TEST(llama_options_passed_over_share_one_note)
{
    struct options o;
    char said[400];
    char *const words[] = {"-m",      "a.gguf",    "--metrics", "-fa", "on",
                           "--mlock", "-cb",       "-ngl",      "9",   "-lv",
                           "2",       "--no-mmap", NULL};

    assert_int_equal(parse_words(&o, CMD_SERVE, words, said), EXIT_DONE);
    assert_non_null(strstr(said, ": --metrics, -fa, --mlock, -cb, -lv, "
                                 "--no-mmap\n"));
    assert_ptr_equal(strchr(said, '\n')[1], '\0');
    assert_string_equal(o.model, "a.gguf");
    options_free(&o);
}

/* A variable LLAMA_ARG_* stands for its option; the option on the command line
 * takes precedence. */
TEST(llama_variables_stand_for_their_options)
{
    static const struct {
        enum command c;
        const char *name, *value, *words;
    } list[] = {
        {CMD_SERVE, "LLAMA_ARG_CTX_SIZE", "512", "-c 512"},
        {CMD_SERVE, "LLAMA_ARG_PORT", "9000", "--port 9000"},
        {CMD_RUN, "LLAMA_ARG_PORT", "9000", ""},
        {CMD_SERVE, "LLAMA_ARG_SPEC_TYPE", "draft-mtp",
         "--spec-type draft-mtp"},
        {CMD_SERVE, "LLAMA_ARG_SPLIT_MODE", "row", "-sm row"},
        {CMD_SERVE, "LLAMA_ARG_KV_OFFLOAD", "false", "-nkvo"},
        {CMD_SERVE, "LLAMA_ARG_KV_OFFLOAD", "1", "-kvo"},
        {CMD_SERVE, "LLAMA_ARG_NO_KV_OFFLOAD", "1", "-nkvo"},
        {CMD_SERVE, "LLAMA_ARG_MMAP", "0", ""},
        {CMD_SERVE, "LLAMA_ARG_ENDPOINT_METRICS", "1",
         "LLAMA_ARG_ENDPOINT_METRICS"},
        {CMD_SERVE, "LLAMA_ARG_CPU_MOE", "on", "-cmoe"},
        {CMD_SERVE, "LLAMA_ARG_CPU_MOE", "off", ""},
        {CMD_SERVE, "LLAMA_ARG_AGENT", "0", "LLAMA_ARG_AGENT"},
        {CMD_SERVE, "LLAMA_ARG_NO_WEBUI", "1", "LLAMA_ARG_NO_WEBUI"},
        {CMD_SERVE, "LLAMA_ARG_OP_OFFLOAD", "0",
         "--op-offload 0 --no-op-offload"},
        {CMD_SERVE, "LLAMA_ARG_OP_OFFLOAD", "on", "--op-offload on"},
        {CMD_SERVE, "LLAMA_ARG_NO_OP_OFFLOAD", "1", "--no-op-offload"},
        {CMD_SERVE, "LLAMA_ARG_NO_KV_OFFLOAD", "0", "-nkvo"},
        {CMD_SERVE, "LLAMA_ARG_NO_KV_OFFLOAD", "", "-nkvo"},
        {CMD_SERVE, "LLAMA_ARG_KV_OFFLOAD", "", ""},
        {CMD_SERVE, "LLAMA_ARG_CPU_MOE", "", ""},
        {CMD_SERVE, "LLAMA_ARG_TOOLS", "", ""},
        {CMD_SERVE, "LLAMA_ARG_ALIAS", "", ""},
        {CMD_SERVE, "LLAMA_ARG_MODEL", "", ""},
        {CMD_SERVE, "LLAMA_ARG_MMPROJ", "", ""},
        {CMD_SERVE, "LLAMA_ARG_UNKNOWN", "1", ""},
        {CMD_PLAN, "LLAMA_ARG_CTX_SIZE", "512", "-c 512"},
        {CMD_PLAN, "LLAMA_ARG_PORT", "9000", ""},
        {CMD_INSPECT, "LLAMA_ARG_MODEL", "a.gguf", ""},
        {CMD_BENCH, "LLAMA_ARG_MODEL", "a.gguf", ""},
    };
    char *const port[] = {"--port", "1", NULL};
    char *const repo[] = {"-hf", "user/repo", NULL};
    struct word_list w = {0};
    bool known;

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char said[200] = "";

        assert_int_equal(llama_variable(&w, list[i].c, list[i].name,
                                        list[i].value, 0, NULL, &known),
                         EXIT_DONE);
        for (int k = 0; k < w.n; k++)
            snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s",
                     k > 0 ? " " : "", w.v[k]);
        if (strcmp(said, list[i].words) != 0)
            fail_msg("%s=%s is \"%s\", not \"%s\"", list[i].name, list[i].value,
                     said, list[i].words);
        word_list_free(&w);
    }
    assert_int_equal(llama_variable(&w, CMD_SERVE, "LLAMA_ARG_PORT", "2", 2,
                                    (char **)port, &known),
                     EXIT_DONE);
    assert_int_equal(w.n, 0);
    /* another option names the model, so the variable is ignored */
    assert_int_equal(llama_variable(&w, CMD_SERVE, "LLAMA_ARG_MODEL", "a.gguf",
                                    2, (char **)repo, &known),
                     EXIT_DONE);
    assert_int_equal(w.n, 0);
    word_list_free(&w);
}

/* The options of RoPE override keys of the architecture; the last of those with
 * one key counts, and a value that stands for the file's takes it back. */
TEST(llama_options_of_rope_override_keys)
{
    static const struct {
        char *words[11];
        const char *keys; /* the key overrides that result, without ".rope." */
    } list[] = {
        {{"--rope-scaling", "yarn"}, "scaling.type=str:yarn "},
        {{"--rope-scale", "4"}, "scaling.factor=float:4 "},
        {{"--rope-freq-scale", "0.25"}, "scaling.factor=float:4 "},
        {{"--rope-freq-scale", "0.3"}, "scaling.factor=float:3.33333333 "},
        {{"--rope-freq-base", "1e6"}, "freq_base=float:1e6 "},
        {{"--yarn-orig-ctx", "32768"},
         "scaling.original_context_length=int:32768 "},
        {{"--yarn-ext-factor", "1"}, "scaling.yarn_ext_factor=float:1 "},
        {{"--yarn-ext-factor", "0"}, "scaling.yarn_ext_factor=float:0 "},
        {{"--yarn-attn-factor", "1.1"}, "scaling.attn_factor=float:1.1 "},
        {{"--yarn-beta-slow", "2"}, "scaling.yarn_beta_slow=float:2 "},
        {{"--yarn-beta-fast", "16"}, "scaling.yarn_beta_fast=float:16 "},
        {{"--rope-scale", "4", "--rope-freq-scale", "0.5"},
         "scaling.factor=float:2 "},
        {{"--rope-scale", "4", "--rope-freq-scale", "0"}, ""},
        {{"--rope-freq-base", "0", "--yarn-orig-ctx", "0"}, ""},
        {{"--yarn-ext-factor", "-1", "--yarn-attn-factor", "-1",
          "--yarn-beta-slow", "-1", "--yarn-beta-fast", "-1"},
         ""},
    };
    struct options o;
    char said[400];

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char keys[200] = "";

        assert_int_equal(parse_words(&o, CMD_SERVE, list[i].words, said),
                         EXIT_DONE);
        for (int k = 0; k < o.kv_overrides.n; k++) {
            assert_memory_equal(o.kv_overrides.v[k], ".rope.", 6);
            snprintf(keys + strlen(keys), sizeof keys - strlen(keys), "%s ",
                     o.kv_overrides.v[k] + 6);
        }
        assert_string_equal(keys, list[i].keys);
        options_free(&o);
    }
}

/* ---- help ---------------------------------------------------------------- */

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
    struct option_use use = {.o = o, .row = row, .value = value};
    char *none[] = {NULL};

    assert_int_equal(options_parse(o, command, 0, none), EXIT_DONE);
    return row == NULL || row->set(&use);
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

            if (word[n - 1] == ':') /* hybrid:N needs a number */
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
                                        "-ngld",
                                        "-ctkd",
                                        "-ctvd",
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

/* A server logs from several threads: what is written at once stays whole. */
TEST(cli_lines_are_written_at_once)
{
    static const char line[] = "plait serve: a tidy line, \303\251 in it\n";
    int to[2], saved = dup(STDERR_FILENO);
    char got[100];
    ssize_t n;

    fflush(stderr);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, to), 0);
    dup2(to[0], STDERR_FILENO);
    cli_error(CMD_SERVE, EXIT_DONE, "a tidy line, %s in it", "\303\251");
    dup2(saved, STDERR_FILENO);
    n = read(to[1], got, sizeof got);
    assert_int_equal(n, sizeof line - 1);
    assert_memory_equal(got, line, sizeof line - 1);
    close(saved);
    close(to[0]);
    close(to[1]);
}
