/* Writes formatted text and JSON to the caller's pl_write_fn. */
#ifndef REPORT_WRITER_H
#define REPORT_WRITER_H

#include "pl.h"

struct sink {
    pl_write_fn *write;
    void *user;
};

/* Writes a formatted text to the caller's function. Drops the end of a text of
 * more than 511 bytes. */
void writer_printf(const struct sink *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A size with a suffix for powers of 1024: "812", "34.0K", "5.12M" or "1.2T".
 * The text has at most 5 characters. */
struct size_text {
    char s[16];
};
struct size_text size_text(uint64_t bytes);

/* JSON that is written piece by piece, indented by two blanks. {.to = sink} is
 * the beginning. Writing allocates nothing and cannot fail. */
struct json_out {
    const struct sink *to;
    int depth;  /* number of open lists and objects */
    bool some;  /* the innermost of them has a member */
    bool keyed; /* a key was written, but not its value */
};

/* Writes pieces of JSON. `form` has the brackets of JSON, keys, each followed
 * by a colon, and a letter for each value, which is the next argument:
 *
 *   s   a text (const char *); S is the same, but null if it is empty
 *   t   a text and its length (const char *, size_t)
 *   i   an int
 *   I   an int64_t or uint64_t
 *   f   a double; null if it is not finite
 *   b   an int, written as true or false
 *   n   null, which has no argument
 *
 * A star in place of a key takes the key from the arguments. Brackets may be
 * closed by a later call. The end of the outermost one adds a newline. Invalid
 * bytes of a text become U+FFFD. */
void json_put(struct json_out *j, const char *form, ...);

#endif
