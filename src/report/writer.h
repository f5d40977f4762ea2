/* Text on its way to the caller's pl_write_fn. */
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

/* Writes `all`, indented, with a newline behind it, and drops the reference.
 * NULL, or memory running out, is the error NO_MEMORY for `what`. */
pl_status sink_json(const struct sink *to, json_t *all, const char *what,
                    pl_err *err);

/* Bytes of the UTF-8 character at s, at most `left`; 0 if there is none. */
size_t sink_utf8_len(const char *s, size_t left);
/* For JSON: what is not UTF-8 becomes U+FFFD. NULL when memory is out. */
json_t *sink_json_text(const char *s, size_t len);

/* "812", "34.0K", "5.12M", "1.2T": powers of 1024, at most 5 characters. */
const char *sink_size(char buf[16], uint64_t bytes);

#endif
