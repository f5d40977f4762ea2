/* Collectives between devices that share no memory: by inboxes.
 *
 * In *one shot* each device pushes what a peer needs into that peer's inbox,
 * posts, waits for the posts of all, and merges what it received. A sum of many
 * rows over three devices or more takes *two shots*: each device sums its part
 * of the value, a range of its elements, pushes the result to all, and merges
 * their ranges. The additions are the same along the same tree, so the number
 * of rows decides at run time; the pass "transfer" chose the limit. The size of
 * staging buffers does not grow with the number of devices.
 *
 * Between machines of several devices each, a sum takes *three shots*, so that
 * its value crosses the network once: the devices of each machine sum their
 * ranges of the machine's addends, a subtree of the ranks; the devices of all
 * machines that have the same range exchange these sums; and the devices of
 * each machine push their ranges to each other.
 *
 *            inbox: peers write, the MERGE reads once       work
 *   sum      staging: an entry for each addend         ->   the result
 *   gather   gather buffer: the peers' parts           ->   the result
 *   last     gather buffer: the peers' ranges          ->   the result
 *
 * So no kernel computes in an inbox. The result is in the device's own memory,
 * wherever the inbox is. Peers may push the next collective as soon as they
 * have passed this one, which they do when this device has posted. So memory in
 * the inbox belongs to a collective from the device's POST of the collective
 * before. */
#include "lower/lower_collective.h"
#include "lower/lower_transfer.h"

#include "base/err.h"
#include "graph/shape.h"

#include <string.h>

/* The copies to one peer. */
struct peer_push {
    struct push_to to;
    const struct copy_desc *p;
    int n;
};

/* The copies that one device pushes to its peers. */
struct pushes {
    int n;
    struct peer_push *peer_push; /* [shards] */
    struct copy_desc *range;     /* [shards] copies made for one PUSH */
};

/* The collective of one group that is being emitted. */
struct exchange {
    struct lower *w;
    int n;
    const struct lower_group *g;
    /* number of adjacent shards that share a sum by ranges: those of a machine
     * if it sums first, else all */
    int width;
    const int *item;          /* [n] conversions */
    struct lower_item *it;    /* [shards][n] */
    const pl_dim *bytes;      /* [2] */
    struct insn_event *event; /* [shards] of the current shot */
    struct pushes out;
};

static struct lower_item *item_of(const struct exchange *e, int k, int j)
{
    return &e->it[k * e->n + j];
}

static int dev_of(const struct exchange *e, int k)
{
    return lower_dev(e->w, e->g->first + k);
}

static bool is_all_reduce(const struct exchange *e, int j)
{
    return e->w->num->node[e->item[j]].kind == NUM_ALL_REDUCE;
}

/* ---- one PUSH to many ---------------------------------------------------- */

static bool piece_equal(const struct copy_desc *a, const struct copy_desc *b)
{
    return a->src_dev == b->src_dev && a->src == b->src &&
           dim_equal(a->src_off, b->src_off) &&
           dim_equal(a->dst_off, b->dst_off) && a->src_const == b->src_const &&
           a->dst_const == b->dst_const && dim_equal(a->bytes, b->bytes) &&
           dim_equal(a->n0, b->n0) && dim_equal(a->src_s0, b->src_s0) &&
           dim_equal(a->dst_s0, b->dst_s0) && dim_equal(a->n1, b->n1) &&
           dim_equal(a->src_s1, b->src_s1) && dim_equal(a->dst_s1, b->dst_s1);
}

static bool same_pieces(const struct peer_push *a, const struct peer_push *b)
{
    bool same = a->n == b->n;

    for (int i = 0; same && a->p != b->p && i < a->n; i++)
        same = piece_equal(&a->p[i], &b->p[i]);
    return same;
}

static void push_later(struct pushes *x, int dev, int out, size_t at,
                       const struct copy_desc *p, int n)
{
    if (n > 0)
        x->peer_push[x->n++] = (struct peer_push){{dev, out, at}, p, n};
}

/* Emits one PUSH to the peers x[n], each of which gets the same copies, or if
 * `scatter` one copy. */
static pl_status emit_push(struct lower *w, int from, const struct peer_push *x,
                           int n, bool scatter)
{
    int n_piece = scatter ? n : x->n;
    struct push_to *to = arena_alloc(w->a, (size_t)n, sizeof *to);
    struct copy_desc *p = arena_alloc(w->a, (size_t)n_piece, sizeof *p);
    struct insn s = {.kind = INSN_PUSH, .node = -1};

    PL_TRY(lower_memory(w));
    for (int i = 0; i < n; i++)
        to[i] = x[i].to;
    for (int i = 0; i < n_piece; i++)
        p[i] = scatter ? x[i].p[0] : x->p[i];
    s.push = (struct insn_push){.n_to = n,
                                .to = to,
                                .piece = p,
                                .n_piece = n_piece,
                                .scatter = scatter};
    return lower_insn(w, from, &s);
}

/* Emits as few PUSHes as possible: neighbours that get the same copies, or one
 * copy each, share one. */
static pl_status emit_merged_pushes(struct lower *w, int from, struct pushes *x)
{
    for (int k = 0, n; k < x->n; k += n) {
        bool scatter;

        for (n = 1; k + n < x->n; n++)
            if (!same_pieces(&x->peer_push[k], &x->peer_push[k + n]))
                break;
        scatter = n == 1 && x->peer_push[k].n == 1;
        while (scatter && k + n < x->n && x->peer_push[k + n].n == 1)
            n++;
        PL_TRY(emit_push(w, from, x->peer_push + k, n, scatter && n > 1));
    }
    x->n = 0;
    return PL_OK;
}

/* ---- staging ------------------------------------------------------------- */

/* The staging buffer in shard k's inbox for the addends of one sum: an entry
 * for each that is received. */
struct staging {
    int tensor, n;
    size_t entry_bytes; /* bytes of each */
};

/* Returns the number of addends that shard k does not have itself. */
static int n_remote(const struct exchange *e, int k, const struct merge_item *m)
{
    int n = 0;

    for (int a = 0; a < m->n_addend; a++)
        n += m->addend[a].dev != dev_of(e, k);
    return n;
}

/* `bytes` is the largest size of an addend, or of the part of it that is summed
 * here. */
static pl_status make_staging(const struct exchange *e, int k,
                              const struct merge_item *m, size_t bytes,
                              struct staging *b)
{
    pl_dim size = {0, PL_CONST};

    *b = (struct staging){.entry_bytes = (bytes + 63) / 64 * 64};
    size.n = n_remote(e, k, m) * (int64_t)(b->entry_bytes / 4);
    return lower_inbox_tensor(e->w, dev_of(e, k), PL_F32, 1, &size,
                              lower_free_from(e->w, e->g->first + k), 0,
                              &b->tensor);
}

/* Makes *ad refer to the next entry of the staging buffer. Sets *at to the
 * offset of the entry. */
static void add_staged_addend(const struct exchange *e, int k,
                              struct staging *b, struct merge_addend *ad,
                              pl_dim skip, size_t *at)
{
    *at = (size_t)b->n++ * b->entry_bytes;
    *ad = (struct merge_addend){.dev = dev_of(e, k),
                                .tensor = b->tensor,
                                .off = *at,
                                .skip = skip,
                                .n_add = ad->n_add};
}

/* Sets *tensor to a tensor of the addend's entry alone. */
static pl_status entry_of(const struct exchange *e, int j,
                          const struct merge_addend *ad, int *tensor)
{
    const struct graph_node *x = lower_node(e->w, e->item[j]);

    *tensor = ad->tensor;
    return ad->off ? lower_alias(e->w, ad->dev, ad->tensor, x->n_dim, x->dim,
                                 ad->off, tensor)
                   : PL_OK;
}

/* Sets *out to the copies p[n] of the parts of a sum that shard k computes,
 * from an entry of the sender to the same offsets of an entry. A single copy is
 * kept in e->out.range until all are pushed. */
static pl_status staged_copies(const struct exchange *e, int k,
                               const struct copy_desc *p, int n, int from,
                               int entry, const struct copy_desc **out)
{
    struct copy_desc *q = &e->out.range[k];

    if (n > 1)
        q = arena_alloc(e->w->a, (size_t)n, sizeof *q);
    PL_TRY(lower_memory(e->w));
    for (int i = 0; i < n; i++) {
        q[i] = p[i];
        q[i].src_dev = from;
        q[i].src = entry;
        q[i].dst_off = p[i].src_off;
        q[i].dst_const = p[i].src_const;
        q[i].dst_s0 = p[i].src_s0;
        q[i].dst_s1 = p[i].src_s1;
    }
    *out = q;
    return PL_OK;
}

/* ---- the range of elements that a shard sums ---------------------------- */

/* Returns true if each machine sums its addends first. */
static bool within_machines(const struct exchange *e)
{
    return e->width < e->g->n;
}

/* Returns the first of the shards that share ranges with shard k. */
static int first_peer(const struct exchange *e, int k)
{
    return k - k % e->width;
}

/* Returns the number of elements of the value, per n_tok or n_out. */
static pl_dim elements(const struct exchange *e, int j)
{
    const struct graph_node *x = lower_node(e->w, e->item[j]);

    return lower_product(x->dim, 0, x->n_dim, 1);
}

/* Returns the offset in bytes of range k, 0 to width. */
static pl_dim range_at(const struct exchange *e, int j, int k)
{
    pl_dim all = elements(e, j);

    return (pl_dim){all.n * k / e->width * 4, all.symbol};
}

/* Returns a copy of ranges a to b - 1. */
static struct copy_desc ranges_piece(const struct exchange *e, int j, int a,
                                     int b)
{
    pl_dim at = range_at(e, j, a), end = range_at(e, j, b);

    return (struct copy_desc){
        .src_off = at,
        .dst_off = at,
        .bytes = {end.n - at.n, at.symbol},
        .n0 = {1, PL_CONST},
        .n1 = {1, PL_CONST},
    };
}

/* Returns a copy of shard k's range. */
static struct copy_desc range_piece(const struct exchange *e, int j, int k)
{
    int own = k % e->width;

    return ranges_piece(e, j, own, own + 1);
}

/* ---- shots ------------------------------------------------------------- */

/* The staging buffers of a shot, [shards][n], and the items that read them.
 * ranges: each shard sums only its own range of a sum. most: maximum number of
 * rows; 0 if not limited. */
struct shot {
    bool ranges;
    int64_t most;
    struct staging *staging;
    struct merge_item *m;
};

/* Sets *first and *n to the addends of sum `m` that shard k's machine has, and
 * *depth to the entries that their sum needs on the stack. Sets *n_add to the
 * additions after the last that have other machines' addends. */
static void machine_addends(const struct exchange *e, int k,
                            const struct merge_item *m, int *first, int *n,
                            int *depth, int *n_add)
{
    int a = first_peer(e, k), height = 0;

    *first = *n = *depth = *n_add = 0;
    for (int i = 0; i < m->n_addend; i++) {
        bool here = false;

        for (int p = a; p < a + e->width; p++)
            here |= m->addend[i].dev == dev_of(e, p);
        if (!here)
            continue;
        if ((*n)++ == 0)
            *first = i;
        height -= *n_add;
        *n_add = m->addend[i].n_add;
        if (++height > *depth)
            *depth = height;
    }
    if (*n > 0)
        *n_add -= height - 1;
}

/* Makes shard k's item of a sum that of its machine's addends. The result is
 * its range alone. */
static pl_status sum_within_machine(const struct exchange *e, int k, int j,
                                    struct copy_desc *range,
                                    struct merge_item *m)
{
    struct merge_addend *last;
    pl_dim size = {range->bytes.n / 4, range->bytes.symbol};
    int first, n_add;

    machine_addends(e, k, &item_of(e, k, j)->m, &first, &m->n_addend, &m->depth,
                    &n_add);
    m->addend += first;
    range->dst_off = (pl_dim){0, PL_CONST};
    if (m->n_addend == 0) {
        m->reduce = false;
        m->n_piece = 0;
        return PL_OK;
    }
    last = (struct merge_addend *)&m->addend[m->n_addend - 1];
    last->n_add -= n_add;
    if (m->n_piece == 0)
        return PL_OK;
    return lower_tensor(e->w, dev_of(e, k), PL_F32, 1, &size, 1, &m->out, NULL);
}

/* Returns the largest number of bytes that shard k stages of one addend of sum
 * j. */
static size_t staged_bytes(const struct exchange *e, const struct shot *x,
                           int k, int j)
{
    const struct graph_sizes *max = &e->w->opt->max;
    const struct graph_sizes few =
        graph_sizes_of(max, x->most, x->most, max->n_seq);
    pl_dim all = elements(e, j);
    size_t bytes = (size_t)dim_value((pl_dim){all.n * 4, all.symbol}, max);

    if (x->ranges && is_all_reduce(e, j))
        return (size_t)dim_value(range_piece(e, j, k).bytes, max);
    if (x->most > 0) {
        size_t b = (size_t)dim_value((pl_dim){all.n * 4, all.symbol}, &few);

        bytes = b < bytes ? b : bytes;
    }
    return bytes;
}

/* Copies the items, whose addends are later changed to refer to staging
 * buffers. */
static pl_status open_shot(const struct exchange *e, struct shot *x)
{
    struct lower *w = e->w;
    size_t n = (size_t)(e->n * e->g->n) + 1;

    x->staging = arena_alloc(w->a, n, sizeof *x->staging);
    x->m = arena_alloc(w->a, n, sizeof *x->m);
    PL_TRY(lower_memory(w));
    for (int i = 0; i < e->g->n * e->n; i++) {
        struct merge_item *m = &x->m[i];
        int k = i / e->n, j = i % e->n;

        *m = item_of(e, k, j)->m;
        m->addend = arena_memdup(w->a, m->addend, (size_t)m->n_addend,
                                 sizeof *m->addend);
        PL_TRY(lower_memory(w));
        if (x->ranges && is_all_reduce(e, j)) {
            struct copy_desc *p = arena_alloc(w->a, 1, sizeof *p);

            PL_TRY(lower_memory(w));
            *p = range_piece(e, j, k);
            m->piece = p;
            m->n_piece = p->bytes.n > 0;
            if (within_machines(e))
                PL_TRY(sum_within_machine(e, k, j, p, m));
        }
        if (m->reduce && m->n_piece > 0)
            PL_TRY(make_staging(e, k, m, staged_bytes(e, x, k, j),
                                &x->staging[i]));
    }
    return PL_OK;
}

/* Returns a copy of shard k's range, from an entry of the sender to the
 * beginning of a staged one. */
static const struct copy_desc *range_copy(const struct exchange *e,
                                          const struct merge_item *m, int k,
                                          int from, int entry)
{
    struct copy_desc *p = &e->out.range[k];

    *p = *m->piece;
    p->src_dev = from;
    p->src = entry;
    p->dst_off = (pl_dim){0, PL_CONST};
    return p;
}

/* Pushes addend a of sum j from shard s to all that sum it in this shot. */
static pl_status push_addend(struct exchange *e, const struct shot *x, int s,
                             int j, int a)
{
    const struct merge_addend from = item_of(e, s, j)->m.addend[a];
    struct peer_push like = {.n = -1}; /* the copies that `p` was made from */
    const struct copy_desc *p = NULL;
    bool range = x->ranges && is_all_reduce(e, j);
    int entry, first = 0, n, depth, n_add;

    PL_TRY(entry_of(e, j, &from, &entry));
    if (range && within_machines(e))
        machine_addends(e, s, &item_of(e, s, j)->m, &first, &n, &depth, &n_add);
    for (int i = 1; i < e->g->n; i++) { /* each begins with its neighbour */
        int k = (s + i) % e->g->n;
        struct merge_item *m = &x->m[k * e->n + j];
        struct staging *b = &x->staging[k * e->n + j];
        const struct peer_push now = {.p = m->piece, .n = m->n_piece};
        size_t at;

        if (m->n_piece == 0 || (range && first_peer(e, k) != first_peer(e, s)))
            continue;
        if (range) {
            p = range_copy(e, m, k, from.dev, entry);
        } else if (!same_pieces(&like, &now)) {
            PL_TRY(
                staged_copies(e, k, m->piece, m->n_piece, from.dev, entry, &p));
            like = now;
        }
        add_staged_addend(
            e, k, b, (struct merge_addend *)&m->addend[a - first],
            range ? range_at(e, j, k % e->width) : (pl_dim){0, PL_CONST}, &at);
        push_later(&e->out, dev_of(e, k), b->tensor, at, p, m->n_piece);
    }
    return emit_merged_pushes(e->w, from.dev, &e->out);
}

/* ---- gather buffers ------------------------------------------------------ */

/* Allocates the gather buffer in shard k's inbox for the parts of value j that
 * peers have. It is laid out like the result. */
static pl_status alloc_gather_buffer(const struct exchange *e, int k, int j)
{
    struct lower_item *it = item_of(e, k, j);
    int d = dev_of(e, k);
    const struct prog_tensor out = e->w->dev[d].tensor[it->m.out];

    return lower_inbox_tensor(e->w, d, out.format, out.n_dim, out.dim,
                              lower_free_from(e->w, e->g->first + k), 0,
                              &it->room);
}

/* Returns a copy from shard k's gather buffer to the same offset of the
 * result. */
static struct copy_desc gather_copy(const struct exchange *e, int k, int j,
                                    const struct copy_desc *came)
{
    struct copy_desc p = *came;

    p.src_dev = dev_of(e, k);
    p.src = item_of(e, k, j)->room;
    p.src_off = p.dst_off;
    p.src_const = p.dst_const;
    p.src_s0 = p.dst_s0;
    p.src_s1 = p.dst_s1;
    return p;
}

/* Makes gathers read the parts of peers from gather buffers. */
static pl_status gather_from_buffers(const struct exchange *e)
{
    for (int i = 0; i < e->g->n * e->n; i++) {
        int k = i / e->n, j = i % e->n;
        struct lower_item *it = &e->it[i];
        struct lower_pieces p = {0};

        if (it->m.reduce || it->remote.n == 0)
            continue;
        PL_TRY(alloc_gather_buffer(e, k, j));
        for (int b = 0; b < it->m.n_piece; b++)
            PL_TRY(lower_add_piece(e->w, &p, &it->m.piece[b]));
        for (int b = 0; b < it->remote.n; b++) {
            const struct copy_desc c = gather_copy(e, k, j, &it->remote.p[b]);

            PL_TRY(lower_add_piece(e->w, &p, &c));
        }
        it->m.piece = p.p;
        it->m.n_piece = p.n;
    }
    return PL_OK;
}

/* Pushes the parts of gather j that shard s has to the gather buffers of all
 * others. */
static pl_status push_parts(struct exchange *e, int s, int j)
{
    for (int i = 1; i < e->g->n; i++) {
        int k = (s + i) % e->g->n, n;
        const struct lower_item *it = item_of(e, k, j);

        /* usually one iteration per peer */
        for (int b = 0; b < it->remote.n; b += n) {
            n = lower_same_source(it->remote.p + b, it->remote.n - b);
            if (it->remote.p[b].src_dev != dev_of(e, s))
                continue;
            if (e->out.n == e->g->n)
                PL_TRY(emit_merged_pushes(e->w, dev_of(e, s), &e->out));
            push_later(&e->out, dev_of(e, k), it->room, 0, it->remote.p + b, n);
        }
    }
    return emit_merged_pushes(e->w, dev_of(e, s), &e->out);
}

/* ---- the order of the shots ---------------------------------------------- */

/* Allocates the events of a shot. Each shot has an array of its own, because
 * WAITs refer to it. */
static pl_status new_events(struct exchange *e)
{
    e->event = arena_alloc(e->w->a, (size_t)e->g->n, sizeof *e->event);
    return lower_memory(e->w);
}

/* Posts that shard k has pushed, as event `slot` of the shot. */
static pl_status post_pushed(const struct exchange *e, int k, int slot)
{
    e->event[slot].dev = dev_of(e, k);
    return lower_post(e->w, dev_of(e, k), QUEUE_COMPUTE, &e->event[slot].event);
}

/* Waits until the shards of n events have pushed. */
static pl_status wait_pushed(const struct exchange *e, int k, int first, int n)
{
    return lower_wait_all(e->w, dev_of(e, k), e->event + first, n);
}

/* Emits a MERGE of shard k, of those items of m[n] that have copies. */
static pl_status merge_some(const struct exchange *e, int k,
                            const struct merge_item *m)
{
    struct lower *w = e->w;
    struct merge_item *some = arena_alloc(w->a, (size_t)e->n, sizeof *some);
    struct insn s = {.kind = INSN_MERGE,
                     .node = w->num->node[e->item[0]].node,
                     .merge = {.item = some}};

    PL_TRY(lower_memory(w));
    for (int j = 0; j < e->n; j++)
        if (m[j].n_piece > 0)
            some[s.merge.n_item++] = m[j];
    return s.merge.n_item > 0 ? lower_insn(w, dev_of(e, k), &s) : PL_OK;
}

/* Emits the first shot: all push, and each merges what it received. */
static pl_status first_shot(struct exchange *e, struct shot *x)
{
    bool near = x->ranges; /* all values come from shards that share ranges */

    for (int j = 0; j < e->n; j++)
        near &= is_all_reduce(e, j);
    PL_TRY(new_events(e));
    PL_TRY(open_shot(e, x));
    for (int s = 0; s < e->g->n; s++) {
        for (int j = 0; j < e->n; j++) {
            const struct merge_item *m = &item_of(e, s, j)->m;

            for (int a = 0; m->reduce && a < m->n_addend; a++)
                if (m->addend[a].dev == dev_of(e, s))
                    PL_TRY(push_addend(e, x, s, j, a));
            if (!m->reduce)
                PL_TRY(push_parts(e, s, j));
        }
        PL_TRY(post_pushed(e, s, s));
    }
    for (int k = 0; k < e->g->n; k++) {
        struct insn s = {.queue = QUEUE_COMPUTE};

        PL_TRY(wait_pushed(e, k, near ? first_peer(e, k) : 0,
                           near ? e->width : e->g->n));
        PL_TRY(lower_merge(e->w, e->g->first + k, e->n, e->item,
                           x->m + k * e->n, e->bytes, &s));
    }
    return PL_OK;
}

/* Sets *m to the sum of the machines' sums of shard k's range. */
static pl_status sum_machines(const struct exchange *e, const struct shot *x,
                              int k, int j, struct merge_item *m)
{
    const struct merge_item *all = &item_of(e, k, j)->m;
    struct copy_desc *p = arena_alloc(e->w->a, 1, sizeof *p);
    struct merge_addend *addend =
        arena_alloc(e->w->a, (size_t)(e->g->n / e->width), sizeof *addend);
    int height = 0;

    PL_TRY(lower_memory(e->w));
    *p = range_piece(e, j, k);
    *m = (struct merge_item){.reduce = true,
                             .out = all->out,
                             .n_piece = p->bytes.n > 0,
                             .piece = p,
                             .addend = addend};
    for (int i = k % e->width; i < e->g->n; i += e->width) {
        int first, n, depth, n_add;

        machine_addends(e, i, all, &first, &n, &depth, &n_add);
        if (n == 0)
            continue;
        addend[m->n_addend++] =
            (struct merge_addend){.dev = dev_of(e, i),
                                  .tensor = x->m[i * e->n + j].out,
                                  .skip = range_at(e, j, k % e->width),
                                  .n_add = n_add};
        if (++height > m->depth)
            m->depth = height;
        height -= n_add;
    }
    return PL_OK;
}

/* Pushes the sum of shard s's machine to the shards of other machines that have
 * the same range, whose items are m[]. */
static pl_status push_machine_sum(struct exchange *e, int s, int j,
                                  const struct merge_item *m,
                                  struct staging *staging)
{
    struct copy_desc *p = &e->out.range[s];

    for (int k = s % e->width; k < e->g->n; k += e->width) {
        int i = k * e->n + j;
        size_t at;

        for (int a = 0; k != s && a < m[i].n_addend; a++) {
            struct merge_addend *ad = (struct merge_addend *)&m[i].addend[a];

            if (ad->dev != dev_of(e, s) || m[i].n_piece == 0)
                continue;
            *p = *m[i].piece;
            p->src_dev = ad->dev;
            p->src = ad->tensor;
            p->src_off = p->dst_off = (pl_dim){0, PL_CONST};
            add_staged_addend(e, k, &staging[i], ad, ad->skip, &at);
            push_later(&e->out, dev_of(e, k), staging[i].tensor, at, p, 1);
        }
    }
    return emit_merged_pushes(e->w, dev_of(e, s), &e->out);
}

/* Emits the shot between machines: each shard receives its range from other
 * machines, and sums it. */
static pl_status between_machines(struct exchange *e, const struct shot *x)
{
    struct lower *w = e->w;
    size_t size = (size_t)(e->n * e->g->n) + 1;
    struct merge_item *m = arena_alloc(w->a, size, sizeof *m);
    struct staging *staging = arena_alloc(w->a, size, sizeof *staging);
    int n_machine = e->g->n / e->width;

    PL_TRY(new_events(e));
    for (int i = 0; i < e->g->n * e->n; i++) {
        int k = i / e->n, j = i % e->n;

        if (!is_all_reduce(e, j))
            continue;
        PL_TRY(sum_machines(e, x, k, j, &m[i]));
        if (m[i].n_piece > 0)
            PL_TRY(make_staging(e, k, &m[i], staged_bytes(e, x, k, j),
                                &staging[i]));
    }
    for (int s = 0; s < e->g->n; s++) {
        for (int j = 0; j < e->n; j++)
            if (is_all_reduce(e, j))
                PL_TRY(push_machine_sum(e, s, j, m, staging));
        /* events of one range are adjacent */
        PL_TRY(post_pushed(e, s, s % e->width * n_machine + s / e->width));
    }
    for (int k = 0; k < e->g->n; k++) {
        PL_TRY(wait_pushed(e, k, k % e->width * n_machine, n_machine));
        PL_TRY(merge_some(e, k, m + k * e->n));
    }
    return PL_OK;
}

/* Pushes shard k's range of sum j, which it has summed, to the gather buffers
 * of those that share ranges with it. */
static pl_status push_sum(struct exchange *e, int k, int j)
{
    struct copy_desc *p = e->out.range;

    *p = range_piece(e, j, k);
    p->src_dev = dev_of(e, k);
    p->src = item_of(e, k, j)->m.out;
    for (int i = 1; i < e->width; i++) {
        int s = first_peer(e, k) + (k + i) % e->width;

        push_later(&e->out, dev_of(e, s), item_of(e, s, j)->room, 0, p,
                   p->bytes.n > 0);
    }
    return emit_merged_pushes(e->w, dev_of(e, k), &e->out);
}

/* Copies the ranges that shard k received to the result, beside its own. */
static pl_status take_sums(const struct exchange *e, int k)
{
    struct lower *w = e->w;
    struct merge_item *m = arena_alloc(w->a, (size_t)e->n, sizeof *m);
    int own = k % e->width;

    PL_TRY(lower_memory(w));
    for (int j = 0; j < e->n; j++) {
        struct lower_pieces p = {0};

        for (int i = 0; i < 2 && is_all_reduce(e, j); i++) {
            struct copy_desc c =
                ranges_piece(e, j, i ? own + 1 : 0, i ? e->width : own);

            c = gather_copy(e, k, j, &c);
            if (c.bytes.n > 0)
                PL_TRY(lower_add_piece(w, &p, &c));
        }
        m[j] = (struct merge_item){
            .out = item_of(e, k, j)->m.out, .n_piece = p.n, .piece = p.p};
    }
    return merge_some(e, k, m);
}

/* Emits the last shot: those that share ranges gather them. */
static pl_status last_shot(struct exchange *e)
{
    for (int i = 0; i < e->g->n * e->n; i++)
        if (is_all_reduce(e, i % e->n))
            PL_TRY(alloc_gather_buffer(e, i / e->n, i % e->n));
    PL_TRY(new_events(e));
    for (int k = 0; k < e->g->n; k++) {
        for (int j = 0; j < e->n; j++)
            if (is_all_reduce(e, j))
                PL_TRY(push_sum(e, k, j));
        PL_TRY(post_pushed(e, k, k));
    }
    for (int k = 0; k < e->g->n; k++) {
        PL_TRY(wait_pushed(e, k, first_peer(e, k), e->width));
        PL_TRY(take_sums(e, k));
    }
    return PL_OK;
}

/* Emits the two or three shots in which each shard sums its ranges. */
static pl_status shots_by_range(struct exchange *e)
{
    struct shot x = {.ranges = true};

    PL_TRY(first_shot(e, &x));
    if (within_machines(e))
        PL_TRY(between_machines(e, &x));
    return last_shot(e);
}

/* ---- one shot or several ------------------------------------------------- */

/* Returns what the rows of the collective's first AllReduce are, n_tok or
 * n_out; PL_CONST if it has none. */
static pl_symbol rows_of_sums(const struct exchange *e)
{
    for (int j = 0; j < e->n; j++) {
        pl_symbol s = elements(e, j).symbol;

        if (is_all_reduce(e, j) && (s == PL_N_TOK || s == PL_N_OUT))
            return s;
    }
    return PL_CONST;
}

/* Returns true if all values of the collective have such rows, so that the
 * number of rows limits the size of their staging buffers. */
static bool all_have_rows(const struct exchange *e, pl_symbol rows)
{
    for (int j = 0; j < e->n; j++)
        if (elements(e, j).symbol != rows)
            return false;
    return true;
}

/* Emits the collective twice, in one shot for up to `most` rows, and in several
 * for more. */
static pl_status emit_by_rows(struct exchange *e, pl_symbol rows, int64_t most)
{
    struct lower *w = e->w;
    const struct cursor was = w->now;
    struct shot one = {.most = all_have_rows(e, rows) ? most : 0};

    w->now.pred_out = rows == PL_N_OUT;
    w->now.max_rows = most;
    PL_TRY(first_shot(e, &one));
    w->now.min_rows = most + 1;
    w->now.max_rows = INT64_MAX;
    PL_TRY(shots_by_range(e));
    w->now = was;
    return PL_OK;
}

pl_status lower_collective_inbox(struct lower *w, int group, int n,
                                 const int *item, struct lower_item *it,
                                 const pl_dim bytes[2])
{
    const struct transfer_group *by = &w->transfers->group[group];
    bool within = by->exchange == EXCHANGE_MACHINE;
    struct exchange e = {.w = w,
                         .n = n,
                         .g = lower_group(w, group),
                         .width = within ? by->per_machine : by->n,
                         .item = item,
                         .it = it,
                         .bytes = bytes};
    struct shot all = {.most = 0};
    int first = w->variant.order; /* the POSTs of all that follows come later */
    pl_symbol rows = rows_of_sums(&e);

    e.out.peer_push =
        arena_alloc(w->a, (size_t)e.g->n, sizeof *e.out.peer_push);
    e.out.range = arena_alloc(w->a, (size_t)e.g->n, sizeof *e.out.range);
    PL_TRY(lower_memory(w));
    PL_TRY(gather_from_buffers(&e));
    if (by->one_shot_rows > 0 && rows != PL_CONST)
        PL_TRY(emit_by_rows(&e, rows, by->one_shot_rows));
    else
        PL_TRY(within ? shots_by_range(&e) : first_shot(&e, &all));
    for (int k = 0; k < e.g->n; k++)
        w->shard[e.g->first + k].collectives.reusable_from[w->now.micro] =
            first;
    return PL_OK;
}
