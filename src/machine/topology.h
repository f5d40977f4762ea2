/* The machine as far as this process may use it: NUMA nodes, cores, memory.
 *
 * Found with hwloc, whose header only topology.c sees. What the process may not
 * use (affinity mask, cpuset) is left out at once, so a list of cores is always
 * one that threads can be pinned to. A machine that tells nothing is one node
 * whose processors are all cores. */
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

/* Only nodes that have cores. Each has its share of limits that hold for all of
 * them together. */
struct topology_node {
    int os;
    uint64_t memory_bytes;    /* 0: none, or not known */
    uint64_t available_bytes; /* of these now; 0 only where these are 0 */
    int n_core;
};

struct topology {
    struct hwloc_topology *hw; /* owned */
    bool here;                 /* this machine, not a synthetic one */
    int n_node, n_core, n_cpu;
    struct topology_node *node; /* owned; hwloc's order */
    struct topology_core *core; /* owned; in order of nodes */
    struct topology_cpu *cpu;   /* owned; in order of nodes */
    /* Whole cores' worth of time that cgroups grant, 1 or more; n_core if they
     * set no limit. */
    int n_core_quota;
    /* The sum of all nodes, or the least limit of the cgroups; and the part of
     * it that was available when the machine was looked at. 0 as above. */
    uint64_t memory_bytes, available_bytes;
};

/* This machine. PLAIT_MEMORY in the environment ("16GiB:12GiB") states its
 * memory in place of what the system says, in equal parts of its nodes, and how
 * much of it is available. On failure *t is as topology_fini leaves it. */
pl_status topology_load(struct topology *t, pl_err *err);

/* A machine described in hwloc's synthetic syntax ("numa:2 core:8 pu:2");
 * `allowed`, a list like "0-3,8", or NULL for all, is what the process may
 * use. */
pl_status topology_load_synthetic(struct topology *t, const char *desc,
                                  const char *allowed, pl_err *err);
void topology_fini(struct topology *t); /* takes zeroed and half-loaded ones */

/* This machine, looked at once for all who hold it: open gives it to the first
 * holder, each further one keeps it, and the last that drops it frees it. Any
 * thread may. NULL may be kept and dropped. */
pl_status topology_open(const struct topology **out, pl_err *err);
const struct topology *topology_keep(const struct topology *t);
void topology_drop(const struct topology *t);

/* Index in cpu[] of a processor by the system's number, or -1. */
int topology_find_cpu(const struct topology *t, int os);

/* "0-3,8": the processors of this process. Always terminated. */
void topology_list_cpus(const struct topology *t, char *buf, size_t size);

/* Is there one NUMA node alone, so that it does not matter who touches memory
 * first? Costs little. */
bool topology_one_node(void);

/* Zeroed memory for the cores of a node: 64-byte aligned, in huge pages where
 * the system has them, bound to node `os` (-1: wherever it is touched first).
 * Binding that the system refuses is left to first touch; `t` may be NULL. What
 * is 1 MiB or more has no pages yet, so that its users can touch it first, and
 * processes forked later do not have it. */
void *topology_alloc(const struct topology *t, int os, size_t bytes);
void topology_free(void *p, size_t bytes);
/* In a process that was forked since: gives back what it has of that. */
void topology_free_copy(void *p, size_t bytes);
/* The same, in whole pages that are nobody else's however few the bytes: what a
 * GPU's driver pins, and processes forked later do not have. */
void *topology_alloc_pages(const struct topology *t, int os, size_t bytes);
void topology_free_pages(void *p, size_t bytes);

/* Zeroed whole pages, more than `bytes`, that processes forked later share with
 * this one; each frees its own view. */
void *topology_share(size_t bytes);
void topology_unshare(void *p, size_t bytes);

/* Maps the pages of a file's mapping, or of any memory, that are to be read
 * soon, and reads in what is only on disk. One by one, as they are touched,
 * takes longer, and processors do not fetch ahead what is not mapped. Where the
 * system cannot, nothing happens. */
void topology_fetch(const void *p, size_t bytes);

#endif
