/* Creates grammars from GBNF, from JSON Schemas and from regular expressions.
 * Schemas and expressions are converted to GBNF first. */
#include "grammar/grammar.h"

#include "base/err.h"
#include "grammar/gbnf.h"
#include "grammar/grammar_inner.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets g->notes to the comments of the grammar that begin with GBNF_NOTE, one a
 * line, without that beginning. */
static pl_status keep_notes(struct grammar *g, const char *text, size_t len,
                            pl_err *err)
{
    const char *at = text, *end = text + len;
    const size_t mark = strlen(GBNF_NOTE);
    struct gbnf_text notes = {0};

    gbnf_put(&notes, "");
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));

        line = line ? line : end;
        if ((size_t)(line - at) > mark && memcmp(at, GBNF_NOTE, mark) == 0) {
            gbnf_put(&notes, notes.n ? "\n" : "");
            gbnf_put_bytes(&notes, at + mark, (size_t)(line - at) - mark);
        }
        at = line + (line < end);
    }
    g->notes = notes.s;
    return notes.failed ? err_no_memory(err, "a grammar") : PL_OK;
}

pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const struct grammar_tokens *tokens,
                            const char *name, pl_err *err)
{
    struct rules rules;
    struct grammar *g = calloc(1, sizeof *g);
    pl_status s;

    *out = NULL;
    if (!g)
        return err_no_memory(err, "a grammar");
    s = gbnf_read(&rules, text, len, tokens, name, err);
    if (s == PL_OK)
        s = automaton_build(&g->automaton, &g->memory, &rules, name, err);
    if (s == PL_OK) {
        g->n_symbol = rules.n_symbol;
        g->symbol = arena_memdup(&g->memory, rules.symbol, g->n_symbol,
                                 sizeof *g->symbol);
        s = arena_check(&g->memory, "a grammar", err);
    }
    if (s == PL_OK)
        s = keep_notes(g, text, len, err);
    arena_fini(&rules.memory);
    if (s == PL_OK)
        *out = g;
    else
        grammar_free(g);
    return s;
}

pl_status grammar_from_regex(struct grammar **out, const char *text, size_t len,
                             const char *name, pl_err *err)
{
    enum { MOST_STATES = 1000 };
    struct gbnf_text rules = {0}, root = {0};
    uint32_t n_rule = 0;
    const struct regex_out to = {
        .rules = &rules, .n_rule = &n_rule, .most_states = MOST_STATES};
    struct regex r = {0};
    uint32_t node = regex_init(&r) ? regex_read(&r, text, len, true) : 0;
    bool ok = regex_put(&r, node, &to, &root);
    pl_status s;

    *out = NULL;
    gbnf_put(&rules, "root ::= ");
    gbnf_put(&rules, root.n ? root.s : "");
    if (r.failure == REGEX_NO_MEMORY || root.failed || rules.failed)
        s = err_no_memory(err, "a grammar");
    else if (!ok)
        s = err_set(
            err, r.failure == REGEX_WRONG ? PL_BAD_ARGUMENT : PL_UNSUPPORTED,
            "%s: at byte %zu: %s; change the expression", name, r.at, r.why);
    else if (root.too_large || rules.too_large)
        s = err_set(err, PL_UNSUPPORTED,
                    "%s: its grammar has more than 1 MiB; change the "
                    "expression",
                    name);
    else
        s = grammar_from_gbnf(out, rules.s, rules.n, NULL, name, err);
    arena_fini(&r.memory);
    gbnf_text_fini(&rules);
    gbnf_text_fini(&root);
    return s;
}

const char *grammar_notes(const struct grammar *g)
{
    return g->notes;
}

pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err)
{
    struct gbnf_text text;
    char shown[ERR_SHOWN], as[2 * ERR_SHOWN];
    pl_status s;

    *out = NULL;
    PL_TRY(schema_to_gbnf(&text, json, len, name, err));
    /* Later errors name lines of the GBNF text, which the author of the schema
     * has never seen, so messages say that it was generated. */
    snprintf(as, sizeof as, "%s, written as a grammar",
             err_shown(shown, name, strlen(name)));
    s = grammar_from_gbnf(out, text.s, text.n, NULL, as, err);
    gbnf_text_fini(&text);
    return s;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    arena_fini(&g->memory);
    free(g->notes);
    free(g);
}
