/* Converts JSON Schemas (drafts 4 to 2020-12, with the keywords that OpenAPI
 * adds) to GBNF.
 *
 * Every text of the grammar is a document that the schema accepts, but not the
 * other way round. Members come in the order of `properties`. Members with
 * other names are possible only if additionalProperties allows them, or if the
 * schema names no property. White space is limited, and numbers have up to 18
 * digits before and after the point. Strings described by a pattern contain
 * only the escapes that JSON requires.
 *
 * A requirement that a grammar cannot express is not enforced. A comment of the
 * grammar that begins with GBNF_NOTE then gives its path, its keyword and the
 * reason. So a schema is rejected only if it is invalid, if a reference in it
 * leads to nothing, or if it is too large. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "grammar/schema_text.h"

#include <jansson.h>

/* Converts the JSON text of a schema to GBNF in *out. `name` stands for the
 * schema in messages. On failure *out holds no memory. */
pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err);

/* ---- schemas within a larger grammar ------------------------------------- */

/* The notation of strings in documents, as bodies of GBNF rules: `string` is a
 * quoted string, `plain` a character that is written as itself, `escape` a
 * character that is written as an escape. */
struct schema_strings {
    const char *string, *plain, *escape;
};
/* The notation of JSON documents. */
extern const struct schema_strings schema_strings;

/* Writes the rules that the rules of all schemas use: ws, string, value and
 * others. Must be called once per grammar. */
void schema_put_common(struct gbnf_text *out, const struct schema_strings *how);
/* Returns true if `key` is a keyword that does not constrain values, such as
 * "title". */
bool schema_is_note(const char *key);
/* Totals over all schemas that were added to one grammar so far. The limits of
 * conversion apply to these. */
struct schema_sums {
    uint32_t n_rule;
    int n_note;
    /* Steps of searches and comparisons; their number is limited. */
    int64_t n_step;
    /* Characters of strings whose length is limited. A grammar has a copy of a
     * rule for each, so their number is limited, too. */
    int64_t n_copy;
};
/* Adds rules for `schema` to the grammar `out`. Rules are named s0, s1 and so
 * on; sums->n_rule of them exist already. Sets *rule to the number of the rule
 * of `schema` itself. `root` is the document in which references ($ref) are
 * looked up. */
pl_status schema_put_rule(struct gbnf_text *out, struct schema_sums *sums,
                          json_t *root, json_t *schema, const char *name,
                          uint32_t *rule, pl_err *err);

#endif
