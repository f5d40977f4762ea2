/* Plans of paper devices, for benches that print estimates. */
#ifndef BENCH_BENCH_PLAN_READ_H
#define BENCH_BENCH_PLAN_READ_H

#include "pl.h"

#include <jansson.h>

/* Returns the plan of a model as `plait plan --json` prints it; the caller
 * frees it by json_decref. Ends the program if there is no plan; `what` names
 * it then. */
json_t *bench_plan_read(const pl_model *m, const pl_options *opt,
                        const char *what);

#endif
