/* A pair of byte streams between a parent and a child process, in shared
 * memory.
 *
 * The bytes of a stream pass through a ring buffer: one side fills it while the
 * other side empties it, so transfers may be larger than the buffer. A side
 * that waits polls for a moment, then sleeps on a futex in the shared memory.
 * The streams do not interpret the bytes. */
#ifndef DEVICE_PROC_PROC_PIPE_H
#define DEVICE_PROC_PROC_PIPE_H

#include "device/team.h"

enum { PROC_RING_BYTES = 1 << 20 };

/* A stream in one direction. Zeroed memory is an empty stream. */
struct proc_stream {
    /* total bytes written to the stream, and read from it */
    struct device_flag put, got;
    /* futex on which both sides sleep; incremented to wake them */
    _Alignas(128) atomic_uint wake_count;
    atomic_uint n_asleep;
    _Alignas(128) unsigned char ring[PROC_RING_BYTES];
};

/* Both streams; allocated in shared memory. */
struct proc_pipe {
    struct proc_stream to_child, to_parent;
};

/* The end of a pipe that one process uses. */
struct proc_end {
    /* the streams that this process writes and reads; borrowed */
    struct proc_stream *out, *in;
    /* set when the other process has ended; NULL if that cannot be noticed */
    const atomic_bool *gone;
    /* nanoseconds for which a waiting thread polls before it sleeps */
    int64_t awake_ns;
    /* other threads need the core, so a waiting thread yields between polls */
    bool shares;
    struct yielding yielding;
};

/* Send or receive exactly `bytes` bytes. Return false if the other process
 * ended before that. Each end may be used by one thread at a time. */
bool proc_send(struct proc_end *e, const void *src, size_t bytes);
bool proc_receive(struct proc_end *e, void *dst, size_t bytes);

/* Wakes all threads that sleep in this pipe, so that they check `gone`
 * again. */
void proc_pipe_wake(struct proc_pipe *p);

#endif
