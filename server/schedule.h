/* What the next step of an engine computes: which jobs, how many tokens of
 * each. Numbers only, no engine.
 *
 * Every job that writes gets its token in every step. Beside them prompts get
 * at most `chunk` tokens, so that nobody who writes waits for longer than a
 * chunk takes; where nobody writes they get the whole step, or a chunk and no
 * more if a prompt ends in it, whose first token then waits for no other's
 * prompt. Among prompts the
 * client goes first that was given least so far, and of a client's jobs the
 * oldest. What a client was given is counted in tokens, those of prompts and
 * written ones alike; a client that comes back, or is new, begins where the
 * least of those stands who are there, and nobody counts as further behind than
 * 8 steps, so that nobody saves up: not by being away, nor by pausing, nor by
 * writing for long while others' prompts are read. */
#ifndef SERVER_SCHEDULE_H
#define SERVER_SCHEDULE_H

#include "pl.h"

/* A client that has jobs. */
struct schedule_client {
    uint64_t id;
    int64_t given; /* tokens */
    int n_task;
};

struct schedule {
    struct schedule_client *client; /* owned, [n_client] by id; those that left
                                       are not kept */
    int n_client, max_client;
    int64_t most;  /* that a client was ever given */
    int64_t step;  /* most tokens of a step */
    int64_t chunk; /* most of prompts, where others write */
};

/* A job that has a sequence, in the order in which they came. */
struct schedule_entry {
    uint64_t client;
    int64_t n_left; /* tokens of its prompt that are not computed yet; 0: it
                        writes */
    bool paused;    /* takes part in no step for now */
    int64_t n_now;  /* out: tokens that it has in this step */
};

void schedule_init(struct schedule *s, int64_t step, int64_t chunk);
void schedule_fini(struct schedule *s);
/* A job of a client has come or has ended, whether or not it ever ran. */
pl_status schedule_add_task(struct schedule *s, uint64_t client, pl_err *err);
void schedule_remove_task(struct schedule *s, uint64_t client);
/* Sets n_now of all, and counts it; how many tokens the step has. */
int64_t schedule_step(struct schedule *s, struct schedule_entry *job, int n);
/* Which of n waiting jobs, the oldest first, is to have the next free sequence;
 * -1: n is 0. */
int schedule_next(const struct schedule *s, const uint64_t *client, int n);
/* Which of n jobs, the oldest first, gives its place when memory is short: the
 * newest of the client that was given most; -1: n is 0. */
int schedule_victim(const struct schedule *s, const uint64_t *client, int n);

#endif
