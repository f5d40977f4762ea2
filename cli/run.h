/* The state of `plait run` in all its modes, and the functions they share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "drafts.h"
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
    int32_t *bias_id; /* [sampling.n_bias] token ids with a logit bias, owned */
    float *bias;      /* [sampling.n_bias] biases of these tokens, owned */
    pl_sampler *sampler;
    int n_answers;              /* number of outputs begun */
    struct whole_file receipts; /* file of --receipt */
    struct jws_key *sign_key;   /* of --sign-key; owned; NULL if none */
    bool has_receipt;           /* `receipts` has a line */
    pl_receipt *receipt;        /* of the present output; owned; NULL if none */
    bool at_eog;                /* an end-of-text token ended the output */
    pl_grammar *grammar;        /* owned; NULL if the output is unconstrained */
    bool kept;                  /* the sampler applies `grammar` */
    pl_template *form;          /* owned; NULL if not a chat */
    struct chat *chat;          /* owned; NULL if not a chat */
    pl_reply *reply; /* parser of the reply; NULL outside of a reply in a
                            chat */
    pl_detokenizer *text;
    struct stops stops; /* the stop strings of --reverse-prompt */
    /* [drafts_rows][n_vocab], owned; logits computed from the first n_seen
     * tokens of the sequence. While a draft is verified, the next token is
     * sampled from row `row`; otherwise from the first. */
    float *logits;
    int64_t row;
    int32_t pending; /* token that was sampled but is not in the sequence
                        yet; -1 if none */
    /* [n_ctx], owned; tokens of the sequence, of which the first n_known are
     * valid */
    int32_t *held;
    /* Number of tokens at the beginning of `held` that are valid. Less than the
     * length of the sequence only if a loaded state had no note of its
     * tokens. */
    int64_t n_known;
    int64_t n_seen; /* length of the sequence when `logits` were computed; 0
                       if none were */
    char last;      /* last byte printed to standard output */
    int64_t n_prompt, n_written;
    int64_t n_past; /* number of tokens in the state that was loaded */
    /* number of tokens of the last text or prompt that did not fit in the
     * context */
    int64_t n_refused;
    /* true while the state is being saved; Ctrl-C then does not cancel steps of
     * the engine */
    bool saves;
    /* The following are of run_drafts.c. */
    struct draft_sources sources;
    bool drafts;     /* the present output is generated with drafts */
    uint8_t *wanted; /* [n_ctx + 1], owned, all zero; scratch */
    int64_t n_text;  /* tokens of the text, without the pending one */
    /* the draft that is being verified, n_draft tokens, of which n_accepted
     * were accepted */
    int32_t draft[PL_DRAFT_MAX];
    int n_draft, n_accepted;
    int64_t step_ns; /* time of the step that computed it, in nanoseconds */
    double prompt_s, written_s;
    pl_err err;
    /* status of the library call that failed, for STOP_FAILED */
    pl_status status;
};

/* Appends n tokens to the sequence and stores the logits of the last one in
 * r->logits. Does not append r->pending; callers put it into `ids` if it must
 * be. `what` names the work in the progress line; NULL shows none. Returns
 * STOP_END on success, else STOP_FULL, STOP_INTERRUPTED or STOP_FAILED. */
enum stop run_prefill(struct run *r, const int32_t *ids, int64_t n,
                      const char *what);
/* Returns true if r->logits were computed from all tokens of the sequence, so
 * that the next token can be sampled. */
bool run_can_write(const struct run *r);
/* Samples and prints at most -n tokens. The last sampled token stays in
 * r->pending: the engine computes it only if the sequence is continued or
 * saved. */
enum stop run_generate(struct run *r);

/* Restores the state file of --state-load, if given. r->sampler must exist. */
enum exit_code run_load_state(struct run *r);
/* Writes the file of --state-save, if given. Computes r->pending first, so that
 * the state contains all generated tokens. */
enum exit_code run_save_state(struct run *r);

/* Begins an output after the tokens of the sequence. Creates a sampler for it,
 * and a receipt if --receipt is given. In run_receipt.c. */
enum stop run_begin_answer(struct run *r);
/* Writes the receipt of an output that ended for the reason `why`. Returns
 * `why`, or STOP_FAILED if writing failed. */
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

/* Creates r->sources, before the engine. In run_drafts.c. */
enum exit_code run_open_drafts(struct run *r);
/* Begins an output with drafts. Each call of run_advance then computes the
 * logits after the pending token, which becomes part of the text, if they are
 * not known from a draft. `left` is the number of tokens that may still be
 * sampled, or negative for no limit. Returns what run_prefill would. */
void run_begin_drafts(struct run *r);
enum stop run_advance(struct run *r, int64_t left);
/* Makes the sequence the text again, and r->logits the logits after it. Returns
 * `stop`, or STOP_FAILED. */
enum stop run_settle(struct run *r, enum stop stop);

/* Shows the prompt and reads a line, including its newline, with the editor or,
 * if that is NULL, from standard input. Returns false at the end of the input,
 * after a second Ctrl-C, and on an error, with *code set. */
struct line_editor;
bool run_next_line(struct run *r, struct line_editor *editor,
                   const char *prompt, struct input *line,
                   enum exit_code *code);
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
