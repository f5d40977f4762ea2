/* What was chosen, as options; and what is missing, device by device. */
#include "fit/fit_inner.h"

#include "base/bytes.h"
#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fit_say(struct fit_text *t, const char *fmt, ...)
{
    size_t room = sizeof t->s - t->n;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(t->s + t->n, room, fmt, ap);
    va_end(ap);
    t->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

void fit_ranges(struct fit_text *t, const bool *on, int n)
{
    int first = 0;

    t->s[t->n] = '\0';
    while (first < n && on[first])
        first++;
    for (int i = first; i < n; i++)
        if (on[i])
            first = -1;
    if (first == n) {
        fit_say(t, "all");
        return;
    }
    if (first > 0) { /* the first few and no other */
        fit_say(t, "%d", first);
        return;
    }
    for (int i = 0; i < n && first < 0; i++) {
        int end = i;

        if (!on[i])
            continue;
        while (end + 1 < n && on[end + 1])
            end++;
        /* a number alone would be a count */
        fit_say(t, "%s%d-%d", t->n ? "," : "", i, end);
        i = end;
    }
}

void fit_options(const struct fit *f, const struct fit_choice *c,
                 struct fit_text *experts, char layers[16], pl_options *out)
{
    *out = *f->opt;
    out->split_mode = c->mode;
    out->hybrid_size = c->width;
    out->main_device = c->main_device;
    out->n_ranks = c->n_ranks;
    out->n_ubatch = c->n_ubatch;
    out->n_ctx = c->n_ctx;
    if (c->split) {
        out->tensor_split = c->split;
        out->n_tensor_split = f->list.n;
    }
    if (c->n_on >= 0) {
        snprintf(layers, 16, "%d", c->n_on);
        out->device_layers = layers;
    }
    experts->n = 0;
    if (c->experts) {
        fit_ranges(experts, c->experts, f->n_layer);
        out->host_experts = experts->n > 0 ? experts->s : NULL;
    }
}

/* As short as it can be read back. */
static void say_number(struct fit_text *t, double v)
{
    char buf[32];

    for (int digits = 6; digits <= 17; digits++) {
        numeral_print(buf, sizeof buf, "%.*g", digits, v);
        if (numeral_double(buf, NULL) == v)
            break;
    }
    fit_say(t, "%s", buf);
}

void fit_say_mode(struct fit_text *t, const struct fit_choice *c,
                  const pl_options *o)
{
    switch (c->mode) {
    case PL_SPLIT_NONE:
        fit_say(t, "-sm none -mg %d", c->main_device);
        break;
    case PL_SPLIT_LAYER:
        fit_say(t, "-sm layer");
        break;
    case PL_SPLIT_HYBRID:
        fit_say(t, "-sm hybrid:%d", c->width);
        break;
    default:
        fit_say(t, "-sm tensor");
    }
    for (int d = 0; d < o->n_tensor_split; d++) {
        fit_say(t, d ? "," : " -ts ");
        say_number(t, o->tensor_split[d]);
    }
}

/* As a shell reads it. */
static void say_quoted(struct fit_text *t, const char *s)
{
    fit_say(t, "'");
    for (; *s; s++)
        fit_say(t, *s == '\'' ? "'\\''" : "%c", *s);
    fit_say(t, "'");
}

void fit_describe(struct fit_text *t, const struct fit *f,
                  const struct fit_choice *c, const struct compiled *q)
{
    struct fit_text experts;
    char layers[16];
    pl_options o;

    fit_options(f, c, &experts, layers, &o);
    fit_say_mode(t, c, &o);
    if (q->list.n > 0 && !q->list.dev[0].host)
        fit_say(t, " -ngl %s",
                o.device_layers && strcmp(o.device_layers, "auto") != 0
                    ? o.device_layers
                    : "all");
    if (o.host_experts && strcmp(o.host_experts, "all") == 0)
        fit_say(t, " -cmoe");
    else if (o.host_experts)
        fit_say(t, " -ncmoe %s", o.host_experts);
    if (o.host_cache)
        fit_say(t, " -nkvo");
    for (int i = 0; i < o.n_overrides; i++) {
        fit_say(t, " -ot ");
        say_quoted(t, o.overrides[i]);
    }
    if (o.offload != PL_OFFLOAD_AUTO)
        fit_say(t, " --op-offload %s",
                o.offload == PL_OFFLOAD_ON ? "on" : "off");
    fit_say(t, " -ub %" PRId64 " -c %" PRId64, q->max.n_tok, o.n_ctx);
    /* in tensor mode shares without ranks are the ranks' own */
    if (o.n_ranks > 0 || c->mode != PL_SPLIT_TENSOR || !o.tensor_split)
        fit_say(t, " --ranks %d", q->place.n_rank);
    fit_say(t, " -fit off");
}

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
static void say_sharers(struct fit_text *t, const struct device_list *l, int d)
{
    enum { MOST = 3 };
    int n = 0;

    for (int k = 0; k < l->n; k++)
        if (k != d && !l->dev[k].io &&
            device_shares_memory(&l->dev[d], &l->dev[k]) && n++ < MOST)
            fit_say(t, "%s %s", n == 1 ? " with" : ",", l->dev[k].name);
    if (n > MOST)
        fit_say(t, " and %d more", n - MOST);
}

static void say_device(struct fit_text *t, const struct compiled *q, int d,
                       int64_t missing)
{
    const struct device_desc *x = &q->list.dev[d];
    uint64_t bytes[REGION_COUNT] = {0};
    char b[24];

    for (int k = 0; k < q->list.n; k++) {
        const struct program *p = &q->low->prog[k];

        if (k != d && !device_shares_memory(x, &q->list.dev[k]))
            continue;
        bytes[REGION_WEIGHTS] += p->bytes[REGION_WEIGHTS];
        bytes[REGION_CACHE] += p->bytes[REGION_CACHE];
        bytes[REGION_WORK] +=
            program_buffers(p) +
            device_scratch_bytes(&q->list.dev[k], q->family, p);
    }
    fit_say(t, "%s", x->name);
    if (missing > 0)
        fit_say(t, ": needs %s more", bytes_text(b, (uint64_t)missing));
    say_sharers(t, &q->list, d);
    fit_say(t, " (weights %s", bytes_text(b, bytes[REGION_WEIGHTS]));
    fit_say(t, ", cache %s", bytes_text(b, bytes[REGION_CACHE]));
    fit_say(t, ", buffers %s", bytes_text(b, bytes[REGION_WORK]));
    if (x->memory_bytes > 0)
        fit_say(t, ", of %s", bytes_text(b, x->memory_bytes));
    fit_say(t, ")");
}

void fit_table(struct fit_text *t, const struct compiled *q, uint64_t margin,
               bool all)
{
    enum { MOST = 6 };
    int n = 0;

    for (int d = 0; d < q->list.n; d++) {
        int64_t missing = fit_missing(q, d, margin);

        if (is_told(&q->list, d) ||
            (missing <= 0 && !(all && q->low->prog[d].active)))
            continue;
        if (n++ >= MOST)
            continue;
        fit_say(t, "%s", n > 1 ? "; " : "");
        say_device(t, q, d, missing);
    }
    if (n > MOST)
        fit_say(t, "; and %d device%s more", n - MOST,
                n - MOST == 1 ? "" : "s");
}

void fit_explain(pl_err *err, const struct compiled *q)
{
    struct fit_text t = {.n = 0};
    size_t at;

    if (!err)
        return;
    fit_table(&t, q, FIT_NO_MARGIN, true);
    at = strlen(err->message);
    snprintf(err->message + at, sizeof err->message - at, "; planned: %s", t.s);
}
