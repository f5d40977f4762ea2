/* The GPUs of this machine, as `plait devices` shows them. */
#ifndef REPORT_DEVICES_GPUS_H
#define REPORT_DEVICES_GPUS_H

#include "report/writer.h"

struct gpus; /* what the drivers have told */

/* Asks all drivers; NULL: there is no memory for what they tell. */
struct gpus *gpus_find(void);
void gpus_free(struct gpus *g); /* takes NULL */
void gpus_say(const struct gpus *g, const struct sink *to);
/* A list of GPUs, and an object that has of each driver why it does not work,
 * null if it does; NULL: there is no memory. */
json_t *gpus_json(const struct gpus *g);
json_t *gpus_json_drivers(const struct gpus *g);

#endif
