/* Prints latency and bandwidth of the links of a plan's accelerators, which are
 * devices with their own processors. The figures are those that estimates
 * use. */
#ifndef REPORT_PLAN_LINKS_H
#define REPORT_PLAN_LINKS_H

#include "report/plan_facts.h"
#include "report/writer.h"

/* Prints one line for each range of neighbouring accelerators whose links have
 * equal rates. Prints nothing if the plan has no accelerators. */
void plan_print_links(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to);
/* Prints the rates of the network between machine 0 and the first device of
 * another machine, as fields of --device-spec. Prints nothing if all devices
 * are on one machine. */
void plan_print_network(const pl_plan *p, const struct plan_facts *f,
                        const struct sink *to);
/* Writes a JSON object for each accelerator and the host, and one for each pair
 * of accelerators, with the members "from", "to", "bytes_per_s" and
 * "latency_s". */
void plan_put_links(const pl_plan *p, const struct plan_facts *f,
                    struct json_out *j);

#endif
