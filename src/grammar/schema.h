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

/* `name` is what messages call the schema. On failure nothing is held. */
pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err);

#endif
