/* The network between the machines of a device set: the functions that a
 * carrier of bytes implements. Each machine has one process, which opens its
 * own devices. The device sets of all machines have the same list of devices.
 *
 * A carrier is reliable and keeps order: it delivers each message once, after
 * the messages that its sender sent to the same machine before. Messages of
 * different senders are delivered in any order. */
#ifndef DEVICE_NETWORK_H
#define DEVICE_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

struct network;

enum { NETWORK_LOST = -1 };

/* A received message. */
struct network_message {
    int tag; /* the sender's tag; NETWORK_LOST if the machine is lost */
    /* the bytes; if the machine is lost, a text of at most `bytes` that says
     * why, or NULL */
    const void *data;
    size_t bytes;
};

/* The functions of a carrier. One thread at a time calls them. */
struct network_ops {
    const char *name;
    /* May be NULL. Returns memory for a message of `bytes` to machine `to`,
     * which send() then does not copy; NULL if there is none. It stays reserved
     * until it is sent, or more is reserved for this machine. */
    void *(*reserve)(struct network *n, int to, size_t bytes);
    /* Sends data[bytes], which may be reused afterwards, with a tag from 0 to
     * 32766 to machine `to`. Does not wait for the receiver. Drops the message
     * if that machine is lost. Returns false if out of memory. */
    bool (*send)(struct network *n, int to, int tag, const void *data,
                 size_t bytes);
    /* Sets *out to the next message of machine `from`, valid until the next
     * call for this machine. Returns false if there is none yet. A machine
     * whose process has ended, or which cannot be reached, is lost, and stays
     * so. */
    bool (*receive)(struct network *n, int from, struct network_message *out);
};

struct network {
    const struct network_ops *ops;
    int machine;   /* number of this process's machine, 0 to n_machine - 1 */
    int n_machine; /* number of machines */
    /* seconds that a machine waits for the others to load their programs */
    double load_limit_s;
};

#endif
