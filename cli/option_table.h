/* One row a flag. A row is read by the parser (options.c), by --help and by
 * whoever looks for the nearest name to a wrong one (foreign.c). */
#ifndef CLI_OPTION_TABLE_H
#define CLI_OPTION_TABLE_H

#include "options.h"

struct option_row;

enum { OPTION_WANT = 200 };

/* It is of the whole server, and none of its models may have it. */
enum { OPTION_PROCESS = 1 << 28 };

/* With bench it may be given again, and all values are measured; a list with
 * commas is as many. */
enum { OPTION_MANY = 1 << 29, OPTION_COMMA = 1 << 30 };

/* Stores `value` (NULL for flags without one). If that cannot be, false, and
 * `want` says what would be right: "a whole number from 1 to 64". */
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

struct option_row {
    const char *name[3]; /* short, long, an alias; a heading has none */
    const char *arg;     /* what --help calls the value; NULL: takes none */
    const char *help;    /* a heading: its text */
    unsigned commands;   /* bit 1 << enum command; and OPTION_* of above */
    option_set_fn *set;
    size_t offset; /* of the field in struct options */
    double lo, hi; /* range of a number */
};

extern const struct option_row option_table[];
extern const int n_option_row;

/* The row of a name among the options of some commands, or NULL. */
const struct option_row *option_find(const char *name, unsigned commands);

/* Is it an option of llama.cpp that would change no result here? Then that is
 * said, and *n_word is how many of the words after it are its value; `next` is
 * the first of them, or NULL. */
bool option_ignore(enum command command, const char *name, const char *next,
                   int *n_word);

/* Says on standard error that `name` is no option of `command`, and which one
 * comes nearest. Always EXIT_USAGE. */
enum exit_code option_refuse(enum command command, const char *name);

#endif
