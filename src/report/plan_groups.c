/* Prints the groups of a plan with their devices and tensors, the copies
 * between groups, and the predicted times of the devices. If there are many,
 * similar ones are printed once. */
#include "base/numeral.h"
#include "graph/shape.h"
#include "report/plan_facts.h"
#include "report/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Number of groups (and, below, of devices and of intervals of layers)
     * above which similar ones are printed once. */
    MANY_GROUPS = 8,
    MANY_DEVICES = 4,
    MANY_RUNS = 8,
};

const char *plan_short_name(const char *name, char buf[PLAN_NAME])
{
    const char *s = name;
    size_t len, end;

    if (!strncmp(s, "blk.", 4) && strchr(s + 4, '.'))
        s = strchr(s + 4, '.') + 1;
    len = strlen(s);
    if (len > 7 && !strcmp(s + len - 7, ".weight"))
        len -= 7;
    for (end = len; end > 0 && s[end - 1] >= '0' && s[end - 1] <= '9';)
        end--;
    if (end > 1 && end < len && (s[end - 1] == '-' || s[end - 1] == '.'))
        len = end - 1;
    snprintf(buf, PLAN_NAME, "%.*s", (int)(len < 24 ? len : 24), s);
    return buf;
}

static int count_layers(int n, bool (*in)(const void *, int), const void *what)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += in(what, i);
    return found;
}

bool plan_print_layers(const struct sink *to, const char *before, int n,
                       bool (*in)(const void *what, int layer),
                       const void *what, int most)
{
    int found = count_layers(n, in, what), n_run = 0, run = 0;

    if (found == 0)
        return false;
    writer_printf(to, "%slayer%s ", before, found > 1 ? "s" : "");
    for (int i = 0; i < n; i++)
        n_run += in(what, i) && (i == 0 || !in(what, i - 1));
    for (int i = 0, end; i < n; i = end + 1) {
        bool cut = n_run > most;

        end = i;
        if (!in(what, i))
            continue;
        while (end + 1 < n && in(what, end + 1))
            end++;
        run++;
        if (cut && run > 2 && run < n_run)
            continue;
        writer_printf(to, "%s%d",
                      run == 1              ? ""
                      : cut && run == n_run ? " ... "
                                            : ", ",
                      i);
        if (end > i)
            writer_printf(to, "-%d", end);
    }
    return true;
}

/* ---- printing groups ---------------------------------------------------- */

/* Weights and caches that are not in the group that computes their layer. */
struct guests {
    const struct plan_facts *f;
    const struct placement *y;
    int group;
    enum plan_kind kind; /* PLAN_OTHER for all that are not named below */
};

static const struct {
    enum plan_kind kind;
    const char *name;
} guest[] = {{PLAN_EXPERTS, "experts"},
             {PLAN_CACHE, "cache"},
             {PLAN_OTHER, "other tensors"}};
enum { N_GUEST = sizeof guest / sizeof guest[0] };

static bool runs(const void *what, int layer)
{
    const struct guests *s = what;

    return plan_next_tensor(s->f, 0, layer) >= 0 &&
           s->y->layer_group[layer] == s->group;
}

static bool holds_foreign_part(const void *what, int layer)
{
    const struct guests *s = what;

    for (int i = plan_next_tensor(s->f, 0, layer); i >= 0 && !runs(s, layer);
         i = plan_next_tensor(s->f, i + 1, layer)) {
        enum plan_kind kind = plan_kind(s->f->tensor[i].node);

        if (kind != PLAN_EXPERTS && kind != PLAN_CACHE)
            kind = PLAN_OTHER;
        if (s->f->tensor[i].group == s->group && kind == s->kind)
            return true;
    }
    return false;
}

static void say_members(const struct compiled *q, const struct place_group *g,
                        char buf[64])
{
    const struct place_member *m = &q->place.member[g->first];
    size_t n = 0;

    if (g->n > 3) {
        snprintf(buf, 64, "%d: %.20s to %.20s", g->n,
                 q->list.dev[m[0].dev].name, q->list.dev[m[g->n - 1].dev].name);
        return;
    }
    buf[0] = '\0';
    for (int k = 0; k < g->n; k++)
        n += (size_t)snprintf(buf + n, 64 - n, "%s%.18s", k ? ", " : "",
                              q->list.dev[m[k].dev].name);
}

static void say_group(const struct compiled *q, const struct plan_facts *f,
                      const struct sink *to, int group)
{
    const struct placement *y = &q->place;
    struct guests s = {f, y, group, 0};
    const char *before = "";
    char text[64];

    say_members(q, &y->group[group], text);
    writer_printf(to, "%-10s %-22s ", y->group[group].name, text);
    if (y->input_group == group) {
        writer_printf(to, "embedding");
        before = ", ";
    }
    if (plan_print_layers(to, before, y->n_layer, runs, &s, MANY_RUNS))
        before = ", ";
    if (y->layer_group[y->n_layer] == group) {
        writer_printf(to, "%soutput", before);
        before = ", ";
    }
    for (int k = 0; k < N_GUEST; k++) {
        s.kind = guest[k].kind;
        snprintf(text, sizeof text, "%s%s of ", before, guest[k].name);
        if (plan_print_layers(to, text, y->n_layer, holds_foreign_part, &s,
                              MANY_RUNS))
            before = ", ";
    }
    writer_printf(to, "%s\n", *before ? "" : "nothing");
}

/* Returns true if group b need not be printed, because group a above it is
 * similar: the numbers of devices are equal, and the numbers of layers differ
 * by at most one. Group b must not be the host or have the embedding or the
 * output. */
static bool group_alike(const struct compiled *q, const struct plan_facts *f,
                        int a, int b)
{
    const struct placement *y = &q->place;
    const struct guests s = {f, y, a, 0}, t = {f, y, b, 0};
    int n = count_layers(y->n_layer, runs, &s);
    int m = count_layers(y->n_layer, runs, &t);

    return y->group[a].n == y->group[b].n && n > 0 && m > 0 &&
           abs(n - m) <= 1 && b != y->host && b != y->input_group &&
           b != y->layer_group[y->n_layer];
}

void plan_print_groups(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to)
{
    const struct compiled *q = p->compiled;
    const struct placement *y = &q->place;

    writer_printf(to, "\n%-10s %-22s %s\n", "group", "devices", "holds");
    for (int i = 0; i < y->n_group; i++) {
        int end = i;

        say_group(q, f, to, i);
        while (y->n_group > MANY_GROUPS && end + 1 < y->n_group &&
               group_alike(q, f, i, end + 1))
            end++;
        if (end > i + 1) {
            writer_printf(to, "           %d more groups like it\n",
                          end - i - 1);
            i = end - 1;
        }
    }
}

/* ---- printing copies between groups ------------------------------------- */

/* Copies between groups that are printed together, because they differ from
 * copy[first] only in their layer and their groups. */
struct kind_of_copy {
    const struct compiled *q;
    const struct lowered_copy *copy;
    const int *kind; /* [n] for each copy, the index of the first copy that is
                        printed with it */
    int n, first;
};

/* Returns the name of the value that a copy transfers. If the value has only a
 * generated name such as "t12", returns its op and the weight or cache that it
 * was computed with. */
static const char *copy_name(const struct compiled *q,
                             const struct lowered_copy *c,
                             char buf[2 * PLAN_NAME])
{
    const struct graph_node *n = &q->g->node[q->num->node[c->node].node];
    char name[PLAN_NAME];

    if (n->name[0] != 't' ||
        strspn(n->name + 1, "0123456789") + 1 != strlen(n->name))
        return plan_short_name(n->name, buf);
    /* Goes back through first operands to a node that reads a weight or
     * cache. */
    for (const struct graph_node *x = n;;) {
        for (int k = 0; k < x->n_in; k++)
            if (x->in[k] >= 0 && (q->g->node[x->in[k]].op == OP_weight ||
                                  q->g->node[x->in[k]].op == OP_memory)) {
                snprintf(buf, 2 * PLAN_NAME, "%s (%s)", graph_op_name(n),
                         plan_short_name(q->g->node[x->in[k]].name, name));
                return buf;
            }
        if (x->n_in == 0 || x->in[0] < 0)
            break;
        x = &q->g->node[x->in[0]];
    }
    snprintf(buf, 2 * PLAN_NAME, "%s", graph_op_name(n));
    return buf;
}

static bool copy_alike(const struct compiled *q, const struct lowered_copy *a,
                       const struct lowered_copy *b)
{
    char s[2 * PLAN_NAME], t[2 * PLAN_NAME];
    int host = q->place.host;

    return a->pages == b->pages && (a->layer < 0) == (b->layer < 0) &&
           dim_equal(a->bytes[0], b->bytes[0]) &&
           dim_equal(a->bytes[1], b->bytes[1]) &&
           (a->from == host) == (b->from == host) &&
           (a->to == host) == (b->to == host) &&
           !strcmp(copy_name(q, a, s), copy_name(q, b, t));
}

static bool copied_in(const void *what, int layer)
{
    const struct kind_of_copy *k = what;

    for (int i = k->first; i < k->n; i++)
        if (k->kind[i] == k->first && k->copy[i].layer == layer)
            return true;
    return false;
}

static void say_amount(const struct sink *to, const struct lowered_copy *c)
{
    const char *per = plan_bytes_symbol(c->bytes);

    writer_printf(to, "%8s %s", size_text(plan_bytes(c->bytes)).s,
                  c->pages                ? "per token of context"
                  : !strcmp(per, "step")  ? "a step"
                  : !strcmp(per, "n_out") ? "per row of logits"
                                          : "a token");
}

static void say_copy_kind(const struct kind_of_copy *k, const struct sink *to)
{
    const struct lowered_copy *c = &k->copy[k->first];
    const struct placement *y = &k->q->place;
    int others = 0;
    char name[2 * PLAN_NAME], route[80];

    for (int i = k->first; i < k->n; i++)
        others += k->kind[i] == k->first &&
                  (k->copy[i].from != c->from || k->copy[i].to != c->to);
    snprintf(route, sizeof route, "%.28s to %.28s", y->group[c->from].name,
             y->group[c->to].name);
    writer_printf(to, "  %-22s %-24s", route, copy_name(k->q, c, name));
    say_amount(to, c);
    plan_print_layers(to, ", ", y->n_layer, copied_in, k, MANY_RUNS);
    if (others > 0)
        writer_printf(to, "; %d between other groups", others);
    writer_printf(to, "\n");
}

static void say_list(const struct compiled *q, const struct plan_copies *c,
                     const struct sink *to)
{
    int *kind = malloc((size_t)c->n * sizeof *kind);

    for (int i = 0; kind && i < c->n; i++) {
        kind[i] = i;
        for (int k = 0; k < i && kind[i] == i; k++)
            if (kind[k] == k && copy_alike(q, &c->v[k], &c->v[i]))
                kind[i] = k;
    }
    for (int i = 0; kind && i < c->n; i++)
        if (kind[i] == i)
            say_copy_kind(&(struct kind_of_copy){q, c->v, kind, c->n, i}, to);
    if (!kind)
        writer_printf(to, "  (no memory to list them)\n");
    free(kind);
}

void plan_print_copies(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to)
{
    const struct compiled *q = p->compiled;
    const struct plan_copies *plain = &f->copies[VARIANT_RESIDENT];
    const struct plan_copies *streamed = &f->copies[VARIANT_STREAMED];

    if (plain->n > 0) {
        writer_printf(to, "          %d copies between groups, %s bytes\n",
                      plain->n, size_text(f->copy_bytes).s);
        say_list(q, plain, to);
    }
    if (streamed->n > 0 && q->variants.stream_from > q->max.n_tok)
        writer_printf(to, "streamed  never, because the host is faster\n");
    else if (streamed->n > 0) {
        writer_printf(to,
                      "streamed  in steps of at least %" PRId64
                      " tokens, instead: %d copies\n",
                      q->variants.stream_from, streamed->n);
        say_list(q, streamed, to);
    }
}

/* ---- printing predicted times ------------------------------------------- */

struct seconds_text {
    char s[16];
};

static struct seconds_text seconds_text(double s)
{
    static const char *const unit[] = {"s", "ms", "us"};
    struct seconds_text t = {"0"};
    int k = 0;

    if (s < 5e-10)
        return t;
    while (k < 2 && s < 0.9995) {
        s *= 1000;
        k++;
    }
    numeral_print(t.s, sizeof t.s, "%.*f%s",
                  s < 9.995   ? 2
                  : s < 99.95 ? 1
                              : 0,
                  s, unit[k]);
    return t;
}

static void say_use(const struct sink *to, const struct cost_use *u)
{
    writer_printf(to, " %8s %8s %8s %7s %8s", seconds_text(u->busy_s).s,
                  seconds_text(u->collective_s).s, seconds_text(u->copy_s).s,
                  seconds_text(u->hidden_s).s, seconds_text(u->idle_s).s);
}

static bool near(double a, double b)
{
    return a - b < 0.02 * a + 1e-9 && b - a < 0.02 * a + 1e-9;
}

static bool use_alike(const struct cost_use *a, const struct cost_use *b)
{
    return near(a->busy_s, b->busy_s) &&
           near(a->collective_s, b->collective_s) &&
           near(a->copy_s, b->copy_s) && near(a->hidden_s, b->hidden_s) &&
           near(a->idle_s, b->idle_s);
}

/* Says which mirrored parts take more than a hundredth of the time of several
 * ranks. */
static void say_mirrored(const pl_plan *p, const struct plan_facts *f,
                         const struct sink *to)
{
    static const char *const part[PLAN_PARTS] = {[PART_INDEXERS] = "indexers",
                                                 [PART_LATENTS] = "latents",
                                                 [PART_ROUTERS] = "routers",
                                                 [PART_STREAMS] =
                                                     "residual streams"};
    const double least = 0.01;

    for (int k = 0; k < PLAN_PARTS && p->compiled->place.n_rank > 1; k++)
        if (f->mirrored[k][0] > least || f->mirrored[k][1] > least)
            writer_printf(to,
                          "mirrored  %s: up to %.1f %% of a device's time in "
                          "kernels for a prompt, %.1f %% for a token\n",
                          part[k], 100 * f->mirrored[k][0],
                          100 * f->mirrored[k][1]);
}

void plan_print_times(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to)
{
    const struct compiled *q = p->compiled;
    const struct plan_pipeline *y = &f->pipeline;

    if (y->n > 0)
        writer_printf(to,
                      "pipeline  %d micro-batches of %" PRId64
                      " tokens in %s; sequentially in %s\n",
                      y->n, y->n_tok, seconds_text(y->seconds).s,
                      seconds_text(y->one_by_one_s).s);
    writer_printf(to,
                  "\npredicted  prompt of %" PRId64
                  " tokens: %-19s    per token: %s\n%-9s",
                  f->estimate.n_prompt, seconds_text(f->prefill.seconds).s,
                  seconds_text(f->decode.seconds).s, "device");
    for (int k = 0; k < 2; k++)
        writer_printf(to, " %8s %8s %8s %7s %8s", "busy", "messages", "copies",
                      "hidden", "idle");
    writer_printf(to, "\n");
    for (int d = 0; d < f->n_dev; d++) {
        int end = d;

        writer_printf(to, "%-9s", q->list.dev[d].name);
        say_use(to, &f->prefill.use[d]);
        say_use(to, &f->decode.use[d]);
        writer_printf(to, "\n");
        while (f->n_dev > MANY_DEVICES && end + 1 < f->n_dev &&
               use_alike(&f->prefill.use[d], &f->prefill.use[end + 1]) &&
               use_alike(&f->decode.use[d], &f->decode.use[end + 1]))
            end++;
        if (end > d)
            writer_printf(to, "   to %-4s the same each\n",
                          q->list.dev[end].name);
        d = end;
    }
    say_mirrored(p, f, to);
}
