/* Decides what to search, and ends with a plan or a report of the memory that
 * is missing.
 *
 * The search counts all the memory that devices have, and the network without
 * its outputs for drafts. If its plan lacks memory that is available now, a
 * second search keeps the ranks and their shares, and so every bit. It uses the
 * available memory to find which devices carry them, what is on the host and
 * how long the context is.
 *
 * One plan is enough if the mode is given, or there is one device, and all
 * fits. Otherwise the search makes some ten, fewer of large graphs. Tensor
 * split over all devices, if that was tried, is kept unless another is clearly
 * faster: by a part in thirty if the rates are a description's or there are
 * several machines, in twenty if they are a calibration's, in five if they are
 * only assumed. */
#include "fit/fit.h"

#include "base/err.h"
#include "fit/fit_internal.h"
#include "quant/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 60, LEAST_BUDGET = 4, FEW = 8 };
/* More than any device has; the sum over all devices still fits in 64 bits. */
static const uint64_t most_margin = (uint64_t)1 << 52;

/* ---- what is open ------------------------------------------------------ */

static void scan_graph(struct fit *f, bool *experts)
{
    const pl_graph *g = f->asked.g;
    const struct graph_sizes one = {1, 1, 1, {1, 1, 1, 1}};

    *experts = false;
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        const struct format_info *x = format_info(n->format);

        if (n->op != OP_weight)
            continue;
        f->weights +=
            (uint64_t)(graph_count(n, &one) / x->block) * x->block_bytes;
        *experts |= n->role == PL_ROLE_FFN_DOWN_EXPS;
    }
}

static void scan_devices(struct fit *f)
{
    const struct device_list *l = &f->asked.list;

    f->known = l->n > 0;
    f->unlike = false;
    f->n_machine = 1;
    for (int d = 0; d < l->n; d++) {
        const struct device_desc *a = l->dev, *b = &l->dev[d];

        f->known &= fit_memory(f, b) > 0;
        if (b->machine >= f->n_machine)
            f->n_machine = b->machine + 1;
        f->unlike |= a->ops != b->ops || a->n_thread != b->n_thread ||
                     fit_memory(f, a) != fit_memory(f, b) ||
                     a->mem_bytes_per_s != b->mem_bytes_per_s ||
                     a->float_macs_per_s != b->float_macs_per_s ||
                     a->block_macs_per_s != b->block_macs_per_s ||
                     a->p2p_bytes_per_s != b->p2p_bytes_per_s ||
                     a->bridge_bytes_per_s != b->bridge_bytes_per_s ||
                     a->link_bytes_per_s != b->link_bytes_per_s;
    }
}

/* Returns the number of plans that are worth making: fewer of large graphs. */
static int count_budget(const struct fit *f)
{
    int64_t work = (int64_t)f->asked.g->n_node * (f->asked.list.n + 1);
    int64_t n = BUDGET * (int64_t)8000 / (work > 0 ? work : 1);

    return n > 16 * BUDGET    ? 16 * BUDGET
           : n < LEAST_BUDGET ? LEAST_BUDGET
                              : (int)n;
}

/* Returns true if another machine has measured that its cores together read
 * weights much faster or slower than those here. A little is noise, and
 * machines that are equal otherwise have equal shares. */
static bool machines_differ(const struct fit *f)
{
    const struct calibration *here = &f->cal;

    for (int m = 0; m < here->n_machine; m++) {
        const struct calibration *c = calibration_of(here, m);
        double ratio =
            calibration_times(c->all, c->n_core).read_bytes_per_s /
            calibration_times(here->all, here->n_core).read_bytes_per_s;

        if (ratio > 1.15 || ratio < 1 / 1.15)
            return true;
    }
    return false;
}

/* Reads the rates that are known without measuring. */
static pl_status find_rates(struct fit *f, pl_err *err)
{
    pl_status s = PL_NOT_FOUND;

    if (!f->asked.paper)
        s = calibration_load(&f->cal, f->asked.kernel_set,
                             f->asked.list.topology, err);
    if (s == PL_NO_MEMORY)
        return s;
    f->calibrated = s == PL_OK;
    if (f->calibrated)
        calibration_add_machines(&f->cal, &f->asked.list);
    f->unlike |= f->calibrated && machines_differ(f);
    return fit_find_speeds(f, err);
}

/* Sets f->may by f->asked and the options. */
static pl_status find_free_options(struct fit *f, const pl_options *o,
                                   int64_t n_ctx_train, pl_err *err)
{
    const struct plan_config *in = &f->asked;
    bool some = !o->no_fit && in->list.n > 0, experts;

    f->ctx_most =
        PLAN_CONFIG_N_CTX > o->fit_ctx ? PLAN_CONFIG_N_CTX : o->fit_ctx;
    if (o->n_ctx == PL_CTX_MODEL && n_ctx_train > f->ctx_most)
        f->ctx_most = n_ctx_train;
    f->ctx_least = o->fit_ctx > 0 ? o->fit_ctx : PLAN_CONFIG_N_CTX;
    if (n_ctx_train > 0 && n_ctx_train < f->ctx_most)
        f->ctx_most = n_ctx_train;
    if (f->ctx_most < f->ctx_least)
        f->ctx_least = f->ctx_most;
    scan_graph(f, &experts);
    scan_devices(f);
    f->may = (struct plan_config_auto){
        .mode = in->open.mode && in->list.n > 1,
        .share =
            in->open.share && in->list.n > 1 && (!o->no_fit || in->open.mode),
        .layers = some && in->open.layers,
        .experts = some && in->open.experts && experts,
        .ubatch = !o->no_fit && in->open.ubatch,
        .ctx = !o->no_fit && in->open.ctx && f->ctx_least < f->ctx_most,
    };
    f->reserve = o->host_reserve;
    f->margin = o->no_fit                      ? FIT_NO_MARGIN
                : o->fit_margin <= most_margin ? o->fit_margin
                                               : most_margin;
    f->budget = count_budget(f);
    f->default_config = *in;
    if (in->open.ctx)
        f->default_config.n_ctx = f->ctx_most;
    PL_TRY(find_rates(f, err));
    return in->open.mode ? PL_OK : fit_assign_ranks(f, &f->default_config, err);
}

/* Frees all candidates. */
static void forget(struct fit *f)
{
    fit_unref(f->ready);
    fit_unref(f->best);
    fit_unref(f->usual_plan);
    fit_unref(f->nearest);
    f->ready = f->best = f->usual_plan = f->nearest = NULL;
    for (int i = 0; i < f->n_lack; i++)
        fit_unref(f->oversized[i]);
    f->n_lack = f->n_plan = 0;
    f->layers_fit = false;
    f->alone_s = f->fixed_s = 0;
}

static void close_fit(struct fit *f)
{
    forget(f);
    arena_fini(&f->arena);
}

/* ---- the search -------------------------------------------------------- */

static pl_status search(struct fit *f, pl_err *err)
{
    const struct fit_candidate *usual;
    double clearly;

    PL_TRY(fit_search(f, err));
    usual = f->usual_plan;
    clearly = f->asked.paper || f->n_machine > 1 ? 0.97
              : f->calibrated                    ? 0.95
                                                 : 0.8;
    if (usual && f->best->seconds > clearly * usual->seconds) {
        fit_unref(f->best);
        f->best = fit_ref(f->usual_plan);
    }
    return PL_OK;
}

/* Returns true if the mode is given and its plan fits, so that no search is
 * needed. */
static bool is_final(const struct fit *f, const struct fit_candidate *p)
{
    bool shares = f->unlike && f->may.share &&
                  f->default_config.mode != PL_SPLIT_NONE &&
                  f->asked.list.n <= FEW;

    return p->missing == 0 && !shares;
}

/* Finds f->best, if anything fits. */
static pl_status pick_best(struct fit *f, bool *searched, pl_err *err)
{
    struct fit_candidate *p = NULL;

    if (!f->may.mode) {
        PL_TRY(candidate_compile(f, &f->default_config, &p, err));
        if (!p)
            return PL_OK;
        if (is_final(f, p)) {
            f->best = p;
            return PL_OK;
        }
        f->ready = p;
    }
    *searched = true;
    return search(f, err);
}

/* Begins again with the memory that is available now, with the ranks of the
 * best candidate and their shares. Only in tensor mode may shares of devices be
 * those of ranks; then they are kept. */
static void keep_bits(struct fit *f)
{
    const struct plan_config *x = &f->best->in;

    f->default_config.mode = x->mode;
    f->default_config.width = x->width;
    f->default_config.share = x->share;
    if (x->mode == PL_SPLIT_TENSOR && x->n_rank == 0 && x->share)
        f->may.mode = f->may.share = false;
    else
        f->default_config.n_rank = f->best->q->place.n_rank;
    if (!f->may.mode)
        f->default_config.main_device = x->main_device;
    forget(f);
    scan_devices(f);
}

static void use_graph(struct fit *f, const pl_graph *g)
{
    f->asked.g = f->default_config.g = g;
}

/* Replaces f->best by a plan of the whole graph, if it was found for the
 * network alone. Sets *fits if it fits now. */
static pl_status complete(struct fit *f, bool *fits, pl_err *err)
{
    struct plan_config x = f->best->in;
    struct fit_candidate *p = f->best;

    if (x.g != f->asked.g) {
        x.g = f->asked.g;
        fit_unref(f->ready);
        f->ready = NULL;
        PL_TRY(candidate_compile(f, &x, &p, err));
        if (p) {
            fit_unref(f->best);
            f->best = p;
        }
    }
    *fits = p && fit_all_lacks(f, p) == 0;
    return PL_OK;
}

/* Finds f->best, if anything fits now. Outputs besides the network decide no
 * ranks and shares. */
static pl_status choose_now(struct fit *f, bool *searched, pl_err *err)
{
    const pl_graph *whole = f->asked.g;
    pl_status s;
    bool fits;

    *searched = f->now = false;
    if (graph_network(&f->network, whole))
        use_graph(f, &f->network);
    s = pick_best(f, searched, err);
    use_graph(f, whole);
    f->now = true;
    if (s != PL_OK || !f->best)
        return s;
    PL_TRY(complete(f, &fits, err));
    if (fits)
        return PL_OK;
    keep_bits(f);
    return pick_best(f, searched, err);
}

/* ---- explanations ------------------------------------------------------ */

/* Searches for a plan that fits with less asked for. */
static pl_status find_fallback(const struct fit *f, const pl_options *opt,
                               int64_t n_ctx_train, bool shorter,
                               struct plan_config_text *out, bool *found,
                               pl_err *err)
{
    struct fit *r = calloc(1, sizeof *r);
    struct plan_config was = f->default_config;
    pl_options o = *opt;
    bool searched;
    pl_status s;

    *found = false;
    if (!r)
        return err_no_memory(err, "an explanation");
    o.no_fit = false;
    r->cancel = opt->cancel;
    r->asked = f->asked;
    r->block = f->block;
    r->asked.n_on = r->asked.list.n > 0 ? r->asked.n_layer + 1 : 0;
    r->asked.experts = NULL;
    if (r->asked.n_ubatch > PLAN_CONFIG_N_UBATCH)
        r->asked.n_ubatch = PLAN_CONFIG_N_UBATCH;
    r->asked.open.layers = r->asked.open.experts = true;
    r->asked.open.ubatch = true;
    if (shorter) {
        r->asked.open.ctx = true;
        o.fit_ctx = 256;
    }
    s = find_free_options(r, &o, n_ctx_train, err);
    if (s == PL_OK)
        s = choose_now(r, &searched, err);
    *found = s == PL_OK && r->best;
    was.n_rank = f->asked.n_rank;
    if (*found)
        fit_format_options(out, &r->best->in, &was, opt->no_fit);
    close_fit(r);
    free(r);
    return s;
}

/* Sets the error that explains why there is no plan. */
static pl_status explain(struct fit *f, const pl_options *opt,
                         int64_t n_ctx_train, pl_err *err)
{
    struct plan_config_text *t =
        calloc(3, sizeof *t); /* the table; what fits; what saves memory */
    bool found = false;
    pl_status s = PL_OK;

    if (!f->nearest) {
        free(t);
        if (err)
            *err = f->why;
        return f->failed;
    }
    if (!t)
        return err_no_memory(err, "an explanation");
    fit_table(t, f, f->nearest);
    for (int shorter = 0; shorter < 2 && !found && s == PL_OK; shorter++)
        s = find_fallback(f, opt, n_ctx_train, shorter, t + 1, &found, err);
    if (s == PL_OK)
        s = fit_savings(t + 2, f, err);
    if (t->n > 560)
        strcpy(t->s + 560, "...");
    if (s == PL_OK && found)
        s = err_set(err, PL_NO_DEVICE_MEMORY,
                    "the model does not fit: %s;%.250s would fit%s", t->s,
                    t[1].s, t[2].s);
    else if (s == PL_OK)
        s = err_set(err, PL_NO_DEVICE_MEMORY,
                    "the model does not fit: %s%s; use %smore devices%s or a "
                    "smaller model",
                    t->s, t[2].s, t[2].n > 0 ? "these options, " : "",
                    opt->no_fit || opt->fit_margin == 0
                        ? ""
                        : ", a smaller --fit-margin");
    free(t);
    return s;
}

/* ---- all of it ---------------------------------------------------------- */

pl_status fit_create(struct fit_plan *out, const struct fit_graphs *g,
                     const pl_options *opt, pl_err *err)
{
    struct fit *f = calloc(1, sizeof *f);
    struct plan_config_text *t = calloc(1, sizeof *t);
    struct fit_block block = {.local = false};
    bool searched = false;
    pl_status s = PL_OK;

    *out = (struct fit_plan){.n_ctx = 0};
    if (!f || !t) {
        s = err_no_memory(err, "a plan");
        goto done;
    }
    f->notes.a = &f->arena;
    f->cancel = opt->cancel;
    s = plan_config_parse(&f->asked, &f->arena, g->model, g->block, opt,
                          &f->notes, err);
    if (s == PL_OK && g->block) {
        f->block = &block;
        s = fit_block_open(&block, f, g, opt, err);
        f->asked.host = plan_config_has_host_experts(&block.asked);
    }
    if (s == PL_OK)
        s = find_free_options(f, opt, g->n_ctx_train, err);
    if (s == PL_OK)
        s = choose_now(f, &searched, err);
    if (s == PL_OK && !f->best)
        s = explain(f, opt, g->n_ctx_train, err);
    diag_emit(&f->notes, opt->log, opt->log_user);
    if (s != PL_OK)
        goto done;
    plan_config_print(t, &f->best->in, f->best->q->place.n_rank);
    out->text = strdup(t->s);
    if (!out->text) {
        s = err_no_memory(err, "a plan");
        goto done;
    }
    out->n_ctx = f->best->in.n_ctx;
    out->model = f->best->q;
    out->block = f->best->block;
    f->best->q = f->best->block = NULL;
    diag_emit(&out->model->notes, opt->log, opt->log_user);
    if (searched && opt->log) {
        struct notes told = {.a = &f->arena};

        diag_add(&told, PL_LOG_INFO, "fit: %s", out->text);
        if (opt->n_ctx == PL_CTX_MODEL && out->n_ctx < f->ctx_most)
            diag_add(&told, PL_LOG_WARN,
                     "the context is %" PRId64 " tokens of the model's %" PRId64
                     ", which memory is too short for; use more devices, or "
                     "smaller caches (-ctk q8_0 -ctv q8_0)",
                     out->n_ctx, f->ctx_most);
        diag_emit(&told, opt->log, opt->log_user);
    }
done:
    if (f) {
        plan_config_free(&f->asked);
        fit_block_close(&block);
        close_fit(f);
    }
    free(f);
    free(t);
    return s;
}
