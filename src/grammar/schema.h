/* JSON Schema (drafts 4 to 2020-12, and what OpenAPI adds) to GBNF.
 *
 * Every text of the grammar is a document that the schema accepts, but not the
 * other way round. Members come in the order of `properties`. Other members are
 * possible only if additionalProperties allows them, or if no property is
 * named. There are few blanks, and numbers have up to 18 digits. Strings that a
 * pattern describes contain only the escapes that JSON requires.
 *
 * What a grammar cannot hold is not enforced, and named in a comment of the
 * grammar that begins with GBNF_NOTE: the path, the keyword and the reason. So
 * no schema is rejected for what it asks, but for errors, for references to
 * nothing, and for its size. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "grammar/schema_text.h"

#include <jansson.h>

/* Converts a schema to GBNF. `name` is the schema's name in messages. On
 * failure *out holds no memory. */
pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err);

/* ---- schemas within a grammar -------------------------------------------- */

/* The notation of strings, as bodies of GBNF rules: a quoted string; a
 * character that represents itself in a string; any other character in a
 * string. */
struct schema_strings {
    const char *string, *plain, *escape;
};
extern const struct schema_strings schema_strings; /* the notation of JSON */

/* Writes the rules to which those of schemas refer: ws, string, value and
 * others. Must be called once per grammar. */
void schema_put_common(struct gbnf_text *out, const struct schema_strings *how);
/* Returns true if a keyword constrains nothing. */
bool schema_is_note(const char *key);
/* Totals over all schemas added to a grammar so far. */
struct schema_sums {
    uint32_t n_rule;
    int n_note;
    int64_t n_step; /* steps of searches and comparisons, which are limited */
    /* copies of characters by repetitions, which are limited, too */
    int64_t n_copy;
};
/* Adds the rules of `schema`. Rules are named s0, s1 and so on; sums->n_rule of
 * them exist already. The rule of the schema itself gets number *rule. `root`
 * is the schema in which references ($ref) are looked up. */
pl_status schema_put_rule(struct gbnf_text *out, struct schema_sums *sums,
                          json_t *root, json_t *schema, const char *name,
                          uint32_t *rule, pl_err *err);

#endif
