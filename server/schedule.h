/* Chooses what the next engine step computes: which tasks, and how many tokens
 * of each. Pure bookkeeping: it knows no engine.
 *
 * Continuous batching with chunked prefill. Each decoding task gets one token
 * per step. While any task decodes, prompts share at most `chunk` tokens, which
 * bounds the inter-token latency. If none decodes, prompts get the whole step;
 * once one of them ends in it, the step stops at `chunk` tokens, so that its
 * first token does not wait for other prompts.
 *
 * Clients share by a virtual token counter (VTC, arXiv:2401.00588). The client
 * that was served the fewest tokens goes first, prompt and generated tokens
 * counted alike, and its oldest task before its others. A new or returning
 * client starts at the smallest counter present. No client counts as more than
 * 8 steps behind, so idle time cannot be saved up. */
#ifndef SERVER_SCHEDULE_H
#define SERVER_SCHEDULE_H

#include "pl.h"

/* A client that has tasks. */
struct schedule_client {
    uint64_t id;
    int64_t given; /* tokens served */
    int n_task;
};

struct schedule {
    struct schedule_client *client; /* owned, [n_client], sorted by id; a client
                                       without tasks is removed */
    int n_client, max_client;
    int64_t most;  /* the highest counter that any client reached */
    int64_t step;  /* most tokens of a step */
    int64_t chunk; /* most prompt tokens while others decode */
};

/* A task that has a sequence; tasks are in order of arrival. */
struct schedule_entry {
    uint64_t client;
    int64_t n_left; /* prompt tokens not computed yet; 0: it decodes */
    bool paused;    /* left out of this step */
    int64_t n_now;  /* out: its tokens in this step */
};

void schedule_init(struct schedule *s, int64_t step, int64_t chunk);
void schedule_fini(struct schedule *s);
/* Count a client's task on arrival and at its end, whether or not it ever
 * ran. */
pl_status schedule_add_task(struct schedule *s, uint64_t client, pl_err *err);
void schedule_remove_task(struct schedule *s, uint64_t client);
/* Sets n_now of all, charges it to their clients, and returns the tokens of the
 * step. */
int64_t schedule_step(struct schedule *s, struct schedule_entry *entry, int n);
/* Returns which of n waiting tasks, the oldest first, gets the next free
 * sequence; -1 if n is 0. */
int schedule_next(const struct schedule *s, const uint64_t *client, int n);
/* Returns which of n tasks, the oldest first, is preempted when pages run out:
 * the newest of the client served most; -1 if n is 0. */
int schedule_victim(const struct schedule *s, const uint64_t *client, int n);

#endif
