/* What was measured between devices, pair by pair, and which of them are an
 * island: joined faster than to others, as GPUs on a bridge are. Plans know of
 * a device how fast it reaches its island, and how fast the others. */
#ifndef MEASURE_MEASURE_LINKS_H
#define MEASURE_MEASURE_LINKS_H

#include "cost/cost.h"

enum { LINKS_MAX = 32 }; /* devices; those behind them are in no pair */

struct measure_links {
    int n;
    int dev[LINKS_MAX]; /* [n] in the list: those that have processors of their
                           own */
    struct measure_link {
        double seconds, bytes_per_s;
    } link[LINKS_MAX][LINKS_MAX];
    const char *bus[LINKS_MAX]; /* borrowed */
};

/* NULL: no memory; free() it. */
struct measure_links *measure_links_new(const struct device_list *l);
/* Of devices dev[i] and dev[j], both ways. */
void measure_links_put(struct measure_links *k, int i, int j, double seconds,
                       double bytes_per_s);
/* When all are there: rates of dev[i] to others; the
 * slowest of its pairs counts, in the island and beyond. */
void measure_links_of(const struct measure_links *k, int i,
                      struct cost_rates *r);

#endif
