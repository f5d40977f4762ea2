/* Prints a plan config as the options that reproduce it. */
#include "plan/plan_config.h"

#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_config_format(struct plan_config_text *t, const char *fmt, ...)
{
    size_t room = sizeof t->s - t->n;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(t->s + t->n, room, fmt, ap);
    va_end(ap);
    t->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

static void say_number(struct plan_config_text *t, double v)
{
    char buf[NUMERAL_SHORTEST];

    plan_config_format(t, "%s", numeral_shortest(buf, v));
}

void plan_config_format_mode(struct plan_config_text *t,
                             const struct plan_config *in)
{
    switch (in->mode) {
    case PL_SPLIT_NONE:
        plan_config_format(t, "-sm none -mg %d", in->main_device);
        break;
    case PL_SPLIT_LAYER:
        plan_config_format(t, "-sm layer");
        break;
    case PL_SPLIT_HYBRID:
        if (in->width == PLAN_CONFIG_BY_MACHINE)
            plan_config_format(t, "-sm hybrid:machine");
        else
            plan_config_format(t, "-sm hybrid:%d", in->width);
        break;
    default:
        plan_config_format(t, "-sm tensor");
    }
    for (int d = 0; in->share && d < in->list.n; d++) {
        plan_config_format(t, d ? "," : " -ts ");
        say_number(t, in->share[d]);
    }
}

void plan_config_format_layers(struct plan_config_text *t,
                               const struct plan_config *in)
{
    if (in->n_on > in->n_layer)
        plan_config_format(t, "all");
    else
        plan_config_format(t, "%d", in->n_on);
}

void plan_config_format_experts(struct plan_config_text *t,
                                const struct plan_config *in)
{
    const bool *on = in->experts;
    int n = in->n_layer, first = 0, more = 0;
    const char *comma = "";

    while (on && first < n && on[first])
        first++;
    for (int i = first; on && i < n; i++)
        more += on[i];
    if (on && first == n && on[n]) {
        plan_config_format(t, "all");
        return;
    }
    if (more == 0) { /* The layers are the first `first` ones, which may be
                        none. */
        plan_config_format(t, "%d", first);
        return;
    }
    for (int i = 0; i < n; i++) {
        int end = i;

        if (!on[i])
            continue;
        while (end + 1 < n && on[end + 1])
            end++;
        /* A single layer is written as "7-7", because "7" means the first 7
         * layers. */
        plan_config_format(t, "%s%d-%d", comma, i, end);
        comma = ",";
        i = end;
    }
}

/* Appends the text s in single quotes, as a shell command needs it. A quote
 * within the text becomes '\''. */
static void say_quoted(struct plan_config_text *t, const char *s)
{
    for (; *s; s++)
        plan_config_format(t, *s == '\'' ? "'\\''" : "%c", *s);
}

void plan_config_print(struct plan_config_text *t, const struct plan_config *in,
                       int n_rank)
{
    plan_config_format_mode(t, in);
    if (in->list.n > 0) {
        plan_config_format(t, " -ngl ");
        plan_config_format_layers(t, in);
    }
    if (plan_config_has_host_experts(in)) {
        size_t at = t->n;

        plan_config_format(t, " -ncmoe ");
        plan_config_format_experts(t, in);
        if (strcmp(t->s + at, " -ncmoe all") == 0) {
            t->n = at;
            plan_config_format(t, " -cmoe");
        }
    }
    if (in->cache)
        plan_config_format(t, " -nkvo");
    for (int i = 0; i < in->n_override; i++) {
        plan_config_format(t, " -ot '");
        say_quoted(t, in->override[i].regex);
        plan_config_format(t, "=");
        say_quoted(t, in->override[i].where);
        plan_config_format(t, "'");
    }
    if (in->offload != PL_OFFLOAD_AUTO)
        plan_config_format(t, " --op-offload %s",
                           in->offload == PL_OFFLOAD_ON ? "on" : "off");
    plan_config_format(t, " -ub %" PRId64 " -c %" PRId64, in->n_ubatch,
                       in->n_ctx);
    if (in->n_checkpoint != PLAN_CONFIG_N_CHECKPOINT)
        plan_config_format(t, " --checkpoints %d", in->n_checkpoint);
    /* In tensor mode without --ranks, -ts gives the shares of the ranks and so
     * their number. */
    if (in->n_rank > 0 || in->mode != PL_SPLIT_TENSOR || !in->share)
        plan_config_format(t, " --ranks %d", n_rank);
    for (int r = 0; in->rank_share && r < n_rank; r++) {
        plan_config_format(t, r ? "," : " --rank-split ");
        say_number(t, in->rank_share[r]);
    }
    plan_config_format(t, " -fit off");
}
