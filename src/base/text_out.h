/* Buffers text for a caller's pl_write_fn, so that it is called once per
 * thousand bytes, not once per word. */
#ifndef BASE_TEXT_OUT_H
#define BASE_TEXT_OUT_H

#include "pl.h"

struct text_out {
    pl_write_fn *write;
    void *user;
    size_t len; /* bytes of buf not yet written */
    char buf[1024];
};

/* Prints at most 128 bytes at once. */
void text_put(struct text_out *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void text_put_char(struct text_out *o, char c);
void text_put_lower(struct text_out *o, const char *s);
/* Prints a float with enough digits to identify it: six, or up to nine if
 * needed. */
void text_put_float(struct text_out *o, float v);
/* Writes the rest; must be called at the end. */
void text_flush(struct text_out *o);

#endif
