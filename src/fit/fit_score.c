/* Computes the memory and the time of a plan.
 *
 * Memory is what the devices would allocate, counted as device_set counts it:
 * cpu devices on one node share its memory, and with a host over all nodes all
 * of the machine's. The memory of devices is all that they have, or what is
 * available of it now; fit.c explains which one counts when. Time is that of a
 * prompt and its answer on the cost function's timeline. */
#include "fit/fit_internal.h"

#include "base/err.h"
#include "cost/rates.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

uint64_t fit_need(const struct compiled *q, int d)
{
    const struct program *p = &q->low->prog[d];
    uint64_t n = device_scratch_bytes(&q->list.dev[d], q->kernel_set, p);

    for (int r = 0; r < REGION_COUNT; r++)
        n += p->bytes[r];
    return n;
}

int fit_same_device(const struct compiled *q, const struct device_desc *x)
{
    for (int d = 0; d < q->list.n; d++)
        if (q->list.dev[d].machine == x->machine &&
            strcmp(q->list.dev[d].name, x->name) == 0)
            return d;
    for (int d = 0; d < q->list.n; d++)
        if (device_shares_memory(&q->list.dev[d], x))
            return d;
    return -1;
}

/* need[q->list.n] is what each device allocates; NULL if that is not known. */
static int64_t missing(const struct compiled *q, const uint64_t *need, int d,
                       uint64_t has, uint64_t margin)
{
    const struct device_desc *x = &q->list.dev[d];
    uint64_t all = 0;

    if (has == 0 || x->io) /* its memory belongs to others */
        return INT64_MIN;
    for (int k = 0; k < q->list.n; k++)
        if (k == d || device_shares_memory(x, &q->list.dev[k]))
            all += need ? need[k] : fit_need(q, k);
    return (int64_t)(all + margin) - (int64_t)has;
}

/* Returns the bytes of a device's memory that a plan must leave free. */
static uint64_t margin_of(uint64_t has, uint64_t margin)
{
    return margin == FIT_NO_MARGIN ? 0 : margin == 0 ? has / 64 : margin;
}

int64_t fit_shortfall(const struct compiled *q, int d, uint64_t margin)
{
    const struct device_desc *x = &q->list.dev[d];

    return missing(q, NULL, d, x->available_bytes,
                   margin_of(x->available_bytes, margin));
}

uint64_t fit_memory(const struct fit *f, const struct device_desc *x)
{
    uint64_t taken = x->on_cores || x->host ? f->reserve : 0;

    if (!f->now || x->available_bytes == 0)
        return x->memory_bytes;
    return x->available_bytes > taken ? x->available_bytes - taken : 1;
}

uint64_t fit_margin(const struct fit *f, const struct device_desc *x)
{
    return margin_of(fit_memory(f, x), f->margin);
}

int64_t fit_lacks(const struct fit *f, const struct fit_candidate *p, int d)
{
    const struct device_desc *x = &p->q->list.dev[d];

    return missing(p->q, fit_needs(f, p), d, fit_memory(f, x),
                   fit_margin(f, x));
}

int64_t fit_all_lacks(const struct fit *f, const struct fit_candidate *p)
{
    int64_t sum = 0;

    for (int d = 0; d < p->q->list.n; d++) {
        int64_t m = fit_lacks(f, p, d);

        sum += m > 0 ? m : 0;
    }
    return sum;
}

/* ---- speed ------------------------------------------------------------- */

pl_status fit_rates(struct fit *f, const struct compiled *q,
                    struct cost_rates **rates, pl_err *err)
{
    struct rates_basis basis;

    *rates = arena_alloc(&f->arena, (size_t)q->list.n, sizeof **rates);
    if (!*rates)
        return err_no_memory(err, "an estimate");
    return rates_known(q, f->calibrated ? &f->cal : NULL, *rates, &basis, err);
}

pl_status fit_seconds(const struct compiled *q, const struct cost_rates *rates,
                      int64_t n_ctx, double *seconds, double *prompt_s,
                      pl_err *err)
{
    size_t n = (size_t)q->list.n;
    int *thread = calloc(2 * n + 1, sizeof *thread);
    struct cost_machine m = {.n_dev = q->list.n,
                             .prog = q->low->prog,
                             .rates = rates,
                             .thread0 = thread};
    int64_t n_prompt = n_ctx < FIT_PROMPT ? n_ctx : FIT_PROMPT;
    double all, token;
    pl_status s;

    if (!thread)
        return err_no_memory(err, "an estimate");
    m.n_thread = thread + n;
    cost_threads(&q->list, thread, thread + n);
    s = cost_tokens(&m, n_prompt, 0, NULL, &all, err);
    if (s == PL_OK)
        s = cost_tokens(&m, 1, n_prompt - 1, NULL, &token, err);
    if (s == PL_OK)
        *seconds = all + FIT_ANSWER * token;
    if (s == PL_OK && prompt_s)
        *prompt_s = all;
    free(thread);
    return s;
}
