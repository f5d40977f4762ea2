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
    /* [n] indices in the device list of the devices that have their own
     * processors */
    int dev[LINKS_MAX];
    struct measure_link {
        double seconds, bytes_per_s;
    } link[LINKS_MAX][LINKS_MAX];
    const char *bus[LINKS_MAX]; /* [n] PCI bus addresses of these devices,
                                   borrowed from the device list */
};

/* Creates a table without measurements for the devices of `l`. The caller frees
 * it with free(). Returns NULL if out of memory. */
struct measure_links *measure_links_new(const struct device_list *l);
/* Stores the latency and bandwidth measured between dev[i] and dev[j], for both
 * directions. */
void measure_links_put(struct measure_links *k, int i, int j, double seconds,
                       double bytes_per_s);
/* Sets the link rates of dev[i] in *r from the table, in which all pairs must
 * be stored. The rate within its link domain is that of the slowest link there,
 * the rate to other devices that of the slowest link to them. */
void measure_links_of(const struct measure_links *k, int i,
                      struct cost_rates *r);

#endif
