/* The part of the machine that this process may use: NUMA nodes, cores, memory.
 *
 * Found with hwloc, whose header only topology.c includes. Processors that the
 * process may not use (affinity mask, cpuset) are left out at once, so threads
 * can be pinned to every core of a list. A machine that reports nothing is one
 * node on which each processor is a core. */
#ifndef MACHINE_TOPOLOGY_H
#define MACHINE_TOPOLOGY_H

#include "pl.h"

/* One logical processor. */
struct topology_cpu {
    int os;   /* the system's number, as in taskset */
    int node; /* index in node[] */
    int core; /* index in core[] */
};

/* One physical core; a thread on it is pinned to its first processor. */
struct topology_core {
    int os, node;
};

/* A NUMA node that has cores. Limits for all nodes together are divided among
 * them. */
struct topology_node {
    int os;
    uint64_t memory_bytes; /* 0 if none or unknown */
    /* part that was available when the topology was read; 0 only if
     * memory_bytes is 0 */
    uint64_t available_bytes;
    int n_core;
};

struct topology {
    struct hwloc_topology *hw; /* owned */
    bool here; /* true for this machine, false for a synthetic one */
    int n_node, n_core, n_cpu;
    struct topology_node *node; /* owned; hwloc's order */
    struct topology_core *core; /* owned; sorted by node */
    struct topology_cpu *cpu;   /* owned; sorted by node */
    /* The CPU time that cgroups grant, in cores, rounded down, at least 1;
     * n_core if they set no limit. */
    int n_core_quota;
    /* The memory of all nodes, or the lowest limit of the cgroups if that is
     * less; and the part of it that was available when the topology was read. 0
     * if unknown. */
    uint64_t memory_bytes, available_bytes;
};

/* Reads this machine. PLAIT_MEMORY in the environment ("16GiB:12GiB") replaces
 * the memory that the system reports, in equal parts per node, and how much of
 * it is available. On failure *t is all zero. */
pl_status topology_load(struct topology *t, pl_err *err);

/* Builds a machine from hwloc's synthetic syntax ("numa:2 core:8 pu:2").
 * `allowed` is the list of processors that the process may use, like "0-3,8";
 * NULL allows all. */
pl_status topology_load_synthetic(struct topology *t, const char *desc,
                                  const char *allowed, pl_err *err);
void topology_fini(struct topology *t); /* *t may be zeroed or partly filled */

/* A topology of this machine that is shared by reference count. topology_open
 * reads the machine and returns the first reference, topology_keep adds one,
 * and topology_drop releases one. The last release frees the topology. Any
 * thread may call these. topology_keep and topology_drop allow NULL. */
pl_status topology_open(const struct topology **out, pl_err *err);
const struct topology *topology_keep(const struct topology *t);
void topology_drop(const struct topology *t);

/* Returns the index in cpu[] of the processor with the system's number `os`, or
 * -1 if there is none. */
int topology_find_cpu(const struct topology *t, int os);

/* Writes the list of the processors that this process may use, like "0-3,8", to
 * buf. Truncates it to `size` - 1 bytes. */
void topology_list_cpus(const struct topology *t, char *buf, size_t size);

/* Returns true if there is only one NUMA node, so that it does not matter which
 * thread touches memory first. Cheap. */
bool topology_one_node(void);

/* Allocates zeroed memory for the cores of a node, 64-byte aligned. A block of
 * 1 MiB or more is in huge pages if the system has them, and bound to node
 * `os`. With `os` -1, with `t` NULL or if the system rejects the binding, the
 * thread that first touches a page determines its node. No page is touched
 * here. Forked processes do not inherit the block. Smaller blocks come from
 * malloc's heap. Returns NULL if out of memory. */
void *topology_alloc(const struct topology *t, int os, size_t bytes);
void topology_free(void *p, size_t bytes);
/* Frees, in a forked child, its copy of memory from topology_alloc. */
void topology_free_copy(void *p, size_t bytes);
/* Allocates memory like a large block of topology_alloc, whatever its size: in
 * whole pages that contain nothing else, so that GPU drivers can pin them.
 * Forked processes do not inherit them. */
void *topology_alloc_pages(const struct topology *t, int os, size_t bytes);
void topology_free_pages(void *p, size_t bytes);

/* Allocates zeroed whole pages, more than `bytes`, which forked processes share
 * with this one. Each process frees its own mapping. */
void *topology_share(size_t bytes);
void topology_unshare(void *p, size_t bytes);

/* Maps all pages of a range that will soon be read, in a file's mapping or
 * other memory. Reads pages that are only on disk. Mapping pages one by one on
 * first touch takes longer, and processors do not prefetch unmapped pages. Does
 * nothing if the system does not support it. */
void topology_fetch(const void *p, size_t bytes);

#endif
