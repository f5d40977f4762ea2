/* The networks between the machines of a plan, and what crosses them. */
#ifndef REPORT_PLAN_NETWORK_H
#define REPORT_PLAN_NETWORK_H

#include "report/plan_facts.h"
#include "report/writer.h"

/* Sets f->n_machine, and f->crossing if there are several. */
pl_status plan_find_crossings(struct plan_facts *f, const pl_plan *p,
                              pl_err *err);
/* Prints the machines, and a line for each pair of them that sends anything:
 * the network, the source of its figures, and what a token sends. Prints
 * nothing for one machine. */
void plan_print_networks(const pl_plan *p, const struct plan_facts *f,
                         const struct sink *to);
/* Writes the same as members of an open JSON list, both directions apart. */
void plan_put_networks(const pl_plan *p, const struct plan_facts *f,
                       struct json_out *j);

#endif
