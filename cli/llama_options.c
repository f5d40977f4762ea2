/* Accepts command lines of llama.cpp's tools. Rewrites the words of a command
 * line, and the variables LLAMA_ARG_*, to options of plait, by the rows of
 * llama_table.c. */
#include "option_set.h"
#include "printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- looking up rows ----------------------------------------------------- */

/* Returns true if `list`, words separated by blanks, contains `word`. Unless
 * `mark` is NUL, words of the list may have this character before them, and
 * *marked is set to true if the word that was found has it. */
static bool lists(const char *list, const char *word, char mark, bool *marked)
{
    size_t len = strlen(word);

    while (list != NULL && *list != '\0') {
        bool has = mark != '\0' && *list == mark;
        size_t n;

        list += has;
        n = strcspn(list, " ");
        if (n == len && memcmp(list, word, n) == 0) {
            if (mark != '\0')
                *marked = has;
            return true;
        }
        list += n + (list[n] == ' ');
    }
    return false;
}

const struct llama_option *llama_find(const char *name, enum command command)
{
    const struct llama_option *found = NULL;

    for (int i = 0; i < n_llama_option; i++) {
        const struct llama_option *l = &llama_options[i];

        if (!lists(l->names, name, '\0', NULL) || l->here == LLAMA_WORKS)
            continue;
        if (l->commands & (1u << command))
            return l;
        found = found != NULL ? found : l;
    }
    return found;
}

bool llama_may_lack_value(const struct llama_option *l)
{
    return l->example != NULL && l->example[strlen(l->example) - 1] == '|';
}

/* ---- rewriting words ----------------------------------------------------- */

struct rewrite {
    enum command command;
    char **from; /* [n_from] the words to rewrite, borrowed */
    int n_from;
    struct word_list *to;
    /* names of the ignored options, which a note lists at the end */
    char passed[400];
};

static enum exit_code add(const struct rewrite *r, const char *word)
{
    return word_list_add(r->to, word)
               ? EXIT_DONE
               : cli_error(r->command, EXIT_FAILED, "no memory for options");
}

/* Copies the name of the option in `word` to `name`, with dashes for
 * underscores, as llama.cpp reads long names. Returns the option's row in the
 * option table; NULL if it has none. Sets *value to the text after =; NULL if
 * there is no =. */
static const struct option_row *find(const struct rewrite *r, const char *word,
                                     char name[static 64], const char **value)
{
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;

    *value = equals != NULL ? equals + 1 : NULL;
    snprintf(name, 64, "%.*s",
             equals != NULL ? (int)(equals - word) : (int)strlen(word), word);
    for (char *c = name; *c != '\0' && strncmp(name, "--", 2) == 0; c++)
        *c = *c == '_' ? '-' : *c;
    return option_find(name, 1u << r->command);
}

/* Adds the option in `word`, under the name that find() gave it. */
static enum exit_code add_option(const struct rewrite *r, const char *word,
                                 const char *name, const char *value)
{
    enum exit_code c;
    char *own;

    if (strncmp(word, name, strlen(name)) == 0)
        return add(r, word);
    if (value == NULL)
        return add(r, name);
    if (asprintf(&own, "%s=%s", name, value) < 0)
        return cli_error(r->command, EXIT_FAILED, "no memory for options");
    c = add(r, own);
    free(own);
    return c;
}

/* Removes earlier uses of a flag from r->to, under any of the flag's names. */
static void unset(const struct rewrite *r, const char *flag)
{
    const struct option_row *row = option_find(flag, 1u << r->command);
    int n = 0;

    for (int i = 0; i < r->to->n; i++) {
        char name[64];
        const char *value;

        if (find(r, r->to->v[i], name, &value) == row)
            free(r->to->v[i]);
        else
            r->to->v[n++] = r->to->v[i];
    }
    r->to->n = n;
}

static void note(struct rewrite *r, const char *name)
{
    size_t n = strlen(r->passed);

    if (n + strlen(name) + 8 < sizeof(r->passed))
        snprintf(r->passed + n, sizeof(r->passed) - n, "%s%s",
                 n > 0 ? ", " : "", name);
    else if (strcmp(r->passed + n - 3, "...") != 0)
        snprintf(r->passed + n, sizeof(r->passed) - n, ", ...");
}

/* Returns true if `word` is a value of an option that is valid with and without
 * a value: on, off, auto, true, false, a number, or a list of these. */
static bool is_switch(const char *word)
{
    static const char *const words[] = {"on", "off", "auto", "true", "false"};
    size_t n;
    bool one;

    if (word == NULL)
        return false;
    n = strcspn(word, ",");
    one = n > 0 && strspn(word, "0123456789") == n;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        one |= strlen(words[i]) == n && memcmp(words[i], word, n) == 0;
    return one && (word[n] == '\0' || is_switch(word + n + 1));
}

/* Handles an option that only llama.cpp has, the word *i, by the row `l`.
 * Advances *i to the last word of its value. */
static enum exit_code take_llama(struct rewrite *r, const char *name,
                                 const char *value,
                                 const struct llama_option *l, int *i)
{
    const char *next = *i + 1 < r->n_from ? r->from[*i + 1] : NULL;
    enum exit_code c;

    switch (l->here) {
    case LLAMA_REFUSED:
        return cli_error(r->command, EXIT_USAGE,
                         "%s of llama.cpp is not an option here: %s", name,
                         l->text);
    case LLAMA_UNSETS:
        unset(r, l->text);
        return EXIT_DONE;
    case LLAMA_MEANS:
        c = add(r, l->text);
        return c == EXIT_DONE && l->example != NULL ? add(r, l->example) : c;
    case LLAMA_WORKS:
    case LLAMA_PASSED:
        break;
    }
    if (value == NULL && l->example != NULL &&
        (!llama_may_lack_value(l) || is_switch(next))) {
        if (next == NULL)
            return cli_error(r->command, EXIT_USAGE, "%s needs a value: %s %s",
                             name, name, l->example);
        ++*i;
    }
    note(r, name);
    return EXIT_DONE;
}

/* Returns true if the command reads the variables of row `l`. `plait serve` and
 * `plait run` read those of llama-server and llama-cli. Other commands that
 * compute or plan read those whose option they have. `plait bench` reads none,
 * because llama-bench reads none. */
static bool is_of(const struct llama_option *l, enum command command)
{
    const unsigned tools = 1u << CMD_SERVE | 1u << CMD_RUN;
    char name[64];

    if (tools & (1u << command))
        return l->commands & (1u << command);
    if (command == CMD_BENCH || option_find("-c", 1u << command) == NULL)
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(l->names, " "), l->names);
    return option_find(name, 1u << command) != NULL;
}

/* Returns true if `word` is an environment variable without effect. The words
 * of variables have it in place of the option, so that the note names it. */
static bool is_passed_variable(const struct rewrite *r, const char *word)
{
    bool inverse;

    for (int i = 0; i < n_llama_option; i++)
        if (llama_options[i].here == LLAMA_PASSED &&
            is_of(&llama_options[i], r->command) &&
            lists(llama_options[i].variables, word, '!', &inverse))
            return true;
    return false;
}

static enum exit_code take_word(struct rewrite *r, int *i)
{
    const char *word = r->from[*i], *value;
    const char *next = *i + 1 < r->n_from ? r->from[*i + 1] : NULL;
    const struct option_row *row;
    const struct llama_option *l = NULL;
    enum exit_code c;
    char name[64];

    if (is_passed_variable(r, word)) {
        note(r, word);
        return EXIT_DONE;
    }
    if (word[0] != '-' || word[1] == '\0')
        return add(r, word);
    row = find(r, word, name, &value);
    if (row == NULL && option_find("-dev", 1u << r->command) != NULL)
        l = llama_find(name, r->command);
    if (l != NULL)
        return take_llama(r, name, value, l, i);
    c = row != NULL ? add_option(r, word, name, value) : add(r, word);
    if (c != EXIT_DONE || row == NULL || row->arg == NULL || value != NULL)
        return c;
    if ((row->commands & OPTION_BARE) &&
        (next == NULL || (next[0] == '-' && strcmp(next, "-1") != 0)))
        return add(r, "on");
    if (next == NULL)
        /* no word follows; options_parse reports the missing value */
        return EXIT_DONE;
    ++*i;
    return add(r, next);
}

enum exit_code llama_rewrite(struct word_list *to, enum command command,
                             int argc, char **argv)
{
    struct rewrite r = {
        .command = command, .from = argv, .n_from = argc, .to = to};
    enum exit_code c = EXIT_DONE;

    for (int i = 0; i < argc && c == EXIT_DONE; i++)
        c = take_word(&r, &i);
    if (c == EXIT_DONE && r.passed[0] != '\0')
        cli_error(command, EXIT_DONE,
                  "passing over options that change no result here: %s",
                  r.passed);
    return c;
}

/* ---- variables ----------------------------------------------------------- */

static bool is_false(const char *value)
{
    static const char *const no[] = {"0", "false", "off", "no", "disabled", ""};

    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (strcmp(value, no[i]) == 0)
            return true;
    return false;
}

/* Returns true if the words of the command line have the option of row `l`
 * under any of its names. An option that names a model also counts as given if
 * any other option names one. */
static bool is_given(const struct rewrite *r, const struct llama_option *l)
{
    static const char models[] =
        "-m --model -hf -hfr --hf-repo -mu --model-url --models-dir "
        "--models-preset";
    char own[64];
    const char *names;

    snprintf(own, sizeof(own), "%.*s", (int)strcspn(l->names, " "), l->names);
    names = lists(models, own, '\0', NULL) ? models : l->names;
    for (int i = 0; i < r->n_from; i++) {
        char name[64];
        const char *value;

        find(r, r->from[i], name, &value);
        if (lists(names, name, '\0', NULL))
            return true;
    }
    return false;
}

/* Returns true if an option of llama.cpp takes a text, which may be empty. */
static bool takes_text(const struct rewrite *r, const struct llama_option *l,
                       const char *name)
{
    const struct option_row *row = option_find(name, 1u << r->command);

    return l->here != LLAMA_WORKS || row == NULL ||
           row->set == option_set_text || row->set == option_set_prompt;
}

/* Checks the value of a variable by the option `name`, so that an error names
 * the variable. */
static enum exit_code check_value(const struct rewrite *r, const char *name,
                                  const char *variable, const char *value)
{
    struct options scratch = {.command = r->command};
    struct option_use use = {.o = &scratch,
                             .row = option_find(name, 1u << r->command),
                             .value = value,
                             .quiet = true};
    char cut[SHOWN];
    bool ok;

    if (use.row == NULL)
        return EXIT_DONE;
    ok = use.row->set(&use);
    options_free(&scratch);
    return ok ? EXIT_DONE
              : cli_error(r->command, EXIT_USAGE,
                          "%s=%s: as the value of %s, give %s", variable,
                          clip_printable(cut, value), name, use.want);
}

/* Adds the option for which a variable stands. A flag is added only if the
 * variable is true or, if `inverse`, false. An empty variable counts as not set
 * if the option is a flag or takes a text. As in llama.cpp, LLAMA_ARG_NO_*
 * counts whatever its value is. */
static enum exit_code add_variable(const struct rewrite *r,
                                   const struct llama_option *l, bool inverse,
                                   const char *variable, const char *value)
{
    const bool flag = l->example == NULL || l->here == LLAMA_MEANS;
    char name[64];
    enum exit_code c;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(l->names, " "), l->names);
    if (is_given(r, l))
        return EXIT_DONE;
    if (strncmp(variable, "LLAMA_ARG_NO_", 13) != 0) {
        if (value[0] == '\0' && (flag || takes_text(r, l, name)))
            return EXIT_DONE;
        if (flag && is_false(value) != inverse)
            return EXIT_DONE;
    }
    if (l->here == LLAMA_REFUSED)
        return cli_error(r->command, EXIT_USAGE,
                         "%s=%s: %s of llama.cpp is not an option here: %s",
                         variable, value, name, l->text);
    if (l->here == LLAMA_PASSED)
        return add(r, variable);
    c = flag ? EXIT_DONE : check_value(r, name, variable, value);
    if (c == EXIT_DONE)
        c = add(r, name);
    return c == EXIT_DONE && !flag ? add(r, value) : c;
}

enum exit_code llama_variable(struct word_list *to, enum command command,
                              const char *variable, const char *value, int argc,
                              char **argv, bool *known)
{
    const struct rewrite r = {
        .command = command, .from = argv, .n_from = argc, .to = to};
    enum exit_code c = EXIT_DONE;

    *known = false;
    for (int i = 0; i < n_llama_option && c == EXIT_DONE; i++) {
        const struct llama_option *l = &llama_options[i];
        bool inverse;

        if (is_of(l, command) && lists(l->variables, variable, '!', &inverse)) {
            *known = true;
            c = add_variable(&r, l, inverse, variable, value);
        }
    }
    return c;
}

enum exit_code llama_environment(struct word_list *to, enum command command,
                                 int argc, char **argv)
{
    enum exit_code c = EXIT_DONE;

    for (char **e = environ; *e != NULL && c == EXIT_DONE; e++) {
        char name[64];
        bool known;
        size_t n = strcspn(*e, "=");

        snprintf(name, sizeof(name), "%.*s", (int)n, *e);
        if ((strncmp(*e, "LLAMA_", 6) == 0 || strncmp(*e, "MTMD_", 5) == 0) &&
            (*e)[n] == '=')
            c = llama_variable(to, command, name, *e + n + 1, argc, argv,
                               &known);
    }
    for (int i = 0; i < argc && c == EXIT_DONE; i++)
        if (!word_list_add(to, argv[i]))
            c = cli_error(command, EXIT_FAILED, "no memory for options");
    return c;
}
