/* Buffers text for a caller's pl_write_fn, so that the function is called once
 * per 1024 bytes, not once per word. */
#ifndef BASE_TEXT_OUT_H
#define BASE_TEXT_OUT_H

#include "pl.h"

struct text_out {
    pl_write_fn *write;
    void *user;
    size_t len; /* number of bytes of `buf` that have not been written yet */
    char buf[1024];
};

/* Appends a formatted text of at most 128 bytes. */
void text_put(struct text_out *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void text_put_char(struct text_out *o, char c);
void text_put_lower(struct text_out *o, const char *s);
/* Appends a float with enough digits to parse to the same value: six, or up to
 * nine if needed. */
void text_put_float(struct text_out *o, float v);
/* Writes the buffered text. Must be called at the end. */
void text_flush(struct text_out *o);

#endif
