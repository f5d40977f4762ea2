/* The interface between the library and a module with a carrier. A module is a
 * shared object of its own that the library opens at run time, so that the
 * library needs no MPI. It uses nothing of the library. */
#ifndef DEVICE_NETWORK_MODULE_H
#define DEVICE_NETWORK_MODULE_H

#include "device/network.h"

/* Number of this interface, which changes with it and with network.h. */
enum { NETWORK_MODULE_VERSION = 3, NETWORK_MODULE_ERROR = 160 };

/* Name of the symbol of type struct network_module. */
#define NETWORK_MODULE_SYMBOL "plait_network_module"

struct network_module {
    int version; /* NETWORK_MODULE_VERSION */
    /* Joins the machines of the job that started this process. Sets *out to
     * their network. Returns false and writes an error to `why` on failure. May
     * be called once in a process. */
    bool (*open)(struct network **out, char why[NETWORK_MODULE_ERROR]);
    /* Frees the network. If `all`, all machines call this function, and it
     * waits until they have, but for some seconds only. Returns false if not
     * `all`, or if they have not: other machines may be lost, and the process
     * must end by _exit(). */
    bool (*close)(struct network *n, bool all);
};

#endif
