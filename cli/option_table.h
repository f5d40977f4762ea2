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

/* It is of the whole server, and none of its models may have it. */
enum { OPTION_PROCESS = 1 << 28 };

/* With bench it may be given again, and all values are measured; a list with
 * commas is as many. */
enum { OPTION_MANY = 1 << 29, OPTION_COMMA = 1 << 30 };

/* Stores `value` (NULL for flags without one). Returns false if it is not
 * accepted; `want` then says what would be: "a whole number from 1 to 64". */
typedef bool option_set_fn(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT]);

/* Its file is read: no file that the command writes may be the same. Of IDS
 * that is the file after an @. */
enum { OPTION_READS = 1 << 24 };

/* Its file is written; with OPTION_STREAMS it may be "-", a device or a pipe. A
 * file with OPTION_STATE may replace one of another option with it. */
enum {
    OPTION_WRITES = 1 << 25,
    OPTION_STREAMS = 1 << 26,
    OPTION_STATE = 1 << 27
};

/* A heading has no name. Its commands are all those of the rows below it. */
struct option_row {
    const char *name[3]; /* short, long, an alias */
    const char *arg;     /* the value's name; FILE and DIR are paths. NULL: the
                            option takes no value */
    const char *value;   /* the default, as it is typed, or in words; NULL: the
                            option is off, or there is none */
    const char *help;    /* sentences, of which --help prints the first; a
                            heading's text */
    unsigned commands;   /* bit 1 << enum command; and OPTION_* of above */
    option_set_fn *set;
    size_t offset;            /* of the field in struct options */
    double lo, hi;            /* range of a number */
    const char *const *words; /* values that are words, up to a NULL. An
                                 enumeration has them in its order */
};

extern const struct option_row option_table[];
extern const int n_option_row;

/* The row of a name among the options of some commands, or NULL. */
const struct option_row *option_find(const char *name, unsigned commands);

/* Options of llama.cpp that are not options here: names with blanks between,
 * and what to use instead. The parser passes over those that would change no
 * result, with their value, and refuses the others. An `instead` that begins
 * with "use" names options or a command that do the same. */
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

/* Returns true for an option of llama.cpp that would change no result here,
 * after a message that says so; *n_word is how many of the words after it are
 * its value. `next` is the first of them, or NULL. */
bool option_ignore(enum command command, const char *name, const char *next,
                   int *n_word);

/* Says on standard error that `name` is not an option of `command`, and which
 * one comes nearest. Always EXIT_USAGE. */
enum exit_code option_unknown(enum command command, const char *name);

#endif
