/* Lists the stores of weights, and copies slabs; see storage.h. All reads and
 * writes of weights on devices use weight_store_copy. */
#include "exec/storage.h"

#include "base/err.h"
#include "machine/topology.h"

#include <string.h>

/* ---- rows of a store and its pieces -------------------------------------- */

/* Returns the row of the whole weight that store s holds as its i-th row. Sets
 * *len to the number of rows, beginning with this one, that follow each other
 * both in the weight and in the store. */
static int64_t row_at(const struct weight_store *s, int64_t i, int64_t *len)
{
    const struct layout_local *m = &s->split;
    int64_t outer = i / (m->local * s->inner), in = i % (m->local * s->inner);
    int64_t at = in / s->inner, rest = in % s->inner;
    int64_t rep = at / m->local_period, local = at % m->local_period;
    const struct layout_part *p = m->part;

    while (local >= p->local + p->n)
        p++;
    *len = (p->local + p->n - local) * s->inner - rest;
    at = rep * m->period + p->logical + local - p->local;
    return (outer * s->size + at) * s->inner + rest;
}

/* Returns the number of rows below `row` that store s holds. */
static int64_t rows_below(const struct weight_store *s, int64_t row)
{
    int64_t index = row / s->inner, outer = index / s->size;
    int64_t below = layout_local_below(&s->split, index % s->size);

    below = (outer * s->split.local + below) * s->inner;
    if (layout_local_index(&s->split, index % s->size) >= 0)
        below += row % s->inner;
    return below;
}

static int64_t panels(int64_t n_row)
{
    return (n_row + PACK_ROWS - 1) / PACK_ROWS;
}

/* Sets [*a, *b) to the rows of piece i, which is a panel or a single row. Rows
 * are counted within the store. */
static void piece_rows(const struct weight_store *s, int64_t i, int64_t *a,
                       int64_t *b)
{
    int64_t end;

    if (!s->t->pack) {
        *a = i;
        *b = i + 1;
        return;
    }
    end = (i / panels(s->n_row) + 1) * s->n_row;
    *a = end - s->n_row + i % panels(s->n_row) * PACK_ROWS;
    *b = end - *a < PACK_ROWS ? end : *a + PACK_ROWS;
}

static int64_t piece_of(const struct weight_store *s, int64_t row_held)
{
    if (!s->t->pack)
        return row_held;
    return row_held / s->n_row * panels(s->n_row) +
           row_held % s->n_row / PACK_ROWS;
}

void storage_pieces(const struct weight_store *s, int64_t lo, int64_t hi,
                    int64_t *first, int64_t *end)
{
    int64_t a = rows_below(s, lo), b = rows_below(s, hi);

    *first = *end = 0;
    if (a == b)
        return;
    *first = piece_of(s, a);
    *end = piece_of(s, b - 1) + 1;
}

/* ---- listing the stores of a weight -------------------------------------- */

struct table {
    const pl_exec *x;
    struct arena *arena;
    struct weight_store *s; /* [cap] the n stores found so far */
    int n, cap;
};

/* Determines the rows of weight g, whose layout is l, that a device with
 * `ranks` stores. Sets those fields of *s that describe pieces and rows: `n`
 * and all fields after it. If out of memory, the store is empty. */
static void deal(struct weight_store *s, const struct graph_node *g,
                 const pl_layout *l, rankset ranks, struct arena *a)
{
    int last = g->n_dim - 1, dim = l->kind == PL_SPLIT ? l->dim : 0;
    int64_t outer = 1;

    /* The ranks divide the elements of each row, so a packed panel contains
     * only the device's part of its rows. The store then has all rows, as if
     * the weight were not split. */
    if (s->t->pack && dim == last) {
        l = &layout_mirrored;
        dim = 0;
    }
    s->row_bytes = format_row_bytes(
        g->format, dim == last && l->kind == PL_SPLIT ? 1 : g->dim[last].n);
    s->size = dim == last && l->kind != PL_SPLIT ? 1 : g->dim[dim].n;
    s->inner = 1;
    for (int d = 0; d < dim; d++)
        outer *= g->dim[d].n;
    for (int d = dim + 1; d < last; d++)
        s->inner *= g->dim[d].n;
    if (!layout_local_init(&s->split, a, l, s->size, ranks))
        return;
    s->n = outer * s->split.local * s->inner;
    s->piece_bytes = s->row_bytes;
    if (s->t->pack && s->n > 0) {
        s->n_row = s->t->pack->n_row;
        s->n = s->n / s->n_row * panels(s->n_row);
        s->piece_bytes = s->t->pack->panel_bytes;
    }
    if (s->piece_bytes > 0)
        s->slab = STORAGE_SLAB / (int64_t)s->piece_bytes;
    s->slab = s->slab < 1 ? 1 : s->slab;
}

/* Adds the store that tensor t of device h->dev[u] is for the weight of node
 * nn, unless it is empty or memory is short. */
static void add(struct table *tab, const struct num_node *nn,
                const struct exec_owners *h, int u, int t)
{
    struct weight_store s = {.node = nn->node, .dev = h->dev[u]};

    s.t = &tab->x->plan->low->prog[s.dev].tensor[t];
    deal(&s, &tab->x->plan->g->node[s.node], nn->layout, h->ranks[u],
         tab->arena);
    if (s.n == 0 || s.piece_bytes == 0)
        return;
    if (tab->n == tab->cap) {
        size_t cap = 2 * (size_t)tab->cap + 64;
        struct weight_store *more = arena_alloc(tab->arena, cap, sizeof *more);

        if (!more)
            return;
        if (tab->n > 0)
            memcpy(more, tab->s, (size_t)tab->n * sizeof *more);
        tab->s = more;
        tab->cap = (int)cap;
    }
    tab->s[tab->n++] = s;
}

/* Adds all stores of weight `node`, or those of all weights if it is -1. A
 * weight has several stores if it has several layouts, or is stored both packed
 * and plain. */
static void add_all(struct table *tab, int node, bool read)
{
    const struct compiled *p = tab->x->plan;

    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *nn = &p->num->node[i];
        struct exec_owners h;

        if (nn->kind != NUM_OP || p->g->node[nn->node].op != OP_weight ||
            (node >= 0 && nn->node != node) ||
            (read && i != p->num->value[nn->node]))
            continue;
        h = exec_owners(tab->x, i);
        if (read && nn->layout->kind != PL_SPLIT && h.n > 1)
            h.n = 1; /* The weight is not split, so all devices hold the same
                        rows and reading one suffices. */
        for (int u = 0; u < h.n; u++) {
            add(tab, nn, &h, u, h.v[u].tensor);
            if (!read && h.v[u].plain >= 0)
                add(tab, nn, &h, u, h.v[u].plain);
        }
    }
}

pl_status storage_table(const pl_exec *x, int node, bool read, struct arena *a,
                        struct weight_store **out, int *n, pl_err *err)
{
    struct table tab = {.x = x, .arena = a};

    add_all(&tab, node, read);
    *out = tab.s;
    *n = tab.n;
    return arena_check(a, "the offsets of weights", err);
}

/* ---- copying pieces between host and device ------------------------------ */

/* Addresses in host memory of the 16 rows of a panel. NULL for a row that the
 * host's rows [lo, hi) (struct storage_rows) do not contain. */
struct panel_rows {
    const void *row[PACK_ROWS];
    int n, have; /* number of rows in the panel, and number of these that the
                    host has */
};

static void panel_rows_of(const struct weight_store *s, int64_t piece,
                          const struct storage_rows *r, struct panel_rows *out)
{
    int64_t a, b, len = 0, row = 0;

    piece_rows(s, piece, &a, &b);
    *out = (struct panel_rows){.n = (int)(b - a)};
    for (int64_t i = a; i < b; i++, len--, row++) {
        if (len == 0)
            row = row_at(s, i, &len);
        if (row < r->lo || row >= r->hi)
            continue;
        out->row[i - a] = r->data + (size_t)(row - r->lo) * s->row_bytes;
        out->have++;
    }
}

static void put_panels(const struct weight_store *s, int64_t first, int64_t n,
                       const struct storage_rows *r, unsigned char *g)
{
    struct panel_rows now, next = {.n = 0};

    panel_rows_of(s, first, r, &now);
    for (int64_t i = 1; i <= n; i++, now = next, g += s->piece_bytes) {
        if (i < n)
            panel_rows_of(s, first + i, r, &next);
        if (now.have == now.n) {
            pack_panel(s->t->pack, g, now.row,
                       i < n && next.have == PACK_ROWS ? next.row : NULL);
            continue;
        }
        for (int k = 0; k < now.n; k++)
            if (now.row[k])
                pack_row(s->t->pack, g, k, now.row[k]);
    }
}

static void get_panels(const struct weight_store *s, int64_t first, int64_t n,
                       const struct storage_rows *r, const unsigned char *g)
{
    for (int64_t i = 0; i < n; i++, g += s->piece_bytes) {
        struct panel_rows l;

        panel_rows_of(s, first + i, r, &l);
        for (int k = 0; k < l.n; k++)
            if (l.row[k])
                unpack_row(s->t->pack, g, k, (void *)l.row[k]);
    }
}

static void plain_rows(const struct weight_store *s, int64_t first, int64_t n,
                       const struct storage_rows *r, bool put,
                       unsigned char *at)
{
    for (int64_t i = first, len; i < first + n; i += len) {
        int64_t row = row_at(s, i, &len), lo = row, hi;

        len = len < first + n - i ? len : first + n - i;
        hi = row + len < r->hi ? row + len : r->hi;
        lo = lo < r->lo ? r->lo : lo;
        if (lo >= hi)
            continue;
        unsigned char *here =
            at + (size_t)(i - first + lo - row) * s->row_bytes;
        unsigned char *there = r->data + (size_t)(lo - r->lo) * s->row_bytes;

        memcpy(put ? here : there, put ? there : here,
               (size_t)(hi - lo) * s->row_bytes);
    }
}

/* Returns true if the host's rows [r->lo, r->hi) contain all rows of pieces
 * [first, first + n). */
static bool all_given(const struct weight_store *s, int64_t first, int64_t n,
                      const struct storage_rows *r)
{
    int64_t a, b, none, len;

    piece_rows(s, first, &a, &none);
    piece_rows(s, first + n - 1, &none, &b);
    return row_at(s, a, &len) >= r->lo && row_at(s, b - 1, &len) < r->hi;
}

void weight_store_prefetch(const struct weight_store *s, int64_t first,
                           int64_t n, const struct storage_rows *r)
{
    int64_t a, b, none, len;
    size_t bytes;

    piece_rows(s, first, &a, &none);
    piece_rows(s, first + n - 1, &none, &b);
    a = row_at(s, a, &len);
    b = row_at(s, b - 1, &len) + 1;
    bytes = (size_t)(b - a) * s->row_bytes;
    if (bytes <= 2 * (size_t)n * s->piece_bytes)
        topology_fetch(r->data + (size_t)(a - r->lo) * s->row_bytes, bytes);
}

size_t storage_staging(const pl_exec *x, const struct weight_store *s,
                       int64_t n)
{
    return device_map(x->set, s->dev, s->t->region)
               ? 0
               : (size_t)n * s->piece_bytes;
}

pl_status weight_store_copy(pl_exec *x, const struct weight_store *s,
                            int64_t first, int64_t n,
                            const struct storage_rows *r, bool put,
                            unsigned char *staging, pl_err *err)
{
    unsigned char *map = device_map(x->set, s->dev, s->t->region), *p;
    size_t at = s->t->offset + (size_t)first * s->piece_bytes;
    size_t bytes = (size_t)n * s->piece_bytes;

    p = map ? map + at : staging;
    if (!map && !(put && all_given(s, first, n, r)))
        PL_TRY(device_read(x->set, s->dev, s->t->region, at, p, bytes, err));
    if (!s->t->pack)
        plain_rows(s, first, n, r, put, p);
    else if (put)
        put_panels(s, first, n, r, p);
    else
        get_panels(s, first, n, r, p);
    if (!map && put)
        return device_write(x->set, s->dev, s->t->region, at, p, bytes, err);
    return PL_OK;
}
