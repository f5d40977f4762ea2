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

/* The tokens that are searched in a text before anything else: their lengths,
 * longest first, and the bytes that they begin and end with. */
struct special_set {
    uint32_t *len; /* owned, [n_len] */
    uint32_t n_len;
    bool first[256], last[256];
};

/* Replacements for beginnings of a text; see unigram.c. */
struct char_map {
    /* A view of the vocabulary's arena, [n_unit] of 4 bytes. */
    const unsigned char *unit;
    const char *text; /* the same; ends with a zero byte */
    size_t n_unit, n_text;
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab vocab;
    struct pretok *pretok; /* owned; KIND_BPE and KIND_WORDPIECE */
    struct pretok *clean;  /* owned; KIND_WORDPIECE, before `pretok` */
    /* KIND_SPM and KIND_GEMMA: no symbol has a blank after a word. */
    bool cuts_words;
    bool strips_marks, lowers; /* KIND_WORDPIECE */
    struct char_map map;       /* KIND_UNIGRAM from here */
    double unknown_score;      /* of a character that is not a token */
    bool joins_blanks; /* joins white space to one blank before a word */
    /* KIND_BPE: the symbol of the byte's character. Else: the token "<0xXX>" or
     * the byte itself. */
    int32_t byte_id[256];
    int32_t bos, eos, unknown;    /* -1: none */
    int32_t fim[TOKENIZER_N_FIM]; /* likewise */
    bool adds_bos, adds_eos;
    bool adds_blank;     /* before a text and after each special token */
    bool drops_blank;    /* decoding drops the blank before a text */
    bool eats_blank;     /* phi-3: after parsed special tokens */
    int32_t eats_before; /* the token that drops white space before it, or -1 */
    /* User-defined tokens only; the same with control and unknown tokens. */
    struct special_set user, all;
};

/* Returns the character that represents a byte in KIND_BPE vocabularies.
 * Printable bytes represent themselves, the others follow from U+0100 on.
 * Writes it as UTF-8 to out and returns its length, 1 or 2. */
int bpe_char_of_byte(unsigned byte, char out[2]);

/* The inverse: returns the length of the character at s if it represents a
 * byte, else 0. */
int bpe_byte_of_char(const char *s, size_t n, unsigned char *byte);

static inline bool token_is_special(const struct token *t, bool parse)
{
    return t->type == TOKEN_USER ||
           (parse && (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN));
}

#endif
