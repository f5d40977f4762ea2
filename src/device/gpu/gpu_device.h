/* A GPU of a device set: its state, which is the same for all drivers, and the
 * functions that its files share.
 *
 * The inbox of a GPU exists twice, with the same offsets. The host inbox is in
 * host memory, where every device can write. The device-side inbox is in GPU
 * memory, where the GPU's kernels read. What arrives in the host inbox is
 * copied to the device-side inbox (gpu_inbox.c). Some peers write there
 * directly (gpu_peer.c). */
#ifndef DEVICE_GPU_GPU_DEVICE_H
#define DEVICE_GPU_GPU_DEVICE_H

#include <pthread.h>

#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_graph.h"
#include "device/gpu/gpu_image.h"
#include "device/team.h"

enum {
    GPU_SLOTS = 8, /* number of staging buffers in the ring */
    /* size of a staging buffer in bytes; a fast link transfers the buffer in 20
     * us, ten times the start-up time of a copy */
    GPU_SLOT = 1 << 20,
    GPU_RETURNS = 64,         /* most readbacks in one staging buffer */
    GPU_PULSES = 8,           /* most heartbeats in flight, see
                                 gpu_watchdog.c */
    GPU_RING = 63,            /* number of fences for events, reused in turn */
    GPU_SLOT_MARK = GPU_RING, /* first of the fences for staging buffers */
    GPU_PULSE_MARK = GPU_SLOT_MARK + GPU_SLOTS,
};
_Static_assert(GPU_PULSE_MARK + GPU_PULSES <= GPU_MAX_MARKS, "marks");

struct gpu_heartbeat {
    /* index in the variant of the instruction after the heartbeat; 0 if no
     * instruction of the step precedes the heartbeat */
    int step;
};

/* A readback: the GPU copies a part of a copy extent into a range of a staging
 * buffer. Later the host scatters the range to the extent's spans, from dst on.
 * The part is the `bytes` bytes from byte `from` of the concatenation of the
 * spans. */
struct pending_readback {
    unsigned char *dst;
    struct copy_extent loops;
    size_t from, bytes;
    const unsigned char *at; /* the range of the staging buffer */
};

/* A buffer of the staging ring. Only commands of queue `queue` read from it
 * (uploads) or write to it (readbacks). */
struct staging_buffer {
    /* bytes of the buffer that are reserved so far, for uploads and
     * readbacks */
    size_t filled;
    enum queue queue;
    /* number of readbacks that wait in the buffer for their destination */
    int n_return;
    int n_copying; /* number of threads that are copying into the buffer */
    bool closed;   /* no more bytes can be reserved */
    bool marked;   /* the buffer's fence was recorded, after all of its
                      copies */
    double since;  /* device_now() when the fence was recorded */
};

/* An event that this device posts. */
struct gpu_event {
    bool crossed;     /* the device's other queue waits for the event */
    bool external;    /* other devices wait for the event */
    enum queue queue; /* queue that posts the event */
    /* number of the event's fence, counted from 1 over all fences that the
     * device records for events; 0 if none */
    uint64_t mark;
};

/* A point of a step that is reached when an event is posted (gpu_ahead.c). */
struct gpu_point {
    _Atomic uint64_t *word; /* the event's flag */
    bool own;       /* this GPU posts the event; else its queue waits for it */
    int insn;       /* index of the instruction in the variant */
    uint64_t pulse; /* number of heartbeats issued before it */
};

struct gpu_device {
    struct gpu_image image;
    struct gpu_graphs graphs;
    struct device *dev;     /* the device of the set; borrowed */
    struct device_set *set; /* the device set; borrowed */
    const struct gpu_driver *driver;
    struct gpu *gpu; /* the open GPU; owned */
    /* device addresses of the regions; for REGION_INBOX, of the device-side
     * inbox; owned */
    uint64_t region[REGION_COUNT];
    /* device addresses of the scratch memory and of the tables image.tables;
     * owned */
    uint64_t scratch, tables;
    /* host addresses that were passed to driver->map(), [n_mapped]; owned */
    void **mapped;
    int n_mapped;
    /* by kernel: the program or the self-test launches it */
    bool want[GPU_KERNEL_COUNT];
    /* number of kernels in `want`; 0 for an emulated GPU, which has no
     * self-test */
    int n_want;
    /* the kernels in `want` passed their self-test earlier, as a file in the
     * cache folder says */
    bool passed;
    /* gpu_reach_others() was called; the first step does so */
    bool looked;
    /* the device's own event flags are mapped, so that its queues can post
     * events */
    bool maps_events;
    /* the device's event flags and host inbox are mapped, and all memory and
     * event flags of other devices that its program accesses */
    bool maps_all;
    /* steps use the staging ring, because other devices have memory that the
     * program accesses and the driver cannot map */
    bool stages;
    bool shared; /* the device-side inbox is in memory that peers may write */
    /* peers have access to the device-side inbox, whether or not they use it */
    bool reached;
    /* the device-side inbox is never freed, because a lost device may still
     * write there */
    bool quarantined;

    /* The following fields are used by the thread that waits for the GPU:
     * during a step the issuing thread, otherwise the holder of `lock`. */

    /* the GPU hangs, or another device on the same GPU does: the driver must
     * not be called any more */
    bool lost;
    struct gpu_heartbeat pulse[GPU_PULSES];
    /* number of heartbeats issued; number of those that were reached */
    uint64_t n_pulse, n_reached;
    double since; /* device_now() at the last sign of progress */
    int n_insn;   /* instructions queued since the last
                     heartbeat */
    /* 1 + index of the instruction being issued; 0 before the first */
    int at_insn;

    /* Protects the staging ring. Several threads fill it: those that load
     * weights between steps, and the copy threads during steps. */
    pthread_mutex_t lock;
    /* owned, allocated by the driver, [GPU_SLOTS][GPU_SLOT]: the staging
     * buffers */
    unsigned char *ring;
    struct staging_buffer slot[GPU_SLOTS];
    /* by staging buffer, its n_return readbacks */
    struct pending_readback back[GPU_SLOTS][GPU_RETURNS];
    int filling; /* index of the staging buffer being filled */
    /* owned: threads that copy into staging buffers during steps; NULL if the
     * issuing thread copies */
    struct team *copy_threads;
    /* signalled when the last thread that copied into a staging buffer has
     * finished */
    pthread_cond_t settled;

    /* ---- the step in progress: used by the issuing thread ---- */
    const struct device_run *run;
    uint64_t number;
    const atomic_bool *failed;
    int n_spin;
    struct yielding yielding;
    double waited_s; /* time that the issuing thread waited for other
                        devices */
    /* waits for the end of each instruction before it issues the next, because
     * the run is traced or a test guards the memory */
    bool slow;
    bool posts;       /* events are posted by the queues, not by the issuing
                         thread */
    bool queues_wait; /* the queues wait for other devices' events, not the
                         issuing thread */
    /* graphs may have nodes of words, and the set zeroes all events */
    bool graph_words;
    bool used[QUEUE_COUNT]; /* by queue: the step has issued work to it */
    /* the events that the device posts, [prog->n_event]; owned */
    struct gpu_event *event;
    uint64_t n_mark; /* number of fences recorded for events so far */
    /* owned, [most events in the WAITs and POSTs of a variant], n_point in use
     * if the queues wait: the step's points in the order of issue */
    struct gpu_point *point;
    int n_point;
    int n_seen;    /* points [0, n_seen) are reached */
    int n_awaited; /* 1 + index of the last point that is not own; 0 if none */
    /* owned, [most instructions of a variant], n_later in use: instructions
     * that the issuing thread has deferred */
    int *deferred;
    int n_later;
    /* owned, allocated by the driver: host copies of the token tables of all
     * micro-batches; NULL if no PAGES instruction needs them */
    int32_t *table;
};

struct gpu_backend {
    /* owned: one issuing thread for each GPU, after thread 0, the caller's,
     * which does nothing */
    struct team *team;
    /* owned, [devices of the set]: where pushes to each device go; NULL if no
     * program is loaded */
    struct peer_inbox *box;
    struct gpu_device dev[]; /* the backend's devices, [backend.n] */
};

/* Returns the host copy of the token table of micro-batch `micro`. */
static inline int32_t *gpu_table_of(const struct gpu_device *x, int micro)
{
    return x->table + micro * program_token_table_words(x->dev->prog);
}

/* ---- gpu_region.c ---- */
/* Allocates `bytes` bytes of device memory at *at. Errors name the device and
 * `what`, the purpose of the memory. */
pl_status gpu_allocate(struct gpu_device *x, const char *what, size_t bytes,
                       uint64_t *at, pl_err *err);
/* Allocates region r, which is not the inbox. If it exceeds the driver's limit
 * of one allocation, uses several. */
pl_status gpu_region_load(struct gpu_device *x, enum region r, pl_err *err);
/* Frees all regions. */
void gpu_region_unload(struct gpu_device *x);
pl_status gpu_region_write(struct gpu_device *x, enum region r, size_t offset,
                           const void *src, size_t bytes, pl_err *err);
pl_status gpu_region_read(struct gpu_device *x, enum region r, size_t offset,
                          void *dst, size_t bytes, pl_err *err);

/* ---- gpu_host_map.c ---- */
/* Maps the device's host inbox and event flags, so that its kernels and queues
 * access them in place. Leaves out what the driver cannot map. */
pl_status gpu_reach_own(struct gpu_device *x, pl_err *err);
/* Maps the memory of other devices that the program accesses. Memory that
 * cannot be mapped is accessed through the staging ring instead. */
void gpu_reach_others(struct gpu_device *x);
void gpu_reach_end(struct gpu_device *x);

/* ---- gpu_peer.c ---- */
/* Creates the device-side inboxes of the backend's n GPUs and decides which
 * tensors are pushed to them. */
pl_status gpu_peer_load(struct gpu_backend *g, int n, pl_err *err);
/* Frees g->box, the decisions of gpu_peer_load(), but not the device-side
 * inboxes. */
void gpu_peer_unload(struct gpu_backend *g);
/* Returns true if the tensor at `offset` in the inbox of `x` is pushed to the
 * device-side inbox. */
bool gpu_peer_has(const struct gpu_device *x, size_t offset);

/* ---- gpu_staging_ring.c ---- */
/* In all gpu_ring_* functions the caller holds x->lock. gpu_ring_at returns the
 * memory of staging buffer i. */
unsigned char *gpu_ring_at(const struct gpu_device *x, int i);
/* Makes x->filling the index of a staging buffer with free space for queue q.
 * May wait until a buffer is free. */
pl_status gpu_ring_room(struct gpu_device *x, enum queue q, pl_err *err);
/* Records the fence of staging buffer i if the buffer is closed and all copies
 * that use it are in its queue. Does nothing otherwise, or if the fence is
 * recorded already. */
pl_status gpu_ring_mark(struct gpu_device *x, int i, pl_err *err);
/* Sets *yes to true if the queue has reached the fence of closed staging buffer
 * i, else to false. If true, copies the buffer's readbacks to their
 * destinations and marks it free. */
pl_status gpu_ring_look(struct gpu_device *x, int i, bool *yes, pl_err *err);
/* Waits until no thread copies into a staging buffer and the queues are empty,
 * then marks all buffers free. Other threads may use the ring during the wait.
 * Must not be called during a step. */
pl_status gpu_ring_empty(struct gpu_device *x, pl_err *err);

/* ---- gpu_readback.c ---- */
/* Queues the readback of copy extent `l` from src in device memory to dst in
 * host memory, through the staging ring. The bytes are at dst only after
 * gpu_return_take() or gpu_return_take_all(). Called by the issuing thread
 * during a step. */
pl_status gpu_return_runs(struct gpu_device *x, enum queue q,
                          unsigned char *dst, uint64_t src,
                          const struct copy_extent *l, pl_err *err);
/* Returns true if a readback of queue q was not copied to its destination
 * yet. */
bool gpu_return_is_due(struct gpu_device *x, enum queue q);
/* Copies the readbacks of staging buffer i to their destinations. The caller
 * holds the lock. */
void gpu_return_take(struct gpu_device *x, int i);
/* Copies all readbacks of queue q, which must be empty, to their
 * destinations. */
void gpu_return_take_all(struct gpu_device *x, enum queue q);
/* Drops all readbacks after a failed step, without copying them. */
void gpu_return_forget(struct gpu_device *x);

/* ---- gpu_upload.c ---- */
/* Starts the copy threads of steps if the program has large PULLs and their
 * sources cannot be mapped. `n_busy` is the number of other busy threads of the
 * process; the copy threads spin less if there are many. Called after
 * gpu_reach_own(). */
void gpu_stage_begin(struct gpu_device *x, int n_busy);
void gpu_stage_end(struct gpu_device *x);
/* Queues a write of src[bytes] to device address dst. `src` may be reused when
 * the function returns. Any thread may call it, but not during a step. */
pl_status gpu_stage_write(struct gpu_device *x, uint64_t dst, const void *src,
                          size_t bytes, pl_err *err);
/* Like gpu_stage_write, for copy extent `l` and queue q. The issuing thread may
 * also call it during a step. Reads the source bytes before it returns. */
pl_status gpu_stage_runs(struct gpu_device *x, enum queue q, uint64_t dst,
                         const unsigned char *src, const struct copy_extent *l,
                         pl_err *err);
pl_status gpu_stage_read(struct gpu_device *x, void *dst, uint64_t src,
                         size_t bytes, pl_err *err);
pl_status gpu_stage_flush(struct gpu_device *x, pl_err *err);

/* ---- gpu_watchdog.c ---- */
/* Returns the seconds without progress after which the GPU counts as lost. */
double gpu_timeout_s(const struct gpu_device *x);
/* Returns PL_OK, or an error if the GPU is lost. */
pl_status gpu_check_alive(const struct gpu_device *x, pl_err *err);
/* Pauses between two polls of a wait that began at `begin`: yields the
 * processor if that was just before, else sleeps 50 us. */
void gpu_pause(struct gpu_device *x, double begin);
/* Sets *yes to true if fence `mark`, recorded at time `since`, was reached,
 * else to false. Declares the GPU lost if it has made no progress for
 * gpu_timeout_s(). */
pl_status gpu_poll_fence(struct gpu_device *x, int mark, double since,
                         bool *yes, pl_err *err);
/* Waits until queue q is empty. Fails if the step fails while the queue waits
 * for an event of another device that was not released. */
pl_status gpu_drain(struct gpu_device *x, enum queue q, pl_err *err);
/* Resets the position in the step, which error messages name. Called when a
 * step begins. */
void gpu_watch_begin(struct gpu_device *x);
/* Counts instruction `step`, which has just been queued. Records a heartbeat
 * after every 64 instructions, and first waits for an older one if too many are
 * in flight. Does nothing if the driver cannot query fences. */
pl_status gpu_heartbeat_issue(struct gpu_device *x, enum queue q, int step,
                              pl_err *err);
/* Counts the heartbeats and points reached so far. Declares the GPU lost, and
 * returns an error, if it has made no progress for gpu_timeout_s() although it
 * is not held (gpu_ahead_is_held). */
pl_status gpu_watch(struct gpu_device *x, pl_err *err);
/* Like gpu_watch, for a wait for other devices that began at `begin`. Does
 * nothing in the first eighth of gpu_timeout_s(). Then records a heartbeat in
 * each queue, once per wait. *marked must be false at first; it is set when the
 * heartbeats are recorded. */
pl_status gpu_watch_long(struct gpu_device *x, double begin, bool *marked,
                         pl_err *err);

/* ---- gpu_ahead.c ---- */
/* Returns PL_BAD_ARGUMENT if the environment variable PLAIT_AHEAD has no valid
 * value. */
pl_status gpu_ahead_check(pl_err *err);
/* Returns true if the queues can wait for events of other devices, so that the
 * issuing thread need not. gpu_reach_others() was called. */
bool gpu_ahead_may(const struct gpu_device *x);
/* Decides if graphs may have nodes of words. Called when a program is
 * loaded. */
void gpu_ahead_load(struct gpu_device *x);
/* Empties the list of points when a step begins. */
void gpu_ahead_begin(struct gpu_device *x);
/* Adds a point: event flag `word` of instruction `insn`, which was queued. */
void gpu_ahead_add(struct gpu_device *x, _Atomic uint64_t *word, bool own,
                   int insn);
/* Counts the points reached so far. Returns true if there were new ones. */
bool gpu_ahead_look(struct gpu_device *x);
/* Returns true if the first point that is not reached is another device's, and
 * the GPU has reached all heartbeats before it. */
bool gpu_ahead_is_held(const struct gpu_device *x);
/* Returns true if a queue waits for an event that has not been seen posted. */
bool gpu_ahead_awaits(const struct gpu_device *x);
/* Returns true if gpu_ahead_awaits() and the step has failed, so that the event
 * may never be posted. */
bool gpu_ahead_failed(const struct gpu_device *x);
/* After a failure, lets the queues go on: stores DEVICE_FLAG_RELEASED in all
 * words that they still wait for, and empties the list. */
void gpu_ahead_release(struct gpu_device *x);

/* ---- gpu_transfer.c ---- */
/* Queues the work of instruction i, `st`, which is not a POST or WAIT. */
pl_status gpu_transfer(struct gpu_device *x, const struct insn *st, int i,
                       pl_err *err);
/* Returns true if launches do all the work of instruction i, so that
 * gpu_transfer copies nothing. Must not be called for a POST or WAIT. */
bool gpu_carry_launches_all(const struct gpu_device *x, const struct insn *st,
                            int i);

/* ---- gpu_run.c ---- */
/* Executes the device's variant of the step in progress. Called by the issuing
 * thread. */
void gpu_run(struct gpu_device *x);
/* Waits until queue q is empty, then copies its readbacks to their
 * destinations. Returns false if the step has failed on any device. If this
 * device failed, *s and *err tell why. */
bool gpu_run_finish(struct gpu_device *x, enum queue q, pl_status *s,
                    pl_err *err);
/* Waits until all readbacks through the ring are in host memory. Returns false
 * like gpu_run_finish. */
bool gpu_run_return(struct gpu_device *x, pl_status *s, pl_err *err);

#endif
