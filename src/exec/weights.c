/* Copies weights between host memory and devices: a range of rows of one
 * weight, or all weights, by several threads. storage.c determines where
 * weights are stored. */
#include "exec/exec.h"

#include "base/err.h"
#include "device/machines.h"
#include "exec/storage.h"
#include "machine/topology.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Reading and writing rows of one weight --------------------------------- */

/* Returns the range of host data for rows [row0, row0 + n) of a weight, which
 * are at `data`. The range is in the counting of store s: in rows, or in single
 * elements if the store splits rows. */
static struct storage_rows rows_of(const pl_exec *x,
                                   const struct weight_store *s, int64_t row0,
                                   int64_t n, unsigned char *data)
{
    const struct graph_node *g = &x->plan->g->node[s->node];
    size_t row = format_row_bytes(g->format, g->dim[g->n_dim - 1].n);
    int64_t each = (int64_t)(row / s->row_bytes);

    return (struct storage_rows){row0 * each, (row0 + n) * each, data};
}

static pl_status move_range(pl_exec *x, const struct weight_store *s,
                            const struct storage_rows *r, bool put, pl_err *err)
{
    unsigned char *staging = NULL;
    int64_t first, end, n;
    size_t bytes;
    pl_status st = PL_OK;

    storage_pieces(s, r->lo, r->hi, &first, &end);
    n = end - first < s->slab ? end - first : s->slab;
    bytes = storage_staging(x, s, n);
    if (bytes > 0 && posix_memalign((void **)&staging, 64, bytes))
        return err_no_memory(err, "a slab of rows");
    for (; first < end && st == PL_OK; first += n) {
        n = end - first < n ? end - first : n;
        st = weight_store_copy(x, s, first, n, r, put, staging, err);
    }
    free(staging);
    return st;
}

static pl_status rows(pl_exec *x, int node, int64_t row0, int64_t n,
                      unsigned char *data, bool put, pl_err *err)
{
    struct arena a = {0};
    struct weight_store *s;
    int n_storage;
    pl_status st = storage_table(x, node, !put, &a, &s, &n_storage, err);

    for (int i = 0; st == PL_OK && i < n_storage; i++) {
        struct storage_rows r = rows_of(x, &s[i], row0, n, data);

        st = move_range(x, &s[i], &r, put, err);
    }
    arena_fini(&a);
    return st;
}

pl_status exec_put_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        const void *data, pl_err *err)
{
    return rows(x, node, row0, n, (unsigned char *)data, true, err);
}

pl_status exec_get_rows(pl_exec *x, int node, int64_t row0, int64_t n,
                        void *data, pl_err *err)
{
    return rows(x, node, row0, n, data, false, err);
}

/* Loading all weights ---------------------------------------------------- */

enum { LOAD_THREADS = 64 };

struct slab {
    const struct weight_store *s;
    int64_t first, n;
    int64_t part; /* index of the part of the host's data (exec_parts) that
                     contains these rows */
};

struct loading {
    pl_exec *x;
    const struct exec_source *from;
    struct arena arena; /* owns the arrays weight_store and slab */
    struct weight_store *weight_store;
    struct slab *slab;
    int n_storage, n_slab;
    size_t staging_bytes; /* size in bytes of each thread's staging buffer; 0 if
                             none is needed */
    atomic_int next;
    pthread_mutex_t lock; /* protects all fields after it */
    uint64_t done, total;
    pl_status status;
    pl_err err;
    const pl_options *opt;
};

/* A thread that loads weights. Each has its own staging buffer, which is NULL
 * if none is needed. */
struct loader {
    struct loading *l;
    unsigned char *staging;
    pthread_t thread;
};

static void slab_done(struct loading *l, const struct slab *b, pl_status s,
                      const pl_err *err)
{
    pthread_mutex_lock(&l->lock);
    l->done += (uint64_t)b->n * b->s->piece_bytes;
    if (s != PL_OK && l->status == PL_OK) {
        l->status = s;
        l->err = *err;
        atomic_store(&l->next, l->n_slab);
    }
    if (s == PL_OK && l->opt->progress)
        l->opt->progress(l->opt->progress_user, "loading weights", l->done,
                         l->total);
    pthread_mutex_unlock(&l->lock);
}

/* Returns the rows of one part of a weight's host data (exec_parts), counted as
 * store s counts them: in rows, or in single elements if the store splits
 * rows. */
static struct storage_rows part_rows(const struct loading *l,
                                     const struct weight_store *s, int64_t part)
{
    const struct graph_node *g = &l->x->plan->g->node[s->node];
    const struct exec_parts *from = &l->from->weight[s->node];
    int64_t n_row = 1;

    for (int i = 0; i < g->n_dim - 1; i++)
        n_row *= g->dim[i].n;
    n_row /= from->n;
    return rows_of(l->x, s, part * n_row, n_row,
                   (unsigned char *)from->data[part]);
}

static void *load_slabs(void *arg)
{
    struct loader *me = arg;
    struct loading *l = me->l;

    for (;;) {
        int i = atomic_fetch_add(&l->next, 1);
        const struct slab *b;
        struct storage_rows r;
        pl_err err;
        pl_status s;

        if (i >= l->n_slab)
            return NULL;
        b = &l->slab[i];
        r = part_rows(l, b->s, b->part);
        s = err_cancelled(l->opt->cancel, &err);
        if (s == PL_OK)
            weight_store_prefetch(b->s, b->first, b->n, &r);
        if (s == PL_OK && l->from->check)
            s = l->from->check(l->from->user, b->s->node, b->part, &err);
        if (s == PL_OK)
            s = weight_store_copy(l->x, b->s, b->first, b->n, &r, true,
                                  me->staging, &err);
        slab_done(l, b, s, &err);
    }
}

/* Divides pieces [first, end) of store s into slabs of at most s->slab pieces,
 * and appends the slabs to l->slab. Their rows are in part `part` of the host's
 * data. */
static void cut_part(struct loading *l, const struct weight_store *s,
                     int64_t part, int64_t first, int64_t end)
{
    for (int64_t n; first < end; first += n) {
        n = end - first < s->slab ? end - first : s->slab;
        l->slab[l->n_slab++] = (struct slab){s, first, n, part};
    }
}

/* Returns true if this process loads the weights of device `dev`: each machine
 * loads its own, or machine 0 those of all. */
static bool loads(const struct loading *l, int dev)
{
    const pl_machines *m = l->opt->machines;

    if (!m)
        return true;
    return m->net->machine ==
           (m->send_weights ? 0 : l->x->plan->list.dev[dev].machine);
}

/* Drops the stores that another machine loads. */
static void drop_others(struct loading *l)
{
    int n = 0;

    for (int i = 0; i < l->n_storage; i++)
        if (loads(l, l->weight_store[i].dev))
            l->weight_store[n++] = l->weight_store[i];
    l->n_storage = n;
}

/* Lists the slabs of all weights that have host data. They are ordered by
 * weight and part, so that the file is read from front to back. */
static pl_status cut_slabs(struct loading *l, pl_err *err)
{
    int64_t n = 0;

    PL_TRY(storage_table(l->x, -1, false, &l->arena, &l->weight_store,
                         &l->n_storage, err));
    drop_others(l);
    for (int i = 0; i < l->n_storage; i++)
        n += (l->weight_store[i].n + l->weight_store[i].slab - 1) /
                 l->weight_store[i].slab +
             l->from->weight[l->weight_store[i].node].n;
    l->slab = arena_alloc(&l->arena, (size_t)n + 1, sizeof *l->slab);
    if (!l->slab)
        return err_no_memory(err, "loading weights");
    for (int i = 0; i < l->n_storage; i++) {
        const struct weight_store *s = &l->weight_store[i];
        size_t staging;

        if (l->from->weight[s->node].n == 0)
            continue;
        for (int64_t p = 0; p < l->from->weight[s->node].n; p++) {
            struct storage_rows r = part_rows(l, s, p);
            int64_t first, end;

            storage_pieces(s, r.lo, r.hi, &first, &end);
            cut_part(l, s, p, first, end);
        }
        l->total += (uint64_t)s->n * s->piece_bytes;
        staging = storage_staging(l->x, s, s->n < s->slab ? s->n : s->slab);
        if (staging > l->staging_bytes)
            l->staging_bytes = staging;
    }
    return PL_OK;
}

/* Returns the number of loader threads: as many as the devices have worker
 * threads. Accelerators have none, so with an accelerator it is at least the
 * number of cores. */
static int threads_wanted(const struct device_list *l)
{
    const struct topology *t = l->topology;
    int n_core, n = 0;

    for (int d = 0; d < l->n; d++)
        n += l->dev[d].n_thread;
    for (int d = 0; d < l->n && t; d++) {
        n_core = t->n_core < t->n_core_quota ? t->n_core : t->n_core_quota;
        if (l->dev[d].accelerator && n_core > n)
            n = n_core;
    }
    return n > LOAD_THREADS ? LOAD_THREADS : n;
}

/* Loads all slabs with several threads, of which the caller is one. Continues
 * with fewer threads if the system does not start all of them. */
static pl_status load_by_threads(struct loading *l, pl_err *err)
{
    struct loader loader[LOAD_THREADS] = {0};
    int want = threads_wanted(&l->x->plan->list), n = 0, running = 1;
    pl_status s = PL_OK;

    want = want > l->n_slab ? l->n_slab : want;
    for (; n < want && s == PL_OK; n++) {
        loader[n].l = l;
        if (l->staging_bytes > 0 &&
            posix_memalign((void **)&loader[n].staging, 64, l->staging_bytes))
            s = err_no_memory(err, "loading weights");
    }
    if (s == PL_OK && want > 0) {
        while (running < want && !pthread_create(&loader[running].thread, NULL,
                                                 load_slabs, &loader[running]))
            running++;
        load_slabs(&loader[0]);
        for (int i = 1; i < running; i++)
            pthread_join(loader[i].thread, NULL);
    }
    for (int i = 0; i < n; i++)
        free(loader[i].staging);
    return s;
}

pl_status exec_load(pl_exec *x, const struct exec_source *from,
                    const pl_options *opt, pl_err *err)
{
    struct loading l = {.x = x, .from = from, .opt = opt};
    pl_status s = cut_slabs(&l, err);

    if (s == PL_OK) {
        pthread_mutex_init(&l.lock, NULL);
        s = load_by_threads(&l, err);
        pthread_mutex_destroy(&l.lock);
    }
    if (s == PL_OK && l.status != PL_OK) {
        s = l.status;
        if (err)
            *err = l.err;
    }
    arena_fini(&l.arena);
    return s;
}
