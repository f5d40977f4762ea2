/* Implementation of gpu_graph.h: decides which launches form a device graph,
 * and which graphs are kept. */
#include "device/gpu/gpu_graph.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_access.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_fuse.h"

/* ---- segments ------------------------------------------------------------ */

/* The segment that is being collected: consecutive instructions of a queue
 * which need only launches, no copies by the issuing thread. It becomes a
 * device graph. */
struct draft {
    struct gpu_device *x;
    struct gpu_cached_graph *to;
    /* indices in the variant of the segment's instructions, [n]; owned */
    int *step;
    int n;
    struct gpu_access_set touches;
    /* by instruction, the index in touches.touch of its first memory access, [n
     * + 1]; owned */
    int *first;
    struct gpu_deps order;
    struct gpu_graph_node *node; /* the graph's nodes, one per launch; owned */
    int *after; /* the arrays after[] of all nodes, one after another; owned */
    int *last;  /* by instruction, the index of its last node, [n]; owned */
};

static const struct launch_list *list_of(const struct draft *d)
{
    return &d->x->image.list;
}

static int n_launch(const struct draft *d, int i)
{
    const int *first = d->x->image.first;

    return first[d->step[i] + 1] - first[d->step[i]];
}

/* Adds the memory accesses of instruction `step` and of those fused into it. */
static void touch_fused(struct draft *d, int step)
{
    const struct variant *c = d->to->variant;
    const struct gpu_image *m = &d->x->image;

    for (int i = step; i < c->n_insn && i <= step + GPU_FUSE_REACH; i++)
        if (m->fused_into[i] == step)
            gpu_touches_add(&d->touches, m, &c->insn[i]);
}

static bool make_order(struct draft *d)
{
    d->touches.n = 0;
    for (int i = 0; i < d->n; i++) {
        d->first[i] = d->touches.n;
        touch_fused(d, d->step[i]);
    }
    d->first[d->n] = d->touches.n;
    return !d->touches.no_memory &&
           gpu_order_make(&d->order, d->touches.touch, d->first, d->n);
}

/* Appends the nodes of the i-th instruction of the segment; its launches are
 * executed one after another. `n` and *n_after are the numbers of nodes and of
 * elements of d->after so far. Returns the new number of nodes. */
static int put_nodes(struct draft *d, int i, int n, int *n_after)
{
    const struct launch_list *l = list_of(d);
    const int *first = d->x->image.first + d->step[i];
    int from = d->order.first[i], n_before = d->order.first[i + 1] - from;
    int *after = d->after + *n_after;

    for (int k = 0; k < n_before; k++)
        after[k] = d->last[d->order.after[from + k]];
    for (int k = first[0]; k < first[1]; k++) {
        d->node[n] =
            (struct gpu_graph_node){.kernel = l->launch[k].kernel,
                                    .n_group = l->launch[k].n_group,
                                    .args = l->bytes + l->launch[k].args,
                                    .after = after,
                                    .n_after = n_before};
        after += n_before;
        *n_after += n_before;
        *after = n++;
        n_before = 1;
    }
    d->last[i] = n - 1;
    return n;
}

static bool make_graph(struct draft *d, struct gpu_graph **out)
{
    int n = 0, n_after = 0, all = 0;
    bool ok;

    for (int i = 0; i < d->n; i++)
        all += n_launch(d, i);
    d->node = malloc((size_t)all * sizeof *d->node);
    d->after =
        malloc((size_t)(d->order.first[d->n] + all + 1) * sizeof *d->after);
    ok = d->node && d->after;
    for (int i = 0; i < d->n && ok; i++)
        n = put_nodes(d, i, n, &n_after);
    ok = ok &&
         d->x->driver->graph_make(d->x->gpu, d->node, n, out, NULL) == PL_OK;
    free(d->node);
    free(d->after);
    return ok;
}

/* Creates a graph of the collected instructions if they have enough launches,
 * then starts the next segment. Returns false if the graph cannot be
 * created. */
static bool close_segment(struct draft *d)
{
    struct gpu_cached_graph *r = d->to;
    struct gpu_graph *graph = NULL;
    int n = d->n, all = 0;
    bool ok;

    for (int i = 0; i < n; i++)
        all += n_launch(d, i);
    if (all >= GPU_GRAPH_LEAST) {
        ok = make_order(d) && make_graph(d, &graph);
        gpu_order_free(&d->order);
        if (!ok)
            return false;
        for (int i = 0; i < n; i++)
            r->of[d->step[i]] = r->n_segment;
        r->segment[r->n_segment++] =
            (struct gpu_segment){.first = d->step[0], .graph = graph};
    }
    d->n = 0;
    return true;
}

/* ---- the graphs of a variant --------------------------------------------- */

/* Creates the graphs of one queue. Instructions of the other queue may be
 * issued earlier or later than the graph. This is safe: no segment contains a
 * WAIT, and no WAIT is for a point inside a segment. */
static bool record_queue(struct draft *d, enum queue q)
{
    const struct variant *c = d->to->variant;
    const int *first = d->x->image.first;

    for (int i = 0; i < c->n_insn; i++) {
        const struct insn *st = &c->insn[i];

        if (st->queue != q || !insn_enabled(st, d->to->n_micro, d->to->sizes))
            continue;
        if (!gpu_carry_launches_all(d->x, st, i)) {
            if (!close_segment(d))
                return false;
        } else if (first[i + 1] > first[i]) {
            d->step[d->n++] = i;
        }
    }
    return close_segment(d);
}

static bool record(struct gpu_device *x, struct gpu_cached_graph *r)
{
    size_t n = (size_t)r->variant->n_insn + 1;
    struct draft d = {.x = x, .to = r};
    bool ok;

    d.step = calloc(n, sizeof *d.step);
    d.first = calloc(n, sizeof *d.first);
    d.last = calloc(n, sizeof *d.last);
    r->of = malloc(n * sizeof *r->of);
    r->segment = calloc(n, sizeof *r->segment);
    ok = d.step && d.first && d.last && r->of && r->segment;
    for (int i = 0; ok && i < r->variant->n_insn; i++)
        r->of[i] = -1;
    for (int q = 0; q < QUEUE_COUNT && ok; q++)
        ok = record_queue(&d, (enum queue)q);
    free(d.step);
    free(d.first);
    free(d.last);
    gpu_touches_free(&d.touches);
    return ok;
}

static void forget(struct gpu_device *x, struct gpu_cached_graph *r)
{
    for (int i = 0; i < r->n_segment && !x->lost; i++)
        x->driver->graph_free(x->gpu, r->segment[i].graph);
    free(r->segment);
    free(r->of);
    r->segment = NULL;
    r->of = NULL;
    r->n_segment = 0;
}

/* ---- graphs of a step ---------------------------------------------------- */

static bool is_small(const struct device_run *run)
{
    for (int i = 0; i < run->n_micro; i++)
        if (run->sizes[i].n_tok > GPU_GRAPH_ROWS)
            return false;
    return true;
}

/* Returns the cached graphs of variant `c` at the sizes of the step in
 * progress. If there are none, replaces the least recently used entry by a new
 * one without graphs. */
static struct gpu_cached_graph *find(struct gpu_device *x,
                                     const struct variant *c)
{
    struct gpu_cached_graph *all = x->graphs.recording, *old = all;
    const struct device_run *run = x->run;

    for (struct gpu_cached_graph *r = all; r < all + GPU_GRAPH_RUNS; r++) {
        if (r->variant == c &&
            gpu_image_same_sizes(r->n_micro, r->sizes, r->n_page, run))
            return r;
        if (r->used < old->used)
            old = r;
    }
    forget(x, old);
    *old = (struct gpu_cached_graph){.variant = c, .n_micro = run->n_micro};
    memcpy(old->sizes, run->sizes, (size_t)run->n_micro * sizeof *old->sizes);
    for (int i = 0; i < run->n_micro; i++)
        old->n_page[i] = gpu_image_pages(run, i);
    return old;
}

void gpu_graph_begin(struct gpu_device *x)
{
    struct gpu_cached_graph *r;

    x->graphs.now = NULL;
    if (x->slow || !x->driver->graph_make || !is_small(x->run))
        return;
    r = find(x, device_variant(x->dev, x->run));
    if (r->used > 0 && !r->made) {
        r->made = true;
        if (!record(x, r))
            forget(x, r);
    }
    r->used = x->number;
    if (r->n_segment > 0)
        x->graphs.now = r;
}

pl_status gpu_graph_insn(struct gpu_device *x, int i, bool *is_in, pl_err *err)
{
    const struct gpu_cached_graph *r = x->graphs.now;
    int k = r ? r->of[i] : -1;

    *is_in = k >= 0;
    if (k < 0 || r->segment[k].first != i)
        return PL_OK;
    return x->driver->graph_run(x->gpu, r->variant->insn[i].queue,
                                r->segment[k].graph, err);
}

void gpu_graph_end(struct gpu_device *x)
{
    for (int i = 0; i < GPU_GRAPH_RUNS; i++)
        forget(x, &x->graphs.recording[i]);
    memset(&x->graphs, 0, sizeof x->graphs);
}
