/* Declarations shared by the files of the cpu backend: a device, the roles of
 * threads, and the backend of all cpu devices including host devices. */
#ifndef DEVICE_CPU_CPU_DEVICE_H
#define DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/cpu_image.h"
#include "device/team.h"
#include "machine/topology.h"

struct cpu_device {
    struct cpu_image image; /* first, so that tests can read device.own as an
                               image */
    unsigned char *scratch; /* owned, for all threads */
    size_t scratch_stride;  /* size of a thread's scratch in bytes */
    bool ready;             /* image.tensor[] has the step's sizes already,
                               from the step before */
    /* owned, by variant: the flags of its instructions (cpu_barriers.h) */
    unsigned char *how[PROG_MAX_VARIANT];
    /* Flags that threads and devices raise at barriers; see cpu_run.c. */
    struct device_flag *arrived; /* owned, [n_thread] */
    struct device_flag met, released;
    /* Owned, [2][CPU_STEAL_INSNS][n_thread], counters for work stealing; see
     * cpu_run.c. */
    struct cpu_steal_counter *taken;
};

/* Maximum number of instructions, from one barrier to the next, in which
 * threads steal work from each other. */
enum { CPU_STEAL_INSNS = 4 };

/* Maximum number of roles of a thread of the team. A thread can serve a device,
 * a host device, or both. The first thread also serves the pseudo device
 * "io". */
enum { CPU_MAX_ROLES = 3 };
struct cpu_thread_role {
    int dev, ith; /* dev: device of the set; ith: index of a thread of that
                     device */
};
struct cpu_thread_roles {
    int n;
    struct cpu_thread_role role[CPU_MAX_ROLES];
};

struct cpu_backend {
    struct cpu_kernels kernels;
    /* The machine's topology if the devices are on several NUMA nodes, else
     * NULL. */
    const struct topology *topology;
    bool one_node;                  /* all cores are on one NUMA node */
    struct team *team;              /* owned */
    int n_thread;                   /* number of threads of the team */
    struct cpu_thread_roles *roles; /* owned, [n_thread] */
};

static inline struct cpu_device *cpu_device_of(struct device_set *s, int dev)
{
    return device_of(s, dev)->own;
}

/* In cpu_thread_map.c. Assigns the threads of all devices to the threads of a
 * team, and starts the team. */
pl_status cpu_thread_map_fill(struct backend *b, pl_err *err);
/* Returns true if one thread of the team serves both devices. */
bool cpu_thread_map_share(const struct backend *b, int dev_a, int dev_b);

/* In cpu_run.c. Executes a step on one thread of the team: the instructions of
 * all devices that this thread serves. */
void cpu_run(struct backend *b, int thread);

/* In cpu_describe.c. cpu_describe() adds to `l` the devices that an item of a
 * -dev string denotes, with their cores. cpu_add_host() adds the host
 * device. */
pl_status cpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err);
pl_status cpu_add_host(struct device_list *l, int n_rank, int n_thread,
                       const struct topology *t, pl_err *err);

#endif
