/* The engine loop: one thread that runs the engine's steps for all requests.
 *
 * A task is one text to generate: a prompt, sampling parameters and end
 * conditions. A task waits until a sequence and cache space for its prompt are
 * free. Its prompt is computed in chunks while other tasks decode (schedule.h).
 * It may end after any step. When cache pages run out, a task is preempted: its
 * sequence is swapped out to host memory and restored later. It then continues
 * with bit-identical results. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include "tiers.h"

#include "pl_receipt.h"

struct loop;

double loop_now(void); /* monotonic clock, in seconds */

enum task_finish {
    FINISH_EOG,       /* an end-of-text token was sampled */
    FINISH_STOPPED,   /* task_callbacks.token returned false */
    FINISH_LENGTH,    /* max_tokens is reached, or the context is full */
    FINISH_CANCELLED, /* the client disconnected, or the loop is stopping */
    FINISH_TIMEOUT,   /* the time limit is exceeded */
    FINISH_ERROR,     /* a failure, described by task_report.err */
};

/* The state of the client of a task. */
enum client_state {
    CLIENT_READY,
    CLIENT_BACKLOGGED, /* the client has too much unread output; the task is
                          paused */
    CLIENT_GONE
};

/* The result of a task, passed to task_callbacks.end. */
struct task_report {
    enum task_finish why;
    pl_err err; /* set for FINISH_ERROR */
    /* Numbers of tokens; n_cached: prompt tokens found in the cache, on the
     * devices or in a tier; n_written: generated tokens. */
    int64_t n_prompt, n_cached, n_written;
    pl_receipt *receipt; /* of the output; freed after the callback; NULL if
                            none was requested, or nothing was sampled */
    double queue_s, prompt_s, written_s;
};

/* Callbacks of a task, also called its listener. The loop's thread calls them
 * between steps. The time that they take delays all tasks, so they must neither
 * wait nor call the loop. */
struct task_callbacks {
    /* Reports that `done` of the prompt's `total` tokens are in the sequence,
     * of which `cached` were found in the cache. Called before the first step
     * of the prompt, with `done` equal to `cached`, and after each step that
     * computed prompt tokens, so always when the prompt is complete. May be
     * NULL. */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t cached);
    /* Passes the logits [n_vocab] that the model computed at prompt token `at`,
     * which predict the next token. Only called for tasks with prompt_logits,
     * once for each prompt token but the last, in order. */
    void (*prompt_logits)(void *user, int64_t at, const float *logits);
    /* Passes a sampled token and the logits [n_vocab] it was sampled from. Not
     * called for the end-of-text token that ends a task. Returns false to stop
     * the task. */
    bool (*token)(void *user, int32_t id, const float *logits);
    /* Returns true if the grammar constrains the next token. Called before each
     * token until it first returns true; the grammar then applies to the rest.
     * Until then no end-of-text token is sampled. NULL if the grammar applies
     * from the beginning. */
    bool (*grammar_applies)(void *user);
    /* Returns the token that must come next, or -1 if the next token is to be
     * sampled. A grammar that applies has precedence. NULL if all tokens are
     * sampled. */
    int32_t (*forced)(void *user);
    /* Returns the client's state. Called before every step, including while the
     * task waits. NULL if the client is always ready. */
    enum client_state (*poll_client)(void *user);
    /* Reports the end of the task. It is the last call; the task has been
     * freed. */
    void (*end)(void *user, const struct task_report *report);
    void *user;
    /* Passes the row of prompt token `at`: the output of the last norm,
     * [d_model]. Only called for tasks that return rows, in token order. A
     * second call with `at` 0 means that the prompt is computed again, and that
     * the rows passed before are invalid. */
    void (*row)(void *user, int64_t at, const float *row);
};

/* The rows that a task passes to task_callbacks.row: none, that of its last
 * token, or all. A task with rows generates no tokens; it ends with its
 * prompt. */
enum task_rows { TASK_NO_ROW, TASK_LAST_ROW, TASK_ALL_ROWS };

struct task_params {
    const int32_t *prompt; /* copied */
    int64_t n_prompt;      /* at least 1 */
    int64_t max_tokens;    /* limit of generated tokens; -1 for as many as fit
                              in the context */
    const pl_sampling *sampling; /* NULL for the defaults */
    pl_grammar *grammar;         /* constrains the output
                                    (task_callbacks.grammar_applies); borrowed
                                    until `end` is called; NULL if none */
    /* End-of-text tokens are never sampled, so the task does not end by itself.
     * Once a grammar applies, they are sampled as usual, because the grammar
     * may allow no other token. */
    bool ignore_end;
    bool receipt;        /* the report has a receipt */
    bool no_cache;       /* compute the whole prompt, without cached prefixes */
    bool prompt_logits;  /* pass the logits of the prompt's tokens to the
                            listener; requires no_cache */
    enum task_rows rows; /* requires loop_options.d_model > 0 */
    int slot;            /* the only slot that it may use; -1 for any */
    uint64_t client;     /* identifies the client, see http_client */
    double time_s;       /* seconds after which the task ends with
                            FINISH_TIMEOUT, from loop_add on; 0 for no limit */
    /* Called if max_tokens is 0, once the whole prompt is in sequence `seq`.
     * `user` is listener.user. A task with `keep` does not change the tokens
     * remembered for its slot (loop_slot_tokens). May be NULL. */
    void (*keep)(void *user, pl_engine *e, int seq);
    struct task_callbacks listener;
};

struct loop_options {
    int n_seq;           /* number of sequences of the engine that tasks may
                            use, which is the number of slots */
    int max_waiting;     /* most tasks that may wait; 0 for 16 times n_seq */
    int64_t step;        /* most tokens per step, the size of the engine's
                            micro-batch */
    int64_t chunk;       /* most prompt tokens per step while any task decodes;
                            0 for a quarter of `step`, at least 32 */
    int64_t max_rows;    /* limit of the logits of prompts in a step
                            (task_params.prompt_logits), in rows of n_vocab; at
                            least n_seq; 0 for as many as take 64 MiB */
    struct tiers *tiers; /* storage for cached prefixes; borrowed; NULL if
                            none */
    /* Seconds that a task waits for the result of its lookup in the tiers, and
     * then for each page that was found; 0 for 5. It does not wait for a
     * stalled disk (tiers_disk_stalled). */
    double look_s;
    int64_t d_model; /* length of the rows that the engine keeps
                        ("result_norm"); 0 if it keeps none */
    pl_log_fn *log;
    void *log_user;
    /* Called once, on the loop's thread, after a device has failed. From then
     * on the loop accepts no tasks, and it ends all present ones after this
     * call. May be NULL. */
    void (*lost)(void *user, const pl_err *err);
    void *lost_user;
};

/* Counters since the loop began, except that fields marked "now" are current
 * values. */
struct loop_counts {
    int n_waiting, n_running, n_preempted; /* current numbers of tasks; the
                                              states of preempted ones are in
                                              host memory */
    uint64_t n_task, n_rejected, n_failed, n_preemptions;
    uint64_t n_step, n_prompt, n_cached, n_written;
    uint64_t n_busy; /* number of tasks with tokens in a step, summed over all
                        steps */
    uint64_t messages, message_bytes, copy_bytes; /* see pl_counters */
    pl_cache_counters cache;                      /* now */
    double step_s;                                /* seconds in engine steps */
    double overhead_s; /* seconds of steps outside the engine: scheduling,
                          loading pages, callbacks */
    /* prompt tokens loaded from tiers, included in n_cached */
    uint64_t n_restored;
    double restore_s; /* seconds of loading them into sequences, between
                         steps */
};

/* The state of a slot, as the route /slots shows it. The numbers of tokens are
 * those of the task in it. */
struct loop_slot {
    uint64_t id_task; /* id of the task in the slot; 0 if idle */
    int64_t n_prompt, n_done, n_written;
    int64_t n_cached, n_computed; /* of the prompt */
    int64_t n_left; /* tokens that it may still generate; -1 if unlimited */
};

/* Starts a loop. It borrows `e` and `t` until loop_free. Until then only the
 * loop may use the engine. */
pl_status loop_create(struct loop **out, pl_engine *e, const pl_tokenizer *t,
                      const struct loop_options *o, pl_err *err);
/* Cancels the remaining tasks, waits for the step in progress, and ends the
 * thread. The loop accepts no more tasks. NULL is allowed. */
void loop_stop(struct loop *l);
void loop_free(struct loop *l); /* calls loop_stop; NULL is allowed */

/* Adds n tasks, all or none. DEVICE: a device has failed. FULL: too many tasks
 * wait; *retry_s, unless NULL, is set to the seconds after which to try again.
 * BAD_ARGUMENT: a task can never run, for example because its prompt is longer
 * than the context or contains an invalid token. UNSUPPORTED: a task returns
 * rows, but the engine keeps none. CANCELLED: the loop is stopping. Other
 * errors: NO_MEMORY. */
pl_status loop_add(struct loop *l, const struct task_params *params, int n,
                   double *retry_s, pl_err *err);
/* Calls act(user, engine, err) on the loop's thread between two steps and
 * returns its result. CANCELLED without a call if the loop is stopping. Used to
 * read or change a sequence. */
pl_status loop_run_between_steps(struct loop *l,
                                 pl_status (*act)(void *user, pl_engine *e,
                                                  pl_err *err),
                                 void *user, pl_err *err);
void loop_counts(struct loop *l, struct loop_counts *out);
/* Sets *token to a malloc'ed copy of a slot's remembered tokens, and *n to
 * their number, which may be 0. The remembered tokens are those of the slot's
 * last task or of loop_slot_restore. Returns false if out of memory. */
bool loop_slot_tokens(struct loop *l, int slot, int32_t **token, int64_t *n);
/* Forgets a slot's remembered tokens and returns how many they were. */
int64_t loop_slot_erase(struct loop *l, int slot);
/* Makes a saved state (pl_state_save) of n tokens a cached prefix, and
 * remembers these tokens for the slot. FULL: all slots are in use, or the cache
 * has no space for the state. */
pl_status loop_slot_restore(struct loop *l, int slot, const int32_t *token,
                            int64_t n, const void *state, size_t bytes,
                            pl_err *err);
/* Copies the state of the first n slots to slot[]. Returns how many slots there
 * are in all. */
int loop_slots(struct loop *l, struct loop_slot *slot, int n);
/* Copies the counters of the first n devices, as of the last step. Returns how
 * many devices there are in all. */
int loop_devices(struct loop *l, pl_device_counters *device, int n);

#endif
