/* GBNF as it is written: text that grows, and the parts that a JSON Schema is
 * made of. For the files of this layer only. */
#ifndef GRAMMAR_SCHEMA_TEXT_H
#define GRAMMAR_SCHEMA_TEXT_H

#include "grammar/rule_tree.h"

/* Zeroed is empty. What is written once one of the two has come is dropped. */
struct gbnf_text {
    char *s; /* owned, [n] and a terminator */
    size_t n, cap;
    bool failed;    /* memory was out */
    bool too_large; /* would have had more than GBNF_BYTES */
};

void gbnf_text_fini(struct gbnf_text *t);
void gbnf_put(struct gbnf_text *t, const char *s);
void gbnf_put_bytes(struct gbnf_text *t, const char *s, size_t len);
void gbnf_print(struct gbnf_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A literal of these bytes, which are UTF-8. */
void gbnf_put_literal(struct gbnf_text *t, const char *s, size_t len);
/* One character of n normal ranges, as a JSON string spells it: in one way. */
void gbnf_put_json_char(struct gbnf_text *t, const struct char_range *range,
                        uint32_t n);
/* The integers from lo to hi, both included, as decimals without leading
 * zeros. INT64_MIN, INT64_MAX: without a bound, up to 18 digits. */
void gbnf_put_integers(struct gbnf_text *t, int64_t lo, int64_t hi);

/* The strings, in quotes, that a regular expression finds something in, as JSON
 * Schema has it: ECMA-262, of which assertions other than ^ and $ at the ends
 * of alternatives, back references and properties are refused. NULL, or what is
 * wrong; *at is where. */
const char *gbnf_put_pattern(struct gbnf_text *t, const char *s, size_t len,
                             size_t *at);

#endif
