/* One of the models of `plait serve`, loaded with its own options. */
#ifndef CLI_SERVE_MODEL_H
#define CLI_SERVE_MODEL_H

#include "options.h"

#include "server/models.h"

#include <stdatomic.h>

/* State of a model of `plait serve`: the target of model_about.own. */
struct serve_entry {
    struct service *service; /* borrowed; NULL if not loaded */
    const struct options *o; /* options of the model; borrowed, or points to
                                `own` */
    struct options own;
    bool at_start; /* the model is loaded when the server starts */
};

/* All models of the server. The prefix caches of those that are loaded share
 * the host memory. */
struct serve_models {
    struct serve_entry *entry; /* borrowed, [n] */
    atomic_int n;              /* grows (serve_list_scan) */
    int most;                  /* limit of models loaded at once */
    struct serve_list *list;   /* borrowed */
};

/* The callbacks `open` and `close` of struct models_options; `user` is a struct
 * serve_models. */
pl_status serve_model_open(void *user, const struct model_about *about,
                           const volatile int *cancel, struct service **out,
                           pl_err *err);
void serve_model_close(void *user, struct service *v);

#endif
