/* Prints the links of a plan's devices that have their own processors, as
 * estimates use them. */
#ifndef REPORT_PLAN_LINKS_H
#define REPORT_PLAN_LINKS_H

#include <jansson.h>

#include "report/plan_facts.h"
#include "report/writer.h"

/* Prints a line for each group of equal neighbours; nothing if there are no
 * such devices. */
void plan_say_links(const pl_plan *p, const struct plan_facts *f,
                    const struct sink *to);
/* Returns an array of pairs, each once, and of each device with the host; NULL
 * if memory is out. */
json_t *plan_json_links(const pl_plan *p, const struct plan_facts *f);

#endif
