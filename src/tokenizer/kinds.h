/* The contents of a tokenizer. Private to this layer. */
#ifndef TOKENIZER_KINDS_H
#define TOKENIZER_KINDS_H

#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

enum tokenizer_kind {
    KIND_SPM,
    KIND_BPE,
    KIND_GEMMA,
    KIND_WORDPIECE,
    KIND_UNIGRAM
};

/* Special tokens, which are searched for before the text is split. Has their
 * lengths, longest first, and the bytes that they begin and end with. */
struct special_set {
    uint32_t *len; /* owned, [n_len] lengths that occur, longest first */
    uint32_t n_len;
    bool first[256], last[256];
};

/* The map of characters of KIND_UNIGRAM: replaces byte sequences of a text when
 * it is normalised; see unigram.c. */
struct char_map {
    /* [n_unit] the trie of unigram.c, in units of 4 bytes, in the vocabulary's
     * arena. */
    const unsigned char *unit;
    /* [n_text] replacement texts, NUL-terminated, in the same arena */
    const char *text;
    size_t n_unit, n_text;
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab vocab;
    struct pretok *pretok; /* owned; KIND_BPE and KIND_WORDPIECE */
    struct pretok *clean;  /* owned; KIND_WORDPIECE: used before `pretok` */
    /* KIND_SPM and KIND_GEMMA: no symbol contains a blank after a word, so
     * words are merged one by one. */
    bool cuts_words;
    /* KIND_WORDPIECE: removes marks (accents); converts to lower case. */
    bool strips_marks, lowers;
    struct char_map map; /* KIND_UNIGRAM: see char_map */
    /* KIND_UNIGRAM: score of a character that has no token */
    double unknown_score;
    /* KIND_UNIGRAM: replaces white space before a word by one blank. */
    bool joins_blanks;
    /* KIND_BPE: the symbol of the character that represents the byte. Other
     * kinds: the token "<0xXX>", or the byte itself as a token. -1 if none. */
    int32_t byte_id[256];
    int32_t bos, eos, unknown; /* ids of tokens; -1 if there is none */
    /* fill-in-the-middle tokens in the order of tokenizer_fim; -1 if there is
     * none */
    int32_t fim[TOKENIZER_N_FIM];
    /* owned, [n_suppressed] tokens that must never be generated */
    int32_t *suppressed;
    int64_t n_suppressed;
    bool adds_bos, adds_eos;
    bool adds_blank;  /* puts a blank before a text and after special tokens */
    bool drops_blank; /* decoding drops the blank before a text */
    bool eats_blank;  /* phi-3: drops white space after parsed special tokens */
    int32_t eats_before; /* the token that drops white space before it; -1 if
                            none */
    /* `user` has the user-defined tokens; `all` has these and the control
     * and unknown tokens. */
    struct special_set user, all;
};

/* Finds the character that represents a byte in KIND_BPE vocabularies.
 * Printable bytes represent themselves; the others are numbered from U+0100 on.
 * Writes the character as UTF-8 to `out` and returns its length, 1 or 2. */
int bpe_char_of_byte(unsigned byte, char out[2]);

/* The inverse: sets *byte to the byte that the character at s[0 .. n)
 * represents, and returns the character's length. Returns 0 if it does not
 * represent a byte. */
int bpe_byte_of_char(const char *s, size_t n, unsigned char *byte);

static inline bool token_is_special(const struct token *t, bool parse)
{
    return t->type == TOKEN_USER ||
           (parse && (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN));
}

#endif
