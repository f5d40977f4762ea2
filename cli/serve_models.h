/* Which models `plait serve` has, by its command line: those of -m and -hf, of
 * a folder, and of a file of presets. */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "serve_model.h"

struct serve_words {
    char **v; /* owned, [n], each too */
    int n;
};

/* What is said of a model. */
struct serve_named {
    char *name;              /* owned */
    struct serve_words own;  /* its options: -m FILE and those of its preset */
    struct serve_words off;  /* switches that its preset turns off */
    struct serve_words args; /* all that it is parsed from */
    struct serve_words told; /* the same for clients, without secrets */
    char *path;              /* for clients; owned */
    bool first;              /* of the command line: loaded at the beginning */
};

struct serve_list {
    struct model_about *about;  /* owned, [n] */
    struct serve_entry *entry;  /* owned, [n]; what `own` of those is */
    struct serve_named *named;  /* owned, [n] */
    struct serve_words common;  /* of the command line, for all models */
    struct serve_words general; /* of [*] */
    int n;
    bool any_name; /* the command line names one, and no more */
};

/* Prints what is wrong. serve_list_fini takes *l in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
void serve_list_fini(struct serve_list *l);

#endif
