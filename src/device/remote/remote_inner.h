/* State of the backend of other machines' devices, shared by its files.
 *
 * remote.c is the backend: loading, memory, the start and the end of a run.
 * remote_serve.c is the loop in which a machine other than 0 executes orders.
 * remote_run.c is the progress thread, which sends the messages of a run and
 * receives those of other machines. */
#ifndef DEVICE_REMOTE_INNER_H
#define DEVICE_REMOTE_INNER_H

#include <pthread.h>

#include "device/device_ops.h"
#include "device/network.h"
#include "device/remote/remote_clock.h"
#include "program/program_messages.h"

/* Most bytes of device memory in an order. */
enum { REMOTE_CHUNK = 1 << 20 };

/* Tags of messages that are not those of programs (message_tag()). */
enum remote_tag {
    REMOTE_LOADED = QUEUE_COUNT * DEVICE_MAX, /* struct remote_loaded */
    REMOTE_ORDER, /* struct remote_order, then bytes; from machine 0 */
    REMOTE_REPLY, /* struct remote_reply, then bytes; to machine 0 */
    /* struct remote_done, then remote_counts and device_timings; to machine 0
     */
    REMOTE_DONE,
    REMOTE_FAIL, /* struct remote_fail */
};

/* Hashes of all that machines must have in common: the numeric plan, and the
 * programs with the machines of their devices. */
struct remote_loaded {
    uint64_t plan, programs;
};

enum remote_verb { REMOTE_WRITE, REMOTE_READ, REMOTE_RUN, REMOTE_END };

struct remote_order {
    enum remote_verb verb;
    enum region region;
    int dev;
    size_t offset, bytes;
    uint64_t number; /* of the run */
};

struct remote_reply {
    pl_status status;
    pl_err err;
};

struct remote_done {
    uint64_t number; /* of the run */
    int n, n_timing; /* numbers of remote_counts and device_timings */
    /* When the order was received, the run began and this is sent, by
     * device_now() of the sender. */
    double took_s, start_s, sent_s;
};

struct remote_counts {
    int dev;
    struct device_counts counts;
};

struct remote_fail {
    uint64_t number; /* of the run */
    pl_err err;
};

/* An order that was received and is not executed yet. */
struct remote_queued {
    struct remote_queued *next;
    double took_s; /* when it was received, by device_now() */
    struct remote_order order;
    unsigned char data[];
};

struct remote_peer {
    /* `lost` also after a message that no machine of this version sends:
     * `fault` then says which. Nothing more is received. */
    bool loaded, lost;
    const char *fault;
    char why[256]; /* why the carrier has lost it; "" if unknown */
    struct remote_loaded hash;
    uint64_t done;             /* number of its last run that has ended */
    struct remote_clock clock; /* on machine 0 */
    /* `message` was received before this machine has begun its run */
    bool held;
    struct network_message message;
};

/* The state of a channel in a run: its next message, if `more`. */
struct remote_channel {
    struct message_cursor at;
    struct sent_message next;
    bool more;
};

struct remote {
    struct device_set *set;
    struct network *net;
    struct arena arena;
    int n_dev, *machine; /* [n_dev] machine of each device */
    struct messages m[PROG_MAX_VARIANT];
    /* [n_dev * QUEUE_COUNT] by tag: index of the channel to this machine; -1 if
     * there is none */
    int *channel_of[PROG_MAX_VARIANT];
    pthread_mutex_t calling; /* held while an order waits for its reply */

    /* ---- protected by `lock`, which is also held while the network is used */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of the following; the callers wait for it */
    pthread_cond_t work;    /* there is some for the progress thread */
    pthread_t thread;
    bool started, stop;
    /* All devices here carry messages when they post and while they wait, so
     * the progress thread leaves it to them. */
    bool carried;
    double looked_s;  /* when another thread last carried messages; 0 if the
                         progress thread is not to wait for one */
    double message_s; /* when the last message was sent or taken */
    int n_waiting;    /* callers that wait for other machines */
    struct remote_peer peer[PROG_MAX_MACHINE];
    /* Numbers of the last run that began, whose devices of this machine have
     * ended, and whose messages have all been sent and received. */
    uint64_t begun, ended, finished;
    double begun_s;    /* when it began, by device_now() */
    bool failure_sent; /* all machines were sent the failure of the run */
    struct device_run run;
    struct remote_channel *channel; /* of the run's variant */
    struct remote_queued *first, **last;
    uint64_t ordered; /* number of the last run that machine 0 has ordered */
    int called;       /* the machine whose reply call() awaits; 0 if none */
    unsigned char *reply; /* the last one; owned */
    size_t reply_bytes;
    bool replied;
    unsigned char *buf; /* for packing; owned */
    size_t cap;
};

/* Implements backend_ops.serve(): see remote_serve.c. */
pl_status remote_serve(struct backend *b, pl_err *err);
/* The progress thread; `user` is a struct remote. */
void *remote_progress(void *user);
/* Implements backend_ops.carry(). */
void remote_carry(struct backend *b);
/* Sends what is ready and takes what has come. The caller holds the lock.
 * Returns true if there was a message. */
bool remote_look(struct remote *r);
/* Returns true if the last message is so recent that the next order may follow.
 * The caller holds the lock. */
bool remote_is_alert(const struct remote *r);
/* Begins run `number` with the messages of r->run. The caller holds the
 * lock. */
void remote_begin(struct remote *r, uint64_t number);
/* Sets *err to the error of machine `m`, which is lost. Returns PL_DEVICE. */
pl_status remote_lost(const struct remote *r, int m, pl_err *err);
/* Treats machine `m` as lost because it has sent `what`, and fails the run. */
void remote_fault(struct remote *r, int m, const char *what);
/* Fails the run because machine `m` is lost. */
void remote_fail_lost(struct remote *r, int m);

#endif
