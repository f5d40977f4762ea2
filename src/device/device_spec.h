/* -dev strings on a given machine; device_parse() is this on the real one. */
#ifndef DEVICE_DEVICE_SPEC_H
#define DEVICE_DEVICE_SPEC_H

#include "device/device_ops.h"
#include "machine/topology.h"

/* ---- for kinds: what an item of a string says ---------------------------- */

/* One item, while it is read. */
struct device_item {
    const char *text; /* its first character, for messages */
    int len;
    char name[16];
    const struct backend_ops *ops; /* the kind that bears it */
    const char *field, *end; /* the fields: between the name and the count */
    int count;               /* after '*', or 0 */
    int n_thread;            /* that were asked for; 0: one a core */
    const struct topology *topology; /* NULL: devices are described */
    const char *accepted;            /* for messages */
};

/* PL_BAD_ARGUMENT, with the item and what is accepted. */
pl_status device_item_bad(const struct device_item *it, pl_err *err,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a device, named after the item and how many bear that name. */
pl_status device_list_append(struct device_list *l, const struct device_desc *d,
                             const struct device_item *it, pl_err *err);

/* Figures that fields may give, told apart by their units or by a key. */
enum device_figure {
    DEVICE_MEMORY,    /* 2GiB */
    DEVICE_AVAILABLE, /* available=1GiB: of that now */
    DEVICE_BANDWIDTH, /* of its memory: 1TB/s */
    DEVICE_FLOPS,     /* flops=400T */
    DEVICE_LINK,      /* 16GB/s, or link=16GB/s beside a bandwidth */
    DEVICE_LATENCY,   /* 10us */
    DEVICE_INT8,      /* int8=800T */
    DEVICE_LAUNCH,    /* launch=2us */
    DEVICE_P2P,       /* p2p=450GB/s */
    DEVICE_BRIDGE,    /* bridge=450GB/s */
    DEVICE_FIGURES
};

/* Reads the item's fields into figures; `offered`: a bit for each that may be
 * given. Those that are not are 0. *shared, if it is not NULL: whether the item
 * says "shared". */
pl_status device_item_read(const struct device_item *it, unsigned offered,
                           double v[DEVICE_FIGURES], bool *shared, pl_err *err);
/* Appends copies of `d` with the figures v, as many as the item says. */
pl_status device_item_append(struct device_list *l,
                             const struct device_item *it,
                             const struct device_desc *d,
                             const double v[DEVICE_FIGURES], pl_err *err);

/* ---- the whole string ---------------------------------------------------- */

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
/* On the cores of `t`. */
pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err);
/* Adds "io", the last device of every list that programs are made for: the
 * memory where a run finds its inputs and leaves its outputs, which the caller
 * reads and writes between runs. It computes nothing; what it has to push, the
 * caller's thread does, as the first of the cpu devices' threads. */
pl_status device_list_add_io(struct device_list *l, bool paper, pl_err *err);

#endif
