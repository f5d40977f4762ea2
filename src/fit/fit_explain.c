/* Reports the memory that each device lacks, and plans that would fit
 * instead. */
#include "fit/fit_internal.h"

#include "base/bytes.h"
#include "base/err.h"
#include "quant/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

/* Returns true if the memory of d is reported with an earlier device. */
static bool is_told(const struct device_list *l, int d)
{
    for (int k = 0; k < d; k++)
        if (device_shares_memory(&l->dev[k], &l->dev[d]) &&
            device_shares_memory(&l->dev[d], &l->dev[k]))
            return true;
    return false;
}

/* Appends the devices that share device d's memory, such as " with cpu1,
 * host". */
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

/* Returns the bytes of a block for multi-token prediction that candidate p has
 * in the memory of device d. */
static uint64_t block_bytes(const struct fit_candidate *p, int d)
{
    const struct device_list *l = &p->q->list;
    uint64_t n = 0;

    for (int k = 0; p->need[0] && k < l->n; k++)
        if (k == d || device_shares_memory(&l->dev[d], &l->dev[k]))
            n += p->need[1][k] - p->need[0][k];
    return n;
}

/* Appends the name of device `d`, the `missing` bytes if any, what takes memory
 * on it, and the bytes that are available, of which some are left to the
 * caller. */
static void say_device(struct plan_config_text *t, const struct fit *f,
                       const struct fit_candidate *p, int d, int64_t missing)
{
    const struct compiled *q = p->q;
    const struct device_desc *x = &q->list.dev[d];
    uint64_t bytes[REGION_COUNT] = {0}, block = block_bytes(p, d);
    uint64_t has = f && !f->now ? fit_memory(f, x) : x->available_bytes;
    uint64_t reserve = f && f->now && (x->on_cores || x->host) ? f->reserve : 0;
    char b[24], now[24];

    for (int k = 0; k < q->list.n; k++) {
        const struct program *g = &q->low->prog[k];

        if (k != d && !device_shares_memory(x, &q->list.dev[k]))
            continue;
        bytes[REGION_WEIGHTS] += g->bytes[REGION_WEIGHTS];
        bytes[REGION_CACHE] += g->bytes[REGION_CACHE];
        bytes[REGION_WORK] +=
            program_buffers(g) +
            device_scratch_bytes(&q->list.dev[k], q->kernel_set, g);
    }
    plan_config_format(t, "%s", x->name);
    if (missing > 0)
        plan_config_format(t, ": needs %s more",
                           bytes_text(b, (uint64_t)missing));
    say_sharers(t, &q->list, d);
    plan_config_format(t, " (weights %s", bytes_text(b, bytes[REGION_WEIGHTS]));
    plan_config_format(t, ", cache %s", bytes_text(b, bytes[REGION_CACHE]));
    plan_config_format(t, ", buffers %s", bytes_text(b, bytes[REGION_WORK]));
    if (block > 0)
        plan_config_format(t, ", block for multi-token prediction %s",
                           bytes_text(b, block));
    if (x->memory_bytes > 0)
        plan_config_format(t, "; %s available of %s", bytes_text(now, has),
                           bytes_text(b, x->memory_bytes));
    if (x->memory_bytes > 0 && reserve > 0)
        plan_config_format(t, ", %s of them for the program",
                           bytes_text(b, reserve));
    plan_config_format(t, ")");
}

void fit_table(struct plan_config_text *t, const struct fit *f,
               const struct fit_candidate *p)
{
    enum { MOST = 6 };
    const struct compiled *q = p->q;
    int n = 0;

    for (int d = 0; d < q->list.n; d++) {
        int64_t missing =
            f ? fit_lacks(f, p, d) : fit_shortfall(q, d, FIT_NO_MARGIN);

        if (is_told(&q->list, d) ||
            (missing <= 0 && (f || !q->low->prog[d].active)))
            continue;
        if (n++ >= MOST)
            continue;
        plan_config_format(t, "%s", n > 1 ? "; " : "");
        say_device(t, f, p, d, missing);
    }
    if (n > MOST)
        plan_config_format(t, "; and %d device%s more", n - MOST,
                           n - MOST == 1 ? "" : "s");
}

void fit_explain(pl_err *err, const struct compiled *q)
{
    struct plan_config_text t = {.n = 0};
    const struct fit_candidate p = {.q = (struct compiled *)q};
    size_t at;

    if (!err)
        return;
    fit_table(&t, NULL, &p);
    at = strlen(err->message);
    snprintf(err->message + at, sizeof err->message - at, "; planned: %s", t.s);
}

/* ---- savings ------------------------------------------------------------ */

/* Returns true if the plan that lacks the least lacks memory of d, and no
 * device before has the same memory. */
static bool is_short(const struct fit *f, int d)
{
    return fit_lacks(f, f->nearest, d) > 0 && !is_told(&f->nearest->q->list, d);
}

/* Appends what an option saves on all devices that lack memory, unless that is
 * little of what is missing. */
static void say_saving(struct plan_config_text *t, const struct fit *f,
                       const char *option, int64_t bytes)
{
    char b[24];
    int n = 0;

    for (int d = 0; d < f->nearest->q->list.n; d++)
        n += is_short(f, d);
    if (bytes > f->nearest->missing / 64)
        plan_config_format(t, "%s %s saves %s%s", t->n == 0 ? ";" : ",", option,
                           bytes_text(b, (uint64_t)bytes),
                           n > 1 ? " in all" : "");
}

/* Appends what the option saves with which `in` differs from the plan that
 * lacks the least, on the devices that lack memory. */
static pl_status try_saving(struct plan_config_text *t, struct fit *f,
                            const struct plan_config *in, const char *option,
                            pl_err *err)
{
    struct fit_candidate *p;
    int64_t bytes = 0;

    PL_TRY(candidate_compile(f, in, &p, err));
    for (int d = 0; p && d < p->q->list.n; d++)
        if (is_short(f, d))
            bytes += fit_lacks(f, f->nearest, d) - fit_lacks(f, p, d);
    fit_unref(p);
    say_saving(t, f, option, bytes);
    return PL_OK;
}

/* Returns the share of the caches' bytes that another format saves. Caches that
 * are smaller already stay, as do states. */
static double cache_share(const struct compiled *q, pl_format to)
{
    double all = 0, less = 0;

    for (int i = 0; i < q->g->n_node; i++) {
        const struct graph_node *n = &q->g->node[i];
        const struct format_info *a = format_info(n->format);
        const struct format_info *b = format_info(to);
        double count, bytes;

        if (n->op != OP_memory)
            continue;
        count = (double)graph_count(n, &q->max);
        bytes = count * a->block_bytes / a->block;
        all += bytes;
        count *= (double)b->block_bytes / b->block;
        if (!n->attr.state && n->dim[n->n_dim - 1].n % b->block == 0 &&
            count < bytes)
            less += bytes - count;
    }
    return all > 0 ? less / all : 0;
}

/* Appends the bytes of the block for multi-token prediction on devices that
 * lack memory. */
static void try_block(struct plan_config_text *t, const struct fit *f)
{
    uint64_t bytes = 0;

    for (int d = 0; d < f->nearest->q->list.n; d++)
        bytes += is_short(f, d) ? block_bytes(f->nearest, d) : 0;
    say_saving(t, f, "leaving out draft-mtp", (int64_t)bytes);
}

/* Appends what smaller formats of the caches save on devices that lack
 * memory. */
static void try_formats(struct plan_config_text *t, const struct fit *f)
{
    const struct compiled *q = f->nearest->q;
    double share = cache_share(q, PL_Q8_0), bytes = 0;
    const char *option = "-ctk q8_0 -ctv q8_0";

    if (share <= 0) {
        share = cache_share(q, PL_Q4_0);
        option = "-ctk q4_0 -ctv q4_0";
    }
    for (int d = 0; d < q->list.n; d++)
        if (is_short(f, d))
            for (int k = 0; k < q->list.n; k++)
                if (k == d ||
                    device_shares_memory(&q->list.dev[d], &q->list.dev[k]))
                    bytes += (double)q->low->prog[k].bytes[REGION_CACHE];
    say_saving(t, f, option, (int64_t)(share * bytes));
}

pl_status fit_savings(struct plan_config_text *t, struct fit *f, pl_err *err)
{
    enum { LEAST_CTX = 256, LEAST_UBATCH = 32 };
    struct plan_config in = f->nearest->in;
    char option[32];
    pl_status s = PL_OK;

    if (in.n_ctx > LEAST_CTX) {
        in.n_ctx = in.n_ctx / 2 > LEAST_CTX ? in.n_ctx / 2 : LEAST_CTX;
        snprintf(option, sizeof option, "-c %" PRId64, in.n_ctx);
        s = try_saving(t, f, &in, option, err);
        in.n_ctx = f->nearest->in.n_ctx;
    }
    if (s == PL_OK && in.n_ubatch > LEAST_UBATCH) {
        in.n_ubatch /= 2;
        snprintf(option, sizeof option, "-ub %" PRId64, in.n_ubatch);
        s = try_saving(t, f, &in, option, err);
    }
    if (s == PL_OK)
        try_formats(t, f);
    if (s == PL_OK)
        try_block(t, f);
    return s;
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
