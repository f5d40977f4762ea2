/* A backend that exists only in the tests; see kind_plain.c. */
#ifndef TEST_KIND_PLAIN_H
#define TEST_KIND_PLAIN_H

#include "device/device_ops.h"

extern const struct backend_ops plain_ops;

#endif
