/* Drafts of a model's own block for multi-token prediction. The block computes,
 * from the hidden values of a token and from the token after it, logits of the
 * token after that. It has an engine of its own (pl_engine_mtp), with a
 * sequence for each text.
 *
 *   position       p           p + 1
 *   token          t           u          the text
 *   hidden values  h           -          of the model, for position p
 *   block          (h, u)                 its logits predict the token after u
 *
 * The model's engine gives the hidden values of all tokens that it computes
 * (draft_mtp_receive), prompts included. They wait until a draft is requested
 * or until there are many. Then the block computes them, so that its cache has
 * the text. To draft, it goes on with its own hidden values and its own most
 * probable tokens. After that its sequence is trimmed to the text again.
 *
 * A text whose first tokens come from a cache or a saved state lacks their
 * hidden values. So the block keeps the sequences of texts that ended, as long
 * as it has space, and gives the new text what the most similar one has of
 * these tokens (draft_mtp_begin). Positions that are still missing are left
 * out: the block's next row follows the last one that it has. Such drafts are
 * less often right, which changes no text. */
#ifndef DRAFT_MTP_H
#define DRAFT_MTP_H

#include "draft/draft_model.h"

struct mtp_text;

struct draft_mtp {
    pl_engine *engine; /* borrowed; NULL if there is no block */
    int64_t n_vocab, d_model;
    bool normed; /* pl_model_mtp_normed */
    int n_seq;   /* number of texts */
    /* The engine's sequences: those of the texts, and those that keep texts
     * that ended. */
    int n_text;
    struct mtp_text *text;     /* owned, [n_text]: what each sequence has */
    int *slot;                 /* owned, [n_seq]: the sequence of each text */
    uint64_t clock;            /* number of texts that ended */
    struct cost_times times;   /* times of the engine's steps, by the number of
                                tokens */
    int64_t wall_ns, count_ns; /* as in struct draft_model */
    pl_status failed; /* the engine failed while it received hidden values */
    /* The batch; owned. [cap] tokens, [n_seq] rows of results. */
    int32_t *token, *seq;
    uint8_t *wanted;
    float *hidden, *logits, *next;
    int64_t cap;
};

/* Initializes *m for n_seq texts. `engine` runs the first block of the model
 * `model` and has as many sequences, which are empty; further ones keep rows of
 * texts that ended. The caller calls draft_mtp_fini in all cases. */
pl_status draft_mtp_init(struct draft_mtp *m, pl_engine *engine,
                         const pl_model *model, int n_seq, pl_err *err);
void draft_mtp_fini(struct draft_mtp *m);
/* Begins an empty text whose first n_done tokens the model's engine does not
 * compute. text[0 .. n_text - 1] are its tokens as far as they are known. */
void draft_mtp_begin(struct draft_mtp *m, int seq, const int32_t *text,
                     int64_t n_text, int64_t n_done);
/* Takes the hidden values of a step of the model's engine, whose sequences have
 * the numbers of the texts. */
void draft_mtp_receive(struct draft_mtp *m, const pl_hidden_rows *rows);
/* Drafts n texts. A text whose hidden values are not there gets no draft. On
 * failure no text does; PL_NO_MEMORY may pass, other statuses are those of an
 * engine that failed. */
pl_status draft_mtp_propose(struct draft_mtp *m, struct model_draft *d, int n,
                            pl_err *err);
/* Ends a text. Its rows are kept for others that begin alike. */
void draft_mtp_forget(struct draft_mtp *m, int seq);

#endif
