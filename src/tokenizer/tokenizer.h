/* Converts text to tokens and back, by the vocabulary of a GGUF file.
 *
 * Five kinds: "llama" (SentencePiece with byte fallback), "gpt2" (byte-level
 * BPE after a pre-tokenizer), "gemma4" (BPE over characters), "bert"
 * (WordPiece) and "t5" (Unigram). Other kinds are rejected by name. A file may
 * have any architecture, or no tensors. Chat templates are not handled here.
 *
 * A tokenizer never changes once created, so threads may share it. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "gguf/gguf.h"

/* Opaque. */
struct tokenizer;

/* A list of tokens and a text that grow as needed. A zeroed struct is empty. A
 * call that fails leaves the contents unchanged. */
struct token_list {
    int32_t *id; /* owned, [n]: the tokens */
    int64_t n, cap;
};

struct text_buf {
    /* Owned: n bytes and a terminating NUL; NULL until something was stored. */
    char *s;
    size_t n, cap;
};

void token_list_fini(struct token_list *l);
void text_buf_fini(struct text_buf *b);

/* Creates the tokenizer of a GGUF file, which may be closed afterwards.
 * PL_NOT_FOUND if the file has no tokenizer. PL_UNSUPPORTED for an unknown kind
 * or pre-tokenizer; the message lists the known ones. PL_BAD_FILE if the
 * tokenizer's data is inconsistent. */
pl_status tokenizer_create(struct tokenizer **out, const struct gguf *g,
                           pl_err *err);
void tokenizer_free(struct tokenizer *t);

int32_t tokenizer_n_vocab(const struct tokenizer *t);
/* Return the id of the BOS or EOS token, or -1 if there is none or its id is
 * not in the vocabulary. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* Returns the id of a token for filling in the middle, -1 if there is none.
 * `which` is 0 for prefix, 1 suffix, 2 middle, 3 repository, 4 file. */
enum { TOKENIZER_N_FIM = 5 };
int32_t tokenizer_fim(const struct tokenizer *t, int which);
/* Returns true if generation ends at this token. Returns false for ids that are
 * not in the vocabulary. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* Returns the tokens that must never be generated, and sets *n to their number.
 */
const int32_t *tokenizer_suppressed(const struct tokenizer *t, int64_t *n);
/* Returns true for a control token, whose text is not part of the output. */
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
/* Returns the token with exactly this text in the vocabulary, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t len);

/* Returns PL_OK if a draft model with the tokenizer `draft` proposes tokens of
 * the tokenizer `t`: both have the same tokens. PL_UNSUPPORTED: the message
 * names a difference (see pl_draft_check_model). */
pl_status tokenizer_compare(const struct tokenizer *t,
                            const struct tokenizer *draft, pl_err *err);

enum tokenizer_flag {
    TOKENIZER_ADD_SPECIAL = 1, /* encoding: add BOS and EOS where the model uses
                                  them */
    /* Encoding: text such as "<|im_end|>" becomes the special token of this
     * name. */
    TOKENIZER_PARSE_SPECIAL = 2,
    TOKENIZER_SHOW_SPECIAL = 4, /* decoding: write the text of control tokens,
                                   too */
    /* Decoding: the tokens are a text from its beginning, so the blank that
     * encoding put there is dropped. */
    TOKENIZER_WHOLE = 8
};

/* Appends the tokens of text[0 .. len), which may contain any bytes. Each byte
 * that is not UTF-8 is encoded separately; WordPiece drops it, and Unigram
 * treats it as U+FFFD. A byte without a token becomes the unknown token, or
 * nothing if there is none. Takes O(n log n) time. On failure `out` is
 * unchanged. */
pl_status tokenizer_encode(const struct tokenizer *t, const char *text,
                           size_t len, unsigned flags, struct token_list *out,
                           pl_err *err);
/* Appends the tokens of two texts, part[i] [len[i]], a query and a document:
 * BOS part[0] EOS SEP part[1] EOS, without those that the tokenizer does not
 * add. On failure the list is unchanged. */
pl_status tokenizer_encode_pair(const struct tokenizer *t,
                                const char *const part[2], const size_t len[2],
                                struct token_list *out, pl_err *err);

/* Writes the text of a token to buf[0 .. cap), as far as it fits. It may
 * contain partial characters. Returns the length of the whole text in bytes,
 * even if it does not fit, or 0 if `id` is not a token. The only flag used is
 * TOKENIZER_SHOW_SPECIAL. */
size_t tokenizer_piece(const struct tokenizer *t, int32_t id, unsigned flags,
                       char *buf, size_t cap);

/* Converts tokens to valid UTF-8, one token at a time. If a token ends within a
 * character, the character is held back until it is complete. Bytes that cannot
 * be part of a character become U+FFFD, one for each longest valid prefix, as
 * Unicode recommends.
 *
 * If `flags` has TOKENIZER_WHOLE, drops the one blank that encoding put before
 * the text, if the model's kind of tokenizer does that. Text generated after a
 * prompt continues the prompt, so it is decoded without this flag. */
struct tokenizer_stream {
    const struct tokenizer *t; /* the tokenizer, borrowed */
    unsigned flags;
    int n_held;
    char held[4];
};

void tokenizer_stream_init(struct tokenizer_stream *d,
                           const struct tokenizer *t, unsigned flags);
/* Appends the text of a token to `out`, up to its last complete character. If
 * it fails, which means out of memory, the stream is unchanged. */
pl_status tokenizer_stream_put(struct tokenizer_stream *d, int32_t id,
                               struct text_buf *out, pl_err *err);
/* Ends the text: appends U+FFFD for bytes still held back. The stream can be
 * reused. */
pl_status tokenizer_stream_end(struct tokenizer_stream *d, struct text_buf *out,
                               pl_err *err);

/* Decodes the tokens id[0 .. n) and appends their text to `out`. */
pl_status tokenizer_decode(const struct tokenizer *t, const int32_t *id,
                           int64_t n, unsigned flags, struct text_buf *out,
                           pl_err *err);

#endif
