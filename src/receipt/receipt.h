/* A receipt: a JSON document, and the tokens that were or will be compared.
 *
 * The document of a receipt that is being written has the parts that are known
 * from the beginning: model, numerics, sampling, end. pl_receipt_write adds the
 * prompt, the grammar and the output. pl_receipt_parse takes these apart
 * again. doc/receipts.md explains the fields. */
#ifndef RECEIPT_RECEIPT_H
#define RECEIPT_RECEIPT_H

#include "base/err.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "sampling/record.h"

#include "pl_receipt.h"

#include <jansson.h>

enum { RECEIPT_VERSION = 1 };

struct pl_receipt {
    json_t *doc;                   /* owned */
    struct sampling_record record; /* the output, and the grammar's text */
    bool no_tokens;                /* sampled tokens are unknown; ids are -1 */
    char output_hash[SHA256_TEXT]; /* of the output's tokens */
    int32_t *prompt;               /* owned, [n_prompt]; NULL if unknown */
    int64_t n_prompt;
    char prompt_hash[SHA256_TEXT];
    char grammar_hash[SHA256_TEXT]; /* "" if no grammar applied */
    int64_t grammar_from; /* index of the first token to which it applied */
    bool recorded;        /* a sampler is or was recorded */
    bool scored;          /* the tokens were given (pl_receipt_score) */
    double nll;           /* sum of -ln p over them */
    int64_t n_vocab;      /* of the engine; 0 if parsed */
    /* Owned arrays for pl_receipt_options, whose strings `doc` owns; made by
     * pl_receipt_parse. */
    const char **keep, **layout, **overrides;
    int n_keep, n_layout, n_share;
    double share[PL_MAX_RANKS];
};

/* Writes the hash of tokens to `text`: SHA-256 of their ids, four bytes each,
 * little endian. */
void receipt_hash_tokens(char text[SHA256_TEXT], const int32_t *token,
                         int64_t n);
/* The same of the output's tokens. */
void receipt_hash_output(char text[SHA256_TEXT],
                         const struct sampling_record *record);
/* Writes the hash of a grammar's text. */
void receipt_hash_text(char text[SHA256_TEXT], const char *s, size_t len);

/* Returns -ln p, p = softmax(logits [n_vocab])[id]. */
double receipt_nll(const float *logits, int64_t n_vocab, int32_t id);

/* Returns true if a receipt can have the text: it is UTF-8 without NUL. */
bool receipt_can_have(const char *s, size_t len);
/* Append an item to a list and a member to an object, and return these. Return
 * NULL without memory, or if an argument is NULL. They own all of their
 * arguments. So a loop needs one check, at its end. */
json_t *receipt_append(json_t *list, json_t *item);
json_t *receipt_set(json_t *object, const char *name, json_t *value);

/* Creates the objects "model" and "numerics" of a receipt of `e`. Reads all
 * weights once. */
pl_status receipt_describe_engine(json_t **model, json_t **numerics,
                                  pl_engine *e, pl_err *err);

/* ---- receipt_sampling.c -------------------------------------------------- */

/* A setting that is one number: its name in receipts, and its field of
 * pl_sampling. */
struct receipt_setting {
    const char *name;
    size_t at;
    bool is_float; /* else an int */
};
extern const struct receipt_setting receipt_settings[];
extern const int n_receipt_setting;

/* Sets *out to the object "sampling", which has all settings with their
 * values. */
pl_status receipt_write_sampling(json_t **out, const pl_sampling *s,
                                 pl_err *err);
/* Reads such an object. The arrays of *s are owned by the caller, who frees
 * them with receipt_free_sampling, also after a failure. s->tokenizer is
 * `words` if the settings have one. */
pl_status receipt_read_sampling(pl_sampling *s, const json_t *from,
                                const pl_tokenizer *words, pl_err *err);
void receipt_free_sampling(pl_sampling *s);
const char *receipt_form_name(pl_grammar_form form);

/* Returns the reason of an end by its name, an enum pl_receipt_end; -1 if
 * unknown. */
int receipt_find_end(const char *name);

/* Returns the text of a member of an object for a message (err_shown). */
const char *receipt_shown(char buf[ERR_SHOWN], const json_t *j,
                          const char *key);
/* Sets the error that a field is wrong. `remedy` says what it should be. */
pl_status receipt_bad_field(pl_err *err, const char *field, const char *remedy);

#endif
