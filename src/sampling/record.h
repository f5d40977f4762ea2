/* Records the decisions of a sampler: each token, and a hash of the rows of
 * logits from which tokens were sampled. Receipts are made from records.
 *
 * The hash of row i is hash64 of the row's bytes, seeded with the hash of row
 * i - 1. So a difference in one row shows in the hash of every later row. The
 * last 16 bits of each are kept, which locates the first row that differs:
 * with probability 2^-16 a later one is reported. The hash is not secure
 * against an adversary and need not be, because a check computes all rows
 * itself. */
#ifndef SAMPLING_RECORD_H
#define SAMPLING_RECORD_H

#include "pl.h"

enum {
    RECORD_FORCED = 1,  /* not sampled: the caller chose the token */
    RECORD_NO_EOG = 2,  /* end-of-text tokens were excluded */
    RECORD_GRAMMAR = 4, /* the grammar applied; a forced token is a part of its
                           text */
};

struct record_token {
    int32_t id;
    uint16_t row; /* last bits of the row's hash; 0 if forced */
    uint16_t how; /* RECORD_* */
};

struct sampling_record {
    struct record_token *token; /* owned, [n] of `cap` */
    int64_t n, cap;
    int64_t n_row;      /* number of tokens that were sampled */
    uint64_t hash;      /* of the last row */
    char *grammar;      /* owned text of the grammar that applied last */
    size_t grammar_len; /* of that text in bytes */
    pl_grammar_form form;
    int n_grammar; /* number of grammars that applied */
    bool full;     /* out of memory: something is missing */
};

/* Adds a token that was sampled from logits [n_vocab]. `how` is RECORD_NO_EOG
 * and RECORD_GRAMMAR, as they apply. */
void record_row(struct sampling_record *r, const float *logits, int32_t n_vocab,
                int32_t id, unsigned how);
/* Adds a token that the caller has chosen. `how` is RECORD_GRAMMAR if it is a
 * part of the grammar's text. */
void record_forced(struct sampling_record *r, int32_t id, unsigned how);
/* Notes that a grammar applies from the next token on. Copies its text. */
void record_grammar(struct sampling_record *r, pl_grammar_form form,
                    const char *text, size_t len);
void record_fini(struct sampling_record *r);

#endif
