/* Decides which tensors GPUs push directly into each other's memory.
 *
 * A tensor in a GPU's inbox is pushed in one of two ways. It is pushed directly
 * to the device-side inbox, where kernels read it, if each device that pushes
 * it is this GPU or has peer access to it. Otherwise it is pushed to the host
 * inbox (gpu_inbox.c). Tensors that share memory, even at different times, are
 * pushed the same way, because bytes pushed as one tensor may be read as
 * another. Event words are always in host memory. A POST takes effect after all
 * earlier writes, to any memory.
 *
 * Peer access that the driver reports is tested. On some machines bytes written
 * to a peer are lost, although no command fails. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_switch.h"

enum { TRIAL = 4096 };

/* ---- test of peer access ------------------------------------------------- */

/* Copies n bytes from device w, at address `from`, to the device-side inbox of
 * x. Sets *arrives to true if they arrive, else to false. */
static pl_status send(struct gpu_device *w, struct gpu_device *x, uint64_t from,
                      size_t n, bool *arrives, pl_err *err)
{
    const uint64_t to = x->region[REGION_INBOX];
    unsigned char sent[TRIAL], other[TRIAL];

    for (size_t i = 0; i < n; i++) {
        sent[i] = (unsigned char)(i * 7 + i / 256 + (size_t)w->dev->prog->dev);
        other[i] = (unsigned char)~sent[i];
    }
    PL_TRY(gpu_stage_write(x, to, other, n, err));
    PL_TRY(gpu_stage_write(w, from, sent, n, err));
    PL_TRY(gpu_stage_flush(x, err));
    PL_TRY(gpu_stage_flush(w, err));
    PL_TRY(w->driver->copy(w->gpu, QUEUE_COPY, to, from, n, err));
    PL_TRY(gpu_drain(w, QUEUE_COPY, err));
    PL_TRY(gpu_stage_read(x, other, to, n, err));
    *arrives = memcmp(sent, other, n) == 0;
    return PL_OK;
}

static pl_status try_to_send(struct gpu_device *w, struct gpu_device *x,
                             bool *arrives, pl_err *err)
{
    size_t n = x->dev->bytes[REGION_INBOX];
    uint64_t from;
    pl_status s;

    n = n < TRIAL ? n : TRIAL;
    PL_TRY(gpu_allocate(w, "a trial", n, &from, err));
    s = send(w, x, from, n, arrives, err);
    if (!device_set_is_quarantined(
            x->set)) /* if a GPU hangs, freeing its memory might never return */
        w->driver->release(w->gpu, from);
    return s;
}

/* Sets *yes to true if device d can push to the device-side inbox of x, else to
 * false. */
static pl_status reaches(struct gpu_device *x, int d, bool peers, bool *yes,
                         pl_err *err)
{
    const struct device *from = device_of(x->set, d);
    struct gpu_device *w = from->own;

    *yes = from == x->dev;
    if (*yes || !peers || from->backend != x->dev->backend || !x->shared ||
        !x->driver->enable_peer_access ||
        x->driver->enable_peer_access(w->gpu, x->gpu, NULL) != PL_OK)
        return PL_OK;
    /* set before the test, because after a test that hangs the peer may still
     * write */
    x->reached = true;
    return try_to_send(w, x, yes, err);
}

/* ---- pushed ranges ------------------------------------------------------- */

/* A range of an inbox: a tensor of the receiver, or a range that an instruction
 * pushes. */
struct part {
    /* first byte and end of the range, as offsets in the inbox */
    int64_t from, to;
    int tensor; /* index of the receiver's tensor; -1 if the range is pushed */
    /* the device that pushes the range can only push to the host inbox */
    bool far;
};

struct parts {
    const struct program *to; /* program of the inbox's device */
    struct part *part;        /* the ranges of the inbox, [n]; owned */
    int n, max;
    bool no_memory;
};

static void add_part(struct parts *p, const struct part *part)
{
    if (p->n == p->max) {
        int max = 2 * p->max + 64;
        void *more = realloc(p->part, (size_t)max * sizeof *p->part);

        if (!more) {
            p->no_memory = true;
            return;
        }
        p->part = more;
        p->max = max;
    }
    p->part[p->n++] = *part;
}

/* Adds the range that a PUSH writes at its k-th destination, at the largest
 * sizes. The range begins at the start of the destination tensor. It may extend
 * beyond that tensor, because one PUSH may write several addends, which the
 * receiver reads as parts of this or other tensors. */
static void add_push(struct parts *p, const struct insn_push *push, int k,
                     const struct graph_sizes *max)
{
    const struct push_to *to = &push->to[k];
    const int64_t from = (int64_t)p->to->tensor[to->out].offset;
    struct part part = {.from = from, .to = from, .tensor = -1};
    int n;
    const struct copy_desc *piece = push_pieces(push, k, &n);

    for (int i = 0; i < n; i++) {
        struct copy_extent l;
        int64_t end;

        copy_loops_resolve(&l, &piece[i], max);
        if (copy_loops_bytes(&l) == 0)
            continue;
        end = from + (int64_t)to->at + l.dst + (l.n0 - 1) * l.dst_s0 +
              (l.n1 - 1) * l.dst_s1 + l.bytes;
        part.to = end > part.to ? end : part.to;
    }
    if (part.to > part.from)
        add_part(p, &part);
}

static bool is_inbox(const struct parts *p, int dev, int tensor)
{
    return dev == p->to->dev && p->to->tensor[tensor].region == REGION_INBOX;
}

static void add_tensor(struct parts *p, int tensor, int as)
{
    const struct prog_tensor *t = &p->to->tensor[tensor];

    add_part(p, &(struct part){.from = (int64_t)t->offset,
                               .to = (int64_t)(t->offset + t->bytes),
                               .tensor = as});
}

/* Adds the ranges that the device of program `from` pushes into the inbox. */
static void add_pushes(struct parts *p, const struct program *from)
{
    for (int i = 0; i < from->n_variant; i++)
        for (int k = 0; k < from->variant[i].n_insn; k++) {
            const struct insn *st = &from->variant[i].insn[k];

            for (int j = 0; st->kind == INSN_PUSH && j < st->push.n_to; j++)
                if (is_inbox(p, st->push.to[j].dev, st->push.to[j].out))
                    add_push(p, &st->push, j, &from->max);
            if (st->kind == INSN_PAGES &&
                is_inbox(p, st->pages.out_dev, st->pages.out))
                add_tensor(p, st->pages.out, -1);
        }
}

static int by_place(const void *a, const void *b)
{
    const struct part *p = a, *q = b;

    return p->from < q->from ? -1 : p->from > q->from;
}

/* Sets near[t] for each tensor t in part[n], a maximal set of ranges connected
 * by overlaps. It is true if one of the ranges is pushed and every device that
 * pushes one can write to the device-side inbox. */
static void deal(const struct part *part, int n, bool *near)
{
    bool any = false, far = false;

    for (int i = 0; i < n; i++) {
        any |= part[i].tensor < 0;
        far |= part[i].far;
    }
    for (int i = 0; i < n; i++)
        if (part[i].tensor >= 0)
            near[part[i].tensor] = any && !far;
}

static void deal_all(const struct parts *p, bool *near)
{
    int64_t end = 0;
    int first = 0;

    if (p->n == 0)
        return;
    qsort(p->part, (size_t)p->n, sizeof *p->part, by_place);
    for (int i = 0; i < p->n; i++) {
        if (p->part[i].from >= end) {
            deal(p->part + first, i - first, near);
            first = i;
        }
        end = p->part[i].to > end ? p->part[i].to : end;
    }
    deal(p->part + first, p->n - first, near);
}

static pl_status add_all(struct gpu_device *x, bool peers, struct parts *p,
                         pl_err *err)
{
    for (int d = 0; d < device_set_size(x->set); d++) {
        int first = p->n;
        bool yes;

        add_pushes(p, device_of(x->set, d)->prog);
        if (p->n == first)
            continue;
        PL_TRY(reaches(x, d, peers, &yes, err));
        for (int i = first; i < p->n; i++)
            p->part[i].far = !yes;
    }
    for (int i = 0; i < p->to->n_tensor; i++)
        if (p->to->tensor[i].region == REGION_INBOX)
            add_tensor(p, i, i);
    return p->no_memory ? err_no_memory(err, "a device's tables") : PL_OK;
}

static pl_status fill_box(struct gpu_device *x, bool peers,
                          struct peer_inbox *box, pl_err *err)
{
    struct parts p = {.to = x->dev->prog};
    pl_status s;

    box->device_inbox = x->region[REGION_INBOX];
    box->direct = calloc((size_t)p.to->n_tensor + 1, sizeof *box->direct);
    s = box->direct ? add_all(x, peers, &p, err)
                    : err_no_memory(err, "a device's tables");
    if (s == PL_OK)
        deal_all(&p, box->direct);
    free(p.part);
    return s;
}

/* Allocates the device-side inbox. If `peers`, tries to allocate memory that
 * peers may write, and sets x->shared to whether that succeeded. */
static pl_status make_mirror(struct gpu_device *x, bool peers, pl_err *err)
{
    const size_t bytes = x->dev->bytes[REGION_INBOX];
    uint64_t *at = &x->region[REGION_INBOX];

    x->shared = !peers || !x->driver->alloc_shared ||
                x->driver->alloc_shared(x->gpu, bytes + (bytes == 0), at,
                                        NULL) == PL_OK;
    if (*at)
        return PL_OK;
    return gpu_allocate(x, region_name(REGION_INBOX), bytes, at, err);
}

pl_status gpu_peer_load(struct gpu_backend *g, int n, pl_err *err)
{
    struct device_set *set = g->dev[0].set;
    bool peers;

    PL_TRY(gpu_switch("PLAIT_PEER",
                      "stops GPUs from writing into each other's memory",
                      &peers, err));
    g->box = calloc((size_t)device_set_size(set), sizeof *g->box);
    if (!g->box)
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < n; i++) {
        struct gpu_device *x = &g->dev[i];

        x->image.box = g->box;
        x->reached = false;
        PL_TRY(make_mirror(x, peers && n > 1, err));
        x->image.base[REGION_INBOX] = x->region[REGION_INBOX];
    }
    for (int i = 0; i < n; i++)
        PL_TRY(fill_box(&g->dev[i], peers, &g->box[g->dev[i].dev->prog->dev],
                        err));
    return PL_OK;
}

void gpu_peer_unload(struct gpu_backend *g)
{
    for (int i = 0; g->box && i < device_set_size(g->dev[0].set); i++)
        free(g->box[i].direct);
    free(g->box);
    g->box = NULL;
}

/* Checks only the byte at `offset`. This is valid for the whole range that a
 * caller accesses, because overlapping tensors are pushed the same way. */
bool gpu_peer_has(const struct gpu_device *x, size_t offset)
{
    const struct program *p = x->dev->prog;

    for (int i = 0; i < p->n_tensor; i++) {
        const struct prog_tensor *t = &p->tensor[i];

        if (gpu_image_near(&x->image, p->dev, i) && offset >= t->offset &&
            offset - t->offset < t->bytes)
            return true;
    }
    return false;
}
