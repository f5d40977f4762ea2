/* A kind of device whose speed is known: it does nothing, by a clock of its
 * own, for as long as a device of these rates would take; see kind_known.c. */
#ifndef TEST_KIND_KNOWN_H
#define TEST_KIND_KNOWN_H

#include "device/device_ops.h"

/* Of all devices of the kind. */
extern struct known {
    /* seconds, and so much a second */
    double launch_s, copy_s, in, out, peer_s, peer;
    double bridge; /* 'a' to 'b', 'c' to 'd' ..., by bus; 0: as `peer` */
    double read, values, block, floats, attention;
    double held, held_read; /* weights of so many bytes are read as fast */
    int n_left;             /* runs until a device fails; -1: none does */
    size_t most;            /* bytes that a device gives; 0: any */
    /* what was seen */
    double clock;
    size_t largest; /* bytes of a program */
    int n_run;
} known;

double known_now(void *user);

extern const struct backend_ops known_ops;

#endif
