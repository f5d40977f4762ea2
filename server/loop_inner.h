/* Shared by loop.c (calls and the thread), loop_step.c (one step), loop_slots.c
 * and loop_tiers.c. */
#ifndef SERVER_LOOP_INNER_H
#define SERVER_LOOP_INNER_H

#include "loop.h"
#include "mask_worker.h"
#include "schedule.h"

#include <pthread.h>

enum task_state {
    TASK_WAITING,   /* for a sequence */
    TASK_RUNNING,   /* has one */
    TASK_PREEMPTED, /* `saved` has what its sequence held */
};

/* A task from loop_add to its end. Members guarded by `lock` are marked; all
 * others belong to the loop's thread. */
struct task {
    uint64_t id;
    /* prompt and sampling are NULL here: copied */
    struct task_params params;
    pl_sampler *sampler;
    bool grammar_active; /* the sampler applies the task's grammar */
    enum task_state at;  /* guarded */
    enum client_state client_state;
    int seq;       /* if TASK_RUNNING */
    int32_t *text; /* owned, [n_text]: prompt and generated tokens */
    int64_t n_text, max_text;
    int64_t n_done; /* tokens computed: the sequence's length */
    int64_t n_cached, n_written;
    int64_t n_shared; /* of n_cached, those found on the devices */
    bool counted;     /* n_cached is in the totals */
    void *saved;      /* owned, if TASK_PREEMPTED */
    size_t saved_bytes;
    double arrival_s, admitted_s, first_token_s; /* by loop_now; 0: not yet */
    bool tiers_searched;   /* its prompt was looked up in the tiers */
    double tiers_deadline; /* when it stops waiting for them */
    /* owned: the tier lookup; NULL: none, or over */
    struct tiers_lookup *search;
    int n_loaded; /* entries of it that its sequence has */
};

/* The tokens that a slot had last. */
struct last {
    int32_t *token; /* owned, [n] */
    int64_t n;
};

/* A call to make between two steps. */
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
    float *end_logit; /* owned, [n_end]: their logits while they are masked */
    int n_end;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;         /* there is something to do */
    pthread_cond_t done;         /* a call has returned */
    bool stops;                  /* guarded */
    struct loop_call *loop_call; /* guarded; a queue */
    bool is_lost;                /* guarded; a device has failed */
    pl_err lost;                 /* guarded; its error */

    /* In order of arrival. Only the loop's thread removes tasks, and it moves
     * them only under the lock. */
    struct task **task;         /* owned, [n_task]; guarded */
    int n_task, max_task;       /* most tasks at once, in all states */
    uint64_t last_id;           /* guarded */
    struct schedule schedule;   /* guarded */
    struct loop_counts counts;  /* guarded */
    struct loop_slot *slot;     /* owned, [n_seq]; guarded */
    struct last *last;          /* owned, [n_seq]; guarded */
    pl_device_counters *device; /* owned, [n_device]; guarded */
    int n_device;

    /* For one step; owned. */
    struct task **run;           /* [n_seq], running tasks, the oldest first */
    struct schedule_entry *plan; /* [n_seq] */
    int n_run;
    bool *taken;          /* [n_seq], sequences in use */
    uint64_t *client;     /* [max_task] */
    int32_t *token, *seq; /* [max_batch] */
    uint8_t *wanted;
    int64_t max_batch;
    struct ahead ahead; /* for tasks with an active grammar */
    float *logits;      /* [n_seq, n_vocab] */
    int32_t *path;      /* owned, [n_ctx], tokens of a page being stored in the
                           tiers */
    float *row;         /* [max_batch, d_model]; NULL: the engine keeps none */
    bool *rows;         /* [n_seq], for `run`: it returns rows */
};

/* Runs one step: admits tasks, computes, calls back. Returns false if there is
 * nothing to do but wait. */
bool loop_step(struct loop *l);

/* loop_tiers.c. All of these do nothing without tiers. */

/* Starts a lookup of a waiting task's prompt in the tiers. Returns true if the
 * task has to wait for the result. */
bool loop_tiers_lookup(struct loop *l, struct task *w);
/* Returns true while the lookup is being waited for. Takes no lock. */
bool loop_tiers_is_pending(const struct loop *l, const struct task *w);
/* Starts loading once the task's sequence has what the devices have. */
void loop_tiers_start(struct loop *l, struct task *w);
/* Returns true while pages from the tiers are still being loaded; the task is
 * left out of steps until then. */
bool loop_tiers_is_loading(const struct task *w);
/* Loads entries for a limited time. Returns true if it loaded any, or some are
 * left. */
bool loop_tiers_load(struct loop *l);
/* Ends loading because the task is preempted; its sequence is trimmed to where
 * it can resume. */
void loop_tiers_abort(struct loop *l, struct task *w);
/* Drops the task's lookup. */
void loop_tiers_cancel(struct loop *l, struct task *w);
/* Copies pages to the tiers for some seconds, at least one page. Returns true
 * if it copied any. */
bool loop_tiers_offload(struct loop *l, double seconds);
/* Returns true if pages have to wait because the tiers are full. */
bool loop_tiers_backlogged(struct loop *l);

/* loop_slots.c. Remembers the tokens of a task that leaves its slot; takes over
 * its text. */
void loop_save_slot_tokens(struct loop *l, struct task *w);

/* Copies the engine's counters for callers on other threads. */
void loop_read_counters(struct loop *l);
/* Returns the counter of tasks in a state. Caller holds the lock. */
int *loop_state_counter(struct loop *l, enum task_state at);
/* Removes a task, frees it and calls its `end`. err: for FINISH_ERROR. */
void loop_finish_task(struct loop *l, struct task *w, enum task_finish why,
                      const pl_err *err);
void loop_log(const struct loop *l, pl_log_level level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

#endif
