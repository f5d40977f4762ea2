/* The staging ring: host memory through which bytes go to a GPU and back. The
 * driver copies from and to it at full speed without blocking a thread. A
 * staging buffer belongs to one queue while it is filled, range by range; a
 * fence after its last range says when it is free. So while a queue uses some
 * buffers, others are filled, and the link stays busy. Copies of the ring wait
 * for no other device, so a buffer always becomes free. Callers hold the lock.
 */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

unsigned char *gpu_ring_at(const struct gpu_device *x, int i)
{
    return x->ring + (size_t)i * GPU_SLOT;
}

/* Records the fence after all ranges of the buffer are in its queue. */
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

/* Waits a moment for a closed buffer. Other threads use the ring meanwhile, so
 * all its state may have changed afterwards. */
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
    gpu_pause(since);
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
