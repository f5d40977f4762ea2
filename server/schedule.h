/* Chooses the tasks of the next engine step and the number of tokens of each.
 * This code only does bookkeeping; it does not use the engine.
 *
 * Continuous batching with chunked prefill. Each decoding task gets one token
 * per step. While any task decodes, prompts share at most `chunk` tokens, which
 * bounds the inter-token latency. If none decodes, prompts get the whole step;
 * but if a prompt is completed in the step, the step ends at `chunk` tokens. So
 * the first token of that task does not wait for other prompts.
 *
 * The engine's time is shared among clients by a virtual token counter for each
 * client (VTC, arXiv:2401.00588). It counts the tokens that the client was
 * served, of prompts and of output alike. The client with the smallest counter
 * is served first, and its oldest task before its others. The counter of a new
 * or returning client starts at the smallest counter of all present clients. No
 * counter counts as more than 8 steps of tokens below the highest, so that a
 * client gains nothing by being idle. */
#ifndef SERVER_SCHEDULE_H
#define SERVER_SCHEDULE_H

#include "pl.h"

/* A client that has tasks in the loop, waiting or running. */
struct schedule_client {
    uint64_t id;
    /* The client's virtual token counter: the number of tokens that it was
     * served. */
    int64_t given;
    int n_task;
};

struct schedule {
    /* The clients, [n_client], sorted by id; owned; a client without tasks is
     * removed. */
    struct schedule_client *client;
    int n_client, max_client;
    /* The highest virtual token counter of any client so far, in tokens. */
    int64_t most;
    int64_t step; /* limit of the tokens per step */
    /* Limit of the prompt tokens per step while any task decodes. */
    int64_t chunk;
    /* Prompts are computed whole in one step, as encoders need it. Then no task
     * decodes, and `chunk` is not used. */
    bool whole;
};

/* A running task, for schedule_step. In arrays of these, the tasks are in order
 * of arrival. */
struct schedule_entry {
    uint64_t client;
    /* Number of prompt tokens not computed yet; 0 if the task decodes. */
    int64_t n_left;
    bool paused; /* the task must get no tokens in this step */
    /* Result of schedule_step: number of tokens that the task gets in this
     * step. */
    int64_t n_now;
};

void schedule_init(struct schedule *s, int64_t step, int64_t chunk);
void schedule_fini(struct schedule *s);
/* Count the tasks of a client. schedule_add_task is called when a task is
 * added, schedule_remove_task when it has ended, even if it never ran. Errors:
 * NO_MEMORY. */
pl_status schedule_add_task(struct schedule *s, uint64_t client, pl_err *err);
void schedule_remove_task(struct schedule *s, uint64_t client);
/* Plans a step: sets n_now of the n tasks entry[], and adds these numbers of
 * tokens to the counters of their clients. Returns the number of tokens of the
 * step. */
int64_t schedule_step(struct schedule *s, struct schedule_entry *entry, int n);
/* Counts n more tokens of a step as served to a client. */
void schedule_charge(struct schedule *s, uint64_t client, int64_t n);
/* Returns the index of the waiting task that gets the next free sequence; -1 if
 * n is 0. client[i] is the client of waiting task i; the tasks are in order of
 * arrival. */
int schedule_next(const struct schedule *s, const uint64_t *client, int n);
/* Returns the index of the running task to preempt when the cache is out of
 * pages: the newest task of the client that was served the most tokens; -1 if n
 * is 0. client[i] is the client of running task i; the tasks are in order of
 * arrival. */
int schedule_victim(const struct schedule *s, const uint64_t *client, int n);

#endif
