/* Maps the host memory that kernels and queues access in place: the device's
 * own inbox and events, and the memory of other devices that its program
 * accesses. Direct pushes to peers are not handled here (gpu_peer.c). Kernels
 * keep no working data in host memory; they read a byte there once, or write to
 * an inbox. */
#include <stdlib.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

/* Maps p[bytes] and returns its device address, or 0 if it cannot be mapped. */
static uint64_t map(struct gpu_device *x, void *p, size_t bytes)
{
    uint64_t at = 0;

    if (!x->driver->map || !p || bytes == 0 ||
        x->driver->map(x->gpu, p, bytes, &at, NULL) != PL_OK)
        return 0;
    x->mapped[x->n_mapped++] = p;
    return at;
}

pl_status gpu_reach_own(struct gpu_device *x, pl_err *err)
{
    size_t n = (size_t)device_set_size(x->set) * (REGION_COUNT + 1);
    struct device *d = x->dev;

    x->mapped = calloc(n, sizeof *x->mapped);
    if (!x->mapped)
        return err_no_memory(err, "a device's tables");
    x->looked = false;
    x->maps_events =
        d->event_bytes == 0 || map(x, d->event, d->event_bytes) != 0;
    x->image.inbox.mapped = map(x, d->at[REGION_INBOX], d->bytes[REGION_INBOX]);
    return PL_OK;
}

/* State of the search for other devices' memory that the program accesses. */
struct looker {
    struct gpu_device *x;
    /* By device and region: true if mapping was tried. After a failure it is
     * not tried again, because that may take long for a large region. */
    bool tried[DEVICE_MAX * REGION_COUNT];
};

/* Maps the region of the tensor accessed by `u`, if it belongs to another
 * device. */
static void look(void *user, const struct insn_access *u)
{
    struct looker *l = user;
    struct gpu_device *x = l->x;
    struct device *d = device_of(x->set, u->dev);
    enum region r = d->prog->tensor[u->tensor].region;
    int i = u->dev * REGION_COUNT + (int)r;

    if (d == x->dev || gpu_image_near(&x->image, u->dev, u->tensor))
        return;
    if (!l->tried[i])
        x->image.view[i] = map(x, d->at[r], d->bytes[r]);
    l->tried[i] = true;
    x->maps_all &= x->image.view[i] != 0;
    x->stages |= x->image.view[i] == 0;
}

static void look_at_events(struct gpu_device *x, const struct insn_wait *w,
                           bool *seen)
{
    for (int i = 0; i < wait_count(w); i++) {
        struct device *d = device_of(x->set, wait_event(w, i).dev);

        if (d == x->dev || seen[d->prog->dev])
            continue;
        seen[d->prog->dev] = true;
        x->maps_all &= map(x, d->event, d->event_bytes) != 0;
    }
}

void gpu_reach_others(struct gpu_device *x)
{
    const struct program *p = x->dev->prog;
    bool seen[DEVICE_MAX] = {false};
    struct looker l = {.x = x};

    x->looked = true;
    x->stages = false;
    x->maps_all = x->maps_events &&
                  (x->image.inbox.mapped || x->dev->bytes[REGION_INBOX] == 0);
    for (int i = 0; i < p->n_variant; i++)
        for (int k = 0; k < p->variant[i].n_insn; k++) {
            const struct insn *st = &p->variant[i].insn[k];

            if (st->kind == INSN_WAIT)
                look_at_events(x, &st->wait, seen);
            else if (st->kind != INSN_KERNEL)
                insn_accesses(st, p->dev, p->tensor, look, &l);
        }
}

void gpu_reach_end(struct gpu_device *x)
{
    for (int i = 0; i < x->n_mapped && !x->lost; i++)
        x->driver->unmap(x->gpu, x->mapped[i]);
    free(x->mapped);
    x->mapped = NULL;
    x->n_mapped = 0;
}
