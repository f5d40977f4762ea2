/* Overrides of placement: REGEX=WHERE[,REGEX=WHERE...], as -ot takes them.
 *
 * Read, split and matched here; what a WHERE means is place_leaves.c's. The
 * expressions are PCRE2's, searched for in a weight's GGUF name, not anchored,
 * and the first that matches decides. */
#ifndef PLAN_OVERRIDE_H
#define PLAN_OVERRIDE_H

#include "graph/graph.h"

struct override {
    const char *regex, *where;
};

struct override_list {
    int n;
    struct override *item; /* in order of all options; lives in the arena */
};

/* A comma ends an override where a plain WHERE stands before it; commas of the
 * expression ("{1,2}") do not. The last '=' counts. */
pl_status override_parse(struct override_list *out, struct arena *a,
                         const pl_options *opt, pl_err *err);

/* "host", "CPU" (llama.cpp's word), or a device of the host: "host0". */
bool override_is_host(const char *where);

/* which[i], [g->n_node]: the first override that matches weight i, else -1.
 * Warns of overrides that match no weight, naming weights of near names. */
pl_status override_match(const struct override_list *l, const pl_graph *g,
                         const pl_options *opt, int *which, pl_err *err);

#endif
