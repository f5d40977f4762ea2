/* Overrides of placement: REGEX=WHERE[,REGEX=WHERE...], as -ot takes them.
 *
 * Read, split and matched here; what a WHERE means is place_leaves.c's. The
 * expressions are PCRE2's, searched for in a weight's GGUF name, not anchored,
 * and the first that matches decides. */
#ifndef PLAN_OVERRIDE_H
#define PLAN_OVERRIDE_H

#include "plan/plan_config.h"

/* Sets the overrides of *in, whose graph is set. A comma ends an override where
 * a plain WHERE stands before it; commas of the expression ("{1,2}") do not.
 * The last '=' counts. Notes: overrides that match no weight, with weights of
 * near names. */
pl_status override_read(struct plan_config *in, struct arena *a,
                        const pl_options *opt, struct notes *notes,
                        pl_err *err);

/* "host", "CPU" (llama.cpp's word), or a device of the host: "host0". */
bool override_is_host(const char *where);

#endif
