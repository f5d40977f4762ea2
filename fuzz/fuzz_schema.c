/* Fuzzes the compiler of JSON Schemas: parsing gives a grammar or a message.
 * The GBNF text that is made from a schema is well formed. It may only be
 * rejected because it exceeds a limit of grammars or because the schema refers
 * to itself at its beginning. */
#include "grammar/grammar.h"

#include <string.h>

int fuzz_schema(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

int fuzz_schema(const uint8_t *data, size_t n)
{
    static const char made[] = "fuzz, written as a grammar: ";
    struct grammar *g = NULL;
    pl_err err = {0};
    pl_status s = grammar_from_schema(&g, (const char *)data, n, "fuzz", &err);

    require((s == PL_OK) == (g != NULL));
    require(s == PL_OK || strlen(err.message) > 0);
    /* An error in the GBNF text that was made from the schema may only be one
     * of these limits. */
    require(s == PL_OK || strncmp(err.message, made, strlen(made)) != 0 ||
            strstr(err.message, "too large") != NULL ||
            strstr(err.message, "too many") != NULL ||
            strstr(err.message, "too many states") != NULL ||
            strstr(err.message, "can never end") != NULL ||
            strstr(err.message, "left recursion") != NULL ||
            strstr(err.message, "has at most") != NULL ||
            strstr(err.message, "nest deeper") != NULL);
    grammar_free(g);
    return 0;
}
