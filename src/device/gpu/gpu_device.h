/* A GPU of a device set, independent of its driver. */
#ifndef DEVICE_GPU_GPU_DEVICE_H
#define DEVICE_GPU_GPU_DEVICE_H

#include <pthread.h>

#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_graph.h"
#include "device/gpu/gpu_image.h"
#include "device/team.h"

enum {
    GPU_SLOTS = 8, /* staging buffers of the ring */
    /* bytes: 20 us of a fast link, ten times the start-up time of a copy */
    GPU_SLOT = 1 << 20,
    GPU_RETURNS = 64,         /* most readbacks of one staging buffer */
    GPU_PULSES = 8,           /* see gpu_watchdog.c */
    GPU_RING = 63,            /* fences of events, reused in turn */
    GPU_SLOT_MARK = GPU_RING, /* first fence of staging buffers */
    GPU_PULSE_MARK = GPU_SLOT_MARK + GPU_SLOTS,
};
_Static_assert(GPU_PULSE_MARK + GPU_PULSES <= GPU_MAX_MARKS, "marks");

struct gpu_heartbeat {
    int step; /* instruction of the variant that follows; 0: none reached yet */
};

/* A range of a staging buffer that the GPU reads back: `bytes` bytes of a copy
 * extent. `from` counts bytes of its spans joined end to end. The spans start
 * at dst. */
struct pending_readback {
    unsigned char *dst;
    struct copy_extent loops;
    size_t from, bytes;
    const unsigned char *at; /* in the staging buffer */
};

/* A buffer of the staging ring: what queue `queue` reads from it and writes to
 * it. */
struct staging_buffer {
    size_t filled; /* bytes, reserved by the threads that copy into it */
    enum queue queue;
    int n_return;  /* ranges that the queue writes to it */
    int n_copying; /* threads copying into it now */
    bool closed;   /* accepts no further bytes */
    bool marked;   /* its fence is recorded, after all its copies */
    double since;  /* time when the fence was recorded */
};

/* An event of this device that its other queue may wait for. */
struct gpu_event {
    bool crossed;     /* the other queue waits for it */
    bool external;    /* other devices wait for it too */
    enum queue queue; /* queue that signals it */
    /* number of its fence, counting all recorded ones; 0: none */
    uint64_t mark;
};

struct gpu_device {
    struct gpu_image image;
    struct gpu_graphs graphs;
    struct device *dev;     /* borrowed */
    struct device_set *set; /* borrowed */
    const struct gpu_driver *driver;
    struct gpu *gpu; /* owned */
    /* owned; for the inbox the device-side one */
    uint64_t region[REGION_COUNT];
    uint64_t scratch, tables; /* owned */
    void **mapped;            /* owned, [n_mapped]: host ranges to unmap */
    int n_mapped;
    /* kernels its program launches, and the probe */
    bool want[GPU_KERNEL_COUNT];
    int n_want;  /* 0 for an emulated GPU */
    bool passed; /* their self-test, in an earlier process */
    bool looked; /* looked for other devices' memory, in the first step */
    /* its own events are mapped, so queues can post to them */
    bool maps_events;
    bool maps_all; /* as is all other memory its program accesses */
    bool stages;   /* copies memory that is not mapped */
    bool shared;   /* others may write to its device-side inbox */
    bool reached;  /* and some do */
    /* its device-side inbox is never freed, because a lost device may still
     * write there */
    bool quarantined;

    /* Used by the thread that waits for the GPU: the issuing thread, or the
     * holder of the lock. */

    /* the GPU, or another device of the same GPU, hangs: the driver is not
     * called any more */
    bool lost;
    struct gpu_heartbeat pulse[GPU_PULSES];
    uint64_t n_pulse, n_reached; /* issued; reached */
    double since;                /* time of the last sign of progress */
    int n_insn;                  /* since the last heartbeat */
    int at_insn;                 /* current instruction of the step, from 1 */

    /* Between steps several threads write. */
    pthread_mutex_t lock;
    /* owned, allocated by the driver, [GPU_SLOTS][GPU_SLOT] */
    unsigned char *ring;
    struct staging_buffer slot[GPU_SLOTS];
    struct pending_readback back[GPU_SLOTS][GPU_RETURNS]; /* [][n_return] */
    int filling; /* index of the staging buffer being filled */
    /* owned: threads that copy during steps; NULL: the issuing thread copies */
    struct team *copy_threads;
    /* signalled when no thread copies into a staging buffer any more */
    pthread_cond_t settled;

    /* ---- the step in progress: used by the issuing thread ---- */
    const struct device_run *run;
    uint64_t number;
    const atomic_bool *failed;
    int n_spin;
    double waited_s;  /* time the thread waited for other devices */
    bool slow;        /* issues one instruction at a time: traced or guarded */
    bool posts;       /* queues signal events, not the thread */
    bool queues_wait; /* queues wait for other devices, not the thread */
    struct gpu_event *event; /* owned, [prog->n_event] */
    uint64_t n_mark;         /* fences recorded so far */
    /* owned, [most instructions of a variant]: events that queues wait for and
     * the thread has not seen signalled */
    struct insn_event *pending_waits;
    int n_await;
    /* owned, [most instructions of a variant]: deferred instructions */
    int *deferred;
    int n_later;
    /* owned, allocated by the driver: the token tables of all micro-batches, if
     * PAGES instructions need them */
    int32_t *table;
};

struct gpu_backend {
    /* owned: the caller's thread, which stays idle, and one thread for each
     * GPU */
    struct team *team;
    /* owned, [devices of the set], while a program is loaded */
    struct peer_inbox *box;
    struct gpu_device dev[]; /* [n] of the backend */
};

/* Returns the host copy of a micro-batch's token table. */
static inline int32_t *gpu_table_of(const struct gpu_device *x, int micro)
{
    return x->table + micro * program_token_table_words(x->dev->prog);
}

/* ---- gpu_region.c ---- */
/* Allocates device memory. Errors name the device and `what`, the purpose. */
pl_status gpu_allocate(struct gpu_device *x, const char *what, size_t bytes,
                       uint64_t *at, pl_err *err);
/* Allocates a region, except the inbox, in as many allocations as needed. */
pl_status gpu_region_load(struct gpu_device *x, enum region r, pl_err *err);
void gpu_region_unload(struct gpu_device *x); /* all regions */
pl_status gpu_region_write(struct gpu_device *x, enum region r, size_t offset,
                           const void *src, size_t bytes, pl_err *err);
pl_status gpu_region_read(struct gpu_device *x, enum region r, size_t offset,
                          void *dst, size_t bytes, pl_err *err);

/* ---- gpu_host_map.c ---- */
/* Maps the inbox, if possible, and the device's own events. */
pl_status gpu_reach_own(struct gpu_device *x, pl_err *err);
/* Maps the memory of other devices that the program accesses. Leaves out what
 * cannot be mapped. */
void gpu_reach_others(struct gpu_device *x);
void gpu_reach_end(struct gpu_device *x);

/* ---- gpu_peer.c ---- */
/* Creates the device-side inboxes of the backend's n GPUs and finds the tensors
 * pushed there. */
pl_status gpu_peer_load(struct gpu_backend *g, int n, pl_err *err);
void gpu_peer_unload(struct gpu_backend *g); /* keeps the device-side inboxes */
/* Returns true if the bytes at `offset` of its inbox are pushed to the
 * device-side inbox. */
bool gpu_peer_has(const struct gpu_device *x, size_t offset);

/* ---- gpu_staging_ring.c ---- */
/* The caller holds the lock. Returns the bytes of staging buffer i. */
unsigned char *gpu_ring_at(const struct gpu_device *x, int i);
/* Makes `filling` a staging buffer with space for the queue. */
pl_status gpu_ring_room(struct gpu_device *x, enum queue q, pl_err *err);
/* Records a staging buffer's fence if it is closed and all its copies are in
 * the queue. */
pl_status gpu_ring_mark(struct gpu_device *x, int i, pl_err *err);
/* Sets *yes if the queue of a closed staging buffer reached its fence. The
 * buffer is free then. */
pl_status gpu_ring_look(struct gpu_device *x, int i, bool *yes, pl_err *err);
/* Waits until all reserved bytes are in a queue and the queues are empty. Other
 * threads may reserve bytes meanwhile. Between steps. */
pl_status gpu_ring_empty(struct gpu_device *x, pl_err *err);

/* ---- gpu_readback.c ---- */
/* Queues the readback of a copy extent to dst in host memory. The bytes arrive
 * when they are taken from the ring, by the thread that waits for the queue.
 * During a step: the issuing thread. */
pl_status gpu_return_runs(struct gpu_device *x, enum queue q,
                          unsigned char *dst, uint64_t src,
                          const struct copy_extent *l, pl_err *err);
/* Returns true if a readback of the queue was not taken yet. */
bool gpu_return_is_due(struct gpu_device *x, enum queue q);
/* Takes the readbacks of staging buffer i. The caller holds the lock. */
void gpu_return_take(struct gpu_device *x, int i);
/* Takes all readbacks of a queue, which is empty. */
void gpu_return_take_all(struct gpu_device *x, enum queue q);
/* Drops all readbacks after a failed step. */
void gpu_return_forget(struct gpu_device *x);

/* ---- gpu_upload.c ---- */
/* Starts the copy threads that steps will use, next to n_busy busy threads.
 * Called after a program was loaded and its memory mapped, where possible. */
void gpu_stage_begin(struct gpu_device *x, int n_busy);
void gpu_stage_end(struct gpu_device *x);
/* Queues a write. The source may be reused at once. Callable from any thread,
 * between steps. */
pl_status gpu_stage_write(struct gpu_device *x, uint64_t dst, const void *src,
                          size_t bytes, pl_err *err);
/* The same for a copy extent and a queue; also callable during a step. The
 * source bytes must be valid already. */
pl_status gpu_stage_runs(struct gpu_device *x, enum queue q, uint64_t dst,
                         const unsigned char *src, const struct copy_extent *l,
                         pl_err *err);
pl_status gpu_stage_read(struct gpu_device *x, void *dst, uint64_t src,
                         size_t bytes, pl_err *err);
pl_status gpu_stage_flush(struct gpu_device *x, pl_err *err);

/* ---- gpu_watchdog.c ---- */
/* Returns the seconds within which a GPU must make progress. */
double gpu_timeout_s(const struct gpu_device *x);
/* Returns an error if the GPU is lost. */
pl_status gpu_check_alive(const struct gpu_device *x, pl_err *err);
/* Pauses for a moment in a wait that began at `begin`. */
void gpu_pause(double begin);
/* Sets *yes if a fence recorded at `since` was reached. */
pl_status gpu_poll_fence(struct gpu_device *x, int mark, double since,
                         bool *yes, pl_err *err);
/* Waits until a queue is empty. All events it waits for were signalled. */
pl_status gpu_drain(struct gpu_device *x, enum queue q, pl_err *err);
/* Begins the watch of a step. */
void gpu_watch_begin(struct gpu_device *x);
/* Records that an instruction was queued. Waits while too much work is in
 * flight. */
pl_status gpu_heartbeat_issue(struct gpu_device *x, enum queue q, int step,
                              pl_err *err);
/* Checks the progress of the GPU. */
pl_status gpu_watch(struct gpu_device *x, pl_err *err);
/* The same in a wait for other devices that began at `begin`, but only after a
 * delay. *marked: false at first. */
pl_status gpu_watch_long(struct gpu_device *x, double begin, bool *marked,
                         pl_err *err);

/* ---- gpu_transfer.c ---- */
/* Queues the work of an instruction, except events. */
pl_status gpu_transfer(struct gpu_device *x, const struct insn *st, int i,
                       pl_err *err);
/* Returns true if the launches of instruction i do all its work. Not for
 * events. */
bool gpu_carry_launches_all(const struct gpu_device *x, const struct insn *st,
                            int i);

/* ---- gpu_run.c ---- */
/* Executes the variant on the issuing thread. */
void gpu_run(struct gpu_device *x);
/* Waits until a queue is empty. Returns false if the step failed. */
bool gpu_run_finish(struct gpu_device *x, enum queue q, pl_status *s,
                    pl_err *err);
/* Waits until all readbacks through the ring are in host memory. Returns false
 * if the step failed. */
bool gpu_run_return(struct gpu_device *x, pl_status *s, pl_err *err);

#endif
