/* Implements pl_grammar and token masks. Samplers in several threads may share
 * a grammar; a lock protects the masks that it caches. */
#include "engine/token_grammar.h"

#include "base/err.h"
#include "engine/engine.h"
#include "engine/token_texts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pl_grammar {
    struct grammar *grammar; /* owned; the other pointers of this struct are
                                owned, too */
    struct grammar_vocab *vocab;
    /* Masks computed before, to be reused; `lock` protects the masks and the
     * states of all samplers. */
    struct grammar_masks *masks;
    /* [n_vocab / 32] one bit per token, set if the grammar never allows the
     * token; NULL if there is no such token. */
    uint32_t *never;
    int32_t n_vocab;
    pl_grammar_form form;
    char *text; /* [len] text from which pl_grammar_create made the grammar */
    size_t len;
    pthread_mutex_t lock;
};

struct token_mask {
    pl_grammar *g;               /* the grammar that decides which tokens are
                                    allowed; borrowed */
    struct grammar_state *state; /* owned: the sampler's position in the
                                    grammar; g->lock protects it */
    /* owned, [n_word]: one bit per token, set if the token may come next */
    uint32_t *bits;
    size_t n_word;
    bool ready; /* true if `bits` has been computed for the present state */
};

/* ---- control tokens that a grammar may use ------------------------------- */

/* Forbids all control tokens whose text does not occur in the text of the
 * grammar. Tokens that end the generation stay allowed. */
static pl_status forbid_others(pl_grammar *g, const struct tokenizer *t,
                               const char *text, size_t len, pl_err *err)
{
    const size_t n_word = ((size_t)g->n_vocab + 31) / 32;
    char mark[GRAMMAR_TOKEN_BYTES];

    g->never = calloc(n_word + 1, sizeof *g->never);
    if (!g->never)
        return err_no_memory(err, "a grammar");
    for (int32_t i = 0; i < g->n_vocab; i++) {
        size_t n;

        if (!tokenizer_is_control(t, i) || tokenizer_is_eog(t, i))
            continue;
        n = tokenizer_piece(t, i, TOKENIZER_SHOW_SPECIAL, mark, sizeof mark);
        if (n == 0 || n > sizeof mark || !memmem(text, len, mark, n))
            g->never[i / 32] |= 1u << i % 32;
    }
    return PL_OK;
}

/* ---- creating and freeing a grammar -------------------------------------- */

static int32_t find_token(void *user, const char *text, size_t len)
{
    return tokenizer_find(user, text, len);
}

static pl_status create_grammar(struct grammar **out, pl_grammar_form form,
                                const struct tokenizer *words, const char *text,
                                size_t len, const char *name, pl_err *err)
{
    const struct grammar_tokens tokens = {.n = tokenizer_n_vocab(words),
                                          .find = find_token,
                                          .user = (void *)words};

    switch (form) {
    case PL_GRAMMAR_GBNF:
        return grammar_from_gbnf(out, text, len, &tokens, name, err);
    case PL_GRAMMAR_JSON_SCHEMA:
        return grammar_from_schema(out, text, len, name, err);
    case PL_GRAMMAR_CALLS:
        return grammar_from_gbnf(out, text, len, NULL, name, err);
    case PL_GRAMMAR_REGEX:
        return grammar_from_regex(out, text, len, name, err);
    }
    return err_set(err, PL_BAD_ARGUMENT,
                   "%s: unknown grammar form %d; use PL_GRAMMAR_GBNF, "
                   "PL_GRAMMAR_JSON_SCHEMA, PL_GRAMMAR_REGEX or "
                   "PL_GRAMMAR_CALLS",
                   name, (int)form);
}

pl_status pl_grammar_create(pl_grammar **out, const pl_tokenizer *t,
                            pl_grammar_form form, const char *text, size_t len,
                            const char *name, pl_err *err)
{
    const struct tokenizer *words;
    bool marks = form == PL_GRAMMAR_CALLS;
    pl_grammar *g;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(t, err);
    PL_NEED_TEXT(text, len, err);
    words = engine_words(t);
    g = calloc(1, sizeof *g);
    if (!g || pthread_mutex_init(&g->lock, NULL) != 0) {
        free(g);
        return err_no_memory(err, "a grammar");
    }
    g->n_vocab = tokenizer_n_vocab(words);
    g->form = form;
    g->len = len;
    g->text = malloc(len + 1);
    if (!g->text) {
        pl_grammar_free(g);
        return err_no_memory(err, "a grammar");
    }
    memcpy(g->text, text, len);
    s = create_grammar(&g->grammar, form, words, text, len,
                       name ? name : "grammar", err);
    if (s == PL_OK)
        s = token_texts_take(engine_texts(t), marks, &g->vocab, err);
    if (s == PL_OK && marks)
        s = forbid_others(g, words, text, len, err);
    if (s == PL_OK)
        s = grammar_masks_create(&g->masks, g->grammar, g->vocab, 0, err);
    if (s == PL_OK)
        *out = g;
    else
        pl_grammar_free(g);
    return s;
}

const char *grammar_text(const pl_grammar *g, pl_grammar_form *form,
                         size_t *len)
{
    *form = g->form;
    *len = g->len;
    return g->text;
}

const char *pl_grammar_notes(const pl_grammar *g)
{
    return g ? grammar_notes(g->grammar) : "";
}

void pl_grammar_free(pl_grammar *g)
{
    if (!g)
        return;
    grammar_masks_free(g->masks);
    grammar_vocab_free(g->vocab);
    grammar_free(g->grammar);
    free(g->never);
    free(g->text);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- token masks of a sampler -------------------------------------------- */

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
        s = err_no_memory(err, "a token mask");
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

/* Computes m->bits, the mask of allowed tokens, for the present state. Returns
 * an error if no token is allowed. */
static pl_status fill(struct token_mask *m, pl_err *err)
{
    const uint32_t *never = m->g->never;
    uint32_t any = 0;
    pl_status s;
    bool whole;

    pthread_mutex_lock(&m->g->lock);
    s = grammar_mask(m->state, m->bits, err);
    whole = grammar_is_whole(m->state);
    pthread_mutex_unlock(&m->g->lock);
    if (s != PL_OK)
        return s;
    for (size_t i = 0; never && i < ((size_t)m->g->n_vocab + 31) / 32; i++)
        m->bits[i] &= ~never[i];
    for (size_t i = 0; i < m->n_word; i++)
        any |= m->bits[i];
    if (any)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   whole ? "the text is complete, but the vocabulary has no "
                           "end token; stop here"
                         : "no token of the vocabulary starts what the grammar "
                           "requires; change the grammar");
}

void token_mask_prepare(struct token_mask *m)
{
    m->ready = m->ready || fill(m, NULL) == PL_OK;
}

pl_status token_mask_now(struct token_mask *m, const uint32_t **bits,
                         pl_err *err)
{
    *bits = m->bits;
    if (!m->ready)
        PL_TRY(fill(m, err));
    m->ready = true;
    return PL_OK;
}

pl_status token_mask_accept(struct token_mask *m, int32_t id, pl_err *err)
{
    pl_status s;

    m->ready = false;
    pthread_mutex_lock(&m->g->lock);
    s = grammar_accept(m->state, id, err);
    pthread_mutex_unlock(&m->g->lock);
    return s;
}
