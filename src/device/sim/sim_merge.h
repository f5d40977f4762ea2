/* Two queues run as one, as hardware does whose queues share a channel: each
 * run, a device's steps stand in one list and are done strictly in its order.
 * The list is drawn anew for every run, among all that a device may be asked to
 * keep to: the order of each queue, its own POSTs before its own WAITs for
 * them, and every POST and meeting before a later WAIT for another device and a
 * later meeting. A program that passes program_check cannot stall. */
#ifndef DEVICE_SIM_SIM_MERGE_H
#define DEVICE_SIM_SIM_MERGE_H

#include "device/device.h"

/* Of 0 .. n - 1, by splitmix64. */
static inline int sim_draw(uint64_t *random, int n)
{
    uint64_t z = *random += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

struct sim_queue {
    int *step; /* owned: a queue's steps, ascending */
    int n;
};

/* Draws the list of a run of device `dev` into out[c->n_step]. told: room for a
 * byte an event of the device. Steps that the run lacks are in it too. */
void sim_merge(int *out, const struct variant *c, int dev,
               const struct device_run *run,
               const struct sim_queue queue[QUEUE_COUNT], unsigned char *told,
               uint64_t *random);

#endif
