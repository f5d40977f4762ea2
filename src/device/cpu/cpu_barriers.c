/* Finds between which instructions the threads of a device need a barrier, from
 * the ranges of memory that each instruction accesses. */
#include "device/cpu/cpu_barriers.h"

#include <stdlib.h>

/* A range of bytes, from .. to - 1, of a memory region, and how an instruction
 * accesses it. */
struct touched {
    enum region region;
    size_t from, to;
    bool write;
    int micro; /* index of the micro-batch to which the instruction belongs */
};

struct hazards {
    struct touched *t;
    int n, cap;
};

static bool clashes(const struct hazards *h, const struct touched *x)
{
    for (int i = 0; i < h->n; i++)
        if (h->t[i].region == x->region && (h->t[i].write || x->write) &&
            h->t[i].from < x->to && x->from < h->t[i].to)
            return true;
    return false;
}

static bool touch(struct hazards *h, const struct touched *x)
{
    if (x->from == x->to || (x->region == REGION_WEIGHTS))
        return true;
    if (h->n == h->cap) {
        int cap = h->cap ? 2 * h->cap : 64;
        struct touched *t = realloc(h->t, (size_t)cap * sizeof *t);

        if (!t)
            return false;
        h->t = t;
        h->cap = cap;
    }
    h->t[h->n++] = *x;
    return true;
}

/* Called when all threads of the device synchronize before an instruction of
 * micro-batch `micro`. Later instructions no longer conflict with the ranges
 * accessed before, so these are removed from *h. Ranges of earlier
 * micro-batches stay, because a step without micro-batch `micro` skips this
 * instruction and its barrier. */
static void met(struct hazards *h, int micro)
{
    int n = 0;

    for (int i = 0; i < h->n; i++)
        if (h->t[i].micro < micro)
            h->t[n++] = h->t[i];
    h->n = n;
}

enum { MAX_TOUCH = 512 };

/* The ranges of memory of device `dev` that one instruction accesses. */
struct reach {
    const struct prog_tensor *t;
    int dev, micro;
    struct touched *x; /* the ranges, in an array with space for MAX_TOUCH */
    /* Number of ranges in x. It is above MAX_TOUCH if the instruction accesses
     * more ranges than are checked. */
    int n;
};

static void add_use(void *user, const struct insn_access *u)
{
    struct reach *r = user;
    const struct prog_tensor *t;
    size_t from;

    if (u->dev != r->dev)
        return;
    if (r->n >= MAX_TOUCH) {
        r->n = MAX_TOUCH + 1;
        return;
    }
    t = &r->t[u->tensor];
    from = t->offset + u->off;
    r->x[r->n++] = (struct touched){t->region, from,
                                    from + (u->bytes ? u->bytes : t->bytes),
                                    (u->access & ACCESS_WRITE) != 0, r->micro};
}

/* Returns an instruction's access to thread scratch, as a range of a made-up
 * region. It is a write only for attention and indexers, whose threads read
 * each other's scratch. Other kernels use only their own thread's scratch. */
static struct touched scratch_of(const struct insn *s)
{
    bool shared =
        s->kind == INSN_KERNEL && (kernel_is_attention(s->kernel.kernel) ||
                                   kernel_is_index(s->kernel.kernel));
    bool any = s->kind == INSN_KERNEL || s->kind == INSN_MERGE;

    return (struct touched){REGION_COUNT, 0, any, shared, s->micro};
}

/* Writes the ranges of memory that instruction s accesses to *r. Returns false
 * if they are too many to check. */
static bool touches(struct reach *r, const struct insn *s)
{
    r->n = 0;
    r->micro = s->micro;
    insn_accesses(s, r->dev, r->t, add_use, r);
    if (r->n >= MAX_TOUCH)
        return false;
    r->x[r->n++] = scratch_of(s);
    return true;
}

/* ---- small instructions, which one thread executes --------------------- */

/* If an instruction computes at most FEW_VALUES values, or a contraction at
 * most FEW_MACS multiply-adds, one thread computes it in no more time than two
 * barriers take. */
enum { FEW_VALUES = 4096, FEW_MACS = 16384 };

/* Returns the number of values of a tensor in a step of a single token. */
static int64_t values(const struct prog_tensor *t)
{
    const struct graph_sizes one = {1, 1, 1, {1, 1, 1, 1}};
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= dim_value(t->dim[i], &one);
    return n;
}

static bool kernel_is_small(const struct insn_kernel *k,
                            const struct prog_tensor *t)
{
    const int64_t parts = k->tree.n_out > 1 ? k->tree.n_out : 1;
    const struct pack *w =
        k->kernel == KERNEL_matmul ? t[k->arg[2].tensor].pack : NULL;
    int many, few;

    if (w)
        return parts * w->n_row * w->k <= FEW_MACS;
    if (kernel_is_contraction(k->kernel) ||
        kernel_maps_heads(k->kernel, &many, &few) || k->kernel == KERNEL_custom)
        return false;
    /* A kernel that updates a tensor, such as a cache, writes only part of it.
     * That part is as large as the operand, so the operand's values are
     * counted. */
    return parts *
               values(&t[k->arg[k->arg[0].access == ACCESS_UPDATE].tensor]) <=
           FEW_VALUES;
}

static bool is_small(const struct insn *s, const struct prog_tensor *t)
{
    const struct graph_sizes one = {1, 1, 1, {1, 1, 1, 1}};
    int64_t n = 0;

    switch (s->kind) {
    case INSN_KERNEL:
        return kernel_is_small(&s->kernel, t);
    case INSN_PULL:
        for (int i = 0; i < s->pull.n_piece; i++) {
            const struct copy_desc *p = &s->pull.piece[i];

            n += dim_value(p->bytes, &one) * dim_value(p->n0, &one) *
                 dim_value(p->n1, &one);
        }
        return n <= 4 * FEW_VALUES;
    case INSN_PUSH:
        for (int i = 0; i < s->push.n_piece; i++) {
            const struct copy_desc *p = &s->push.piece[i];

            n += dim_value(p->bytes, &one) * dim_value(p->n0, &one) *
                 dim_value(p->n1, &one);
        }
        return n * (s->push.scatter ? 1 : s->push.n_to) <= 4 * FEW_VALUES;
    case INSN_MERGE:
        for (int i = 0; i < s->merge.n_item; i++)
            n += values(&t[s->merge.item[i].out]);
        return n <= FEW_VALUES;
    default:
        return false;
    }
}

/* ---- barriers that each instruction needs ------------------------------ */

/* The ranges of memory accessed since the last barrier of all threads, for
 * steps of a single token. In these, the first thread executes small
 * instructions alone. */
struct singles {
    /* all: ranges that all threads accessed; alone: ranges that only the first
     * thread accessed, in the instructions it executes alone */
    struct hazards all, alone;
    /* true if all threads have executed an instruction since the last
     * barrier */
    bool shared;
    /* true if the first thread has synchronized with other devices while the
     * other threads of this device have not yet waited for it */
    bool ahead;
};

static void singles_meet(struct singles *g)
{
    g->all.n = g->alone.n = 0;
    g->shared = g->ahead = false;
}

/* A step of a single token computes either one row of logits or none. Returns
 * in how many of these two cases the instruction is executed: 0, 1 or 2. */
static int single_runs(const struct insn *s)
{
    const struct graph_sizes with = {1, 1, 1, {1, 1, 1, 1}};
    const struct graph_sizes without = {1, 0, 1, {1, 1, 1, 1}};

    if (s->max_rows == 0)
        return 2;
    return insn_predicate_holds(s, &with) + insn_predicate_holds(s, &without);
}

/* Adds the flags for steps of a single token to *out. x[n] are the ranges of
 * memory that instruction s accesses. `everything` means that it accesses too
 * many ranges to check, so that it always needs a barrier. Returns false if out
 * of memory. */
static bool single_insn(struct singles *g, const struct insn *s,
                        const struct prog_tensor *t, const struct touched *x,
                        int n, bool everything, unsigned char *out)
{
    bool meets = insn_is_barrier(s), ok = true, alone = false, meet = false;
    /* true if the instruction runs in every step of a single token, so that its
     * barrier can be relied on */
    bool sure = single_runs(s) == 2;

    if (single_runs(s) == 0)
        return true;
    /* Before a POST, all threads must have finished the earlier instructions,
     * because the POST tells other devices that these are complete. */
    if (s->kind == INSN_POST) {
        meet = g->shared;
    } else if (s->queue == QUEUE_COPY || s->kind == INSN_WAIT) {
        meet = s->kind != INSN_WAIT && g->ahead;
    } else {
        alone = sure && !everything && is_small(s, t);
        meet = everything || (alone ? meets && g->shared : g->ahead);
        for (int k = 0; k < n && !meet; k++)
            meet = clashes(&g->all, &x[k]) ||
                   (!alone && clashes(&g->alone, &x[k]));
        /* In an instruction that synchronizes devices, such as a collective,
         * all threads of this device synchronize too. No further barrier is
         * needed. */
        if (meets && !alone) {
            meet = false;
            if (sure)
                singles_meet(g);
        }
    }
    *out |= (unsigned char)((alone ? CPU_FIRST_THREAD : 0) |
                            (meet ? CPU_BARRIER_DECODE : 0));
    if (meet && sure)
        singles_meet(g);
    if (insn_is_event(s))
        return true;
    g->shared |= !alone;
    g->ahead |= alone && meets;
    for (int k = 0; k < n && ok; k++)
        ok = touch(alone ? &g->alone : &g->all, &x[k]);
    return ok;
}

/* Adds the flag CPU_BARRIER to *out if instruction s needs a barrier before it
 * in steps of more than one token. x[n] are the ranges of memory that s
 * accesses. `everything` means that these are too many to check. Returns false
 * if out of memory. */
static bool any_insn(struct hazards *h, const struct insn *s,
                     const struct touched *x, int n, bool everything,
                     unsigned char *out)
{
    bool meet = everything || insn_is_barrier(s), ok = true;

    for (int k = 0; k < n && !meet; k++)
        meet = clashes(h, &x[k]);
    if (meet) {
        *out |= insn_is_barrier(s) ? 0 : CPU_BARRIER;
        /* An instruction with a predicate may be skipped, and the barrier
         * before it with it. Later instructions cannot rely on that barrier. */
        if (s->max_rows == 0)
            met(h, s->micro);
    }
    for (int k = 0; k < n && ok; k++)
        ok = touch(h, &x[k]);
    return ok;
}

/* Returns the flags of an instruction that follow from the instruction
 * alone. */
static unsigned char traits(const struct insn *s)
{
    bool counted = insn_is_group_copy(s) || insn_is_collective(s) ||
                   (s->kind == INSN_KERNEL && s->kernel.n_cost > 0);
    bool timed = insn_is_collective(s) || insn_is_transfer(s);

    return (
        unsigned char)((s->micro == 0 && s->max_rows == 0 ? CPU_ALWAYS : 0) |
                       (counted ? CPU_COUNTED : 0) | (timed ? CPU_TIMED : 0));
}

bool cpu_barriers(const struct variant *c, const struct prog_tensor *t, int dev,
                  unsigned char *out)
{
    struct hazards h = {0};
    struct singles g = {.shared = false};
    struct reach r = {.t = t, .dev = dev};
    bool ok = (r.x = malloc(MAX_TOUCH * sizeof *r.x)) != NULL;

    for (int i = 0; ok && i < c->n_insn; i++) {
        const struct insn *s = &c->insn[i];
        bool everything;

        out[i] = traits(s);
        /* The instructions of the copy queue are ordered by events, so they
         * need no barriers. */
        if (s->queue == QUEUE_COPY || insn_is_event(s)) {
            ok = single_insn(&g, s, t, NULL, 0, false, &out[i]);
            if (s->kind == INSN_POST && s->queue != QUEUE_COPY) {
                /* A device that waits for the event of this POST relies on all
                 * earlier instructions of this device being complete. */
                out[i] |= CPU_BARRIER;
                if (s->max_rows == 0)
                    met(&h, s->micro);
            }
            continue;
        }
        everything = !touches(&r, s);
        if (everything) {
            r.n = 0;
            for (int k = REGION_CACHE; k < REGION_COUNT; k++)
                r.x[r.n++] = (struct touched){(enum region)k, 0, SIZE_MAX, true,
                                              s->micro};
            r.x[r.n++] = scratch_of(s);
        }
        ok = any_insn(&h, s, r.x, r.n, everything, &out[i]) &&
             single_insn(&g, s, t, r.x, r.n, everything, &out[i]);
    }
    free(h.t);
    free(g.all.t);
    free(g.alone.t);
    free(r.x);
    return ok;
}
