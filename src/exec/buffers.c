/* Linear scan over births with a free list; and hazards between steps. */
#include "exec/buffers.h"

#include <stdlib.h>

struct hole {
    size_t offset, bytes;
};

struct space {
    struct hole *hole; /* ascending offset, never adjacent */
    int n;
    size_t top;
};

static void give(struct space *s, size_t offset, size_t bytes)
{
    int i = s->n;

    while (i > 0 && s->hole[i - 1].offset > offset)
        i--;
    if (i > 0 && s->hole[i - 1].offset + s->hole[i - 1].bytes == offset) {
        s->hole[i - 1].bytes += bytes;
        if (i < s->n && offset + bytes == s->hole[i].offset) {
            s->hole[i - 1].bytes += s->hole[i].bytes;
            s->n--;
            for (; i < s->n; i++)
                s->hole[i] = s->hole[i + 1];
        }
        return;
    }
    if (i < s->n && offset + bytes == s->hole[i].offset) {
        s->hole[i].offset = offset;
        s->hole[i].bytes += bytes;
        return;
    }
    for (int k = s->n++; k > i; k--)
        s->hole[k] = s->hole[k - 1];
    s->hole[i] = (struct hole){offset, bytes};
}

static size_t take(struct space *s, size_t bytes)
{
    int best = -1;
    size_t offset;

    for (int i = 0; i < s->n; i++)
        if (s->hole[i].bytes >= bytes &&
            (best < 0 || s->hole[i].bytes < s->hole[best].bytes))
            best = i;
    if (best < 0) { /* grow; a hole at the top is used as a beginning */
        if (s->n &&
            s->hole[s->n - 1].offset + s->hole[s->n - 1].bytes == s->top) {
            offset = s->hole[--s->n].offset;
        } else {
            offset = s->top;
        }
        s->top = offset + bytes;
        return offset;
    }
    offset = s->hole[best].offset;
    s->hole[best].offset += bytes;
    s->hole[best].bytes -= bytes;
    if (s->hole[best].bytes == 0) {
        s->n--;
        for (int i = best; i < s->n; i++)
            s->hole[i] = s->hole[i + 1];
    }
    return offset;
}

struct order {
    int birth, death, id;
};

static int by_birth(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    return x->birth != y->birth ? (x->birth > y->birth) - (x->birth < y->birth)
                                : (x->id > y->id) - (x->id < y->id);
}

static int by_death(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    return x->death != y->death ? (x->death > y->death) - (x->death < y->death)
                                : (x->id > y->id) - (x->id < y->id);
}

bool buffers_place(struct buffer *b, int n, size_t *total)
{
    struct order *born = malloc(((size_t)n + 1) * sizeof *born);
    struct order *dead = malloc(((size_t)n + 1) * sizeof *dead);
    struct space s = {.hole = malloc(((size_t)n + 1) * sizeof *s.hole)};
    bool ok = born && dead && s.hole;

    for (int i = 0; ok && i < n; i++)
        born[i] = dead[i] = (struct order){b[i].birth, b[i].death, i};
    if (ok) {
        int k = 0;

        qsort(born, (size_t)n, sizeof *born, by_birth);
        qsort(dead, (size_t)n, sizeof *dead, by_death);
        for (int i = 0; i < n; i++) {
            struct buffer *x = &b[born[i].id];

            for (; k < n && dead[k].death < x->birth; k++)
                if (b[dead[k].id].bytes)
                    give(&s, b[dead[k].id].offset, b[dead[k].id].bytes);
            x->offset = x->bytes ? take(&s, x->bytes) : 0;
        }
    }
    *total = s.top;
    free(born);
    free(dead);
    free(s.hole);
    return ok;
}

/* Ranges touched since the last meeting. */
struct touched {
    enum region region;
    size_t from, to;
    bool write;
    int instance; /* of the step */
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

static struct touched range(const struct prog_tensor *t, size_t entries,
                            size_t stride, bool write)
{
    size_t bytes = t->bytes;

    if (entries > 1)
        bytes = (entries - 1) * stride + t->bytes;
    return (struct touched){t->region, t->offset, t->offset + bytes, write, 0};
}

/* All threads have met before a step of this instance. Runs without it lack the
 * meeting too, so what earlier instances touched stays. */
static void met(struct hazards *h, int instance)
{
    int n = 0;

    for (int i = 0; i < h->n; i++)
        if (h->t[i].instance < instance)
            h->t[n++] = h->t[i];
    h->n = n;
}

enum { MAX_TOUCH = 512 };

/* What a step touches on its own device; n <= MAX_TOUCH, else -1 (meet). */
static int touches(const struct step *s, const struct prog_tensor *t, int dev,
                   struct touched *out)
{
    int n = 0;

    if (s->kind == STEP_OP || s->kind == STEP_Q8) {
        for (int i = 0; i < s->n_in; i++)
            if (s->in[i] >= 0)
                out[n++] = range(&t[s->in[i]], 1, 0, false);
        if (s->q8 >= 0)
            out[n++] = range(&t[s->q8], 1, 0, false);
        out[n++] =
            range(&t[s->out], s->tree.n_out > 1 ? (size_t)s->tree.n_out : 1,
                  s->out_stride, true);
    } else if (s->kind == STEP_PULL || s->kind == STEP_PAGES) {
        out[n++] =
            range(&t[s->out], s->tree.n_out > 1 ? (size_t)s->tree.n_out : 1,
                  s->out_stride, true);
        for (int i = 0; i < s->n_piece; i++)
            if (s->piece[i].src_dev == dev &&
                (i == 0 || s->piece[i - 1].src_dev != dev ||
                 s->piece[i].src != s->piece[i - 1].src)) {
                out[n++] = range(&t[s->piece[i].src], 1, 0, false);
                if (n > MAX_TOUCH - 8)
                    return -1;
            }
    } else if (s->kind == STEP_MERGE) {
        for (int m = 0; m < s->n_merge; m++) {
            const struct merge_item *it = &s->merge[m];

            if (n > MAX_TOUCH - 8)
                return -1;
            out[n++] = range(&t[it->out], 1, 0, true);
            for (int i = 0; it->reduce && i < it->n_addend; i++)
                if (it->addend[i].dev == dev) {
                    struct touched x =
                        range(&t[it->addend[i].tensor], 1, 0, false);

                    x.from += it->addend[i].off;
                    x.to += it->addend[i].off;
                    out[n++] = x;
                    if (n > MAX_TOUCH - 8)
                        return -1;
                }
            for (int i = 0; !it->reduce && i < it->n_piece; i++)
                if (it->piece[i].src_dev == dev &&
                    (i == 0 || it->piece[i - 1].src_dev != dev ||
                     it->piece[i].src != it->piece[i - 1].src)) {
                    out[n++] = range(&t[it->piece[i].src], 1, 0, false);
                    if (n > MAX_TOUCH - 8)
                        return -1;
                }
        }
    }
    return n;
}

/* ---- small steps ------------------------------------------------------- */

/* What a thread does in the time that threads take to meet twice. */
enum { FEW_VALUES = 4096, FEW_MACS = 16384 };

/* Of a run of a single token. */
static int64_t values(const struct prog_tensor *t)
{
    const struct graph_sizes one = {1, 1, 1};
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= dim_value(t->dim[i], &one);
    return n;
}

static bool is_small(const struct step *s, const struct prog_tensor *t)
{
    const int64_t parts = s->tree.n_out > 1 ? s->tree.n_out : 1;
    const struct graph_sizes one = {1, 1, 1};
    int64_t n = 0;

    switch (s->kind) {
    case STEP_PULL:
        for (int i = 0; i < s->n_piece; i++)
            n += dim_value(s->piece[i].bytes, &one) *
                 dim_value(s->piece[i].n0, &one) *
                 dim_value(s->piece[i].n1, &one);
        return n <= 4 * FEW_VALUES;
    case STEP_Q8:
        return values(&t[s->in[0]]) <= FEW_VALUES;
    case STEP_MERGE:
        for (int i = 0; i < s->n_merge; i++)
            n += values(&t[s->merge[i].out]);
        return n <= FEW_VALUES;
    case STEP_OP:
        if (s->op == OP_matmul && t[s->in[1]].pack)
            return parts * t[s->in[1]].pack->n_row * t[s->in[1]].pack->k <=
                   FEW_MACS;
        if (s->op == OP_matmul || s->op == OP_expert_matmul ||
            s->op == OP_expert_down || s->op == OP_attention ||
            s->op == OP_custom)
            return false;
        return parts *
                   values(&t[s->op == OP_cache_write ? s->in[1] : s->out]) <=
               FEW_VALUES;
    default:
        return false;
    }
}

/* ---- meetings ---------------------------------------------------------- */

/* Since the last meeting of all threads, in a run of a single token. */
struct singles {
    struct hazards all, alone; /* ranges touched by all threads; by the first */
    bool shared;               /* all threads have done something */
    bool ahead; /* others may not pass the first: it has met its peers */
};

static void singles_meet(struct singles *g)
{
    g->all.n = g->alone.n = 0;
    g->shared = g->ahead = false;
}

/* Sets what holds for runs of a single token; x[n] is what the step touches. */
static bool single_step(struct singles *g, struct step *s,
                        const struct prog_tensor *t, const struct touched *x,
                        int n, bool everything)
{
    bool meets = s->kind == STEP_MERGE && s->meet, ok = true;

    if (s->kind == STEP_POST) { /* all that is shared is complete */
        s->barrier_one = g->shared;
    } else if (s->queue == QUEUE_COPY || s->kind == STEP_WAIT) {
        s->barrier_one = s->kind != STEP_WAIT && g->ahead;
    } else {
        s->alone = !everything && is_small(s, t);
        s->barrier_one =
            everything || (s->alone ? meets && g->shared : g->ahead);
        for (int k = 0; k < n && !s->barrier_one; k++)
            s->barrier_one = clashes(&g->all, &x[k]) ||
                             (!s->alone && clashes(&g->alone, &x[k]));
        if (meets && !s->alone) { /* they meet anyhow */
            s->barrier_one = false;
            singles_meet(g);
        }
    }
    if (s->barrier_one)
        singles_meet(g);
    if (s->kind == STEP_POST || s->kind == STEP_WAIT)
        return true;
    g->shared |= !s->alone;
    g->ahead |= s->alone && meets;
    for (int k = 0; k < n && ok; k++)
        ok = touch(s->alone ? &g->alone : &g->all, &x[k]);
    return ok;
}

bool buffers_barriers(struct step *step, int n_step,
                      const struct prog_tensor *t, int dev)
{
    struct hazards h = {0};
    struct singles g = {.shared = false};
    struct touched *x = malloc(MAX_TOUCH * sizeof *x);
    bool ok = x != NULL;

    for (int i = 0; ok && i < n_step; i++) {
        struct step *s = &step[i];
        bool meet = false, everything;
        int n;

        if (s->queue == QUEUE_COPY || s->kind == STEP_WAIT ||
            s->kind == STEP_POST) {
            ok = single_step(&g, s, t, NULL, 0, false);
            if (s->kind == STEP_POST && s->queue != QUEUE_COPY) {
                s->barrier = true; /* what others wait for is complete */
                met(&h, s->instance);
            }
            continue; /* events order it */
        }
        n = touches(s, t, dev, x);
        everything = n < 0;
        meet = everything || (s->kind == STEP_MERGE && s->meet);
        for (int k = 0; k < n && !meet; k++)
            meet = clashes(&h, &x[k]);
        if (meet) {
            s->barrier = !(s->kind == STEP_MERGE && s->meet);
            met(&h, s->instance);
        }
        if (everything) { /* too much to look at */
            n = 0;
            for (int r = REGION_CACHE; r <= REGION_WORK; r++)
                x[n++] = (struct touched){(enum region)r, 0, SIZE_MAX, true, 0};
        }
        for (int k = 0; k < n; k++)
            x[k].instance = s->instance;
        for (int k = 0; k < n && ok; k++)
            ok = touch(&h, &x[k]);
        ok = ok && single_step(&g, s, t, x, n, everything);
    }
    free(h.t);
    free(g.all.t);
    free(g.alone.t);
    free(x);
    return ok;
}
