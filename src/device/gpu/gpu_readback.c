/* Readback during a step, from the GPU to host memory that the driver has not
 * mapped. A queue copies the bytes into the staging ring (gpu_staging_ring.c).
 * The issuing thread copies them to their destination when the staging buffer
 * is needed again, or after it has waited for the queue. It waits before it
 * posts an event, after which other devices may read the bytes. It also waits
 * before the device itself reads them, if its own inbox is not mapped. The
 * bytes are not copied to their destination directly, because a driver blocks
 * the thread for each copy to memory that it has not mapped. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

/* ---- readbacks in the ring ----------------------------------------------- */

static void scatter(const struct pending_readback *r)
{
    const struct copy_extent *l = &r->loops;

    for (size_t done = 0; done < r->bytes;) {
        int64_t all = (int64_t)(r->from + done);
        int64_t run = all / l->bytes, at = all % l->bytes;
        size_t most = (size_t)(l->bytes - at), n = r->bytes - done;

        n = n < most ? n : most;
        memcpy(r->dst + l->dst + run / l->n1 * l->dst_s0 +
                   run % l->n1 * l->dst_s1 + at,
               r->at + done, n);
        done += n;
    }
}

void gpu_return_take(struct gpu_device *x, int i)
{
    for (int k = 0; k < x->slot[i].n_return; k++)
        scatter(&x->back[i][k]);
    x->slot[i].n_return = 0;
}

void gpu_return_take_all(struct gpu_device *x, enum queue q)
{
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < GPU_SLOTS; i++)
        if (x->slot[i].queue == q)
            gpu_return_take(x, i);
    pthread_mutex_unlock(&x->lock);
}

bool gpu_return_is_due(struct gpu_device *x, enum queue q)
{
    bool due = false;

    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < GPU_SLOTS; i++)
        due |= x->slot[i].queue == q && x->slot[i].n_return > 0;
    pthread_mutex_unlock(&x->lock);
    return due;
}

void gpu_return_forget(struct gpu_device *x)
{
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < GPU_SLOTS; i++)
        x->slot[i].n_return = 0;
    pthread_mutex_unlock(&x->lock);
}

/* ---- queueing readbacks -------------------------------------------------- */

/* Queues the readback of a copy extent whose spans are contiguous at src +
 * l->src. */
static pl_status ask_for(struct gpu_device *x, enum queue q, unsigned char *dst,
                         uint64_t src, const struct copy_extent *l, pl_err *err)
{
    size_t bytes = (size_t)copy_loops_bytes(l);

    for (size_t from = 0; from < bytes;) {
        struct pending_readback r = {.dst = dst, .loops = *l, .from = from};
        struct staging_buffer *o;
        unsigned char *at;
        size_t room;

        PL_TRY(gpu_ring_room(x, q, err));
        o = &x->slot[x->filling];
        at = gpu_ring_at(x, x->filling) + o->filled;
        room = GPU_SLOT - o->filled;
        r.bytes = bytes - from < room ? bytes - from : room;
        r.at = at;
        PL_TRY(x->driver->read(x->gpu, q, at, src + (uint64_t)l->src + from,
                               r.bytes, err));
        x->back[x->filling][o->n_return++] = r;
        o->filled += r.bytes;
        from += r.bytes;
    }
    return PL_OK;
}

static pl_status ask_for_parts(struct gpu_device *x, enum queue q,
                               unsigned char *dst, uint64_t src,
                               const struct copy_extent *l, pl_err *err)
{
    int64_t n0, n1;

    copy_loops_apart(l, l->src_s0, l->src_s1, &n0, &n1);
    for (int64_t i = 0; i < n0 * n1; i++) {
        const struct copy_extent part = copy_loops_part(l, n0, n1, i);

        PL_TRY(ask_for(x, q, dst, src, &part, err));
    }
    return PL_OK;
}

pl_status gpu_return_runs(struct gpu_device *x, enum queue q,
                          unsigned char *dst, uint64_t src,
                          const struct copy_extent *l, pl_err *err)
{
    pl_status s;

    if (copy_loops_bytes(l) == 0)
        return PL_OK;
    pthread_mutex_lock(&x->lock);
    s = gpu_check_alive(x, err);
    if (s == PL_OK)
        s = ask_for_parts(x, q, dst, src, l, err);
    pthread_mutex_unlock(&x->lock);
    return s;
}
