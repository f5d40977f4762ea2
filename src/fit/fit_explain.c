/* What is missing, device by device, and what would fit instead. */
#include "fit/fit_internal.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

/* Is the memory of d told of with an earlier device's? */
static bool is_told(const struct device_list *l, int d)
{
    for (int k = 0; k < d; k++)
        if (device_shares_memory(&l->dev[k], &l->dev[d]) &&
            device_shares_memory(&l->dev[d], &l->dev[k]))
            return true;
    return false;
}

/* " with cpu1, host": whose bytes count in device d's memory too. */
static void say_sharers(struct plan_config_text *t, const struct device_list *l,
                        int d)
{
    enum { MOST = 3 };
    int n = 0;

    for (int k = 0; k < l->n; k++)
        if (k != d && !l->dev[k].io &&
            device_shares_memory(&l->dev[d], &l->dev[k]) && n++ < MOST)
            plan_config_format(t, "%s %s", n == 1 ? " with" : ",",
                               l->dev[k].name);
    if (n > MOST)
        plan_config_format(t, " and %d more", n - MOST);
}

/* `missing`, of `has` bytes that are available. */
static void say_device(struct plan_config_text *t, const struct compiled *q,
                       int d, int64_t missing, uint64_t has)
{
    const struct device_desc *x = &q->list.dev[d];
    uint64_t bytes[REGION_COUNT] = {0};
    char b[24], now[24];

    for (int k = 0; k < q->list.n; k++) {
        const struct program *p = &q->low->prog[k];

        if (k != d && !device_shares_memory(x, &q->list.dev[k]))
            continue;
        bytes[REGION_WEIGHTS] += p->bytes[REGION_WEIGHTS];
        bytes[REGION_CACHE] += p->bytes[REGION_CACHE];
        bytes[REGION_WORK] +=
            program_buffers(p) +
            device_scratch_bytes(&q->list.dev[k], q->kernel_set, p);
    }
    plan_config_format(t, "%s", x->name);
    if (missing > 0)
        plan_config_format(t, ": needs %s more",
                           bytes_text(b, (uint64_t)missing));
    say_sharers(t, &q->list, d);
    plan_config_format(t, " (weights %s", bytes_text(b, bytes[REGION_WEIGHTS]));
    plan_config_format(t, ", cache %s", bytes_text(b, bytes[REGION_CACHE]));
    plan_config_format(t, ", buffers %s", bytes_text(b, bytes[REGION_WORK]));
    if (x->memory_bytes > 0)
        plan_config_format(t, "; %s available of %s", bytes_text(now, has),
                           bytes_text(b, x->memory_bytes));
    plan_config_format(t, ")");
}

void fit_table(struct plan_config_text *t, const struct fit *f,
               const struct compiled *q)
{
    enum { MOST = 6 };
    int n = 0;

    for (int d = 0; d < q->list.n; d++) {
        const struct device_desc *x = &q->list.dev[d];
        int64_t missing =
            f ? fit_lacks(f, q, d) : fit_shortfall(q, d, FIT_NO_MARGIN);

        if (is_told(&q->list, d) ||
            (missing <= 0 && (f || !q->low->prog[d].active)))
            continue;
        if (n++ >= MOST)
            continue;
        plan_config_format(t, "%s", n > 1 ? "; " : "");
        say_device(t, q, d, missing, f ? fit_memory(f, x) : x->available_bytes);
    }
    if (n > MOST)
        plan_config_format(t, "; and %d device%s more", n - MOST,
                           n - MOST == 1 ? "" : "s");
}

void fit_explain(pl_err *err, const struct compiled *q)
{
    struct plan_config_text t = {.n = 0};
    size_t at;

    if (!err)
        return;
    fit_table(&t, NULL, q);
    at = strlen(err->message);
    snprintf(err->message + at, sizeof err->message - at, "; planned: %s", t.s);
}

/* ---- remedies ----------------------------------------------------------- */

static bool same_experts(const struct plan_config *a,
                         const struct plan_config *b)
{
    for (int l = 0; l <= a->n_layer; l++)
        if ((a->experts && a->experts[l]) != (b->experts && b->experts[l]))
            return false;
    return true;
}

void fit_format_options(struct plan_config_text *out,
                        const struct plan_config *in,
                        const struct plan_config *asked, bool any)
{
    enum { MOST = 150 }; /* letters of a message for shares */
    struct plan_config_text mode = {.n = 0};

    plan_config_format_mode(&mode, in);
    if (any && (in->share != asked->share ||
                (asked->open.mode && asked->list.n > 1))) {
        plan_config_format(out, " %s", mode.n < MOST ? mode.s : "another -ts");
        if (in->n_rank != asked->n_rank)
            plan_config_format(out, " --ranks %d", in->n_rank);
    }
    if (in->n_on != asked->n_on) {
        plan_config_format(out, " -ngl ");
        plan_config_format_layers(out, in);
    }
    if (!same_experts(in, asked)) {
        plan_config_format(out, " -ncmoe ");
        plan_config_format_experts(out, in);
    }
    if (in->n_ubatch < asked->n_ubatch)
        plan_config_format(out, " -ub %" PRId64, in->n_ubatch);
    if (in->n_ctx < asked->n_ctx)
        plan_config_format(out, " -c %" PRId64, in->n_ctx);
    if (out->n == 0)
        plan_config_format(out, " %s", mode.n < MOST ? mode.s : "another -sm");
}
