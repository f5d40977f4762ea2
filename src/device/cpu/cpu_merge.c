/* Collectives over shared memory, copies within a device, and transfers between
 * devices.
 *
 * A copy descriptor is two nested loops over intervals of bytes. Threads divide
 * its total bytes at multiples of a cache line, wherever intervals begin. Sums
 * are computed in blocks of BLOCK values: for each block, all addends are added
 * in the order of the rank tree while the block is in the cache. Only partial
 * sums of a block are stored in scratch. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_image.h"
#include "program/copy_loops.h"

/* LINE is the size of a cache line in bytes, BLOCK the number of floats whose
 * sums are computed at a time. */
enum { LINE = 64, BLOCK = 1024 };

/* A thread's iteration over its part of a copy descriptor. Each call of
 * walk_next moves to the next interval of bytes; the first and the last
 * interval may be partial. */
struct walk {
    const struct copy_extent *l;
    /* number of bytes in the thread's part that are still to be copied */
    int64_t left;
    /* i0, i1: indices of the two loops for the next interval; b: offset in
     * bytes in that interval at which the thread's part begins */
    int64_t i0, i1, b;
    /* offsets in the source and in the destination, and size, in bytes, of the
     * interval that walk_next found */
    int64_t src, dst, n;
};

static void walk_start(struct walk *w, const struct copy_extent *l, int ith,
                       int nth)
{
    int64_t total = copy_loops_bytes(l);
    int64_t lines = (total + LINE - 1) / LINE;
    int64_t lo = lines * ith / nth * LINE;
    int64_t hi = lines * (ith + 1) / nth * LINE;

    *w = (struct walk){.l = l, .left = (hi < total ? hi : total) - lo};
    if (lo > 0 && w->left > 0) {
        w->b = lo % l->bytes;
        w->i1 = lo / l->bytes % l->n1;
        w->i0 = lo / l->bytes / l->n1;
    }
}

static bool walk_next(struct walk *w)
{
    const struct copy_extent *l = w->l;

    if (w->left <= 0)
        return false;
    w->n = l->bytes - w->b < w->left ? l->bytes - w->b : w->left;
    w->src = l->src + w->i0 * l->src_s0 + w->i1 * l->src_s1 + w->b;
    w->dst = l->dst + w->i0 * l->dst_s0 + w->i1 * l->dst_s1 + w->b;
    w->left -= w->n;
    w->b = 0;
    if (++w->i1 == l->n1) {
        w->i1 = 0;
        w->i0++;
    }
    return true;
}

static void copy_piece(const struct cpu_image *m, const struct graph_sizes *z,
                       const struct copy_desc *p, unsigned char *dst, int ith,
                       int nth)
{
    const unsigned char *src = cpu_image_source(m, p->src_dev, p->src);
    struct copy_extent l;
    struct walk w;

    copy_loops_resolve(&l, p, z);
    walk_start(&w, &l, ith, nth);
    while (walk_next(&w))
        memcpy(dst + w.dst, src + w.src, (size_t)w.n);
}

/* Writes to dst[n] the sum of the addends of merge item *m, added in the order
 * of the rank tree. Each addend is read from byte `off` of its tensor on. n is
 * a number of floats. */
static void reduce_run(const struct cpu_image *g, const struct merge_item *m,
                       const struct graph_sizes *z, float *dst, int64_t off,
                       int64_t n, float *scratch)
{
    const float *stack[MERGE_MAX_DEPTH];

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t len = n - done < BLOCK ? n - done : BLOCK;
        int top = 0;

        for (int i = 0; i < m->n_addend; i++) {
            const struct merge_addend *a = &m->addend[i];
            const unsigned char *src = cpu_image_source(g, a->dev, a->tensor);

            src += (int64_t)a->off + off - dim_value(a->skip, z);
            stack[top++] = (const float *)(const void *)src + done;
            for (int k = 1; k <= a->n_add; k++) {
                bool last = i == m->n_addend - 1 && k == a->n_add;
                float *to = last ? dst + done : scratch + (top - 2) * BLOCK;

                g->kernels->add(to, stack[top - 2], stack[top - 1], len);
                stack[top - 2] = to;
                top--;
            }
        }
        if (stack[0] != dst + done)
            memcpy(dst + done, stack[0], (size_t)len * sizeof *dst);
    }
}

void cpu_image_merge(const struct cpu_image *g, const struct insn *st,
                     void *scratch, int ith, int nth)
{
    const struct graph_sizes *z = &g->sizes[st->micro];

    for (int i = 0; i < st->merge.n_item; i++) {
        const struct merge_item *m = &st->merge.item[i];
        unsigned char *out = g->tensor[m->out].data;

        for (int k = 0; k < m->n_piece; k++) {
            struct copy_extent l;
            struct walk w;

            if (!m->reduce) {
                copy_piece(g, z, &m->piece[k], out, ith, nth);
                continue;
            }
            copy_loops_resolve(&l, &m->piece[k], z);
            walk_start(&w, &l, ith, nth);
            while (walk_next(&w))
                reduce_run(g, m, z, (float *)(void *)(out + w.dst), w.src,
                           w.n / (int64_t)sizeof(float), scratch);
        }
    }
}

size_t cpu_merge_scratch(const struct insn *st)
{
    int depth = 0;

    for (int i = 0; i < st->merge.n_item; i++)
        if (st->merge.item[i].reduce && st->merge.item[i].depth > depth)
            depth = st->merge.item[i].depth;
    return (size_t)depth * BLOCK * sizeof(float);
}

void cpu_image_transfer(const struct cpu_image *m, const struct insn *st, int i,
                        int ith, int nth)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    const struct push_to *to;
    const struct copy_desc *p;
    int n;

    if (st->kind == INSN_PULL) {
        copy_piece(m, z, &st->pull.piece[i], m->tensor[st->pull.out].data, ith,
                   nth);
        return;
    }
    to = &st->push.to[i];
    p = push_pieces(&st->push, i, &n);
    for (int k = 0; k < n; k++)
        copy_piece(m, z, &p[k], cpu_image_inbox(m, to->dev, to->out) + to->at,
                   ith, nth);
}

static double link_seconds(const struct cpu_image *m, int dev, double bytes)
{
    const struct device_desc *d = &device_of(m->set, dev)->desc;

    return d->link_latency_s +
           (d->link_bytes_per_s > 0 ? bytes / d->link_bytes_per_s : 0);
}

static double piece_bytes(const struct cpu_image *m, const struct insn *st,
                          const struct copy_desc *p, int n)
{
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &p[i], &m->sizes[st->micro]);
        bytes += (double)copy_loops_bytes(&l);
    }
    return bytes;
}

double cpu_image_copy_bytes(const struct cpu_image *m, const struct insn *st)
{
    double bytes = 0;

    if (st->kind == INSN_PAGES)
        return cpu_pages_bytes(m, st);
    if (st->kind == INSN_PULL)
        return piece_bytes(m, st, st->pull.piece, st->pull.n_piece);
    for (int k = 0; k < st->push.n_to; k++) {
        int n;
        const struct copy_desc *p = push_pieces(&st->push, k, &n);

        bytes += piece_bytes(m, st, p, n);
    }
    return bytes;
}

/* Returns the time in seconds that the transfer st, a PULL, PUSH or PAGES,
 * takes on its slowest link if it moves `bytes` bytes. In a PUSH to several
 * devices, each destination's link carries an equal share of these. */
static double slowest(const struct cpu_image *m, const struct insn *st,
                      double bytes)
{
    double most = link_seconds(m, m->prog->dev, bytes);

    if (st->kind == INSN_PAGES)
        return fmax(link_seconds(m, st->pages.out_dev, bytes),
                    link_seconds(m, st->pages.src_dev, bytes));
    for (int k = 0; st->kind == INSN_PUSH && k < st->push.n_to; k++)
        most = fmax(most,
                    link_seconds(m, st->push.to[k].dev, bytes / st->push.n_to));
    for (int i = 0; st->kind == INSN_PULL && i < st->pull.n_piece; i++)
        most = fmax(most, link_seconds(m, st->pull.piece[i].src_dev, bytes));
    return most;
}

double cpu_image_copy_seconds(const struct cpu_image *m, const struct insn *st)
{
    double bytes;

    if (!insn_is_transfer(st) || slowest(m, st, 1) == 0)
        /* The links take no time, so the bytes need not be counted. */
        return 0;
    bytes = cpu_image_copy_bytes(m, st);
    return bytes > 0 ? slowest(m, st, bytes) : 0;
}

double cpu_image_latency(const struct cpu_image *m, const struct insn *st)
{
    return slowest(m, st, 0);
}
