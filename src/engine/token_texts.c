/* Implements token_texts.h: the texts of a tokenizer's tokens, built on demand
 * and shared by grammars. */
#include "engine/token_texts.h"

#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>

struct token_texts {
    const struct tokenizer *t; /* the borrowed tokenizer */
    pthread_mutex_t lock;
    /* Owned: made[0] is the vocabulary in which control tokens have no text,
     * made[1] the one in which they have it. NULL if not built yet. */
    struct grammar_vocab *made[2];
};

static enum grammar_token_kind kind_of(const struct tokenizer *t, int32_t id,
                                       bool marks, size_t len)
{
    if (tokenizer_is_eog(t, id))
        return GRAMMAR_TOKEN_END;
    if (!tokenizer_is_control(t, id) || (marks && len > 0))
        return GRAMMAR_TOKEN_TEXT;
    return GRAMMAR_TOKEN_NEVER;
}

static pl_status create_vocab(struct grammar_vocab **out,
                              const struct tokenizer *t, bool marks,
                              pl_err *err)
{
    const unsigned flags = marks ? TOKENIZER_SHOW_SPECIAL : 0;
    int32_t n = tokenizer_n_vocab(t);
    struct grammar_token *token = calloc((size_t)n + 1, sizeof *token);
    char *bytes = NULL;
    size_t n_byte = 0, at = 0;
    pl_status s;

    for (int32_t i = 0; i < n; i++)
        n_byte += tokenizer_piece(t, i, flags, NULL, 0);
    bytes = malloc(n_byte + 1);
    s = token && bytes ? PL_OK : err_no_memory(err, "a vocabulary's texts");
    for (int32_t i = 0; i < n && s == PL_OK; i++) {
        char *to = bytes + at;
        size_t len = tokenizer_piece(t, i, flags, to, n_byte - at);

        token[i] = (struct grammar_token){to, (uint32_t)len,
                                          kind_of(t, i, marks, len)};
        at += len;
    }
    if (s == PL_OK)
        s = grammar_vocab_create(out, token, n, err);
    free(token);
    free(bytes);
    return s;
}

pl_status token_texts_create(struct token_texts **out,
                             const struct tokenizer *t, pl_err *err)
{
    struct token_texts *texts = calloc(1, sizeof *texts);

    *out = NULL;
    if (!texts || pthread_mutex_init(&texts->lock, NULL) != 0) {
        free(texts);
        return err_no_memory(err, "a vocabulary's texts");
    }
    texts->t = t;
    *out = texts;
    return PL_OK;
}

void token_texts_free(struct token_texts *texts)
{
    if (!texts)
        return;
    grammar_vocab_free(texts->made[false]);
    grammar_vocab_free(texts->made[true]);
    pthread_mutex_destroy(&texts->lock);
    free(texts);
}

/* The vocabulary is built while the lock is held, so that other threads that
 * want it wait instead of building it, too. */
pl_status token_texts_take(struct token_texts *texts, bool marks,
                           struct grammar_vocab **out, pl_err *err)
{
    pl_status s = PL_OK;

    *out = NULL;
    pthread_mutex_lock(&texts->lock);
    if (!texts->made[marks])
        s = create_vocab(&texts->made[marks], texts->t, marks, err);
    if (s == PL_OK)
        *out = grammar_vocab_share(texts->made[marks]);
    pthread_mutex_unlock(&texts->lock);
    return s;
}
