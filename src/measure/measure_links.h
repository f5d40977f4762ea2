/* Measured speeds of the links between devices, pair by pair, and the link
 * domains derived from them. The devices of a link domain have faster links to
 * each other than to the rest, like GPUs with NVLink. A plan uses two rates per
 * device: to its link domain, and to all other devices. */
#ifndef MEASURE_MEASURE_LINKS_H
#define MEASURE_MEASURE_LINKS_H

#include "cost/cost.h"

/* maximum number of devices; further ones are not measured */
enum { LINKS_MAX = 32 };

struct measure_links {
    int n;
    /* [n] indices in the device list of the devices that have processors of
     * their own */
    int dev[LINKS_MAX];
    struct measure_link {
        double seconds, bytes_per_s;
    } link[LINKS_MAX][LINKS_MAX];
    const char *bus[LINKS_MAX]; /* [n] bus addresses, borrowed from the list */
};

/* Creates an empty table for the devices of `l`. The caller calls free().
 * Returns NULL if out of memory. */
struct measure_links *measure_links_new(const struct device_list *l);
/* Stores latency and bandwidth between dev[i] and dev[j], in both
 * directions. */
void measure_links_put(struct measure_links *k, int i, int j, double seconds,
                       double bytes_per_s);
/* Sets the link rates of dev[i] in *r, once all pairs are stored. The rate
 * within its link domain is that of the slowest link there; the rate to other
 * devices is that of the slowest link to them. */
void measure_links_of(const struct measure_links *k, int i,
                      struct cost_rates *r);

#endif
