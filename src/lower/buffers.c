/* Linear scan over births with a free list. */
#include "lower/buffers.h"

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
    int birth, dead, id;
};

static int by_birth(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    return x->birth != y->birth ? (x->birth > y->birth) - (x->birth < y->birth)
                                : (x->id > y->id) - (x->id < y->id);
}

static int by_dead(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    return x->dead != y->dead ? (x->dead > y->dead) - (x->dead < y->dead)
                              : (x->id > y->id) - (x->id < y->id);
}

bool buffers_place(struct buffer *b, int n_buffer, enum region region, int rest,
                   size_t *total)
{
    int n = 0;
    struct order *born = malloc(((size_t)n_buffer + 1) * sizeof *born);
    struct order *dead = malloc(((size_t)n_buffer + 1) * sizeof *dead);
    struct space s = {.hole = malloc(((size_t)n_buffer + 1) * sizeof *s.hole)};
    bool ok = born && dead && s.hole;

    for (int i = 0; ok && i < n_buffer; i++)
        if (b[i].region == region) {
            born[n] = (struct order){b[i].birth, b[i].death, i};
            dead[n] = born[n];
            n++;
        }
    if (ok) {
        int k = 0;

        qsort(born, (size_t)n, sizeof *born, by_birth);
        qsort(dead, (size_t)n, sizeof *dead, by_dead);
        for (int i = 0; i < n; i++) {
            struct buffer *x = &b[born[i].id];

            for (; k < n && dead[k].dead + rest < x->birth; k++)
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
