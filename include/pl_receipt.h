/* Receipts: records of generated text that anybody can check.
 *
 * A receipt names the model, the numerics, the prompt, the sampler's settings
 * and the generated tokens, and it has a hash of the logits from which they
 * were sampled. plait computes the same logits on every device and in every
 * split, one by one or as a prompt. So whoever has the model can compute prompt
 * and answer in prompt-sized steps, sample again, and compare.
 *
 * doc/receipts.md describes the JSON object. Results, statuses, NULL, threads
 * and fork() are as in pl.h. A receipt takes one call at a time; the calls of a
 * sampler that it records count as calls of the receipt. */
#ifndef PL_RECEIPT_H
#define PL_RECEIPT_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_receipt pl_receipt;

/* ---- writing ------------------------------------------------------------- */

/* X(reason, its name in the receipt): why the output ended. */
#define PL_RECEIPT_END_MAP(X)                                                  \
    X(EOG, "eog")             /* an end-of-text token was sampled */           \
    X(LENGTH, "length")       /* the limit of tokens was reached */            \
    X(STOP, "stop")           /* a stop string was generated */                \
    X(CONTEXT, "context")     /* the context was full */                       \
    X(MESSAGE, "message")     /* the template's message was complete */        \
    X(CANCELLED, "cancelled") /* the client or the user ended it */            \
    X(OTHER, "other")

typedef enum pl_receipt_end {
#define PL_RECEIPT_END_ENUM(name, text) PL_RECEIPT_##name,
    PL_RECEIPT_END_MAP(PL_RECEIPT_END_ENUM)
#undef PL_RECEIPT_END_ENUM
} pl_receipt_end;

/* Begins a receipt for text that is generated after `prompt` [n_prompt], the
 * tokens of a sequence of `e`. The first receipt of an engine reads all weights
 * of the model once to hash them (see pl_state_save). PL_BAD_ARGUMENT: a token
 * is not in the vocabulary. PL_UNSUPPORTED: the engine's bits depend on
 * something that a receipt cannot name: weights that were set, a restored state
 * of other numerics, or devices that failed the self test. */
PL_API pl_status pl_receipt_begin(pl_receipt **out, pl_engine *e,
                                  const int32_t *prompt, int64_t n_prompt,
                                  pl_err *err);
PL_API void pl_receipt_free(pl_receipt *r);
/* Records, from now on, what `s` samples and accepts: its settings, its
 * grammar, each row of logits and each token. Before that, `s` has accepted the
 * tokens of the prompt, in order, and nothing else. The receipt is borrowed
 * until the sampler is freed or this function is called with NULL, which ends
 * the recording.
 * PL_BAD_ARGUMENT: `s` accepted other tokens or has sampled before, or `r`
 * records or has recorded a sampler. */
PL_API pl_status pl_sampler_record(pl_sampler *s, pl_receipt *r, pl_err *err);
/* Records, in place of a sampler, a token of a text that was there before: its
 * logits [n_vocab] are those after the tokens before it. Such a receipt is of
 * how well the model predicts the text, as `plait perplexity` measures it. Sets
 * *nll to -ln p of the token, p = softmax(logits)[id], unless it is NULL. The
 * receipt has the sum.
 * PL_BAD_ARGUMENT: the receipt was parsed, or records or has recorded a
 * sampler; `id` is not in the vocabulary; or p is 0 or not a number. */
PL_API pl_status pl_receipt_score(pl_receipt *r, const float *logits,
                                  int32_t id, double *nll, pl_err *err);
/* Sets the reason of the end, and the limits that were in force: the most
 * tokens (-1: none) and stop strings. The texts are copied. */
PL_API pl_status pl_receipt_set_end(pl_receipt *r, pl_receipt_end why,
                                    int64_t max_tokens, const char *const *stop,
                                    int n_stop, pl_err *err);

enum {
    /* The receipt contains the prompt's tokens and the grammar's text. Without
     * this flag it has only their hashes, and a check needs them as input
     * (pl_receipt_given). */
    PL_RECEIPT_FULL = 1,
    /* The receipt has a hash of the generated tokens in place of them. The
     * tokens of pl_receipt_score stay. */
    PL_RECEIPT_NO_TOKENS = 2,
};

/* X(form, its name, its flags): the combinations of pl_receipt_write's flags
 * that the command and the server offer by name. */
#define PL_RECEIPT_FORM_MAP(X)                                                 \
    X(FULL, "full", PL_RECEIPT_FULL)                                           \
    X(BRIEF, "brief", 0)                                                       \
    X(HASHES, "hashes", PL_RECEIPT_NO_TOKENS)

/* Writes the receipt as one line of JSON. `flags` are PL_RECEIPT_FULL and
 * PL_RECEIPT_NO_TOKENS. *json is malloc'ed; the caller frees it. */
PL_API pl_status pl_receipt_write(const pl_receipt *r, unsigned flags,
                                  char **json, pl_err *err);

/* ---- checking ------------------------------------------------------------ */

/* Parses a receipt from JSON text. PL_BAD_FILE: the text is not a receipt; the
 * message names the field. PL_UNSUPPORTED: the receipt has a later version of
 * the format. */
PL_API pl_status pl_receipt_parse(pl_receipt **out, const char *json,
                                  size_t len, pl_err *err);
/* Sets the fields of *opt that decide bits as the receipt requires: ranks and
 * their shares, layouts (before the caller's overrides), numerics, cache
 * formats, kept values. Sets n_ctx, if it is 0, to the number of tokens that
 * the receipt contains. A prompt of which it has only the hash does not count,
 * because its length is a mere claim: the caller adds the tokens of the prompt
 * to give. Other fields, such as devices, stay. Strings and arrays in *opt are
 * valid until the next call or until the receipt is freed.
 * PL_UNSUPPORTED: the receipt was written with another order of operations
 * (doc/numerics.md) than this library has. */
PL_API pl_status pl_receipt_options(pl_receipt *r, pl_options *opt,
                                    pl_err *err);
/* Returns the sum of -ln p of the tokens that pl_receipt_score recorded; NaN if
 * the output was sampled. */
PL_API double pl_receipt_nll(const pl_receipt *r);
/* Returns the number of tokens of the prompt and of the output. */
PL_API int64_t pl_receipt_n_prompt(const pl_receipt *r);
PL_API int64_t pl_receipt_n_output(const pl_receipt *r);

/* Input of a check: texts that the receipt has only as hashes, and the extent
 * of the check. */
typedef struct pl_receipt_given {
    size_t size;
    /* [n_prompt] the tokens of the prompt; NULL to use those in the receipt. If
     * both are given, they must be equal. */
    const int32_t *prompt;
    int64_t n_prompt;
    /* The grammar's text; NULL to use the one in the receipt. */
    const char *grammar;
    size_t grammar_len;
    /* Number of output tokens to sample again, drawn at random from `seed`; 0
     * for all. If it is not 0, the hash of logits is not checked. */
    int64_t n_sample;
    uint64_t seed;
    pl_progress_fn *progress;
    void *progress_user;
    /* If *cancel becomes nonzero, the check ends with PL_CANCELLED. */
    const volatile int *cancel;
} pl_receipt_given;

typedef enum pl_receipt_verdict {
    PL_RECEIPT_HOLDS,
    PL_RECEIPT_DIFFERS,
    /* the receipt cannot be checked: it was written under numerics or weights
     * that this engine does not have, a text that the check needs is missing,
     * or the engine's logits are not finite */
    PL_RECEIPT_CANNOT,
} pl_receipt_verdict;

typedef struct pl_receipt_result {
    pl_receipt_verdict verdict;
    /* The verdict in a sentence: what was checked, or the difference, or the
     * obstacle and the remedy. */
    char text[768];
    int64_t n_checked; /* number of output tokens that were sampled again */
    /* Index in the output of the first token that differs or whose logits
     * differ; -1 if there is none, or if another field differs. */
    int64_t at;
    /* id in the receipt and id sampled again for token `at`; -1 if unknown */
    int32_t written, sampled;
    float written_logit, sampled_logit;
} pl_receipt_result;

/* Computes the prompt and the output of the receipt in sequence 0 of `e`, which
 * it empties before and after, samples every token again and compares. If the
 * receipt has only a hash of the output, generates it one token at a time.
 * `given` may be NULL. `size` is sizeof *out. The status is PL_OK for each
 * verdict; errors are those of pl_engine_decode. On failure *out is unchanged,
 * because zeros would mean that the receipt holds. */
PL_API pl_status pl_receipt_verify(const pl_receipt *r, pl_engine *e,
                                   const pl_receipt_given *given,
                                   pl_receipt_result *out, size_t size,
                                   pl_err *err);
/* Compares two receipts. Writes a line for each difference, causes first:
 * weights, numerics, prompt, settings, output. *same is true if all that
 * decides the output, and the output, are equal. */
PL_API pl_status pl_receipt_diff(const pl_receipt *a, const pl_receipt *b,
                                 bool *same, pl_write_fn *write, void *user,
                                 pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
