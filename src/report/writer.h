/* Writes text to the caller's pl_write_fn. */
#ifndef REPORT_WRITER_H
#define REPORT_WRITER_H

#include "pl.h"

#include <jansson.h>

struct sink {
    pl_write_fn *write;
    void *user;
};

/* At most 511 bytes a call. */
void writer_printf(const struct sink *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes `all`, indented, and a newline, and drops the reference. NULL, or
 * running out of memory, is the error NO_MEMORY for `what`. */
pl_status sink_json(const struct sink *to, json_t *all, const char *what,
                    pl_err *err);

/* Returns the bytes of the UTF-8 character at s, at most `left`; 0 if
 * invalid. */
size_t sink_utf8_len(const char *s, size_t left);
/* Returns JSON text in which invalid UTF-8 is U+FFFD. NULL if memory is out. */
json_t *sink_json_text(const char *s, size_t len);

/* Prints "812", "34.0K", "5.12M" or "1.2T": powers of 1024, at most 5
 * characters. */
const char *sink_size(char buf[16], uint64_t bytes);

#endif
