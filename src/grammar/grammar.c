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

static pl_status keep_symbols(struct grammar *g, const struct rules *rules,
                              pl_err *err)
{
    size_t size = rules->n_symbol * sizeof *g->symbol;

    g->n_symbol = rules->n_symbol;
    g->symbol = malloc(size + 1);
    if (!g->symbol)
        return err_no_memory(err, "a grammar");
    if (size)
        memcpy(g->symbol, rules->symbol, size);
    return PL_OK;
}

pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const struct grammar_tokens *tokens,
                            const char *name, pl_err *err)
{
    struct rules rules;
    struct grammar *g = NULL;
    pl_status s;

    *out = NULL;
    PL_TRY(gbnf_read(&rules, text, len, tokens, name, err));
    g = calloc(1, sizeof *g);
    s = g ? automaton_build(&g->automaton, &rules, name, err)
          : err_no_memory(err, "a grammar");
    if (s == PL_OK)
        s = keep_symbols(g, &rules, err);
    if (s == PL_OK)
        s = keep_notes(g, text, len, err);
    rules_fini(&rules);
    if (s != PL_OK) {
        grammar_free(g);
        return s;
    }
    *out = g;
    return PL_OK;
}

/* GBNF rules written so far for a regular expression. */
struct regex_rules {
    struct gbnf_text text; /* owned: text of the rules */
    uint32_t n;
};

static pl_status put_rule(void *user, uint32_t number,
                          const struct gbnf_text *body)
{
    struct regex_rules *r = user;

    gbnf_print(&r->text, "s%u ::= ", (unsigned)number);
    gbnf_put(&r->text, body->s ? body->s : "\"\"");
    gbnf_put(&r->text, "\n");
    return PL_OK;
}

static pl_status add_rules(void *user, const struct gbnf_text *body,
                           uint32_t count, uint32_t *number)
{
    struct regex_rules *r = user;

    *number = r->n;
    r->n += count ? count : 1;
    return count ? PL_OK : put_rule(user, *number, body);
}

pl_status grammar_from_regex(struct grammar **out, const char *text, size_t len,
                             const char *name, pl_err *err)
{
    enum { MOST_STATES = 1000 };
    struct regex_rules rules = {.n = 0};
    const struct regex_out to = {.rule = add_rules,
                                 .body = put_rule,
                                 .user = &rules,
                                 .most_states = MOST_STATES};
    struct gbnf_text root = {0};
    struct regex r = {0};
    uint32_t node = regex_init(&r) ? regex_read(&r, text, len, true) : 0;
    pl_status s;

    *out = NULL;
    s = regex_put(&r, node, &to, &root);
    if (s == PL_UNSUPPORTED)
        s = err_set(err, r.failure == REGEX_WRONG ? PL_BAD_ARGUMENT : s,
                    "%s: at byte %zu: %s; change the expression", name, r.at,
                    r.why);
    regex_fini(&r);
    gbnf_put(&rules.text, "root ::= ");
    gbnf_put_bytes(&rules.text, root.s ? root.s : "", root.n);
    if (s == PL_NO_MEMORY || root.failed || rules.text.failed)
        s = err_no_memory(err, "a grammar");
    else if (s == PL_OK && (root.too_large || rules.text.too_large))
        s = err_set(err, PL_UNSUPPORTED,
                    "%s: its grammar has more than 1 MiB; change the "
                    "expression",
                    name);
    if (s == PL_OK)
        s = grammar_from_gbnf(out, rules.text.s, rules.text.n, NULL, name, err);
    gbnf_text_fini(&rules.text);
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
    automaton_fini(&g->automaton);
    free(g->symbol);
    free(g->notes);
    free(g);
}
