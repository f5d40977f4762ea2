/* The file that keeps a measured network between two machines, in the cache
 * directory (base/cache_place.h). It belongs to the names of both, the network
 * that connects them, and the version. So plans measure once, and plans made at
 * different times get the same estimates. A damaged file is ignored. */
#ifndef DEVICE_MACHINES_LINKS_H
#define DEVICE_MACHINES_LINKS_H

#include "device/device.h"

/* Reads the network between machines with the names a and b. Returns false if
 * none is kept. */
bool machines_link_load(struct machine_link *out, const char *a, const char *b,
                        const char *network);
/* Keeps it. Returns false if it cannot be written. */
bool machines_link_save(const struct machine_link *x, const char *a,
                        const char *b, const char *network);
/* Sets *out to the network of the text[n] of a file. Returns false if it is not
 * that of these machines. */
bool machines_link_parse(struct machine_link *out, const char *text, size_t n,
                         const char *a, const char *b, const char *network);

#endif
