/* Devices: memory and something that runs programs on it.
 *
 * A device set is the ordered group of devices that one engine uses. Its
 * interface assumes no shared memory: a device's regions are reached only by
 * write, read and the programs' own steps. Kinds: cpu (the cores of one NUMA
 * node, or any cores), sim (private memory, queues that run late and in any
 * order that events allow, poisoned buffers, a memory limit, link speed and
 * latency: its kernels are the CPU's, everything else is its own), and paper
 * (a description alone, for plans of machines that are not there). */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/cpu/cpu_kernel.h"
#include "program/program.h"

enum device_kind { DEVICE_CPU, DEVICE_SIM, DEVICE_PAPER };

/* What is known of a device before anything is opened; the plan reads this. */
struct device_desc {
    char name[32]; /* "cpu0", "sim1", "gpu2" */
    enum device_kind kind;
    int n_thread;           /* CPU: worker threads; else 1 */
    uint64_t memory_bytes;  /* limit; 0 = unknown */
    double mem_bytes_per_s; /* of weights; 0 = unknown */
    double flops;           /* multiply-adds a second; 0 = unknown */
    double link_bytes_per_s, link_latency_s; /* to its peers; 0 = free */
    int numa_node;                           /* -1: none */
    bool host; /* a CPU of device_list_add_host: shares the worker threads of
                  cpu devices on its cores, and takes turns with them */
    int n_core;
    int core[256]; /* CPU: logical cores, as the system numbers them */
};

enum {
    DEVICE_NAMED_MAX = 512, /* that a string may ask for */
    DEVICE_MAX = 576,       /* with those of the host */
};

struct device_list {
    int n;
    struct device_desc *dev; /* [n], malloc'ed */
    bool host_described;     /* by --device-spec; not among dev[] until
                                device_list_add_host */
    struct device_desc host;
};

/* Parses a -dev string: items separated by commas, each NAME[:DETAIL]*[*N].
 *   cpu               one device a NUMA node
 *   cpu*N             N devices that share the machine's cores evenly, in
 *                     NUMA order (more devices than cores: cores are reused)
 *   cpu:0-3           those cores; cpu:0-3+8-11 for several ranges
 *   none              alone: an empty list, everything is the host's
 *   sim[:MEM][:BW/s][:LATENCY]*N      sim:2GiB:16GB/s:10us*2
 * n_thread 0: as many as the device has cores. An error names the item and
 * shows what is accepted. */
pl_status device_parse(struct device_list *out, const char *spec, int n_thread,
                       pl_err *err);
/* Parses --device-spec: NAME:MEM:MEMBW[:FLOPS][:LINKBW][:LATENCY]*N, in any
 * order after NAME by unit: gpu:24GiB:1TB/s*4, gpu:80GiB:3TB/s:link=64GB/s:
 * latency=5us:flops=400T*8. A multiply-add is two of those flops. An item named
 * host (host:64GiB:50GB/s) describes the host and is not counted; "none" as
 * above. */
pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err);
void device_list_free(struct device_list *l);

struct device_options {
    bool no_pin;
    enum cpu_family family;
    uint64_t sim_seed;
    bool guard; /* tests: one step at a time, and no page of another device can
                   be touched but what the step may read */
    bool trace; /* steps are timed, see device_set_trace */
};

struct device_set; /* opaque */

/* Starts threads, allocates nothing yet. `l` is copied; paper devices are
 * refused. */
pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err);
void device_set_free(struct device_set *s);
const struct cpu_kernels *device_set_kernels(const struct device_set *s);
/* Is what `other` takes of the memory that `d` has? Devices on one node share
 * its memory, and all of the machine do with a host that is over all nodes. */
bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other);

/* Scratch bytes a device needs beside its regions (all its threads). */
size_t device_scratch_bytes(const struct device_desc *d,
                            const struct cpu_kernels *k,
                            const struct program *p);

/* Gives the set its programs, one a device (borrowed until the set is freed),
 * and allocates their regions on the devices, zeroed (sim: poisoned but for
 * weights and cache, which are poisoned too until written). Errors name the
 * device, what it needs and what it has. */
pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err);

/* Synchronous copies between the host and a region; not during a run. */
pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err);
pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err);
/* Host address of a region where the host may write it in place (cpu), else
 * NULL. */
void *device_map(struct device_set *s, int dev, enum region r);

struct device_run {
    int script;
    int n_instance; /* 1 .. the script's */
    struct graph_sizes sizes[PROG_MAX_INSTANCE];
    struct kernel_batch batch[PROG_MAX_INSTANCE]; /* host memory; each device takes
                                                  its copy */
    int n_seq;                                 /* rows of batch.pages */
};

/* Runs every device's program once and waits. The caller's thread works as the
 * first cpu device's first thread. A device that fails fails the step on all;
 * none is left waiting. */
pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err);

/* What a step of the last run took, by the clock of device_set_run's start. */
struct device_event {
    int dev, step; /* step of the script that ran */
    double begin_s, end_s;
};
/* The timed steps of the last run, by device, in the order they ended; waits
 * apart. NULL and 0 if the set was not made to trace. */
const struct device_event *device_set_trace(const struct device_set *s, int *n);

/* Sums since creation; adds into *c. */
void device_set_counters(const struct device_set *s, pl_counters *c);

#endif
