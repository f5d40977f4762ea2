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
 * which need only launches, no copies by the issuing thread, and events that
 * are words. It becomes a device graph. */
struct draft {
    struct gpu_device *x;
    struct gpu_cached_graph *to;
    /* indices in the variant of the segment's instructions, [n]; owned */
    int *step;
    int n;
    struct gpu_access_set touches;
    /* by instruction of a stretch between events, the index in touches.touch of
     * its first memory access, [n + 1]; owned */
    int *first;
    struct gpu_deps order;       /* of such a stretch */
    struct gpu_graph_node *node; /* the graph's nodes, [n_node]; owned */
    int n_node;
    struct gpu_word_op *op; /* words of all nodes, [n_op]; owned */
    int n_op;
    bool has_words; /* a graph with words was tried to be made */
    /* the arrays after[] of all nodes, one after another, [n_after], with room
     * for n_after_max; by node, where its array begins; owned */
    int *after, *after_at;
    int n_after, n_after_max;
    bool *is_awaited; /* by node: a later one waits for it; owned */
    int *last; /* by instruction, the index of its last node, [n]; owned */
};

static const struct launch_list *list_of(const struct draft *d)
{
    return &d->x->image.list;
}

static const struct insn *insn_of(const struct draft *d, int i)
{
    return &d->to->variant->insn[d->step[i]];
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

/* Sets d->order for the instructions [from, to) of the segment. */
static bool make_order(struct draft *d, int from, int to)
{
    d->touches.n = 0;
    for (int i = from; i < to; i++) {
        d->first[i - from] = d->touches.n;
        touch_fused(d, d->step[i]);
    }
    d->first[to - from] = d->touches.n;
    return !d->touches.no_memory &&
           gpu_order_make(&d->order, d->touches.touch, d->first, to - from);
}

/* Lets the node being made wait for node k. Returns false if out of memory. */
static bool put_after(struct draft *d, int k)
{
    if (d->n_after == d->n_after_max) {
        int n = d->n_after_max * 2 + 64;
        int *more = realloc(d->after, (size_t)n * sizeof *more);

        if (!more)
            return false;
        d->after = more;
        d->n_after_max = n;
    }
    d->after[d->n_after++] = k;
    d->is_awaited[k] = true;
    return true;
}

static void begin_node(struct draft *d)
{
    d->after_at[d->n_node] = d->n_after;
    d->is_awaited[d->n_node] = false;
}

static void end_node(struct draft *d, struct gpu_graph_node node)
{
    node.n_after = d->n_after - d->after_at[d->n_node];
    d->node[d->n_node++] = node;
}

/* Appends the nodes of the i-th instruction of the segment, which is the k-th
 * of its stretch. Its launches are executed one after another, the first after
 * those of `order` or, if there are none, after the node `event`, unless -1. */
static bool put_launches(struct draft *d, int i, int k, int event)
{
    const struct launch_list *l = list_of(d);
    const int *first = d->x->image.first + d->step[i];
    int from = d->order.first[k], n_before = d->order.first[k + 1] - from;
    bool ok = true;

    for (int a = first[0]; a < first[1] && ok; a++) {
        begin_node(d);
        if (a > first[0])
            ok = put_after(d, d->n_node - 1);
        for (int b = 0; a == first[0] && b < n_before && ok; b++)
            ok = put_after(d, d->last[i - k + d->order.after[from + b]]);
        if (a == first[0] && n_before == 0 && event >= 0)
            ok = ok && put_after(d, event);
        end_node(d,
                 (struct gpu_graph_node){.kernel = l->launch[a].kernel,
                                         .n_group = l->launch[a].n_group,
                                         .args = l->bytes + l->launch[a].args});
    }
    d->last[i] = d->n_node - 1;
    return ok;
}

/* Appends the nodes of instructions [from, to), none of which is an event. */
static bool put_stretch(struct draft *d, int from, int to, int event)
{
    bool ok = make_order(d, from, to);

    for (int i = from; i < to && ok; i++)
        ok = put_launches(d, i, i - from, event);
    gpu_order_free(&d->order);
    return ok;
}

static void put_op(struct draft *d, _Atomic uint64_t *word, bool wait)
{
    d->op[d->n_op++] = (struct gpu_word_op){
        .word = word, .value = wait ? 1 : DEVICE_FLAG_POSTED, .wait = wait};
}

static void put_event(struct draft *d, const struct insn *st)
{
    if (st->kind == INSN_POST)
        put_op(d, &d->x->dev->event[st->event.event].v, false);
    for (int k = 0; st->kind == INSN_WAIT && k < wait_count(&st->wait); k++) {
        struct insn_event e = wait_event(&st->wait, k);

        if (e.dev != d->x->dev->prog->dev)
            put_op(d, &device_of(d->x->set, e.dev)->event[e.event].v, true);
    }
}

/* Appends a node of the events [from, to), after all nodes from `first` on for
 * which no other waits. */
static bool put_events(struct draft *d, int from, int to, int first)
{
    int n = d->n_op;
    bool ok = true;

    begin_node(d);
    for (int k = first; k < d->n_node && ok; k++)
        if (!d->is_awaited[k])
            ok = put_after(d, k);
    for (int i = from; i < to; i++)
        put_event(d, insn_of(d, i));
    end_node(d, (struct gpu_graph_node){.op = d->op + n, .n_op = d->n_op - n});
    return ok;
}

/* Appends the nodes of the whole segment. */
static bool put_nodes(struct draft *d)
{
    int event = -1;
    bool ok = true;

    for (int i = 0, to; i < d->n && ok; i = to) {
        bool is_event = insn_is_event(insn_of(d, i));

        for (to = i + 1; to < d->n && insn_is_event(insn_of(d, to)) == is_event;
             to++)
            ;
        if (is_event) {
            ok = put_events(d, i, to, event < 0 ? 0 : event);
            event = d->n_node - 1;
        } else {
            ok = put_stretch(d, i, to, event);
        }
    }
    for (int k = 0; k < d->n_node && ok; k++)
        d->node[k].after = d->after + d->after_at[k];
    return ok;
}

static int n_word(const struct insn *st)
{
    return st->kind == INSN_POST   ? 1
           : st->kind == INSN_WAIT ? wait_count(&st->wait)
                                   : 0;
}

/* Creates a graph of at most n nodes and n_op words. */
static bool make_graph(struct draft *d, int n, int n_op, struct gpu_graph **out)
{
    bool ok;

    d->n_node = d->n_op = d->n_after = 0;
    d->has_words |= n_op > 0;
    d->node = malloc((size_t)n * sizeof *d->node);
    d->op = malloc(((size_t)n_op + 1) * sizeof *d->op);
    d->after_at = malloc((size_t)n * sizeof *d->after_at);
    d->is_awaited = malloc((size_t)n * sizeof *d->is_awaited);
    ok = d->node && d->op && d->after_at && d->is_awaited && put_nodes(d) &&
         d->x->driver->graph_make(d->x->gpu, d->node, d->n_node, out, NULL) ==
             PL_OK;
    free(d->node);
    free(d->op);
    free(d->after_at);
    free(d->is_awaited);
    return ok;
}

/* Creates a graph of the collected instructions if they have enough launches,
 * then starts the next segment. Returns false if the graph cannot be
 * created. */
static bool close_segment(struct draft *d)
{
    struct gpu_cached_graph *r = d->to;
    struct gpu_graph *graph = NULL;
    int n = d->n, all = 0, n_op = 0, n_launches = 0;

    for (int i = 0; i < n; i++) {
        int k = insn_is_event(insn_of(d, i)) ? 0 : n_launch(d, i);

        n_launches += k;
        n_op += n_word(insn_of(d, i));
        all += k > 0 ? k : 1;
    }
    if (n_launches >= GPU_GRAPH_LEAST) {
        if (!make_graph(d, all, n_op, &graph))
            return false;
        for (int i = 0; i < n; i++)
            r->of[d->step[i]] = r->n_segment;
        r->segment[r->n_segment++] =
            (struct gpu_segment){.first = d->step[0],
                                 .last = d->step[n - 1],
                                 .has_events = n_op > 0,
                                 .graph = graph};
    }
    d->n = 0;
    return true;
}

/* The part of an event in a graph. */
enum part {
    NO_PART, /* it ends the segment */
    NOTHING, /* within a queue, which is in order anyway */
    WORDS,   /* a node of words: other devices post it or wait for it */
};

static enum part part_of_wait(const struct gpu_device *x,
                              const struct insn_wait *w, bool has_words)
{
    enum part is = NOTHING;

    for (int k = 0; k < wait_count(w); k++) {
        struct insn_event e = wait_event(w, k);

        if (e.dev != x->dev->prog->dev)
            is = has_words ? WORDS : NO_PART;
        if (is == NO_PART ||
            (e.dev == x->dev->prog->dev && x->event[e.event].crossed))
            return NO_PART;
    }
    return is;
}

static enum part part_of(const struct gpu_device *x, const struct insn *st)
{
    bool has_words = x->queues_wait && x->graph_words;
    const struct gpu_event *e;

    if (st->kind == INSN_WAIT)
        return part_of_wait(x, &st->wait, has_words);
    e = &x->event[st->event.event];
    return e->crossed     ? NO_PART
           : !e->external ? NOTHING
           : has_words    ? WORDS
                          : NO_PART;
}

/* ---- the graphs of a variant --------------------------------------------- */

/* Creates the graphs of one queue. Instructions of the other queue may be
 * issued earlier or later than the graph. This is safe, because no WAIT is for
 * a point inside a segment, and a WAIT in a segment is not issued before
 * instructions of the other queue that precede it: hardware may execute both
 * queues as one, and the event may depend on them. */
static bool record_queue(struct draft *d, enum queue q)
{
    const struct variant *c = d->to->variant;
    const int *first = d->x->image.first;
    bool mixed = false; /* the other queue had instructions in the segment */

    for (int i = 0; i < c->n_insn; i++) {
        const struct insn *st = &c->insn[i];
        bool event = insn_is_event(st), ends;
        enum part part;

        if (!insn_enabled(st, d->to->n_micro, d->to->sizes))
            continue;
        mixed = d->n > 0 && (mixed || st->queue != q);
        if (st->queue != q)
            continue;
        part = event ? part_of(d->x, st) : NO_PART;
        ends = event ? part == NO_PART ||
                           (part == WORDS && st->kind == INSN_WAIT && mixed)
                     : !gpu_carry_launches_all(d->x, st, i);
        if (ends && !close_segment(d))
            return false;
        mixed = mixed && !ends;
        if (event ? part == WORDS : !ends && first[i + 1] > first[i])
            d->step[d->n++] = i;
    }
    return close_segment(d);
}

/* Creates the graphs `r`. Sets *has_words to whether one of them has nodes of
 * words. */
static bool record(struct gpu_device *x, struct gpu_cached_graph *r,
                   bool *has_words)
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
    free(d.after);
    *has_words = d.has_words;
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
        bool has_words;

        r->made = true;
        if (!record(x, r, &has_words)) {
            forget(x, r);
            /* if words may be the reason, graphs do without from now on */
            x->graph_words &= !has_words;
            if (has_words && !record(x, r, &has_words))
                forget(x, r);
        }
    }
    r->used = x->number;
    if (r->n_segment > 0)
        x->graphs.now = r;
}

/* Adds the events of segment k to the points of the step. */
static void add_points(struct gpu_device *x, const struct gpu_cached_graph *r,
                       int k)
{
    const struct gpu_segment *g = &r->segment[k];

    for (int i = g->first; i <= g->last && g->has_events; i++) {
        const struct insn *st = &r->variant->insn[i];

        if (r->of[i] == k && st->kind == INSN_POST)
            gpu_ahead_add(x, &x->dev->event[st->event.event].v, true, i);
        for (int j = 0; r->of[i] == k && st->kind == INSN_WAIT &&
                        j < wait_count(&st->wait);
             j++) {
            struct insn_event e = wait_event(&st->wait, j);

            if (e.dev != x->dev->prog->dev)
                gpu_ahead_add(x, &device_of(x->set, e.dev)->event[e.event].v,
                              false, i);
        }
    }
}

pl_status gpu_graph_insn(struct gpu_device *x, int i, bool *is_in,
                         bool *is_first, pl_err *err)
{
    const struct gpu_cached_graph *r = x->graphs.now;
    int k = r ? r->of[i] : -1;

    *is_in = k >= 0;
    *is_first = k >= 0 && r->segment[k].first == i;
    if (!*is_first)
        return PL_OK;
    add_points(x, r, k);
    return x->driver->graph_run(x->gpu, r->variant->insn[i].queue,
                                r->segment[k].graph, err);
}

void gpu_graph_end(struct gpu_device *x)
{
    for (int i = 0; i < GPU_GRAPH_RUNS; i++)
        forget(x, &x->graphs.recording[i]);
    memset(&x->graphs, 0, sizeof x->graphs);
}
