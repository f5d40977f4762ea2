/* How a plan's devices with processors of their own are linked, as estimates
 * have it. */
#ifndef REPORT_PLAN_LINKS_H
#define REPORT_PLAN_LINKS_H

#include <jansson.h>

#include "report/plan_facts.h"
#include "report/writer.h"

/* A line for each run of neighbours that are alike; none where there is no such
 * device. */
void plan_say_links(const pl_plan *p, const struct plan_facts *f,
                    const struct sink *to);
/* An array of pairs, each once, and of each with the host; NULL: no memory. */
json_t *plan_json_links(const pl_plan *p, const struct plan_facts *f);

#endif
