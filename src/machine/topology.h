/* The part of the machine that this process may use: NUMA nodes, cores, memory.
 *
 * Found with hwloc, whose header only topology.c includes. Processors that the
 * process may not use (affinity mask, cpuset) are left out at once, so threads
 * can be pinned to every core of a list. A machine that reports nothing is one
 * node on which each processor is a core. */
#ifndef MACHINE_TOPOLOGY_H
#define MACHINE_TOPOLOGY_H

#include "pl.h"

/* One logical processor, which runs one thread at a time. */
struct topology_cpu {
    int os; /* number of the processor as the system counts it, as in taskset */
    int node; /* index in topology.node[] of its NUMA node */
    int core; /* index in topology.core[] of its core */
};

/* One physical core. A thread that runs on it is pinned to its first
 * processor. */
struct topology_core {
    int os, node;
};

/* A NUMA node that has cores. A limit for all nodes together is divided among
 * the nodes. */
struct topology_node {
    int os;
    uint64_t memory_bytes; /* memory of the node in bytes that this process may
                              use; 0 if none or unknown */
    /* bytes that were available when the topology was read; 0 only if
     * memory_bytes is 0 */
    uint64_t available_bytes;
    int n_core;
};

struct topology {
    struct hwloc_topology *hw; /* owned: hwloc's description of the machine */
    bool here; /* the topology describes this machine, not a synthetic one */
    int n_node, n_core, n_cpu;
    struct topology_node *node; /* [n_node] owned; in the order in which hwloc
                                   lists them */
    struct topology_core *core; /* [n_core] owned; sorted by NUMA node */
    struct topology_cpu *cpu;   /* [n_cpu] owned; sorted by NUMA node */
    /* CPU time that cgroups grant to this process, in cores, rounded down, at
     * least 1. It is n_core if they set no limit. */
    int n_core_quota;
    /* Bytes of memory of all nodes, or the lowest limit of the cgroups if that
     * is less, and the bytes of it that were available when the topology was
     * read. 0 if unknown. */
    uint64_t memory_bytes, available_bytes;
};

/* Reads the topology of this machine. The environment variable PLAIT_MEMORY,
 * such as "16GiB:12GiB", replaces the total memory that the system reports, in
 * equal parts per node, and the memory that is available. On failure *t is all
 * zero. */
pl_status topology_load(struct topology *t, pl_err *err);

/* Creates the topology of an imaginary machine from hwloc's synthetic syntax,
 * such as "numa:2 core:8 pu:2". `allowed` is the list of processors that the
 * process may use, such as "0-3,8"; NULL allows all. */
pl_status topology_load_synthetic(struct topology *t, const char *desc,
                                  const char *allowed, pl_err *err);
/* Frees what *t owns. *t may be all zero, or partly filled after an error. */
void topology_fini(struct topology *t);

/* A topology of this machine that is shared by reference count. topology_open
 * reads the machine and returns the first reference, topology_keep adds one,
 * and topology_drop releases one. The last release frees the topology. Any
 * thread may call these. topology_keep and topology_drop allow NULL. */
pl_status topology_open(const struct topology **out, pl_err *err);
const struct topology *topology_keep(const struct topology *t);
void topology_drop(const struct topology *t);

/* Returns the index in t->cpu[] of the processor that the system numbers `os`,
 * or -1 if there is none. */
int topology_find_cpu(const struct topology *t, int os);

/* Writes the list of the processors that this process may use, like "0-3,8", to
 * buf. Truncates it to `size` - 1 bytes. */
void topology_list_cpus(const struct topology *t, char *buf, size_t size);

/* Returns true if the machine has a single NUMA node, so that it does not
 * matter which thread touches memory first. Reads one file. */
bool topology_one_node(void);

/* Allocates zeroed memory, 64-byte aligned, for threads on the cores of NUMA
 * node `os`. A block of 1 MiB or more is in huge pages if the system has them,
 * and bound to the node. If `os` is -1, `t` is NULL or the system rejects the
 * binding, the thread that first touches a page determines its node. No page is
 * touched here. Forked processes do not inherit the block. Smaller blocks come
 * from malloc. Returns NULL if out of memory. */
void *topology_alloc(const struct topology *t, int os, size_t bytes);
void topology_free(void *p, size_t bytes);
/* Frees memory from topology_alloc in a forked child, which has a copy only of
 * small blocks. */
void topology_free_copy(void *p, size_t bytes);
/* Allocates memory as topology_alloc does for a large block, whatever its size.
 * The memory consists of whole pages that contain nothing else, so that GPU
 * drivers can pin them. Forked processes do not inherit it. */
void *topology_alloc_pages(const struct topology *t, int os, size_t bytes);
void topology_free_pages(void *p, size_t bytes);

/* Allocates zeroed whole pages, more than `bytes` bytes, which this process
 * shares with processes that it forks later. Each process frees its own
 * mapping. */
void *topology_share(size_t bytes);
void topology_unshare(void *p, size_t bytes);

/* Prepares a range of memory that will soon be read, in a file's mapping or
 * elsewhere: maps all of its pages and reads those that are only on disk.
 * Otherwise each page would be mapped when it is first touched, which takes
 * longer, and processors do not prefetch from unmapped pages. Does nothing if
 * the system does not support it. */
void topology_fetch(const void *p, size_t bytes);

#endif
