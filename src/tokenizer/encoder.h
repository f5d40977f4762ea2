/* Functions that several kinds of tokenizers use to encode text. Private to
 * src/tokenizer. */
#ifndef TOKENIZER_ENCODER_H
#define TOKENIZER_ENCODER_H

#include "tokenizer/kinds.h"
#include "tokenizer/merge.h"

/* The UTF-8 bytes of U+2581, which stands for a blank in all vocabularies
 * except those of KIND_BPE. */
static const char low_line[3] = {'\xe2', '\x96', '\x81'};

/* The state of one call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct merger merger;
    const char *text; /* text to which the merger's symbols refer */
    /* Owned: scratch of bpe_piece for a piece of text in which characters stand
     * for bytes. */
    char *mapped;
    struct text_buf normal; /* normalised text of KIND_WORDPIECE,
                               KIND_UNIGRAM */
};

/* Appends the token `id` to e->out. Does nothing if `id` is -1. */
pl_status encoder_push(struct encoder *e, int32_t id, pl_err *err);

/* Reserves space in b for n more bytes and a terminating NUL. */
pl_status text_buf_reserve(struct text_buf *b, size_t n, pl_err *err);

/* For KIND_WORDPIECE and KIND_UNIGRAM: X_create reads the data of the file that
 * only this kind needs. X_encode appends the tokens of a text that contains no
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
