/* Finds out whether MPI has started this process as one of several, and opens
 * the module with the carrier for that MPI. */
#ifndef DEVICE_NETWORK_OPEN_H
#define DEVICE_NETWORK_OPEN_H

#include "device/network_module.h"

#include "pl.h"

/* An MPI implementation that has a module. */
struct network_kind {
    const char *name;   /* as its users call it: "Open MPI" */
    const char *module; /* file of the module */
    /* environment variable that it sets in the processes that it starts, to
     * their number */
    const char *variable;
};

/* Returns the MPI that has started this process together with others, and sets
 * *n to their number. Returns NULL and sets *n to 1 if there is none. */
const struct network_kind *network_started(int *n);
/* Opens the module of an MPI. It stays open until the process ends. */
pl_status network_open_module(const struct network_module **out,
                              const struct network_kind *kind, pl_err *err);
/* Returns true if the module of an MPI and the MPI itself are installed. */
bool network_has_module(const struct network_kind *kind);
/* Returns the kinds, whose number is *n. */
const struct network_kind *network_kinds(int *n);

enum { NETWORK_TEXT = 160 };
/* Writes what distinguishes networks between the same machines: the MPI, and
 * the interfaces that its environment variables select. */
void network_describe(const struct network_kind *kind, char text[NETWORK_TEXT]);

#endif
