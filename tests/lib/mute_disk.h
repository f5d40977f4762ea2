/* A disk that does not answer reads of the cache's folder.
 *
 * The test binary is linked with --wrap, so that all reads of entries pass
 * here. */
#ifndef TEST_MUTE_DISK_H
#define TEST_MUTE_DISK_H

#include <stdbool.h>

/* With true, reads wait until it is called with false. */
void mute_disk(bool is);

#endif
