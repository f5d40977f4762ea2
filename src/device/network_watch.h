/* A network that notices when a machine is silent, and that carries messages
 * of its own besides those of device sets.
 *
 * It wraps a carrier. A thread sends a beat to every other machine twice a
 * second. A machine of which nothing comes for some seconds, although this
 * machine listens, is lost: its process was killed or stopped, or the network
 * between is down. A machine that computes, loads or plans still sends beats.
 *
 * Session messages agree on what a device set needs: who takes part, and the
 * plan. They have tags above those of device sets, which never see them. */
#ifndef DEVICE_NETWORK_WATCH_H
#define DEVICE_NETWORK_WATCH_H

#include "device/network.h"

#include "pl.h"

/* Tags of session messages. Those of device sets are less. */
enum network_session_tag {
    NETWORK_BEAT = 32000,
    NETWORK_FAILED, /* text: the sender cannot take part any more */
    NETWORK_BEREFT, /* the same, because it has lost a device or a machine */
    NETWORK_SESSION /* first tag of the messages of network_session_receive() */
};

/* A received session message. Freed by free(). */
struct network_session {
    struct network_session *next;
    int tag;
    size_t bytes;
    /* the bytes, followed by a NUL that does not count */
    unsigned char data[];
};

struct network_watch;

struct network_watch_options {
    double silence_s; /* seconds of silence after which a machine is lost */
    /* Called once, in a thread of the watch, some time after a machine was
     * lost, so that the caller's own errors come first. May be NULL. */
    void (*lost)(void *user, const char *text);
    void *user;
};

/* Wraps a carrier, which is borrowed. */
pl_status network_watch_create(struct network_watch **out,
                               struct network *carrier,
                               const struct network_watch_options *opt,
                               pl_err *err);
/* Ends the thread. The carrier may be closed afterwards. Takes NULL. */
void network_watch_free(struct network_watch *w);
/* The network for device sets. */
struct network *network_watch_network(struct network_watch *w);

/* Sends a session message. Returns false if out of memory. */
bool network_session_send(struct network_watch *w, int to, int tag,
                          const void *data, size_t bytes);
/* Waits up to `limit_s` seconds (0: without limit) for a session message of
 * machine `from`, while no device set uses the network. Sets *out to NULL if
 * none came. Returns PL_DEVICE if the machine is lost or cannot take part any
 * more, and PL_CANCELLED if *cancel becomes nonzero; it may be NULL. */
pl_status network_session_receive(struct network_watch *w, int from,
                                  double limit_s, const volatile int *cancel,
                                  struct network_session **out, pl_err *err);
/* Returns false if the machine is lost. One that failed is not. */
bool network_watch_is_there(struct network_watch *w, int machine);
/* All machines are about to end: from now on silence is no error, messages for
 * device sets are dropped, and machines that failed are received from. */
void network_watch_end(struct network_watch *w);

#endif
