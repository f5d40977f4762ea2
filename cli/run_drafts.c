/* plait run with drafts: a step computes the pending token and the tokens that
 * the drafter proposes after it. As long as the sampler chooses the drafted
 * tokens, their logits are at hand, and no step is needed.
 *
 * While an output is generated, the engine's sequence may have drafted tokens
 * after those of the text, or lack the last ones of the text, if the model
 * cannot be trimmed to each length. run_settle ends that. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum exit_code run_open_drafts(struct run *r)
{
    pl_status s = drafts_open(&r->sources, r->o, r->s.model, 1, r->s.pl.log,
                              NULL, &r->err);

    return s == PL_OK ? EXIT_DONE : report(r->o, s, &r->err);
}

void run_begin_drafts(struct run *r)
{
    r->n_text = pl_seq_length(r->s.engine, 0);
    r->row = r->n_draft = r->n_accepted = 0;
}

/* Trims the sequence to the tokens of the text. The sequence may become
 * shorter. */
static pl_status trim(struct run *r)
{
    int64_t kept;

    if (pl_seq_length(r->s.engine, 0) <= r->n_text)
        return PL_OK;
    return pl_seq_trim(r->s.engine, 0, r->n_text, &kept, &r->err);
}

/* Ends the verification of the last draft. Its tokens that were not accepted
 * are removed. */
static pl_status end_draft(struct run *r)
{
    if (r->n_draft > 0)
        pl_draft_record(r->sources.drafter, 0, r->n_accepted);
    if (r->step_ns > 0)
        pl_draft_measure(r->sources.drafter, r->step_ns);
    r->step_ns = 0;
    r->n_draft = r->n_accepted = 0;
    return trim(r);
}

/* Drafts at most `most` tokens to follow the pending one, in r->draft. Returns
 * their number. */
static int propose(struct run *r, int64_t from, int64_t most)
{
    pl_draft q = {.text = r->held,
                  .n_text = r->n_text + 1,
                  .n_most = most,
                  .n_again = r->n_text - from,
                  .token = r->draft};

    pl_err err;
    pl_status s = pl_draft_propose(r->sources.drafter, &q, 1,
                                   r->n_text + 1 - from, most, &err);

    if (s != PL_OK && s != PL_NO_MEMORY)
        cli_error(CMD_RUN, EXIT_DONE,
                  "the draft model failed and is not used again: %s",
                  err.message);
    memcpy(r->held + r->n_text + 1, r->draft, (size_t)q.n * sizeof(*r->draft));
    return q.n;
}

/* Computes those tokens of the text that the sequence lacks, the pending token
 * and n drafted ones. Stores n + 1 rows of logits. */
static pl_status decode(struct run *r, int64_t from, int n)
{
    uint8_t *last = r->wanted + r->n_text - from;
    pl_batch b = {.size = sizeof b,
                  .n = r->n_text + 1 - from + n,
                  .token = r->held + from,
                  .wanted = r->wanted,
                  .logits = r->logits};
    double start = term_seconds();
    pl_status s;

    memset(last, 1, (size_t)n + 1);
    s = pl_engine_decode(r->s.engine, &b, r->saves ? NULL : &term_interrupts,
                         &r->err);
    memset(last, 0, (size_t)n + 1);
    r->step_ns = s == PL_OK ? (int64_t)((term_seconds() - start) * 1e9) : 0;
    return s;
}

enum stop run_advance(struct run *r, int64_t left)
{
    int64_t from, most = r->s.n_ctx - r->n_text - 1;
    int n;

    if (r->n_accepted < r->n_draft && r->draft[r->n_accepted] == r->pending) {
        r->n_accepted++;
        r->row++;
        r->n_known = ++r->n_text;
        return STOP_END;
    }
    r->status = end_draft(r);
    if (r->status != PL_OK)
        return STOP_FAILED;
    if (most < 0) {
        r->n_refused = 1;
        return STOP_FULL;
    }
    most = left > 0 && left - 1 < most ? left - 1 : most;
    from = pl_seq_length(r->s.engine, 0);
    r->held[r->n_text] = r->pending;
    n = propose(r, from, most);
    r->status = decode(r, from, n);
    /* Without drafts the step may succeed: their logits may not be finite. */
    if (n > 0 && r->status != PL_OK && r->status != PL_CANCELLED &&
        r->status != PL_DEVICE && trim(r) == PL_OK) {
        n = 0;
        r->status = decode(r, pl_seq_length(r->s.engine, 0), n);
    }
    if (r->status != PL_OK) {
        r->n_seen = 0;
        (void)trim(r);
        return r->status == PL_CANCELLED ? STOP_INTERRUPTED : STOP_FAILED;
    }
    r->n_draft = n;
    r->row = 0;
    r->n_known = r->n_seen = ++r->n_text;
    return STOP_END;
}

enum stop run_settle(struct run *r, enum stop stop)
{
    int64_t from;
    pl_err err = r->err;
    pl_status s = end_draft(r);

    from = pl_seq_length(r->s.engine, 0);
    if (s == PL_OK && from < r->n_text)
        s = session_feed(&r->s, r->held + from, r->n_text - from, NULL, NULL,
                         NULL, &r->err);
    r->n_known = pl_seq_length(r->s.engine, 0);
    if (r->row > 0) {
        memmove(r->logits, r->logits + r->row * r->s.n_vocab,
                (size_t)r->s.n_vocab * sizeof(*r->logits));
        r->n_seen = r->n_text;
        r->row = 0;
    }
    if (stop == STOP_FAILED || s == PL_OK) {
        r->err = err; /* the first failure is the cause */
        return stop;
    }
    r->status = s;
    return STOP_FAILED;
}
