/* One of the models of `plait serve`, loaded with its own options. */
#ifndef CLI_SERVE_MODEL_H
#define CLI_SERVE_MODEL_H

#include "drafts.h"
#include "input.h"
#include "serve_receipts.h"

#include "server/jws.h"
#include "server/models.h"

#include <jansson.h>
#include <stdatomic.h>

/* State of a model of `plait serve`: the target of model_about.own. */
struct serve_entry {
    /* the loaded model, borrowed; NULL while it is not loaded */
    struct service *service;
    const struct options *o; /* options of the model; borrowed, or points to
                                `own` */
    struct options own;
    bool at_start;     /* the model is loaded when the server starts */
    bool unprepared;   /* serve_entry_prepare failed; each load repeats it */
    struct input form; /* chat template of the options; empty if none */
    json_t *defaults;  /* fields that requests have by default; owned */
    struct jws_key *sign_key;    /* signs receipts; owned; NULL if none */
    struct draft_sources drafts; /* of the loaded model */
};

/* All models of the server. The prefix caches of the loaded models share the
 * host memory. */
struct serve_models {
    struct serve_entry *entry; /* borrowed, [n] */
    atomic_int n;              /* grows (serve_list_scan) */
    int most;                  /* limit of models loaded at once */
    struct serve_list *list;   /* borrowed */
    /* The file of --receipt, borrowed; NULL if none are kept. receipt_flags:
     * PL_RECEIPT_* of its lines. */
    struct serve_receipts *receipts;
    unsigned receipt_flags;
    atomic_bool lost; /* a device of a loaded model has failed */
};

/* Prints a line of the server's log, with the time; a pl_log_fn. `user` is a
 * struct options. With --verbose, lines for debugging are printed, too. */
void serve_log(void *user, pl_log_level level, const char *text);

/* Prepares what the options of `e` name, and checks what can be checked without
 * the model: files, templates, grammars, directories. Prints an error and
 * returns its code if something is invalid. The caller calls serve_entry_fini
 * in all cases. */
enum exit_code serve_entry_prepare(struct serve_entry *e);
void serve_entry_fini(struct serve_entry *e);

/* The callbacks `open` and `close` of struct models_options, which load and
 * unload a model. `user` is a struct serve_models. */
pl_status serve_model_open(void *user, const struct model_about *about,
                           const volatile int *cancel, struct service **out,
                           pl_err *err);
void serve_model_close(void *user, struct service *v);

#endif
