/* The table of options, one row each. It is read by the parser (options.c), by
 * --help, by the suggestions for misspelled names (option_unknown.c), and by
 * scripts/manual.py. That script generates doc/commands.md, the man pages and
 * the shell completions. */
#ifndef CLI_OPTION_TABLE_H
#define CLI_OPTION_TABLE_H

#include "options.h"

struct option_row;

enum { OPTION_WANT = 200 };

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

/* Checks `value` (NULL for flags without one) and stores it in *o. If it is
 * invalid, returns false and writes what would be valid to `want`: "a whole
 * number from 1 to 64". */
typedef bool option_set_fn(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT]);

/* The command reads the file that the option names, so it must not write that
 * file. An option with IDS names a file after an @. */
#define OPTION_READS OPTION_BIT(4)

/* The command writes the file that the option names. With OPTION_STREAMS, the
 * name may be "-", a device or a pipe. Two options with OPTION_STATE may name
 * the same file: the new state then replaces the loaded one. */
#define OPTION_WRITES  OPTION_BIT(5)
#define OPTION_STREAMS OPTION_BIT(6)
#define OPTION_STATE   OPTION_BIT(7)

/* An option, or a heading, which has no name. The commands of a heading are
 * those of the options below it. */
struct option_row {
    const char *name[3]; /* short, long, an alias */
    /* name of the value, FILE or DIR for a path; NULL if the option has no
     * value */
    const char *arg;
    /* the default, as typed or in words; NULL if off or none */
    const char *value;
    /* sentences, of which --help prints the first; the text of a heading */
    const char *help;
    uint64_t commands; /* bits 1 << enum command, and OPTION_* above */
    option_set_fn *set;
    size_t offset; /* of the field in struct options */
    double lo, hi; /* range of a number */
    /* the words that are valid values, ending with NULL; in the order of the
     * enumeration, if the field is one */
    const char *const *words;
};

extern const struct option_row option_table[];
extern const int n_option_row;

/* Returns the row of the option `name`, if one of `commands` has it, or NULL.
 * `commands` is a set of bits, as in the rows. */
const struct option_row *option_find(const char *name, uint64_t commands);

/* The effect that an option of llama.cpp has here. */
enum llama_effect {
    LLAMA_WORKS,  /* the option table has it */
    LLAMA_MEANS,  /* it is the option `text` here, with the value `example` */
    LLAMA_UNSETS, /* it takes back the flag `text` */
    LLAMA_PASSED, /* it changes no result, and is passed over */
    LLAMA_REFUSED /* it would change a result, or asks for something else */
};

/* An option of llama.cpp, or several that are treated alike. */
struct llama_option {
    unsigned commands; /* bits 1 << enum command: serve for llama-server, run
                          for llama-cli, bench for llama-bench */
    enum llama_effect here;
    const char *names; /* all spellings, separated by blanks */
    /* A valid value; NULL for a flag. If it ends with |, the value may be left
     * out. */
    const char *example;
    /* Environment variables with the same effect, separated by blanks; NULL if
     * none. The flag of a variable after ! is set if it is false. */
    const char *variables;
    /* Words for readers: a difference (may be NULL), the reason why nothing
     * changes, or what to do instead; for MEANS and UNSETS the option's name */
    const char *text;
};

extern const struct llama_option llama_options[];
extern const int n_llama_option;

bool llama_may_lack_value(const struct llama_option *l);
/* Returns the row of an option of llama.cpp that the option table does not
 * have, preferably one of `command`'s tool; NULL if there is none. */
const struct llama_option *llama_find(const char *name, enum command command);
/* Appends the words to *to, with the options of llama.cpp replaced by options
 * of the table. Prints a note that names the options passed over. Prints an
 * error and returns its code if one is refused, or memory runs out. */
enum exit_code llama_rewrite(struct word_list *to, enum command command,
                             int argc, char **argv);
/* Appends the option of llama.cpp that `variable` stands for, if there is one
 * and the words do not give it themselves. Errors as above. */
enum exit_code llama_variable(struct word_list *to, enum command command,
                              const char *variable, const char *value, int argc,
                              char **argv);
/* Appends the options of the environment's variables, then the words. */
enum exit_code llama_environment(struct word_list *to, enum command command,
                                 int argc, char **argv);

/* Environment variables that users may set. */
struct environment_row {
    const char *name, *value, *help;
};

extern const struct environment_row environment_table[];
extern const int n_environment_row;

/* Prints on standard error that `name` is not an option of `command`, with the
 * replacement or the most similar option. Always returns EXIT_USAGE. */
enum exit_code option_unknown(enum command command, const char *name);

#endif
