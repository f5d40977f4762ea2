/* Prints the GPUs of this machine, for `plait devices`. */
#ifndef REPORT_DEVICES_GPUS_H
#define REPORT_DEVICES_GPUS_H

#include "report/writer.h"

struct gpus; /* the results of all drivers */

/* Queries all drivers; NULL if memory is out. */
struct gpus *gpus_find(void);
void gpus_free(struct gpus *g); /* takes NULL */
void gpus_say(const struct gpus *g, const struct sink *to);
/* Return a list of GPUs, and an object with the reason why each driver does not
 * work, null if it does. NULL if memory is out. */
json_t *gpus_json(const struct gpus *g);
json_t *gpus_json_drivers(const struct gpus *g);

#endif
