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
    struct word_list own;   /* options of this model alone: -m FILE, and those
                               of its section of the presets */
    struct word_list off;   /* flags that its section of the presets turns
                               off */
    struct word_list args;  /* all options of the model, as words for the option
                               parser */
    struct word_list told;  /* `args` without secrets, as clients see them */
    char *path;             /* path, repository or URL of the model, as clients
                               see it; owned */
    /* The command line names the model, so it is loaded when the server
     * starts. */
    bool first;
    bool in_folder;  /* of --models-dir */
    bool in_presets; /* a section of the presets has its name */
    bool hidden; /* the model's file is gone from the folder (models_hide) */
};

/* Limit of the models that scans of the folder may add while the server
 * runs. */
enum { SERVE_MORE = 1000 };

struct serve_list {
    struct model_about *about; /* owned, [n] */
    struct serve_entry *entry; /* owned, [n]; about[].own points here */
    struct serve_named *named; /* owned, [n] */
    struct word_list common;   /* options of the command line for all models */
    struct word_list general;  /* options of section [*] of the presets */
    int n;
    /* The command line names only one model, so requests may give any name for
     * it. */
    bool any_name;
    int max;                   /* space of the arrays */
    const char *folder;        /* of --models-dir; NULL if none */
    struct word_list rejected; /* files of the folder that could not be added as
                                  models, so that scans do not try again */
    /* In a list that a scan of the folder makes, the list that the scan
     * updates; else NULL. If it is set, notes are not printed again. */
    const struct serve_list *known;
};

/* Builds the list from the command line. On failure prints an error and returns
 * its exit code. The caller must call serve_list_fini in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
/* Reads the folder again. Adds new models to the list and to `m`, and hides
 * those whose files are gone. Sets *n to the number of models, including hidden
 * ones. */
void serve_list_scan(struct serve_list *l, struct models *m, atomic_int *n);
void serve_list_fini(struct serve_list *l);

#endif
