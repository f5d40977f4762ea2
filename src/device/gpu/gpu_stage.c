/* Bytes between the host and a GPU, between runs. What is written is copied
 * into one half of a buffer that the driver reads at full speed; while a queue
 * reads that one, the other half is filled. Several threads fill it at once:
 * they take their parts under the lock and copy beside each other. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

enum { PART = GPU_STAGE / 8 }; /* that a thread takes, at most */

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

/* Until all that was taken has been put into the queue. Others may take parts
 * meanwhile. */
static void settle(struct gpu_device *x)
{
    while (x->n_copying > 0)
        pthread_cond_wait(&x->settled, &x->lock);
}

static pl_status empty(struct gpu_device *x, pl_err *err)
{
    settle(x);
    for (int q = 0; q < QUEUE_COUNT; q++)
        PL_TRY(gpu_settle(x, (enum queue)q, err));
    x->filled = 0;
    return PL_OK;
}

/* Takes a part of the half that is being filled, of *n bytes or fewer. */
static pl_status take(struct gpu_device *x, size_t *n, unsigned char **to,
                      pl_err *err)
{
    size_t room;

    while (x->filled == GPU_STAGE) {
        if (x->n_copying > 0)
            settle(x);
        else
            PL_TRY(turn(x, err));
    }
    room = GPU_STAGE - x->filled;
    *n = *n < room ? *n : room;
    *n = *n < PART ? *n : PART;
    *to = x->half[x->filling] + x->filled;
    x->filled += *n;
    x->n_copying++;
    return PL_OK;
}

/* The part, which is full now, goes to dst. */
static pl_status give(struct gpu_device *x, uint64_t dst,
                      const unsigned char *from, size_t n, pl_err *err)
{
    pl_status s = x->driver->write(x->gpu, x->filling, dst, from, n, err);

    if (--x->n_copying == 0)
        pthread_cond_broadcast(&x->settled);
    return s;
}

/* The lock is held, but while bytes are copied. */
static pl_status write_all(struct gpu_device *x, uint64_t dst,
                           const unsigned char *src, size_t bytes, pl_err *err)
{
    PL_TRY(gpu_is_there(x, err));
    while (bytes > 0) {
        size_t n = bytes;
        unsigned char *to;

        PL_TRY(take(x, &n, &to, err));
        pthread_mutex_unlock(&x->lock);
        memcpy(to, src, n);
        pthread_mutex_lock(&x->lock);
        PL_TRY(give(x, dst, to, n, err));
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
