/* Queues the work of an instruction: its launches, and the copies that the
 * driver does instead of kernels. These are long spans between host and device,
 * bytes received in the host inbox, and all copies from or to memory that
 * kernels cannot access. Such memory is copied through the staging ring.
 * Without the ring, a driver would block the thread until each copy is
 * complete, at no more than half the speed of the link. */
#include "base/err.h"
#include "device/gpu/gpu_device.h"
#include "program/page_walk.h"

#define DRIVER(fn, ...) PL_TRY(x->driver->fn(x->gpu, st->queue, __VA_ARGS__))

/* ---- the device-side inbox ----------------------------------------------- */

static pl_status carry_arrival(struct gpu_device *x, const struct insn *st,
                               const struct gpu_arrival *a, pl_err *err)
{
    const unsigned char *from = x->dev->at[REGION_INBOX] + a->at;
    uint64_t to = x->image.base[REGION_INBOX] + a->at;
    const struct copy_extent l = {.bytes = (int64_t)a->bytes, .n0 = 1, .n1 = 1};

    if (x->image.inbox.mapped)
        DRIVER(write, to, from, a->bytes, err);
    else
        PL_TRY(gpu_stage_runs(x, st->queue, to, from, &l, err));
    return PL_OK;
}

/* Copies the received ranges that instruction i reads to the device-side inbox.
 * If the host inbox is not mapped, pending readbacks are completed first,
 * because the device may have pushed to its own inbox. */
static pl_status carry_arrivals(struct gpu_device *x, const struct insn *st,
                                int i, pl_err *err)
{
    const struct gpu_inbox *m = &x->image.inbox;
    pl_status s;

    if (m->first[i] < m->first[i + 1] && !m->mapped &&
        !gpu_run_return(x, &s, err))
        return s;
    for (int k = m->first[i]; k < m->first[i + 1]; k++)
        PL_TRY(carry_arrival(x, st, &m->arrival[k], err));
    return PL_OK;
}

/* ---- bytes between host and device --------------------------------------- */

/* Copies an extent span by span: for a PULL from `host` to device address `at`,
 * else from `at` to `host`. */
static pl_status carry_runs(struct gpu_device *x, const struct insn *st,
                            const struct copy_extent *l, unsigned char *host,
                            uint64_t at, pl_err *err)
{
    for (int64_t i = 0; i < l->n0 * l->n1 && l->bytes > 0; i++) {
        int64_t i0 = i / l->n1, i1 = i % l->n1;
        int64_t src = l->src + i0 * l->src_s0 + i1 * l->src_s1;
        int64_t dst = l->dst + i0 * l->dst_s0 + i1 * l->dst_s1;

        if (st->kind == INSN_PULL)
            DRIVER(write, at + (uint64_t)dst, host + src, (size_t)l->bytes,
                   err);
        else
            DRIVER(read, host + dst, at + (uint64_t)src, (size_t)l->bytes, err);
    }
    return PL_OK;
}

/* Copies an extent span by span between device addresses; dst may be a
 * peer's. */
static pl_status copy_runs(struct gpu_device *x, const struct insn *st,
                           const struct copy_extent *l, uint64_t dst,
                           uint64_t src, pl_err *err)
{
    for (int64_t i = 0; i < l->n0 * l->n1 && l->bytes > 0; i++) {
        int64_t i0 = i / l->n1, i1 = i % l->n1;
        uint64_t from =
            src + (uint64_t)(l->src + i0 * l->src_s0 + i1 * l->src_s1);
        uint64_t to =
            dst + (uint64_t)(l->dst + i0 * l->dst_s0 + i1 * l->dst_s1);

        DRIVER(copy, to, from, (size_t)l->bytes, err);
    }
    return PL_OK;
}

/* Copies the extents of a PULL. If `all` is false, copies only long spans,
 * because launches copy the others. */
static pl_status carry_pull(struct gpu_device *x, const struct insn *st,
                            bool all, pl_err *err)
{
    const struct insn_pull *u = &st->pull;

    for (int i = 0; i < u->n_piece; i++) {
        const struct copy_desc *p = &u->piece[i];
        struct copy_extent l;

        copy_loops_resolve(&l, p, &x->image.sizes[st->micro]);
        if (!all && !gpu_image_long(&l))
            continue;
        if (p->src_dev == x->dev->prog->dev)
            PL_TRY(copy_runs(x, st, &l, x->image.tensor[u->out].at,
                             x->image.tensor[p->src].at, err));
        else if (all)
            PL_TRY(gpu_stage_runs(x, st->queue, x->image.tensor[u->out].at,
                                  gpu_image_host(&x->image, p->src_dev, p->src),
                                  &l, err));
        else
            PL_TRY(carry_runs(x, st, &l,
                              gpu_image_host(&x->image, p->src_dev, p->src),
                              x->image.tensor[u->out].at, err));
    }
    return PL_OK;
}

/* Copies an extent from device address `at` to destination `to`: a peer's
 * memory, or host memory. */
static pl_status carry_to(struct gpu_device *x, const struct insn *st,
                          const struct push_to *to, const struct copy_extent *l,
                          uint64_t at, pl_err *err)
{
    const struct gpu_image *m = &x->image;
    unsigned char *host = gpu_image_host(m, to->dev, to->out);

    if (gpu_image_near(m, to->dev, to->out))
        return copy_runs(x, st, l, gpu_image_box(m, to->dev, to->out) + to->at,
                         at, err);
    if (gpu_image_box(m, to->dev, to->out) != 0)
        return carry_runs(x, st, l, host + to->at, at, err);
    return gpu_return_runs(x, st->queue, host + to->at, at, l, err);
}

static pl_status carry_push(struct gpu_device *x, const struct insn *st,
                            bool all, pl_err *err)
{
    for (int k = 0; k < st->push.n_to; k++) {
        const struct push_to *to = &st->push.to[k];
        int n;
        const struct copy_desc *p = push_pieces(&st->push, k, &n);

        for (int i = 0; i < n; i++) {
            struct copy_extent l;

            copy_loops_resolve(&l, &p[i], &x->image.sizes[st->micro]);
            if (all || gpu_image_long(&l))
                PL_TRY(
                    carry_to(x, st, to, &l, x->image.tensor[p[i].src].at, err));
        }
    }
    return PL_OK;
}

/* ---- pages --------------------------------------------------------------- */

/* Reads the token table back to the host, for the counters and for
 * carry_pages(). */
static pl_status fetch_table(struct gpu_device *x, const struct insn *st,
                             pl_err *err)
{
    DRIVER(read, gpu_table_of(x, st->micro),
           x->image.tensor[st->pages.token_table].at,
           (size_t)program_token_table_words(x->dev->prog) * sizeof *x->table,
           err);
    return PL_OK;
}

static const struct prog_tensor *tensor_of(const struct gpu_device *x, int dev,
                                           int tensor)
{
    return &device_of(x->set, dev)->prog->tensor[tensor];
}

/* Copies n adjacent tiles of a cache; a tile is one head's part of a page. `to`
 * and `from` are the indices of the first tile in the destination and the
 * source. */
static pl_status carry_heads(struct gpu_device *x, const struct insn *st,
                             size_t to, size_t from, int64_t n, pl_err *err)
{
    const struct insn_pages *u = &st->pages;
    const struct gpu_image *m = &x->image;
    const struct copy_extent l = {
        .bytes = n * (int64_t)u->tile_bytes, .n0 = 1, .n1 = 1};

    to *= u->tile_bytes;
    from *= u->tile_bytes;
    if (u->out_dev == x->dev->prog->dev)
        return gpu_stage_runs(x, st->queue, m->tensor[u->out].at + to,
                              gpu_image_host(m, u->src_dev, u->src) + from, &l,
                              err);
    return gpu_return_runs(x, st->queue,
                           gpu_image_host(m, u->out_dev, u->out) + to,
                           m->tensor[u->src].at + from, &l, err);
}

static pl_status carry_page(struct gpu_device *x, const struct insn *st,
                            int64_t page, pl_err *err)
{
    const struct insn_pages *u = &st->pages;
    int64_t n_to = tensor_of(x, u->out_dev, u->out)->dim[1].n;
    int64_t n_from = tensor_of(x, u->src_dev, u->src)->dim[1].n;
    int64_t n;

    for (int64_t h = 0; h < n_to; h += n) {
        n = 1;
        while (h + n < n_to && u->map[h] >= 0 && u->map[h + n] == u->map[h] + n)
            n++;
        if (u->map[h] >= 0)
            PL_TRY(carry_heads(x, st, (size_t)(page * n_to + h),
                               (size_t)(page * n_from + u->map[h]), n, err));
    }
    return PL_OK;
}

static pl_status carry_pages(struct gpu_device *x, const struct insn *st,
                             pl_err *err)
{
    const struct prog_tensor *of =
        tensor_of(x, st->pages.out_dev, st->pages.out);
    int64_t n_page = dim_value(of->dim[0], &x->dev->prog->max) / PAGE_TOKENS;
    struct page_walk w;
    pl_status s;

    /* afterwards the queue has executed fetch_table(), so the token table is on
     * the host */
    if (!gpu_run_finish(x, st->queue, &s, err))
        return s;
    w = page_walk_start(
        gpu_image_table(&x->image, st, gpu_table_of(x, st->micro)));
    for (int32_t page; (page = page_walk_next(&w)) >= 0;)
        if (page < n_page)
            PL_TRY(carry_page(x, st, page, err));
    return PL_OK;
}

/* ---- work of an instruction ---------------------------------------------- */

static pl_status launch(struct gpu_device *x, const struct insn *st, int i,
                        pl_err *err)
{
    const struct gpu_image *m = &x->image;

    for (int k = m->first[i]; k < m->first[i + 1]; k++) {
        const struct gpu_launch *a = &m->list.launch[k];

        DRIVER(launch, a->kernel, a->n_group, m->list.bytes + a->args, err);
    }
    return PL_OK;
}

static pl_status carry_bytes(struct gpu_device *x, const struct insn *st,
                             pl_err *err)
{
    bool reaches = insn_is_transfer(st) && gpu_image_reaches(&x->image, st);

    switch (st->kind) {
    case INSN_PULL:
        return carry_pull(x, st, !reaches, err);
    case INSN_PUSH:
        return carry_push(x, st, !reaches, err);
    case INSN_PAGES:
        PL_TRY(fetch_table(x, st, err));
        return reaches ? PL_OK : carry_pages(x, st, err);
    case INSN_KERNEL:
    case INSN_MERGE:
    case INSN_POST:
    case INSN_WAIT:
        break;
    }
    return PL_OK;
}

static bool any_long(const struct copy_desc *p, int n,
                     const struct graph_sizes *z)
{
    for (int i = 0; i < n; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &p[i], z);
        if (gpu_image_long(&l))
            return true;
    }
    return false;
}

/* Returns true if a PULL or PUSH has long spans, which no kernel copies. */
static bool has_long(const struct gpu_device *x, const struct insn *st)
{
    const struct graph_sizes *z = &x->image.sizes[st->micro];

    if (st->kind == INSN_PULL)
        return any_long(st->pull.piece, st->pull.n_piece, z);
    for (int k = 0; k < st->push.n_to; k++) {
        int n;
        const struct copy_desc *p = push_pieces(&st->push, k, &n);

        if (any_long(p, n, z))
            return true;
    }
    return false;
}

bool gpu_carry_launches_all(const struct gpu_device *x, const struct insn *st,
                            int i)
{
    const struct gpu_inbox *m = &x->image.inbox;

    if (insn_is_event(st) || st->kind == INSN_PAGES ||
        m->first[i + 1] > m->first[i])
        return false;
    return st->kind == INSN_KERNEL || st->kind == INSN_MERGE ||
           (gpu_image_reaches(&x->image, st) && !has_long(x, st));
}

pl_status gpu_transfer(struct gpu_device *x, const struct insn *st, int i,
                       pl_err *err)
{
    PL_TRY(carry_arrivals(x, st, i, err));
    PL_TRY(launch(x, st, i, err));
    return carry_bytes(x, st, err);
}
