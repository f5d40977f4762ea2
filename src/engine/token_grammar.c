/* Grammars of pl.h over their layer: the tokens of a tokenizer as the texts of
 * a vocabulary, and masks that samplers of all threads share. */
#include "engine/token_grammar.h"

#include "base/err.h"
#include "engine/engine.h"
#include "grammar/grammar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pl_grammar {
    struct grammar *grammar; /* owned, as all here */
    struct grammar_vocab *vocab;
    struct grammar_masks *masks; /* under the lock, with all their states */
    int32_t n_vocab;
    pthread_mutex_t lock;
};

struct token_mask {
    pl_grammar *g;               /* borrowed */
    struct grammar_state *state; /* owned, under g's lock */
    uint32_t *bits;              /* owned, [n_word] */
    size_t n_word;
};

/* ---- vocabularies -------------------------------------------------------- */

/* The texts of a vocabulary's tokens. */
struct spelling {
    const struct tokenizer *t;
    const char *marks; /* [n_mark] a grammar whose marks control tokens may
                          spell; NULL: none may */
    size_t n_mark;
};

/* What is no text of its own never matches: control tokens, and those that
 * have no bytes. */
static enum grammar_token_kind kind_of(const struct spelling *p, int32_t id,
                                       const char *s, size_t len)
{
    if (tokenizer_is_eog(p->t, id))
        return GRAMMAR_TOKEN_END;
    if (!tokenizer_is_control(p->t, id))
        return GRAMMAR_TOKEN_TEXT;
    return p->marks && len > 0 && memmem(p->marks, p->n_mark, s, len)
               ? GRAMMAR_TOKEN_TEXT
               : GRAMMAR_TOKEN_NEVER;
}

static pl_status create_vocab(struct grammar_vocab **out,
                              const struct spelling *p, pl_err *err)
{
    const unsigned flags = p->marks ? TOKENIZER_SHOW_SPECIAL : 0;
    int32_t n = tokenizer_n_vocab(p->t);
    struct grammar_token *token = calloc((size_t)n + 1, sizeof *token);
    char *bytes = NULL;
    size_t n_byte = 0, at = 0;
    pl_status s;

    for (int32_t i = 0; i < n; i++)
        n_byte += tokenizer_piece(p->t, i, flags, NULL, 0);
    bytes = malloc(n_byte + 1);
    s = token && bytes ? PL_OK : err_no_memory(err, "a vocabulary's texts");
    for (int32_t i = 0; i < n && s == PL_OK; i++) {
        char *to = bytes + at;
        size_t len = tokenizer_piece(p->t, i, flags, to, n_byte - at);

        token[i] =
            (struct grammar_token){to, (uint32_t)len, kind_of(p, i, to, len)};
        at += len;
    }
    if (s == PL_OK)
        s = grammar_vocab_create(out, token, n, err);
    free(token);
    free(bytes);
    return s;
}

/* ---- grammars ------------------------------------------------------------ */

static pl_status create_grammar(struct grammar **out, pl_grammar_form form,
                                const char *text, size_t len, const char *name,
                                pl_err *err)
{
    if (form != PL_GRAMMAR_GBNF && form != PL_GRAMMAR_JSON_SCHEMA &&
        form != PL_GRAMMAR_CALLS)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: %d is no form of a grammar; give PL_GRAMMAR_GBNF or "
            "PL_GRAMMAR_JSON_SCHEMA",
            name, (int)form);
    return form == PL_GRAMMAR_JSON_SCHEMA
               ? grammar_from_schema(out, text, len, name, err)
               : grammar_from_gbnf(out, text, len, name, err);
}

pl_status pl_grammar_create(pl_grammar **out, const pl_tokenizer *t,
                            pl_grammar_form form, const char *text, size_t len,
                            const char *name, pl_err *err)
{
    struct spelling p = {.t = engine_words(t), .n_mark = len};
    pl_grammar *g = calloc(1, sizeof *g);
    pl_status s;

    *out = NULL;
    if (!g || pthread_mutex_init(&g->lock, NULL) != 0) {
        free(g);
        return err_no_memory(err, "a grammar");
    }
    p.marks = form == PL_GRAMMAR_CALLS ? text : NULL;
    g->n_vocab = tokenizer_n_vocab(p.t);
    s = create_grammar(&g->grammar, form, text, len, name ? name : "grammar",
                       err);
    if (s == PL_OK)
        s = create_vocab(&g->vocab, &p, err);
    if (s == PL_OK)
        s = grammar_masks_create(&g->masks, g->grammar, g->vocab, 0, err);
    if (s == PL_OK)
        *out = g;
    else
        pl_grammar_free(g);
    return s;
}

void pl_grammar_free(pl_grammar *g)
{
    if (!g)
        return;
    grammar_masks_free(g->masks);
    grammar_vocab_free(g->vocab);
    grammar_free(g->grammar);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- masks --------------------------------------------------------------- */

pl_status token_mask_create(struct token_mask **out, pl_grammar *g,
                            int32_t n_vocab, pl_err *err)
{
    int32_t n = n_vocab > g->n_vocab ? n_vocab : g->n_vocab;
    struct token_mask *m = calloc(1, sizeof *m);
    pl_status s = PL_OK;

    *out = NULL;
    if (m) {
        m->g = g;
        m->n_word = ((size_t)n + 31) / 32;
        m->bits = calloc(m->n_word, sizeof *m->bits);
    }
    if (!m || !m->bits)
        s = err_no_memory(err, "a mask of tokens");
    if (s == PL_OK) {
        pthread_mutex_lock(&g->lock);
        s = grammar_state_create(&m->state, g->masks, err);
        pthread_mutex_unlock(&g->lock);
    }
    if (s == PL_OK)
        *out = m;
    else
        token_mask_free(m);
    return s;
}

void token_mask_free(struct token_mask *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->g->lock);
    grammar_state_free(m->state);
    pthread_mutex_unlock(&m->g->lock);
    free(m->bits);
    free(m);
}

pl_status token_mask_now(struct token_mask *m, const uint32_t **bits,
                         pl_err *err)
{
    uint32_t any = 0;
    pl_status s;
    bool whole;

    pthread_mutex_lock(&m->g->lock);
    s = grammar_mask(m->state, m->bits, err);
    whole = grammar_is_whole(m->state);
    pthread_mutex_unlock(&m->g->lock);
    if (s != PL_OK)
        return s;
    for (size_t i = 0; i < m->n_word; i++)
        any |= m->bits[i];
    *bits = m->bits;
    if (any)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   whole ? "the text is whole by the grammar, and the "
                           "vocabulary has no token that ends it: stop here"
                         : "the grammar wants what no token of the vocabulary "
                           "begins: change the grammar");
}

pl_status token_mask_accept(struct token_mask *m, int32_t id, pl_err *err)
{
    pl_status s;

    pthread_mutex_lock(&m->g->lock);
    s = grammar_accept(m->state, id, err);
    pthread_mutex_unlock(&m->g->lock);
    return s;
}
