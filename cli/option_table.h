/* The table of options, one row each. The parser (options.c), --help, the
 * nearest name to a wrong one (llama_options.c), and all that scripts/manual.py
 * makes read it: doc/commands.md, the man pages and the shells' completions. */
#ifndef CLI_OPTION_TABLE_H
#define CLI_OPTION_TABLE_H

#include "options.h"

struct option_row;

enum { OPTION_WANT = 200 };

/* Besides the commands that have an option, `commands` holds those whose --help
 * lists it. The others list it with --help-all. */
enum { OPTION_BRIEF_SHIFT = 12 };
#define OPTION_BRIEF(commands) ((commands) << OPTION_BRIEF_SHIFT)

/* It applies to the whole server; presets of models must not have it. */
enum { OPTION_PROCESS = 1 << 28 };

/* With bench it may be repeated, and all values are measured; with OPTION_COMMA
 * a list with commas counts as several values. */
enum { OPTION_MANY = 1 << 29, OPTION_COMMA = 1 << 30 };

/* Stores `value` (NULL for flags without one). Returns false if it is not
 * accepted; `want` then says what would be: "a whole number from 1 to 64". */
typedef bool option_set_fn(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT]);

/* Its file is read, so the command must not write the same file. For IDS that
 * is the file after an @. */
enum { OPTION_READS = 1 << 24 };

/* Its file is written. With OPTION_STREAMS it may be "-", a device or a pipe. A
 * file with OPTION_STATE may replace that of another option with
 * OPTION_STATE. */
enum {
    OPTION_WRITES = 1 << 25,
    OPTION_STREAMS = 1 << 26,
    OPTION_STATE = 1 << 27
};

/* A heading has no name. Its commands are all those of the rows below it. */
struct option_row {
    const char *name[3]; /* short, long, an alias */
    /* the value's name; FILE and DIR are paths; NULL: the option takes no
     * value */
    const char *arg;
    /* the default, as typed or in words; NULL: off, or none */
    const char *value;
    /* sentences, of which --help prints the first; a heading's text */
    const char *help;
    unsigned commands; /* bits 1 << enum command, and OPTION_* above */
    option_set_fn *set;
    size_t offset; /* of the field in struct options */
    double lo, hi; /* range of a number */
    /* values that are words, up to a NULL; an enumeration in its order */
    const char *const *words;
};

extern const struct option_row option_table[];
extern const int n_option_row;

/* Returns the row of a name among the options of some commands, or NULL. */
const struct option_row *option_find(const char *name, unsigned commands);

/* Options of llama.cpp that are not options here: names separated by blanks,
 * and what to use instead. The parser skips those that would not change
 * results, with their value, and rejects the others. An `instead` that begins
 * with "use" names equivalent options or an equivalent command. */
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

/* Returns true, after a message, for an option of llama.cpp that would not
 * change results here. *n_word is the number of following words that are its
 * value. `next` is the first of them, or NULL. */
bool option_ignore(enum command command, const char *name, const char *next,
                   int *n_word);

/* Prints on standard error that `name` is not an option of `command`, and the
 * nearest one. Always returns EXIT_USAGE. */
enum exit_code option_unknown(enum command command, const char *name);

#endif
