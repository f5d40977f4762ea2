/* The staging ring: pinned host memory through which host data is copied to a
 * GPU and back. The driver copies from and to it at full speed without blocking
 * a thread. The ring consists of buffers. A buffer is filled range by range for
 * one queue. A fence recorded after its last range tells when it may be reused.
 * While a queue uses some buffers, others are filled, so the link is never
 * idle. Copies from and to the ring wait for no other device, so each buffer
 * becomes free eventually. Callers hold gpu_device.lock. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

unsigned char *gpu_ring_at(const struct gpu_device *x, int i)
{
    return x->ring + (size_t)i * GPU_SLOT;
}

pl_status gpu_ring_mark(struct gpu_device *x, int i, pl_err *err)
{
    struct staging_buffer *o = &x->slot[i];

    if (!o->closed || o->marked || o->n_copying > 0)
        return PL_OK;
    PL_TRY(x->driver->fence_record(x->gpu, o->queue, GPU_SLOT_MARK + i, err));
    PL_TRY(x->driver->flush(x->gpu, o->queue, err));
    o->marked = true;
    o->since = device_now();
    return PL_OK;
}

pl_status gpu_ring_look(struct gpu_device *x, int i, bool *yes, pl_err *err)
{
    struct staging_buffer *o = &x->slot[i];

    PL_TRY(gpu_ring_mark(x, i, err));
    *yes = true;
    if (x->driver->fence_query)
        PL_TRY(gpu_poll_fence(x, GPU_SLOT_MARK + i, o->since, yes, err));
    else
        PL_TRY(x->driver->finish(x->gpu, o->queue, err));
    if (*yes) {
        gpu_return_take(x, i);
        *o = (struct staging_buffer){0};
    }
    return PL_OK;
}

/* Waits a moment for closed buffer i to become free. The lock is released
 * meanwhile, so the caller must check the ring's state again. */
static pl_status wait_for(struct gpu_device *x, int i, pl_err *err)
{
    double since = x->slot[i].since;
    bool yes;

    if (x->slot[i].n_copying > 0) {
        pthread_cond_wait(&x->settled, &x->lock);
        return PL_OK;
    }
    PL_TRY(gpu_ring_look(x, i, &yes, err));
    if (yes)
        return PL_OK;
    pthread_mutex_unlock(&x->lock);
    gpu_pause(x, since);
    pthread_mutex_lock(&x->lock);
    return PL_OK;
}

pl_status gpu_ring_room(struct gpu_device *x, enum queue q, pl_err *err)
{
    for (;;) {
        int i = x->filling;
        struct staging_buffer *o = &x->slot[i];

        if (o->closed) {
            PL_TRY(wait_for(x, i, err));
        } else if (o->filled == 0 ||
                   (o->filled < GPU_SLOT && o->n_return < GPU_RETURNS &&
                    o->queue == q)) {
            o->queue = q;
            return PL_OK;
        } else {
            o->closed = true;
            x->filling = (i + 1) % GPU_SLOTS;
            PL_TRY(gpu_ring_mark(x, i, err));
        }
    }
}

pl_status gpu_ring_empty(struct gpu_device *x, pl_err *err)
{
    for (int i = 0; i < GPU_SLOTS;)
        if (x->slot[i].n_copying > 0) {
            pthread_cond_wait(&x->settled, &x->lock);
            i = 0;
        } else {
            i++;
        }
    for (int q = 0; q < QUEUE_COUNT; q++)
        PL_TRY(gpu_drain(x, (enum queue)q, err));
    memset(x->slot, 0, sizeof x->slot);
    return PL_OK;
}
