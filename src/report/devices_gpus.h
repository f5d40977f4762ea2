/* Prints the GPUs of this machine, for `plait devices`. */
#ifndef REPORT_DEVICES_GPUS_H
#define REPORT_DEVICES_GPUS_H

#include "report/writer.h"

struct gpus; /* opaque: the GPUs that all drivers report */

/* Asks all drivers for their GPUs. Returns the answers, or NULL if out of
 * memory. */
struct gpus *gpus_find(void);
void gpus_free(struct gpus *g); /* Frees the result of gpus_find, which may be
                                   NULL. */
void gpus_say(const struct gpus *g, const struct sink *to);
/* Writes two members of an object. "gpus" is a list of all GPUs. "drivers" has
 * a member per driver: the reason why the driver does not work, or null if it
 * works. */
void gpus_put(const struct gpus *g, struct json_out *j);

#endif
