/* An intent as the options that ask for it. */
#include "plan/intent.h"

#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void intent_say(struct intent_text *t, const char *fmt, ...)
{
    size_t room = sizeof t->s - t->n;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(t->s + t->n, room, fmt, ap);
    va_end(ap);
    t->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* As short as it can be read back. */
static void say_number(struct intent_text *t, double v)
{
    char buf[32];

    for (int digits = 6; digits <= 17; digits++) {
        numeral_print(buf, sizeof buf, "%.*g", digits, v);
        if (numeral_double(buf, NULL) == v)
            break;
    }
    intent_say(t, "%s", buf);
}

void intent_say_mode(struct intent_text *t, const struct intent *in)
{
    switch (in->mode) {
    case PL_SPLIT_NONE:
        intent_say(t, "-sm none -mg %d", in->main_device);
        break;
    case PL_SPLIT_LAYER:
        intent_say(t, "-sm layer");
        break;
    case PL_SPLIT_HYBRID:
        intent_say(t, "-sm hybrid:%d", in->width);
        break;
    default:
        intent_say(t, "-sm tensor");
    }
    for (int d = 0; in->share && d < in->list.n; d++) {
        intent_say(t, d ? "," : " -ts ");
        say_number(t, in->share[d]);
    }
}

void intent_say_layers(struct intent_text *t, const struct intent *in)
{
    if (in->n_on > in->n_layer)
        intent_say(t, "all");
    else
        intent_say(t, "%d", in->n_on);
}

void intent_say_experts(struct intent_text *t, const struct intent *in)
{
    const bool *on = in->experts;
    int n = in->n_layer, first = 0, more = 0;
    const char *comma = "";

    while (on && first < n && on[first])
        first++;
    for (int i = first; on && i < n; i++)
        more += on[i];
    if (on && first == n && on[n]) {
        intent_say(t, "all");
        return;
    }
    if (more == 0) { /* the first few and no other */
        intent_say(t, "%d", first);
        return;
    }
    for (int i = 0; i < n; i++) {
        int end = i;

        if (!on[i])
            continue;
        while (end + 1 < n && on[end + 1])
            end++;
        /* a number alone would be a count */
        intent_say(t, "%s%d-%d", comma, i, end);
        comma = ",";
        i = end;
    }
}

/* As a shell reads it. */
static void say_quoted(struct intent_text *t, const char *s)
{
    for (; *s; s++)
        intent_say(t, *s == '\'' ? "'\\''" : "%c", *s);
}

void intent_print(struct intent_text *t, const struct intent *in, int n_rank)
{
    intent_say_mode(t, in);
    if (in->list.n > 0) {
        intent_say(t, " -ngl ");
        intent_say_layers(t, in);
    }
    if (intent_has_experts(in)) {
        size_t at = t->n;

        intent_say(t, " -ncmoe ");
        intent_say_experts(t, in);
        if (strcmp(t->s + at, " -ncmoe all") == 0) {
            t->n = at;
            intent_say(t, " -cmoe");
        }
    }
    if (in->cache)
        intent_say(t, " -nkvo");
    for (int i = 0; i < in->n_override; i++) {
        intent_say(t, " -ot '");
        say_quoted(t, in->override[i].regex);
        intent_say(t, "=");
        say_quoted(t, in->override[i].where);
        intent_say(t, "'");
    }
    if (in->offload != PL_OFFLOAD_AUTO)
        intent_say(t, " --op-offload %s",
                   in->offload == PL_OFFLOAD_ON ? "on" : "off");
    intent_say(t, " -ub %" PRId64 " -c %" PRId64, in->n_ubatch, in->n_ctx);
    if (in->n_checkpoint != INTENT_N_CHECKPOINT)
        intent_say(t, " --checkpoints %d", in->n_checkpoint);
    /* in tensor mode shares without ranks are the ranks' own */
    if (in->n_rank > 0 || in->mode != PL_SPLIT_TENSOR || !in->share)
        intent_say(t, " --ranks %d", n_rank);
    intent_say(t, " -fit off");
}
