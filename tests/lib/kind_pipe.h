/* A backend that exists only in the tests: proc devices that share no inboxes
 * and no events with this process; see kind_pipe.c. */
#ifndef TEST_KIND_PIPE_H
#define TEST_KIND_PIPE_H

#include "device/device_ops.h"

extern struct backend_ops pipe_ops;

#endif
