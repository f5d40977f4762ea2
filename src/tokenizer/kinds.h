/* The data of a tokenizer. Private to src/tokenizer. */
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

/* Properties of a set of special tokens, by which a search for them skips most
 * positions of a text: their lengths, and the bytes with which they begin and
 * end. */
struct special_set {
    uint32_t *len; /* owned, [n_len]: the lengths in bytes, longest first */
    uint32_t n_len;
    bool first[256], last[256];
};

/* The map by which KIND_UNIGRAM normalises a text: replaces certain byte
 * sequences by others. See unigram.c for the format. */
struct char_map {
    /* [n_unit] units of 4 bytes that form a trie, in the vocabulary's arena */
    const unsigned char *unit;
    /* [n_text] bytes of replacement texts, each NUL-terminated, in the
     * vocabulary's arena */
    const char *text;
    size_t n_unit, n_text;
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab vocab;
    /* Owned: splits text. For KIND_BPE and KIND_WORDPIECE. */
    struct pretok *pretok;
    /* Owned: finds the characters that KIND_WORDPIECE drops before `pretok`
     * splits the text. */
    struct pretok *clean;
    /* KIND_SPM and KIND_GEMMA: no symbol contains a blank after another
     * character, so words can be merged one by one. */
    bool cuts_words;
    /* KIND_WORDPIECE: removes accents and other marks from letters; converts
     * letters to lower case. */
    bool strips_marks, lowers;
    /* KIND_UNIGRAM: the map by which text is normalised. */
    struct char_map map;
    /* KIND_UNIGRAM: score of a character that is not a token */
    double unknown_score;
    /* KIND_UNIGRAM: writes white space before a word as a single blank, and
     * drops it at the end of the text. */
    bool joins_blanks;
    /* For each byte, KIND_BPE: the symbol of the character that represents it.
     * Other kinds: the token "<0xXX>", or the token whose text is the byte. -1
     * if there is none. */
    int32_t byte_id[256];
    int32_t bos, eos, unknown; /* ids of the BOS, EOS and unknown token, -1 for
                                  none */
    /* Tokens for filling in the middle, indexed like tokenizer_fim; -1 if there
     * is none. */
    int32_t fim[TOKENIZER_N_FIM];
    /* owned, [n_suppressed] tokens that must never be generated */
    int32_t *suppressed;
    int64_t n_suppressed;
    int32_t sep; /* token between two texts, -1 if none is added */
    bool adds_bos, adds_eos;
    /* Encoding puts a blank before a text, and after special tokens. */
    bool adds_blank;
    /* Decoding drops the blank at the beginning of a text. */
    bool drops_blank;
    /* Phi-3: encoding drops white space that follows a special token. */
    bool eats_blank;
    /* A special token: encoding drops white space before it. -1 if there is
     * none. */
    int32_t eats_before;
    /* Special tokens to search for in a text. `user` has the user-defined
     * tokens; `all` also has the control and unknown tokens, for
     * TOKENIZER_PARSE_SPECIAL. */
    struct special_set user, all;
};

/* Finds the character that represents a byte in KIND_BPE vocabularies. A
 * printable byte is represented by the character with its number; the others by
 * U+0100 and the following characters. Writes the character as UTF-8 to `out`
 * and returns its length, 1 or 2. */
int bpe_char_of_byte(unsigned byte, char out[2]);

/* The inverse of bpe_char_of_byte: sets *byte to the byte that the character at
 * s[0 .. n) represents and returns the character's length. Returns 0 if it does
 * not represent a byte. */
int bpe_byte_of_char(const char *s, size_t n, unsigned char *byte);

static inline bool token_is_special(const struct token *t, bool parse)
{
    return t->type == TOKEN_USER ||
           (parse && (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN));
}

#endif
