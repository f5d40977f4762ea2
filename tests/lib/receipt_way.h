/* Shared by tests of receipts: ways to generate a few tokens, each with other
 * settings, grammars and interventions, and the receipts that they give. */
#ifndef TEST_RECEIPT_WAY_H
#define TEST_RECEIPT_WAY_H

#include "lib/engine_run.h"

#include "pl_receipt.h"

enum { WAY_OUT = 12, WAY_FORCED = 4, N_WAY = 11 };

/* A way to generate WAY_OUT tokens. */
struct way {
    const char *name;
    pl_sampling s;
    bool no_eog;
    bool forces;         /* the caller chooses token WAY_FORCED */
    const char *grammar; /* GBNF, or NULL */
    int grammar_from;    /* index of the first token to which it applies */
};

/* Returns way i of N_WAY. */
struct way way(int i);

/* The prompt that is used where none is given. */
enum { WAY_PROMPT = 7 };
extern const int32_t way_prompt[WAY_PROMPT];

/* The circumstances of a generation, which decide no bit. */
struct way_run {
    const struct engine_run *r;
    int seq;
    bool company;          /* other sequences are decoded in the same steps */
    const int32_t *prompt; /* [n_prompt]; NULL for way_prompt */
    int n_prompt;
    int64_t n_shared; /* result: tokens of a cached prefix */
    float *rows;      /* result [WAY_OUT, n_vocab] the logits, or NULL */
    int32_t *tokens;  /* result [WAY_OUT], or NULL */
};

/* Generates, and returns the receipt's text, which the caller frees. */
char *way_receipt(struct way_run *run, const struct way *w, unsigned flags);
/* The same in sequence 0, without company. */
char *way_write(const struct engine_run *r, const struct way *w,
                unsigned flags);

/* Parses a receipt that must be valid. */
pl_receipt *way_parsed(const char *json);
/* Checks it. The call must succeed. */
pl_receipt_result way_verified(const pl_receipt *r, pl_engine *e,
                               const pl_receipt_given *given);
/* Checks a receipt that must hold on an engine of its own with the options `o`
 * and those that the receipt requires. */
void way_holds(const pl_model *m, const char *json, pl_options o,
               const char *what);

#endif
