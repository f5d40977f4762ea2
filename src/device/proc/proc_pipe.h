/* A stream of bytes each way between two processes, in memory that they share.
 *
 * Who has to wait looks again and again for a moment, then sleeps in the system
 * (a futex on the shared page). What is written passes through a ring, so
 * neither side needs room for all of it, and one fills the ring while the other
 * empties it. The streams know nothing of what they carry. */
#ifndef DEVICE_PROC_PROC_PIPE_H
#define DEVICE_PROC_PROC_PIPE_H

#include "device/device_ops.h"

enum { PROC_RING_BYTES = 1 << 20 };

/* One way. Zeroed memory is an empty stream. */
struct proc_stream {
    struct device_flag put, got;          /* bytes written and read so far */
    _Alignas(128) atomic_uint wake_count; /* counts up to wake sleepers */
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
    const atomic_bool *gone;      /* the other side is; NULL: never */
    int64_t awake_ns;             /* looks for so long before it sleeps */
    bool shares; /* its core is wanted by others: yields between looks */
};

/* Sends or receives all bytes; false: the other side was gone before. One
 * thread a side. */
bool proc_send(const struct proc_end *e, const void *src, size_t bytes);
bool proc_receive(const struct proc_end *e, void *dst, size_t bytes);

/* Whoever sleeps in the pipe looks at `gone` again. */
void proc_pipe_wake(struct proc_pipe *p);

#endif
