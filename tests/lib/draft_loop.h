/* Loops whose tasks generate text with drafts, for tests that compare it with
 * the text without. The drafts come from the model's block, a draft model,
 * n-grams, or from an oracle, which knows the plain texts. */
#ifndef TEST_DRAFT_LOOP_H
#define TEST_DRAFT_LOOP_H

#include "lib/support.h"
#include "server/loop.h"

#include <stdatomic.h>

enum { MOST_TASK = 8, MOST_TOKEN = 1024 };

/* The quality of an oracle's drafts; MIXED ones are right at three of four
 * tokens. */
enum quality { RIGHT, WRONG, MIXED, N_QUALITY };

/* A task: its prompt, its end, and the tokens that it generated. */
struct told {
    struct oracle *of;
    int32_t text[MOST_TOKEN]; /* the prompt and the generated tokens */
    int n_prompt, n;
    uint32_t sum[MOST_TOKEN]; /* sums of the logits' bits */
    int most, leave;          /* tokens after which it stops; disconnects */
    bool forced;              /* some tokens are forced */
    _Atomic enum client_state state;
    struct task_report report;
    atomic_int n_end;
};

/* The source of drafts, and what it knows. */
struct oracle {
    const struct told *plain; /* [n]; NULL if nothing is known */
    int n;
    enum quality quality;
    uint64_t seed;
    int64_t n_vocab;
    int32_t eog; /* a token that ends a text */
};

/* A model with an engine, on which loops run one after another. */
struct place {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *t;
    struct oracle oracle;
    struct loop *loop;
    pl_drafter *drafter;
    /* Limits of drafts; sources 0 chooses the block if there is one, else the
     * draft model, else the oracle. */
    pl_draft_limits limits;
    int n_gram; /* length of the n-grams that are looked up; 0 for 12 */
    /* A draft model; NULL without one. */
    pl_model *draft_model;
    pl_engine *draft_engine;
    /* The model's block for multi-token prediction; NULL without one. */
    pl_engine *block;
    uint64_t n_drafted, n_accepted, n_preemptions;
};

/* Returns options of an engine for MOST_TASK tasks. */
pl_options place_options(int64_t n_ctx);
void place_open(struct place *p, const char *file, pl_options o, bool block);
void place_open_draft_model(struct place *p, const char *file, int64_t n_ctx);
void place_close(struct place *p);
/* Starts a loop, whose steps have drafts if `drafts`. */
void place_start(struct place *p, int n_seq, bool drafts);
/* Ends the loop and adds its counters. */
void place_stop(struct place *p);
/* Adds a task, whose prompt and parameters are set, with these settings. */
void place_add_task(struct place *p, struct told *t, const pl_sampling *how,
                    struct task_params params);
/* Adds task i, whose prompt and seed depend on i alone. Even tasks are
 * greedy. */
void place_add(struct place *p, struct told *t, int i, int n_prompt,
               struct task_params params);
/* Fails unless drafted tokens were accepted and rejected. */
void place_expect_both(const struct place *p);

void told_wait(const struct told *t);
void told_expect_same(const struct told *a, const struct told *b);

#endif
