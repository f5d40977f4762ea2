/* Linear scan over births with a free list. */
#include "lower/buffers.h"

#include "base/err.h"

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

/* ---- the pass ------------------------------------------------------------ */

/* Number of instructions for which unused memory of a device with private
 * memory is not used again. The device may execute an instruction in one launch
 * with an earlier one, if the earlier one does not access what it writes
 * (device/gpu/gpu_fuse.h). With three, matrices of the same rows are one launch
 * with what is added to their results. */
enum { REST = 3 };

/* The buffers of one variant of a device. */
struct lives {
    const struct program *p;
    const struct variant *k;
    int at;           /* the instruction whose accesses are recorded */
    bool bad;         /* a tensor that does not exist is named */
    int first, n;     /* they are among p->buffer[first .. first + n) */
    struct buffer *b; /* [n]; buffers of other variants have 0 bytes */
};

/* Sets the range that has all buffers of the variant. */
static void find_buffers(struct lives *x, int variant)
{
    const struct prog_buffer *b = x->p->buffer;
    int end = x->p->n_buffer;

    x->first = 0;
    while (x->first < end && b[x->first].variant != variant)
        x->first++;
    while (end > x->first && b[end - 1].variant != variant)
        end--;
    x->n = end - x->first;
}

/* Returns the index in x->b of a tensor's buffer; -1 if it has none there. */
static int buffer_of(const struct lives *x, int tensor)
{
    int b = tensor >= 0 ? x->p->in_buffer[tensor] - x->first : -1;

    return b < x->n ? b : -1;
}

static void touch(const struct lives *x, int tensor, int at)
{
    int b = buffer_of(x, tensor);

    if (b >= 0 && x->b[b].death < at)
        x->b[b].death = at;
}

static void note_access(void *user, const struct insn_access *u)
{
    struct lives *x = user;

    if (u->dev == x->p->dev && u->tensor >= x->p->n_tensor)
        x->bad = true;
    else if (u->dev == x->p->dev)
        touch(x, u->tensor, x->at);
}

/* Returns the index of the first instruction at position `order` of the total
 * order, or after it. The search begins at index `near`. */
static int insn_from(const struct variant *k, int order, int near)
{
    int low = 0, high = k->n_insn;

    if (near > 0 && k->insn[near - 1].order < order)
        for (low = near; low < near + 8; low++)
            if (low == high || k->insn[low].order >= order)
                return low;
    while (low < high) {
        int mid = low + (high - low) / 2;

        if (k->insn[mid].order < order)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void measure(struct lives *x, int variant)
{
    int at = 0;

    for (int i = 0; i < x->n; i++) {
        const struct prog_buffer *b = &x->p->buffer[x->first + i];
        int born = b->born < 0 ? -1 : insn_from(x->k, b->born, at);

        at = born;
        x->b[i] = (struct buffer){b->variant == variant ? b->bytes : 0, born,
                                  born, 0, b->region};
    }
    for (x->at = 0; x->at < x->k->n_insn; x->at++)
        insn_accesses(&x->k->insn[x->at], x->p->dev, NULL, note_access, x);
    at = 0;
    for (int i = 0; i < x->k->n_hold; i++) {
        int end = at = insn_from(x->k, x->k->hold[i].until, at);

        touch(x, x->k->hold[i].tensor, end < x->k->n_insn ? end - 1 : end);
    }
}

static int by_insn(const void *a, const void *b)
{
    const struct dead_range *x = a, *y = b;

    if (x->insn != y->insn)
        return (x->insn > y->insn) - (x->insn < y->insn);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Lists when memory of the work region becomes unused, for devices that
 * overwrite such memory (dead_range). The inbox has no such list, because peers
 * may write there before this device reaches the instruction after which the
 * memory is free. */
static bool list_dead(const struct lives *x, struct variant *k, struct arena *a)
{
    struct dead_range *dead = arena_alloc(a, (size_t)x->n + 1, sizeof *dead);

    if (!dead)
        return false;
    k->n_dead = 0;
    for (int i = 0; i < x->n; i++)
        if (x->b[i].region == REGION_WORK && x->b[i].bytes &&
            x->b[i].death < k->n_insn)
            dead[k->n_dead++] = (struct dead_range){
                x->b[i].death, x->b[i].offset, x->b[i].bytes};
    qsort(dead, (size_t)k->n_dead, sizeof *dead, by_insn);
    k->dead = dead;
    return true;
}

static pl_status place_variant(struct program *p, int variant, bool is_private,
                               struct arena *a, pl_err *err)
{
    struct variant *k = (struct variant *)&p->variant[variant];
    struct prog_tensor *t = (struct prog_tensor *)p->tensor;
    struct lives x = {.p = p, .k = k};
    bool ok;

    if (p->n_buffer == 0) { /* all tensors have places */
        k->n_hold = 0;
        k->hold = NULL;
        return PL_OK;
    }
    find_buffers(&x, variant);
    x.b = malloc(((size_t)x.n + 1) * sizeof *x.b);
    ok = x.b != NULL;
    if (ok)
        measure(&x, variant);
    if (x.bad) {
        free(x.b);
        return err_set(err, PL_BAD_ARGUMENT,
                       "device %d names a tensor that does not exist", p->dev);
    }
    for (int r = REGION_WORK; ok && r <= REGION_INBOX; r++) {
        int rest = r == REGION_WORK && is_private ? REST : 0;
        size_t bytes;

        ok = buffers_place(x.b, x.n, (enum region)r, rest, &bytes);
        if (ok && bytes > p->bytes[r])
            p->bytes[r] = bytes;
    }
    for (int i = 0; ok && i < p->n_tensor; i++) {
        int b = buffer_of(&x, i);

        if (b >= 0 && p->buffer[x.first + b].variant == variant)
            t[i].offset += x.b[b].offset;
    }
    ok = ok && list_dead(&x, k, a);
    k->n_hold = 0;
    k->hold = NULL;
    free(x.b);
    return ok ? PL_OK : err_no_memory(err, "a program");
}

pl_status buffers_pass(struct program *p, int n_dev, const bool *is_private,
                       struct arena *a, pl_err *err)
{
    for (int d = 0; d < n_dev; d++) {
        for (int k = 0; k < p[d].n_variant; k++)
            PL_TRY(place_variant(&p[d], k, is_private[d], a, err));
        p[d].n_buffer = 0;
        p[d].buffer = NULL;
        p[d].in_buffer = NULL;
    }
    return PL_OK;
}
