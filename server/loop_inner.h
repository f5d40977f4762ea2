/* Shared by loop.c (the thread, and functions for other threads), loop_step.c
 * (one step), loop_slots.c (tokens of slots) and loop_tiers.c (cache tiers). */
#ifndef SERVER_LOOP_INNER_H
#define SERVER_LOOP_INNER_H

#include "loop.h"
#include "mask_worker.h"
#include "schedule.h"

#include <pthread.h>

enum task_state {
    TASK_WAITING,   /* waits for a sequence */
    TASK_RUNNING,   /* has a sequence */
    TASK_PREEMPTED, /* has no sequence; its state is in `saved` */
};

/* A task, from loop_add to its end. Members marked "guarded" are accessed with
 * loop.lock held; all others belong to the loop's thread. */
struct task {
    uint64_t id;
    /* params.prompt and params.sampling are NULL; `text` and `sampler` were
     * made of them */
    struct task_params params;
    pl_sampler *sampler;
    pl_receipt *receipt; /* owned; records `sampler`; NULL if none */
    bool grammar_active; /* the sampler constrains tokens by params.grammar */
    enum task_state at;  /* guarded */
    enum client_state client_state;
    int seq;       /* its sequence, if TASK_RUNNING */
    int32_t *text; /* owned, [n_text]: prompt and generated tokens */
    int64_t n_text, max_text;
    int64_t n_done; /* number of tokens of `text` that are computed or loaded;
                       the length of its sequence */
    int64_t n_cached, n_written;
    int64_t n_shared; /* the part of n_cached that was found on the devices; the
                         rest was loaded from a tier */
    bool counted;     /* n_cached was added to loop_counts */
    bool started;     /* the listener was told that the first step of the prompt
                         begins */
    int64_t n_told;   /* number of prompt tokens whose logits were passed to the
                         listener */
    void *saved;      /* owned; the saved state of a TASK_PREEMPTED, else
                         NULL */
    size_t saved_bytes;
    double arrival_s, admitted_s, first_token_s; /* times by loop_now; 0 if not
                                                    reached */
    bool tiers_searched;   /* its prompt was looked up in the tiers */
    double tiers_deadline; /* time by loop_now at which it stops waiting for the
                              lookup, or for the next page */
    /* The lookup of its prompt in the tiers; owned; NULL if there is none, or
     * once its pages are loaded. */
    struct tiers_lookup *search;
    int n_loaded; /* number of pages of the lookup's result that its sequence
                     contains */
};

/* The tokens remembered for a slot (loop_slot_tokens). */
struct last {
    int32_t *token; /* owned, [n] */
    int64_t n;
};

/* A queued call of loop_run_between_steps. */
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

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;         /* signalled when the loop's thread has
                                    something to do */
    pthread_cond_t done;         /* signalled when a loop_call is done */
    bool stops;                  /* guarded */
    struct loop_call *loop_call; /* guarded; queue of calls */
    bool is_lost;                /* guarded; a device has failed */
    pl_err lost;                 /* guarded; the error, if is_lost */

    /* All tasks in order of arrival. Only the loop's thread removes tasks, and
     * only with the lock held. */
    struct task **task;         /* owned, [n_task]; guarded */
    int n_task, max_task;       /* max_task: limit of waiting, running and
                                   preempted tasks together */
    uint64_t last_id;           /* guarded */
    struct schedule schedule;   /* guarded */
    struct loop_counts counts;  /* guarded */
    struct loop_slot *slot;     /* owned, [n_seq]; guarded */
    struct last *last;          /* owned, [n_seq]; guarded */
    pl_device_counters *device; /* owned, [n_device]; guarded */
    int n_device;

    /* Buffers for one step; owned. */
    struct task **run;           /* [n_seq]: the n_run running tasks, oldest
                                    first */
    struct schedule_entry *plan; /* [n_seq] */
    int n_run;
    bool *taken;          /* [n_seq]: true if the sequence is in use */
    uint64_t *client;     /* [max_task]: scratch memory for the clients of
                             tasks */
    int32_t *token, *seq; /* [max_batch] */
    uint8_t *wanted;
    int64_t max_batch;
    struct ahead ahead; /* computes masks of tasks with an active grammar */
    float *logits;      /* [n_seq + max_rows][n_vocab] */
    int64_t max_rows;   /* limit of the logits of prompts in a step, in rows of
                           n_vocab; at least n_seq */
    int32_t *path;      /* [n_ctx]: the tokens of a prefix, up to the end of the
                           page that is being copied to the tiers */
    float *row;         /* [max_batch][d_model]: the rows of a step; NULL if the
                           engine keeps none */
    bool *rows;         /* [n_seq]: true if task run[i] returns rows */
};

/* Runs one step: admits tasks, computes, and calls the callbacks. Returns false
 * if nothing was done, so the thread may sleep. */
bool loop_step(struct loop *l);

/* ---- loop_tiers.c: functions that do nothing without tiers --------------- */

/* Starts looking up a waiting task's prompt in the tiers, at most once per
 * task. Returns true if the task has to wait for the result. */
bool loop_tiers_lookup(struct loop *l, struct task *w);
/* Returns true while a task waits for the result of its lookup. Takes no
 * lock. */
bool loop_tiers_is_pending(const struct loop *l, const struct task *w);
/* Starts loading the pages that the lookup found. Called after pl_seq_share has
 * given the task's sequence the cached prefix that is on the devices. */
void loop_tiers_start(struct loop *l, struct task *w);
/* Returns true while a task's pages are being loaded from the tiers. Meanwhile
 * the task takes part in no steps. */
bool loop_tiers_is_loading(const struct task *w);
/* Loads pages of all tasks that wait for some, for a limited time. Returns true
 * if it loaded any. */
bool loop_tiers_load(struct loop *l);
/* Ends loading because the task will be preempted. Trims its sequence to a
 * length at which it can continue. */
void loop_tiers_abort(struct loop *l, struct task *w);
/* Frees the task's lookup, if there is one. */
void loop_tiers_cancel(struct loop *l, struct task *w);
/* Copies cached pages to the tiers for `seconds`, but at least one page if the
 * tiers have space. Returns true if it copied any. */
bool loop_tiers_offload(struct loop *l, double seconds);
/* Returns true if there are tiers and they take no pages for now. */
bool loop_tiers_backlogged(struct loop *l);

/* Remembers the tokens of a task that leaves its slot, and takes ownership of
 * w->text. Does neither if no tokens were computed, or if the task has
 * params.keep. In loop_slots.c. */
void loop_save_slot_tokens(struct loop *l, struct task *w);

/* Copies the engine's counters to loop_counts, where other threads can read
 * them. */
void loop_read_counters(struct loop *l);
/* Returns the counter in loop_counts of tasks in state `at`. Caller holds the
 * lock. */
int *loop_state_counter(struct loop *l, enum task_state at);
/* Removes a task from the loop, frees it and calls its `end` callback. `err` is
 * the error for FINISH_ERROR, else NULL. */
void loop_finish_task(struct loop *l, struct task *w, enum task_finish why,
                      const pl_err *err);
void loop_log(const struct loop *l, pl_log_level level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

#endif
