/* Shared by the files of cpu devices: a device's threads, and the backend of
 * all of them, host devices included. */
#ifndef DEVICE_CPU_CPU_DEVICE_H
#define DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/cpu_image.h"
#include "device/team.h"
#include "machine/topology.h"

struct cpu_device {
    struct cpu_image image; /* first: see cpu_image.h */
    unsigned char *scratch; /* owned, for all threads */
    size_t scratch_stride;  /* bytes of one thread */
    bool ready;             /* the image has the sizes of the step */
    unsigned char *how[PROG_MAX_VARIANT]; /* owned: see cpu_barriers.h */
    /* Arrivals of threads and devices at barriers; see cpu_run.c. */
    struct device_flag *arrived; /* owned, [n_thread] */
    struct device_flag met, released;
    /* Owned, [2, CPU_STEAL_INSNS, n_thread]; see cpu_run.c. */
    struct cpu_steal_counter *taken;
};

/* Instructions between two barriers in which threads help each other. */
enum { CPU_STEAL_INSNS = 4 };

/* Roles of a thread of the team: a thread of a device, of a host device, or of
 * both. The first thread also serves "io". */
enum { CPU_MAX_ROLES = 3 };
struct cpu_thread_role {
    int dev, ith; /* device of the set, thread of it */
};
struct cpu_thread_roles {
    int n;
    struct cpu_thread_role role[CPU_MAX_ROLES];
};

struct cpu_backend {
    struct cpu_kernels kernels;
    /* This machine's, if the devices are on several nodes, else NULL. */
    const struct topology *topology;
    bool one_node;                  /* all cores are equally near to memory */
    struct team *team;              /* owned */
    int n_thread;                   /* of the team */
    struct cpu_thread_roles *roles; /* owned, [n_thread] */
};

static inline struct cpu_device *cpu_device_of(struct device_set *s, int dev)
{
    return device_of(s, dev)->own;
}

/* cpu_thread_map.c: assigns the threads of all devices to those of a team, and
 * starts it. */
pl_status cpu_thread_map_fill(struct backend *b, pl_err *err);
/* Returns true if one thread of the team serves both devices. */
bool cpu_thread_map_share(const struct backend *b, int dev_a, int dev_b);

/* cpu_run.c: executes the variants of the devices of one thread of the team. */
void cpu_run(struct backend *b, int thread);

/* cpu_describe.c: the cores that items of -dev strings denote. */
pl_status cpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err);
pl_status cpu_add_host(struct device_list *l, int n_rank, int n_thread,
                       const struct topology *t, pl_err *err);

#endif
