/* The receipts of plait run: a line of the file for each answer. */
#include "receipt_file.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the sampler by a new one that has accepted only the tokens of the
 * sequence. So an output depends on the tokens before it and on its number in
 * the conversation, not on whether these tokens were typed, generated or
 * loaded. */
static pl_status renew_sampler(struct run *r, int64_t n)
{
    pl_sampling s = r->sampling;

    pl_sampler_free(r->sampler);
    r->sampler = NULL;
    s.seed += (uint64_t)r->n_answers;
    r->status = pl_sampler_create(&r->sampler, &s, r->s.n_vocab, &r->err);
    for (int64_t i = 0; r->status == PL_OK && i < n; i++)
        pl_sampler_accept(r->sampler, r->held[i]);
    return r->status;
}

enum stop run_begin_answer(struct run *r)
{
    int64_t n = pl_seq_length(r->s.engine, 0);

    r->at_eog = false;
    pl_sampler_record(r->sampler, NULL, NULL);
    if (r->n_known == n && r->n_answers > 0 && renew_sampler(r, n) != PL_OK)
        return STOP_FAILED;
    r->n_answers++;
    pl_receipt_free(r->receipt);
    r->receipt = NULL;
    if (r->o->receipt == NULL)
        return STOP_END;
    if (r->n_known != n) {
        r->status = PL_BAD_ARGUMENT;
        snprintf(
            r->err.message, sizeof(r->err.message),
            "--receipt: the loaded state does not contain its tokens; load "
            "one that `plait run` has saved");
        return STOP_FAILED;
    }
    r->status = pl_receipt_begin(&r->receipt, r->s.engine, r->held, n, &r->err);
    if (r->status == PL_OK)
        r->status = pl_sampler_record(r->sampler, r->receipt, &r->err);
    return r->status == PL_OK ? STOP_END : STOP_FAILED;
}

static pl_receipt_end reason(const struct run *r, enum stop why)
{
    switch (why) {
    case STOP_END:
        return r->at_eog           ? PL_RECEIPT_EOG
               : r->stops.hit >= 0 ? PL_RECEIPT_STOP
                                   : PL_RECEIPT_MESSAGE;
    case STOP_LENGTH:
        return PL_RECEIPT_LENGTH;
    case STOP_FULL:
        return PL_RECEIPT_CONTEXT;
    case STOP_INTERRUPTED:
        return PL_RECEIPT_CANCELLED;
    case STOP_FAILED:
        break;
    }
    return PL_RECEIPT_OTHER;
}

enum stop run_end_answer(struct run *r, enum stop why)
{
    pl_status s;

    if (r->receipt == NULL || why == STOP_FAILED)
        return why;
    pl_sampler_record(r->sampler, NULL, NULL);
    s = pl_receipt_set_end(r->receipt, reason(r, why), r->o->n_predict,
                           (const char *const *)r->o->stops.v, r->o->stops.n,
                           &r->err);
    if (s == PL_OK)
        s = receipt_line(&r->receipts, r->receipt, receipt_flags(r->o),
                         r->sign_key, &r->err);
    r->has_receipt |= s == PL_OK;
    if (s == PL_OK)
        return why;
    r->status = s;
    return STOP_FAILED;
}
