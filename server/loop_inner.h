/* Shared by the files of the engine loop: loop.c (the thread, and functions for
 * other threads), loop_step.c (one step), loop_slots.c (tokens remembered for
 * slots) and loop_tiers.c (cache tiers). */
#ifndef SERVER_LOOP_INNER_H
#define SERVER_LOOP_INNER_H

#include "clock.h"
#include "fail.h"
#include "loop.h"
#include "mask_worker.h"
#include "schedule.h"

#include <pthread.h>
#include <stdatomic.h>

/* The states of a task. Only loop_set_state changes them, and only along these
 * edges (loop_edges in loop.c):
 *
 *   loop_add --> WAITING ---> LOOKING ---> LOADING
 *                   ^            |            |
 *                   v            v            |
 *                PREFILL <-------+------------+
 *                 ^   ^
 *                 |   +-----------+
 *                 v               v
 *              DECODING <---> PREEMPTED        all states ---> ENDED
 *
 * A task that is preempted before any of its tokens was computed waits again.
 * After a failed step, the tokens of a decoding task may have to be computed
 * again. */
enum task_state {
    TASK_WAITING,   /* the task waits for a sequence of the engine */
    TASK_LOOKING,   /* its prompt is looked up in the tiers; it waits, too */
    TASK_PREEMPTED, /* the task has no sequence; its state is in task.saved */
    /* In these states the task has a sequence of the engine (loop_has_slot). */
    TASK_LOADING,  /* pages of its prompt are being loaded from the tiers */
    TASK_PREFILL,  /* its prompt is being computed */
    TASK_DECODING, /* each step computes its last token, and drafted ones */
    TASK_ENDED,    /* the task is about to be freed */
    N_TASK_STATE
};

/* A task, from loop_add to its end. Members marked "guarded" are accessed with
 * loop.lock held; all others belong to the loop's thread. */
struct task {
    uint64_t id;
    /* The parameters of loop_add. In this copy `prompt` and `sampling` are
     * NULL, because the members `text` and `sampler` replace them. */
    struct task_params params;
    pl_sampler *sampler;
    /* Receipt of the output, recorded by `sampler`; owned; NULL if none. */
    pl_receipt *receipt;
    /* params.grammar constrains the tokens that `sampler` samples. */
    bool grammar_active;
    enum task_state at;
    enum client_state client_state;
    int seq; /* index of the task's sequence in the engine, if it has one */
    /* Tokens of the prompt and generated tokens; owned, [n_text]. */
    int32_t *text;
    int64_t n_text, max_text;
    /* Number of tokens of `text` that were computed or loaded from the cache.
     * This is the length of the task's sequence. */
    int64_t n_done;
    int64_t n_cached, n_written;
    /* The draft that the step in progress verifies, [n_draft], and how many of
     * its tokens were accepted so far. n_draft is 0 between steps. */
    int32_t draft[PL_DRAFT_MAX];
    int n_draft, n_accepted;
    int64_t n_drafted, n_taken; /* sums of both over the task's steps */
    /* Number of the n_cached tokens that were found on the devices; the rest
     * was loaded from a tier. */
    int64_t n_shared;
    bool counted; /* n_cached was added to loop_counts.n_cached */
    /* The first step of the prompt was reported to the listener. */
    bool started;
    /* Number of prompt tokens whose logits were passed to the listener so
     * far. */
    int64_t n_told;
    /* The saved state of the sequence of a preempted task; owned; NULL for
     * other tasks. */
    void *saved;
    size_t saved_bytes;
    /* Times of the task's events in seconds by clock_now; 0 for an event that
     * has not happened. */
    double arrival_s, admitted_s, first_token_s;
    bool tiers_searched; /* the task's prompt was looked up in the tiers */
    /* Time by clock_now, in seconds, at which the task stops waiting for its
     * lookup in the tiers, or for the next page. */
    double tiers_deadline;
    /* The lookup of the task's prompt in the tiers; owned; NULL if there is
     * none, or once the pages that it found are loaded. */
    struct tiers_lookup *search;
    /* Number of the pages found by `search` that the task's sequence
     * contains. */
    int n_loaded;
};

/* The tokens that are remembered for a slot (loop_slot_tokens). */
struct last {
    int32_t *token; /* the remembered tokens, [n]; owned */
    int64_t n;
};

/* A queued call of loop_run_between_steps. */
struct loop_call {
    pl_status (*act)(void *user, pl_engine *e, pl_err *err);
    void *user;
    pl_err *err;
    pl_status status;
    bool done; /* the call has returned; guarded by loop.lock */
    struct loop_call *next;
};

struct loop {
    pl_engine *e;          /* engine; borrowed */
    const pl_tokenizer *t; /* tokenizer of the model; borrowed */
    struct loop_options o;
    int64_t n_ctx, n_vocab;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    /* Signalled when the loop's thread has something to do: a task, a call, or
     * to stop. */
    pthread_cond_t wake;
    /* Signalled when a call of loop_run_between_steps has returned. */
    pthread_cond_t done;
    bool stops; /* loop_stop was called; guarded by `lock` */
    /* Queue of calls of loop_run_between_steps; guarded by `lock`. */
    struct loop_call *loop_call;
    bool is_lost; /* a device has failed; guarded by `lock` */
    pl_err lost;  /* the error of the device, if is_lost; guarded by `lock` */

    /* All tasks in order of arrival, [n_task]; owned; changed with `lock` held.
     * Only the loop's thread removes tasks, so it reads the list without the
     * lock. */
    struct task **task;
    atomic_int n_task;
    int max_task; /* limit of the number of tasks in all states together */
    /* Id of the task that was added last; guarded by `lock`. */
    uint64_t last_id;
    struct schedule schedule; /* state of the scheduler; guarded by `lock` */
    /* Counters that other threads read; guarded by `lock`. */
    struct loop_counts counts;
    /* States of the slots for loop_slots, [n_seq]; owned; guarded by `lock`. */
    struct loop_slot *slot;
    /* Tokens that are remembered for each slot, [n_seq]; owned; guarded by
     * `lock`. */
    struct last *last;
    /* Counters of the devices, [n_device]; owned; guarded by `lock`. */
    pl_device_counters *device;
    pl_device_traffic *traffic; /* of the devices, likewise */
    int n_device;

    /* The following buffers are for one step. They are owned, and used by the
     * loop's thread only. */
    /* The running tasks, the oldest first; [n_seq], of which n_run are used. */
    struct task **run;
    /* plan[i]: how many tokens of task run[i] the step computes; [n_seq]. */
    struct schedule_entry *plan;
    int n_run;
    bool *taken; /* taken[i]: sequence i of the engine is in use; [n_seq] */
    /* Scratch memory for tasks and their client ids, [max_task]. */
    struct task **ready;
    uint64_t *client;
    /* moved[a]: the states that tasks in state `a` have changed to, a set of 1
     * << enum task_state, for tests. */
    unsigned char moved[N_TASK_STATE];
    /* Tokens of the step's batch, and the sequence of each; [max_batch], and
     * with a drafter [2 * PL_DRAFT_MAX] more for each slot. */
    int32_t *token, *seq;
    uint8_t *wanted;
    int64_t max_batch;
    /* The decoding tasks of the step and their drafts, [n_seq], of which
     * n_drafted are used. */
    struct task **drafted;
    pl_draft *draft;
    int n_drafted;
    double last_step_s; /* seconds that the last batch took */
    /* Computes the grammar masks of samplers on a worker thread during the
     * step. */
    struct ahead ahead;
    /* Logits that the step computed, [n_seq + max_rows][n_vocab]. */
    float *logits;
    /* Limit of the logits of prompt tokens in one step, in rows of n_vocab
     * values; at least n_seq. */
    int64_t max_rows;
    /* Tokens of a cached prefix, up to the end of the page that is being copied
     * to the tiers; [n_ctx]. */
    int32_t *path;
    /* Rows for embeddings that the step computed, [max_batch][d_model]; NULL if
     * the engine keeps none. */
    float *row;
    /* rows[i]: task run[i] returns rows instead of generating tokens;
     * [n_seq]. */
    bool *rows;
};

/* Runs one step: admits tasks, computes tokens, and calls the tasks' callbacks.
 * Returns false if there was nothing to do, so that the thread may sleep. */
bool loop_step(struct loop *l);

/* ---- functions of loop_drafts.c; no effect without a drafter ------------- */

/* Drafts tokens for the decoding tasks of the step in l->run. */
void loop_drafts_propose(struct loop *l);
/* Tells the drafter of a task whose sequence begins with tokens of a cache. */
void loop_drafts_begin(struct loop *l, const struct task *w);
/* Ends the verification of a task's draft: removes the tokens that were not
 * accepted from the task's sequence. Called before the task ends, or when its
 * logits were used. */
void loop_drafts_settle(struct loop *l, struct task *w);
/* After a failed step, takes the drafts out of the step, so that it can be
 * tried without them. Returns false if it had none. */
bool loop_drafts_drop(struct loop *l);
/* Reports the time of the step to the drafter. */
void loop_drafts_measure(struct loop *l);

/* ---- functions of loop_tiers.c; no effect without tiers ------------------ */

/* Starts looking up the prompt of a waiting task in the tiers, at most once per
 * task. Returns true if the task has to wait for the result of the lookup. */
bool loop_tiers_lookup(struct loop *l, struct task *w);
/* Returns true while a task waits for the result of its lookup in the tiers.
 * Takes no lock. */
bool loop_tiers_is_pending(const struct loop *l, const struct task *w);
/* Returns true if a task's lookup in the tiers found pages, which
 * loop_tiers_load then loads. Called after pl_seq_share has given the task's
 * sequence the cached prefix that is on the devices. */
bool loop_tiers_start(struct loop *l, struct task *w);
/* Loads pages from the tiers for all tasks in state TASK_LOADING, for a limited
 * time. Meanwhile these tasks take part in no steps. Returns true if it loaded
 * any. */
bool loop_tiers_load(struct loop *l);
/* Ends the loading of a task's pages, if there are any. Trims the task's
 * sequence to the longest length at which the task can continue. */
void loop_tiers_abort(struct loop *l, struct task *w);
/* Frees a task's lookup in the tiers, if there is one. */
void loop_tiers_cancel(struct loop *l, struct task *w);
/* Copies cached pages from the devices to the tiers for `seconds`, but at least
 * one page unless the tiers are full. Returns true if it copied any. */
bool loop_tiers_offload(struct loop *l, double seconds);
/* Returns true if there are tiers, and they accept no pages for now. */
bool loop_tiers_backlogged(struct loop *l);

/* Shows the slot of a task as free, and remembers the task's tokens for it;
 * takes ownership of w->text. Remembers none if no tokens of the task were
 * computed, or if it has the callback params.keep. In loop_slots.c. */
void loop_leave_slot(struct loop *l, struct task *w);

/* Copies the engine's counters to loop.counts and loop.device, where other
 * threads can read them. */
void loop_read_counters(struct loop *l);
/* loop_edges[a]: the states that a task in state `a` may change to, a set of 1
 * << enum task_state. */
extern const unsigned char loop_edges[N_TASK_STATE];
void loop_set_state(struct loop *l, struct task *w, enum task_state to);
static inline bool loop_has_slot(const struct task *w)
{
    return w->at == TASK_LOADING || w->at == TASK_PREFILL ||
           w->at == TASK_DECODING;
}
/* Removes a task from the loop, frees it, and calls its callback `end` with the
 * reason `why`. `err` is the error if `why` is FINISH_ERROR, else NULL. */
void loop_finish_task(struct loop *l, struct task *w, enum task_finish why,
                      const pl_err *err);
#endif
