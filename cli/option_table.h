/* The table of options, one row each. It is read by the parser (options.c), by
 * --help, by the suggestions for misspelled names (option_unknown.c), and by
 * scripts/manual.py. That script generates doc/commands.md, the man pages and
 * the shell completions. */
#ifndef CLI_OPTION_TABLE_H
#define CLI_OPTION_TABLE_H

#include "options.h"

struct option_row;

enum { OPTION_WANT = 200, OPTION_NAMES = 4 };

/* The set `commands` of a row also contains, shifted by OPTION_BRIEF_SHIFT, the
 * commands whose --help lists the option. Other commands list the option only
 * with --help-all. */
enum { OPTION_BRIEF_SHIFT = 20 };
#define OPTION_BRIEF(commands) ((uint64_t)(commands) << OPTION_BRIEF_SHIFT)
/* Further bits of `commands`, above both sets. */
#define OPTION_BIT(i) ((uint64_t)1 << (40 + (i)))

/* The option applies to the whole server; presets of models must not contain
 * it. */
#define OPTION_PROCESS OPTION_BIT(0)

/* The value may be left out, which means "on". */
#define OPTION_BARE OPTION_BIT(1)

/* `plait bench` accepts the option several times and measures all values. With
 * OPTION_COMMA, a comma-separated list counts as several values. */
#define OPTION_MANY  OPTION_BIT(2)
#define OPTION_COMMA OPTION_BIT(3)

/* An option that the command line gives. */
struct option_use {
    struct options *o;
    const struct option_row *row;
    const char *value; /* text of its value; NULL for flags */
    bool quiet;        /* the value is only checked: no note is printed */
    char want[OPTION_WANT];
};

/* Checks the value and stores it in u->o. If it is invalid, returns false and
 * describes valid values in u->want, such as "a whole number from 1 to 64". */
typedef bool option_set_fn(struct option_use *u);

/* The command reads the file that the option names, so it must not write that
 * file. If row.arg is IDS, the option names a file only if its value begins
 * with an @. */
#define OPTION_READS OPTION_BIT(4)

/* The command writes the file that the option names. With OPTION_STREAMS, the
 * name may be "-", a device or a pipe. Two options with OPTION_STATE may name
 * the same file: the new state then replaces the loaded one. */
#define OPTION_WRITES  OPTION_BIT(5)
#define OPTION_STREAMS OPTION_BIT(6)
#define OPTION_STATE   OPTION_BIT(7)

/* An option or, without a name, a heading of --help. A heading is printed if
 * any option below it is. */
struct option_row {
    /* short name, long name, further names; NULL for those that the option does
     * not have */
    const char *name[OPTION_NAMES];
    /* Word for the value in --help; FILE or DIR if it is a path. NULL if the
     * option has no value. */
    const char *arg;
    /* The default for --help, as a user would type it or in words; NULL for
     * flags that are off and options without default. */
    const char *value;
    /* For an option, sentences for --help, which prints only the first. For a
     * heading, its text. */
    const char *help;
    uint64_t commands; /* set of bits: 1 << enum command for each command that
                          has the option, and the OPTION_* above */
    option_set_fn *set;
    size_t offset; /* offset in struct options of the field that `set`
                      changes */
    /* the least and the greatest value if the option's value is a number */
    double lo, hi;
    /* The allowed values if they are words; NULL after the last. If the field
     * in struct options is an enumeration, the words are in the order of its
     * constants. */
    const char *const *words;
};

extern const struct option_row option_table[];
extern const int n_option_row;

/* Returns the row of the option `name` if any of `commands` has this option,
 * else NULL. `commands` is a set of bits 1 << enum command. */
const struct option_row *option_find(const char *name, uint64_t commands);

/* The effect that an option of llama.cpp has here. */
enum llama_effect {
    LLAMA_WORKS, /* plait has the same option, with the same meaning */
    /* plait replaces it by its own option `text` with the value `example` */
    LLAMA_MEANS,
    LLAMA_UNSETS, /* plait removes the flag `text` if it was given earlier */
    /* the option changes no result, so plait ignores it and prints a note */
    LLAMA_PASSED,
    /* the option would change a result or requests something that plait lacks,
     * so plait rejects it */
    LLAMA_REFUSED
};

/* An option of llama.cpp, or several that are treated alike. */
struct llama_option {
    unsigned commands; /* set of bits 1 << enum command: CMD_SERVE for
                          llama-server, CMD_RUN for llama-cli, CMD_BENCH for
                          llama-bench */
    enum llama_effect here;
    const char *names; /* all spellings of the option, separated by blanks */
    /* A valid value of the option. NULL for a flag, which has no value. If the
     * text ends with |, the option is also valid without a value. */
    const char *example;
    /* Environment variables with the same effect, separated by blanks; NULL if
     * none. A variable after ! is inverse: it sets the flag if its value is
     * false. */
    const char *variables;
    /* For MEANS and UNSETS, the name of an option of the option table. For
     * WORKS, a difference for the documentation; may be NULL. For PASSED and
     * REFUSED, the reason, or what to do instead. */
    const char *text;
};

extern const struct llama_option llama_options[];
extern const int n_llama_option;

bool llama_may_lack_value(const struct llama_option *l);
/* Returns the row of an option that llama.cpp has and the option table has not;
 * NULL if there is none. A row of the tool that corresponds to `command` has
 * precedence. */
const struct llama_option *llama_find(const char *name, enum command command);
/* Appends the words argv[argc] to *to. Replaces those options that only
 * llama.cpp has by options of the option table. Prints a note that names the
 * ignored ones. If an option is rejected, or if out of memory, prints an error
 * and returns its exit code. */
enum exit_code llama_rewrite(struct word_list *to, enum command command,
                             int argc, char **argv);
/* Appends the option for which the environment variable `variable` stands to
 * *to, if there is one and the words argv[argc] do not have it. For an ignored
 * option, appends the name of the variable, which llama_rewrite puts into its
 * note. Sets *known to true if the command reads the variable. Errors are those
 * of llama_rewrite. */
enum exit_code llama_variable(struct word_list *to, enum command command,
                              const char *variable, const char *value, int argc,
                              char **argv, bool *known);
/* Appends the options of all environment variables that are set to *to, then
 * the words argv[argc]. */
enum exit_code llama_environment(struct word_list *to, enum command command,
                                 int argc, char **argv);

/* Environment variables that users may set. */
struct environment_row {
    const char *name, *value, *help;
};

extern const struct environment_row environment_table[];
extern const int n_environment_row;

/* Prints on standard error that `name` is not an option of `command`. Names the
 * command that has it, or else the most similar option. Always returns
 * EXIT_USAGE. */
enum exit_code option_unknown(enum command command, const char *name);

#endif
