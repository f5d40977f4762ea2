/* What is to be searched, and the end of it: a plan, or what is missing.
 *
 * One plan is enough where the mode is given, or there is one device, and all
 * fits. Else the search takes some dozens, fewer of large graphs; its first
 * guess is tensor split over all devices, and it stays that unless another is
 * clearly faster: by a part in thirty where the rates are a description's, in
 * twenty where they were measured, in five where they are only assumed. */
#include "fit/fit.h"

#include "base/err.h"
#include "fit/fit_inner.h"
#include "plan/plan_log.h"
#include "quant/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 60, LEAST_BUDGET = 4, FEW = 8 };
/* More than any device has, and what all of them lack is still a number. */
static const uint64_t most_margin = (uint64_t)1 << 52;

/* ---- what is open ------------------------------------------------------ */

static bool is_open(const char *s)
{
    return !s || strcmp(s, "auto") == 0;
}

static void look_at_graph(struct fit *f)
{
    const pl_graph *g = f->g;
    const struct graph_sizes one = {1, 1, 1, 1};

    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        const struct format_info *x = format_info(n->format);

        if (n->layer >= f->n_layer)
            f->n_layer = n->layer + 1;
        if (n->op != OP_weight)
            continue;
        f->weights +=
            (uint64_t)(graph_count(n, &one) / x->block) * x->block_bytes;
        f->may_experts |= n->role == PL_ROLE_FFN_DOWN_EXPS;
    }
}

static void look_at_devices(struct fit *f)
{
    f->known = f->list.n > 0;
    for (int d = 0; d < f->list.n; d++) {
        const struct device_desc *a = f->list.dev, *b = &f->list.dev[d];

        f->known &= b->memory_bytes > 0;
        f->unlike |= a->ops != b->ops || a->n_thread != b->n_thread ||
                     a->memory_bytes != b->memory_bytes ||
                     a->mem_bytes_per_s != b->mem_bytes_per_s ||
                     a->flops != b->flops ||
                     a->link_bytes_per_s != b->link_bytes_per_s;
    }
}

static void what_is_open(struct fit *f, int64_t n_ctx_train)
{
    const pl_options *o = f->opt;
    int64_t work;

    f->ctx_most = COMPILED_N_CTX > o->fit_ctx ? COMPILED_N_CTX : o->fit_ctx;
    f->ctx_least = o->fit_ctx > 0 ? o->fit_ctx : COMPILED_N_CTX;
    if (n_ctx_train > 0 && n_ctx_train < f->ctx_most)
        f->ctx_most = n_ctx_train;
    if (f->ctx_most < f->ctx_least)
        f->ctx_least = f->ctx_most;
    look_at_graph(f);
    look_at_devices(f);
    f->may_split = !o->tensor_split && f->list.n > 1 &&
                   (!o->no_fit || o->split_mode == PL_SPLIT_AUTO);
    f->may_layers = !o->no_fit && is_open(o->device_layers) && f->list.n > 0;
    f->may_experts &= !o->no_fit && !o->host_experts && f->list.n > 0;
    f->may_ubatch = !o->no_fit && o->n_ubatch == 0;
    f->may_ctx = !o->no_fit && o->n_ctx == 0 && f->ctx_least < f->ctx_most;
    f->margin = o->no_fit                      ? FIT_NO_MARGIN
                : o->fit_margin <= most_margin ? o->fit_margin
                                               : most_margin;
    work = (int64_t)f->g->n_node * (f->list.n + 1);
    f->budget = (int)(BUDGET * (int64_t)8000 / (work > 0 ? work : 1));
    if (f->budget > 16 * BUDGET)
        f->budget = 16 * BUDGET;
    if (f->budget < LEAST_BUDGET)
        f->budget = LEAST_BUDGET;
}

static void first_guess(struct fit *f)
{
    const pl_options *o = f->opt;
    struct fit_choice *c = &f->usual;

    *c = (struct fit_choice){.mode = o->split_mode,
                             .width = o->hybrid_size,
                             .main_device = o->main_device,
                             .n_ranks = o->n_ranks,
                             .n_on = -1,
                             .n_ubatch = o->n_ubatch,
                             .n_ctx = o->n_ctx ? o->n_ctx : f->ctx_most};
    if (c->mode == PL_SPLIT_AUTO)
        c->mode = f->list.n > PL_MAX_RANKS && o->n_ranks == 0 ? PL_SPLIT_LAYER
                                                              : PL_SPLIT_TENSOR;
}

static pl_status open_fit(struct fit *f, const pl_graph *g,
                          const pl_options *opt, int64_t n_ctx_train,
                          pl_err *err)
{
    memset(f, 0, sizeof *f);
    f->g = g;
    f->opt = opt;
    f->nearest_missing = INT64_MAX;
    PL_TRY(opt->device_spec
               ? device_parse_paper(&f->list, opt->device_spec, err)
               : device_parse(&f->list, opt->devices ? opt->devices : "cpu",
                              opt->n_threads, err));
    what_is_open(f, n_ctx_train);
    first_guess(f);
    return PL_OK;
}

static void close_fit(struct fit *f)
{
    arena_fini(&f->arena);
    device_list_free(&f->list);
}

/* ---- the search -------------------------------------------------------- */

static pl_status search(struct fit *f, pl_err *err)
{
    const pl_options *o = f->opt;
    enum cpu_family family =
        o->cpu && *o->cpu ? cpu_family_from_name(o->cpu) : cpu_family_best();
    double clearly;
    pl_status s = PL_OK;

    if (!o->device_spec && family != CPU_FAMILY_COUNT)
        s = calibration_load(&f->cal, family, err);
    if (s == PL_NO_MEMORY)
        return s;
    f->calibrated = !o->device_spec && s == PL_OK;
    PL_TRY(fit_search(f, &f->usual, err));
    clearly = o->device_spec ? 0.97 : f->calibrated ? 0.95 : 0.8;
    if (f->usual_fits && f->best_s > clearly * f->usual_s)
        f->best = f->usual;
    return PL_OK;
}

/* ---- explanations ------------------------------------------------------ */

/* What of the caller's options guess c changes, so that who adds it to them has
 * what fits. Where that is not searched for, mode and shares are told too. */
static void say_remedy(struct fit_text *out, const struct fit *f,
                       const struct fit *asked)
{
    enum { MOST = 150 }; /* letters of a message for shares */
    const pl_options *o = asked->opt;
    struct fit_text experts, mode = {.n = 0};
    char layers[16];
    pl_options p;

    fit_options(f, &f->best, &experts, layers, &p);
    fit_say_mode(&mode, &f->best, &p);
    if (o->no_fit &&
        (f->best.split || (o->split_mode == PL_SPLIT_AUTO && f->list.n > 1)))
        fit_say(out, " %s", mode.n < MOST ? mode.s : "another -ts");
    if (p.device_layers || !is_open(o->device_layers))
        fit_say(out, " -ngl %s", p.device_layers ? p.device_layers : "all");
    if (p.host_experts || o->host_experts)
        fit_say(out, " -ncmoe %s", p.host_experts ? p.host_experts : "0");
    if (p.n_ubatch > 0 || o->n_ubatch > COMPILED_N_UBATCH)
        fit_say(out, " -ub %lld",
                (long long)(p.n_ubatch > 0 ? p.n_ubatch : COMPILED_N_UBATCH));
    if (f->best.n_ctx < asked->usual.n_ctx)
        fit_say(out, " -c %lld", (long long)p.n_ctx);
    if (out->n == 0)
        fit_say(out, " %s", mode.n < MOST ? mode.s : "another -sm");
}

/* With less asked for: does anything fit, and what? */
static pl_status remedy(const struct fit *f, int64_t n_ctx_train, bool shorter,
                        struct fit_text *out, bool *found, pl_err *err)
{
    pl_options o = *f->opt;
    struct fit *r = malloc(sizeof *r);
    pl_status s;

    *found = false;
    if (!r)
        return err_no_memory(err, "an explanation");
    o.no_fit = false;
    o.device_layers = o.host_experts = NULL;
    o.n_ubatch = 0;
    if (shorter) {
        o.n_ctx = 0;
        o.fit_ctx = 256;
    }
    s = open_fit(r, f->g, &o, n_ctx_train, err);
    if (s == PL_OK)
        s = search(r, err);
    *found = s == PL_OK && r->found;
    if (*found)
        say_remedy(out, r, f);
    close_fit(r);
    free(r);
    return s;
}

static pl_status explain(struct fit *f, int64_t n_ctx_train, pl_err *err)
{
    struct fit_text *t = calloc(2, sizeof *t); /* the table; what would fit */
    struct fit_text *experts = malloc(sizeof *experts);
    struct compiled *q = NULL;
    bool found = false;
    char layers[16];
    pl_options o;
    pl_status s;

    if (!t || !experts) {
        s = err_no_memory(err, "an explanation");
        goto done;
    }
    fit_options(f, &f->nearest, experts, layers, &o);
    o.log = NULL;
    s = compile_graph(&q, f->g, &o, err);
    if (s != PL_OK)
        goto done;
    fit_table(t, q, f->margin, false);
    for (int shorter = 0; shorter < 2 && !found && s == PL_OK; shorter++)
        s = remedy(f, n_ctx_train, shorter, t + 1, &found, err);
    if (s != PL_OK)
        goto done;
    if (t->n > 700)
        strcpy(t->s + 700, "...");
    s = found ? err_set(err, PL_NO_DEVICE_MEMORY,
                        "the model does not fit: %s;%.250s would fit", t->s,
                        t[1].s)
              : err_set(err, PL_NO_DEVICE_MEMORY,
                        "the model does not fit: %s; use more devices, a "
                        "smaller cache type%s or a smaller model",
                        t->s,
                        f->opt->no_fit || f->opt->fit_margin == 0
                            ? ""
                            : ", a smaller --fit-margin");
done:
    compiled_free(q);
    free(experts);
    free(t);
    return s;
}

/* ---- all of it --------------------------------------------------------- */

/* The plan of guess c, as it would be without any search but for its text. */
static pl_status finish(struct fit *f, const struct fit_choice *c,
                        struct compiled *q, bool log, struct compiled **out,
                        char **text, pl_err *err)
{
    struct fit_text *t = calloc(2, sizeof *t); /* the options'; the experts' */
    char layers[16];
    pl_options o;
    pl_status s = PL_OK;

    if (!t) {
        compiled_free(q);
        return err_no_memory(err, "a plan");
    }
    fit_options(f, c, t + 1, layers, &o);
    if (!log)
        o.log = NULL;
    if (!q)
        s = compile_graph(&q, f->g, &o, err);
    if (s == PL_OK) {
        fit_describe(t, f, c, q);
        *text = strdup(t->s);
        if (!*text)
            s = err_no_memory(err, "a plan");
    }
    free(t);
    if (s == PL_OK)
        *out = q;
    else
        compiled_free(q);
    return s;
}

static bool fits(const struct fit *f, const struct compiled *q)
{
    for (int d = 0; d < q->list.n; d++)
        if (fit_missing(q, d, f->margin) > 0)
            return false;
    return true;
}

/* The mode is given: its plan, if that fits and shares are as good as any. */
static pl_status at_once(struct fit *f, struct compiled **q, pl_err *err)
{
    struct fit_text *experts = malloc(sizeof *experts);
    char layers[16];
    pl_options o;
    pl_status s;

    if (!experts)
        return err_no_memory(err, "a plan");
    fit_options(f, &f->usual, experts, layers, &o);
    s = compile_graph(q, f->g, &o, err);
    free(experts);
    if (s == PL_OK && (!fits(f, *q) ||
                       (f->unlike && f->may_split &&
                        f->usual.mode != PL_SPLIT_NONE && f->list.n <= FEW))) {
        compiled_free(*q);
        *q = NULL;
    }
    return s;
}

pl_status fit_create(struct compiled **out, char **text, int64_t *n_ctx,
                     const pl_graph *g, const pl_options *opt,
                     int64_t n_ctx_train, pl_err *err)
{
    struct compiled *q = NULL;
    struct fit *f = malloc(sizeof *f);
    bool stated;
    pl_status s;

    *out = NULL;
    *text = NULL;
    if (!f)
        return err_no_memory(err, "a plan");
    s = open_fit(f, g, opt, n_ctx_train, err);
    stated = opt->split_mode != PL_SPLIT_AUTO || f->list.n < 2;
    if (s == PL_OK && stated)
        s = at_once(f, &q, err);
    if (s != PL_OK)
        goto done;
    if (!q)
        s = search(f, err);
    else
        f->best = f->usual;
    if (s == PL_OK && !q && !f->found)
        s = f->nearest_missing == INT64_MAX && f->failed != PL_OK
                ? f->failed
                : explain(f, n_ctx_train, err);
    if (s == f->failed && s != PL_OK && err)
        *err = f->why;
    if (s != PL_OK)
        goto done;
    *n_ctx = f->best.n_ctx;
    s = finish(f, &f->best, q, !stated, out, text, err);
    if (s == PL_OK && !q)
        plan_log(opt, PL_LOG_INFO, "fit: %s", *text);
done:
    close_fit(f);
    free(f);
    return s;
}
