/* Copies to and from devices that are counted and fail on request.
 *
 * The test binary is linked with --wrap, so those that the executor requests
 * pass here. Any thread may copy at any time. */
#ifndef TEST_WRITE_FAIL_H
#define TEST_WRITE_FAIL_H

#include <stdint.h>

struct write_stat {
    int64_t n_write, n_read, write_bytes; /* since write_stat_reset */
};

void write_stat_reset(void);
struct write_stat write_stat_get(void);

/* Lets the n-th write from now fail with PL_DEVICE; n = 1 is the next; 0: none
 * fails. */
void write_fail_at(int64_t n);

#endif
