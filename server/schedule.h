/* Chooses what the next engine step computes: which tasks, and how many tokens
 * of each. Pure bookkeeping: it does not use the engine.
 *
 * Continuous batching with chunked prefill. Each decoding task gets one token
 * per step. While any task decodes, prompts share at most `chunk` tokens, which
 * bounds the inter-token latency. If none decodes, prompts get the whole step;
 * but if a prompt is completed in the step, the step ends at `chunk` tokens. So
 * the first token of that task does not wait for other prompts.
 *
 * Clients share by a virtual token counter (VTC, arXiv:2401.00588). The client
 * that was served the fewest tokens goes first, prompt and generated tokens
 * counted alike, and its oldest task before its others. A new or returning
 * client starts at the smallest counter present. No client counts as more than
 * 8 steps behind, so idle time cannot be saved up. */
#ifndef SERVER_SCHEDULE_H
#define SERVER_SCHEDULE_H

#include "pl.h"

/* A client that has tasks in the loop. */
struct schedule_client {
    uint64_t id;
    int64_t given; /* the client's virtual token counter: number of tokens that
                      it was served */
    int n_task;
};

struct schedule {
    struct schedule_client *client; /* owned, [n_client], sorted by id; clients
                                       without tasks are removed */
    int n_client, max_client;
    int64_t most;  /* the highest counter of any client so far */
    int64_t step;  /* most tokens per step */
    int64_t chunk; /* most prompt tokens per step while any task decodes */
};

/* A task that has a sequence. In arrays, the tasks are in order of arrival. */
struct schedule_entry {
    uint64_t client;
    int64_t n_left; /* prompt tokens not computed yet; 0 if it decodes */
    bool paused;    /* the task gets no tokens in this step */
    int64_t n_now;  /* output: number of tokens that the task gets in this
                       step */
};

void schedule_init(struct schedule *s, int64_t step, int64_t chunk);
void schedule_fini(struct schedule *s);
/* Count the tasks of a client. The first is called when a task is added, the
 * second when it has ended, even if it never ran. Errors: NO_MEMORY. */
pl_status schedule_add_task(struct schedule *s, uint64_t client, pl_err *err);
void schedule_remove_task(struct schedule *s, uint64_t client);
/* Plans a step: sets n_now of all n entries and adds these tokens to their
 * clients' counters. Returns the number of tokens of the step. */
int64_t schedule_step(struct schedule *s, struct schedule_entry *entry, int n);
/* Returns the index of the waiting task that gets the next free sequence; -1 if
 * n is 0. client[i] is the client of waiting task i; the oldest is first. */
int schedule_next(const struct schedule *s, const uint64_t *client, int n);
/* Returns the index of the running task to preempt when pages run out: the
 * newest task of the client that was served most; -1 if n is 0. client[i] is
 * the client of running task i; the oldest is first. */
int schedule_victim(const struct schedule *s, const uint64_t *client, int n);

#endif
