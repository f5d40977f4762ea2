/* Files of presets, as llama.cpp's server has them: options of models, a
 * section a model.
 *
 *   version = 1            may be left out
 *   [*]                    for all models
 *   ctx-size = 8192
 *   [tales]                a model's name
 *   model = tales.gguf     names of options without their dashes
 *
 * Lines that begin with # or ; say nothing. What keys mean others know. */
#ifndef SERVER_PRESET_H
#define SERVER_PRESET_H

#include "pl.h"

struct preset_key {
    char *key, *value; /* owned; without blanks around; a value may be empty */
    int line;          /* of the file, from 1 */
};

struct preset_section {
    char *name; /* owned */
    int line;
    struct preset_key *key; /* owned, [n_key], in the file's order */
    int n_key;
};

struct preset {
    struct preset_section *section; /* owned, [n] */
    int n;
};

/* BAD_FILE: the message begins with the line. preset_free takes *p in all
 * cases. */
pl_status preset_read(struct preset *p, const char *text, size_t len,
                      pl_err *err);
void preset_free(struct preset *p);
/* NULL: there is none of that name. */
const struct preset_section *preset_find(const struct preset *p,
                                         const char *name);

#endif
