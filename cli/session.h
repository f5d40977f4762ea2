/* What commands that compute share: a model on devices with one sequence, and
 * the way from a library's error to a message and an exit code. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "options.h"
#include "term.h"
#include "whole_file.h"

struct session {
    pl_options pl; /* o->pl with log and progress set */
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* the model's own */
    int64_t n_vocab;
    int64_t n_ctx;
    int64_t piece; /* tokens handed over at once */
    struct term_progress progress;
    const struct options *o;
    struct whole_file trace; /* of --trace */
};

/* The library's options, with one sequence and no log, and how many tokens are
 * handed over at once. */
void session_settings(pl_options *pl, int64_t *piece, const struct options *o);
/* Opens the model only: enough to plan and to tokenize. session_close takes *s
 * in all cases. */
enum exit_code session_open(struct session *s, const struct options *o);
/* Loads it; s->pl may have been adjusted in between. */
enum exit_code session_load(struct session *s, const struct options *o);
/* Gives `c` back, or what went wrong at the end. */
enum exit_code session_close(struct session *s, enum exit_code c);

/* Fails if the model has no vocabulary to make text of. */
enum exit_code session_need_words(const struct session *s,
                                  const struct options *o);

/* Adds tokens to sequence 0, `piece` at a time, showing progress as `what`
 * unless NULL. The logits [n_vocab] of the last are stored where not NULL.
 * `cancel` is pl_engine_decode's. */
pl_status session_feed(struct session *s, const int32_t *ids, int64_t n,
                       float *logits, const char *what,
                       const volatile int *cancel, pl_err *err);

/* Prints the message of a failed call; what it means as an exit code. */
enum exit_code report(const struct options *o, pl_status s, const pl_err *err);

/* A pl_write_fn to standard output. */
void write_out(void *user, const char *text, size_t len);
/* False once a write to standard output has failed. */
bool flush_out(void);
/* The same with a message, but for a pipe that nobody reads any more: to be
 * asked before a command says it is done. */
enum exit_code finish_out(const struct options *o);

#endif
