/* One of the models that `plait serve` serves, loaded by its own options. */
#ifndef CLI_SERVE_MODEL_H
#define CLI_SERVE_MODEL_H

#include "options.h"

#include "server/models.h"

/* What a struct model_about has as its `own`. */
struct serve_entry {
    struct service *service; /* borrowed; NULL: it is not loaded */
    const struct options *o; /* borrowed, or: */
    struct options own;
    bool at_start; /* loaded before anybody asks */
};

/* All there are, whose caches share the host's memory. */
struct serve_models {
    struct serve_entry *entry; /* borrowed, [n] */
    int n, most;               /* loaded at once */
};

/* For struct models_options; `user` is a struct serve_models. */
pl_status serve_model_open(void *user, const struct model_about *about,
                           const volatile int *cancel, struct service **out,
                           pl_err *err);
void serve_model_close(void *user, struct service *v);

#endif
