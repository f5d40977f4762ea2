/* Between loop.c (who asks, and the thread) and loop_step.c (one step). */
#ifndef SERVER_LOOP_INNER_H
#define SERVER_LOOP_INNER_H

#include "ahead.h"
#include "loop.h"
#include "schedule.h"

#include <pthread.h>

enum work_at {
    WORK_WAITS, /* for a sequence */
    WORK_RUNS,  /* has one */
    WORK_AWAY,  /* gave its place; `saved` has what its sequence held */
};

/* A job from loop_add to its end. What `lock` guards is said; the rest is the
 * loop's thread's alone. */
struct work {
    uint64_t id;
    struct job job; /* prompt and sampling are not borrowed any more */
    pl_sampler *sampler;
    bool held;       /* the sampler keeps to the job's grammar */
    enum work_at at; /* guarded */
    enum job_wish wish;
    int seq;       /* of WORK_RUNS */
    int32_t *text; /* owned, [n_text]: the prompt, what was written */
    int64_t n_text, max_text;
    int64_t n_done; /* of them, computed: the length of its sequence */
    int64_t n_cached, n_written;
    int64_t n_shared; /* of n_cached, those that the devices had */
    bool counted;     /* n_cached, in the totals */
    void *saved;      /* owned, of WORK_AWAY */
    size_t saved_bytes;
    double came, began, wrote; /* seconds of the clock; wrote: first token */
    bool looked;               /* for more of its prompt in the tiers */
    double look_end;           /* it waits for that no longer */
    struct tiers_search
        *search; /* owned: what they have; NULL: none any more */
    int n_put;   /* entries that its sequence has of that */
};

/* What a place had last. */
struct last {
    int32_t *token; /* owned, [n] */
    int64_t n;
};

/* Something to be done between two steps. */
struct errand {
    pl_status (*act)(void *user, pl_engine *e, pl_err *err);
    void *user;
    pl_err *err;
    pl_status status;
    bool done; /* guarded */
    struct errand *next;
};

struct loop {
    pl_engine *e;          /* borrowed */
    const pl_tokenizer *t; /* borrowed */
    struct loop_options o;
    int64_t n_ctx, n_vocab;
    int32_t *end;     /* owned, [n_end]: the tokens that end a text */
    float *end_logit; /* owned, [n_end]: theirs, while they may not come */
    int n_end;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t come;   /* there is something to do */
    pthread_cond_t done;   /* an errand is done */
    bool stops;            /* guarded */
    struct errand *errand; /* guarded; a queue */
    bool is_lost;          /* guarded; a device has failed, */
    pl_err lost;           /* guarded; with this */

    /* In the order in which they came. The loop's thread alone removes, and
     * moves nothing but under the lock. */
    struct work **work;         /* owned, [n_work]; guarded */
    int n_work, max_work;       /* more do not come, wherever those are */
    uint64_t last_id;           /* guarded */
    struct schedule schedule;   /* guarded */
    struct loop_counts counts;  /* guarded */
    struct loop_slot *slot;     /* owned, [n_seq]; guarded */
    struct last *last;          /* owned, [n_seq]; guarded */
    pl_device_counters *device; /* owned, [n_device]; guarded */
    int n_device;

    /* Of a step; owned. */
    struct work **run; /* [n_seq], who has a sequence, the oldest first */
    struct schedule_job *plan; /* [n_seq] */
    int n_run;
    bool *taken;          /* [n_seq] sequences */
    uint64_t *client;     /* [max_work] */
    int32_t *token, *seq; /* [max_batch] */
    uint8_t *wanted;
    int64_t max_batch;
    struct ahead ahead; /* of those who write by a grammar */
    float *logits;      /* [n_seq, n_vocab] */
    int32_t *path;      /* owned, [n_ctx] tokens of a page that is given */
    float *row;         /* [max_batch, d_model]; NULL: nobody asks */
    bool *rows;         /* [n_seq], of `run`: it tells rows */
};

/* One step: gives free places, computes, tells. False: there is nothing to do
 * but to wait. */
bool loop_step(struct loop *l);

/* loop_tiers.c: all of them do nothing where there are no tiers. */

/* Looks for more of a waiting job's prompt than the devices have. True: it
 * waits until that is known. */
bool loop_tiers_look(struct loop *l, struct work *w);
/* Does it still wait? Takes no lock. */
bool loop_tiers_waits(const struct loop *l, const struct work *w);
/* Its sequence has begun, with what the devices have. */
void loop_tiers_begin(struct loop *l, struct work *w);
/* Does it take part in no step yet, since entries are left to be put? */
bool loop_tiers_puts(const struct work *w);
/* Puts entries of those who have some left, for a while; true: some are left
 * or were. */
bool loop_tiers_put(struct loop *l);
/* It gives its place: its sequence goes back to where it can go on. */
void loop_tiers_stop(struct loop *l, struct work *w);
/* Nothing more comes of them. */
void loop_tiers_leave(struct loop *l, struct work *w);
/* Gives pages to the tiers for some seconds, one at least; true: it gave. */
bool loop_tiers_give(struct loop *l, double seconds);
/* Is there something to give later? */
bool loop_tiers_owe(struct loop *l);

/* loop_slots.c: a job that had a place is about to go; takes its text. */
void loop_remember(struct loop *l, struct work *w);

/* What the engine counts, for those who ask the loop. */
void loop_look(struct loop *l);
/* How many are there, now; with the lock held. */
int *loop_count_of(struct loop *l, enum work_at at);
/* The last that a job hears; it is freed. err: of JOB_FAILED. */
void loop_end_work(struct loop *l, struct work *w, enum job_end why,
                   const pl_err *err);
void loop_say(const struct loop *l, pl_log_level level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

#endif
