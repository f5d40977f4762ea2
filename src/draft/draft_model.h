/* Drafts of a draft model: a small model with the vocabulary of the large one.
 * Its engine has a sequence for each text. It computes what the text has grown
 * by since the last draft, and then, token by token, the tokens that it finds
 * the most probable. The texts of a call share the steps of the engine.
 *
 * A long text is read over several calls, before its first draft. */
#ifndef DRAFT_MODEL_H
#define DRAFT_MODEL_H

#include "draft/draft_cost.h"

struct model_text;

struct draft_model {
    pl_engine *engine;         /* borrowed; NULL if there is no draft model */
    int64_t n_vocab;           /* of the draft model */
    int64_t n_known;           /* tokens from this one on are not drafted */
    int n_seq;                 /* number of texts */
    struct model_text *text;   /* owned, [n_seq] */
    struct cost_times times;   /* times of the engine's steps, by the number of
                                  tokens */
    int64_t wall_ns, count_ns; /* time of the last call; the part of it that
                                  counts as spent on drafts: reading a text for
                                  the first time does not */
    /* The batch; owned. [cap] tokens, [n_seq] rows of logits. */
    int32_t *token, *seq;
    uint8_t *wanted;
    float *logits;
    int64_t cap;
};

/* A draft: its text as in pl_draft, and the tokens. */
struct model_draft {
    int seq;
    const int32_t *text; /* [n_text] */
    int64_t n_text;
    int n_most;     /* tokens to draft */
    float p_min;    /* a draft ends before a less probable token */
    int32_t *token; /* result, [n_most] */
    int32_t *sure;  /* result, [n_most]: probabilities of the tokens if p_min is
                       above 0, else 1; times CHANCE_ONE */
    int n;          /* result */
    int of;         /* the caller's number of the draft, because the call
                       changes the order */
    int row;        /* scratch: row of its logits; -1 if it has none */
};

/* Initializes *m for n_seq texts. The engine must have as many sequences, which
 * are empty, and `n_vocab` tokens. Tokens from n_known on are not drafted. The
 * caller calls draft_model_fini in all cases. */
pl_status draft_model_init(struct draft_model *m, pl_engine *engine,
                           int64_t n_vocab, int64_t n_known, int n_seq,
                           pl_err *err);
void draft_model_fini(struct draft_model *m);
/* Drafts n texts. A text that is not read yet, or that does not fit in the
 * engine's cache, gets no draft. On failure no text does; PL_NO_MEMORY may
 * pass, other statuses are those of an engine that failed. */
pl_status draft_model_propose(struct draft_model *m, struct model_draft *d,
                              int n, pl_err *err);
/* Empties the sequence of a text. */
void draft_model_forget(struct draft_model *m, int seq);

/* Returns the most probable token. Sets *sure to its probability times
 * CHANCE_ONE, or to CHANCE_ONE if it is not `wanted`. */
int32_t draft_pick(const float *logits, int64_t n, bool wanted, int32_t *sure);
/* Returns the time of a clock that does not go back, in nanoseconds. */
int64_t draft_now_ns(void);

#endif
