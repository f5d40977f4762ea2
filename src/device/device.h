/* Devices: memory, and the means to run programs on it.
 *
 * A device set is the ordered list of devices that one engine uses. Its
 * interface assumes no shared memory: a device's regions are accessed only by
 * write, read and the programs' own instructions. A *run* executes one step: it
 * is started, and the caller waits for it. device_backends.c lists the
 * backends, and device_ops.h says what a backend must implement. No other code
 * depends on a device's backend; what planning needs to know is in its
 * description. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/kernel_set.h"
#include "program/program.h"

struct backend_ops; /* device_ops.h */
struct topology;    /* machine/topology.h */
struct cpu_kernels; /* cpu/cpu_kernel.h */

/* The properties of a device that are known before anything is opened. The plan
 * reads this. */
struct device_desc {
    char name[32];                 /* "cpu0", "sim1", "gpu2" */
    const struct backend_ops *ops; /* its backend */
    int n_thread;                  /* worker threads; 1 if it has none */
    uint64_t memory_bytes;         /* total; 0 = unknown */
    uint64_t available_bytes;      /* free now; 0 only if memory_bytes is 0 */
    double mem_bytes_per_s;        /* of weights; 0 = unknown */
    double float_macs_per_s;       /* multiply-adds of floats; 0 = unknown */
    double block_macs_per_s;       /* for block weights; 0 = as for floats */
    double launch_s;               /* to start a kernel; 0 = unknown */
    double link_bytes_per_s, link_latency_s; /* to its peers; 0 = free */
    double p2p_bytes_per_s; /* to others with it, not via the host; 0 = none */
    double bridge_bytes_per_s; /* in its link domain, not via the host */
    int link_domain;           /* link domain; 0: none */
    int numa_node;             /* -1: none */
    int index;                 /* of a GPU, in its driver's list */
    /* of a GPU: its PCI address, "" if unknown. Devices with the same address
     * are on one GPU. */
    char bus[24];
    /* of a GPU, and of it and its driver: the keys of its measurements */
    char title[96], version[96];
    int n_unit;           /* of a GPU: its SMs or CUs; 0: unknown */
    size_t largest_bytes; /* limit of one allocation; 0: none */
    /* of device_list_add_host: shares the worker threads of devices on its
     * cores, and takes turns with them */
    bool host;
    int n_core;
    int core[256]; /* logical cores, by the system's numbers */

    /* Devices with the same number read each other's memory in place and use
     * barriers; 0: the host's memory. -1: private. Others cannot read it, so it
     * pushes what they need. */
    int memory;
    bool reads; /* pulls from any memory that is not private, else only
                   from memory of its own number */
    bool maps;  /* its kernels may use the host's memory in place, which
                   must then be whole pages */
    /* Its threads also copy, so all its instructions are in the compute queue.
     * Otherwise copies between groups are in a copy queue that runs
     * concurrently. */
    bool one_queue;
    bool on_cores;    /* its threads run on core[] and its memory is that of
                         numa_node, both shared with others there */
    bool accelerator; /* not one of the machine's processors, with a very
                         different speed */
    bool described;   /* can be planned for, but cannot run */
    bool io;          /* of device_list_add_io: the caller's thread, and the
                         inputs and outputs of a step */
};

enum {
    DEVICE_NAMED_MAX = 512, /* limit of what a string can request */
    DEVICE_MAX = 577,       /* with those of the host, and "io" */
};

struct device_list {
    int n;
    struct device_desc *dev; /* [n], malloc'ed */
    bool host_described;     /* by --device-spec; added to dev[] only by
                                device_list_add_host */
    struct device_desc host;
    const struct topology *topology; /* of this machine, referenced; NULL: the
                                        devices are only described */
};

#define DEVICE_DEFAULT "cpu" /* if no devices are requested */

/* Parses a -dev string: items separated by commas, each NAME[:DETAIL]*[*N].
 *   cpu               one device a NUMA node
 *   cpu*N             N devices that share the machine's cores evenly, in
 *                     NUMA order (more devices than cores: cores are reused)
 *   cpu:0-3           those cores; cpu:0-3+8-11 for several ranges
 *   none              alone: an empty list, the host runs everything
 *   proc...           as cpu, each device in a separate process
 *   sim[:MEM][:BW/s][:LATENCY]*N      sim:2GiB:16GB/s:10us*2
 *   gpu               each GPU by its best driver; gpu:I one of them; gpu*N
 *   cuda, hip, opencl each GPU of this driver; cuda:I the one with the driver's
 *                     number I; cuda*N is N devices, on each GPU in turn
 *   emu[*N]           emulated GPUs
 * n_thread 0: as many as the device has cores. An error names the item and
 * lists what is accepted. */
pl_status device_parse(struct device_list *out, const char *spec, int n_thread,
                       pl_err *err);
/* Parses --device-spec: NAME:MEM:MEMBW[:FLOPS][:LINKBW][:LATENCY]*N, in any
 * order after NAME, told apart by unit: gpu:24GiB:1TB/s*4,
 * gpu:80GiB:3TB/s:link=64GB/s:latency=5us:flops=400T*8. A multiply-add is two
 * flops. int8=800T: the flops for weights in blocks, if they differ.
 * launch=2us: the time to start a kernel. available=20GiB: its free memory, if
 * not all. p2p=450GB/s: to the other devices with p2p, not via the host.
 * bridge=450GB/s: to the others of the item. Memory is private to each, or
 * ":shared" with the others marked so. An item named host (host:64GiB:50GB/s)
 * describes the host and is not counted; "none" as above. */
pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err);
pl_status device_list_copy(struct device_list *out, const struct device_list *l,
                           pl_err *err);
void device_list_free(struct device_list *l);

/* Returns true if memory used by `other` reduces that of `d`. Devices on one
 * node share its memory. A host that spans all nodes shares memory with all
 * devices of the machine. */
bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other);

/* Returns the scratch bytes a device needs besides its regions (all its
 * threads). */
size_t device_scratch_bytes(const struct device_desc *d, enum kernel_set set,
                            const struct program *p);

/* Converts x [n, d] floats to rows of a cache as an instruction would write
 * them, format_row_bytes(f, d) bytes a row. */
void device_cache_rows(pl_format f, int64_t d, int64_t n, const float *x,
                       void *rows);

struct device_options {
    bool no_pin;
    enum kernel_set kernel_set;
    const struct cpu_kernels *kernels; /* tests: replaces the kernel set's;
                                          borrowed */
    uint64_t sim_seed;
    /* tests: one instruction at a time; of another device's pages only those
     * are accessible that the instruction may read */
    bool guard;
    /* tests: a sim device merges its queues, in a random order that the
     * queue-order rule allows (program.h) */
    bool sim_merge;
    bool inexact;             /* allows devices whose kernels give other bits */
    double gpu_limit_s;       /* tests: seconds without progress after which a
                                 GPU is lost; 0: the default */
    bool trace;               /* times instructions, see device_set_trace */
    pl_progress_fn *progress; /* of kernels compiled by device_set_load(),
                                 called by its thread; NULL: none */
    void *progress_user;
    const volatile int *cancel; /* cancels device_set_load(), see pl_options */
};

struct device_set; /* opaque */

/* Starts threads, allocates no memory of devices yet. `l` is copied. Devices
 * that are only described are rejected. */
pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err);
void device_set_free(struct device_set *s);

/* Loads the programs, one a device (borrowed until the set is freed). Checks
 * them, and allocates their regions on the devices, zeroed (sim: poisoned until
 * written). Errors name the device, what it needs and what it has. */
pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err);

/* Copy between the host and a region; not during a run. Written data is visible
 * after the next device_flush or run of the set. `src` may be reused when
 * device_write returns. device_read sees what was written. */
pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err);
pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err);
pl_status device_flush(struct device_set *s, pl_err *err);
/* Returns the address of a region if this process may write it in place, else
 * NULL. */
void *device_map(struct device_set *s, int dev, enum region r);

struct device_run {
    int variant;
    int n_micro; /* 1 to the variant's */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* Upper bound of the pages in which a sequence has positions; 0:
     * unknown. */
    int64_t n_page[PROG_MAX_MICRO];
};

/* Starts every device's program; device_set_wait ends the run. `run` is
 * borrowed until then. */
pl_status device_set_submit(struct device_set *s, const struct device_run *run,
                            pl_err *err);
/* Waits for the run. Meanwhile the caller's thread works as the first thread of
 * a device that computes on this machine's cores. A device that fails fails the
 * run on all devices; none is left waiting. */
pl_status device_set_wait(struct device_set *s, pl_err *err);
/* Submits and waits. */
pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err);

/* The time of an instruction in the last run, in seconds since the run's
 * start. */
struct device_timing {
    int dev, step; /* step: instruction of the variant */
    double begin_s, end_s;
};
/* Returns the timed instructions of the last run, by device, in the order they
 * ended, without waits. NULL and 0 if the set does not trace. */
const struct device_timing *device_set_trace(const struct device_set *s,
                                             int *n);

/* Returns a hash that identifies the devices whose kernels give inexact bits;
 * 0: none. The set must be loaded. */
uint64_t device_set_inexact_hash(const struct device_set *s);

/* Returns the counters of one device, since creation. */
void device_set_device(const struct device_set *s, int dev,
                       pl_device_counters *c);
/* Adds the sums since creation to *c. */
void device_set_counters(const struct device_set *s, pl_counters *c);

#endif
