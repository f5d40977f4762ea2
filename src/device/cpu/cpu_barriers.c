/* Finds the barriers that instructions need, from the ranges of memory that
 * they access. */
#include "device/cpu/cpu_barriers.h"

#include <stdlib.h>

/* A range of bytes of a region that an instruction accesses. */
struct touched {
    enum region region;
    size_t from, to;
    bool write;
    int micro; /* micro-batch of the instruction */
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

/* Called when all threads synchronize before an instruction of micro-batch
 * `micro`: removes the ranges accessed so far, which no longer conflict. Ranges
 * of earlier micro-batches stay, because a step that lacks this micro-batch
 * lacks the barrier, too. */
static void met(struct hazards *h, int micro)
{
    int n = 0;

    for (int i = 0; i < h->n; i++)
        if (h->t[i].micro < micro)
            h->t[n++] = h->t[i];
    h->n = n;
}

enum { MAX_TOUCH = 512 };

/* The ranges that an instruction accesses on device `dev`. */
struct reach {
    const struct prog_tensor *t;
    int dev, micro;
    struct touched *x; /* [MAX_TOUCH] */
    int n;             /* above MAX_TOUCH if there are too many ranges to
                          check */
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

/* Returns the access of an instruction to scratch, as a range of a pseudo
 * region. Each thread has its own scratch, but in attention threads read the
 * scratch of other threads. */
static struct touched scratch_of(const struct insn *s)
{
    bool shared =
        s->kind == INSN_KERNEL && kernel_is_attention(s->kernel.kernel);
    bool any = s->kind == INSN_KERNEL || s->kind == INSN_MERGE;

    return (struct touched){REGION_COUNT, 0, any, shared, s->micro};
}

/* Collects the ranges that an instruction accesses in *r. Returns false if
 * there are too many to check. */
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

/* ---- small instructions ------------------------------------------------ */

/* An instruction that computes at most this many values or multiply-adds is
 * small: one thread needs no longer for it than two barriers take. */
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

    if (w)
        return parts * w->n_row * w->k <= FEW_MACS;
    if (kernel_is_contraction(k->kernel) || kernel_is_attention(k->kernel) ||
        k->kernel == KERNEL_custom)
        return false;
    /* An updated tensor is written only in part; that part has the size of the
     * operand. */
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

/* ---- barriers ---------------------------------------------------------- */

/* The accesses since the last barrier of all threads, in a step of a single
 * token. */
struct singles {
    /* ranges accessed by all threads, and those accessed by the first thread
     * alone */
    struct hazards all, alone;
    bool shared; /* all threads have executed an instruction since the
                    barrier */
    /* The first thread has synchronized with other devices, so that the other
     * threads must wait for it. */
    bool ahead;
};

static void singles_meet(struct singles *g)
{
    g->all.n = g->alone.n = 0;
    g->shared = g->ahead = false;
}

/* Returns in how many of the two kinds of steps of a single token, with and
 * without an output, the instruction is executed: 0, 1 or 2. */
static int single_runs(const struct insn *s)
{
    const struct graph_sizes with = {1, 1, 1, {1, 1, 1, 1}};
    const struct graph_sizes without = {1, 0, 1, {1, 1, 1, 1}};

    if (s->max_rows == 0)
        return 2;
    return insn_predicate_holds(s, &with) + insn_predicate_holds(s, &without);
}

/* Sets the flags in *out that concern steps of a single token. x[n] are the
 * ranges that the instruction accesses. `everything` means that these are too
 * many, so that a barrier is always needed. Returns false if out of memory. */
static bool single_insn(struct singles *g, const struct insn *s,
                        const struct prog_tensor *t, const struct touched *x,
                        int n, bool everything, unsigned char *out)
{
    bool meets = insn_is_barrier(s), ok = true, alone = false, meet = false;
    bool sure = single_runs(s) == 2; /* if false, it is disabled in some
                                        steps */

    if (single_runs(s) == 0)
        return true;
    /* Before a POST all threads must have finished earlier instructions. */
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
        /* All threads synchronize in the instruction itself. */
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

/* Sets the flags in *out that concern all other steps. The parameters and the
 * result are those of single_insn(). */
static bool any_insn(struct hazards *h, const struct insn *s,
                     const struct touched *x, int n, bool everything,
                     unsigned char *out)
{
    bool meet = everything || insn_is_barrier(s), ok = true;

    for (int k = 0; k < n && !meet; k++)
        meet = clashes(h, &x[k]);
    if (meet) {
        *out |= insn_is_barrier(s) ? 0 : CPU_BARRIER;
        /* An instruction with a predicate may be skipped, and its barrier with
         * it. */
        if (s->max_rows == 0)
            met(h, s->micro);
    }
    for (int k = 0; k < n && ok; k++)
        ok = touch(h, &x[k]);
    return ok;
}

/* Returns the flags that do not depend on other instructions. */
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
        /* events, not barriers, order the instructions of the copy queue */
        if (s->queue == QUEUE_COPY || insn_is_event(s)) {
            ok = single_insn(&g, s, t, NULL, 0, false, &out[i]);
            if (s->kind == INSN_POST && s->queue != QUEUE_COPY) {
                /* A device that waits for the event relies on all earlier
                 * instructions. */
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
