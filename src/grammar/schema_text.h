/* Writes GBNF into a text buffer, including the constructs that JSON Schemas
 * need. Private to this layer. */
#ifndef GRAMMAR_SCHEMA_TEXT_H
#define GRAMMAR_SCHEMA_TEXT_H

#include "grammar/rule_tree.h"

/* A text buffer that grows as needed. A zeroed struct is empty. Writes are
 * dropped once `failed` or `too_large` is set. */
struct gbnf_text {
    char *s; /* owned, [n] and a terminator */
    size_t n, cap;
    bool failed;    /* out of memory */
    bool too_large; /* would exceed GBNF_BYTES */
};

void gbnf_text_fini(struct gbnf_text *t);
void gbnf_put(struct gbnf_text *t, const char *s);
void gbnf_put_bytes(struct gbnf_text *t, const char *s, size_t len);
void gbnf_print(struct gbnf_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a GBNF literal of the text s[0 .. len), which must be UTF-8. */
void gbnf_put_literal(struct gbnf_text *t, const char *s, size_t len);
/* Appends a class of characters, given as n normalized ranges. Each character
 * has only one spelling in a JSON string: itself, or the shortest escape if
 * JSON requires one. */
void gbnf_put_json_char(struct gbnf_text *t, const struct char_range *range,
                        uint32_t n);

#endif
