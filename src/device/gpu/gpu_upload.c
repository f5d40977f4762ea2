/* Copies host memory to a GPU through the staging ring (gpu_staging_ring.c)
 * and, between steps, from a GPU to host memory. Several threads may fill the
 * ring at once: the threads that load weights, or the copy threads. They
 * reserve space under the lock and copy in parallel. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"
#include "machine/topology.h"

enum {
    /* number of copy threads: each copies some 10 GB/s, while links transfer 25
     * to 50 */
    CREW = 4,
    TOGETHER = 2 * GPU_SLOT /* minimum size in bytes of a copy that uses the
                               copy threads */
};

/* ---- copies to the device ------------------------------------------------ */

/* An upload: a copy from host memory whose spans are contiguous at device
 * address `dst`. */
struct errand {
    struct gpu_device *x;
    enum queue queue;
    uint64_t dst;
    const unsigned char *src;
    const struct copy_extent *loops;
    size_t bytes;
    size_t taken; /* bytes of the upload that threads have reserved so far */
    pl_status s;  /* status of the first failure */
    pl_err err;
};

/* A part of an upload: its bytes from `from` on, and the space reserved for
 * them in a staging buffer. */
struct part {
    int slot;
    unsigned char *at;
    size_t from, bytes;
};

/* Reserves space for the next part of the upload, as large as the staging
 * buffer allows. The part has 0 bytes if other threads have reserved the
 * rest. */
static pl_status take(struct errand *e, struct part *p, pl_err *err)
{
    struct gpu_device *x = e->x;
    struct staging_buffer *o;
    size_t left, room;

    PL_TRY(gpu_ring_room(x, e->queue, err));
    o = &x->slot[x->filling];
    left = e->bytes - e->taken;
    room = GPU_SLOT - o->filled;
    *p = (struct part){.slot = x->filling,
                       .at = gpu_ring_at(x, x->filling) + o->filled,
                       .from = e->taken,
                       .bytes = left < room ? left : room};
    o->filled += p->bytes;
    o->n_copying++;
    e->taken += p->bytes;
    return PL_OK;
}

/* Queues the upload of a part that was filled. */
static pl_status give(struct errand *e, const struct part *p, pl_err *err)
{
    struct gpu_device *x = e->x;
    struct staging_buffer *o = &x->slot[p->slot];
    pl_status s = x->driver->write(x->gpu, o->queue, e->dst + p->from, p->at,
                                   p->bytes, err);

    if (--o->n_copying == 0)
        pthread_cond_broadcast(&x->settled);
    return s == PL_OK ? gpu_ring_mark(x, p->slot, err) : s;
}

/* Copies n bytes of a copy extent to `to`, from byte `from` of the
 * concatenation of its spans. */
static void gather(unsigned char *to, const unsigned char *src,
                   const struct copy_extent *l, size_t from, size_t n)
{
    while (n > 0) {
        int64_t run = (int64_t)from / l->bytes, at = (int64_t)from % l->bytes;
        size_t most = (size_t)(l->bytes - at), some = n < most ? n : most;

        memcpy(to,
               src + l->src + run / l->n1 * l->src_s0 +
                   run % l->n1 * l->src_s1 + at,
               some);
        to += some;
        from += some;
        n -= some;
    }
}

/* Reserves, fills and queues parts until all bytes of the upload are reserved.
 * Each thread that takes part calls it with the lock held; the lock is released
 * while bytes are copied. */
static void do_parts(struct errand *e)
{
    struct gpu_device *x = e->x;

    while (e->taken < e->bytes && e->s == PL_OK) {
        struct part p;
        pl_err err = {0};
        pl_status s = take(e, &p, &err);

        if (s == PL_OK) {
            pthread_mutex_unlock(&x->lock);
            gather(p.at, e->src, e->loops, p.from, p.bytes);
            pthread_mutex_lock(&x->lock);
            s = give(e, &p, &err);
        }
        if (s != PL_OK && e->s == PL_OK) {
            e->s = s;
            e->err = err;
        }
    }
}

static void join_in(void *user, int thread)
{
    struct errand *e = user;

    (void)thread;
    pthread_mutex_lock(&e->x->lock);
    do_parts(e);
    pthread_mutex_unlock(&e->x->lock);
}

/* Executes an upload. `crew` are the copy threads; NULL if only the calling
 * thread may copy. */
static pl_status write_dense(struct errand *e, struct team *crew, pl_err *err)
{
    e->bytes = (size_t)copy_loops_bytes(e->loops);
    if (crew && e->bytes >= TOGETHER) {
        pthread_mutex_unlock(&e->x->lock);
        team_run(crew, join_in, e);
        pthread_mutex_lock(&e->x->lock);
    } else {
        do_parts(e);
    }
    if (e->s != PL_OK && err)
        *err = e->err;
    return e->s;
}

/* Uploads a copy extent: splits it into copies that are contiguous at the
 * destination. */
static pl_status write_runs(const struct errand *all, struct team *crew,
                            pl_err *err)
{
    int64_t n0, n1;

    copy_loops_apart(all->loops, all->loops->dst_s0, all->loops->dst_s1, &n0,
                     &n1);
    for (int64_t i = 0; i < n0 * n1; i++) {
        const struct copy_extent part = copy_loops_part(all->loops, n0, n1, i);
        struct errand e = *all;

        e.loops = &part;
        e.dst += (uint64_t)part.dst;
        PL_TRY(write_dense(&e, crew, err));
    }
    return PL_OK;
}

static pl_status write_all(const struct errand *e, struct team *crew,
                           pl_err *err)
{
    pl_status s;

    if (copy_loops_bytes(e->loops) == 0)
        return PL_OK;
    pthread_mutex_lock(&e->x->lock);
    s = gpu_check_alive(e->x, err);
    if (s == PL_OK)
        s = write_runs(e, crew, err);
    pthread_mutex_unlock(&e->x->lock);
    return s;
}

pl_status gpu_stage_runs(struct gpu_device *x, enum queue q, uint64_t dst,
                         const unsigned char *src, const struct copy_extent *l,
                         pl_err *err)
{
    const struct errand e = {
        .x = x, .queue = q, .dst = dst, .src = src, .loops = l};

    return write_all(&e, x->copy_threads, err);
}

pl_status gpu_stage_write(struct gpu_device *x, uint64_t dst, const void *src,
                          size_t bytes, pl_err *err)
{
    const struct copy_extent l = {.bytes = (int64_t)bytes, .n0 = 1, .n1 = 1};
    const struct errand e = {
        .x = x, .queue = QUEUE_COPY, .dst = dst, .src = src, .loops = &l};

    return write_all(&e, NULL, err);
}

pl_status gpu_stage_flush(struct gpu_device *x, pl_err *err)
{
    pl_status s = PL_OK;

    pthread_mutex_lock(&x->lock);
    s = gpu_ring_empty(x, err);
    pthread_mutex_unlock(&x->lock);
    return s;
}

/* ---- copy threads -------------------------------------------------------- */

static bool pulls_much(const struct program *p)
{
    for (int i = 0; i < p->n_variant; i++)
        for (int k = 0; k < p->variant[i].n_insn; k++) {
            const struct insn *st = &p->variant[i].insn[k];

            for (int j = 0; st->kind == INSN_PULL && j < st->pull.n_piece;
                 j++) {
                struct copy_extent l;

                copy_loops_resolve(&l, &st->pull.piece[j], &p->max);
                if (copy_loops_bytes(&l) >= TOGETHER)
                    return true;
            }
        }
    return false;
}

/* Starts no copy threads if the device's own events are mapped, because other
 * devices' memory can then be mapped too. */
void gpu_stage_begin(struct gpu_device *x, int n_busy)
{
    const struct topology *t = device_set_topology(x->set);
    int n = t && t->n_core_quota < CREW ? t->n_core_quota : CREW, core[CREW];

    if (x->maps_events || !pulls_much(x->dev->prog) || n < 2)
        return;
    for (int i = 0; i < n; i++)
        core[i] = -1;
    if (team_create(&x->copy_threads, n, core, n_busy + n, NULL) != PL_OK)
        x->copy_threads = NULL; /* without copy threads, only the issuing thread
                                   copies */
}

void gpu_stage_end(struct gpu_device *x)
{
    team_free(x->copy_threads);
    x->copy_threads = NULL;
}

/* ---- readback between steps ---------------------------------------------- */

/* Returns how many of the `bytes` bytes of a range are in its k-th staging
 * buffer. */
static size_t slot_bytes(size_t bytes, size_t k)
{
    size_t left = bytes - k * GPU_SLOT;

    return left < GPU_SLOT ? left : GPU_SLOT;
}

static pl_status ask_for(struct gpu_device *x, uint64_t src, size_t bytes,
                         size_t k, pl_err *err)
{
    int i = (int)(k % GPU_SLOTS);

    PL_TRY(x->driver->read(x->gpu, QUEUE_COPY, gpu_ring_at(x, i),
                           src + k * GPU_SLOT, slot_bytes(bytes, k), err));
    x->slot[i].queue = QUEUE_COPY;
    x->slot[i].closed = true;
    return gpu_ring_mark(x, i, err);
}

/* Reads a range through the ring. While one buffer is copied to dst, others are
 * in flight. */
static pl_status read_slots(struct gpu_device *x, unsigned char *dst,
                            uint64_t src, size_t bytes, pl_err *err)
{
    size_t n = (bytes + GPU_SLOT - 1) / GPU_SLOT, asked = 0;

    for (size_t k = 0; k < n; k++) {
        int i = (int)(k % GPU_SLOTS);

        for (; asked < n && asked < k + GPU_SLOTS; asked++)
            PL_TRY(ask_for(x, src, bytes, asked, err));
        /* The lock is kept while polling, so that no other thread uses the
         * ring. */
        for (bool come = false; !come;) {
            double since = x->slot[i].since;

            PL_TRY(gpu_ring_look(x, i, &come, err));
            if (!come)
                gpu_pause(x, since);
        }
        memcpy(dst + k * GPU_SLOT, gpu_ring_at(x, i), slot_bytes(bytes, k));
    }
    return PL_OK;
}

static pl_status read_all(struct gpu_device *x, void *dst, uint64_t src,
                          size_t bytes, pl_err *err)
{
    pl_status s;

    PL_TRY(gpu_ring_empty(x, err));
    s = read_slots(x, dst, src, bytes, err);
    if (s != PL_OK) /* a copy in flight must not write to a reused buffer */
        gpu_ring_empty(x, NULL);
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
