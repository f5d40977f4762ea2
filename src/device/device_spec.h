/* -dev strings on a given machine; device_parse() is this on the real one. */
#ifndef DEVICE_DEVICE_SPEC_H
#define DEVICE_DEVICE_SPEC_H

#include "base/topology.h"
#include "device/device.h"

/* `t` may be NULL if the string asks for no cpu. */
pl_status device_parse_on(struct device_list *out, const char *spec,
                          int n_thread, const struct topology *t, pl_err *err);

#endif
