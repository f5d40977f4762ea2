/* JSON Schema (draft 2020-12) to GBNF.
 *
 * Every text of the grammar is a document that the schema takes. Not every
 * document that it takes is one: members come in the order of `properties`;
 * members that are not named there come only where additionalProperties says
 * so, or where no property is named; blanks are few; numbers have up to 18
 * digits; characters that JSON need not escape are not escaped in strings that
 * a pattern describes. Keywords that say something of other types than `type`
 * names, and keywords that are not supported, are refused by name and path. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "grammar/schema_text.h"

#include <jansson.h>

/* `name` is what messages call the schema. On failure nothing is held. */
pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err);

/* ---- schemas within a grammar -------------------------------------------- */

/* How strings are written, as bodies of rules: one in its quotes; a character
 * that stands for itself in one; another one. */
struct schema_strings {
    const char *string, *plain, *escape;
};
extern const struct schema_strings schema_strings; /* as JSON has them */

/* The rules that those of schemas name: ws, string, value and others; once a
 * grammar. */
void schema_put_common(struct gbnf_text *out, const struct schema_strings *how);
/* What all schemas of a grammar have so far. */
struct schema_sums {
    uint32_t n_rule;
    int64_t n_step; /* of searching and comparing, which is bounded */
};
/* Adds the rules of `schema`, the first of which is s*rule: those are s0, s1
 * and so on, of which sums->n_rule are there. root: where its references
 * begin. */
pl_status schema_put_rule(struct gbnf_text *out, struct schema_sums *sums,
                          json_t *root, json_t *schema, const char *name,
                          uint32_t *rule, pl_err *err);

#endif
