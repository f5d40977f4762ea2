/* The models that the command line of `plait serve` names: those of -m and -hf,
 * of a folder, and of a presets file. */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "serve_model.h"
#include "word_list.h"

/* The configuration of one model. */
struct serve_named {
    char *name;             /* owned */
    struct word_list alias; /* further names */
    struct word_list own;   /* its options: -m FILE and those of its preset */
    struct word_list off;   /* switches that its preset turns off */
    struct word_list args;  /* all words that the option parser gets */
    struct word_list told;  /* `args` as shown to clients, without secrets */
    char *path;             /* shown to clients; owned */
    /* named on the command line; loaded at the start */
    bool first;
    bool in_folder; /* of --models-dir */
    bool hidden;    /* its file is gone (models_hide) */
};

/* The most models that may be added while the server runs. */
enum { SERVE_MORE = 1000 };

struct serve_list {
    struct model_about *about; /* owned, [n] */
    struct serve_entry *entry; /* owned, [n]; about[].own points here */
    struct serve_named *named; /* owned, [n] */
    struct word_list common;   /* options of the command line for all models */
    struct word_list general;  /* options of section [*] of the presets */
    int n;
    /* the command line names exactly one model; requests may give any name */
    bool any_name;
    int max;                   /* space of the arrays */
    const char *folder;        /* of --models-dir; NULL if none */
    struct word_list rejected; /* its files that cannot be added */
    /* the list that a scan of the folder compares with; notes are not printed
     * again; NULL at the start */
    const struct serve_list *known;
};

/* Builds the list from the command line. On failure prints an error and returns
 * its exit code. The caller must call serve_list_fini in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
/* Reads the folder again. Adds new models to the list and to `m`, and hides
 * those whose files are gone. `n` is set to the number of models. */
void serve_list_scan(struct serve_list *l, struct models *m, atomic_int *n);
void serve_list_fini(struct serve_list *l);

#endif
