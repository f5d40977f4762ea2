/* Weights between the host's rows and the devices' packed groups.
 *
 * A row of the file goes to each storage of the weight (it may be held under
 * several layouts) and to each device that holds part of it. Packed groups of
 * 16 rows are built in host memory, in place where the device can be written
 * directly, else in a staging group that is then written. */
#include "exec/exec.h"

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct storage {
    pl_exec *x;
    const struct graph_node *n;
    int num, dev;
    const struct prog_tensor *t;
    struct layout_local matrices; /* of the first of three dimensions */
    struct layout_local rows;     /* of the second-last dimension */
    int64_t n_row, row_bytes;     /* logical rows a matrix */
    pl_err *err;
};

static int64_t logical_row(const struct layout_local *m, int64_t loc)
{
    int64_t rep = loc / m->local_period, r = loc % m->local_period;

    for (int i = 0; i < m->n_part; i++)
        if (r < m->part[i].loc + m->part[i].n)
            return rep * m->period + m->part[i].log + (r - m->part[i].loc);
    return -1;
}

/* One packed group of the device's matrix `local`, the weight's `matrix`: rows
 * in [lo, hi) are put from `data` or got into it. */
static pl_status group_rows(const struct storage *s, int64_t local,
                            int64_t matrix, int64_t group, int64_t lo,
                            int64_t hi, unsigned char *data, bool put,
                            unsigned char *staging)
{
    const struct pack *p = s->t->pack;
    size_t at = s->t->offset + (size_t)local * p->matrix_bytes +
                (size_t)group * p->group_bytes;
    unsigned char *base = device_map(s->x->set, s->dev, REGION_WEIGHTS), *g;
    int64_t first = group * PACK_ROWS, n = s->rows.local - first;
    int hit = 0;

    if (n > PACK_ROWS)
        n = PACK_ROWS;
    for (int64_t i = 0; i < n; i++) {
        int64_t r = matrix * s->n_row + logical_row(&s->rows, first + i);

        hit += r >= lo && r < hi;
    }
    if (hit == 0)
        return PL_OK;
    g = base ? base + at : staging;
    if (hit == n && put)
        memset(g, 0, p->group_bytes);
    else if (!base)
        PL_TRY(device_read(s->x->set, s->dev, REGION_WEIGHTS, at, g,
                           p->group_bytes, s->err));
    for (int64_t i = 0; i < n; i++) {
        int64_t r = matrix * s->n_row + logical_row(&s->rows, first + i);
        unsigned char *row = data + (r - lo) * s->row_bytes;

        if (r < lo || r >= hi)
            continue;
        if (put)
            pack_row(p, g, (int)i, row);
        else
            unpack_row(p, g, (int)i, row);
    }
    return put && !base ? device_write(s->x->set, s->dev, REGION_WEIGHTS, at, g,
                                       p->group_bytes, s->err)
                        : PL_OK;
}

static pl_status packed_rows(const struct storage *s, int64_t lo, int64_t hi,
                             unsigned char *data, bool put)
{
    const struct pack *p = s->t->pack;
    int64_t groups = (s->rows.local + PACK_ROWS - 1) / PACK_ROWS;
    unsigned char *staging = NULL;
    pl_status st = PL_OK;

    if (groups == 0 || p->group_bytes == 0 || p->k == 0)
        return PL_OK;
    if (posix_memalign((void **)&staging, 64, p->group_bytes))
        return err_no_memory(s->err, "a group of rows");
    for (int64_t i = 0; i < s->matrices.local && st == PL_OK; i++) {
        int64_t m = logical_row(&s->matrices, i);

        if (m * s->n_row >= hi || (m + 1) * s->n_row <= lo)
            continue;
        for (int64_t g = 0; g < groups && st == PL_OK; g++)
            st = group_rows(s, i, m, g, lo, hi, data, put, staging);
    }
    free(staging);
    return st;
}

struct plain_copy {
    pl_exec *x;
    const int *dev;
    const struct prog_tensor *t[PL_MAX_RANKS];
    unsigned char *data;
    size_t size; /* of a value */
    int64_t done;
    bool put;
    pl_err *err;
};

static pl_status plain_piece(void *user, const struct layout_piece *p)
{
    struct plain_copy *c = user;
    size_t at, n = (size_t)p->n * c->size;
    unsigned char *d = c->data + (size_t)p->view * c->size;

    if (!c->t[p->dev])
        return PL_OK;
    at = c->t[p->dev]->offset + (size_t)p->local * c->size;
    if (c->put)
        return device_write(c->x->set, c->dev[p->dev], c->t[p->dev]->region, at,
                            d, n, c->err);
    if (p->view < c->done) /* another device gave it */
        return PL_OK;
    c->done = p->view + p->n;
    return device_read(c->x->set, c->dev[p->dev], c->t[p->dev]->region, at, d,
                       n, c->err);
}

/* All storages of a weight; when getting, one layout will do. */
static pl_status each_storage(pl_exec *x, int node, int64_t row0, int64_t n,
                              unsigned char *data, bool put, pl_err *err)
{
    const struct planned *pl = x->plan;
    const struct graph_node *g = &pl->g->node[node];
    int64_t k = g->dim[g->n_dim - 1].n;
    struct arena a = {0};
    pl_status st = PL_OK;

    for (int i = 0; i < pl->num->n && st == PL_OK; i++) {
        const struct num_node *nn = &pl->num->node[i];
        struct exec_holder h;
        bool plain = false;

        if (nn->node != node || nn->kind != NUM_OP ||
            (!put && i != pl->num->value[node]))
            continue;
        h = exec_holder(x, i, lowered_leaf(pl->low, i));
        for (int u = 0; u < h.n && st == PL_OK; u++) {
            const struct lowered_value *v = &h.v[u];
            struct storage s = {
                .x = x, .n = g, .num = i, .dev = h.dev[u], .err = err};
            const pl_layout *l = nn->layout, *of_matrices = &layout_mirrored;
            rankset ranks = h.ranks[u];

            s.t = &pl->low->prog[s.dev].tensor[v->tensor];
            plain |= !s.t->pack || (put && v->plain >= 0);
            if (!s.t->pack)
                continue;
            s.n_row = g->dim[g->n_dim - 2].n;
            s.row_bytes = (int64_t)format_row_bytes(g->format, k);
            if (l->kind == PL_SPLIT && l->dim == g->n_dim - 3)
                of_matrices = l;
            if (l->kind == PL_SPLIT && l->dim != g->n_dim - 2)
                l = &layout_mirrored;
            st = layout_local_init(&s.matrices, &a, of_matrices,
                                   g->n_dim == 3 ? g->dim[0].n : 1, ranks) &&
                         layout_local_init(&s.rows, &a, l, s.n_row, ranks)
                     ? packed_rows(&s, row0, row0 + n, data, put)
                     : err_no_memory(err, "rows of a weight");
        }
        if (plain && st == PL_OK) {
            struct plain_copy c = {.x = x,
                                   .dev = h.dev,
                                   .data = data,
                                   .put = put,
                                   .err = err,
                                   .size = format_row_bytes(g->format, 1)};
            struct layout_tensor t = {.n_dim = g->n_dim,
                                      .layout = nn->layout,
                                      .n_dev = h.n,
                                      .dev = h.ranks};
            struct layout_view view = {1, {n * k}, {1}, row0 * k};

            for (int d = 0; d < g->n_dim; d++)
                t.dim[d] = g->dim[d].n;
            for (int u = 0; u < h.n; u++) {
                const struct lowered_value *v = &h.v[u];
                const struct prog_tensor *pt = pl->low->prog[h.dev[u]].tensor;

                c.t[u] = v->plain >= 0 ? &pt[v->plain] : &pt[v->tensor];
                if (c.t[u]->pack)
                    c.t[u] = NULL;
            }
            st = layout_pieces(&t, &view, plain_piece, &c, err);
        }
    }
    arena_fini(&a);
    return st;
}

pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err)
{
    return each_storage(x, node, row0, n, (unsigned char *)data, true, err);
}

pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err)
{
    return each_storage(x, node, row0, n, data, false, err);
}

/* Loading ---------------------------------------------------------------- */

/* A slice of a weight's rows: whole matrices, or whole packed groups however
 * they are dealt (a slice boundary may fall inside a group of a device; then
 * one thread loads the whole weight). */
struct task {
    int node;
    int64_t row0, n;
};

struct loading {
    pl_exec *x;
    const void *const *data;
    struct task *task;
    int n_task;
    atomic_int next;
    atomic_ullong done;
    uint64_t total;
    pthread_mutex_t lock;
    pl_status status;
    pl_err err;
    const pl_options *opt;
};

static size_t row_bytes(const struct graph_node *n)
{
    return format_row_bytes(n->format, n->dim[n->n_dim - 1].n);
}

static void *load_thread(void *arg)
{
    struct loading *l = arg;
    const pl_graph *g = l->x->plan->g;

    for (;;) {
        int i = atomic_fetch_add(&l->next, 1);
        const struct task *t;
        size_t rb;
        pl_err err;
        pl_status s;

        if (i >= l->n_task)
            return NULL;
        t = &l->task[i];
        rb = row_bytes(&g->node[t->node]);
        s = exec_put_rows(l->x, t->node, t->row0, t->n,
                          (const unsigned char *)l->data[t->node] +
                              (size_t)t->row0 * rb,
                          &err);
        atomic_fetch_add(&l->done, (unsigned long long)((size_t)t->n * rb));
        pthread_mutex_lock(&l->lock);
        if (s != PL_OK && l->status == PL_OK) {
            l->status = s;
            l->err = err;
            atomic_store(&l->next, l->n_task);
        }
        if (l->opt->progress)
            l->opt->progress(l->opt->progress_user, "loading weights",
                             atomic_load(&l->done), l->total);
        pthread_mutex_unlock(&l->lock);
    }
}

/* Rows a task takes: a whole matrix of experts, else all. Devices' groups never
 * span matrices, so tasks never share a group. */
static int64_t task_rows(const struct graph_node *n)
{
    int64_t rows = 1;

    for (int d = 0; d < n->n_dim - 1; d++)
        rows *= n->dim[d].n;
    return n->n_dim == 3 ? n->dim[1].n : rows;
}

pl_status exec_load(pl_exec *x, const void *const *data, const pl_options *opt,
                    pl_err *err)
{
    const pl_graph *g = x->plan->g;
    struct loading l = {.x = x, .data = data, .opt = opt};
    pthread_t thread[64];
    int n_thread = 0, want = 0, cap = 0;

    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_weight)
            cap += g->node[i].n_dim == 3 ? (int)g->node[i].dim[0].n : 1;
    l.task = malloc(((size_t)cap + 1) * sizeof *l.task);
    if (!l.task)
        return err_no_memory(err, "loading weights");
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        int64_t per, all = 1;

        if (n->op != OP_weight || !data[i])
            continue;
        per = task_rows(n);
        for (int d = 0; d < n->n_dim - 1; d++)
            all *= n->dim[d].n;
        for (int64_t r = 0; r < all; r += per)
            l.task[l.n_task++] = (struct task){i, r, per};
        l.total += (uint64_t)all * row_bytes(n);
    }
    pthread_mutex_init(&l.lock, NULL);
    for (int d = 0; d < x->plan->list.n; d++)
        want += x->plan->list.dev[d].n_thread;
    if (want > 64)
        want = 64;
    for (; n_thread + 1 < want; n_thread++)
        if (pthread_create(&thread[n_thread], NULL, load_thread, &l))
            break;
    load_thread(&l);
    for (int i = 0; i < n_thread; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&l.lock);
    free(l.task);
    if (l.status != PL_OK && err)
        *err = l.err;
    return l.status;
}
