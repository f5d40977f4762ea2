/* Parses and checks the options, and derives the values that depend only on the
 * graph. */
#include "plan/plan_config.h"

#include "base/err.h"
#include "device/machines.h"
#include "plan/override.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_open(const char *s)
{
    return !s || strcmp(s, "auto") == 0;
}

static int count_layers(const pl_graph *g)
{
    int n = 0;

    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].layer >= n)
            n = g->node[i].layer + 1;
    return n;
}

/* ---- options about sizes ------------------------------------------------ */

static pl_status read_sizes(struct plan_config *in, const pl_options *opt,
                            pl_err *err)
{
    bool chosen = opt->n_ctx == 0 || opt->n_ctx == PL_CTX_MODEL;

    in->n_ctx = chosen ? PLAN_CONFIG_N_CTX : opt->n_ctx;
    in->n_ubatch = opt->n_ubatch ? opt->n_ubatch : PLAN_CONFIG_N_UBATCH;
    in->n_out = opt->n_out ? opt->n_out : PLAN_CONFIG_N_OUT;
    in->n_seq = opt->n_seq ? opt->n_seq : PLAN_CONFIG_N_SEQ;
    in->n_checkpoint =
        opt->n_checkpoint ? opt->n_checkpoint : PLAN_CONFIG_N_CHECKPOINT;
    if (in->n_ctx < 1 || in->n_ctx > (int64_t)1 << 30)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a context of %" PRId64 " tokens; 1 to 2^30 are allowed",
                       in->n_ctx);
    if (in->n_ubatch < 1 || in->n_ubatch > 65536)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a micro-batch of %" PRId64
                       " tokens; 1 to 65536 are allowed",
                       in->n_ubatch);
    if (in->n_out < 1 || in->n_out > 65536 || in->n_seq < 1 || in->n_seq > 4096)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%" PRId64 " rows of logits and %d sequences; 1 to "
                       "65536 and 1 to 4096 are allowed",
                       in->n_out, in->n_seq);
    if (in->n_checkpoint > 4096)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d checkpoints; up to 4096 are allowed",
                       in->n_checkpoint);
    in->open.ctx = chosen;
    in->open.ubatch = opt->n_ubatch == 0;
    return PL_OK;
}

/* ---- options about devices, ranks and shares ---------------------------- */

static pl_status read_devices(struct plan_config *in, const pl_options *opt,
                              pl_err *err)
{
    in->paper = opt->device_spec != NULL;
    in->n_thread = opt->n_threads;
    if (opt->machines && !in->paper) {
        PL_TRY(machines_list(&in->list, opt->machines, err));
        return machines_kernel_set(&in->kernel_set, opt->machines, opt->cpu,
                                   err);
    }
    PL_TRY(in->paper
               ? device_parse_paper(&in->list, opt->device_spec, err)
               : device_parse(&in->list,
                              opt->devices ? opt->devices : DEVICE_DEFAULT,
                              opt->n_threads, err));
    return kernel_set_find(&in->kernel_set, opt->cpu, in->paper, err);
}

static pl_status read_mode(struct plan_config *in, const pl_options *opt,
                           pl_err *err)
{
    in->mode = opt->split_mode;
    in->width = opt->hybrid_size;
    in->main_device = opt->main_device;
    in->n_rank = opt->n_ranks;
    in->open.mode = in->mode == PL_SPLIT_AUTO;
    if (in->list.n > 0 &&
        (in->main_device < 0 || in->main_device >= in->list.n))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the main device (-mg) is %d, but devices are numbered "
                       "0 to %d",
                       in->main_device, in->list.n - 1);
    switch (in->mode) {
    case PL_SPLIT_AUTO:
        in->mode = in->list.n > PL_MAX_RANKS && in->n_rank == 0
                       ? PL_SPLIT_LAYER
                       : PL_SPLIT_TENSOR;
        return PL_OK;
    case PL_SPLIT_NONE:
    case PL_SPLIT_LAYER:
    case PL_SPLIT_TENSOR:
        return PL_OK;
    case PL_SPLIT_HYBRID:
        if (in->width >= 1 || in->width == PLAN_CONFIG_BY_MACHINE)
            return PL_OK;
        return err_set(err, PL_BAD_ARGUMENT,
                       "hybrid split over groups of %d devices; give hybrid:N, "
                       "N devices per group, 1 or more, or hybrid:machine",
                       in->width);
    default:
        return err_set(
            err, PL_BAD_ARGUMENT,
            "unknown split mode %d; use none, layer, tensor, hybrid or auto",
            (int)in->mode);
    }
}

/* Copies the n shares that the user gave to *out after checking them. Errors
 * call the option `name`, and the owner of one share `each`. */
static pl_status copy_shares(const double **out, struct arena *a,
                             const double *share, int n, const char *name,
                             const char *each, pl_err *err)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        if (!(share[i] >= 0) || !isfinite(share[i]))
            return err_set(err, PL_BAD_ARGUMENT,
                           "share %d of the %s is %g; shares must not be "
                           "negative",
                           i, name, share[i]);
        sum += share[i];
    }
    if (n > 0 && !(sum > 0))
        return err_set(err, PL_BAD_ARGUMENT,
                       "all shares of the %s are zero; give at least one %s a "
                       "positive share",
                       name, each);
    *out = arena_memdup(a, share, (size_t)n, sizeof(double));
    return *out ? PL_OK : err_no_memory(err, "shares");
}

static pl_status read_shares(struct plan_config *in, struct arena *a,
                             const pl_options *opt, pl_err *err)
{
    int n = opt->n_tensor_split, n_dev = in->list.n;

    in->open.share = !opt->tensor_split;
    if (!opt->tensor_split)
        return PL_OK;
    if (n != n_dev)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the tensor split (-ts) has %d share%s for %d device%s; "
                       "give one per device",
                       n, n == 1 ? "" : "s", n_dev, n_dev == 1 ? "" : "s");
    return copy_shares(&in->share, a, opt->tensor_split, n,
                       "tensor split (-ts)", "device", err);
}

/* Reads the ranks' shares of the work. Their number becomes the number of
 * ranks. */
static pl_status read_rank_shares(struct plan_config *in, struct arena *a,
                                  const pl_options *opt, pl_err *err)
{
    int n = opt->n_rank_split;

    if (n == 0)
        return PL_OK;
    if (n > PL_MAX_RANKS || (in->n_rank > 0 && in->n_rank != n))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the ranks' shares (--rank-split) are %d, but there are "
                       "%s%d ranks; give one per rank",
                       n, n > PL_MAX_RANKS ? "at most " : "",
                       n > PL_MAX_RANKS ? PL_MAX_RANKS : in->n_rank);
    in->n_rank = n;
    return copy_shares(&in->rank_share, a, opt->rank_split, n,
                       "ranks (--rank-split)", "rank", err);
}

/* ---- options about the host ---------------------------------------------- */

static pl_status read_layers(struct plan_config *in, const pl_options *opt,
                             struct notes *notes, pl_err *err)
{
    const char *s = opt->device_layers;
    char shown[ERR_SHOWN];
    long v;

    in->open.layers = is_open(s);
    in->n_on = in->n_layer + 1;
    if (!in->open.layers && strcmp(s, "all") != 0) {
        if (!*s || s[strspn(s, "0123456789")])
            return err_set(err, PL_BAD_ARGUMENT,
                           "layers on devices (-ngl) \"%s\": give a number of "
                           "last layers, all or auto",
                           err_shown(shown, s, strlen(s)));
        v = strtol(s, NULL, 10);
        if (v < in->n_on)
            in->n_on = (int)v;
    }
    if (in->list.n > 0)
        return PL_OK;
    if (in->n_on > 0 && !in->open.layers)
        diag_add(
            notes, PL_LOG_WARN,
            "-ngl %.80s has no effect: without devices the host has all layers",
            s);
    in->n_on = 0;
    return PL_OK;
}

/* Parses the number of a layer into *v and advances *s after it. Returns false
 * if there is no digit. Numbers above GRAPH_MAX_LAYER become
 * GRAPH_MAX_LAYER. */
static bool number(const char **s, int *v)
{
    int64_t n = 0;

    if (!isdigit((unsigned char)**s))
        return false;
    for (; isdigit((unsigned char)**s); ++*s)
        if (n < GRAPH_MAX_LAYER)
            n = 10 * n + (**s - '0');
    *v = n < GRAPH_MAX_LAYER ? (int)n : GRAPH_MAX_LAYER;
    return true;
}

/* Parses ranges of layers such as "0-5,9,20-", where "20-" means layer 20 and
 * all later layers. Sets on[l] to true for each layer l < n_layer in a range.
 * There are n_known layers. */
static pl_status read_ranges(const char *text, int n_layer, int n_known,
                             bool *on, pl_err *err)
{
    char shown[ERR_SHOWN];
    int lo, hi;

    for (const char *s = text;; s++) {
        if (!number(&s, &lo))
            break;
        hi = lo;
        if (*s == '-') {
            s++;
            if (!number(&s, &hi))
                hi = GRAPH_MAX_LAYER;
        }
        if (hi < lo || (*s != ',' && *s != '\0'))
            break;
        if (n_known > 0 && lo >= n_known)
            return err_set(err, PL_BAD_ARGUMENT,
                           "experts on the host (-ncmoe) \"%s\": the model has "
                           "no layer %d; its layers are 0 to %d",
                           err_shown(shown, text, strlen(text)), lo,
                           n_known - 1);
        for (int l = lo; l <= hi && l < n_layer; l++)
            on[l] = true;
        if (*s == '\0')
            return PL_OK;
    }
    return err_set(err, PL_BAD_ARGUMENT,
                   "experts on the host (-ncmoe) \"%s\": give a number of "
                   "first layers, layers like 0-5,20-, or all",
                   err_shown(shown, text, strlen(text)));
}

/* Parses the option that keeps the experts of some layers on the host: "all", a
 * number N for the first N layers, or ranges of layers. */
static pl_status read_experts(struct plan_config *in, struct arena *a,
                              const pl_graph *also, const pl_options *opt,
                              pl_err *err)
{
    const int more = also ? count_layers(also) : 0;
    const char *s = opt->host_experts;
    bool *on;
    int n;

    in->open.experts = !s;
    if (!s || strcmp(s, "0") == 0)
        return PL_OK;
    in->experts = on = arena_alloc(a, (size_t)in->n_layer + 1, sizeof *on);
    if (!on)
        return err_no_memory(err, "the placement of experts");
    if (strcmp(s, "all") == 0) {
        memset(on, 1, (size_t)in->n_layer + 1);
        return PL_OK;
    }
    if (!number(&s, &n) || *s != '\0')
        return read_ranges(opt->host_experts, in->n_layer,
                           more > in->n_layer ? more : in->n_layer, on, err);
    for (int l = 0; l < n && l < in->n_layer; l++)
        on[l] = true;
    return PL_OK;
}

/* ---- parsing all options ------------------------------------------------- */

pl_status plan_config_parse(struct plan_config *out, struct arena *a,
                            const pl_graph *g, const pl_graph *also,
                            const pl_options *opt, struct notes *notes,
                            pl_err *err)
{
    *out = (struct plan_config){.g = g,
                                .n_layer = count_layers(g),
                                .cache = opt->host_cache,
                                .offload = opt->offload};
    PL_TRY(read_sizes(out, opt, err));
    PL_TRY(read_devices(out, opt, err));
    PL_TRY(read_mode(out, opt, err));
    if (out->mode == PL_SPLIT_HYBRID && out->list.n > 0 &&
        out->width > out->list.n)
        diag_add(
            notes, PL_LOG_WARN,
            "-sm hybrid:%d: %d device%s form one group, as with -sm tensor",
            out->width, out->list.n, out->list.n == 1 ? "" : "s");
    PL_TRY(read_rank_shares(out, a, opt, err));
    PL_TRY(read_shares(out, a, opt, err));
    PL_TRY(read_layers(out, opt, notes, err));
    PL_TRY(read_experts(out, a, also, opt, err));
    return override_read(out, a, also, opt, notes, err);
}

bool plan_config_has_host_experts(const struct plan_config *in)
{
    for (int l = 0; in->experts && l <= in->n_layer; l++)
        if (in->experts[l])
            return true;
    return false;
}

int plan_config_group_end(const struct plan_config *in, int first)
{
    int n = in->list.n, end = first + 1;

    if (in->mode == PL_SPLIT_TENSOR)
        return n;
    if (in->mode != PL_SPLIT_HYBRID)
        return end;
    if (in->width != PLAN_CONFIG_BY_MACHINE)
        return in->width < n - first ? first + in->width : n;
    while (end < n && in->list.dev[end].machine == in->list.dev[first].machine)
        end++;
    return end;
}

int plan_config_widest(const struct plan_config *in)
{
    int most = 0;

    for (int first = 0, end; first < in->list.n; first = end) {
        end = plan_config_group_end(in, first);
        if (end - first > most)
            most = end - first;
    }
    return most;
}

bool plan_config_is_mixed(const struct plan_config *in, const double *share)
{
    int first = -1, end = 0;

    for (int d = 0; d < in->list.n; d++) {
        if (d == end) {
            end = plan_config_group_end(in, d);
            first = -1;
        }
        if (share && !(share[d] > 0))
            continue;
        if (first >= 0 &&
            in->list.dev[d].accelerator != in->list.dev[first].accelerator)
            return true;
        first = d;
    }
    return false;
}

void plan_config_free(struct plan_config *in)
{
    device_list_free(&in->list);
}
