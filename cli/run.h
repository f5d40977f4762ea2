/* The state of `plait run` in all its modes, and the functions they share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "input.h"
#include "session.h"

#include "server/jws.h"
#include "server/stop_strings.h"

#include "pl_receipt.h"

/* The reason why generation stopped. */
enum stop { STOP_END, STOP_LENGTH, STOP_FULL, STOP_INTERRUPTED, STOP_FAILED };

struct run {
    const struct options *o;
    struct session s;
    struct input prompt;
    pl_sampling sampling; /* o->sampling, with the values that the model's file
                             recommends where no option set them */
    int32_t *bias_id;     /* owned */
    float *bias;          /* owned */
    pl_sampler *sampler;
    int n_answers;              /* number of outputs begun */
    struct whole_file receipts; /* file of --receipt */
    struct jws_key *sign_key;   /* of --sign-key; owned; NULL if none */
    pl_receipt *receipt;        /* of the present output; owned; NULL if none */
    bool at_eog;                /* an end-of-text token ended the output */
    pl_grammar *grammar;        /* owned; NULL if the output is unconstrained */
    bool kept;                  /* the sampler applies `grammar` */
    pl_template *form;          /* owned; NULL if not a chat */
    struct chat *chat;          /* owned; NULL if not a chat */
    pl_reply *reply; /* parser of the reply; NULL outside of a reply in a
                            chat */
    pl_detokenizer *text;
    struct stops stops; /* of --reverse-prompt */
    float *logits;      /* [n_vocab], owned; logits after token n_seen - 1 of
                           the sequence */
    int32_t pending;    /* token that was sampled but is not in the sequence
                           yet; -1 if none */
    int32_t *held;      /* [n_ctx], owned; the tokens of the sequence, as far as
                           n_known says */
    int64_t n_known;    /* number of tokens at the beginning of `held` that are
                           valid; less than all only if a loaded state did not
                           contain its tokens */
    int64_t n_seen;     /* length of the sequence when `logits` were computed; 0
                           if none were */
    char last;          /* last byte printed */
    int64_t n_prompt, n_written;
    int64_t n_past;    /* tokens of the loaded state */
    int64_t n_refused; /* number of tokens of the last text that did not fit in
                          the context */
    bool saves;        /* the state is being saved, so Ctrl-C does not cancel
                          steps */
    double prompt_s, written_s;
    pl_err err;
    pl_status status; /* for STOP_FAILED */
};

/* Appends n tokens to the sequence and stores the logits of the last one in
 * r->logits. Does not append r->pending; callers put it into `ids` if it must
 * be. `what` names the work in the progress line; NULL shows none. Returns
 * STOP_END on success, else STOP_FULL, STOP_INTERRUPTED or STOP_FAILED. */
enum stop run_prefill(struct run *r, const int32_t *ids, int64_t n,
                      const char *what);
/* Returns true if r->logits belong to the last token of the sequence, so that
 * the next token can be sampled. */
bool run_can_write(const struct run *r);
/* Samples and prints up to -n tokens. The last one stays pending: it is
 * computed only if the sequence is continued or saved. */
enum stop run_generate(struct run *r);

/* Restores the state file of --state-load, if given. r->sampler must exist. */
enum exit_code run_load_state(struct run *r);
/* Writes the file of --state-save, if given. Computes r->pending first, so that
 * the state contains all generated tokens. */
enum exit_code run_save_state(struct run *r);

/* Begins the output after the tokens that the sequence has: with a sampler of
 * its own, and with a receipt if --receipt is given. In run_receipt.c. */
enum stop run_begin_answer(struct run *r);
/* Writes the receipt of the output, which ended for the reason `why`. Returns
 * `why`, or STOP_FAILED. */
enum stop run_end_answer(struct run *r, enum stop why);

/* Compiles the grammar of --grammar or --json-schema into r->grammar; in
 * run_grammar.c. */
enum exit_code run_open_grammar(struct run *r);
/* Removes the grammar from the sampler. Once run_keep_grammar sets it again,
 * the following output must be a complete text of the grammar. Returns STOP_END
 * on success. */
enum stop run_begin_grammar(struct run *r);
/* Makes the sampler enforce r->grammar from the next token on. If a chat reply
 * has not reached its content yet, does nothing. Returns STOP_END on
 * success. */
enum stop run_keep_grammar(struct run *r);

/* Prints text to standard output, and sets r->last to its last byte. */
void run_print(struct run *r, const char *text, size_t len);
/* Prints a newline if the last byte printed is not one. */
void run_end_line(struct run *r);
void run_warn_context_full(const struct run *r);

/* Prepares a conversation with the template r->form, before weights are loaded:
 * checks its options and reads the system message. In run_chat.c. The caller
 * calls run_chat_close in all cases. */
enum exit_code run_chat_open(struct run *r);
enum exit_code run_chat(struct run *r);
void run_chat_close(struct run *r);

#endif
