/* Allocations that fail on request, and counts of those that did not.
 *
 * The test binary is linked with --wrap, so every allocation made by the
 * library and by tests passes here; those of other libraries do not. So does
 * fork, which may want for memory too. Off until asked for; any thread may
 * allocate at any time, and so may processes forked later. */
#ifndef TEST_ALLOC_FAIL_H
#define TEST_ALLOC_FAIL_H

#include "pl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alloc_stat {
    int64_t n_call;     /* allocations asked for since alloc_stat_reset */
    int64_t live_bytes; /* now held beyond what was held at the reset */
    int64_t peak_bytes; /* the most live_bytes ever was */
    int64_t max_bytes;  /* the largest single request */
};

/* The n-th allocation from now fails once, n = 1 being the next. */
void alloc_fail_at(int64_t n);

/* Turns failing off. True when the allocation asked for was reached, that is,
 * when one has failed since alloc_fail_at. */
bool alloc_fail_off(void);

void alloc_stat_reset(void);
struct alloc_stat alloc_stat_get(void);

/* Runs a loop's body again and again; in its n-th run, n = 1, 2, ..., the n-th
 * allocation fails, until none did. Each run ends its allocations with
 * alloc_ran(), which takes the status of what allocated: PL_NO_MEMORY where one
 * failed, which alloc_ran returns, and else PL_OK. After each run nothing may
 * be held that was not held before.
 *
 *     for (int64_t n = 0; alloc_each(&n);) {
 *         alloc_ran(thing_create(&t));
 *         thing_free(t);
 *     } */
bool alloc_each(int64_t *n);
bool alloc_ran(pl_status s);

/* Sizes of memory asked for on behalf of devices (topology_alloc) since
 * alloc_stat_reset, in order: the last `most` of them. Returns how many. */
int alloc_device_bytes(size_t *bytes, int most);

#endif
