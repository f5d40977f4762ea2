/* The state of `plait run` in all its modes, and the functions they share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "input.h"
#include "session.h"

/* The reason why generation stopped. */
enum stop { STOP_END, STOP_LENGTH, STOP_FULL, STOP_INTERRUPTED, STOP_FAILED };

struct run {
    const struct options *o;
    struct session s;
    struct input prompt;
    pl_sampling sampling; /* o's, completed with what only the model knows */
    int32_t *bias_id;     /* owned */
    float *bias;          /* owned */
    pl_sampler *sampler;
    pl_grammar *grammar; /* owned; NULL: no restriction */
    bool kept;           /* the sampler enforces the grammar */
    pl_template *form;   /* owned; NULL: not a chat */
    pl_reply *reply;     /* parses the output; NULL: it is printed */
    pl_detokenizer *text;
    float *logits;   /* [n_vocab] after the last token; owned */
    int32_t pending; /* sampled, not yet in the sequence; or -1 */
    int32_t *held;   /* [n_ctx], tokens of the sequence; owned */
    int64_t n_known; /* number known in `held`: all, unless a foreign state was
                        loaded */
    int64_t n_seen;  /* sequence length that `logits` belong to; 0: none */
    char last;       /* last byte printed */
    int64_t n_prompt, n_written;
    int64_t n_past;    /* tokens of the loaded state */
    int64_t n_refused; /* tokens of a text that exceeds the context */
    bool saves; /* the state is being saved: a first signal does not stop it */
    double prompt_s, written_s;
    pl_err err;
    pl_status status; /* for STOP_FAILED */
};

/* Appends tokens to the sequence and keeps the logits of the last. The caller
 * handles the pending token. `what` is shown. */
enum stop run_prefill(struct run *r, const int32_t *ids, int64_t n,
                      const char *what);
/* Returns true if `logits` are up to date with the sequence. */
bool run_can_write(const struct run *r);
/* Samples up to -n tokens. The last one is left pending, because it may not
 * have to be computed. */
enum stop run_generate(struct run *r);

/* Restores --state-load; the samplers must exist. */
enum exit_code run_load_state(struct run *r);
/* Saves --state-save with all generated tokens; computes the last token
 * first. */
enum exit_code run_save_state(struct run *r);

/* Compiles the grammar of --grammar or --json-schema; run_grammar.c. */
enum exit_code run_open_grammar(struct run *r);
/* Starts a new text of the grammar for the following output. */
enum stop run_begin_grammar(struct run *r);
/* Makes the sampler enforce that grammar from the next token on, unless a reply
 * has not reached its content yet. Returns STOP_END on success. */
enum stop run_keep_grammar(struct run *r);

/* Prints to standard output. */
void run_print(struct run *r, const char *text, size_t len);
/* Ends an unfinished line. */
void run_end_line(struct run *r);
void run_warn_context_full(const struct run *r);

/* Runs a conversation with the template r->form; run_chat.c. */
enum exit_code run_chat(struct run *r);

#endif
