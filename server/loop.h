/* The engine loop: one thread that runs the engine's steps for all requests.
 *
 * A task is one text to generate: a prompt, sampling parameters and end
 * conditions. A task waits until a sequence of the engine and KV cache space
 * for its prompt are free. Its prompt is computed in chunks while other tasks
 * decode (schedule.h). It may end after any step. When cache pages run out, a
 * task is preempted: its sequence is swapped out to host memory and restored
 * later. The task then continues with bit-identical results. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include "tiers.h"

#include "pl_draft.h"
#include "pl_machines.h"
#include "pl_receipt.h"

struct loop;

enum task_finish {
    FINISH_EOG,     /* the model generated an end-of-text token */
    FINISH_STOPPED, /* the callback task_callbacks.token returned false */
    FINISH_LENGTH, /* the limit max_tokens is reached, or the context is full */
    FINISH_CANCELLED, /* the client has disconnected, or the loop is stopping */
    FINISH_TIMEOUT,   /* the time limit task_params.time_s is exceeded */
    FINISH_ERROR,     /* a failure, which task_report.err describes */
};

/* The state of a task's client, as the callback poll_client returns it. */
enum client_state {
    CLIENT_READY,
    /* Too much of the output has not been read by the client yet; the task is
     * paused. */
    CLIENT_BACKLOGGED,
    CLIENT_GONE
};

/* The result of a task, passed to task_callbacks.end. */
struct task_report {
    enum task_finish why;
    pl_err err; /* the error, if the task ended with FINISH_ERROR */
    /* Numbers of tokens. n_cached: prompt tokens that were found in the cache,
     * on the devices or in a tier. n_written: generated tokens. */
    int64_t n_prompt, n_cached, n_written;
    /* Drafted tokens, and how many of them became generated tokens. */
    int64_t n_drafted, n_accepted;
    /* Receipt of the output, freed after the callback; NULL if the task
     * requested none or ended within its prompt. */
    pl_receipt *receipt;
    double queue_s, prompt_s, written_s;
};

/* Callbacks of a task; the object behind `user` is called the task's listener.
 * The loop's thread calls them between steps. Every callback delays all tasks,
 * so it must neither wait nor call the loop. */
struct task_callbacks {
    /* Reports that the task has got the slot of this index: before its first
     * step, and again where it resumes after a preemption. May be NULL. */
    void (*placed)(void *user, int slot);
    /* Reports that `done` of the prompt's `total` tokens have been computed or
     * loaded, `cached` of them from the cache. Called before the first step of
     * the prompt, when `done` equals `cached`, and after each step that
     * computed prompt tokens, so also when the prompt is complete. May be
     * NULL. */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t cached);
    /* Passes the logits [n_vocab] that the model computed at prompt token `at`,
     * which predict the next token. Only called for tasks with prompt_logits,
     * once for each prompt token but the last, in order. */
    void (*prompt_logits)(void *user, int64_t at, const float *logits);
    /* Passes a generated token, and the logits [n_vocab] that it was sampled
     * from. Not called for the end-of-text token that ends a task. Returns
     * false to end the task. NULL for tasks that generate no tokens. */
    bool (*token)(void *user, int32_t id, const float *logits);
    /* Returns true if the grammar constrains the next token. The loop calls it
     * before each token until it returns true; from then on the grammar
     * constrains all tokens. Before that no end-of-text token is sampled. NULL
     * if the grammar constrains all tokens. */
    bool (*grammar_applies)(void *user);
    /* Returns the token that must come next, or -1 if the next token is to be
     * sampled. If a grammar forbids the returned token, the next token is
     * sampled, too. NULL if all tokens are sampled. */
    int32_t (*forced)(void *user);
    /* Returns the state of the task's client. The loop calls it before every
     * step, even while the task waits. NULL if the client is always ready. */
    enum client_state (*poll_client)(void *user);
    /* Reports the end of the task, which has been freed. No callback is called
     * after it. */
    void (*end)(void *user, const struct task_report *report);
    void *user;
    /* Passes the row of prompt token `at`: the output of the model's last norm
     * for this token, [d_model]. Only called for tasks that return rows, in
     * token order. A second call with `at` 0 means that the prompt is computed
     * again, and that the rows passed before are invalid. */
    void (*row)(void *user, int64_t at, const float *row);
};

/* Selects the rows that a task passes to task_callbacks.row: none, that of the
 * prompt's first or last token, or those of all tokens. A task with rows makes
 * no tokens; it ends with its prompt. */
enum task_rows { TASK_NO_ROW, TASK_FIRST_ROW, TASK_LAST_ROW, TASK_ALL_ROWS };

struct task_params {
    /* Tokens of the prompt, [n_prompt]; loop_add copies them. */
    const int32_t *prompt;
    int64_t n_prompt; /* number of tokens of the prompt, at least 1 */
    /* Limit of the number of generated tokens; -1 for as many as fit in the
     * context. */
    int64_t max_tokens;
    /* Sampling parameters; NULL for the defaults. */
    const pl_sampling *sampling;
    /* Grammar that constrains the output (task_callbacks.grammar_applies);
     * borrowed until the callback `end`; NULL if none. */
    pl_grammar *grammar;
    /* If true, no end-of-text token is sampled, so the task does not end by
     * itself. Once a grammar constrains the output, end-of-text tokens are
     * sampled as usual, because the grammar may allow no other token. */
    bool ignore_end;
    /* Number of generated tokens before which neither end-of-text tokens nor
     * the tokens sampling->stop are sampled, unless a grammar allows no
     * other. */
    int64_t min_tokens;
    bool receipt; /* task_report.receipt is made */
    /* With has_drafts: the limits of the task's drafts, in place of the
     * drafter's. */
    bool has_drafts;
    pl_draft_limits drafts;
    /* Compute all tokens of the prompt, without using cached prefixes. */
    bool no_cache;
    /* Pass the logits of prompt tokens to the callback prompt_logits; requires
     * no_cache. */
    bool prompt_logits;
    /* Selects the rows that are passed to the callback `row`; any but
     * TASK_NO_ROW requires loop_options.d_model > 0. */
    enum task_rows rows;
    int slot; /* index of the only slot that the task may use; -1 for any */
    /* Number that identifies the client for fair scheduling (http_client). */
    uint64_t client;
    /* Seconds from loop_add until the task ends with FINISH_TIMEOUT; 0 for no
     * limit. */
    double time_s;
    /* If max_tokens is 0: called once the whole prompt has been computed in
     * sequence `seq`. `user` is that of the listener. A task with this callback
     * does not change the tokens that are remembered for its slot
     * (loop_slot_tokens). May be NULL. */
    void (*keep)(void *user, pl_engine *e, int seq);
    struct task_callbacks listener;
};

struct loop_options {
    /* Number of slots: the number of the engine's sequences that tasks may
     * use. */
    int n_seq;
    /* Limit of the number of waiting tasks; 0 for 16 times n_seq. */
    int max_waiting;
    /* Limit of the tokens per step: the size of the engine's micro-batch. */
    int64_t step;
    /* Limit of the prompt tokens per step while any task decodes; 0 for a
     * quarter of `step`, at least 32. */
    int64_t chunk;
    /* Limit of the logits of prompt tokens in one step
     * (task_params.prompt_logits), in rows of n_vocab values; at least n_seq. 0
     * for as many rows as take 64 MiB. */
    int64_t max_rows;
    /* Proposes tokens that the steps verify; borrowed; NULL for none. It has a
     * text for each slot. Only the loop uses it until loop_free. */
    pl_drafter *drafter;
    /* The storage for cached prefixes; borrowed; NULL if none. */
    struct tiers *tiers;
    /* Seconds that a task waits for the result of its lookup in the tiers, and
     * then for each page that the lookup found; 0 for 5. A task does not wait
     * while the disk is stalled (tiers_disk_stalled). */
    double look_s;
    /* Number of values of each row that the engine keeps (its output
     * "result_norm"); 0 if it keeps none. */
    int64_t d_model;
    /* Rows are the scores of the class head (pl_batch.scores) instead; d_model
     * is their number. */
    bool scores;
    /* The model is an encoder: prompts are computed whole, and only tasks with
     * rows are accepted. */
    bool whole;
    pl_log_fn *log;
    void *log_user;
    /* Called once, on the loop's thread, after a device has failed. From then
     * on the loop accepts no tasks. After this call it ends all its tasks. May
     * be NULL. */
    void (*lost)(void *user, const pl_err *err);
    void *lost_user;
};

/* Counters since the loop began, except that fields marked "now" are current
 * values. */
struct loop_counts {
    /* Current numbers of tasks by state. A preempted task is in host memory. */
    int n_waiting, n_running, n_preempted;
    uint64_t n_task, n_rejected, n_failed, n_preemptions;
    uint64_t n_step, n_prompt, n_cached, n_written;
    /* Sum over all steps of the number of tasks that have tokens in the
     * step. */
    uint64_t n_busy;
    /* The fields of pl_counters with these names. */
    uint64_t messages, message_bytes, copy_bytes;
    pl_cache_counters cache; /* current counters of the KV cache */
    /* Drafts that were verified, their tokens, and the accepted ones. */
    uint64_t n_draft, n_draft_token, n_draft_accepted;
    double step_s; /* seconds that the engine's steps took */
    /* Seconds in the loop's steps outside the engine, for scheduling, loading
     * pages and callbacks. */
    double overhead_s;
    /* Prompt tokens that were loaded from tiers; n_cached includes them. */
    uint64_t n_restored;
    /* Seconds that loading prompt tokens from tiers into sequences took,
     * between steps. */
    double restore_s;
};

/* The state of a slot, as the route /slots shows it. The numbers of tokens are
 * those of the task in the slot, or of the last one if the slot is free. */
struct loop_slot {
    uint64_t id_task; /* id of the task in the slot; 0 if the slot is free */
    int64_t n_prompt, n_done, n_written;
    /* Prompt tokens of the task: found in the cache, and computed so far. */
    int64_t n_cached, n_computed;
    /* Number of tokens that the task may still generate; -1 if unlimited. */
    int64_t n_left;
};

/* Starts an engine loop. The loop borrows `e` and `t` until loop_free. Until
 * then no other code may use the engine. */
pl_status loop_create(struct loop **out, pl_engine *e, const pl_tokenizer *t,
                      const struct loop_options *o, pl_err *err);
/* Ends the loop's thread: waits for the step in progress, then cancels the
 * remaining tasks. The loop accepts no more tasks. NULL is allowed. */
void loop_stop(struct loop *l);
/* Calls loop_stop, then frees the loop. NULL is allowed. */
void loop_free(struct loop *l);

/* Adds n tasks to the loop, all or none. DEVICE: a device has failed. FULL: too
 * many tasks wait; *retry_s, unless NULL, is set to the seconds after which to
 * try again. BAD_ARGUMENT: a task can never run, for example because its prompt
 * is longer than the context or contains an invalid token. UNSUPPORTED: a task
 * returns rows, but the engine keeps none. CANCELLED: the loop is stopping.
 * Other errors: NO_MEMORY. */
pl_status loop_add(struct loop *l, const struct task_params *params, int n,
                   double *retry_s, pl_err *err);
/* Calls act(user, engine, err) on the loop's thread between two steps, and
 * returns the result of this call. It is for reading or changing a sequence.
 * CANCELLED: the loop is stopping, and `act` was not called. */
pl_status loop_run_between_steps(struct loop *l,
                                 pl_status (*act)(void *user, pl_engine *e,
                                                  pl_err *err),
                                 void *user, pl_err *err);
void loop_counts(struct loop *l, struct loop_counts *out);
/* Sets *token to a malloc'ed copy of the tokens that are remembered for a slot,
 * and *n to their number, which may be 0. These are the tokens of the last task
 * in the slot, or those that loop_slot_restore has set. Returns false if out of
 * memory. */
bool loop_slot_tokens(struct loop *l, int slot, int32_t **token, int64_t *n);
/* Forgets the tokens that are remembered for a slot (see loop_slot_tokens), and
 * returns how many they were. Cached prefixes stay in the KV cache. */
int64_t loop_slot_erase(struct loop *l, int slot);
/* Turns a saved state (pl_state_save) of n tokens into a cached prefix, and
 * remembers these tokens for the slot. FULL: all slots are in use, or the KV
 * cache has no space for the state. */
pl_status loop_slot_restore(struct loop *l, int slot, const int32_t *token,
                            int64_t n, const void *state, size_t bytes,
                            pl_err *err);
/* Copies the states of the first n slots to slot[0 .. n - 1]. Returns the
 * number of all slots. */
int loop_slots(struct loop *l, struct loop_slot *slot, int n);
/* Returns a malloc'ed copy of the states of all *n slots; NULL if out of
 * memory. */
struct loop_slot *loop_all_slots(struct loop *l, int *n);
/* Copies the counters of the first n devices, as they were after the last step.
 * Returns the number of all devices. */
int loop_devices(struct loop *l, pl_device_counters *device,
                 pl_device_traffic *traffic, int n);

#endif
