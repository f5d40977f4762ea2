/* Devices: memory and something that runs programs on it.
 *
 * A device set is the ordered list of devices that one engine uses. Its
 * interface assumes no shared memory: a device's regions are reached only by
 * write, read and the programs' own steps, and a run is begun and waited for.
 * What kinds of devices there are says device_backends.c; what a kind must do,
 * device_ops.h. Nothing else asks which kind a device has: what planning needs
 * to know of one stands in its description. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/kernel_set.h"
#include "program/program.h"

struct backend_ops; /* device_ops.h */
struct topology;    /* machine/topology.h */
struct cpu_kernels; /* cpu/cpu_kernel.h */

/* What is known of a device before anything is opened; the plan reads this. */
struct device_desc {
    char name[32];                 /* "cpu0", "sim1", "gpu2" */
    const struct backend_ops *ops; /* its kind */
    int n_thread;                  /* worker threads; 1 where it has none */
    uint64_t memory_bytes;         /* in all; 0 = unknown */
    uint64_t available_bytes;      /* of these now; 0 only where these are */
    double mem_bytes_per_s;        /* of weights; 0 = unknown */
    double float_macs_per_s;       /* multiply-adds of floats; 0 = unknown */
    double block_macs_per_s;       /* of weights in blocks; 0 = as of floats */
    double launch_s;               /* to begin a kernel; 0 = unknown */
    double link_bytes_per_s, link_latency_s; /* to its peers; 0 = free */
    double p2p_bytes_per_s;    /* to those that have it too, past the host; 0 =
                               none */
    double bridge_bytes_per_s; /* to those of its island, past the host, too */
    int island;                /* 0: none */
    int numa_node;             /* -1: none */
    int index;                 /* of a GPU, among its driver's */
    char bus[24]; /* of a GPU: its PCI address, "" if unknown; devices
                               that have the same are on one GPU */
    char title[96], version[96]; /* of a GPU, and of it and its driver: what was
                                    measured of one is found by these */
    int n_unit;           /* of a GPU, that run groups of lanes side by side; 0:
                             unknown */
    size_t largest_bytes; /* that one allocation of it may have; 0: any */
    bool host; /* of device_list_add_host: shares the worker threads of devices
                  on its cores, and takes turns with them */
    int n_core;
    int core[256]; /* logical cores, as the system numbers them */

    int memory;     /* devices of one number read each other's memory in place,
                       and meet; 0: the host's. -1: private, nobody reads it,
                       and what it has for others it pushes to them */
    bool reads;     /* it pulls from any memory that is not private; else only
                       from that of its own number */
    bool maps;      /* its kernels may use the host's memory in place, which
                       must be whole pages then */
    bool one_queue; /* its threads copy too: all its steps are in the compute
                       queue. Else copies between groups are in a copy queue,
                       which goes on beside the other one */
    bool on_cores;  /* its threads run on core[] and its memory is that of
                       numa_node, both shared with others there */
    bool accelerator; /* not of the machine's processors, and many times as fast
                         or as slow */
    bool described;   /* can be planned for, not run on */
    bool io; /* of device_list_add_io: the caller's thread, and what goes
                       into a run and comes out of it */
};

enum {
    DEVICE_NAMED_MAX = 512, /* that a string may ask for */
    DEVICE_MAX = 577,       /* with those of the host, and "io" */
};

struct device_list {
    int n;
    struct device_desc *dev; /* [n], malloc'ed */
    bool host_described;     /* by --device-spec; not among dev[] until
                                device_list_add_host */
    struct device_desc host;
    const struct topology *topology; /* of this machine, held; NULL: the
                                        devices are only described */
};

#define DEVICE_DEFAULT "cpu" /* where no devices are asked for */

/* Parses a -dev string: items separated by commas, each NAME[:DETAIL]*[*N].
 *   cpu               one device a NUMA node
 *   cpu*N             N devices that share the machine's cores evenly, in
 *                     NUMA order (more devices than cores: cores are reused)
 *   cpu:0-3           those cores; cpu:0-3+8-11 for several ranges
 *   none              alone: an empty list, everything is the host's
 *   proc...           as cpu, each device in a process of its own
 *   sim[:MEM][:BW/s][:LATENCY]*N      sim:2GiB:16GB/s:10us*2
 *   gpu               each GPU by its best driver; gpu:I one of them; gpu*N
 *   cuda, hip, opencl each that this driver shows; cuda:I the one that it
 *                     numbers I; cuda*N so many devices, on each in turn
 *   emu[*N]           emulated GPUs
 * n_thread 0: as many as the device has cores. An error names the item and
 * shows what is accepted. */
pl_status device_parse(struct device_list *out, const char *spec, int n_thread,
                       pl_err *err);
/* Parses --device-spec: NAME:MEM:MEMBW[:FLOPS][:LINKBW][:LATENCY]*N, in any
 * order after NAME by unit: gpu:24GiB:1TB/s*4, gpu:80GiB:3TB/s:link=64GB/s:
 * latency=5us:flops=400T*8. A multiply-add is two of those flops; int8=800T:
 * those of weights in blocks, where they differ. launch=2us: to begin a kernel.
 * available=20GiB: of its memory now, where that is not all.
 * p2p=450GB/s: to the others that say so, past the host; bridge=450GB/s: to the
 * others of the item. Memory is private to each, or ":shared" with the others
 * that say so. An item named host (host:64GiB:50GB/s) describes the host and is
 * not counted; "none" as above. */
pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err);
pl_status device_list_copy(struct device_list *out, const struct device_list *l,
                           pl_err *err);
void device_list_free(struct device_list *l);

/* Is what `other` takes of the memory that `d` has? Devices on one node share
 * its memory, and all of the machine do with a host that is over all nodes. */
bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other);

/* Scratch bytes a device needs beside its regions (all its threads). */
size_t device_scratch_bytes(const struct device_desc *d, enum kernel_set set,
                            const struct program *p);

/* Rows of a cache as a step would write them: x [n, d] floats, row i of `rows`
 * format_row_bytes(f, d) bytes. */
void device_cache_rows(pl_format f, int64_t d, int64_t n, const float *x,
                       void *rows);

struct device_options {
    bool no_pin;
    enum kernel_set kernel_set;
    const struct cpu_kernels *kernels; /* tests: in place of the kernel set's;
                                          borrowed */
    uint64_t sim_seed;
    bool guard; /* tests: one step at a time, and no page of another device can
                   be touched but what the step may read */
    bool sim_merge;     /* tests: a sim device's queues are one, in an order of
                       chance that the law of waits allows (program.h) */
    bool inexact;       /* a device whose kernels give other bits runs */
    double gpu_limit_s; /* tests: seconds in which a GPU must do something; 0:
                           what is right */
    bool trace;         /* steps are timed, see device_set_trace */
    pl_progress_fn *progress; /* of kernels that device_set_load() has compiled;
                                 called by its thread. NULL: nobody asks */
    void *progress_user;
    const volatile int *cancel; /* ends device_set_load(), see pl_options */
};

struct device_set; /* opaque */

/* Starts threads, allocates nothing yet. `l` is copied; devices that are only
 * described are refused. */
pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err);
void device_set_free(struct device_set *s);

/* Gives the set its programs, one a device (borrowed until the set is freed),
 * checks them, and allocates their regions on the devices, zeroed (sim:
 * poisoned until written). Errors name the device, what it needs and what it
 * has. */
pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err);

/* Copies between the host and a region; not during a run. What was written is
 * there after the next device_flush or run of the set, and `src` may be used
 * again when device_write returns. device_read sees what was written. */
pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err);
pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err);
pl_status device_flush(struct device_set *s, pl_err *err);
/* Address of a region where this process may write it in place, else NULL. */
void *device_map(struct device_set *s, int dev, enum region r);

struct device_run {
    int variant;
    int n_micro; /* 1 .. the script's */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* Pages that a sequence has positions in, at most; 0: unknown. */
    int64_t n_page[PROG_MAX_MICRO];
};

/* Begins a run of every device's program; device_set_wait ends it. `run` is
 * borrowed until then. */
pl_status device_set_submit(struct device_set *s, const struct device_run *run,
                            pl_err *err);
/* Waits for the run. The caller's thread works meanwhile, as the first thread
 * of a device that computes on this machine's cores. A device that fails fails
 * the run on all; none is left waiting. */
pl_status device_set_wait(struct device_set *s, pl_err *err);
/* Both. */
pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err);

/* What a step of the last run took, by the clock of the run's start. */
struct device_timing {
    int dev, step; /* step of the script that ran */
    double begin_s, end_s;
};
/* The timed steps of the last run, by device, in the order they ended; waits
 * apart. NULL and 0 if the set was not made to trace. */
const struct device_timing *device_set_trace(const struct device_set *s,
                                             int *n);

/* Of the devices whose kernels give other bits than they should, which ones;
 * 0: there are none. Of a set that is loaded. */
uint64_t device_set_inexact_hash(const struct device_set *s);

/* Of one device, since creation. */
void device_set_device(const struct device_set *s, int dev,
                       pl_device_counters *c);
/* Sums since creation; adds into *c. */
void device_set_counters(const struct device_set *s, pl_counters *c);

#endif
