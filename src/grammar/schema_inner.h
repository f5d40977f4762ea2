/* Declarations that the files of the conversion of JSON Schemas to GBNF share;
 * see schema.h. */
#ifndef GRAMMAR_SCHEMA_INNER_H
#define GRAMMAR_SCHEMA_INNER_H

#include "grammar/schema.h"

enum keyword_of {
    KEYWORD_NONE,
    KEYWORD_NOTE = 1,
    KEYWORD_ANY = 2,
    KEYWORD_OBJECT = 4,
    KEYWORD_ARRAY = 8,
    KEYWORD_STRING = 16,
    KEYWORD_NUMBER = 32,
    KEYWORD_STRING_OR_NUMBER = KEYWORD_STRING | KEYWORD_NUMBER,
};

/* The types of JSON values, as bits. */
enum type_bit {
    TYPE_OBJECT = 1,
    TYPE_ARRAY = 2,
    TYPE_STRING = 4,
    TYPE_INTEGER = 8,
    TYPE_NUMBER = 16,
    TYPE_BOOLEAN = 32,
    TYPE_NULL = 64,
    TYPE_ALL = 127 - TYPE_INTEGER,
};

enum { SCHEMA_PATH = 512, SCHEMA_DEPTH = 100, SCHEMA_MERGES = 24 };
/* instead of a rule's number: no JSON value fits the schema */
enum { RULE_NEVER = UINT32_MAX };

struct writer {
    struct gbnf_text *out;
    json_t *root;
    /* Owned, [n_rule]: for each of the rules s0, s1, ... the schema for which
     * it was written, so that a schema gets one rule. NULL for other rules. */
    const json_t **rule;
    uint32_t n_rule, cap_rule;
    /* owned: JSON values that must live until the end (schema_keep) */
    json_t *made;
    int depth, n_note;
    int64_t n_step, n_copy;
    /* The failure is a limit of the whole grammar, so it is not turned into a
     * note. */
    bool limit;
    char path[SCHEMA_PATH];
    char why[512]; /* message of the last failure or note */
    const char *name;
    pl_err *err;
};

/* A combined schema: all schemas that apply to the same JSON value, as one. */
struct flat {
    /* Owned: keywords that apply to one type of values, "enum", and lists of
     * all patterns and formats. */
    json_t *all;
    /* Owned: list of lists of schemas. A value must fit a schema of each inner
     * list. */
    json_t *choices;
    json_t *nots;   /* owned: schemas that must not fit */
    unsigned types; /* bits (type_bit) of the types that a value may have */
    bool typed;     /* a keyword such as "type" limits the types */
    bool never;     /* no value fits the combined schema */
    /* One of the schemas has additionalProperties false. */
    bool closed;
};

/* Keywords of flat.all that no schema can have: lists of the constants, and of
 * the patterns, that "not" excludes. */
#define WITHOUT_TEXTS    "\001texts"
#define WITHOUT_PATTERNS "\001patterns"

/* ---- messages and notes -------------------------------------------------- */

/* schema_refuse fails because something is not supported or too large,
 * schema_wrong because the schema is invalid. A schema in which schema_refuse
 * was called is replaced by any value of its type, with a note, unless w->limit
 * is set. */
pl_status schema_refuse(struct writer *w, const char *keyword,
                        const char *what);
pl_status schema_wrong(struct writer *w, const char *keyword, const char *what);
pl_status schema_no_memory(struct writer *w);
pl_status schema_too_long(struct writer *w, const char *keyword);
/* Writes a comment into the grammar: the keyword is not enforced, because of
 * `what`. */
void schema_note(struct writer *w, const char *keyword, const char *what);
/* Returns true while the limit of steps is not exceeded. The time to convert a
 * schema may grow far faster than its size. So searches and comparisons count
 * steps, and go on only while this function returns true. */
bool schema_may_go_on(const struct writer *w);
/* Returns the number of steps to count for comparing v with another value. */
int64_t schema_weight(json_t *v);

/* ---- reading and combining schemas --------------------------------------- */

/* Returns the types of values that the keyword `key` constrains, KEYWORD_NONE
 * if the keyword is not known. */
enum keyword_of schema_keyword_of(const char *key);
/* Returns the value of a keyword of a schema. NULL if it is absent or null. */
json_t *schema_get(const json_t *schema, const char *key);
/* Return the enum type_bit of a type's name, and of the type of value v.
 * schema_type_named returns 0 if `name` is not a type. */
unsigned schema_type_named(const json_t *name);
unsigned schema_type_of(const json_t *v);
/* Takes over the reference to the new JSON value `made` and keeps the value
 * until the end of the conversion. Returns it, or NULL if out of memory. */
json_t *schema_keep(struct writer *w, json_t *made);
/* Sets *out to the schema to which the value of a $ref points. Sets it to NULL
 * if that is in another document. */
pl_status schema_find_ref(struct writer *w, const json_t *ref, json_t **out);

/* Writes a note if a value may fit several alternatives of a oneOf, because
 * oneOf is enforced like anyOf. */
pl_status schema_check_one_of(struct writer *w, json_t *list);

/* Combines `schema` with what *f has already, so that values must fit both. *f
 * is {0} at first. References and allOf may nest to `depth` levels.
 * schema_flat_fini must be called in any case. */
pl_status schema_merge(struct writer *w, struct flat *f, json_t *schema,
                       int depth);
/* Excludes from the combined schema the values that fit a schema of f->nots,
 * and writes a note where that is not possible. */
pl_status schema_apply_nots(struct writer *w, struct flat *f);
bool schema_flat_copy(struct flat *to, const struct flat *from);
void schema_flat_fini(struct flat *f);

/* ---- rules of the grammar ------------------------------------------------ */

/* Adds a rule without a body and sets *out to its number. `schema` is the one
 * that the rule is for; NULL if the rule is for a part of a schema. */
pl_status schema_rule_new(struct writer *w, const json_t *schema,
                          uint32_t *out);
/* Writes rule s<rule> with the body `text` to the grammar. */
pl_status schema_rule_put(struct writer *w, uint32_t rule,
                          const struct gbnf_text *text);
/* Sets *out to the number of the rule of a schema, or to RULE_NEVER if no value
 * fits the schema. Writes the rule if it does not exist yet. */
pl_status schema_rule(struct writer *w, json_t *schema, uint32_t *out);

/* Append to t an expression for the strings, or the numbers, that fit the
 * combined keywords `all`. Set *never if no value fits. */
pl_status schema_put_string(struct writer *w, const json_t *all,
                            struct gbnf_text *t, bool *never);
pl_status schema_put_number(struct writer *w, const json_t *all, bool integer,
                            struct gbnf_text *t, bool *never);
/* Sets *out to the value of the keyword `key`, such as minItems, or to `usual`
 * if it is absent. A value above `most` is replaced by `usual`, with a note. */
pl_status schema_count(struct writer *w, const json_t *all, const char *key,
                       int64_t usual, int64_t most, int64_t *out);
/* Sets *fits to true if the text s[0 .. len) fits all keywords for strings in
 * `all`: length, pattern and format. */
pl_status schema_text_fits(struct writer *w, const json_t *all, const char *s,
                           size_t len, bool *fits);

#endif
