/* Overrides of placement: REGEX=WHERE[,REGEX=WHERE...], the syntax of -ot.
 *
 * They are read, split and matched here; place_leaves.c interprets WHERE. The
 * expressions are PCRE2's, searched in a weight's GGUF name, not anchored. The
 * first that matches decides. */
#ifndef PLAN_OVERRIDE_H
#define PLAN_OVERRIDE_H

#include "plan/plan_config.h"

/* Sets the overrides of *in, whose graph is set. A comma ends an override if a
 * plain WHERE precedes it; commas of the expression ("{1,2}") do not. The last
 * '=' counts. Notes: overrides that match no weight, with similar names of
 * weights. */
pl_status override_read(struct plan_config *in, struct arena *a,
                        const pl_options *opt, struct notes *notes,
                        pl_err *err);

/* Returns true for "host", "CPU" (llama.cpp's word), or a device of the host:
 * "host0". */
bool override_is_host(const char *where);

#endif
