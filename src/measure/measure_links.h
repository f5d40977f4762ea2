/* Measured links between devices, pair by pair, and the link domains found from
 * them: devices joined faster than to others, like GPUs with NVLink. Plans know
 * how fast a device reaches its link domain, and how fast the others. */
#ifndef MEASURE_MEASURE_LINKS_H
#define MEASURE_MEASURE_LINKS_H

#include "cost/cost.h"

enum { LINKS_MAX = 32 }; /* devices; further ones are in no pair */

struct measure_links {
    int n;
    /* [n] in the list: those with their own processors */
    int dev[LINKS_MAX];
    struct measure_link {
        double seconds, bytes_per_s;
    } link[LINKS_MAX][LINKS_MAX];
    const char *bus[LINKS_MAX]; /* borrowed */
};

/* Returns NULL if out of memory; the caller calls free(). */
struct measure_links *measure_links_new(const struct device_list *l);
/* Stores the link of dev[i] and dev[j], in both directions. */
void measure_links_put(struct measure_links *k, int i, int j, double seconds,
                       double bytes_per_s);
/* Computes the rates from dev[i] to others, once all pairs are stored. The
 * slowest pair counts, inside the link domain and outside. */
void measure_links_of(const struct measure_links *k, int i,
                      struct cost_rates *r);

#endif
