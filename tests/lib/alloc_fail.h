/* Allocations that fail on request, and counts of those that succeed.
 *
 * The test binary is linked with --wrap, so every allocation by the library and
 * the tests goes through these wrappers, but none by other libraries. The same
 * holds for fork, which may run out of memory, too. No allocation fails unless
 * a test requests it. Any thread may allocate at any time, and so may processes
 * forked later. */
#ifndef TEST_ALLOC_FAIL_H
#define TEST_ALLOC_FAIL_H

#include "pl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alloc_stat {
    int64_t n_call; /* allocations requested since alloc_stat_reset */
    /* bytes allocated now, minus bytes allocated at the reset */
    int64_t live_bytes;
    int64_t peak_bytes; /* the maximum of live_bytes */
    int64_t max_bytes;  /* size in bytes of the largest single request */
};

/* Lets the n-th allocation from now fail once; n = 1 is the next. */
void alloc_fail_at(int64_t n);

/* Turns failing off. Returns true if an allocation has failed since
 * alloc_fail_at. */
bool alloc_fail_off(void);

void alloc_stat_reset(void);
struct alloc_stat alloc_stat_get(void);

/* Repeats a loop's body. In its n-th iteration, n = 1, 2, ..., the n-th
 * allocation fails, until an iteration has no failure. Each iteration ends its
 * allocations with alloc_ran(), which takes the status of the call and fails
 * the case unless that is PL_NO_MEMORY after a failure, and else PL_OK. It
 * returns true after a failure. After each iteration, nothing may be allocated
 * that was not before it.
 *
 *     for (int64_t n = 0; alloc_each(&n);) {
 *         alloc_ran(thing_create(&t));
 *         thing_free(t);
 *     } */
bool alloc_each(int64_t *n);
bool alloc_ran(pl_status s);

/* Copies the sizes in bytes of the regions of device memory (topology_alloc)
 * that were requested since alloc_stat_reset to bytes[], in order; of more than
 * `most` only the last ones. Returns the number of sizes copied. */
int alloc_device_bytes(size_t *bytes, int most);

#endif
