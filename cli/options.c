/* Parses the words after a command by the rows of option_table.c. The value of
 * an option is the next word, even if that begins with a dash (`-n -1`, `-p
 * -`). `--name=value` is equivalent. Letters cannot be bundled, because many of
 * llama.cpp's names are letters after one dash. */
#include "option_table.h"
#include "printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if the command takes a file name without an option before it. */
static bool takes_word(enum command command)
{
    static const char *const args[] = {
#define COMMAND_ROW(upper, lower, text, args, example) [CMD_##upper] = args,
        COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
    };

    return args[command][0] != '\0';
}

static void set_defaults(struct options *o, enum command command)
{
    const char *cpu = getenv("PLAIT_CPU");

    memset(o, 0, sizeof(*o));
    o->command = command;
    o->n_predict = -1;
    o->n_chunks = -1;
    o->port = 8080;
    o->n_parallel = 4;
    o->ping_s = 10;
    o->socket_s = 600;
    o->reasoning_budget = -1;
    o->embd_normalize = 2;
    o->n_models = 4;
    o->models_wait_s = 30;
    o->join_s = 30;
    o->machine_s = 5;
    o->n_round = 5;
    o->n_prefix = 1;
    o->random_seed = command != CMD_BENCH;
    o->receipt_form = command == CMD_SERVE ? RECEIPT_BRIEF : RECEIPT_FULL;
    pl_options_init(&o->pl);
    pl_sampling_init(&o->sampling);
    pl_draft_init(&o->drafts);
    if (cpu != NULL && cpu[0] != '\0')
        o->pl.cpu = cpu;
}

/* Passes a value to the setter of the row. If `plait bench` accepts several
 * values of the option, also appends each of them to o->axis. */
static bool take_value(struct option_use *u)
{
    struct options *o = u->o;
    size_t field = u->row->offset - offsetof(struct options, sampling);
    bool comma = u->row->commands & OPTION_COMMA;

    if (field < sizeof(o->sampling))
        o->sampling_given[field] = true;
    if (o->command != CMD_BENCH ||
        !(u->row->commands & (OPTION_MANY | OPTION_COMMA)))
        return u->row->set(u);
    for (const char *s = u->value;;) {
        size_t len = comma ? strcspn(s, ",") : strlen(s);
        char *word = strndup(s, len);

        if (word == NULL || o->n_axis == OPTION_MAX_AXIS) {
            free(word);
            snprintf(u->want, sizeof(u->want),
                     "fewer values, at most %d in all", OPTION_MAX_AXIS);
            return false;
        }
        o->axis[o->n_axis++] = (struct option_axis){u->row, word};
        u->value = word;
        if (!u->row->set(u))
            return false;
        if (s[len] == '\0')
            return true;
        s += len + 1;
    }
}

/* Parses the option argv[*i], which begins with '-'. Advances *i to the last
 * word of its value. */
static enum exit_code take_option(struct options *o, int argc, char **argv,
                                  int *i)
{
    const char *word = argv[*i];
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const char *value = NULL;
    const struct option_row *row;
    char name[64], cut[SHOWN];
    struct option_use use;

    snprintf(name, sizeof(name), "%.*s",
             equals != NULL ? (int)(equals - word) : (int)strlen(word), word);
    row = option_find(name, 1u << o->command);
    if (row == NULL)
        return option_unknown(o->command, name);
    if (row->arg == NULL && equals != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "%s takes no value; leave out \"%s\"", name,
                         clip_printable(cut, equals));
    if (row->arg != NULL && equals != NULL) {
        value = equals + 1;
    } else if (row->arg != NULL) {
        if (*i + 1 >= argc)
            return cli_error(o->command, EXIT_USAGE, "%s needs a value: %s %s",
                             name, name, row->arg);
        value = argv[++*i];
    }
    use = (struct option_use){.o = o, .row = row, .value = value};
    if (!take_value(&use))
        return cli_error(o->command, EXIT_USAGE, "%s %s: give %s", name,
                         value != NULL && value[0] == '\0'
                             ? "\"\""
                             : clip_printable(cut, value),
                         use.want);
    return EXIT_DONE;
}

/* Rejects a word that is neither an option nor the value of one. */
static enum exit_code refuse_word(const struct options *o, const char *word)
{
    const struct option_row *row;
    size_t len = strlen(word);
    char cut[SHOWN];

    clip_printable(cut, word);
    if (o->model == NULL && o->command != CMD_DEVICES && len > 5 &&
        strcmp(word + len - 5, ".gguf") == 0)
        return cli_error(
            o->command, EXIT_USAGE,
            "\"%s\" has no option before it; to name a model, use -m %s", cut,
            cut);
    row = option_find("--prompt", 1u << o->command);
    return cli_error(
        o->command, EXIT_USAGE,
        "unexpected argument \"%s\"; options begin with a dash%s", cut,
        row != NULL ? ", a text needs -p, and quotes if it has blanks" : "");
}

enum command command_of_options(int argc, char **argv)
{
    for (int c = 0; c < N_COMMAND; c++) {
        bool all = true;

        for (int i = 0; i < argc && all; i++) {
            char name[64];
            const struct option_row *row;

            if (argv[i][0] != '-')
                continue;
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(argv[i], "="),
                     argv[i]);
            row = option_find(name, 1u << c);
            all = row != NULL;
            if (all && row->arg != NULL && strchr(argv[i], '=') == NULL)
                i++;
        }
        if (all)
            return (enum command)c;
    }
    return N_COMMAND;
}

enum exit_code options_parse(struct options *o, enum command command, int argc,
                             char **argv)
{
    enum exit_code c;

    set_defaults(o, command);
    c = llama_rewrite(&o->words, command, argc, argv);
    for (int i = 0; i < o->words.n && c == EXIT_DONE && !o->help &&
                    !o->help_all && !o->version;
         i++) {
        const char *word = o->words.v[i];

        if (word[0] == '-' && word[1] != '\0')
            c = take_option(o, o->words.n, o->words.v, &i);
        else if (command == CMD_VERIFY || command == CMD_DIFF)
            c = word_list_add(&o->files, word)
                    ? EXIT_DONE
                    : cli_error(command, EXIT_FAILED, "no memory for a name");
        else if (takes_word(command) && o->model == NULL)
            o->model = word;
        else
            c = refuse_word(o, word);
    }
    return c;
}

void options_free(struct options *o)
{
    free((int32_t *)o->sampling.bias_id);
    free((float *)o->sampling.bias);
    free((void *)o->sampling.dry_breaker);
    free((void *)o->pl.overrides);
    word_list_free(&o->words);
    word_list_free(&o->stops);
    word_list_free(&o->files);
    word_list_free(&o->kv_overrides);
    free(o->fetched);
    o->fetched = NULL;
    for (int i = 0; i < o->n_axis; i++)
        free(o->axis[i].value);
    o->n_axis = 0;
    o->pl.overrides = NULL;
    o->pl.n_overrides = 0;
    o->sampling.bias_id = NULL;
    o->sampling.bias = NULL;
    o->sampling.n_bias = 0;
    o->sampling.dry_breaker = NULL;
    o->sampling.n_dry_breaker = 0;
}

/* COLUMN: where the second column begins; COLUMNS: greatest length of a
 * line. */
enum { COLUMN = 26, COLUMNS = 79 };

/* If the name does not fit in the first column, the text begins on the next
 * line. */
void options_print_row(const char *name, const char *text)
{
    int width = printf("  %s", name);

    if (width >= COLUMN) {
        printf("\n");
        width = 0;
    }
    while (*text != '\0') {
        int n = (int)strlen(text);

        if (n > COLUMNS - COLUMN) {
            n = COLUMNS - COLUMN;
            while (n > 0 && text[n] != ' ')
                n--;
            if (n == 0)
                n = (int)strcspn(text, " ");
        }
        printf("%*s%.*s\n", COLUMN - width, "", n, text);
        width = 0;
        text += n + strspn(text + n, " ");
    }
}

/* Returns true if the short name, the long name and the argument fit in the
 * first column. */
static bool fits(const struct option_row *row)
{
    size_t arg = row->arg != NULL ? strlen(row->arg) + 1 : 0;

    return strlen(row->name[0]) + strlen(row->name[1]) + arg + 6 <= COLUMN;
}

/* Prints the names of an option, its default, and the first sentence of its
 * help, or all of it if `all`. */
static void print_option(const struct option_row *row, bool all)
{
    const char *end = strstr(row->help, ". ");
    size_t len = strlen(row->help);
    char name[80] = "", text[1024];
    int n = 0;

    for (int k = 0; k < 3 && row->name[k] != NULL; k++)
        if (k == 0 || all || (k == 1 && fits(row)))
            n += snprintf(name + n, sizeof(name) - (size_t)n, "%s%s",
                          k > 0 ? ", " : "", row->name[k]);
    if (row->arg != NULL)
        snprintf(name + n, sizeof(name) - (size_t)n, " %s", row->arg);
    if (!all)
        len = end != NULL ? (size_t)(end - row->help) : len - 1;
    if (row->value == NULL)
        snprintf(text, sizeof(text), "%.*s", (int)len, row->help);
    else
        snprintf(text, sizeof(text), all ? "%.*s Default: %s." : "%.*s (%s)",
                 (int)len, row->help, row->value);
    options_print_row(name, text);
}

static void print_heading(const char *text, bool all)
{
    const char *note = strstr(text, " (");

    printf("\n%.*s:\n",
           (int)(all || note == NULL ? (ptrdiff_t)strlen(text) : note - text),
           text);
}

void options_print(enum command command, bool all)
{
    unsigned wanted = 1u << command;
    const struct option_row *heading = NULL;

    if (!all)
        wanted = OPTION_BRIEF(wanted);
    for (int i = 0; i < n_option_row; i++) {
        const struct option_row *row = &option_table[i];

        if (row->set == NULL)
            heading = row;
        if (row->set == NULL || !(row->commands & wanted))
            continue;
        if (heading != NULL)
            print_heading(heading->help, all);
        heading = NULL;
        print_option(row, all);
    }
}
