/* Functions that encode text, shared by the kinds of tokenizers. Private to
 * this layer. */
#ifndef TOKENIZER_ENCODER_H
#define TOKENIZER_ENCODER_H

#include "tokenizer/kinds.h"
#include "tokenizer/merge.h"

/* U+2581 represents a blank in all vocabularies except those of KIND_BPE. */
static const char low_line[3] = {'\xe2', '\x96', '\x81'};

/* The state of one call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct merger merger;
    const char *text; /* the text that the merger's symbols cover */
    char *mapped;     /* owned; a piece of text in the vocabulary's spelling */
    struct text_buf normal; /* the text after the model's normalisation */
};

/* Appends a token to e->out, or nothing if `id` is -1. */
pl_status encoder_push(struct encoder *e, int32_t id, pl_err *err);

/* Reserves space for n more bytes and a terminator. */
pl_status text_buf_reserve(struct text_buf *b, size_t n, pl_err *err);

/* The kinds KIND_WORDPIECE and KIND_UNIGRAM: create reads the parts of the file
 * that only this kind needs; encode appends the tokens of a text without
 * special tokens. */
pl_status wordpiece_create(struct tokenizer *t, const struct gguf *g,
                           pl_err *err);
pl_status wordpiece_encode(struct encoder *e, const char *s, size_t len,
                           pl_err *err);
pl_status unigram_create(struct tokenizer *t, const struct gguf *g,
                         pl_err *err);
pl_status unigram_encode(struct encoder *e, const char *s, size_t len,
                         pl_err *err);

#endif
