/* Parses -dev strings for a given topology. Tests pass a topology of their
 * choice; device_parse() passes that of this machine. Also declares functions
 * with which a backend parses its items of a -dev string and appends the
 * devices. */
#ifndef DEVICE_DEVICE_SPEC_H
#define DEVICE_DEVICE_SPEC_H

#include "device/device_ops.h"
#include "machine/topology.h"

/* ---- for backends: an item of a -dev string ------------------------------ */

/* One item of a device string: NAME[:FIELD]*[*COUNT]. */
struct device_item {
    /* the item in the string, `len` characters; not NUL-terminated */
    const char *text;
    int len;
    char name[16];
    const struct backend_ops *ops; /* the backend that `name` selects */
    /* the item's fields: first character, and one past the last */
    const char *field, *end;
    int count;                       /* the number after '*', or 0 */
    int n_thread;                    /* threads per device; 0 for one per
                                        core */
    const struct topology *topology; /* NULL if the devices are only
                                        described */
    /* the accepted syntax, for messages; "" as long as the backend is not
     * known */
    const char *accepted;
};

/* Returns PL_BAD_ARGUMENT and sets an error that consists of the item, the
 * formatted message and the accepted syntax. */
pl_status device_item_bad(const struct device_item *it, pl_err *err,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a copy of `d`. Its name is the item's name followed by a number,
 * counting the list's devices with that name from 0. A machine other than 0
 * comes before the name and counts for itself: 1/gpu0. */
pl_status device_list_append(struct device_list *l, const struct device_desc *d,
                             const struct device_item *it, pl_err *err);

/* The meanings of fields, which are told apart by their units or by a key. */
enum device_figure {
    DEVICE_MEMORY,    /* "2GiB": size of the memory */
    DEVICE_AVAILABLE, /* "available=1GiB": memory that is free now */
    DEVICE_BANDWIDTH, /* "1TB/s": rate of reading the memory */
    DEVICE_FLOPS,     /* "flops=400T": float operations per second */
    /* bandwidth of the link: "link=16GB/s", or "16GB/s" if that cannot be
     * DEVICE_BANDWIDTH */
    DEVICE_LINK,
    DEVICE_LATENCY, /* "10us": latency of the link */
    DEVICE_INT8, /* "int8=800T": operations per second with quantized weights */
    DEVICE_LAUNCH, /* "launch=2us": time to start a kernel */
    DEVICE_P2P,    /* "p2p=450GB/s": transfers that bypass the host */
    /* "bridge=450GB/s": transfers inside a link domain that bypass the host */
    DEVICE_BRIDGE,
    DEVICE_MACHINE,         /* "machine=1": number of the device's machine */
    DEVICE_NETWORK,         /* "network=1.2GB/s": transfers to other machines */
    DEVICE_NETWORK_LATENCY, /* "network-latency=30us" */
    DEVICE_FIGURES
};

/* Parses the item's fields into v[], where missing values are 0. `offered` has
 * bit f set for each field f (enum device_figure) that the item may have.
 * Unless `shared` is NULL, the field "shared" is accepted too, and *shared
 * tells whether it is present. */
pl_status device_item_read(const struct device_item *it, unsigned offered,
                           double v[DEVICE_FIGURES], bool *shared, pl_err *err);
/* Appends copies of `d` with the values v[]: as many as the item's count. */
pl_status device_item_append(struct device_list *l,
                             const struct device_item *it,
                             const struct device_desc *d,
                             const double v[DEVICE_FIGURES], pl_err *err);

/* ---- device strings ------------------------------------------------------ */

/* Parses a -dev string as device_parse() does, for the topology `t`, which may
 * be NULL if the string has no item that needs cores. */
pl_status device_parse_on(struct device_list *out, const char *spec,
                          int n_thread, const struct topology *t, pl_err *err);

/* Appends the host devices, which use all cores of this process. There is one
 * per NUMA node ("host0", "host1") if n_rank ranks can be split evenly over the
 * nodes, else one ("host"). n_thread is the number of threads of each cpu
 * device, as for device_parse. If it is not 0, the host has as many threads as
 * all cpu devices together, but no more than cores. If `paper`, the host is
 * only described: as l->host if --device-spec has a host, else with modest
 * defaults. Sets *first to the index of the first host device. */
pl_status device_list_add_host(struct device_list *l, int n_rank, int n_thread,
                               bool paper, int *first, pl_err *err);
/* Like device_list_add_host, on the cores of topology `t`. */
pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err);
/* Appends the device "io", the last one of every list that programs are built
 * for. Its memory holds a step's inputs and outputs, which the caller accesses
 * between runs. It computes nothing. The caller's thread executes its pushes,
 * while it works as the first of the cpu devices' threads. */
pl_status device_list_add_io(struct device_list *l, bool paper, pl_err *err);

#endif
