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
    /* lowest memory limit of the cgroups; UINT64_MAX if none */
    uint64_t limit_bytes;
    /* memory that the system reports as available; UINT64_MAX if unknown */
    uint64_t available_bytes;
    /* the lowest CPU quota in cores, rounded down, at least 1; INT_MAX if
     * none */
    int n_core;
};

/* Opens one of the system's files by its absolute path; returns NULL if it is
 * absent. */
typedef FILE *available_open(void *user, const char *path);

/* Memory of a NUMA node that is free, or caches files and can be reclaimed. */
struct available_node {
    int os;                   /* the system's number; set by the caller */
    uint64_t available_bytes; /* UINT64_MAX if unknown */
};

/* Reads the limits into *out and the memory of each node into node[n_node]. A
 * file that is absent or malformed sets no limit. `open` opens the files; NULL
 * opens those of this system. Fails only if out of memory. */
pl_status available_read(struct available *out, struct available_node *node,
                         int n_node, available_open *open, void *user,
                         pl_err *err);

/* Parses "16GiB" or "16GiB:12GiB": total bytes, and the part that is available
 * (default: all). Both are 1 or more. Returns false if `text` has neither
 * form. */
bool available_stated(const char *text, uint64_t *all, uint64_t *available);

#endif
