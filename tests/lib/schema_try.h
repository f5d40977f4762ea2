/* Tries schemas: which documents their grammars take. In schemas and documents
 * ' stands for ". */
#ifndef TESTS_SCHEMA_TRY_H
#define TESTS_SCHEMA_TRY_H

#include "grammar/grammar.h"

/* Returns the text with ' for each quote replaced. The caller frees it. */
char *schema_quoted(const char *s);

struct schema_try {
    struct grammar *g;
    struct grammar_vocab *v; /* a token for each byte */
    struct grammar_masks *m;
};

void schema_try_start(struct schema_try *t, const char *schema);
void schema_try_stop(struct schema_try *t);
bool schema_try_takes(const struct schema_try *t, const char *document);

/* Fails unless the grammar takes all documents of `in` and none of `out`, which
 * end with NULL. Random texts of it must be JSON. `note` must be a part of the
 * grammar's notes; "" if it has none. */
void schema_try_expect(const char *schema, const char *const *in,
                       const char *const *out, const char *note);

#endif
