/* Between loop.c (who asks, and the thread) and loop_step.c (one step). */
#ifndef SERVER_LOOP_INNER_H
#define SERVER_LOOP_INNER_H

#include "loop.h"
#include "mask_worker.h"
#include "schedule.h"

#include <pthread.h>

enum task_state {
    TASK_WAITING,   /* for a sequence */
    TASK_RUNNING,   /* has one */
    TASK_PREEMPTED, /* gave its place; `saved` has what its sequence held */
};

/* A job from loop_add to its end. What `lock` guards is said; the rest is the
 * loop's thread's alone. */
struct task {
    uint64_t id;
    struct task_params
        task_params; /* prompt and sampling are not borrowed any more */
    pl_sampler *sampler;
    bool grammar_active; /* the sampler keeps to the job's grammar */
    enum task_state at;  /* guarded */
    enum client_state poll_client;
    int seq;       /* of TASK_RUNNING */
    int32_t *text; /* owned, [n_text]: the prompt, what was written */
    int64_t n_text, max_text;
    int64_t n_done; /* of them, computed: the length of its sequence */
    int64_t n_cached, n_written;
    int64_t n_shared; /* of n_cached, those that the devices had */
    bool counted;     /* n_cached, in the totals */
    void *saved;      /* owned, of TASK_PREEMPTED */
    size_t saved_bytes;
    double arrival_s, admitted_s,
        first_token_s;     /* seconds of the clock; wrote: first token */
    bool tiers_searched;   /* for more of its prompt in the tiers */
    double tiers_deadline; /* it waits for that no longer */
    struct tiers_lookup
        *search;  /* owned: what they have; NULL: none any more */
    int n_loaded; /* entries that its sequence has of that */
};

/* What a place had last. */
struct last {
    int32_t *token; /* owned, [n] */
    int64_t n;
};

/* Something to be done between two steps. */
struct loop_call {
    pl_status (*act)(void *user, pl_engine *e, pl_err *err);
    void *user;
    pl_err *err;
    pl_status status;
    bool done; /* guarded */
    struct loop_call *next;
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
    pthread_cond_t come;         /* there is something to do */
    pthread_cond_t done;         /* an errand is done */
    bool stops;                  /* guarded */
    struct loop_call *loop_call; /* guarded; a queue */
    bool is_lost;                /* guarded; a device has failed, */
    pl_err lost;                 /* guarded; with this */

    /* In the order in which they came. The loop's thread alone removes, and
     * moves nothing but under the lock. */
    struct task **task;         /* owned, [n_task]; guarded */
    int n_task, max_task;       /* more do not come, wherever those are */
    uint64_t last_id;           /* guarded */
    struct schedule schedule;   /* guarded */
    struct loop_counts counts;  /* guarded */
    struct loop_slot *slot;     /* owned, [n_seq]; guarded */
    struct last *last;          /* owned, [n_seq]; guarded */
    pl_device_counters *device; /* owned, [n_device]; guarded */
    int n_device;

    /* Of a step; owned. */
    struct task **run; /* [n_seq], who has a sequence, the oldest first */
    struct schedule_entry *plan; /* [n_seq] */
    int n_run;
    bool *taken;          /* [n_seq] sequences */
    uint64_t *client;     /* [max_task] */
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
bool loop_tiers_lookup(struct loop *l, struct task *w);
/* Does it still wait? Takes no lock. */
bool loop_tiers_is_pending(const struct loop *l, const struct task *w);
/* Its sequence has begun, with what the devices have. */
void loop_tiers_start(struct loop *l, struct task *w);
/* Does it take part in no step yet, since entries are left to be put? */
bool loop_tiers_is_loading(const struct task *w);
/* Puts entries of those who have some left, for a while; true: some are left
 * or were. */
bool loop_tiers_load(struct loop *l);
/* It gives its place: its sequence goes back to where it can go on. */
void loop_tiers_abort(struct loop *l, struct task *w);
/* Nothing more comes of them. */
void loop_tiers_cancel(struct loop *l, struct task *w);
/* Gives pages to the tiers for some seconds, one at least; true: it gave. */
bool loop_tiers_offload(struct loop *l, double seconds);
/* Is there something to give later? */
bool loop_tiers_backlogged(struct loop *l);

/* loop_slots.c: a job that had a place is about to go; takes its text. */
void loop_save_slot_tokens(struct loop *l, struct task *w);

/* What the engine counts, for those who ask the loop. */
void loop_read_counters(struct loop *l);
/* How many are there, now; with the lock held. */
int *loop_state_counter(struct loop *l, enum task_state at);
/* The last that a job hears; it is freed. err: of FINISH_ERROR. */
void loop_finish_task(struct loop *l, struct task *w, enum task_finish why,
                      const pl_err *err);
void loop_log(const struct loop *l, pl_log_level level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

#endif
