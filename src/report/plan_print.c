/* Prints the plan as text: devices, tensors of each kind of layer, collectives,
 * copies and predicted speeds. Layers whose tensors have the same roles,
 * formats and sizes are of one kind. Only the first layer of a kind is printed,
 * even if others are split slightly differently. For up to four devices, lines
 * have at most 100 columns. */
#include "base/err.h"
#include "cost/cost.h"
#include "graph/shape.h"
#include "plan/roles.h"
#include "report/plan_facts.h"
#include "report/plan_links.h"
#include "report/plan_network.h"
#include "report/writer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of devices for which each device gets a column. */
enum { MAX_COLUMN = 4 };

/* The first layers to which a layer is similar. Element 0 of page.layer is for
 * the tensors and collectives outside of layers, element i for those of layer
 * i - 1. */
struct layer {
    int kind; /* index in page.layer of the first layer with the same tensors */
    int sends;    /* index in page.layer of the first layer with the same
                     tensors and the same collectives */
    bool differs; /* some layer with the same tensors is split differently */
    bool moves;   /* some layer with the same tensors is in another group */
};

struct page {
    const pl_plan *p;
    const struct plan_facts *f;
    const struct sink *to;
    int n_layer; /* number of elements of `layer` */
    struct layer *layer;
};

/* Finding layers of the same kind ---------------------------------------- */

/* Returns the group that holds a tensor if another group computes the tensor's
 * layer, else -1. */
static int foreign_group(const struct page *g, const struct plan_tensor *t)
{
    const struct placement *y = &g->p->compiled->place;
    int own = t->node->layer >= 0 ? y->layer_group[t->node->layer] : -1;

    return t->group == own ? -1 : t->group;
}

static bool tensor_alike(const struct page *g, const struct plan_tensor *x,
                         const struct plan_tensor *y)
{
    char s[PLAN_NAME], t[PLAN_NAME];

    if (x->node->role != y->node->role || x->node->format != y->node->format ||
        x->node->n_dim != y->node->n_dim || x->first->kind != y->first->kind ||
        (x->first->kind == PL_SPLIT && x->first->dim != y->first->dim) ||
        foreign_group(g, x) != foreign_group(g, y) ||
        strcmp(plan_short_name(x->node->name, s),
               plan_short_name(y->node->name, t)) != 0)
        return false;
    for (int d = 0; d < x->node->n_dim; d++)
        if (!dim_equal(x->node->dim[d], y->node->dim[d]))
            return false;
    return true;
}

/* Returns true if elements a and b of page.layer have similar tensors. Then
 * *same says if they are also split alike. */
static bool layer_alike(const struct page *g, int a, int b, bool *same)
{
    int i = -1, k = -1;

    for (*same = true;;) {
        const struct plan_tensor *x, *y;

        i = plan_next_tensor(g->f, i + 1, a - 1);
        k = plan_next_tensor(g->f, k + 1, b - 1);
        if (i < 0 || k < 0)
            return i == k;
        x = &g->f->tensor[i];
        y = &g->f->tensor[k];
        if (!tensor_alike(g, x, y))
            return false;
        *same &=
            !strcmp(x->layout, y->layout) &&
            !memcmp(x->bytes, y->bytes, (size_t)g->f->n_dev * sizeof *x->bytes);
    }
}

/* Returns true if a collective adds sums of values, not matrix products: the
 * families have that for norms over the heads of all ranks. */
static bool is_of_norm(const struct page *g, const struct lowered_collective *m)
{
    return g->p->compiled->g->node[m->node].op == OP_sum;
}

static bool same_collectives(const struct page *g, int a, int b)
{
    const struct lowered_variant *w = g->p->compiled->low->variant;
    int i = -1, k = -1;

    for (;;) {
        const struct lowered_collective *x, *y;

        i = plan_next_collective(w, i + 1, a - 1);
        k = plan_next_collective(w, k + 1, b - 1);
        if (i < 0 || k < 0)
            return i == k;
        x = &w->collective[i];
        y = &w->collective[k];
        if (x->kind != y->kind || x->n_item != y->n_item ||
            is_of_norm(g, x) != is_of_norm(g, y) ||
            !dim_equal(x->bytes[0], y->bytes[0]) ||
            !dim_equal(x->bytes[1], y->bytes[1]))
            return false;
    }
}

static void find_kinds(struct page *g)
{
    const int *of_layer = g->p->compiled->place.layer_group;

    for (int i = 0; i < g->n_layer; i++) {
        struct layer *y = &g->layer[i];
        bool same = true;

        y->kind = i;
        for (int k = 1; k < i; k++)
            if (g->layer[k].kind == k && layer_alike(g, k, i, &same)) {
                y->kind = k;
                g->layer[k].moves |= of_layer[k - 1] != of_layer[i - 1];
                g->layer[k].differs |= !same;
                break;
            }
        y->sends = i;
        for (int k = 1; k < i && y->sends == i; k++)
            if (g->layer[k].kind == y->kind && same_collectives(g, k, i))
                y->sends = k;
    }
}

static pl_status page_init(struct page *g, struct arena *a, pl_err *err)
{
    const struct lowered_variant *w = g->p->compiled->low->variant;

    g->n_layer = 1;
    for (int i = 0; i < g->f->n_tensor; i++)
        if (g->f->tensor[i].node->layer + 2 > g->n_layer)
            g->n_layer = g->f->tensor[i].node->layer + 2;
    for (int i = 0; i < w->n_collective; i++)
        if (w->collective[i].layer + 2 > g->n_layer)
            g->n_layer = w->collective[i].layer + 2;
    g->layer = arena_alloc(a, (size_t)g->n_layer, sizeof *g->layer);
    if (!g->layer)
        return err_no_memory(err, "the description of a plan");
    find_kinds(g);
    return PL_OK;
}

/* Printing the parts of a plan ------------------------------------------- */

/* Writes a tensor's layout to `buf` with the number of indices of each rank,
 * such as "split 0: 96+96+64". If there are many ranks, writes how many and the
 * least and greatest number, such as "split 0: 64 x 32-40". */
static const char *short_layout(const struct plan_tensor *t, int n_rank,
                                char buf[64])
{
    const pl_layout *l = t->first;
    int64_t size, least = INT64_MAX, most = 0;
    size_t n;

    if (l->kind != PL_SPLIT)
        return layout_print(l, buf, 64);
    size = t->node->dim[l->dim].n;
    n = (size_t)snprintf(buf, 64, "split %d:", l->dim);
    for (int r = 0; r < n_rank; r++) {
        int64_t len = layout_local_size(l, size, (rankset)1 << r);

        least = len < least ? len : least;
        most = len > most ? len : most;
        if (n_rank <= MAX_COLUMN)
            n += (size_t)snprintf(buf + n, 64 - n, "%s%" PRId64, r ? "+" : " ",
                                  len);
    }
    if (n_rank > MAX_COLUMN && least == most)
        snprintf(buf + n, 64 - n, " %d x %" PRId64, n_rank, most);
    else if (n_rank > MAX_COLUMN)
        snprintf(buf + n, 64 - n, " %d x %" PRId64 "-%" PRId64, n_rank, least,
                 most);
    return buf;
}

static const char *shape_text(const struct graph_node *n, char buf[64])
{
    size_t len = 0;

    for (int d = 0; d < n->n_dim; d++)
        if (dim_pool(n->dim[d]) >= 0)
            len += (size_t)snprintf(buf + len, 64 - len, "[%s",
                                    dim_symbols[n->dim[d].symbol]);
        else
            len += (size_t)snprintf(buf + len, 64 - len, "%s%" PRId64,
                                    d ? ", " : "[", n->dim[d].n);
    snprintf(buf + len, 64 - len, "]");
    return buf;
}

static void say_bytes(const struct page *g, const uint64_t *bytes)
{
    uint64_t least = bytes[0], most = bytes[0];

    if (g->f->n_dev <= MAX_COLUMN) {
        for (int d = 0; d < g->f->n_dev; d++)
            writer_printf(g->to, " %6s", size_text(bytes[d]).s);
        return;
    }
    for (int d = 1; d < g->f->n_dev; d++) {
        least = bytes[d] < least ? bytes[d] : least;
        most = bytes[d] > most ? bytes[d] : most;
    }
    if (least == most)
        writer_printf(g->to, " %13s", size_text(most).s);
    else
        writer_printf(g->to, " %6s-%6s", size_text(least).s, size_text(most).s);
}

static void say_tensor(const struct page *g, const struct plan_tensor *t)
{
    const char *role = role_name(t->node->role);
    char label[64], shape[64], layout[64];

    plan_short_name(t->node->name, label);
    if (strcmp(label, role) != 0)
        snprintf(label + strlen(label), sizeof label - PLAN_NAME, " (%s)",
                 role);
    writer_printf(g->to, "  %-24s %-6s %-17s %-19s", label,
                  format_info(t->node->format)->name,
                  shape_text(t->node, shape),
                  short_layout(t, g->p->compiled->place.n_rank, layout));
    say_bytes(g, t->bytes);
    writer_printf(g->to, "\n");
}

static void print_collective(const struct page *g,
                             const struct lowered_collective *m)
{
    const char *plus = "";

    writer_printf(g->to, "  %-24s ", num_kind_name(m->kind));
    for (int k = 0; k < 2; k++)
        if (m->bytes[k].n > 0 || (k == 0 && m->bytes[1].n == 0)) {
            writer_printf(g->to, "%s%s%" PRId64, plus,
                          m->bytes[k].symbol == PL_N_TOK   ? "n_tok x "
                          : m->bytes[k].symbol == PL_N_OUT ? "n_out x "
                                                           : "",
                          m->bytes[k].n / 4);
            plus = " + ";
        }
    writer_printf(g->to, " values");
    if (m->n_item > 1)
        writer_printf(g->to, " in %d tensors", m->n_item);
    writer_printf(g->to, ", %s bytes per token%s\n",
                  size_text(plan_bytes(m->bytes)).s,
                  is_of_norm(g, m) ? ", for a norm over all heads" : "");
}

/* The layers of the same kind as layer[first]; if `sends`, only those that have
 * the same collectives, too. */
struct family {
    const struct layer *layer;
    int first;
    bool sends;
};

static bool is_of(const void *family, int layer)
{
    const struct family *y = family;
    const struct layer *x = &y->layer[layer + 1];

    return (y->sends ? x->sends : x->kind) == y->first;
}

static void say_layers(const struct page *g, const char *before, int first,
                       bool sends)
{
    const struct family y = {g->layer, first, sends};

    if (first == 0)
        writer_printf(g->to, "%soutside the layers", before);
    else
        plan_print_layers(g->to, before, g->n_layer - 1, is_of, &y, INT_MAX);
}

static const char *group_name(const struct page *g, int group)
{
    return g->p->compiled->place.group[group].name;
}

/* Prints the tensors of a layer. If several groups hold them, prints them group
 * by group. */
static void say_tensors(const struct page *g, int layer)
{
    const struct plan_tensor *t = g->f->tensor;
    int n_group = g->p->compiled->place.n_group, several = 0;
    const int first = plan_next_tensor(g->f, 0, layer);

    for (int i = first; i >= 0; i = plan_next_tensor(g->f, i + 1, layer))
        several |= t[i].group != t[first].group;
    for (int k = 0; k < n_group; k++) {
        bool named = !several;

        for (int i = first; i >= 0; i = plan_next_tensor(g->f, i + 1, layer)) {
            if (t[i].group != k)
                continue;
            if (!named)
                writer_printf(g->to, " in %s\n", group_name(g, k));
            named = true;
            say_tensor(g, &t[i]);
        }
    }
}

static void say_kind(const struct page *g, int kind)
{
    const struct lowered_variant *w = g->p->compiled->low->variant;
    const struct layer *y = &g->layer[kind];
    bool many = false;

    say_layers(g, "\n", kind, false);
    if (y->moves)
        writer_printf(
            g->to, "; in several groups: this is layer %d in %s", kind - 1,
            group_name(g, g->p->compiled->place.layer_group[kind - 1]));
    else if (y->differs)
        writer_printf(
            g->to,
            "; the remainder rotates from layer to layer: this is layer %d",
            kind - 1);
    writer_printf(g->to, "\n");
    say_tensors(g, kind - 1);
    for (int i = kind; i < g->n_layer; i++)
        many |= g->layer[i].kind == kind && g->layer[i].sends != kind;
    for (int i = kind; i < g->n_layer; i++) {
        if (g->layer[i].kind != kind || g->layer[i].sends != i)
            continue;
        if (many) {
            say_layers(g, "  in ", i, true);
            writer_printf(g->to, "\n");
        }
        for (int k = plan_next_collective(w, 0, i - 1); k >= 0;
             k = plan_next_collective(w, k + 1, i - 1))
            print_collective(g, &w->collective[k]);
    }
}

/* Returns true if a layer has tensors or collectives. The layers before a block
 * have none. */
static bool has_parts(const struct page *g, int layer)
{
    return plan_next_tensor(g->f, 0, layer) >= 0 ||
           plan_next_collective(g->p->compiled->low->variant, 0, layer) >= 0;
}

static uint64_t bytes_of(const struct page *g, int d)
{
    const struct plan_device *v = &g->f->dev[d];

    return v->weights + v->cache + v->buffers + v->block;
}

/* Prints the available and the total memory of device d, and a note if its data
 * does not fit. If several devices share memory, only the first has these
 * numbers; the others have the name of the first. */
static void say_memory(const struct page *g, int d)
{
    const struct device_list *l = &g->p->compiled->list;
    const struct device_desc *x = &l->dev[d];
    uint64_t taken = bytes_of(g, d);
    const char *with = NULL;
    char text[48];

    if (!x->memory_bytes)
        return;
    for (int k = 0; k < g->f->n_dev; k++) {
        if (k == d || !device_shares_memory(x, &l->dev[k]))
            continue;
        taken += bytes_of(g, k);
        if (k < d && !with && device_shares_memory(&l->dev[k], x))
            with = l->dev[k].name;
    }
    snprintf(text, sizeof text, "shared with %s", with ? with : "");
    if (with)
        writer_printf(g->to, " %18s", text);
    else
        writer_printf(g->to, " %9s %8s%s", size_text(x->available_bytes).s,
                      size_text(x->memory_bytes).s,
                      taken > x->available_bytes ? "  does not fit" : "");
}

/* Prints the first columns of a line of the table of devices. */
static void say_sums(const struct page *g, const char *name, const char *ranks,
                     const struct plan_device *v)
{
    writer_printf(g->to, "%-10s %-7s %8s %8s %8s", name, ranks,
                  size_text(v->weights).s, size_text(v->cache).s,
                  size_text(v->buffers).s);
    if (g->p->block)
        writer_printf(g->to, " %8s", size_text(v->block).s);
    writer_printf(g->to, " %8s",
                  size_text(v->weights + v->cache + v->buffers + v->block).s);
}

static void say_device(const struct page *g, int d)
{
    const struct compiled *q = g->p->compiled;
    char ranks[24];
    int rank0, n_rank;

    compiled_ranks(q, d, &rank0, &n_rank);
    if (n_rank == 0)
        snprintf(ranks, sizeof ranks, "idle");
    else if (n_rank == 1)
        snprintf(ranks, sizeof ranks, "%d", rank0);
    else
        snprintf(ranks, sizeof ranks, "%d-%d", rank0, rank0 + n_rank - 1);
    say_sums(g, q->list.dev[d].name, ranks, &g->f->dev[d]);
    say_memory(g, d);
    writer_printf(g->to, "\n");
}

static bool same_device(const struct page *g, int a, int b)
{
    const struct compiled *q = g->p->compiled;
    int rank0, n, m;

    compiled_ranks(q, a, &rank0, &n);
    compiled_ranks(q, b, &rank0, &m);
    return !memcmp(&g->f->dev[a], &g->f->dev[b], sizeof *g->f->dev) && n == m &&
           q->list.dev[a].memory_bytes == q->list.dev[b].memory_bytes &&
           q->list.dev[a].available_bytes == q->list.dev[b].available_bytes;
}

static bool same_machine(const struct compiled *q, int a, int b)
{
    return q->list.dev[a].machine == q->list.dev[b].machine;
}

/* Prints the devices of a machine, or of all if it is -1. Those with the same
 * row as the one before are not printed if there are many. */
static void say_rows(const struct page *g, int machine)
{
    const struct compiled *q = g->p->compiled;
    const struct plan_facts *f = g->f;

    for (int d = 0, end; d < f->n_dev; d = end + 1) {
        end = d;
        if (machine >= 0 && q->list.dev[d].machine != machine)
            continue;
        say_device(g, d);
        while (f->n_dev > MAX_COLUMN && end + 1 < f->n_dev &&
               same_machine(q, d, end + 1) && same_device(g, d, end + 1))
            end++;
        if (end > d)
            writer_printf(g->to, "   to %-4s the same each\n",
                          q->list.dev[end].name);
    }
}

static void say_devices(const struct page *g)
{
    const struct compiled *q = g->p->compiled;
    const struct plan_facts *f = g->f;
    struct plan_device sum = f->io;
    char ranks[24];

    writer_printf(g->to, "%-10s %-7s %8s %8s %8s%s %8s %9s %8s\n", "device",
                  "ranks", "weights", "cache", "buffers",
                  g->p->block ? "    block" : "", "bytes", "available", "of");
    for (int d = 0; d < f->n_dev; d++) {
        plan_add_bytes(&sum, q, d);
        sum.block += f->dev[d].block;
    }
    if (f->n_machine < 2)
        say_rows(g, -1);
    for (int m = 0; m < f->n_machine && f->n_machine > 1; m++) {
        writer_printf(g->to, "machine %d\n", m);
        say_rows(g, m);
    }
    if (f->n_machine > 1)
        writer_printf(g->to, "all machines\n");
    say_sums(g, "io", "-", &f->io);
    snprintf(ranks, sizeof ranks, "%d", q->place.n_rank);
    writer_printf(g->to, "\n");
    say_sums(g, "all", ranks, &sum);
    writer_printf(g->to, "\n");
}

static void say_estimate(const struct page *g)
{
    const struct plan_estimate *e = &g->f->estimate;
    const struct compiled *q = g->p->compiled;
    struct cost_rates r;

    writer_printf(g->to,
                  "estimate  prompt %.*f t/s (a step of %" PRId64
                  "), generation %.*f t/s (after %" PRId64 ")\n",
                  e->prefill_tps < 100, e->prefill_tps, e->n_prompt,
                  e->decode_tps < 100, e->decode_tps, e->n_past);
    switch (e->basis) {
    case PLAN_CALIBRATED:
        writer_printf(
            g->to,
            "          from rates that `plait devices --measure` saved\n");
        break;
    case PLAN_ASSUMED:
        writer_printf(g->to, "          from typical rates; `plait devices "
                             "--measure` measures this machine's\n");
        break;
    case PLAN_DESCRIBED:
        cost_rates_from_spec(&r, &q->list.dev[0]);
        writer_printf(g->to, "          from the description%s",
                      e->guessed ? "; assumed where it has no value:" : "");
        if (e->guessed & COST_GUESSED_FLOPS)
            writer_printf(g->to, " flops=%.3gT",
                          2e-12 * cost_guessed_macs(&q->list.dev[0]));
        if (e->guessed & COST_GUESSED_LINK)
            writer_printf(g->to, " link=%.3gGB/s", r.link_bytes_per_s * 1e-9);
        if (e->guessed & COST_GUESSED_LATENCY)
            writer_printf(g->to, " latency=%.3gus", r.collective_s * 1e6);
        if (e->guessed & COST_GUESSED_NETWORK)
            plan_print_network(g->p, g->f, g->to);
        writer_printf(g->to, "\n");
        break;
    }
}

/* Returns the number of characters of `s` before the next blank that is outside
 * of single quotes. */
static size_t word_length(const char *s)
{
    size_t n = 0;

    for (bool quoted = false; s[n] && (quoted || s[n] != ' '); n++)
        if (s[n] == '\\' && !quoted && s[n + 1])
            n++;
        else
            quoted ^= s[n] == '\'';
    return n;
}

/* Prints the options that reproduce the plan, on lines of limited length. A
 * line never ends between an option and its value. */
static void say_options(const struct page *g)
{
    const char *s = pl_plan_options(g->p);
    bool first = true;
    size_t room = 0;

    while (*s) {
        size_t n = word_length(s), all = n;

        if (s[0] == '-' && s[n] == ' ' && s[n + 1] != '-')
            /* Number of characters of the option and of its value. */
            all += 1 + word_length(s + n + 1);
        if (all + 1 > room)
            writer_printf(g->to, first ? "options  " : "\n         ");
        first = false;
        room = (all + 1 > room ? 88 : room) - (all + 1 > 88 ? 88 : all + 1);
        writer_printf(g->to, " ");
        for (; all > 0; all -= n, s += n) {
            n = all < 256 ? all : 256;
            writer_printf(g->to, "%.*s", (int)n, s);
        }
        s += *s == ' ';
    }
    writer_printf(g->to, "\n");
}

static void say_overrides(const struct page *g)
{
    const struct gguf *f = g->p->model->file;
    char value[80];

    for (int64_t i = 0; i < gguf_n_kv(f); i++) {
        const struct gguf_kv *kv = gguf_kv_at(f, i);

        if (kv->overridden)
            writer_printf(g->to, "override  %.300s=%s:%s\n", kv->key,
                          gguf_override_type(kv), gguf_value_text(kv, value));
    }
}

static void say_block(const struct page *g)
{
    writer_printf(g->to,
                  "block     multi-token prediction %" PRId64 ", blk.%" PRId64
                  "\n",
                  g->p->mtp, g->p->model->model->n_layer + g->p->mtp - 1);
}

static void say_model(const struct page *g)
{
    const struct model *m = g->p->model->model;

    writer_printf(g->to, "model     %.300s\n", gguf_path(g->p->model->file));
    writer_printf(g->to, "          %s, %" PRId64 " layers\n",
                  pl_model_arch(g->p->model), m->n_layer);
    if (g->p->mtp > 0)
        say_block(g);
    say_overrides(g);
    say_options(g);
}

static void say_plan(const struct page *g)
{
    const struct compiled *q = g->p->compiled;

    writer_printf(
        g->to,
        "numerics  %016" PRIx64 ", %d rank%s%s%s%s\ncache     %" PRId64
        " tokens of context, %s/%s, %d sequence%s; steps of %" PRId64
        " tokens, %" PRId64 " row%s of logits\n\n",
        q->numeric_hash, q->place.n_rank, q->place.n_rank > 1 ? "s" : "",
        q->paper ? "" : ", kernels ",
        q->paper ? "" : kernel_set_name(q->kernel_set),
        g->p->numerics == PL_NUMERICS_FAST ? ", fast" : "", g->p->n_ctx,
        format_info(g->p->cache_k)->name, format_info(g->p->cache_v)->name,
        (int)q->max.n_seq, q->max.n_seq > 1 ? "s" : "", q->max.n_tok,
        q->max.n_out, q->max.n_out > 1 ? "s" : "");
    say_devices(g);
    plan_print_groups(g->p, g->f, g->to);
    writer_printf(g->to,
                  "\nname (role), format, shape, layout, bytes (K = 1024)");
    if (g->f->n_dev <= MAX_COLUMN)
        for (int d = 0; d < g->f->n_dev; d++)
            writer_printf(g->to, "%s%s", d ? ", " : " on ",
                          q->list.dev[d].name);
    else
        writer_printf(g->to, " a device");
    writer_printf(g->to, "\n");
    for (int i = 0; i < g->n_layer; i++)
        if (g->layer[i].kind == i && has_parts(g, i - 1))
            say_kind(g, i);
    writer_printf(g->to, "\nper token %d collectives, %s bytes\n",
                  q->low->variant->n_collective,
                  size_text(g->f->token_bytes).s);
    plan_print_copies(g->p, g->f, g->to);
    say_estimate(g);
    plan_print_links(g->p, g->f, g->to);
    plan_print_networks(g->p, g->f, g->to);
    plan_print_times(g->p, g->f, g->to);
}

/* Prints a plan as text, and after it that of its block, if there is one. */
static pl_status say_all(const pl_plan *p, struct plan_facts *f,
                         struct plan_facts *block, const struct sink *to,
                         pl_err *err)
{
    struct page g = {.p = p, .f = f, .to = to};
    struct page more = {.p = p->block, .f = block, .to = to};

    PL_TRY(page_init(&g, &f->arena, err));
    if (p->block)
        PL_TRY(page_init(&more, &block->arena, err));
    say_model(&g);
    say_plan(&g);
    if (p->block) {
        writer_printf(to, "\n");
        say_block(&more);
        say_plan(&more);
    }
    return PL_OK;
}

pl_status pl_plan_print(const pl_plan *p, bool json, pl_write_fn *write,
                        void *user, pl_err *err)
{
    struct sink to = {write, user};
    struct plan_facts f = {.n_dev = 0}, block = f;
    pl_status s;

    PL_NEED(p, err);
    PL_NEED(write, err);
    s = plan_facts_init(&f, p, err);
    if (s == PL_OK && p->block)
        s = plan_facts_init(&block, p->block, err);
    if (s == PL_OK && json)
        plan_print_json(p, &f, &block, &to);
    else if (s == PL_OK)
        s = say_all(p, &f, &block, &to, err);
    plan_facts_fini(&f);
    plan_facts_fini(&block);
    return s;
}

static void summarize(const pl_plan *p, char *buf, size_t size)
{
    const struct compiled *q = p->compiled;
    struct plan_device sum = {0}, more = {0};
    char block[48] = "";

    for (int d = 0; d < q->list.n; d++)
        plan_add_bytes(&sum, q, d);
    for (int d = 0; p->block && d < p->block->compiled->list.n; d++)
        plan_add_bytes(&more, p->block->compiled, d);
    if (p->block)
        snprintf(block, sizeof block, ", block %s",
                 size_text(more.weights + more.cache + more.buffers).s);
    snprintf(buf, size,
             "%d device%s, %d rank%s (%016" PRIx64
             "): weights %s, cache %s, buffers %s%s; %d collectives, %s bytes "
             "per token",
             compiled_devices(q), compiled_devices(q) > 1 ? "s" : "",
             q->place.n_rank, q->place.n_rank > 1 ? "s" : "", q->numeric_hash,
             size_text(sum.weights).s, size_text(sum.cache).s,
             size_text(sum.buffers).s, block, q->low->variant->n_collective,
             size_text(plan_token_bytes(q)).s);
}

void pl_plan_summary(const pl_plan *p, char *buf, size_t size)
{
    if (!buf || size == 0)
        return;
    buf[0] = '\0';
    if (p)
        summarize(p, buf, size);
}
