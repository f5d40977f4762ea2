/* Counts copies to and from devices, and makes them fail on request.
 *
 * The test binary is linked with --wrap, so that copies that the executor
 * requests call the wrappers. Any thread may copy at any time. */
#ifndef TEST_WRITE_FAIL_H
#define TEST_WRITE_FAIL_H

#include <stdint.h>

struct write_stat {
    /* number of writes and reads, and bytes written, since write_stat_reset */
    int64_t n_write, n_read, write_bytes;
};

void write_stat_reset(void);
struct write_stat write_stat_get(void);

/* Makes the n-th write from now on fail with PL_DEVICE; n = 1 is the next
 * write; with 0 none fails. */
void write_fail_at(int64_t n);

#endif
