/* For tests of receipts: ways to generate a few tokens, each with other
 * settings, grammars or tokens that the caller chooses, and receipts of these
 * outputs. */
#ifndef TEST_RECEIPT_WAY_H
#define TEST_RECEIPT_WAY_H

#include "lib/engine_run.h"

#include "pl_receipt.h"

enum { WAY_OUT = 12, WAY_FORCED = 4, N_WAY = 11 };

/* Settings with which WAY_OUT tokens are generated. */
struct way {
    const char *name;
    pl_sampling s;
    bool no_eog;
    bool forces;         /* the caller chooses token number WAY_FORCED */
    const char *grammar; /* text of a grammar in GBNF; NULL for none */
    /* index of the first token of the output that the grammar constrains */
    int grammar_from;
};

/* Returns the settings number i, i < N_WAY. */
struct way way(int i);

/* The prompt of generations that give none. */
enum { WAY_PROMPT = 7 };
extern const int32_t way_prompt[WAY_PROMPT];

/* The circumstances of a generation, which must not change any bit. */
struct way_run {
    const struct engine_run *r;
    int seq;
    bool company; /* true if other sequences are decoded in the same steps */
    /* [n_prompt] tokens of the prompt; NULL for way_prompt */
    const int32_t *prompt;
    int n_prompt;
    /* result: number of the prompt's tokens that came from the prefix cache */
    int64_t n_shared;
    /* result: [WAY_OUT, n_vocab] logits of the output; NULL if not wanted */
    float *rows;
    /* result: [WAY_OUT] tokens of the output; NULL if not wanted */
    int32_t *tokens;
};

/* Generates an output with the settings `w` and returns its receipt as text,
 * which the caller frees. */
char *way_receipt(struct way_run *run, const struct way *w, unsigned flags);
/* Generates like way_receipt, in sequence 0, without other sequences. */
char *way_write(const struct engine_run *r, const struct way *w,
                unsigned flags);

/* Parses a receipt; fails the case if it is not valid. */
pl_receipt *way_parsed(const char *json);
/* Returns the result of pl_receipt_verify, whose status must be PL_OK. */
pl_receipt_result way_verified(const pl_receipt *r, pl_engine *e,
                               const pl_receipt_given *given);
/* Checks a receipt with a new engine, which has the options `o` and those that
 * the receipt requires. The receipt must hold. */
void way_holds(const pl_model *m, const char *json, pl_options o,
               const char *what);

#endif
