/* Options to devices, ranks, layouts, numeric plan and programs. */
#include "exec/planned.h"

#include "base/err.h"
#include "plan/roles.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void planned_log(const pl_options *opt, pl_log_level level, const char *fmt,
                 ...)
{
    char text[512];
    va_list ap;

    if (!opt->log)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    opt->log(opt->log_user, level, text);
}

static pl_status sizes(struct planned *p, const pl_options *opt, pl_err *err)
{
    int64_t n_ctx = opt->n_ctx ? opt->n_ctx : PLANNED_N_CTX;
    int64_t n_ub = opt->n_ubatch ? opt->n_ubatch : PLANNED_N_UBATCH;
    int64_t n_out = opt->n_out ? opt->n_out : PLANNED_N_OUT;
    int n_seq = opt->n_seq ? opt->n_seq : PLANNED_N_SEQ;

    if (n_ctx < 1 || n_ctx > (int64_t)1 << 30)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a context of %" PRId64 " tokens; 1 to 2^30 are allowed",
                       n_ctx);
    if (n_ub < 1 || n_ub > 65536)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a micro-batch of %" PRId64
                       " tokens; 1 to 65536 are allowed",
                       n_ub);
    if (n_out < 1 || n_out > 65536 || n_seq < 1 || n_seq > 4096)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%" PRId64 " rows of logits and %d sequences; 1 to "
                       "65536 and 1 to 4096 are allowed",
                       n_out, n_seq);
    if (n_out > n_ub)
        n_out = n_ub;
    p->n_seq = n_seq;
    p->max.n_slot = (n_ctx + CPU_PAGE - 1) / CPU_PAGE * CPU_PAGE;
    p->page_stride = (int)(p->max.n_slot / CPU_PAGE);
    p->max.n_tok = n_ub;
    p->max.n_out = n_out;
    return PL_OK;
}

static pl_status family(struct planned *p, const pl_options *opt, pl_err *err)
{
    enum cpu_family f = opt->cpu && *opt->cpu ? cpu_family_from_name(opt->cpu)
                                              : cpu_family_best();

    if (f == CPU_FAMILY_COUNT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "kernel family '%s' is unknown; reference, generic, "
                       "avx2 and avx512 are offered",
                       opt->cpu);
    if (!p->paper && !cpu_family_runs(f))
        return err_set(err, PL_UNSUPPORTED,
                       "this machine cannot run the %s kernels; its best are "
                       "%s",
                       opt->cpu, cpu_family_name(cpu_family_best()));
    cpu_kernels_init(&p->kernels, f);
    return PL_OK;
}

/* Threads that share cores wait for one another at every step. */
static void warn_threads(const struct planned *p, const pl_options *opt)
{
    for (int d = 0; d < p->list.n; d++)
        if (p->list.dev[d].kind == DEVICE_CPU &&
            p->list.dev[d].n_thread > p->list.dev[d].n_core)
            planned_log(opt, PL_LOG_WARN,
                        "%s has %d threads on %d cores; one a core is faster",
                        p->list.dev[d].name, p->list.dev[d].n_thread,
                        p->list.dev[d].n_core);
}

pl_status planned_create(struct planned **out, const pl_graph *g,
                         const pl_options *opt, pl_err *err)
{
    struct planned *p = calloc(1, sizeof *p);
    struct lower_options lo = {0};
    const pl_layout **leaf = NULL;
    pl_status s;

    *out = NULL;
    if (!p)
        return err_no_memory(err, "a plan");
    p->g = g;
    p->paper = opt->device_spec != NULL;
    s = pl_graph_check(g, err);
    if (s == PL_OK)
        s = sizes(p, opt, err);
    if (s == PL_OK)
        s = p->paper
                ? device_parse_paper(&p->list, opt->device_spec, err)
                : device_parse(&p->list, opt->devices ? opt->devices : "cpu",
                               opt->n_threads, err);
    if (s == PL_OK)
        s = family(p, opt, err);
    if (s == PL_OK)
        s = group_deal(&p->group, &p->arena, p->list.n, opt->n_ranks,
                       opt->tensor_split, opt->n_tensor_split, err);
    if (s != PL_OK)
        goto done;
    if (p->group.n_idle)
        planned_log(opt, PL_LOG_WARN,
                    "%d of %d devices carry no rank and stay idle (%d ranks)",
                    p->group.n_idle, p->list.n, p->group.n_rank);
    warn_threads(p, opt);
    leaf = malloc(((size_t)g->n_node + 1) * sizeof *leaf);
    if (!leaf) {
        s = err_no_memory(err, "a plan");
        goto done;
    }
    s = roles_layouts(g, p->group.n_rank, p->group.share, &p->arena, leaf, err);
    if (s == PL_OK)
        s = numeric_create(&p->num, g, p->group.n_rank, leaf, err);
    if (s != PL_OK)
        goto done;
    p->numeric_hash =
        (p->num->hash ^ p->kernels.float_activations) * 1099511628211u;
    lo.n_dev = p->list.n;
    lo.rank0 = p->group.rank0;
    lo.n_rank = p->group.n_rank_of;
    /* devices on paper are taken to read their peers' memory in place */
    lo.share_memory = p->paper || device_set_shares_memory(&p->list);
    lo.kernels = &p->kernels;
    lo.max = p->max;
    lo.n_seq = p->n_seq;
    lo.page_stride = p->page_stride;
    s = lower(&p->low, p->num, &lo, err);
done:
    free(leaf);
    if (s == PL_OK)
        *out = p;
    else
        planned_free(p);
    return s;
}

void planned_free(struct planned *p)
{
    if (!p)
        return;
    lowered_free(p->low);
    numeric_free(p->num);
    device_list_free(&p->list);
    arena_fini(&p->arena);
    free(p);
}
