/* Memory and processor time that the system grants to this process now.
 *
 * Memory is what the kernel reports as available (/proc/meminfo, MemAvailable),
 * bounded by the limits of the process's cgroup and of all its parents.
 * /proc/self/cgroup names the cgroup; /proc/self/mountinfo tells where its
 * hierarchy is mounted: version 2, version 1 (controllers memory and cpu), or
 * both. A process in a cgroup namespace sees only some of the parents, and only
 * their limits count. */
#ifndef MACHINE_AVAILABLE_H
#define MACHINE_AVAILABLE_H

#include <stdio.h>

#include "pl.h"

struct available {
    /* lowest memory limit of the process's cgroups in bytes; UINT64_MAX if
     * none */
    uint64_t limit_bytes;
    /* bytes of memory that the system reports as available; UINT64_MAX if
     * unknown */
    uint64_t available_bytes;
    /* lowest CPU quota of the process's cgroups in cores, rounded down, at
     * least 1; INT_MAX if there is no quota */
    int n_core;
};

/* A function that opens one of the system's files by its absolute path, or
 * returns NULL if the file is absent. Tests pass their own. */
typedef FILE *available_open(void *user, const char *path);

/* The memory of a NUMA node that is free, or that caches files and can be
 * reclaimed. */
struct available_node {
    int os;                   /* number of the NUMA node as the system counts
                                 it; set by the caller */
    uint64_t available_bytes; /* available memory in bytes; UINT64_MAX if
                                 unknown */
};

/* Sets *out to the limits of this process, and node[n_node] to the available
 * memory of each NUMA node. A file that is absent or malformed sets no limit.
 * `open` opens the files; NULL stands for the system's own files. Fails only if
 * out of memory. */
pl_status available_read(struct available *out, struct available_node *node,
                         int n_node, available_open *open, void *user,
                         pl_err *err);

/* Parses the value of PLAIT_MEMORY, "16GiB" or "16GiB:12GiB". Sets *all to the
 * total bytes and *available to those that are available, by default all. Both
 * are at least 1. Returns false if `text` has neither form. */
bool available_stated(const char *text, uint64_t *all, uint64_t *available);

#endif
