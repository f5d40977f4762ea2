/* The models that the command line of `plait serve` names: those of -m and -hf,
 * of a folder, and of a presets file. If it names none, the cached ones. */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "serve_model.h"
#include "word_list.h"

/* The configuration of one model. */
struct serve_named {
    char *name; /* name under which requests address the model, owned */
    struct word_list alias; /* further names of the model */
    /* words of the options of this model alone: -m FILE, or those of its
     * section in the presets file */
    struct word_list own;
    /* flags that the model's section in the presets file turns off */
    struct word_list off;
    /* words of all options of the model, for options_parse */
    struct word_list args;
    /* the words of `args` with secrets replaced, which clients may see */
    struct word_list told;
    /* path, repository or URL of the model in the form that clients may see,
     * owned */
    char *path;
    /* The command line names the model, so it is loaded when the server
     * starts. */
    bool first;
    bool in_folder;  /* of --models-dir, or of the cache of downloads */
    bool in_presets; /* a section of the presets has its name */
    bool hidden;     /* the model's file is gone (models_hide) */
};

/* Limit of the models that scans may add while the server runs. */
enum { SERVE_MORE = 1000 };

struct serve_list {
    /* [n] descriptions of the models for the server, owned */
    struct model_about *about;
    /* [n] states of the models, owned; about[i].own points to entry[i] */
    struct serve_entry *entry;
    struct serve_named *named; /* [n] configurations of the models, owned */
    /* words of the command line's options that apply to all models */
    struct word_list common;
    /* words of the options in section [*] of the presets file */
    struct word_list general;
    int n;
    /* The command line names only one model, so requests may give any name for
     * it. */
    bool any_name;
    int max; /* number of elements for which the arrays have space */
    /* If scans may find other models, in --models-dir or in the cache of
     * downloads: the options of the command line, borrowed; else NULL. */
    const struct options *scanned;
    /* files found there that could not be added as models; further scans skip
     * them */
    struct word_list rejected;
    /* If a scan builds this list, the server's list, which the scan updates;
     * else NULL. If set, notes are not printed again. */
    const struct serve_list *known;
};

/* Builds the list from the command line. On failure prints an error and returns
 * its exit code. The caller must call serve_list_fini in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
/* Reads --models-dir or the cache again. Adds new models to the list and to
 * `m`, and hides models whose files are gone. Sets *n to the number of models,
 * hidden ones included. */
void serve_list_scan(struct serve_list *l, struct models *m, atomic_int *n);
void serve_list_fini(struct serve_list *l);

#endif
