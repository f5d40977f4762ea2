/* A byte stream each way between two processes, in shared memory.
 *
 * A waiting side polls for a moment, then sleeps on a futex in the shared page.
 * The bytes pass through a ring, so neither side needs memory for all of them,
 * and one side fills the ring while the other empties it. The streams do not
 * know what they carry. */
#ifndef DEVICE_PROC_PROC_PIPE_H
#define DEVICE_PROC_PROC_PIPE_H

#include "device/device_ops.h"

enum { PROC_RING_BYTES = 1 << 20 };

/* One way. Zeroed memory is an empty stream. */
struct proc_stream {
    struct device_flag put, got;          /* bytes written and read */
    _Alignas(128) atomic_uint wake_count; /* incremented to wake sleepers */
    atomic_uint n_asleep;
    _Alignas(128) unsigned char ring[PROC_RING_BYTES];
};

/* Both ways, in shared memory. */
struct proc_pipe {
    struct proc_stream to_child, to_parent;
};

/* One side's end of a pipe. */
struct proc_end {
    struct proc_stream *out, *in; /* borrowed */
    const atomic_bool *gone;      /* the other side has ended; NULL: never */
    int64_t awake_ns;             /* polls this long before it sleeps */
    bool shares; /* others need its core: yields between polls */
};

/* Sends or receives all bytes. Returns false if the other side ended before.
 * One thread a side. */
bool proc_send(const struct proc_end *e, const void *src, size_t bytes);
bool proc_receive(const struct proc_end *e, void *dst, size_t bytes);

/* Wakes all sleepers of the pipe, so that they check `gone` again. */
void proc_pipe_wake(struct proc_pipe *p);

#endif
