/* The vocabulary: tokens by id and by text, and the table of merges.
 *
 * The tokens of the file have ids 0 .. n_token - 1. Merges may mention strings
 * that are not tokens; these get ids from n_token on. Tokens and these strings
 * together are called symbols. All data is copied, so the file may be closed
 * afterwards. Splitting of texts is in pretok.c and merge.c. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "gguf/gguf.h"

#include <string.h>

/* Types of tokens, with the numbers of tokenizer.ggml.token_type in files. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER, /* defined by the model's author, found in any text */
    TOKEN_UNUSED,
    TOKEN_BYTE
};

struct token {
    /* Text of the token as the file has it, not NUL-terminated, in
     * vocab.memory. */
    const char *s;
    uint32_t len;
    float score;  /* score of the token, 0 if the file has none */
    uint8_t type; /* type of the token: enum token_type */
    bool eog;     /* generation ends after this token */
};

struct vocab_slot { /* an entry of the hash table of texts */
    uint32_t id1;   /* 1 + id of the symbol, 0 in a free entry */
    uint32_t hash;
};

struct vocab_merge { /* an entry of the hash table of merges */
    uint64_t pair;   /* (left << 32 | right) + 1, where left and right are the
                        ids of the joined symbols; 0 in a free entry */
    int32_t rank;
    int32_t joined;
};

struct vocab {
    struct arena memory; /* owns all memory of the vocabulary */
    /* [n_symbol] in the arena. The first n_token are the file's tokens, the
     * others are strings that only merges mention. */
    struct token *token;
    int32_t n_token, n_symbol, cap;
    bool has_same;             /* at least two tokens have the same text */
    struct vocab_slot *slot;   /* hash table of symbols by text */
    uint32_t n_slot;           /* number of entries of `slot`, a power of two */
    struct vocab_merge *merge; /* hash table of merges by pair */
    /* Number of entries of the table of merges, a power of two, or 0 without
     * merges. */
    uint32_t n_merge_slot;
    uint32_t max_len; /* length of the longest symbol in bytes */
};

/* Reads the tokens of the file with their scores and types. The caller must
 * call vocab_fini in any case. */
pl_status vocab_init(struct vocab *v, const struct gguf *g, pl_err *err);
void vocab_fini(struct vocab *v);

/* Reads the merges from tokenizer.ggml.merges, which must exist in the file. */
pl_status vocab_read_merges(struct vocab *v, const struct gguf *g, pl_err *err);

/* Returns the id of the token with the text s[0 .. len), or -1. If several
 * tokens have this text, returns the last one. The empty text is never
 * found. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t len);

/* Like vocab_find, but also finds symbols that are not tokens. */
int32_t vocab_find_symbol(const struct vocab *v, const char *s, size_t len);

/* Returns true if the character at s + at is U+2581, which stands for a blank,
 * and the character before it is not U+2581. */
static inline bool vocab_blank_after_word(const char *s, size_t len, size_t at)
{
    return s[at] == '\xe2' && len - at >= 3 &&
           memcmp(s + at, "\xe2\x96\x81", 3) == 0 && at > 0 &&
           (at < 3 || memcmp(s + at - 3, "\xe2\x96\x81", 3) != 0);
}

/* State of a search for all tokens with which the text s[0 .. n) begins,
 * shortest first. */
struct vocab_walk {
    const char *s;
    size_t n;   /* length of the longest token to try, in bytes */
    size_t len; /* length of the token found last, in bytes */
    uint64_t hash;
};

void vocab_walk_init(const struct vocab *v, struct vocab_walk *w, const char *s,
                     size_t n);
/* Returns the id of the next longer token and sets w->len to its length.
 * Returns -1 if there is none. */
int32_t vocab_walk_next(const struct vocab *v, struct vocab_walk *w);

/* Returns the merge that joins the symbols with ids `left` and `right`, in this
 * order, or NULL if there is none. */
const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left,
                                           int32_t right);

#endif
