/* Measures the networks between the machines of a job, before they have a plan.
 *
 * Two machines send messages to and fro, with the two functions of the network
 * that carry the messages of plans, and copy the bytes as often as those are
 * copied. A message of n bytes takes latency + n / rate seconds. The rate comes
 * from the difference between small and large messages, the latency from
 * messages of 8 KB, the usual size of a sum of one token.
 *
 * In each round every machine has at most one partner, so pairs that are
 * measured at the same time share nothing but switches. After n - 1 rounds, or
 * n if n is odd, all pairs are measured. */
#ifndef DEVICE_MACHINES_MEASURE_H
#define DEVICE_MACHINES_MEASURE_H

#include "device/device.h"
#include "device/network.h"

/* Tag of the messages. Those of device sets are less. */
enum { MACHINES_PROBE = 31000 };

struct machines_measure {
    double pair_s; /* seconds for each pair, or little more */
    /* seconds to wait for a message of the partner, which may be measured with
     * others before */
    double limit_s;
    const volatile int *cancel; /* may be NULL */
    /* clock that returns seconds, for tests; NULL for this machine's clock */
    double (*now)(void *user);
    void *user;
};

/* Returns the number of rounds for n machines. */
int machines_rounds(int n);
/* Returns the partner of a machine in a round; -1 if it has none. */
int machines_partner(int n, int round, int machine);
/* Measures all pairs. All machines call this at the same time. Sets link[k] for
 * the machines k that have a greater number than this one; link[n_machine].
 * Returns PL_DEVICE if a machine is lost or silent. */
pl_status machines_measure(struct network *net,
                           const struct machines_measure *how,
                           struct machine_link *link, pl_err *err);

#endif
