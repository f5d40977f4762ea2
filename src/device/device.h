/* Device lists and device sets.
 *
 * A device list describes the devices that one engine uses. A device set opens
 * these devices, allocates their memory and executes programs on them. The
 * interface assumes no shared memory: a device's regions are accessed only by
 * device_write(), device_read() and the programs' own instructions. A *run*
 * executes one step: the caller starts it, then waits for its end.
 * device_backends.c lists the backends, and device_ops.h says what a backend
 * must implement. No other code depends on a device's backend; planning needs
 * only the device's description. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "device/kernel_set.h"
#include "program/program.h"

#include "pl_machines.h"

struct backend_ops; /* defined in device_ops.h */
struct topology;    /* defined in machine/topology.h */
struct cpu_kernels; /* defined in cpu/cpu_kernel.h */
struct network;     /* defined in network.h */

/* The properties of a device that are known before it is opened. The planner
 * reads them. */
struct device_desc {
    char name[32]; /* the device's name: "cpu0", "sim1", "gpu2" */
    const struct backend_ops *ops; /* the functions of the device's backend */
    /* number of its worker threads; 1 if the device has none of its own */
    int n_thread;
    /* size of the device's memory in bytes; 0 if unknown */
    uint64_t memory_bytes;
    /* bytes of that memory which were free when the list was made; 0 only if
     * memory_bytes is 0 */
    uint64_t available_bytes;
    /* bytes per second at which its kernels read weights; 0 if unknown */
    double mem_bytes_per_s;
    /* multiply-adds of floats per second; 0 if unknown */
    double float_macs_per_s;
    /* multiply-adds per second with weights in quantization blocks; 0 means
     * that float_macs_per_s applies to them, too */
    double block_macs_per_s;
    double launch_s; /* seconds to start a kernel; 0 if unknown */
    /* bytes per second of its link to the host and to other devices, 0 if
     * unlimited; latency of the link in seconds */
    double link_bytes_per_s, link_latency_s;
    /* bytes per second of transfers that bypass the host, to devices that have
     * this field too; 0 if the device has no such path */
    double p2p_bytes_per_s;
    /* bytes per second of transfers that bypass the host, to devices of its
     * link domain; 0 if it is in no link domain */
    double bridge_bytes_per_s;
    /* number of its link domain, the same for all devices of the domain; 0 if
     * it is in none */
    int link_domain;
    /* Number of the machine that the device is in. Machine 0 has the host
     * devices and io. Devices of different machines share nothing but a
     * network: they push, and never read each other's memory. */
    int machine;
    /* bytes per second and latency in seconds of the network between its
     * machine and others; 0 if unknown */
    double network_bytes_per_s, network_latency_s;
    /* NUMA node of its cores; -1 if unknown, or if core[] is on several
     * nodes */
    int numa_node;
    int index; /* for a GPU: the number that its driver's list gives it */
    /* For a GPU: PCI address, "" if unknown. Devices with the same address are
     * on one GPU. */
    char bus[24];
    /* for a GPU: its name, and the versions of GPU and driver; measured speeds
     * are stored under both strings */
    char title[96], version[96];
    int n_unit; /* for a GPU: number of SMs or CUs; 0 if unknown */
    /* maximum size of one allocation in bytes; 0 if unlimited */
    size_t largest_bytes;
    /* True for host devices and for io. A host device uses the worker threads
     * of the cpu devices on its cores, in turn with those devices. */
    bool host;
    int n_core;
    int core[256]; /* [n_core] logical cores of its threads, by the operating
                      system's numbers */

    /* Number of the memory that the device is in; 0 for the host's memory.
     * Devices of a machine with the same number read each other's memory in
     * place and use barriers. -1 means private memory: other devices cannot
     * read it, so the device pushes the data that they need. */
    int memory;
    /* The device can PULL from any memory of its machine that is not private.
     * If false, it can PULL only from memory with its own number. */
    bool reads;
    /* The device's kernels may access host memory in place. That memory must
     * then consist of whole pages. */
    bool maps;
    /* The threads that compute also copy, so all instructions are in the
     * compute queue. If false, copies between groups are in a copy queue that
     * runs concurrently. */
    bool one_queue;
    /* The device's threads run on core[] and its memory is that of numa_node.
     * Other devices on that node may share both. */
    bool on_cores;
    /* a GPU, or a described device other than the host with private memory; its
     * speed may differ much from that of this machine's CPUs */
    bool accelerator;
    bool described; /* planning only: the device cannot run programs */
    /* added by device_list_add_io: runs on the caller's thread and holds the
     * inputs and outputs of a step */
    bool io;
};

enum {
    DEVICE_NAMED_MAX = 1024, /* most devices that a -dev string can request */
    DEVICE_MAX = 1089,       /* most devices of a set: with host devices and
                               "io" */
};

/* The origin of a figure about a network. */
enum link_source {
    LINK_ASSUMED,  /* a default of the cost model */
    LINK_MEASURED, /* measured between these machines */
    LINK_STATED,   /* given by the user */
    LINK_SOURCES
};

/* The network between two machines, alike in both directions. */
struct machine_link {
    double bytes_per_s, latency_s; /* 0 if unknown */
    enum link_source source;
};

struct calibration; /* defined in cost/calibration.h */

struct device_list {
    int n;
    /* the devices of the list, [n]; allocated by malloc */
    struct device_desc *dev;
    bool host_described; /* `host` was given by --device-spec;
                                device_list_add_host adds it to dev[] */
    struct device_desc host;
    const struct topology *topology; /* reference to this machine's topology;
                                        NULL if the devices are only
                                        described */
    /* [n_given] the host devices that the plan has, and io, as machine 0 has
     * described them to this machine; borrowed. n_given is 0 on machine 0. */
    const struct device_desc *given;
    int n_given;
    /* the network to other machines that have devices of the list; borrowed;
     * NULL if there are none, or if the devices are only described */
    struct network *network;
    /* [n_machine * n_machine] the measured or stated networks: between machines
     * a and b at a * n_machine + b; owned. NULL if there are none; then the
     * devices' own figures apply. Only machine 0 has them. */
    int n_machine;
    struct machine_link *link;
    /* [n_machine] the rates that other machines have measured of themselves;
     * borrowed; an entry is NULL if its machine was not measured, and the array
     * if this machine does not know */
    struct calibration *const *measured;
};

#define DEVICE_DEFAULT "cpu" /* the -dev string if none is given */

/* Parses a -dev string: items separated by commas, each NAME[:DETAIL]*[*N].
 *   cpu               one device per NUMA node
 *   cpu*N             N devices that share the machine's cores evenly, in
 *                     NUMA order (more devices than cores: cores are reused)
 *   cpu:0-3           a device on these cores; cpu:0-3+8-11 for several ranges
 *   none              must be the only item: an empty list, the host runs
 *                     everything
 *   proc...           as cpu, each device in a separate process
 *   sim[:MEM][:BW/s][:LATENCY]*N      sim:2GiB:16GB/s:10us*2
 *   gpu               each GPU by its best driver; gpu:I one of them; gpu*N
 *   cuda, hip, opencl each GPU of this driver; cuda:I the one with the driver's
 *                     number I; cuda*N is N devices, on the GPUs in turn
 * `n_thread` is the number of threads of each device; 0 selects one per core.
 * On failure the error names the item and lists the accepted syntax, and *out
 * is empty. */
pl_status device_parse(struct device_list *out, const char *spec, int n_thread,
                       pl_err *err);
/* Parses a --device-spec string: items
 * NAME:MEM:MEMBW[:FLOPS][:LINKBW][:LATENCY]*N, separated by commas. The fields
 * after NAME are told apart by their units and may be in any order:
 * gpu:24GiB:1TB/s*4, gpu:80GiB:3TB/s:link=64GB/s:latency=5us:flops=400T*8. A
 * multiply-add is two flops. Further fields have keys:
 *   int8=800T        flops for weights in quantization blocks, if they differ
 *   launch=2us       time to start a kernel
 *   available=20GiB  free memory, if less than MEM
 *   p2p=450GB/s      transfers that bypass the host, to others with p2p
 *   bridge=450GB/s   transfers that bypass the host, to others of the item
 *   machine=1        number of its machine, 0 to 127; 0 if missing
 *   network=1.2GB/s  transfers to other machines
 *   network-latency=30us
 *
 * Each device has private memory, except that all devices with the field
 * "shared" of a machine share one. Devices of machine 1 have names such as
 * 1/gpu0. An item named host (host:64GiB:50GB/s) describes the host of machine
 * 0 and is not counted. "none" is accepted as by device_parse. */
pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err);
/* Parses a network, "1.17GB/s:30us": bytes per second, and latency in
 * seconds. */
pl_status device_parse_network(struct machine_link *out, const char *spec,
                               pl_err *err);
pl_status device_list_copy(struct device_list *out, const struct device_list *l,
                           pl_err *err);
void device_list_free(struct device_list *l);

/* Returns true if memory that `other` uses is no longer available to `d`.
 * Devices on one node of a machine share its memory. A host that spans all
 * nodes shares memory with all devices of the machine. */
bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other);

/* Returns the size in bytes of the scratch memory that a device needs in
 * addition to its regions, for all its threads together. */
size_t device_scratch_bytes(const struct device_desc *d, enum kernel_set set,
                            const struct program *p);

/* Converts the floats x[n][d] to cache rows of format `f`, with the bits that
 * KERNEL_cache_write would write. A row takes format_row_bytes(f, d) bytes of
 * `rows`. */
void device_cache_rows(pl_format f, int64_t d, int64_t n, const float *x,
                       void *rows);

struct device_options {
    bool no_pin;
    enum kernel_set kernel_set;
    const struct cpu_kernels *kernels; /* for tests: used instead of the kernel
                                          set's kernels; borrowed */
    uint64_t sim_seed;
    /* for tests: execute one instruction at a time, and protect all memory that
     * the instruction must not access (device_guard.c) */
    bool guard;
    /* for tests: a sim device merges its queues into one, in a random order
     * that the queue-order rule (program.h) allows */
    bool sim_merge;
    /* accept devices whose kernels give other bits than the CPU's */
    bool inexact;
    uint64_t plan_hash; /* of the numeric plan; the same on all machines */
    /* for tests: seconds without progress after which a GPU counts as lost; 0
     * for the default */
    double gpu_limit_s;
    bool trace; /* record when each instruction begins and ends: see
                   device_set_trace */
    /* called with the progress of compiling GPU kernels, by the thread in
     * device_set_load(); may be NULL */
    pl_progress_fn *progress;
    void *progress_user;
    const volatile int *cancel; /* device_set_load() gives up if *cancel is not
                                   0; may be NULL */
};

struct device_set; /* the open devices; defined in device_inner.h */

/* Opens the devices of `l`, which is copied, and starts their threads.
 * Allocates no device memory yet. Returns PL_BAD_ARGUMENT if a device is only
 * described. */
pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err);
void device_set_free(struct device_set *s);

/* Loads the programs p[], one per device, borrowed until the set loads others
 * or is freed. Checks them and allocates their regions on the devices. New
 * regions may hold any bytes, because programs read only what was written; sim
 * devices poison them. If memory is insufficient, the error names the device,
 * the size that it needs and the size that is available. */
pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err);

/* Copy `bytes` bytes between host memory and region r of device `dev`. Must not
 * be called during a run. `src` may be reused when device_write returns.
 * Written data is visible to programs after the next device_flush or at the
 * next run. device_read returns all data written before. */
pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err);
pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err);
pl_status device_flush(struct device_set *s, pl_err *err);
/* Returns the address of region r of device `dev` if this process may access it
 * in place, else NULL. */
void *device_map(struct device_set *s, int dev, enum region r);

struct device_run {
    int variant;
    /* number of micro-batches of the step, 1 to the variant's n_micro */
    int n_micro;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* by micro-batch: upper bound of the number of pages in which a sequence
     * has positions; 0 if unknown */
    int64_t n_page[PROG_MAX_MICRO];
};

/* Starts a run: every device executes its program's variant run->variant. `run`
 * is borrowed until device_set_wait returns. */
pl_status device_set_submit(struct device_set *s, const struct device_run *run,
                            pl_err *err);
/* Waits for the end of the run. Meanwhile the caller's thread works as the
 * first thread of the devices that compute on this machine's cores. If one
 * device fails, all devices leave the run; returns PL_DEVICE and the first
 * failure's message. */
pl_status device_set_wait(struct device_set *s, pl_err *err);
/* On a machine other than 0: executes what machine 0 orders, until that unloads
 * its set. Machine 0 calls the functions above instead. Returns PL_DEVICE if
 * machine 0 is lost. */
pl_status device_set_serve(struct device_set *s, pl_err *err);
/* On machine 0: waits until all other machines are in device_set_serve(). */
pl_status device_set_await(struct device_set *s, pl_err *err);
/* Calls device_set_submit, then device_set_wait. */
pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err);

/* The begin and end of an instruction in the last run, in seconds since the
 * run's start. */
struct device_timing {
    int dev, step; /* step: index of the instruction in its variant */
    double begin_s, end_s;
};
/* Returns the times of the last run's *n instructions, grouped by device and in
 * the order in which the instructions ended. Excludes WAITs and POSTs. Returns
 * NULL and sets *n to 0 if the set does not trace or the run failed. */
const struct device_timing *device_set_trace(const struct device_set *s,
                                             int *n);

/* Returns a hash that identifies the devices whose kernels give other bits than
 * the CPU's, or 0 if there are none. The set must be loaded. */
uint64_t device_set_inexact_hash(const struct device_set *s);

/* Sets *c to the counters of device `dev`, which count from the set's
 * creation. */
void device_set_device(const struct device_set *s, int dev,
                       pl_device_counters *c);
/* Returns what device `dev` has sent to other machines. */
pl_device_traffic device_set_traffic(const struct device_set *s, int dev);
/* Adds the counters of all devices, which count from the set's creation, to
 * *c. */
void device_set_counters(const struct device_set *s, pl_counters *c);

#endif
