/* A growing text buffer, and functions that append GBNF to it. Private to
 * src/grammar. */
#ifndef GRAMMAR_SCHEMA_TEXT_H
#define GRAMMAR_SCHEMA_TEXT_H

#include "grammar/rule_tree.h"

/* A text buffer that grows as needed. A zeroed struct is empty. Once `failed`
 * or `too_large` is set, text that is appended is dropped, so callers check
 * these once at the end. */
struct gbnf_text {
    char *s; /* owned: the text, [n] bytes and a NUL */
    size_t n, cap;
    bool failed;    /* memory ran out, so text was dropped */
    bool too_large; /* the text exceeds GBNF_BYTES, so text was dropped */
};

void gbnf_text_fini(struct gbnf_text *t);
void gbnf_put(struct gbnf_text *t, const char *s);
void gbnf_put_bytes(struct gbnf_text *t, const char *s, size_t len);
void gbnf_print(struct gbnf_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends the rule s<rule> with this body, whose text is freed. A failure of
 * the body is one of the whole text. */
void gbnf_put_rule(struct gbnf_text *t, uint32_t rule, struct gbnf_text *body);
/* Appends a GBNF literal of the text s[0 .. len), which must be UTF-8. */
void gbnf_put_literal(struct gbnf_text *t, const char *s, size_t len);
/* Appends a class of the characters in n normalized ranges
 * (char_ranges_normal), as they are written in a JSON string: as themselves, or
 * as the shortest escape where JSON requires one. */
void gbnf_put_json_char(struct gbnf_text *t, const struct char_range *range,
                        uint32_t n);

#endif
