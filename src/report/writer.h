/* Writes formatted text and JSON to the caller's pl_write_fn. */
#ifndef REPORT_WRITER_H
#define REPORT_WRITER_H

#include "pl.h"

#include <jansson.h>

struct sink {
    pl_write_fn *write;
    void *user;
};

/* Writes a formatted text to the caller's function. Drops the end of a text of
 * more than 511 bytes. */
void writer_printf(const struct sink *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes the JSON value `all` to the caller's function, indented and followed
 * by a newline. Releases the reference to `all`. Returns NO_MEMORY if `all` is
 * NULL or memory is short; `what` names the JSON in the message. */
pl_status sink_json(const struct sink *to, json_t *all, const char *what,
                    pl_err *err);

/* Returns the length in bytes of the UTF-8 character at s, of which `left`
 * bytes may be read. Returns 0 if it is invalid. */
size_t sink_utf8_len(const char *s, size_t left);
/* Returns a JSON string with the text s[len], in which each invalid byte is
 * replaced by U+FFFD. Returns NULL if out of memory. */
json_t *sink_json_text(const char *s, size_t len);

/* Prints a size to `buf` with a suffix for powers of 1024: "812", "34.0K",
 * "5.12M" or "1.2T". The text has at most 5 characters. Returns `buf`. */
const char *sink_size(char buf[16], uint64_t bytes);

#endif
