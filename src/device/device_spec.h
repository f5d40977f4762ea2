/* -dev strings on a given machine; device_parse() is this on the real one. */
#ifndef DEVICE_DEVICE_SPEC_H
#define DEVICE_DEVICE_SPEC_H

#include "base/topology.h"
#include "device/device.h"

/* `t` may be NULL if the string asks for no cpu. */
pl_status device_parse_on(struct device_list *out, const char *spec,
                          int n_thread, const struct topology *t, pl_err *err);

/* Adds the devices of the host, all cores of this process: one a NUMA node
 * where n_rank ranks can be dealt evenly to the nodes ("host0", "host1"), else
 * one ("host"). n_thread as it was for device_parse: 0, or threads a device;
 * then the host has as many as all cpu devices together, but no more than
 * cores. paper: on paper, as described or of modest guesses. *first: its index;
 * it is the last in the list, or the first of the last. */
pl_status device_list_add_host(struct device_list *l, int n_rank, int n_thread,
                               bool paper, int *first, pl_err *err);
pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err);

#endif
