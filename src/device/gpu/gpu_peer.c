/* Which GPUs write into each other's memory.
 *
 * Of what comes into a GPU's inbox each tensor takes one way. Where all who
 * push to it are GPUs that reach this one's memory, or this one itself, they
 * write it into the mirror, where it is read: nothing lies in the host's memory
 * on its way. All else comes by the post box, as gpu_inbox.c says. Words that
 * are waited for are the host's always; a post comes behind all that was
 * written before it, wherever.
 *
 * What a driver says of its GPUs is tried: there are machines where bytes for a
 * peer come to nowhere, and no command fails. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

enum { TRIAL = 4096 };

/* ---- does it reach? ------------------------------------------------------ */

/* PLAIT_PEER=0: no GPU writes into another's memory, to tell whether it is that
 * which goes wrong. */
static pl_status read_switch(bool *peers, pl_err *err)
{
    const char *s = getenv("PLAIT_PEER");

    *peers = !s || !*s || strcmp(s, "1") == 0;
    if (*peers || strcmp(s, "0") == 0)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "PLAIT_PEER=%.40s: 0 keeps GPUs from writing into each "
                   "other's memory, 1 does not",
                   s);
}

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
    if (!device_set_keeps(x->set)) /* else it might wait for what hangs */
        w->driver->release(w->gpu, from);
    return s;
}

/* Does what device d pushes come into the mirror of x? */
static pl_status reaches(struct gpu_device *x, int d, bool peers, bool *yes,
                         pl_err *err)
{
    const struct device *from = device_of(x->set, d);
    struct gpu_device *w = from->own;

    *yes = from == x->dev;
    if (*yes || !peers || from->bank != x->dev->bank || !x->driver->reach ||
        x->driver->reach(w->gpu, x->gpu, NULL) != PL_OK)
        return PL_OK;
    x->reached = true; /* a trial that hangs may write later, too */
    return try_to_send(w, x, yes, err);
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

/* far: [tensors], those that come by the post box. */
static pl_status find_near(struct gpu_device *x, bool peers, bool *near,
                           bool *far, pl_err *err)
{
    const struct program *to = x->dev->prog;

    for (int d = 0; d < device_set_size(x->set); d++) {
        const struct program *from = device_of(x->set, d)->prog;
        struct pushes p = {.to = to};
        bool yes;

        look_at_pushes(&p, from);
        if (!p.any)
            continue;
        PL_TRY(reaches(x, d, peers, &yes, err));
        p.mark = yes ? near : far;
        look_at_pushes(&p, from);
    }
    for (int i = 0; i < to->n_tensor; i++)
        near[i] &= !far[i];
    return PL_OK;
}

static pl_status fill_box(struct gpu_device *x, bool peers, struct gpu_box *box,
                          pl_err *err)
{
    size_t n = (size_t)x->dev->prog->n_tensor + 1;
    bool *far = calloc(n, sizeof *far);
    pl_status s;

    box->mirror = x->region[REGION_INBOX];
    box->near = calloc(n, sizeof *box->near);
    s = far && box->near ? find_near(x, peers, box->near, far, err)
                         : err_no_memory(err, "a device's tables");
    free(far);
    return s;
}

pl_status gpu_peer_load(struct gpu_bank *g, int n, pl_err *err)
{
    struct device_set *set = g->dev[0].set;
    bool peers;

    PL_TRY(read_switch(&peers, err));
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
        PL_TRY(fill_box(&g->dev[i], peers, &g->box[g->dev[i].dev->prog->dev],
                        err));
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
