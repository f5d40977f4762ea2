/* A backend with known speed: it computes nothing, but its own clock advances
 * as on a device with these rates; see kind_known.c. */
#ifndef TEST_KIND_KNOWN_H
#define TEST_KIND_KNOWN_H

#include "device/device_ops.h"

/* Parameters of all devices of the backend. */
extern struct known {
    /* seconds, and units per second */
    double launch_s, copy_s, in, out, peer_s, peer;
    double bridge; /* 'a' to 'b', 'c' to 'd' ..., by bus; 0: as `peer` */
    double read, values, block, floats, attention;
    double held, held_read; /* up to this many bytes of weights are read at this
                             * rate */
    int n_left;             /* steps until a device fails; -1: none does */
    size_t most;            /* largest allocation of a device; 0: any */
    /* results */
    double clock;
    size_t largest; /* of a program */
    int n_run;
} known;

double known_now(void *user);

extern const struct backend_ops known_ops;

#endif
