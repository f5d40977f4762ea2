/* Reads preset files in the format of llama.cpp's server: command line options
 * of models, one section per model.
 *
 *   version = 1            may be left out
 *   [*]                    for all models
 *   ctx-size = 8192
 *   [tales]                a model's name
 *   model = tales.gguf     names of options without their dashes
 *
 * Lines that begin with # or ; are comments. The caller interprets the keys. */
#ifndef SERVER_PRESET_H
#define SERVER_PRESET_H

#include "pl.h"

struct preset_key {
    /* Key of the line, without blanks around it, and its value, which may be
     * empty; owned. */
    char *key, *value;
    int line; /* number of the line in the preset file, counted from 1 */
};

struct preset_section {
    char *name; /* name of the section, the text between the brackets; owned */
    int line;
    /* The section's keys, [n_key], in file order; owned. */
    struct preset_key *key;
    int n_key;
};

struct preset {
    struct preset_section *section; /* the sections of the file, [n]; owned */
    int n;
};

/* Parses the contents of a file, text [len]. BAD_FILE: the file is invalid; the
 * message begins with the line number. Other errors: NO_MEMORY. The caller
 * calls preset_free in all cases. */
pl_status preset_read(struct preset *p, const char *text, size_t len,
                      pl_err *err);
void preset_free(struct preset *p);
/* Returns the section of the preset file that has this name; NULL if there is
 * none. */
const struct preset_section *preset_find(const struct preset *p,
                                         const char *name);

#endif
