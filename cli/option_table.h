/* The table of options, one row each. It is read by the parser (options.c), by
 * --help, by the suggestions for misspelled names (llama_options.c), and by
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
enum { OPTION_BRIEF_SHIFT = 12 };
#define OPTION_BRIEF(commands) ((commands) << OPTION_BRIEF_SHIFT)

/* The option applies to the whole server; presets of models must not contain
 * it. */
enum { OPTION_PROCESS = 1 << 28 };

/* `plait bench` accepts the option several times and measures all values. With
 * OPTION_COMMA, a comma-separated list counts as several values. */
enum { OPTION_MANY = 1 << 29, OPTION_COMMA = 1 << 30 };

/* Checks `value` (NULL for flags without one) and stores it in *o. If it is
 * invalid, returns false and writes what would be valid to `want`: "a whole
 * number from 1 to 64". */
typedef bool option_set_fn(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT]);

/* The command reads the file that the option names, so it must not write that
 * file. An option with IDS names a file after an @. */
enum { OPTION_READS = 1 << 24 };

/* The command writes the file that the option names. With OPTION_STREAMS, the
 * name may be "-", a device or a pipe. Two options with OPTION_STATE may name
 * the same file: the new state then replaces the loaded one. */
enum {
    OPTION_WRITES = 1 << 25,
    OPTION_STREAMS = 1 << 26,
    OPTION_STATE = 1 << 27
};

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
    unsigned commands; /* bits 1 << enum command, and OPTION_* above */
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
const struct option_row *option_find(const char *name, unsigned commands);

/* Options of llama.cpp that plait does not have. `names` are separated by
 * blanks; `instead` says what to use instead, or why the option has no effect.
 * The parser rejects those with LLAMA_REFUSED. It ignores the others: a flag,
 * an option with a value, or one that may be followed by on or off. An
 * `instead` that begins with "use" names equivalent options or an equivalent
 * command. */
struct llama_option {
    const char *names;
    const char *instead;
    enum { LLAMA_REFUSED, LLAMA_FLAG, LLAMA_VALUE, LLAMA_SWITCH } take;
};

extern const struct llama_option llama_options[];
extern const int n_llama_option;

/* Environment variables that users may set. */
struct environment_row {
    const char *name, *value, *help;
};

extern const struct environment_row environment_table[];
extern const int n_environment_row;

/* Prints a note and returns true if `name` is an option of llama.cpp that would
 * not change results here. Sets *n_word to the number of following words that
 * are its value, 0 or 1. `next` is the word after the option, or NULL. */
bool option_ignore(enum command command, const char *name, const char *next,
                   int *n_word);

/* Prints on standard error that `name` is not an option of `command`, with the
 * replacement or the most similar option. Always returns EXIT_USAGE. */
enum exit_code option_unknown(enum command command, const char *name);

#endif
