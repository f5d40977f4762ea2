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

bool buffers_barriers(struct step *step, int n_step,
                      const struct prog_tensor *t, int dev)
{
    struct hazards h = {0};
    struct touched *x = malloc(MAX_TOUCH * sizeof *x);
    bool ok = x != NULL;

    for (int i = 0; ok && i < n_step; i++) {
        struct step *s = &step[i];
        bool meet = false;
        int n;

        if (s->queue == QUEUE_COPY || s->kind == STEP_WAIT)
            continue; /* events order it */
        if (s->kind == STEP_POST) {
            s->barrier = true; /* what others wait for is complete */
            met(&h, s->instance);
            continue;
        }
        n = touches(s, t, dev, x);
        meet = n < 0 || (s->kind == STEP_MERGE && s->meet);
        for (int k = 0; k < n && !meet; k++)
            meet = clashes(&h, &x[k]);
        if (meet) {
            s->barrier = !(s->kind == STEP_MERGE && s->meet);
            met(&h, s->instance);
        }
        if (n < 0) { /* too many to look at: it touches everything */
            n = 0;
            for (int r = REGION_CACHE; r <= REGION_WORK; r++)
                x[n++] = (struct touched){(enum region)r, 0, SIZE_MAX, true, 0};
        }
        for (int k = 0; k < n; k++)
            x[k].instance = s->instance;
        for (int k = 0; k < n && ok; k++)
            ok = touch(&h, &x[k]);
    }
    free(h.t);
    free(x);
    return ok;
}
