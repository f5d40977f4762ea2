/* Bytes between the host and a GPU, between runs. What is written is copied
 * into one half of a buffer that the driver reads at full speed; while a queue
 * reads that one, the other half is filled. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

/* The other half comes next, when its queue has read it; what is written there
 * comes after what was written here. */
static pl_status turn(struct gpu_device *x, pl_err *err)
{
    enum queue q = x->filling,
               next = q == QUEUE_COPY ? QUEUE_COMPUTE : QUEUE_COPY;

    PL_TRY(x->driver->mark(x->gpu, q, GPU_STAGE_MARK, err));
    PL_TRY(x->driver->flush(x->gpu, q, err));
    PL_TRY(gpu_settle(x, next, err));
    PL_TRY(x->driver->await(x->gpu, next, GPU_STAGE_MARK, err));
    x->filling = next;
    x->filled = 0;
    return PL_OK;
}

static pl_status empty(struct gpu_device *x, pl_err *err)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        PL_TRY(gpu_settle(x, (enum queue)q, err));
    x->filled = 0;
    return PL_OK;
}

static pl_status write_all(struct gpu_device *x, uint64_t dst,
                           const unsigned char *src, size_t bytes, pl_err *err)
{
    PL_TRY(gpu_is_there(x, err));
    while (bytes > 0) {
        size_t n = GPU_STAGE - x->filled;
        unsigned char *to;

        if (n == 0) {
            PL_TRY(turn(x, err));
            n = GPU_STAGE;
        }
        n = n < bytes ? n : bytes;
        to = x->half[x->filling] + x->filled;
        memcpy(to, src, n);
        PL_TRY(x->driver->write(x->gpu, x->filling, dst, to, n, err));
        x->filled += n;
        dst += n;
        src += n;
        bytes -= n;
    }
    return PL_OK;
}

static pl_status read_all(struct gpu_device *x, unsigned char *dst,
                          uint64_t src, size_t bytes, pl_err *err)
{
    PL_TRY(empty(x, err));
    while (bytes > 0) {
        size_t n = bytes < GPU_STAGE ? bytes : GPU_STAGE;

        PL_TRY(x->driver->read(x->gpu, QUEUE_COPY, x->half[QUEUE_COPY], src, n,
                               err));
        PL_TRY(gpu_settle(x, QUEUE_COPY, err));
        memcpy(dst, x->half[QUEUE_COPY], n);
        dst += n;
        src += n;
        bytes -= n;
    }
    return PL_OK;
}

pl_status gpu_stage_write(struct gpu_device *x, uint64_t dst, const void *src,
                          size_t bytes, pl_err *err)
{
    pl_status s;

    pthread_mutex_lock(&x->lock);
    s = write_all(x, dst, src, bytes, err);
    pthread_mutex_unlock(&x->lock);
    return s;
}

pl_status gpu_stage_read(struct gpu_device *x, void *dst, uint64_t src,
                         size_t bytes, pl_err *err)
{
    pl_status s;

    pthread_mutex_lock(&x->lock);
    s = read_all(x, dst, src, bytes, err);
    pthread_mutex_unlock(&x->lock);
    return s;
}

pl_status gpu_stage_flush(struct gpu_device *x, pl_err *err)
{
    pl_status s = PL_OK;

    pthread_mutex_lock(&x->lock);
    s = empty(x, err);
    pthread_mutex_unlock(&x->lock);
    return s;
}
