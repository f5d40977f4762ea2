/* A model that writes: what `plait run` has at hand in all its ways, and what
 * they share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "input.h"
#include "session.h"

/* Why the model stopped writing. */
enum stop { STOP_END, STOP_LENGTH, STOP_FULL, STOP_INTERRUPTED, STOP_FAILED };

struct run {
    const struct options *o;
    struct session s;
    struct input prompt;
    pl_sampling sampling; /* o's, and what only the model could tell */
    int32_t *bias_id;     /* owned */
    float *bias;          /* owned */
    pl_sampler *sampler;
    pl_grammar *grammar; /* owned; NULL: anything may be written */
    bool kept;           /* the sampler keeps to the grammar */
    pl_template *form;   /* owned; NULL: this is no chat */
    pl_reply *reply;     /* takes what is written; NULL: it is printed */
    pl_detokenizer *text;
    float *logits;   /* [n_vocab] after the last token; owned */
    int32_t pending; /* sampled, not yet in the sequence; or -1 */
    int32_t *held;   /* [n_ctx], tokens of the sequence; owned */
    int64_t n_known; /* of them there: all, but of a foreign state */
    int64_t n_seen;  /* length of the sequence that `logits` are of; 0: none */
    char last;       /* last byte written */
    int64_t n_prompt, n_written;
    int64_t n_past;    /* tokens of the state that was loaded */
    int64_t n_refused; /* tokens of a text that the context cannot take */
    bool saves; /* the state is being saved: no first signal stops that */
    double prompt_s, written_s;
    pl_err err;
    pl_status status; /* of STOP_FAILED */
};

/* Adds tokens to the sequence, behind what it holds; the pending one is the
 * caller's business. The logits of the last are kept. `what` is shown. */
enum stop run_feed(struct run *r, const int32_t *ids, int64_t n,
                   const char *what);
/* True if `logits` are those of the sequence as it is. */
bool run_can_write(const struct run *r);
/* Samples up to -n tokens. The last one is left pending: whether it has to be
 * computed is not known yet. */
enum stop run_write_on(struct run *r);

/* --state-load, after the samplers are there; */
enum exit_code run_load_state(struct run *r);
/* --state-save: all that was written; the last token is computed first. */
enum exit_code run_save_state(struct run *r);

/* Reads what --grammar or --json-schema say; run_grammar.c. */
enum exit_code run_open_grammar(struct run *r);
/* What is written from here on is a new text of the grammar, */
enum stop run_begin_grammar(struct run *r);
/* which begins with the next token, unless a reply is not at its content yet;
 * STOP_END: all is well. */
enum stop run_keep_grammar(struct run *r);

/* To standard output. */
void run_say(struct run *r, const char *text, size_t len);
/* Ends a line that is begun. */
void run_end_line(struct run *r);
void run_say_full(const struct run *r);

/* A conversation through r->form; run_chat.c. */
enum exit_code run_chat(struct run *r);

#endif
