/* What the files of cpu devices share: a device's threads, and the bank of all
 * of them, the hosts among them. */
#ifndef DEVICE_CPU_CPU_DEVICE_H
#define DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/cpu_image.h"
#include "device/team.h"
#include "machine/topology.h"

struct cpu_device {
    struct cpu_image image; /* first: see cpu_image.h */
    unsigned char *scratch; /* owned, for all threads */
    size_t scratch_stride;  /* a thread's */
    bool ready;             /* the image has the sizes of the run */
    unsigned char *how[PROG_MAX_VARIANT]; /* owned: see cpu_barriers.h */
    /* who has arrived at which meeting; see cpu_run.c */
    struct device_flag *arrived; /* owned, [n_thread] */
    struct device_flag met, released;
    struct cpu_steal_counter
        *taken; /* owned, [2, CPU_STEAL_INSNS, n_thread]; likewise */
};

/* Steps between two meetings in which threads help each other. */
enum { CPU_STEAL_INSNS = 4 };

/* What a thread of the team does: the work of a thread of a device, of one of
 * the host, of both; the first also what "io" has to do. */
enum { CPU_SEATS = 3 };
struct cpu_thread_role {
    int dev, ith; /* device of the set, thread of it */
};
struct cpu_seats {
    int n;
    struct cpu_thread_role seat[CPU_SEATS];
};

struct cpu_backend {
    struct cpu_kernels kernels;
    /* Of this machine, where its devices are on several nodes, else NULL. */
    const struct topology *topology;
    bool one_node;           /* memory is near to all cores alike */
    struct team *team;       /* owned */
    int n_thread;            /* of the team */
    struct cpu_seats *seats; /* owned, [n_thread] */
};

static inline struct cpu_device *cpu_device_of(struct device_set *s, int dev)
{
    return device_of(s, dev)->own;
}

/* cpu_thread_map.c: deals the threads of all devices to those of a team, and
 * starts it. */
pl_status cpu_seats_fill(struct backend *b, pl_err *err);
/* True if a thread of the one is a thread of the other too. */
bool cpu_seats_share(const struct backend *b, int dev_a, int dev_b);

/* cpu_run.c: a thread of the team goes through the scripts of its devices. */
void cpu_run(struct backend *b, int thread);

/* cpu_describe.c: the cores that items of -dev strings mean. */
pl_status cpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err);
pl_status cpu_add_host(struct device_list *l, int n_rank, int n_thread,
                       const struct topology *t, pl_err *err);

#endif
