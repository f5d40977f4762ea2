/* The vocabulary: tokens by id and by text, and the table of merges.
 *
 * Ids 0 .. n_token-1 are the file's tokens. Byte-pair encoding needs a few
 * more strings where a merge mentions something that is no token; they get
 * ids from n_token up and are called symbols. Everything is copied, so the
 * file may be closed afterwards. Knows nothing of text splitting. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "gguf/gguf.h"

#include <string.h>

/* Numbers as in tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER, /* user-defined */
    TOKEN_UNUSED,
    TOKEN_BYTE
};

struct token {
    const char *s; /* the text in the file, not terminated; owned by `memory` */
    uint32_t len;
    float score;  /* 0 if the file has none */
    uint8_t type; /* enum token_type */
    bool eog;     /* generation stops here */
};

struct vocab_slot { /* an entry of the table of texts */
    uint32_t id1;   /* id + 1, or 0 for empty */
    uint32_t hash;
};

struct vocab_merge { /* an entry of the table of merges */
    uint64_t pair;   /* (left << 32 | right) + 1; 0 if unused */
    int32_t rank;
    int32_t joined;
};

struct vocab {
    struct arena memory; /* owns all that is here */
    struct token *token; /* [n_symbol]; the first n_token are real */
    int32_t n_token, n_symbol, cap;
    bool has_same;             /* tokens with the same text */
    struct vocab_slot *slot;   /* hash table */
    uint32_t n_slot;           /* a power of two */
    struct vocab_merge *merge; /* hash table */
    uint32_t n_merge_slot;     /* a power of two, or 0 */
    uint32_t max_len;          /* of the longest text */
};

/* Reads tokens, scores and types. On failure the vocabulary is still fit for
 * vocab_fini. A zeroed struct vocab is an empty one. */
pl_status vocab_init(struct vocab *v, const struct gguf *g, pl_err *err);
void vocab_fini(struct vocab *v);

/* Reads tokenizer.ggml.merges, which must exist. */
pl_status vocab_read_merges(struct vocab *v, const struct gguf *g, pl_err *err);

/* The token with this text, or -1. Of tokens with the same text the last one
 * counts; the empty text is never found. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t len);

/* The same over tokens and symbols. */
int32_t vocab_find_symbol(const struct vocab *v, const char *s, size_t len);

/* Whether U+2581, a blank, stands at s + at and something else before it. */
static inline bool vocab_blank_after_word(const char *s, size_t len, size_t at)
{
    return s[at] == '\xe2' && len - at >= 3 &&
           memcmp(s + at, "\xe2\x96\x81", 3) == 0 && at > 0 &&
           (at < 3 || memcmp(s + at - 3, "\xe2\x96\x81", 3) != 0);
}

/* The tokens that a text begins with, from the shortest to the longest. */
struct vocab_walk {
    const char *s;
    size_t n;   /* how far a token can reach */
    size_t len; /* of the token that was found last */
    uint64_t hash;
};

void vocab_walk_init(const struct vocab *v, struct vocab_walk *w, const char *s,
                     size_t n);
/* The next token, whose length is w->len then; -1 if there is no other. */
int32_t vocab_walk_next(const struct vocab *v, struct vocab_walk *w);

/* The merge of two adjacent symbols, or NULL. */
const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left,
                                           int32_t right);

#endif
