/* A backend with known speed: it computes nothing, but its own clock advances
 * as on a device with these rates; see kind_known.c. */
#ifndef TEST_KIND_KNOWN_H
#define TEST_KIND_KNOWN_H

#include "device/device_ops.h"

/* Rates and limits of all devices of the backend, and what it measured. */
extern struct known {
    /* Seconds of a launch, a copy, and a copy to a peer; bytes per second from
     * the host, to the host, and to a peer. */
    double launch_s, copy_s, in, out, peer_s, peer;
    /* Bytes per second between devices whose buses are 'a' and 'b', 'c' and
     * 'd', and so on; 0 for the rate `peer`. */
    double bridge;
    double read, values, block, floats, attention;
    /* A device with at most `held` bytes of weights reads them at held_read
     * bytes per second. */
    double held, held_read;
    int n_left; /* number of steps until a device fails; -1 for never */
    /* size in bytes of the largest allocation that succeeds; 0 for any */
    size_t most;
    /* results: the backend's clock in seconds */
    double clock;
    /* greatest total size in bytes of a device's memory regions */
    size_t largest;
    int n_run;
} known;

double known_now(void *user);

extern const struct backend_ops known_ops;

#endif
