/* The models of `plait serve` by its command line: those of -m and -hf, of a
 * folder, and of a presets file. */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "serve_model.h"

struct serve_words {
    char **v; /* owned, [n], and each element */
    int n;
};

/* The configuration of one model. */
struct serve_named {
    char *name;              /* owned */
    struct serve_words own;  /* its options: -m FILE and those of its preset */
    struct serve_words off;  /* switches that its preset turns off */
    struct serve_words args; /* all the words that are parsed */
    struct serve_words told; /* the same for clients, without secrets */
    char *path;              /* for clients; owned */
    /* given on the command line: loaded at the start */
    bool first;
};

struct serve_list {
    struct model_about *about;  /* owned, [n] */
    struct serve_entry *entry;  /* owned, [n]; `own` of those */
    struct serve_named *named;  /* owned, [n] */
    struct serve_words common;  /* of the command line, for all models */
    struct serve_words general; /* of section [*] */
    int n;
    /* the command line names exactly one model; any name means it */
    bool any_name;
};

/* Builds the list; prints errors. serve_list_fini takes *l in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
void serve_list_fini(struct serve_list *l);

#endif
