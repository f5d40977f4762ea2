/* Declarations that the files of the conversion of JSON Schemas to GBNF share;
 * see schema.h. */
#ifndef GRAMMAR_SCHEMA_INNER_H
#define GRAMMAR_SCHEMA_INNER_H

#include "grammar/schema.h"

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

/* The types of values that a keyword constrains, as bits of enum type_bit;
 * besides, KEYWORD_ANY for all types and KEYWORD_NOTE for none. */
enum keyword_of {
    KEYWORD_NONE,
    KEYWORD_OBJECT = TYPE_OBJECT,
    KEYWORD_ARRAY = TYPE_ARRAY,
    KEYWORD_STRING = TYPE_STRING,
    KEYWORD_NUMBER = TYPE_NUMBER,
    KEYWORD_STRING_OR_NUMBER = TYPE_STRING | TYPE_NUMBER,
    KEYWORD_NOTE = 128,
    KEYWORD_ANY = 256,
};

enum { SCHEMA_PATH = 512, SCHEMA_DEPTH = 100, SCHEMA_MERGES = 24 };
/* instead of a rule's number: no JSON value fits the schema */
enum { RULE_NEVER = UINT32_MAX };

/* The conversion of one schema. Failures are sticky: `status` keeps the first
 * one. After it, functions do nothing or return RULE_NEVER, NULL or 0, so
 * callers continue without a check; loops and recursions are bounded by the
 * schema's size, and schema_rule and schema_spend stop them. A failure that is
 * not that of the whole grammar (`limit`) ends at the rule of its schema, which
 * becomes a rule for any value. */
struct writer {
    struct gbnf_text *out;
    json_t *root;
    struct arena memory; /* owns all memory but texts and JSON values */
    /* In the arena, [GBNF_RULES]: for each of the rules s0, s1, ... the schema
     * for which it was written, so that a schema gets one rule. NULL for other
     * rules. */
    const json_t **rule;
    /* owned: JSON values that must live until the end (schema_keep) */
    json_t *made;
    struct schema_sums sums;
    int depth;
    /* The failure is a limit of the whole grammar, so it is not turned into a
     * note. */
    bool limit;
    pl_status status; /* PL_OK until the first failure */
    char path[SCHEMA_PATH];
    char why[512]; /* message of the last failure or note */
    const char *name;
};

/* A combined schema: all schemas that apply to the same JSON value, as one. */
struct flat {
    /* Keywords that apply to one type of values, "enum", and lists of all
     * patterns and formats. This and the next two values are kept by the
     * writer. */
    json_t *all;
    /* List of lists of schemas. A value must fit a schema of each inner
     * list. */
    json_t *choices;
    json_t *nots;   /* schemas that must not fit */
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
void schema_refuse(struct writer *w, const char *keyword, const char *what);
void schema_wrong(struct writer *w, const char *keyword, const char *what);
void schema_no_memory(struct writer *w);
/* Writes a comment into the grammar: the keyword is not enforced, because of
 * `what`. */
void schema_note(struct writer *w, const char *keyword, const char *what);
/* Counts n steps. The time to convert a schema may grow far faster than its
 * size, so the number of steps of searches and comparisons is limited. Returns
 * false if anything has failed. */
bool schema_spend(struct writer *w, int64_t n, const char *keyword);
/* Returns the number of steps to count for comparing v with another value. */
int64_t schema_weight(json_t *v);
/* Returns n zeroed elements of `size` bytes, NULL if out of memory. */
void *schema_alloc(struct writer *w, size_t n, size_t size);

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
/* Returns the name of a type; NULL if `bit` is not one enum type_bit. */
const char *schema_type_name(unsigned bit);
/* Takes over the reference to the new JSON value `made` and keeps the value
 * until the end of the conversion. Returns it. NULL is a failure for lack of
 * memory, as json_pack and others return it. */
json_t *schema_keep(struct writer *w, json_t *made);
/* Append a value to a list that was made, or set a member of an object that was
 * made. Take over the reference to the value; NULL is a failure for lack of
 * memory. */
void schema_add(struct writer *w, json_t *list, json_t *item);
void schema_set(struct writer *w, json_t *object, const char *key,
                json_t *value);
/* Returns the schema to which the value of a $ref points. NULL if that is in
 * another document. */
json_t *schema_find_ref(struct writer *w, const json_t *ref);

/* Writes a note if a value may fit several alternatives of a oneOf, because
 * oneOf is enforced like anyOf. */
void schema_check_one_of(struct writer *w, json_t *list);

/* Combines `schema` with what *f has already, so that values must fit both. *f
 * is {0} at first. References and allOf may nest to `depth` levels. */
void schema_merge(struct writer *w, struct flat *f, json_t *schema, int depth);
/* Excludes from the combined schema the values that fit a schema of f->nots,
 * and writes a note where that is not possible. */
void schema_apply_nots(struct writer *w, struct flat *f);
struct flat schema_flat_copy(struct writer *w, const struct flat *from);

/* ---- rules of the grammar ------------------------------------------------ */

/* Writes rule s<rule> with the body `text` to the grammar, and frees the
 * text. */
void schema_rule_put(struct writer *w, uint32_t rule, struct gbnf_text *text);
/* Returns the number of the rule of a schema, or RULE_NEVER if no value fits
 * the schema. Writes the rule if it does not exist yet. */
uint32_t schema_rule(struct writer *w, json_t *schema);

/* Append to t an expression for the strings, or the numbers, that fit the
 * combined keywords `all`. Return false if no value fits. */
bool schema_put_string(struct writer *w, const json_t *all,
                       struct gbnf_text *t);
bool schema_put_number(struct writer *w, const json_t *all, bool integer,
                       struct gbnf_text *t);
/* Returns the value of the keyword `key`, such as minItems, or `usual` if it is
 * absent. A value above `most` is replaced by `usual`, with a note. */
int64_t schema_count(struct writer *w, const json_t *all, const char *key,
                     int64_t usual, int64_t most);
/* Returns true if the text s[0 .. len) fits all keywords for strings in `all`:
 * length, pattern and format. */
bool schema_text_fits(struct writer *w, const json_t *all, const char *s,
                      size_t len);

#endif
