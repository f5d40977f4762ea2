/* A receipt: a JSON document from which a text generation can be checked, and
 * the tokens that are compared for that.
 *
 * A receipt that is being written has the parts of the document that are known
 * before the end: model, numerics, sampling, end. pl_receipt_write adds the
 * prompt, the grammar and the output from the fields of struct pl_receipt;
 * pl_receipt_parse sets these fields from the document. doc/receipts.md
 * explains the document. */
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
    json_t *doc;                   /* owned: the JSON document */
    struct sampling_record record; /* the output's tokens, and the grammar's
                                      text */
    /* The receipt was written without tokens: ids of sampled tokens in `record`
     * are -1. */
    bool no_tokens;
    char output_hash[SHA256_TEXT]; /* SHA-256 of the output's tokens */
    /* Owned, [n_prompt]: the prompt's tokens; NULL if only their hash is
     * known. */
    int32_t *prompt;
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

/* Writes the hash of n tokens to `text`, in hexadecimal: SHA-256 of their ids,
 * as four bytes each, little-endian. */
void receipt_hash_tokens(char text[SHA256_TEXT], const int32_t *token,
                         int64_t n);
/* Writes the hash of the output's tokens to `text`, as receipt_hash_tokens
 * does. */
void receipt_hash_output(char text[SHA256_TEXT],
                         const struct sampling_record *record);
/* Writes SHA-256 of a grammar's text s[0 .. len) to `text`, in hexadecimal. */
void receipt_hash_text(char text[SHA256_TEXT], const char *s, size_t len);

/* Returns -ln p, p = softmax(logits [n_vocab])[id]. */
double receipt_nll(const float *logits, int64_t n_vocab, int32_t id);

/* Returns true if a receipt can have the text: it is UTF-8 without NUL. */
bool receipt_can_have(const char *s, size_t len);
/* receipt_append adds an item to a list and returns the list. receipt_set adds
 * a member to an object and returns the object. Both take over the references
 * of all their arguments. They return NULL if out of memory, or if an argument
 * is NULL, so that after several calls one check suffices. */
json_t *receipt_append(json_t *list, json_t *item);
json_t *receipt_set(json_t *object, const char *name, json_t *value);

/* Creates the objects "model" and "numerics" of a receipt that describe engine
 * e. Reads all weights once per engine, for their hash. */
pl_status receipt_describe_engine(json_t **model, json_t **numerics,
                                  pl_engine *e, pl_err *err);

/* ---- functions of receipt_sampling.c ------------------------------------- */

/* A setting of a sampler that is one number: its name in receipts, and the
 * offset of its field in pl_sampling. */
struct receipt_setting {
    const char *name;
    size_t at;
    bool is_float; /* the field is a float; otherwise an int */
    /* Receipts of earlier versions lack it, so it is left out if it has its
     * default. */
    bool is_new;
};
extern const struct receipt_setting receipt_settings[];
extern const int n_receipt_setting;

/* Sets *out to the object "sampling" of a receipt, which has the values of all
 * settings in *s. */
pl_status receipt_write_sampling(json_t **out, const pl_sampling *s,
                                 pl_err *err);
/* Reads the object "sampling" of a receipt to *s. The caller owns the arrays of
 * *s and frees them with receipt_free_sampling, also after a failure. If the
 * recorded sampler had a tokenizer, sets s->tokenizer to `words`. */
pl_status receipt_read_sampling(pl_sampling *s, const json_t *from,
                                const pl_tokenizer *words, pl_err *err);
void receipt_free_sampling(pl_sampling *s);
const char *receipt_form_name(pl_grammar_form form);

/* Returns the enum pl_receipt_end with this name, the reason why the output
 * ended; -1 if the name is unknown. */
int receipt_find_end(const char *name);

/* Returns the string under `key` of the object j in a form fit for messages
 * (err_shown), in buf. */
const char *receipt_shown(char buf[ERR_SHOWN], const json_t *j,
                          const char *key);
/* Sets the error that field `field` of a receipt is invalid, and returns its
 * status. `remedy` says what the field should be. */
pl_status receipt_bad_field(pl_err *err, const char *field, const char *remedy);

#endif
