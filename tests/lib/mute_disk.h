/* A disk on which reads of the prefix cache's folder do not return.
 *
 * The test binary is linked with --wrap, so that all reads of cached pages call
 * the wrapper. */
#ifndef TEST_MUTE_DISK_H
#define TEST_MUTE_DISK_H

#include <stdbool.h>

/* mute_disk(true) makes reads wait until mute_disk(false) is called. */
void mute_disk(bool is);

#endif
