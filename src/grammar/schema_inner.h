/* Declarations that the files of the conversion of schemas share; see
 * schema.h. */
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
/* in place of a rule's number: no value fits the schema */
enum { RULE_NEVER = UINT32_MAX };

struct writer {
    struct gbnf_text *out;
    json_t *root;
    /* Owned, [n_rule]: the schemas of rules s0, s1, ...; NULL for a rule of a
     * part of a schema. */
    const json_t **rule;
    uint32_t n_rule, cap_rule;
    /* owned: list of values that are kept until the end (schema_keep) */
    json_t *made;
    int depth, n_note;
    int64_t n_step, n_copy;
    bool limit; /* the failure is a limit of the whole grammar */
    char path[SCHEMA_PATH];
    char why[512]; /* the last message of a refusal or a note */
    const char *name;
    pl_err *err;
};

/* A schema after everything that applies to the same value was combined. */
struct flat {
    json_t *all;     /* owned: keywords of single types, "enum", and lists of
                        all patterns and formats */
    json_t *choices; /* owned: list of lists; one schema of each list applies */
    json_t *nots;    /* owned: list of schemas that must not apply */
    unsigned types;  /* bits of the possible types */
    bool typed;      /* types are limited by a keyword */
    bool never;      /* no value fits */
    bool closed;     /* a combined schema has additionalProperties false */
};

/* Keywords of `all` for the constants and the patterns that "not" excludes. */
#define WITHOUT_TEXTS    "\001texts"
#define WITHOUT_PATTERNS "\001patterns"

/* ---- messages ------------------------------------------------------------ */

/* Fail because something is not supported or too large, and because the schema
 * is wrong. A schema that is refused is replaced by its type, with a note,
 * unless w->limit is set. */
pl_status schema_refuse(struct writer *w, const char *keyword,
                        const char *what);
pl_status schema_wrong(struct writer *w, const char *keyword, const char *what);
pl_status schema_no_memory(struct writer *w);
pl_status schema_too_long(struct writer *w, const char *keyword);
/* Notes that a keyword is not enforced, in a comment of the grammar. */
void schema_note(struct writer *w, const char *keyword, const char *what);
/* Returns true while the limit of steps is not exceeded. Converting a schema
 * may cost far more than its size suggests, so searches and comparisons count
 * steps and continue only while this is true. */
bool schema_may_go_on(const struct writer *w);
/* Returns the cost, in steps, of comparing a value with another. */
int64_t schema_weight(json_t *v);

/* ---- schemas ------------------------------------------------------------- */

/* Returns the type that a keyword constrains; KEYWORD_NONE if it is not
 * known. */
enum keyword_of schema_keyword_of(const char *key);
/* Returns a value of a schema; NULL if it is absent or null. */
json_t *schema_get(const json_t *schema, const char *key);
/* Returns the bit of a type's name, or of a value's type; 0 if none. */
unsigned schema_type_named(const json_t *name);
unsigned schema_type_of(const json_t *v);
/* Keeps a new value until the end of the conversion. Returns it, or NULL if out
 * of memory. */
json_t *schema_keep(struct writer *w, json_t *made);
/* Sets *out to the schema that a reference points to. Sets it to NULL if the
 * reference points outside the document. */
pl_status schema_find_ref(struct writer *w, const json_t *ref, json_t **out);

/* Writes a note if alternatives of oneOf may both match. oneOf is treated like
 * anyOf. */
pl_status schema_check_one_of(struct writer *w, json_t *list);

/* Combines `schema` with what was merged into *f before. *f is {0} at first.
 * schema_flat_fini must be called in any case. */
pl_status schema_merge(struct writer *w, struct flat *f, json_t *schema,
                       int depth);
/* Applies the schemas of f->nots as far as possible. */
pl_status schema_apply_nots(struct writer *w, struct flat *f);
bool schema_flat_copy(struct flat *to, const struct flat *from);
void schema_flat_fini(struct flat *f);

/* ---- rules --------------------------------------------------------------- */

/* Adds a rule without a body, that of `schema` if it is not NULL. */
pl_status schema_rule_new(struct writer *w, const json_t *schema,
                          uint32_t *out);
/* Writes the body of a rule. */
pl_status schema_rule_put(struct writer *w, uint32_t rule,
                          const struct gbnf_text *text);
/* Sets *out to the rule of a schema, which is written if it does not exist yet,
 * or to RULE_NEVER. */
pl_status schema_rule(struct writer *w, json_t *schema, uint32_t *out);

/* Append expressions for the values of one type. */
pl_status schema_put_string(struct writer *w, const json_t *all,
                            struct gbnf_text *t, bool *never);
pl_status schema_put_number(struct writer *w, const json_t *all, bool integer,
                            struct gbnf_text *t, bool *never);
/* Sets *out to the count under `key`, or to `usual` if there is none. A count
 * that is too large is replaced by `usual`, with a note. */
pl_status schema_count(struct writer *w, const json_t *all, const char *key,
                       int64_t usual, int64_t most, int64_t *out);
/* Sets *fits to true if a text fits the keywords for strings. */
pl_status schema_text_fits(struct writer *w, const json_t *all, const char *s,
                           size_t len, bool *fits);

#endif
