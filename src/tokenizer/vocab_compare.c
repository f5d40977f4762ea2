/* Compares the vocabularies of a model and of a draft model. The rules are
 * those of llama.cpp (common/speculative.cpp), except that control and unused
 * tokens may differ wherever they are: they do not stand for text, so a wrong
 * one is only a draft that is rejected. */
#include "base/err.h"
#include "tokenizer/kinds.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    /* The first tokens, which are special in most vocabularies, may differ. */
    N_FIRST = 5,
    /* Number of tokens that only one of both may have. */
    MOST_MORE = 128
};

static const char remedy[] = "use a draft model with the model's vocabulary";

static bool is_text(const struct token *t)
{
    return t->type != TOKEN_CONTROL && t->type != TOKEN_UNUSED;
}

static bool is_same(const struct token *a, const struct token *b)
{
    return a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
}

pl_status tokenizer_compare(const struct tokenizer *t,
                            const struct tokenizer *draft, pl_err *err)
{
    static const char *const kinds[] = {[KIND_SPM] = "llama",
                                        [KIND_BPE] = "gpt2",
                                        [KIND_GEMMA] = "gemma4",
                                        [KIND_WORDPIECE] = "bert",
                                        [KIND_UNIGRAM] = "t5"};
    const struct vocab *v = &t->vocab, *w = &draft->vocab;
    char one[ERR_SHOWN], other[ERR_SHOWN];

    if (t->kind != draft->kind)
        return err_set(err, PL_UNSUPPORTED,
                       "the draft model's vocabulary is of kind %s, the "
                       "model's of kind %s; %s",
                       kinds[draft->kind], kinds[t->kind], remedy);
    if (abs(v->n_token - w->n_token) > MOST_MORE)
        return err_set(err, PL_UNSUPPORTED,
                       "the draft model's vocabulary has %" PRId32
                       " tokens, the model's %" PRId32 "; %s",
                       w->n_token, v->n_token, remedy);
    for (int32_t i = N_FIRST; i < v->n_token && i < w->n_token; i++) {
        const struct token *a = &v->token[i], *b = &w->token[i];

        if (is_same(a, b) || (!is_text(a) && !is_text(b)))
            continue;
        return err_set(err, PL_UNSUPPORTED,
                       "the draft model's token %" PRId32
                       " is \"%s\", the model's is \"%s\"; %s",
                       i, err_shown(one, b->s, b->len),
                       err_shown(other, a->s, a->len), remedy);
    }
    return PL_OK;
}
