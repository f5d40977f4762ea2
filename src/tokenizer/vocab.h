/* The vocabulary: tokens by id and by text, and the table of merges.
 *
 * Ids 0 .. n_token-1 are the file's tokens. Merges may mention strings that are
 * not tokens. They get ids from n_token on; tokens and these strings together
 * are called symbols. All data is copied, so the file may be closed afterwards.
 * Other files split texts. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "gguf/gguf.h"

#include <string.h>

/* The numbers are those of tokenizer.ggml.token_type. */
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
    bool eog;     /* generation ends at this token */
};

struct vocab_slot { /* an entry of the hash table of texts */
    uint32_t id1;   /* id + 1; 0 if the entry is free */
    uint32_t hash;
};

struct vocab_merge { /* an entry of the hash table of merges */
    uint64_t pair;   /* (left << 32 | right) + 1; 0 if unused */
    int32_t rank;
    int32_t joined;
};

struct vocab {
    struct arena memory; /* owns all memory of the vocabulary */
    struct token *token; /* [n_symbol]; the first n_token are the file's */
    int32_t n_token, n_symbol, cap;
    bool has_same;             /* some tokens have the same text */
    struct vocab_slot *slot;   /* hash table of texts */
    uint32_t n_slot;           /* number of entries, a power of two */
    struct vocab_merge *merge; /* hash table of merges */
    uint32_t n_merge_slot;     /* number of entries, a power of two, or 0 */
    uint32_t max_len;          /* bytes of the longest symbol's text */
};

/* Reads the file's tokens, scores and types. Whether it succeeds or fails, the
 * caller calls vocab_fini. */
pl_status vocab_init(struct vocab *v, const struct gguf *g, pl_err *err);
void vocab_fini(struct vocab *v);

/* Reads tokenizer.ggml.merges, which must exist, into the table of merges. */
pl_status vocab_read_merges(struct vocab *v, const struct gguf *g, pl_err *err);

/* Returns the token with this text, or -1. If several tokens have it, returns
 * the last one. The empty text is never found. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t len);

/* Like vocab_find, for all symbols, not only for tokens. */
int32_t vocab_find_symbol(const struct vocab *v, const char *s, size_t len);

/* Returns true if U+2581, which represents a blank, is at s + at, and something
 * other than U+2581 is before it. */
static inline bool vocab_blank_after_word(const char *s, size_t len, size_t at)
{
    return s[at] == '\xe2' && len - at >= 3 &&
           memcmp(s + at, "\xe2\x96\x81", 3) == 0 && at > 0 &&
           (at < 3 || memcmp(s + at - 3, "\xe2\x96\x81", 3) != 0);
}

/* Iterates over the tokens with which a text begins, shortest first. */
struct vocab_walk {
    const char *s;
    size_t n;   /* length of the longest token to try */
    size_t len; /* length of the token found last */
    uint64_t hash;
};

void vocab_walk_init(const struct vocab *v, struct vocab_walk *w, const char *s,
                     size_t n);
/* Returns the next token and sets w->len to its length. Returns -1 after the
 * last one. */
int32_t vocab_walk_next(const struct vocab *v, struct vocab_walk *w);

/* Returns the merge of two adjacent symbols, or NULL if they do not join. */
const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left,
                                           int32_t right);

#endif
