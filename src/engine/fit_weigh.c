/* What a plan needs and how fast it is.
 *
 * Memory is what the devices would allocate, counted as device_set counts it:
 * cpu devices on one node share its memory, and with a host over all nodes all
 * of the machine's. Time is a prompt's and an answer's on the cost function's
 * timeline. */
#include "engine/fit.h"

#include "base/err.h"
#include "plan/cost.h"

#include <math.h>
#include <stdlib.h>

/* ---- memory ------------------------------------------------------------ */

static uint64_t needed(const struct planned *q, int d)
{
    const struct program *p = &q->low->prog[d];
    uint64_t n =
        q->paper ? 0 : device_scratch_bytes(&q->list.dev[d], &q->kernels, p);

    for (int r = 0; r < REGION_COUNT; r++)
        n += p->bytes[r];
    return n;
}

int64_t fit_missing(const struct planned *q, int d, uint64_t margin)
{
    const struct device_desc *x = &q->list.dev[d];
    uint64_t all = 0;

    if (x->memory_bytes == 0)
        return INT64_MIN;
    for (int k = 0; k < q->list.n; k++)
        if (k == d || device_shares_memory(x, &q->list.dev[k]))
            all += needed(q, k);
    if (margin == FIT_NO_MARGIN)
        margin = 0;
    else if (margin == 0)
        margin = x->memory_bytes / 64;
    return (int64_t)(all + margin) - (int64_t)x->memory_bytes;
}

/* ---- speed ------------------------------------------------------------- */

/* One run of n tokens, by whichever script of one micro-batch is faster. */
static pl_status one(const struct planned *q, const struct cost_machine *m,
                     int64_t n, int64_t n_past, double *s, pl_err *err)
{
    const struct cost_step z = {{n, 1, q->max.n_slot}, n_past, 1};
    double stream;

    PL_TRY(cost_run(m, q->way[WAY_PLAIN], 1, &z, NULL, s, err));
    if (q->way[WAY_STREAM] < 0 || n < 2)
        return PL_OK;
    PL_TRY(cost_run(m, q->way[WAY_STREAM], 1, &z, NULL, &stream, err));
    *s = fmin(*s, stream);
    return PL_OK;
}

/* A prompt as the engine cuts it: alike for all micro-batches of a run. */
static pl_status prompt(const struct planned *q, const struct cost_machine *m,
                        int64_t n_tok, double *seconds, pl_err *err)
{
    enum { LEAST = 64 };
    int64_t past = 0;

    for (*seconds = 0; past < n_tok;) {
        int64_t left = n_tok - past, most = q->max.n_tok, n = left / LEAST;
        struct cost_step z[PLANNED_PIPELINE];
        double s;

        n = q->way[WAY_PIPELINE] < 0 ? 1
            : n < PLANNED_PIPELINE   ? n
                                     : PLANNED_PIPELINE;
        if (n < 2) {
            int64_t k = left < most ? left : most;

            PL_TRY(one(q, m, k, past, &s, err));
            *seconds += s;
            past += k;
            continue;
        }
        if ((left + n - 1) / n < most)
            most = (left + n - 1) / n;
        for (n = 0; n < PLANNED_PIPELINE && past < n_tok; n++) {
            int64_t k = n_tok - past < most ? n_tok - past : most;

            z[n] = (struct cost_step){{k, 0, q->max.n_slot}, past, 1};
            past += k;
        }
        z[n - 1].sizes.n_out = past == n_tok;
        PL_TRY(cost_run(m, q->way[WAY_PIPELINE], (int)n, z, NULL, &s, err));
        *seconds += s;
    }
    return PL_OK;
}

pl_status fit_seconds(const struct planned *q, const struct cost_rates *rates,
                      int64_t n_ctx, double *seconds, pl_err *err)
{
    size_t n = (size_t)q->list.n;
    int *lane = calloc(2 * n + 1, sizeof *lane);
    struct cost_machine m = {.n_dev = q->list.n,
                             .prog = q->low->prog,
                             .rates = rates,
                             .lane0 = lane};
    int64_t n_prompt = n_ctx < FIT_PROMPT ? n_ctx : FIT_PROMPT;
    double all, token;
    pl_status s;

    if (!lane)
        return err_no_memory(err, "an estimate");
    m.n_lane = lane + n;
    cost_lanes(&q->list, lane, lane + n);
    s = prompt(q, &m, n_prompt, &all, err);
    if (s == PL_OK)
        s = one(q, &m, 1, n_prompt - 1, &token, err);
    if (s == PL_OK)
        *seconds = all + FIT_ANSWER * token;
    free(lane);
    return s;
}
