/* Parses -dev strings for a given machine; device_parse() does so for the real
 * one. */
#ifndef DEVICE_DEVICE_SPEC_H
#define DEVICE_DEVICE_SPEC_H

#include "device/device_ops.h"
#include "machine/topology.h"

/* ---- for backends: an item of a string ----------------------------------- */

/* An item while it is parsed. */
struct device_item {
    const char *text; /* its first character, for messages */
    int len;
    char name[16];
    const struct backend_ops *ops; /* the backend of that name */
    const char *field, *end; /* the fields: between the name and the count */
    int count;               /* after '*', or 0 */
    int n_thread;            /* requested; 0: one a core */
    const struct topology *topology; /* NULL: devices are described */
    const char *accepted;            /* for messages */
};

/* Returns PL_BAD_ARGUMENT and sets an error with the item and what is
 * accepted. */
pl_status device_item_bad(const struct device_item *it, pl_err *err,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a device, named after the item and numbered among devices of that
 * name. */
pl_status device_list_append(struct device_list *l, const struct device_desc *d,
                             const struct device_item *it, pl_err *err);

/* Values of fields, told apart by their units or by a key. */
enum device_figure {
    DEVICE_MEMORY,    /* 2GiB */
    DEVICE_AVAILABLE, /* available=1GiB: free now */
    DEVICE_BANDWIDTH, /* of its memory: 1TB/s */
    DEVICE_FLOPS,     /* flops=400T */
    DEVICE_LINK,      /* 16GB/s, or link=16GB/s after a bandwidth */
    DEVICE_LATENCY,   /* 10us */
    DEVICE_INT8,      /* int8=800T */
    DEVICE_LAUNCH,    /* launch=2us */
    DEVICE_P2P,       /* p2p=450GB/s */
    DEVICE_BRIDGE,    /* bridge=450GB/s */
    DEVICE_FIGURES
};

/* Reads the item's fields into values; `offered`: a bit for each that is
 * allowed. Missing ones are 0. Sets *shared, if it is not NULL, to whether the
 * item has "shared". */
pl_status device_item_read(const struct device_item *it, unsigned offered,
                           double v[DEVICE_FIGURES], bool *shared, pl_err *err);
/* Appends `d` with the values v, as often as the item's count. */
pl_status device_item_append(struct device_list *l,
                             const struct device_item *it,
                             const struct device_desc *d,
                             const double v[DEVICE_FIGURES], pl_err *err);

/* ---- the whole string ---------------------------------------------------- */

/* `t` may be NULL if the string names no cpu. */
pl_status device_parse_on(struct device_list *out, const char *spec,
                          int n_thread, const struct topology *t, pl_err *err);

/* Adds the devices of the host, all cores of this process. There is one a NUMA
 * node ("host0", "host1") if n_rank ranks can be split evenly over the nodes,
 * else one ("host"). n_thread as for device_parse: 0, or threads a device; then
 * the host has as many as all cpu devices together, but no more than cores.
 * paper: only described, from the string or by modest defaults. *first: index
 * of the first one; they are last in the list. */
pl_status device_list_add_host(struct device_list *l, int n_rank, int n_thread,
                               bool paper, int *first, pl_err *err);
/* The same on the cores of `t`. */
pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err);
/* Adds "io", the last device of every list that programs are built for. Its
 * memory holds a step's inputs and outputs, which the caller accesses between
 * runs. It computes nothing. Its pushes are done by the caller's thread, as the
 * first of the cpu devices' threads. */
pl_status device_list_add_io(struct device_list *l, bool paper, pl_err *err);

#endif
