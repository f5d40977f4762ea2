/* Computes the rows, columns and lines of the picture of a plan, and their
 * positions. If a plan has more than FEW layers, neighbouring similar layers
 * share a column; if it has more than FEW devices, neighbouring similar devices
 * share a row. If there are still too many columns or rows, the middle ones are
 * left out. The scale is chosen so that the fullest cell is CELL px high. */
#include "report/plan_svg.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FEW = 8,
    MOST_ROWS = 12,
    MOST_COLUMNS = 20,
    LEFT = 178, /* width in px of the space for the names of the rows */
    WIDTH = 150,
    NARROW = 84,
    BROAD = 330, /* width in px of the columns of the embedding and the
                    output */
    CELL = 118,
    LINE = 24, /* width in px that each vertical line takes in the gap between
                  columns */
};

/* ---- positions of tensors ------------------------------------------------ */

/* Returns the number of the layer in whose column a tensor is drawn: -1 for the
 * embedding, n_layer for the output. */
static int place_of(const struct svg_page *g, const struct graph_node *n)
{
    if (n->layer >= 0)
        return n->layer;
    return n->role == PL_ROLE_TOKEN_EMBD ? -1 : g->p->compiled->place.n_layer;
}

const struct svg_lane *svg_column_of(const struct svg_page *g,
                                     const struct plan_tensor *t)
{
    int at = place_of(g, t->node);
    const struct svg_lane *c = &g->column.v[g->column.of[at + 1]];

    return c->first == at && !c->more ? c : NULL;
}

uint64_t svg_bytes(const struct svg_page *g, const struct svg_lane *c, int row,
                   uint64_t kind[PLAN_KINDS])
{
    uint64_t all = 0;

    memset(kind, 0, PLAN_KINDS * sizeof *kind);
    for (int i = 0; i < g->f->n_tensor; i++) {
        const struct plan_tensor *t = &g->f->tensor[i];
        uint64_t n = g->mean[i * g->row.n + row];

        if (n == 0 || svg_column_of(g, t) != c)
            continue;
        kind[plan_kind(t->node)] += n;
        all += n;
    }
    return all;
}

static int group_of_layer(const struct svg_page *g, int layer)
{
    const struct placement *y = &g->p->compiled->place;

    return layer < 0 ? y->input_group : y->layer_group[layer];
}

static bool is_member(const struct svg_page *g, int group, int dev)
{
    const struct placement *y = &g->p->compiled->place;

    for (int k = 0; k < y->group[group].n; k++)
        if (y->member[y->group[group].first + k].dev == dev &&
            y->member[y->group[group].first + k].n_rank > 0)
            return true;
    return false;
}

bool svg_runs(const struct svg_page *g, const struct svg_lane *c, int dev)
{
    return is_member(g, group_of_layer(g, c->first), dev);
}

double svg_side(const struct svg_page *g)
{
    double bytes = 1;

    while (sqrt(2 * bytes * g->scale) < 22)
        bytes *= 2;
    return sqrt(bytes * g->scale);
}

/* ---- choosing the rows of the picture ---------------------------------- */

static bool near(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= a / 32 + 4096;
}

static bool device_alike(const struct svg_page *g, int a, int b)
{
    const struct plan_device *x = &g->f->dev[a], *y = &g->f->dev[b];

    for (int i = 0; i < g->p->compiled->place.n_group; i++)
        if (is_member(g, i, a) != is_member(g, i, b))
            return false;
    return near(x->weights, y->weights) && near(x->cache, y->cache);
}

static void name_groups(const struct svg_page *g, struct svg_lane *v)
{
    size_t n = 0;

    for (int i = 0; i < g->p->compiled->place.n_group && n < 40; i++)
        if (is_member(g, i, v->first))
            n += (size_t)snprintf(v->groups + n, sizeof v->groups - n,
                                  "%s%.30s", n ? ", " : "",
                                  g->p->compiled->place.group[i].name);
    if (n == 0)
        snprintf(v->groups, sizeof v->groups, "none: idle");
}

/* Assigns devices or layers first .. end - 1 to lanes. joins() returns true if
 * one is drawn in the same lane as the one before it. If there are more than
 * `most` lanes, makes one of those in the middle, so that the first and the
 * last stay. */
static pl_status make_lanes(struct svg_lanes *l, struct arena *a,
                            const struct svg_page *g, int first, int end,
                            bool (*joins)(const struct svg_page *g, int i),
                            int most, pl_err *err)
{
    l->v = arena_alloc(a, (size_t)(end - first) + 1, sizeof *l->v);
    l->of = arena_alloc(a, (size_t)(end - first) + 1, sizeof *l->of);
    if (!l->v || !l->of)
        return err_no_memory(err, "a picture");
    for (int i = first; i < end; i++)
        if (i > first && joins(g, i))
            l->v[l->n - 1].n++;
        else
            l->v[l->n++] = (struct svg_lane){.first = i, .n = 1};
    if (l->n > most) {
        struct svg_lane *m = &l->v[most / 2];
        int cut = l->n - most;

        for (int i = 1; i <= cut; i++)
            m->n += m[i].n;
        m->more = true;
        memmove(m + 1, m + 1 + cut,
                (size_t)(l->n - most / 2 - 1 - cut) * sizeof *m);
        l->n -= cut;
    }
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < l->v[i].n; k++)
            l->of[l->v[i].first - first + k] = i;
    return PL_OK;
}

static bool device_joins(const struct svg_page *g, int d)
{
    return g->f->n_dev > FEW &&
           device_alike(g, g->row.v[g->row.n - 1].first, d);
}

/* ---- choosing the columns of the picture -------------------------------- */

/* Returns true if copy c passes the result of a layer to the group that
 * computes the next layer. Such copies do not count when layers are
 * compared. */
static bool passes_on(const struct svg_page *g, const struct lowered_copy *c)
{
    const struct placement *y = &g->p->compiled->place;

    return c->layer >= 0 && y->layer_group[c->layer] == c->from &&
           y->layer_group[c->layer + 1] == c->to;
}

/* Returns a number that two layers have in common if they have the same number
 * of copies from each group to each other group. */
static int64_t copies_of(const struct svg_page *g, enum variant_kind variant,
                         int layer)
{
    const struct plan_copies *all = &g->f->copies[variant];
    int64_t sum = 0;

    for (const struct lowered_copy *c = all->v; c < plan_copies_end(all); c++)
        if (c->layer == layer && !passes_on(g, c))
            sum += (int64_t)(c->from + 1) * 4099 + c->to + 1;
    return sum;
}

static int collectives_of(const struct svg_page *g, int layer)
{
    const struct lowered_variant *w = g->p->compiled->low->variant;
    int n = 0;

    for (int i = plan_next_collective(w, 0, layer); i >= 0;
         i = plan_next_collective(w, i + 1, layer))
        n++;
    return n;
}

/* Returns true if neighbouring layers a and b can share a column: they have the
 * same group, the same tensors, and equal numbers of collectives and copies. */
static bool layer_alike(const struct svg_page *g, int a, int b)
{
    const struct plan_tensor *t = g->f->tensor;
    int i = -1, k = -1;

    if (group_of_layer(g, a) != group_of_layer(g, b) ||
        collectives_of(g, a) != collectives_of(g, b) ||
        copies_of(g, VARIANT_RESIDENT, a) !=
            copies_of(g, VARIANT_RESIDENT, b) ||
        copies_of(g, VARIANT_STREAMED, a) != copies_of(g, VARIANT_STREAMED, b))
        return false;
    for (;;) {
        i = plan_next_tensor(g->f, i + 1, a);
        k = plan_next_tensor(g->f, k + 1, b);
        if (i < 0 || k < 0)
            return i == k;
        if (t[i].node->role != t[k].node->role ||
            t[i].node->format != t[k].node->format ||
            t[i].group != t[k].group ||
            graph_count(t[i].node, &g->p->compiled->max) !=
                graph_count(t[k].node, &g->p->compiled->max))
            return false;
    }
}

/* Returns true if the devices that compute a layer are not drawn, because their
 * row shows only how many devices it stands for. */
static bool unseen(const struct svg_page *g, int layer)
{
    int group = group_of_layer(g, layer);

    for (int d = 0; d < g->f->n_dev; d++)
        if (is_member(g, group, d))
            return g->row.v[g->row.of[d]].more;
    return true;
}

static bool layer_joins(const struct svg_page *g, int i)
{
    int n_layer = g->p->compiled->place.n_layer;
    bool more;

    if (n_layer <= FEW || i == 0 || i == n_layer)
        return false;
    more = unseen(g, i);
    return unseen(g, i - 1) == more && (more || layer_alike(g, i - 1, i));
}

static pl_status find_lanes(struct svg_page *g, struct arena *a, pl_err *err)
{
    int n_layer = g->p->compiled->place.n_layer;

    PL_TRY(make_lanes(&g->row, a, g, 0, g->f->n_dev, device_joins, MOST_ROWS,
                      err));
    for (int i = 0; i < g->row.n; i++)
        name_groups(g, &g->row.v[i]);
    PL_TRY(make_lanes(&g->column, a, g, -1, n_layer + 1, layer_joins,
                      MOST_COLUMNS, err));
    for (int i = 0; i < g->column.n; i++) {
        struct svg_lane *c = &g->column.v[i];

        c->more |= c->first >= 0 && c->first < n_layer && unseen(g, c->first);
    }
    return PL_OK;
}

/* ---- computing the sizes of boxes --------------------------------------- */

/* Returns the index of the tensor that corresponds to tensor i in the first
 * layer of its column. Layers that share a column have their tensors in the
 * same order. */
static int first_like(const struct svg_page *g, int i)
{
    const struct plan_tensor *t = g->f->tensor;
    int at = place_of(g, t[i].node), k;
    int first = g->column.v[g->column.of[at + 1]].first;

    if (first == at)
        return i;
    k = plan_next_tensor(g->f, 0, first);
    for (int j = plan_next_tensor(g->f, 0, at); j < i;
         j = plan_next_tensor(g->f, j + 1, at))
        k = plan_next_tensor(g->f, k + 1, first);
    return k;
}

static pl_status mean_tensor_bytes(struct svg_page *g, struct arena *a,
                                   pl_err *err)
{
    const struct plan_tensor *t = g->f->tensor;
    size_t n = (size_t)g->f->n_tensor * (size_t)g->row.n;

    g->mean = arena_alloc(a, n + 1, sizeof *g->mean);
    if (!g->mean)
        return err_no_memory(err, "a picture");
    for (int i = 0; i < g->f->n_tensor; i++) {
        struct svg_lane *c =
            &g->column.v[g->column.of[place_of(g, t[i].node) + 1]];
        int k;

        if (c->more)
            continue;
        k = first_like(g, i);
        for (int d = 0; d < g->f->n_dev; d++) {
            g->mean[k * g->row.n + g->row.of[d]] += t[i].bytes[d];
            c->differ |= t[i].bytes[d] != t[k].bytes[d];
        }
    }
    for (int i = 0; i < g->f->n_tensor; i++) {
        const struct svg_lane *c = svg_column_of(g, &t[i]);

        for (int k = 0; k < g->row.n && c; k++)
            g->mean[i * g->row.n + k] /=
                (uint64_t)g->row.v[k].n * (uint64_t)c->n;
    }
    return PL_OK;
}

/* ---- computing the lines of the picture --------------------------------- */

static void mark(const struct svg_page *g, bool *row, int group)
{
    for (int d = 0; d < g->f->n_dev; d++)
        row[g->row.of[d]] |= is_member(g, group, d);
}

/* Adds a line, or counts it with one between the same groups. Leaves it out if
 * it has no column. */
static pl_status add_line(struct svg_page *g, struct arena *a,
                          const struct svg_line *l, pl_err *err)
{
    struct svg_line *new = &g->line[g->n_line];

    for (int i = 0; i < g->n_line; i++) {
        struct svg_line *x = &g->line[i];

        if (x->kind != l->kind || x->column != l->column || x->a != l->a ||
            x->b != l->b || (l->kind == SVG_COLLECTIVE && x->name != l->name))
            continue;
        x->n++;
        x->bytes += l->bytes;
        return PL_OK;
    }
    if (l->column < 0)
        return PL_OK;
    *new = *l;
    new->n = 1;
    new->from = arena_alloc(a, (size_t)g->row.n, sizeof *new->from);
    new->to = arena_alloc(a, (size_t)g->row.n, sizeof *new->to);
    if (!new->from || !new->to)
        return err_no_memory(err, "a picture");
    mark(g, new->from, l->a);
    mark(g, new->to, l->b);
    g->n_line++;
    g->has_line[l->kind] = true;
    return PL_OK;
}

/* Returns the index of the column at which a layer's line is drawn, or -1 if it
 * is not drawn. If several layers share a column, only the lines of the first
 * are drawn, or only those of the last if `last`, as for copies to the next
 * layer. */
static int shown_in(const struct svg_page *g, int layer, bool last)
{
    int i = g->column.of[layer + 1];
    const struct svg_lane *c = &g->column.v[i];

    return !c->more && layer == c->first + (last ? c->n - 1 : 0) ? i : -1;
}

/* Returns the layer to which a copy belongs: -1 for the embedding, n_layer for
 * the output. A node outside of layers belongs to the embedding if it comes
 * before all nodes of layers in the graph, else to the output. */
static int layer_of_copy(const struct svg_page *g, const struct lowered_copy *c)
{
    const pl_graph *graph = g->p->graph;

    if (c->layer >= 0)
        return c->layer;
    for (int i = g->p->compiled->num->node[c->node].node; i >= 0; i--)
        if (graph->node[i].layer >= 0)
            return g->p->compiled->place.n_layer;
    return -1;
}

static pl_status find_collectives(struct svg_page *g, struct arena *a,
                                  pl_err *err)
{
    const struct lowered_variant *w = g->p->compiled->low->variant;
    bool inside = false; /* true after the first collective that belongs to a
                            layer */

    for (int i = 0; i < w->n_collective; i++) {
        const struct lowered_collective *m = &w->collective[i];
        int layer = m->layer >= 0 ? m->layer
                    : inside      ? g->p->compiled->place.n_layer
                                  : -1;

        inside |= m->layer >= 0;
        PL_TRY(add_line(g, a,
                        &(struct svg_line){.kind = SVG_COLLECTIVE,
                                           .column = shown_in(g, layer, false),
                                           .a = m->group,
                                           .b = m->group,
                                           .bytes = plan_bytes(m->bytes),
                                           .name = num_kind_name(m->kind)},
                        err));
    }
    return PL_OK;
}

/* Adds the copies of a variant. The streamed variant adds only its weights and
 * caches. */
static pl_status find_copies(struct svg_page *g, struct arena *a,
                             enum variant_kind variant, pl_err *err)
{
    const struct plan_copies *all = &g->f->copies[variant];
    bool plain = variant == VARIANT_RESIDENT;

    for (const struct lowered_copy *c = all->v; c < plan_copies_end(all); c++)
        if (plain || c->pages || !strcmp(plan_bytes_symbol(c->bytes), "step"))
            PL_TRY(add_line(
                g, a,
                &(struct svg_line){
                    .kind = plain ? SVG_COPY : SVG_STREAM,
                    .column = shown_in(g, layer_of_copy(g, c), passes_on(g, c)),
                    .a = c->from,
                    .b = c->to,
                    .bytes = plan_bytes(c->bytes),
                    .name = plain ? "copy" : "stream"},
                err));
    return PL_OK;
}

static pl_status find_lines(struct svg_page *g, struct arena *a, pl_err *err)
{
    const struct compiled *q = g->p->compiled;
    int all = q->low->variant->n_collective + g->f->copies[VARIANT_RESIDENT].n +
              g->f->copies[VARIANT_STREAMED].n;

    g->line = arena_alloc(a, (size_t)all + 1, sizeof *g->line);
    if (!g->line)
        return err_no_memory(err, "a picture");
    PL_TRY(find_collectives(g, a, err));
    PL_TRY(find_copies(g, a, VARIANT_RESIDENT, err));
    if (q->variants.stream_from <= q->max.n_tok)
        PL_TRY(find_copies(g, a, VARIANT_STREAMED, err));
    return PL_OK;
}

/* ---- computing widths, heights and scale -------------------------------- */

static bool is_edge(const struct svg_page *g, const struct svg_lane *c)
{
    return c->first < 0 || c->first >= g->p->compiled->place.n_layer;
}

static double fullest(const struct svg_page *g, const struct svg_lane *c)
{
    uint64_t kind[PLAN_KINDS], most = 0;

    for (int i = 0; i < g->row.n && !c->more; i++) {
        uint64_t n = g->row.v[i].more ? 0 : svg_bytes(g, c, i, kind);

        most = n > most ? n : most;
    }
    return (double)most;
}

static void set_scale(struct svg_page *g)
{
    double most = 1, edge = 1;

    for (int k = 0; k < g->column.n; k++)
        if (is_edge(g, &g->column.v[k]))
            edge = fmax(edge, fullest(g, &g->column.v[k]));
        else
            most = fmax(most, fullest(g, &g->column.v[k]));
    g->scale = fmin((double)CELL * WIDTH / most, (double)CELL * BROAD / edge);
}

static void set_columns(struct svg_page *g)
{
    double x = LEFT;

    for (int k = 0; k < g->column.n; k++) {
        struct svg_lane *c = &g->column.v[k];
        double need = fullest(g, c) * g->scale / CELL;

        c->at = x;
        c->size = c->more ? NARROW : WIDTH;
        if (is_edge(g, c))
            c->size = fmax(NARROW, need);
        x += c->size + 12;
        for (int i = 0; i < g->n_line; i++)
            if (g->line[i].column == k) {
                g->line[i].x = x + 2;
                x += LINE;
            }
        x += 4;
    }
    g->width = fmax(x + 14, 760);
}

static void set_rows(struct svg_page *g)
{
    double y = SVG_TOP;

    for (int i = 0; i < g->row.n; i++) {
        struct svg_lane *v = &g->row.v[i];
        double h = 0;

        for (int k = 0; k < g->column.n; k++) {
            uint64_t kind[PLAN_KINDS];
            double n = (double)svg_bytes(g, &g->column.v[k], i, kind);

            for (int j = 0; j < PLAN_KINDS && !g->column.v[k].more; j++)
                g->has_kind[j] |= kind[j] > 0;
            if (!g->column.v[k].more)
                h = fmax(h, n * g->scale / g->column.v[k].size);
        }
        v->at = y;
        v->size = v->more ? 30 : fmax(h + SVG_PAD + 20, v->n > 1 ? 86 : 74);
        y += v->size + 8;
    }
    g->height = y + 72;
    for (int k = 0; k < SVG_LINES; k++)
        g->height += g->has_line[k] ? 16 : 0;
}

pl_status svg_page_init(struct svg_page *g, struct arena *a, pl_err *err)
{
    g->tied = true;
    for (int i = 0; i < g->f->n_tensor; i++)
        g->tied &= g->f->tensor[i].node->role != PL_ROLE_OUTPUT;
    PL_TRY(find_lanes(g, a, err));
    PL_TRY(mean_tensor_bytes(g, a, err));
    PL_TRY(find_lines(g, a, err));
    set_scale(g);
    set_columns(g);
    set_rows(g);
    return PL_OK;
}
