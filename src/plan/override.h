/* Overrides of placement, given with -ot as REGEX=WHERE[,REGEX=WHERE...].
 *
 * This file parses the option and matches each REGEX against the weights;
 * place_leaves.c interprets WHERE. REGEX is a PCRE2 expression that may match
 * anywhere in a weight's GGUF name. The first override that matches a weight
 * applies. */
#ifndef PLAN_OVERRIDE_H
#define PLAN_OVERRIDE_H

#include "plan/plan_config.h"

/* Parses the overrides of `opt` into in->override and matches them against the
 * weights of in->g. A comma ends an override only if a plain WHERE precedes it;
 * a comma of the expression, as in "{1,2}", does not. The last '=' separates
 * REGEX and WHERE. If an override matches no weight, nor one of graph `also`,
 * which may be NULL, adds a warning with weights of similar names. */
pl_status override_read(struct plan_config *in, struct arena *a,
                        const pl_graph *also, const pl_options *opt,
                        struct notes *notes, pl_err *err);

/* Sets *out to the overrides of `opt` that request a layout, as
 * "REGEX=split:1", and *n to their number. `a` owns them. */
pl_status override_layouts(const char ***out, int *n, struct arena *a,
                           const pl_options *opt, pl_err *err);

/* Returns true if `where` describes a layout: "mirrored", or "split:D" for a
 * split along dimension D. Sets *dim to D, or to -1 for "mirrored". */
bool override_is_layout(const char *where, int *dim);

/* Returns true if `where` names the host: "host", "CPU" as in llama.cpp, or one
 * of the host's devices, such as "host0". */
bool override_is_host(const char *where);

#endif
