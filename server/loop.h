/* The engine's loop: one thread that steps an engine for all who ask.
 *
 * A job is one text to be written: a prompt, how to choose tokens, when to end.
 * Jobs wait until a sequence and room for their prompt are free, feed the
 * prompt in chunks beside others that write (schedule.h), and leave after any
 * step. When pages run short a job gives its place: what its sequence holds
 * goes to host memory, comes back later, and the job goes on with the same
 * bits. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include "tiers.h"

struct loop;

double loop_now(void); /* seconds of its clock */

enum task_finish {
    FINISH_EOG,       /* a token that ends a text */
    FINISH_STOPPED,   /* the listener had enough */
    FINISH_LENGTH,    /* max_tokens, or the context is full */
    FINISH_CANCELLED, /* the client gave up, or the loop stops */
    FINISH_TIMEOUT,   /* its time is over */
    FINISH_ERROR,     /* err says why */
};

/* What its client would like. */
enum client_state {
    CLIENT_READY,
    CLIENT_BACKLOGGED, /* has output to read first; left out of steps */
    CLIENT_GONE
};

/* What is told at an end. */
struct task_report {
    enum task_finish why;
    pl_err err;                            /* of FINISH_ERROR */
    int64_t n_prompt, n_cached, n_written; /* tokens; cached: not computed */
    double queue_s, prompt_s, written_s;
};

/* Called on the loop's thread between steps: what they do delays everybody, and
 * they must neither wait nor call the loop. */
struct task_callbacks {
    /* Of the prompt's `total` tokens `done` are there, of which `cached` were
     * not computed; at its end in any case. NULL: not told. */
    void (*progress)(void *user, int64_t done, int64_t total, int64_t cached);
    /* A token was chosen, from these logits [n_vocab]; one that ends the text
     * is not told. False: it is enough. */
    bool (*token)(void *user, int32_t id, const float *logits);
    /* Does the grammar hold for the next token? It does from the first time on
     * that this says so, and until then no token that ends a text comes; NULL:
     * from the beginning. */
    bool (*grammar_applies)(void *user);
    /* Is anybody still there? Asked before every step, from the first on, while
     * the job waits too; NULL: always. */
    enum client_state (*poll_client)(void *user);
    /* The last call; the job is gone then. */
    void (*end)(void *user, const struct task_report *report);
    void *user;
    /* Of jobs with rows alone: of token `at` of the prompt, what logits would
     * be made of, [d_model]; in order. At 0 it begins anew: what was told so
     * far counts no more. */
    void (*row)(void *user, int64_t at, const float *row);
};

/* Which rows a job tells in place of writing; with any it ends with its prompt.
 */
enum task_rows { TASK_NO_ROW, TASK_LAST_ROW, TASK_ALL_ROWS };

struct task_params {
    const int32_t *prompt; /* copied */
    int64_t n_prompt;      /* 1 at least */
    int64_t max_tokens;    /* to write; -1: as many as the context takes */
    const pl_sampling *sampling; /* NULL: the defaults */
    pl_grammar *grammar; /* what is written keeps to it; NULL: to none. Must
                              outlive the job */
    bool ignore_end;     /* write on behind a token that ends a text */
    bool no_cache;       /* compute all of the prompt */
    enum task_rows rows; /* where loop_options.d_model is given */
    int slot;            /* 1 + the only place that it takes; 0: any */
    uint64_t client;     /* see http_client */
    double time_s;       /* for all of it, waiting too; 0: any */
    /* With max_tokens 0: its sequence has the whole prompt now. `user` is the
     * listener's. It is no job that a slot is remembered by. NULL: not told. */
    void (*keep)(void *user, pl_engine *e, int seq);
    struct task_callbacks listener;
};

struct loop_options {
    int n_seq;           /* sequences of the engine that jobs may have */
    int max_waiting;     /* jobs that may wait; 0: 16 times n_seq */
    int64_t step;        /* tokens of a step: the engine's micro-batch */
    int64_t chunk;       /* of prompts beside others that write; 0: a quarter of
                        a step, 32 at least */
    struct tiers *tiers; /* what is kept goes there, and comes back; borrowed,
                            NULL: none */
    double look_s;       /* seconds a task waits for a lookup in them, and for a
                            page; a stalled one (tiers_disk_stalled) is not
                            waited for; 0: 5 */
    int64_t d_model; /* of the rows that the engine keeps ("result_norm"); 0: it
                        keeps none */
    pl_log_fn *log;
    void *log_user;
    /* Called once, on the loop's thread, when a device has failed: no jobs are
     * taken any more, and all that there are end next. NULL: nobody is told. */
    void (*lost)(void *user, const pl_err *err);
    void *lost_user;
};

/* Since the loop began, but for those "now". */
struct loop_counts {
    int n_waiting, n_running, n_preempted; /* now; away: gave their place */
    uint64_t n_task, n_rejected, n_failed, n_preemptions; /* given: places */
    uint64_t n_step, n_prompt, n_cached, n_written;
    uint64_t messages, message_bytes, copy_bytes; /* see pl_counters */
    pl_cache_counters cache;                      /* now */
    double step_s;                                /* within steps */
    double overhead_s; /* between them: choosing, telling */
    uint64_t
        n_restored;   /* tokens of prompts that came from tiers; in n_cached */
    double restore_s; /* putting them there, between steps */
};

/* One place, as /slots shows it. */
struct loop_slot {
    uint64_t task_params; /* 0: idle */
    int64_t n_prompt, n_done, n_written, n_held;
};

/* e and t are borrowed until loop_free; nobody else calls the engine then. */
pl_status loop_create(struct loop **out, pl_engine *e, const pl_tokenizer *t,
                      const struct loop_options *o, pl_err *err);
/* Cancels what is left and waits for the step that is under way. */
void loop_free(struct loop *l);

/* n jobs, all or none. DEVICE: one has failed before. FULL: too many wait, try
 * again in *retry_s seconds or so; BAD_ARGUMENT: one can never run, its prompt
 * being longer than the context, or a token none of the model's. */
pl_status loop_add(struct loop *l, const struct task_params *params, int n,
                   double *retry_s, pl_err *err);
/* `act` runs on the loop's thread between two steps, and loop_run_between_steps
 * returns when it has: saving a sequence, say. */
pl_status loop_run_between_steps(struct loop *l,
                                 pl_status (*act)(void *user, pl_engine *e,
                                                  pl_err *err),
                                 void *user, pl_err *err);
void loop_counts(struct loop *l, struct loop_counts *out);
/* The tokens that the last job of a place had in its sequence, or that
 * loop_slot_restore put there; malloc'ed, *n of them, perhaps 0. False: no
 * memory.
 */
bool loop_slot_tokens(struct loop *l, int slot, int32_t **token, int64_t *n);
/* They are forgotten; how many they were. */
int64_t loop_slot_erase(struct loop *l, int slot);
/* A state of n tokens becomes a prefix that is kept, and what a place had last.
 * FULL: all places are taken, or there is no room. */
pl_status loop_slot_restore(struct loop *l, int slot, const int32_t *token,
                            int64_t n, const void *state, size_t bytes,
                            pl_err *err);
/* Of the first n slots; how many there are. */
int loop_slots(struct loop *l, struct loop_slot *slot, int n);
/* The engine's devices as they were after the last step: the first n of them;
 * how many there are. */
int loop_devices(struct loop *l, pl_device_counters *device, int n);

#endif
