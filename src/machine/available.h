/* Memory and time of processors that the system leaves to this process now.
 *
 * Memory is what the kernel calls available (/proc/meminfo, MemAvailable), and
 * no more than the limits of the process's cgroup and of all its parents leave.
 * /proc/self/cgroup names the cgroup, /proc/self/mountinfo the place where its
 * hierarchy is mounted: version 2, version 1 (controllers memory and cpu), or
 * both. A process in a cgroup namespace sees only a part of the parents, and
 * the limits of that part count. */
#ifndef MACHINE_AVAILABLE_H
#define MACHINE_AVAILABLE_H

#include <stdio.h>

#include "pl.h"

struct available {
    uint64_t limit_bytes;     /* least limit; UINT64_MAX: there is none */
    uint64_t available_bytes; /* UINT64_MAX: the system does not say */
    int n_core; /* whole cores of the least quota, 1 or more; INT_MAX: none */
};

/* Opens one of the system's files by its absolute path; NULL: it is absent. */
typedef FILE *available_open(void *user, const char *path);

/* Memory that is free on a NUMA node, or holds files that can be dropped. */
struct available_node {
    int os;                   /* the system's number; the caller's to set */
    uint64_t available_bytes; /* UINT64_MAX: the system does not say */
};

/* Reads what there is; a file that is absent or odd sets no limit. `open` NULL:
 * the system's own files. Fails for want of memory alone. */
pl_status available_read(struct available *out, struct available_node *node,
                         int n_node, available_open *open, void *user,
                         pl_err *err);

/* Reads "16GiB" or "16GiB:12GiB": bytes in all, and how many of these are
 * available (else all are). Both are 1 or more. Returns false if `text` is
 * neither. */
bool available_stated(const char *text, uint64_t *all, uint64_t *available);

#endif
