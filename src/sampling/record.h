/* Records what a sampler did: the id of each token, and a hash of the logits
 * from which it was sampled. Receipts are made from records.
 *
 * A row is the logits of one token. The hash of a row is hash64 of its bytes,
 * seeded with the hash of the row before. So a difference in one row changes
 * the hashes of all later rows. The last 16 bits of each hash are recorded,
 * which locates the first row that differs; with probability 2^-16 it is missed
 * and a later row is reported. The hash is not secure against an adversary. It
 * need not be, because a check of a receipt computes all rows itself. */
#ifndef SAMPLING_RECORD_H
#define SAMPLING_RECORD_H

#include "pl.h"

enum {
    /* The token was not sampled: the caller chose it. */
    RECORD_FORCED = 1,
    /* Tokens that end the generation were excluded. */
    RECORD_NO_EOG = 2,
    /* A grammar limited the choice. If the token was forced, it is a part of a
     * text that the grammar has to match. */
    RECORD_GRAMMAR = 4,
    /* The tokens pl_sampling.stop were excluded. */
    RECORD_NO_STOPS = 8,
};

struct record_token {
    int32_t id;
    /* Last 16 bits of the hash of the logits; 0 if the token was forced. */
    uint16_t row;
    /* Bits RECORD_FORCED, RECORD_NO_EOG, RECORD_GRAMMAR, RECORD_NO_STOPS. */
    uint16_t how;
};

struct sampling_record {
    struct record_token *token; /* owned, [n], capacity `cap`: a record for each
                                   token */
    int64_t n, cap;
    int64_t n_row;      /* number of tokens that were sampled */
    uint64_t hash;      /* hash of the last row of logits */
    char *grammar;      /* owned: text of the last grammar */
    size_t grammar_len; /* length of `grammar` in bytes */
    pl_grammar_form form;
    int n_grammar; /* number of calls of record_grammar */
    bool full;     /* out of memory, so the record is incomplete */
};

/* Records the token `id` that was sampled from the row logits[0 .. n_vocab).
 * `how` has the bits that apply to it, except RECORD_FORCED. */
void record_row(struct sampling_record *r, const float *logits, int32_t n_vocab,
                int32_t id, unsigned how);
/* Records the token `id` that the caller chose instead of the sampler. `how` is
 * RECORD_GRAMMAR if the token is a part of the text that a grammar has to
 * match, else 0. */
void record_forced(struct sampling_record *r, int32_t id, unsigned how);
/* Records that a grammar applies from the next token on. Copies its text. */
void record_grammar(struct sampling_record *r, pl_grammar_form form,
                    const char *text, size_t len);
void record_fini(struct sampling_record *r);

#endif
