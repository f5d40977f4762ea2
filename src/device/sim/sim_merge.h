/* Merges the two queues of a device into one list, as on hardware whose queues
 * share a channel. In each step the device executes its instructions strictly
 * in the order of the list. The list is drawn at random for each step, among
 * all orders that the queue-order rule (program.h) allows. They keep the order
 * of each queue, and a device's own POSTs before its own WAITs for them. Every
 * POST and barrier stays before a later barrier or WAIT for another device. A
 * program that passes program_check cannot deadlock. */
#ifndef DEVICE_SIM_SIM_MERGE_H
#define DEVICE_SIM_SIM_MERGE_H

#include "device/device.h"

/* Returns a random number from 0 to n - 1, by splitmix64. `random` is the
 * state. */
static inline int sim_draw(uint64_t *random, int n)
{
    uint64_t z = *random += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

struct sim_queue {
    int *step; /* owned, [n]: indices of the queue's instructions, ascending */
    int n;
};

/* Writes a random order of all instructions of variant `c`, including disabled
 * ones, to out[c->n_insn]. `told` is scratch, [number of the device's
 * events]. */
void sim_merge(int *out, const struct variant *c, int dev,
               const struct device_run *run,
               const struct sim_queue queue[QUEUE_COUNT], unsigned char *told,
               uint64_t *random);

#endif
