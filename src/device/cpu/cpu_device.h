/* Declarations shared by the files of the cpu backend: a device, the roles of
 * threads, and the backend of all cpu devices including host devices. */
#ifndef DEVICE_CPU_CPU_DEVICE_H
#define DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/cpu_image.h"
#include "device/team.h"
#include "machine/topology.h"

struct cpu_device {
    /* the program's tensors with their addresses and sizes; the first member,
     * so that tests can use device.own as a pointer to it */
    struct cpu_image image;
    /* owned; the scratch of all threads of the device, one after another */
    unsigned char *scratch;
    size_t scratch_stride; /* size in bytes of each thread's scratch */
    /* image.tensor[] already has this step's sizes, because the step before had
     * the same */
    bool ready;
    /* owned; for each variant of the program, the CPU_... flags of its
     * instructions (cpu_barriers.h) */
    unsigned char *how[PROG_MAX_VARIANT];
    /* Flags with which threads and devices synchronize at barriers (cpu_run.c).
     * The first thread raises `met` for other devices and `released` for the
     * other threads of this device. */
    /* owned, [n_thread]: raised by each thread when it arrives at a barrier */
    struct device_flag *arrived;
    struct device_flag met, released;
    /* Owned, [2][CPU_STEAL_INSNS][n_thread]: how many items of each thread's
     * part have been taken, for work stealing. Two sets of counters are used
     * alternately from barrier to barrier (cpu_run.c). */
    struct cpu_steal_counter *taken;
};

/* Maximum number of instructions, between two barriers, in which the threads of
 * a device steal work from each other. */
enum { CPU_STEAL_INSNS = 4 };

/* Maximum number of roles of one thread of the team. A role is to be a thread
 * of one device. A team thread can be a thread of a cpu device, of a host
 * device, and, if it is the first of the team, of the pseudo device "io". */
enum { CPU_MAX_ROLES = 3 };
struct cpu_thread_role {
    /* dev: index of a device in the set; ith: index of one of that device's
     * threads */
    int dev, ith;
};
struct cpu_thread_roles {
    int n;
    struct cpu_thread_role role[CPU_MAX_ROLES];
};

struct cpu_backend {
    struct cpu_kernels kernels;
    /* The machine's NUMA nodes and cores, if the devices are on several nodes,
     * so that memory must be bound to nodes. Else NULL. */
    const struct topology *topology;
    /* all cores of the machine are on one NUMA node */
    bool one_node;
    /* owned; the threads that execute the programs of all cpu devices */
    struct team *team;
    int n_thread; /* number of threads of the team */
    /* owned, [n_thread]: the device threads that each thread of the team acts
     * as */
    struct cpu_thread_roles *roles;
};

static inline struct cpu_device *cpu_device_of(struct device_set *s, int dev)
{
    return device_of(s, dev)->own;
}

/* In cpu_thread_map.c. Decides which thread of the team acts as which thread of
 * each device, and starts the team. */
pl_status cpu_thread_map_fill(struct backend *b, pl_err *err);
/* Returns true if some thread of the team serves both devices dev_a and
 * dev_b. */
bool cpu_thread_map_share(const struct backend *b, int dev_a, int dev_b);

/* In cpu_run.c. Executed by each thread of the team in a step: executes the
 * instructions of all devices that team thread `thread` serves. */
void cpu_run(struct backend *b, int thread);

/* In cpu_describe.c. cpu_describe() adds to `l` the devices that `it`, an item
 * of a -dev string such as "cpu*2", denotes, and selects their cores.
 * cpu_add_host() adds the host device. */
pl_status cpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err);
pl_status cpu_add_host(struct device_list *l, int n_rank, int n_thread,
                       const struct topology *t, pl_err *err);

#endif
