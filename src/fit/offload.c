/* Finds the number of tokens from which on a step streams the host's weights
 * and caches to the devices.
 *
 * Both ways give the same bits. The cost function determines the faster one, by
 * the rates that are known without measuring: a description's, the machine's
 * calibration if there is one, else typical ones. */
#include "fit/fit.h"

#include "base/err.h"
#include "cost/rates.h"

#include <stdlib.h>

/* Sets *out to true if streaming is faster for a step of n tokens. */
static pl_status faster(const struct compiled *q, const struct cost_machine *m,
                        int64_t n, bool *out, pl_err *err)
{
    const struct cost_micro z = {.sizes = graph_sizes_of(&q->max, n, 1, 1)};
    double plain, stream;

    PL_TRY(cost_run(m, q->variant[VARIANT_RESIDENT], 1, &z, NULL, &plain, err));
    PL_TRY(
        cost_run(m, q->variant[VARIANT_STREAMED], 1, &z, NULL, &stream, err));
    *out = stream < plain;
    return PL_OK;
}

pl_status fit_offload(struct compiled *q, pl_offload how, pl_err *err)
{
    size_t n = (size_t)q->list.n;
    struct cost_machine m = {.n_dev = q->list.n, .prog = q->low->prog};
    struct calibration c;
    struct rates_basis basis;
    struct cost_rates *r;
    int *thread;
    bool yes = true, kept;
    pl_status s = PL_OK;

    q->variants.stream_from = 2;
    if (q->variant[VARIANT_STREAMED] < 0 || how == PL_OFFLOAD_ON)
        return PL_OK;
    r = calloc(n, sizeof *r);
    thread = calloc(2 * n, sizeof *thread);
    if (!r || !thread) {
        s = err_no_memory(err, "an estimate");
        goto done;
    }
    s = rates_find(q, &c, &kept, err);
    if (s == PL_OK)
        s = rates_known(q, kept ? &c : NULL, r, &basis, err);
    if (s != PL_OK)
        goto done;
    cost_threads(&q->list, thread, thread + n);
    m.rates = r;
    m.thread0 = thread;
    m.n_thread = thread + n;
    q->variants.stream_from = q->max.n_tok + 1;
    for (int64_t t = q->max.n_tok; t > 1 && yes && s == PL_OK; t /= 2) {
        s = faster(q, &m, t, &yes, err);
        if (s == PL_OK && yes)
            q->variants.stream_from = t;
    }
done:
    free(r);
    free(thread);
    return s;
}
