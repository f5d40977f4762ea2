/* Which GPUs write into each other's memory.
 *
 * Of what comes into a GPU's inbox each byte takes one way. Where all who push
 * to it are GPUs that reach this one's memory, or this one itself, they write
 * it into the mirror, where it is read: nothing lies in the host's memory on
 * its way. All else comes by the post box, as gpu_inbox.c says. Tensors that
 * have bytes in common, one being part of another or coming later, go the same
 * way: what is pushed as one may be read as another. Words that are waited for
 * are the host's always; a post comes behind all that was written before it,
 * wherever.
 *
 * What a driver says of its GPUs is tried: there are machines where bytes for a
 * peer come to nowhere, and no command fails. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

enum { TRIAL = 4096 };

/* ---- does it reach? ------------------------------------------------------ */

/* From w's memory at `from` into the mirror of x. */
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
    PL_TRY(gpu_settle(w, QUEUE_COPY, err));
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
    if (!w->lost)
        w->driver->release(w->gpu, from);
    return s;
}

/* Does what device d pushes come into the mirror of x? */
static pl_status reaches(struct gpu_device *x, int d, bool *yes, pl_err *err)
{
    const struct device *from = device_of(x->set, d);
    struct gpu_device *w = from->own;

    *yes = from == x->dev;
    if (*yes || from->bank != x->dev->bank || !x->driver->reach ||
        x->driver->reach(w->gpu, x->gpu, NULL) != PL_OK)
        return PL_OK;
    PL_TRY(try_to_send(w, x, yes, err));
    x->reached |= *yes;
    return PL_OK;
}

/* ---- what is pushed ------------------------------------------------------ */

/* Tensors in the inbox of `to` that are pushed to. */
struct pushes {
    const struct program *to;
    bool any;
    bool *mark; /* [to->n_tensor], or NULL */
};

static void look(void *user, const struct step_use *u)
{
    struct pushes *p = user;

    if (u->dev != p->to->dev || u->access == ACCESS_READ ||
        p->to->tensor[u->tensor].region != REGION_INBOX)
        return;
    p->any = true;
    if (p->mark)
        p->mark[u->tensor] = true;
}

static void look_at_pushes(struct pushes *p, const struct program *from)
{
    for (int i = 0; i < from->n_script; i++)
        for (int k = 0; k < from->script[i].n_step; k++) {
            const struct step *st = &from->script[i].step[k];

            if (st->kind == STEP_PUSH || st->kind == STEP_PAGES)
                step_uses(st, from->dev, from->tensor, look, p);
        }
}

/* A tensor in the inbox. */
struct part {
    size_t from, to; /* bytes */
    int tensor;
};

static int by_place(const void *a, const void *b)
{
    const struct part *p = a, *q = b;

    if (p->from != q->from)
        return p->from < q->from ? -1 : 1;
    return p->tensor - q->tensor;
}

/* Parts that overlap, one the next, are near if some is and none is far. */
static void deal(const struct part *part, int n, bool *near, const bool *far)
{
    bool any = false, none_far = true;

    for (int i = 0; i < n; i++) {
        any |= near[part[i].tensor];
        none_far &= !far[part[i].tensor];
    }
    for (int i = 0; i < n; i++)
        near[part[i].tensor] = any && none_far;
}

static pl_status deal_by_bytes(const struct program *p, bool *near,
                               const bool *far, pl_err *err)
{
    struct part *part = calloc((size_t)p->n_tensor + 1, sizeof *part);
    size_t end = 0;
    int n = 0, first = 0;

    if (!part)
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < p->n_tensor; i++)
        if (p->tensor[i].region == REGION_INBOX)
            part[n++] =
                (struct part){p->tensor[i].offset,
                              p->tensor[i].offset + p->tensor[i].bytes, i};
    qsort(part, (size_t)n, sizeof *part, by_place);
    for (int i = 0; i < n; i++) {
        if (part[i].from >= end) {
            deal(part + first, i - first, near, far);
            first = i;
        }
        end = part[i].to > end ? part[i].to : end;
    }
    deal(part + first, n - first, near, far);
    free(part);
    return PL_OK;
}

/* far: [tensors], those that come by the post box. */
static pl_status find_near(struct gpu_device *x, bool *near, bool *far,
                           pl_err *err)
{
    const struct program *to = x->dev->prog;

    for (int d = 0; d < device_set_size(x->set); d++) {
        const struct program *from = device_of(x->set, d)->prog;
        struct pushes p = {.to = to};
        bool yes;

        look_at_pushes(&p, from);
        if (!p.any)
            continue;
        PL_TRY(reaches(x, d, &yes, err));
        p.mark = yes ? near : far;
        look_at_pushes(&p, from);
    }
    return deal_by_bytes(to, near, far, err);
}

static pl_status fill_box(struct gpu_device *x, struct gpu_box *box,
                          pl_err *err)
{
    size_t n = (size_t)x->dev->prog->n_tensor + 1;
    bool *far = calloc(n, sizeof *far);
    pl_status s;

    box->mirror = x->region[REGION_INBOX];
    box->near = calloc(n, sizeof *box->near);
    s = far && box->near ? find_near(x, box->near, far, err)
                         : err_no_memory(err, "a device's tables");
    free(far);
    return s;
}

pl_status gpu_peer_load(struct gpu_bank *g, int n, pl_err *err)
{
    struct device_set *set = g->dev[0].set;

    g->box = calloc((size_t)device_set_size(set), sizeof *g->box);
    if (!g->box)
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < n; i++) {
        struct gpu_device *x = &g->dev[i];

        x->image.box = g->box;
        x->reached = false;
        PL_TRY(gpu_allocate(x, region_name(REGION_INBOX),
                            x->dev->bytes[REGION_INBOX],
                            &x->region[REGION_INBOX], err));
        x->image.base[REGION_INBOX] = x->region[REGION_INBOX];
    }
    for (int i = 0; i < n; i++)
        PL_TRY(fill_box(&g->dev[i], &g->box[g->dev[i].dev->prog->dev], err));
    return PL_OK;
}

void gpu_peer_unload(struct gpu_bank *g)
{
    for (int i = 0; g->box && i < device_set_size(g->dev[0].set); i++)
        free(g->box[i].near);
    free(g->box);
    g->box = NULL;
}

bool gpu_peer_has(const struct gpu_device *x, size_t offset, size_t bytes)
{
    const struct program *p = x->dev->prog;

    for (int i = 0; i < p->n_tensor; i++) {
        const struct prog_tensor *t = &p->tensor[i];

        if (gpu_image_near(&x->image, p->dev, i) && offset >= t->offset &&
            offset - t->offset + bytes <= t->bytes)
            return true;
    }
    return false;
}
