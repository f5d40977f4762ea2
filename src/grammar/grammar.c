/* Creates grammars: converts a notation to an automaton. */
#include "grammar/grammar.h"

#include "base/err.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_inner.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const char *name, pl_err *err)
{
    struct rules rules;
    struct grammar *g = NULL;
    pl_status s;

    *out = NULL;
    PL_TRY(gbnf_read(&rules, text, len, name, err));
    g = calloc(1, sizeof *g);
    s = g ? automaton_build(&g->automaton, &rules, name, err)
          : err_no_memory(err, "a grammar");
    rules_fini(&rules);
    if (s != PL_OK) {
        grammar_free(g);
        return s;
    }
    *out = g;
    return PL_OK;
}

pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err)
{
    struct gbnf_text text;
    char shown[ERR_SHOWN], as[2 * ERR_SHOWN];
    pl_status s;

    *out = NULL;
    PL_TRY(schema_to_gbnf(&text, json, len, name, err));
    /* Later errors refer to rules, which are not in the schema. */
    snprintf(as, sizeof as, "%s, written as a grammar",
             err_shown(shown, name, strlen(name)));
    s = grammar_from_gbnf(out, text.s, text.n, as, err);
    gbnf_text_fini(&text);
    return s;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    automaton_fini(&g->automaton);
    free(g);
}
