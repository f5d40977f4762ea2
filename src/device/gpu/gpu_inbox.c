/* Finds which received ranges must be copied from the host inbox of a GPU to
 * its device-side inbox, where kernels read them. Bytes that peers push
 * directly to the device-side inbox (gpu_peer.c) need no copy.
 *
 * The host inbox is in host memory, where any device can write. The device-side
 * inbox is in GPU memory, with the same offsets. Before an instruction that
 * reads received bytes, the ranges it reads are copied in its queue, after the
 * WAIT that precedes it. For a MERGE or PUSH these are the ranges of its copy
 * descriptors, for other instructions the tensors at their current size. A
 * tensor is copied once for all readers in a queue that follow the last push to
 * it.
 *
 * A MERGE reads each byte only once. So if the driver maps the host inbox, a
 * MERGE reads short ranges there directly, without a copy. A kernel reads 32
 * KiB over a bus of 16 GB/s in some 3 us. A copy would cost more, because the
 * GPU must switch to its copy engine and back. */
#include "device/gpu/gpu_image.h"

#include <stdlib.h>
#include <string.h>

enum {
    DIRECT = 32 << 10
}; /* longest range in bytes that a MERGE reads in the host inbox */

/* ---- ranges of a step ---------------------------------------------------- */

void gpu_inbox_free(struct gpu_inbox *x)
{
    free(x->arrival);
    free(x->first);
    free(x->pushed);
    for (int q = 0; q < QUEUE_COUNT; q++)
        free(x->is_copied[q]);
    *x = (struct gpu_inbox){0};
}

bool gpu_inbox_init(struct gpu_inbox *x, const struct program *p, int n_step)
{
    x->first = calloc((size_t)n_step + 1, sizeof *x->first);
    x->pushed = calloc((size_t)p->n_tensor + 1, sizeof *x->pushed);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        x->is_copied[q] = calloc((size_t)p->n_tensor + 1, 1);
        if (!x->is_copied[q])
            return false;
    }
    return x->first && x->pushed;
}

static void note_push(struct gpu_image *m, const struct insn *st, int dev,
                      int tensor)
{
    if (dev == m->prog->dev && m->inbox.pushed[tensor] < st->order)
        m->inbox.pushed[tensor] = st->order;
}

/* Sets m->inbox.pushed[] to the last push to each tensor in variant `c`, in the
 * order of all devices' instructions. Includes pushes that are disabled in this
 * step. */
static void look_for_pushes(struct gpu_image *m, const struct variant *c)
{
    for (int i = 0; i < m->prog->n_tensor; i++)
        m->inbox.pushed[i] = -1;
    for (int d = 0; d < device_set_size(m->set); d++) {
        const struct program *p = device_of(m->set, d)->prog;
        const struct variant *its = &p->variant[c - m->prog->variant];

        for (int i = 0; i < its->n_insn; i++) {
            const struct insn *st = &its->insn[i];

            for (int k = 0; st->kind == INSN_PUSH && k < st->push.n_to; k++)
                note_push(m, st, st->push.to[k].dev, st->push.to[k].out);
            if (st->kind == INSN_PAGES && p != m->prog)
                note_push(m, st, st->pages.out_dev, st->pages.out);
        }
    }
}

void gpu_inbox_begin(struct gpu_image *m, const struct variant *c)
{
    const struct program *p = m->prog;
    struct gpu_inbox *x = &m->inbox;

    x->n = 0;
    x->no_memory = false;
    if (x->pushed_in != c)
        look_for_pushes(m, c);
    x->pushed_in = c;
    for (int q = 0; q < QUEUE_COUNT; q++)
        memset(x->is_copied[q], 0, (size_t)p->n_tensor);
}

static void bring(struct gpu_inbox *x, size_t at, size_t bytes)
{
    if (bytes == 0)
        return;
    if (x->n == x->n_max) {
        int n = x->n_max * 2 + 16;
        void *p = realloc(x->arrival, (size_t)n * sizeof *x->arrival);

        if (!p) {
            x->no_memory = true;
            return;
        }
        x->arrival = p;
        x->n_max = n;
    }
    x->arrival[x->n++] = (struct gpu_arrival){at, bytes};
}

/* Returns true if a tensor is in the inbox of this device and pushed to the
 * host inbox, so that it must be copied. */
static bool in_inbox(const struct gpu_image *m, int dev, int tensor)
{
    return dev == m->prog->dev &&
           m->prog->tensor[tensor].region == REGION_INBOX &&
           !gpu_image_near(m, dev, tensor);
}

/* ---- copy descriptors ---------------------------------------------------- */

/* The range of a tensor from the first to the last accessed byte; offsets in
 * bytes. */
struct extent {
    int64_t begin, end;
};

static struct extent extent_of(const struct copy_extent *l)
{
    return (struct extent){l->src, l->src + (l->n0 - 1) * l->src_s0 +
                                       (l->n1 - 1) * l->src_s1 + l->bytes};
}

/* Extends `e` so that it includes the range which a copy descriptor reads. */
static void widen(struct extent *e, const struct copy_desc *p,
                  const struct graph_sizes *z)
{
    struct copy_extent l;
    struct extent x;

    copy_loops_resolve(&l, p, z);
    if (copy_loops_bytes(&l) == 0)
        return;
    x = extent_of(&l);
    if (e->begin == e->end) {
        *e = x;
        return;
    }
    e->begin = x.begin < e->begin ? x.begin : e->begin;
    e->end = x.end > e->end ? x.end : e->end;
}

/* Adds the ranges of the inbox that descriptors p[n] read. Consecutive
 * descriptors of the same tensor give one range. */
static void bring_pieces(struct gpu_image *m, const struct insn *st,
                         const struct copy_desc *p, int n)
{
    for (int i = 0, k; i < n; i = k) {
        struct extent e = {0, 0};

        for (k = i;
             k < n && p[k].src_dev == p[i].src_dev && p[k].src == p[i].src; k++)
            widen(&e, &p[k], &m->sizes[st->micro]);
        if (in_inbox(m, p[i].src_dev, p[i].src))
            bring(&m->inbox, m->prog->tensor[p[i].src].offset + (size_t)e.begin,
                  (size_t)(e.end - e.begin));
    }
}

/* Returns the range that a MERGE item reads of each of its addends. */
static struct extent summed(const struct gpu_image *m, const struct insn *st,
                            const struct merge_item *it)
{
    struct extent e = {0, 0};

    for (int i = 0; i < it->n_piece; i++)
        widen(&e, &it->piece[i], &m->sizes[st->micro]);
    return e;
}

static int64_t copied(const struct gpu_image *m, const struct insn *st,
                      const struct merge_item *it)
{
    int64_t bytes = 0;

    for (int i = 0; i < it->n_piece; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &it->piece[i], &m->sizes[st->micro]);
        if (in_inbox(m, it->piece[i].src_dev, it->piece[i].src))
            bytes += copy_loops_bytes(&l);
    }
    return bytes;
}

bool gpu_inbox_direct(const struct gpu_image *m, const struct insn *st,
                      const struct merge_item *it)
{
    struct extent e = {0, 0};

    if (m->inbox.mapped == 0)
        return false;
    if (!it->reduce)
        return copied(m, st, it) <= DIRECT;
    e = summed(m, st, it);
    return e.end - e.begin <= DIRECT;
}

static void bring_item(struct gpu_image *m, const struct insn *st,
                       const struct merge_item *it)
{
    struct extent e;

    if (gpu_inbox_direct(m, st, it))
        return;
    if (!it->reduce) {
        bring_pieces(m, st, it->piece, it->n_piece);
        return;
    }
    e = summed(m, st, it);
    for (int i = 0; i < it->n_addend; i++) {
        const struct merge_addend *a = &it->addend[i];
        int64_t skip = dim_value(a->skip, &m->sizes[st->micro]);

        if (in_inbox(m, a->dev, a->tensor))
            bring(&m->inbox,
                  m->prog->tensor[a->tensor].offset + a->off +
                      (size_t)(e.begin - skip),
                  (size_t)(e.end - e.begin));
    }
}

/* ---- tensors ------------------------------------------------------------- */

size_t gpu_image_bytes(const struct gpu_image *m, int tensor)
{
    const struct prog_tensor *p = &m->prog->tensor[tensor];
    const struct gpu_tensor *t = &m->tensor[tensor];
    size_t bytes = 4; /* at most: no format has elements of more than 4 bytes */

    for (int i = 0; i < t->n_dim; i++)
        bytes *= (size_t)t->dim[i];
    return p->pack || bytes > p->bytes ? p->bytes : bytes;
}

struct reader {
    struct gpu_image *m;
    const struct insn *st;
};

static void bring_tensor(void *user, const struct insn_access *u)
{
    const struct reader *r = user;
    struct gpu_inbox *x = &r->m->inbox;
    bool *brought;

    if (!in_inbox(r->m, u->dev, u->tensor))
        return;
    brought = &x->is_copied[r->st->queue][u->tensor];
    if (*brought)
        return;
    *brought = r->st->order > x->pushed[u->tensor];
    bring(x, r->m->prog->tensor[u->tensor].offset,
          gpu_image_bytes(r->m, u->tensor));
}

/* ---- instructions -------------------------------------------------------- */

void gpu_inbox_insn(struct gpu_image *m, const struct insn *st)
{
    struct reader r = {m, st};

    switch (st->kind) {
    case INSN_MERGE:
        for (int i = 0; i < st->merge.n_item; i++)
            bring_item(m, st, &st->merge.item[i]);
        return;
    case INSN_PUSH:
        bring_pieces(m, st, st->push.piece, st->push.n_piece);
        return;
    case INSN_KERNEL:
    case INSN_PAGES:
        insn_accesses(st, m->prog->dev, m->prog->tensor, bring_tensor, &r);
        return;
    case INSN_PULL: /* a PULL reads memory of other devices, not the inbox */
    case INSN_POST:
    case INSN_WAIT:
        return;
    }
}
