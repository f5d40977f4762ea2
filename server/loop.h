/* The engine loop: one thread that steps the engine for all requests.
 *
 * A task is one text to generate: a prompt, how to sample tokens, when to end.
 * Tasks wait until a sequence and space for their prompt are free. They feed
 * the prompt in chunks while others decode (schedule.h), and may leave after
 * any step. When pages run out a task is preempted: its sequence is swapped out
 * to host memory, restored later, and the task continues with the same bits. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include "tiers.h"

struct loop;

double loop_now(void); /* monotonic clock, seconds */

enum task_finish {
    FINISH_EOG,       /* an end-of-text token */
    FINISH_STOPPED,   /* the listener returned false */
    FINISH_LENGTH,    /* max_tokens, or the context is full */
    FINISH_CANCELLED, /* the client has disconnected, or the loop is stopping */
    FINISH_TIMEOUT,   /* its time limit is over */
    FINISH_ERROR,     /* see err */
};

/* The state of a task's client. */
enum client_state {
    CLIENT_READY,
    CLIENT_BACKLOGGED, /* has output to read first; left out of steps */
    CLIENT_GONE
};

/* Passed to task_callbacks.end. */
struct task_report {
    enum task_finish why;
    pl_err err;                            /* for FINISH_ERROR */
    int64_t n_prompt, n_cached, n_written; /* tokens; n_cached: not computed */
    double queue_s, prompt_s, written_s;
};

/* Called on the loop's thread between steps. They delay all tasks, so they must
 * neither wait nor call the loop. */
struct task_callbacks {
    /* Reports that `done` of the prompt's `total` tokens are in the sequence,
     * `cached` of them without computing. Always called at the prompt's end.
     * May be NULL. */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t cached);
    /* Passes a sampled token with its logits [n_vocab]; an end-of-text token is
     * not passed. Returns false to stop the task. */
    bool (*token)(void *user, int32_t id, const float *logits);
    /* Returns true if the grammar applies to the next token. It applies from
     * the first true on; until then no end-of-text token is sampled. NULL: it
     * applies from the beginning. */
    bool (*grammar_applies)(void *user);
    /* Returns the client's state. Called before every step, also while the task
     * waits. NULL: always ready. */
    enum client_state (*poll_client)(void *user);
    /* The last call; the task has been freed. */
    void (*end)(void *user, const struct task_report *report);
    void *user;
    /* Only for tasks with rows: passes the row of prompt token `at` that logits
     * would be computed from, [d_model], in order. `at` 0 starts over: rows
     * passed before no longer count. */
    void (*row)(void *user, int64_t at, const float *row);
};

/* The rows that a task returns instead of generating; a task with rows ends
 * with its prompt. */
enum task_rows { TASK_NO_ROW, TASK_LAST_ROW, TASK_ALL_ROWS };

struct task_params {
    const int32_t *prompt; /* copied */
    int64_t n_prompt;      /* at least 1 */
    int64_t max_tokens;    /* to generate; -1: as many as the context holds */
    const pl_sampling *sampling; /* NULL: the defaults */
    pl_grammar *grammar; /* constrains the output; NULL: none. Must outlive the
                            task */
    bool ignore_end;     /* continue after an end-of-text token */
    bool no_cache;       /* compute the whole prompt */
    enum task_rows rows; /* needs loop_options.d_model */
    int slot;            /* the only slot it may run in; -1: any */
    uint64_t client;     /* see http_client */
    double time_s;       /* limit including waiting; 0: none */
    /* Called once the whole prompt is in the sequence, for tasks with
     * max_tokens 0; `user` is the listener's. Such a task does not change the
     * tokens remembered for its slot. May be NULL. */
    void (*keep)(void *user, pl_engine *e, int seq);
    struct task_callbacks listener;
};

struct loop_options {
    int n_seq;           /* sequences of the engine that tasks may use */
    int max_waiting;     /* tasks that may wait; 0: 16 times n_seq */
    int64_t step;        /* tokens per step: the engine's micro-batch */
    int64_t chunk;       /* prompt tokens per step while others decode; 0: a
                            quarter of a step, at least 32 */
    struct tiers *tiers; /* where cached prefixes are stored and loaded from;
                            borrowed, NULL: none */
    double look_s;       /* seconds that a task waits for a tier lookup, and for
                            each page; a stalled disk (tiers_disk_stalled) is
                            not waited for; 0: 5 */
    int64_t d_model; /* of the rows that the engine keeps ("result_norm"); 0:
                        none are kept */
    pl_log_fn *log;
    void *log_user;
    /* Called once on the loop's thread when a device has failed: no more tasks
     * are accepted, and all present ones end next. May be NULL. */
    void (*lost)(void *user, const pl_err *err);
    void *lost_user;
};

/* Since the loop began, except those marked "now". */
struct loop_counts {
    int n_waiting, n_running, n_preempted; /* now; preempted ones wait in host
                                              memory */
    uint64_t n_task, n_rejected, n_failed, n_preemptions;
    uint64_t n_step, n_prompt, n_cached, n_written;
    uint64_t messages, message_bytes, copy_bytes; /* see pl_counters */
    pl_cache_counters cache;                      /* now */
    double step_s;                                /* in steps */
    double overhead_s; /* between them: scheduling, callbacks */
    /* prompt tokens loaded from tiers; part of n_cached */
    uint64_t n_restored;
    double restore_s; /* loading them, between steps */
};

/* A slot as /slots shows it. */
struct loop_slot {
    uint64_t id_task; /* id of its task; 0: idle */
    int64_t n_prompt, n_done, n_written, n_held;
};

/* Starts a loop. It borrows e and t until loop_free; only the loop may call the
 * engine until then. */
pl_status loop_create(struct loop **out, pl_engine *e, const pl_tokenizer *t,
                      const struct loop_options *o, pl_err *err);
/* Cancels remaining tasks and waits for the step in progress. */
void loop_free(struct loop *l);

/* Adds n tasks, all or none. DEVICE: a device has failed before. FULL: too many
 * wait; try again in about *retry_s seconds. BAD_ARGUMENT: a task can never
 * run, because its prompt is longer than the context or has a token outside the
 * vocabulary. */
pl_status loop_add(struct loop *l, const struct task_params *params, int n,
                   double *retry_s, pl_err *err);
/* Runs `act` on the loop's thread between two steps and returns its result, for
 * example to save a sequence. */
pl_status loop_run_between_steps(struct loop *l,
                                 pl_status (*act)(void *user, pl_engine *e,
                                                  pl_err *err),
                                 void *user, pl_err *err);
void loop_counts(struct loop *l, struct loop_counts *out);
/* Copies the tokens of a slot's last task, or those of loop_slot_restore: *n of
 * them, perhaps 0, malloc'ed. Returns false if out of memory. */
bool loop_slot_tokens(struct loop *l, int slot, int32_t **token, int64_t *n);
/* Forgets a slot's tokens and returns how many there were. */
int64_t loop_slot_erase(struct loop *l, int slot);
/* Makes a state of n tokens a cached prefix and the slot's last contents. FULL:
 * all slots are taken, or the cache has no space. */
pl_status loop_slot_restore(struct loop *l, int slot, const int32_t *token,
                            int64_t n, const void *state, size_t bytes,
                            pl_err *err);
/* Copies the first n slots and returns how many there are. */
int loop_slots(struct loop *l, struct loop_slot *slot, int n);
/* Copies the first n devices' counters as of the last step and returns how many
 * devices there are. */
int loop_devices(struct loop *l, pl_device_counters *device, int n);

#endif
