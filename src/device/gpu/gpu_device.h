/* A GPU of a set, whatever its driver. */
#ifndef DEVICE_GPU_GPU_DEVICE_H
#define DEVICE_GPU_GPU_DEVICE_H

#include <pthread.h>

#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_graph.h"
#include "device/gpu/gpu_image.h"
#include "device/team.h"

enum {
    GPU_SLOTS = 8,      /* of the ring of staging memory */
    GPU_SLOT = 1 << 20, /* bytes: 20 us of a fast link, ten times the start of a
                           copy */
    GPU_RETURNS = 64,   /* most ranges that a slot brings back */
    GPU_PULSES = 8,     /* see gpu_watchdog.c */
    GPU_RING = 63,      /* marks of events, in turn */
    GPU_SLOT_MARK = GPU_RING, /* and what the others are for */
    GPU_PULSE_MARK = GPU_SLOT_MARK + GPU_SLOTS,
};
_Static_assert(GPU_PULSE_MARK + GPU_PULSES <= GPU_MAX_MARKS, "marks");

struct gpu_heartbeat {
    int step; /* of the script that comes behind it; 0: none has come yet */
};

/* A range of a slot that comes from the GPU: bytes of a piece, from byte `from`
 * on of its runs put side by side, which belong at dst and on. */
struct pending_readback {
    unsigned char *dst;
    struct copy_extent loops;
    size_t from, bytes;
    const unsigned char *at; /* in the slot */
};

/* Of the ring of staging memory: what queue `queue` takes from there, and what
 * it brings there. */
struct staging_buffer {
    size_t filled; /* bytes, taken by who copies there */
    enum queue queue;
    int n_return;  /* ranges that it brings */
    int n_copying; /* threads that do now */
    bool closed;   /* no more is taken of it */
    bool marked;   /* all of it is in the queue, its mark behind it */
    double since;  /* when the mark was set */
};

/* An event of this device, which its other queue may wait for. */
struct gpu_event {
    bool crossed;     /* there is such a wait */
    bool external;    /* other devices wait for it too */
    enum queue queue; /* that has posted it */
    uint64_t mark;    /* its number among all that were set; 0: none */
};

struct gpu_device {
    struct gpu_image image;
    struct gpu_graphs graphs;
    struct device *dev;     /* borrowed */
    struct device_set *set; /* borrowed */
    const struct gpu_driver *driver;
    struct gpu *gpu;               /* owned */
    uint64_t region[REGION_COUNT]; /* owned; of the inbox the mirror */
    uint64_t scratch, tables;      /* owned */
    void **mapped;                 /* owned, [n_mapped]: what to unmap */
    int n_mapped;
    bool want[GPU_KERNEL_COUNT]; /* what its program launches, and probe */
    int n_want;                  /* 0: of an emulated one */
    bool passed;                 /* their self test, in a process before */
    bool looked;      /* for what others have: from the first run on */
    bool maps_events; /* its own; their words can be posted to */
    bool maps_all;    /* and all else that its program wants */
    bool stages;      /* it copies what it has not mapped */
    bool shared;      /* others may write into the mirror of its inbox, */
    bool reached;     /* and do */
    bool quarantined; /* a device-side inbox was not freed, since a lost device
                         may still write there */

    /* Of whoever waits for it: the issuing thread, or who holds the lock. */
    bool lost; /* hangs, or another device of the same GPU does: nothing is
                  asked of the driver any more */
    struct gpu_heartbeat pulse[GPU_PULSES];
    uint64_t n_pulse, n_reached; /* put into the queues; come to */
    double since;                /* when something was come to last */
    int n_insn;                  /* since the last pulse */
    int at_insn;                 /* the run is at, from 1 */

    /* Between runs several threads write. */
    pthread_mutex_t lock;
    unsigned char *ring; /* owned, of the driver, [GPU_SLOTS][GPU_SLOT] */
    struct staging_buffer slot[GPU_SLOTS];
    struct pending_readback back[GPU_SLOTS][GPU_RETURNS]; /* [][n_return] */
    int filling;                                          /* the slot that is */
    struct team *copy_threads; /* owned: who copies in runs; NULL: the thread */
    pthread_cond_t settled;    /* nobody copies into some slot any more */

    /* ---- the run in progress: the issuing thread's ---- */
    const struct device_run *run;
    uint64_t number;
    const atomic_bool *failed;
    int n_spin;
    double waited_s;         /* for other devices, by the thread */
    bool slow;               /* a step at a time: traced or guarded */
    bool posts;              /* queues post, not the thread */
    bool queues_wait;        /* queues wait for other devices, not the thread */
    struct gpu_event *event; /* owned, [prog->n_event] */
    uint64_t n_mark;         /* set so far */
    struct insn_event
        *pending_waits; /* owned, [most of a script]: what queues wait
                                 for and the thread has not seen come */
    int n_await;
    int *deferred; /* owned, [most of a script]: steps that are put off */
    int n_later;
    int32_t *table; /* owned, of the driver: the token tables of all
                       micro-batches, where steps of PAGES want them */
};

struct gpu_backend {
    struct team *team; /* owned: the caller's thread, which does nothing, and
                            one for each GPU */
    struct peer_inbox
        *box; /* owned, [devices of the set], while it is loaded */
    struct gpu_device dev[]; /* [n] of the bank */
};

/* Where a micro-batch's token table comes to on the host. */
static inline int32_t *gpu_table_of(const struct gpu_device *x, int micro)
{
    return x->table + micro * program_token_table_words(x->dev->prog);
}

/* ---- gpu_region.c ---- */
/* An error names the device, and `what` it is for. */
pl_status gpu_allocate(struct gpu_device *x, const char *what, size_t bytes,
                       uint64_t *at, pl_err *err);
/* A region but the inbox: in as many allocations as it takes. */
pl_status gpu_region_load(struct gpu_device *x, enum region r, pl_err *err);
void gpu_region_unload(struct gpu_device *x); /* all */
pl_status gpu_region_write(struct gpu_device *x, enum region r, size_t offset,
                           const void *src, size_t bytes, pl_err *err);
pl_status gpu_region_read(struct gpu_device *x, enum region r, size_t offset,
                          void *dst, size_t bytes, pl_err *err);

/* ---- gpu_host_map.c ---- */
/* Maps the inbox, if that can be, and its own events. */
pl_status gpu_reach_own(struct gpu_device *x, pl_err *err);
/* Maps what others have that the program touches; what cannot be, is not. */
void gpu_reach_others(struct gpu_device *x);
void gpu_reach_end(struct gpu_device *x);

/* ---- gpu_peer.c ---- */
/* Makes the mirrors of the bank's n GPUs, and finds what is pushed there. */
pl_status gpu_peer_load(struct gpu_backend *g, int n, pl_err *err);
void gpu_peer_unload(struct gpu_backend *g); /* but for the mirrors */
/* Is what lies there in its inbox pushed to the mirror? */
bool gpu_peer_has(const struct gpu_device *x, size_t offset);

/* ---- gpu_staging_ring.c ---- */
/* Who calls holds the lock. The bytes of slot i: */
unsigned char *gpu_ring_at(const struct gpu_device *x, int i);
/* The slot `filling` has room for the queue. */
pl_status gpu_ring_room(struct gpu_device *x, enum queue q, pl_err *err);
/* Sets a slot's mark, if it is closed and all of it is in its queue. */
pl_status gpu_ring_mark(struct gpu_device *x, int i, pl_err *err);
/* Has a closed slot's queue come to its mark? It is free then. */
pl_status gpu_ring_look(struct gpu_device *x, int i, bool *yes, pl_err *err);
/* Until all that was taken has been put into a queue, and the queues are empty.
 * Others may take parts meanwhile. Between runs. */
pl_status gpu_ring_empty(struct gpu_device *x, pl_err *err);

/* ---- gpu_readback.c ---- */
/* Puts a piece that comes from the GPU, and belongs at dst in the host's
 * memory, into a queue. It is there when it has been taken: by whoever waits
 * for the queue. In a run: the issuing thread. */
pl_status gpu_return_runs(struct gpu_device *x, enum queue q,
                          unsigned char *dst, uint64_t src,
                          const struct copy_extent *l, pl_err *err);
/* Has something that a queue brings not been taken yet? */
bool gpu_return_is_due(struct gpu_device *x, enum queue q);
/* Takes what has come into slot i. The lock is held. */
void gpu_return_take(struct gpu_device *x, int i);
/* Takes what has come by a queue, which is empty. */
void gpu_return_take_all(struct gpu_device *x, enum queue q);
/* A run has failed: nobody wants it any more. */
void gpu_return_forget(struct gpu_device *x);

/* ---- gpu_upload.c ---- */
/* A program has been loaded, and its own memory mapped or not: starts what
 * threads runs will want, beside n_busy others. */
void gpu_stage_begin(struct gpu_device *x, int n_busy);
void gpu_stage_end(struct gpu_device *x);
/* The bytes are taken over. Any thread, between runs. */
pl_status gpu_stage_write(struct gpu_device *x, uint64_t dst, const void *src,
                          size_t bytes, pl_err *err);
/* The same of a piece, by a queue: in a run too, where what the source has must
 * be there already. */
pl_status gpu_stage_runs(struct gpu_device *x, enum queue q, uint64_t dst,
                         const unsigned char *src, const struct copy_extent *l,
                         pl_err *err);
pl_status gpu_stage_read(struct gpu_device *x, void *dst, uint64_t src,
                         size_t bytes, pl_err *err);
pl_status gpu_stage_flush(struct gpu_device *x, pl_err *err);

/* ---- gpu_watchdog.c ---- */
/* Seconds in which a GPU must do something. */
double gpu_timeout_s(const struct gpu_device *x);
/* An error if it is lost. */
pl_status gpu_check_alive(const struct gpu_device *x, pl_err *err);
/* A moment of a wait that lasts since `begin`. */
void gpu_pause(double begin);
/* Has a mark been reached that was set at `since`? */
pl_status gpu_poll_fence(struct gpu_device *x, int mark, double since,
                         bool *yes, pl_err *err);
/* Waits until a queue is empty; what it waits for has come. */
pl_status gpu_drain(struct gpu_device *x, enum queue q, pl_err *err);
/* A run begins. */
void gpu_watch_begin(struct gpu_device *x);
/* A step has been put into a queue; waits where too much is under way. */
pl_status gpu_heartbeat_issue(struct gpu_device *x, enum queue q, int step,
                              pl_err *err);
/* Looks how far it has come. */
pl_status gpu_watch(struct gpu_device *x, pl_err *err);
/* The same in a wait for others that lasts since `begin`: not at once.
 * *marked: false at first. */
pl_status gpu_watch_long(struct gpu_device *x, double begin, bool *marked,
                         pl_err *err);

/* ---- gpu_transfer.c ---- */
/* Puts what a step does into its queue, but for events. */
pl_status gpu_transfer(struct gpu_device *x, const struct insn *st, int i,
                       pl_err *err);
/* Are the launches of step i all that there is to do? Not of events. */
bool gpu_carry_launches_all(const struct gpu_device *x, const struct insn *st,
                            int i);

/* ---- gpu_run.c ---- */
/* Goes through the script: the issuing thread. */
void gpu_run(struct gpu_device *x);
/* Waits until a queue is empty. False: the run has failed. */
bool gpu_run_finish(struct gpu_device *x, enum queue q, pl_status *s,
                    pl_err *err);
/* Waits until all that was to come back to the host by the ring is there. The
 * same. */
bool gpu_run_return(struct gpu_device *x, pl_status *s, pl_err *err);

#endif
