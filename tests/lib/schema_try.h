/* Tests which documents the grammars of JSON Schemas allow. In the texts of
 * schemas and documents ' stands for ". */
#ifndef TESTS_SCHEMA_TRY_H
#define TESTS_SCHEMA_TRY_H

#include "grammar/grammar.h"

/* Returns a copy of the text with each ' replaced by a double quote. The caller
 * frees it. */
char *schema_quoted(const char *s);

struct schema_try {
    struct grammar *g;
    struct grammar_vocab *v; /* a vocabulary with a token for each byte */
    struct grammar_masks *m;
};

void schema_try_start(struct schema_try *t, const char *schema);
void schema_try_stop(struct schema_try *t);
bool schema_try_takes(const struct schema_try *t, const char *document);

/* Fails the case unless the schema's grammar allows all documents of `in` and
 * none of `out`; both lists end with NULL. Random documents of the grammar must
 * be JSON. `note` must be a part of the grammar's notes; "" if there must be
 * none. */
void schema_try_expect(const char *schema, const char *const *in,
                       const char *const *out, const char *note);

#endif
