/* Shared by commands that compute: a model with an engine on devices and one
 * sequence, and the conversion of a library error to a message and an exit
 * code. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "atomic_file.h"
#include "options.h"
#include "term.h"

struct session {
    /* the library's options from the command line, with log, progress and trace
     * set */
    pl_options pl;
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *words; /* tokenizer, borrowed from the model */
    int64_t n_vocab;
    int64_t n_ctx;
    int64_t piece; /* greatest number of tokens in one call of the engine */
    struct term_progress progress;
    const struct options *o;
    struct whole_file trace; /* the file of --trace */
};

/* Sets *pl to the library's options in `o`, with one sequence and no log. Sets
 * *piece to the greatest number of tokens in one call of the engine. */
void session_settings(pl_options *pl, int64_t *piece, const struct options *o);
/* Returns the bytes of host memory that a command takes beside the plan, with n
 * samplers: for the program, texts, and logits on their way to a token. Plans
 * leave them free (pl_options.host_reserve), because a process that has a limit
 * is killed when it exceeds it. */
uint64_t session_own_bytes(const pl_model *m, int n);
/* Opens the model that `o` names, with the key overrides of `o`. */
pl_status session_model(pl_model **m, const struct options *o, pl_err *err);
/* Opens the model without an engine, which suffices to plan and to tokenize.
 * The caller must call session_close in all cases. */
enum exit_code session_open(struct session *s, const struct options *o);
/* Creates the engine with the options s->pl, which the caller may have changed
 * since session_open. */
enum exit_code session_load(struct session *s, const struct options *o);
/* session_load without a message if the engine cannot be created. Then *status
 * and *err say why, and the result is EXIT_FAILED; otherwise *status is
 * PL_OK. */
enum exit_code session_try_load(struct session *s, const struct options *o,
                                pl_status *status, pl_err *err);
/* Prints a warning if a context of n_ctx tokens is longer than the model was
 * trained on. */
void session_check_context(const pl_model *m, int64_t n_ctx,
                           const struct options *o);
/* Writes advice on a context that is too short to buf: `least` tokens are
 * needed, and `want` would be good. The advice names -c, and the length that
 * the model was trained on if that is less. Returns buf. */
enum { SESSION_ADVICE = 120 };
const char *session_advise(char buf[SESSION_ADVICE], const struct session *s,
                           int64_t least, int64_t want);
/* Closes the session. Returns `c`, or the exit code of an error that occurs
 * while closing. */
enum exit_code session_close(struct session *s, enum exit_code c);

/* Sets *s to the sampling options in `o`. Fields that no option has set get the
 * values that the model's file recommends. Prints a warning if such a value
 * cannot be used. */
void session_sampling(pl_sampling *s, const struct options *o,
                      const pl_model *m);

/* Prints an error and returns its code if the model has no vocabulary. */
enum exit_code session_require_tokenizer(const struct session *s,
                                         const struct options *o);

/* Appends n tokens to sequence 0 in calls of at most s->piece tokens. Shows
 * progress under the name `what` unless NULL. Stores the logits [n_vocab] of
 * the last token in `logits` unless NULL. `cancel` is passed to
 * pl_engine_decode. */
pl_status session_feed(struct session *s, const int32_t *ids, int64_t n,
                       float *logits, const char *what,
                       const volatile int *cancel, pl_err *err);

/* Returns the exit code of a library call that failed with status `s`. */
enum exit_code exit_code_of(pl_status s);
/* Prints the message of a library call that failed with status `s`, and returns
 * the exit code for it. */
enum exit_code report(const struct options *o, pl_status s, const pl_err *err);

/* Prints that no option names a model, and `more` ways to give one. Returns
 * EXIT_USAGE. */
enum exit_code report_no_model(const struct options *o, const char *more);

/* A pl_write_fn that writes to standard output. */
void write_out(void *user, const char *text, size_t len);
/* Flushes standard output. Returns false if any write to it has failed. */
bool flush_out(void);
/* Flushes standard output before a command reports success. If a write has
 * failed, returns EXIT_PIPE if the reader of the pipe is gone, else prints a
 * message and returns EXIT_FAILED. */
enum exit_code finish_out(const struct options *o);

#endif
