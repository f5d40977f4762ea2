/* Text to tokens and back, as the vocabulary inside a GGUF file says.
 *
 * Five kinds: "llama" (SentencePiece with byte fallback), "gpt2" (byte-level
 * BPE behind a pre-tokenizer), "gemma4" (BPE over characters), "bert"
 * (WordPiece) and "t5" (Unigram). Any architecture will do, and a file without
 * tensors. Others are refused by name. A chat template is not our business.
 *
 * A tokenizer never changes once created: threads may share it. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "gguf/gguf.h"

struct tokenizer; /* opaque */

/* Growing lists. Zeroed is empty; contents are kept when a call fails. */
struct token_list {
    int32_t *id; /* owned, [n] */
    int64_t n, cap;
};

struct text_buf {
    char *s; /* owned, n bytes and a terminator; NULL while empty */
    size_t n, cap;
};

void token_list_fini(struct token_list *l);
void text_buf_fini(struct text_buf *b);

/* The file may be closed afterwards. PL_NOT_FOUND if it has no tokenizer,
 * PL_UNSUPPORTED for a kind or pre-tokenizer we do not have (the message lists
 * those we have), PL_BAD_FILE for one that contradicts itself. */
pl_status tokenizer_create(struct tokenizer **out, const struct gguf *g,
                           pl_err *err);
void tokenizer_free(struct tokenizer *t);

int32_t tokenizer_n_vocab(const struct tokenizer *t);
/* -1 if there is none; ids beyond the vocabulary count as none. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* Which tokens fill in the middle: prefix, suffix, middle, repository, file.
 * -1: there is none. */
enum { TOKENIZER_N_FIM = 5 };
int32_t tokenizer_fim(const struct tokenizer *t, int which);
/* Generation ends at this token. False for any id that is no token. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* A control token, whose text is not part of the output. */
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
/* The token with exactly this text in the vocabulary, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t len);

enum tokenizer_flag {
    TOKENIZER_ADD_SPECIAL = 1,   /* BOS and EOS where the model asks for them */
    TOKENIZER_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text is that token */
    TOKENIZER_SHOW_SPECIAL = 4,  /* decoding: control tokens give their text */
    TOKENIZER_WHOLE = 8          /* decoding: nothing precedes these tokens */
};

/* Appends the tokens of text[0 .. len), which may hold any bytes: what is not
 * UTF-8 is kept byte by byte, but WordPiece drops it and Unigram takes it for
 * U+FFFD. A byte for which the vocabulary has no token becomes the unknown
 * token, or nothing if there is none. Time O(n log n). On failure `out` is as
 * it was. */
pl_status tokenizer_encode(const struct tokenizer *t, const char *text,
                           size_t len, unsigned flags, struct token_list *out,
                           pl_err *err);

/* The bytes a token stands for, which need not be whole characters, written
 * into buf[0 .. cap) as far as they fit. Returns their number; an id that is
 * no token gives none. `flags`: TOKENIZER_SHOW_SPECIAL. */
size_t tokenizer_piece(const struct tokenizer *t, int32_t id, unsigned flags,
                       char *buf, size_t cap);

/* Tokens to valid UTF-8, one token at a time. The start of a character whose
 * end has not come is held back. Bytes that can be part of no character become
 * U+FFFD, as Unicode recommends: one for each longest valid prefix.
 *
 * TOKENIZER_WHOLE drops the one blank that encoding put before the text, where
 * the model's kind does that. What a model generates after a prompt is a
 * continuation and loses nothing. */
struct tokenizer_stream {
    const struct tokenizer *t; /* borrowed */
    unsigned flags;
    int n_held;
    char held[4];
};

void tokenizer_stream_init(struct tokenizer_stream *d,
                           const struct tokenizer *t, unsigned flags);
/* Appends what is complete. On failure (memory) nothing has been taken. */
pl_status tokenizer_stream_put(struct tokenizer_stream *d, int32_t id,
                               struct text_buf *out, pl_err *err);
/* The end: what is still held becomes U+FFFD. The stream can be used again. */
pl_status tokenizer_stream_end(struct tokenizer_stream *d, struct text_buf *out,
                               pl_err *err);

/* All at once; appends to `out`. */
pl_status tokenizer_decode(const struct tokenizer *t, const int32_t *id,
                           int64_t n, unsigned flags, struct text_buf *out,
                           pl_err *err);

#endif
