/* Hyper-parameters: the keys of a GGUF file that shape the network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Fills all of `m` but file, family (both set) and what is unused. */
pl_status model_params_read(struct model *m, pl_err *err);

/* ---- for families that have keys of their own ---- */

/* What numbers of a file may be at most: their products stay below 2^63. */
enum {
    MAX_LAYER = 1 << 16,
    MAX_HEAD = 1 << 16, /* heads, and values of one */
    MAX_WIDTH = 1 << 28,
    MAX_EXPERT = 1 << 16,
};

/* "llama.block_count" */
struct params_key {
    char s[96];
};
const char *params_key(const struct model *m, const char *name,
                       struct params_key *k);
/* An integer of lo .. hi; def where the key is absent. */
pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err);
/* One that must be there, 1 or more. */
pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err);
/* One integer of 1 .. hi for all layers, or a list with one a layer;
 * def[n_layer] where the key is absent, def == NULL making that an error. */
pl_status params_per_layer(struct model *m, const char *name, int64_t hi,
                           const int64_t *def, const int64_t **out,
                           pl_err *err);
/* m->window: of each `pattern` layers all but the last see as many tokens as
 * the key attention.sliding_window says; all see all where it is absent. */
pl_status params_windows(struct model *m, int64_t pattern, pl_err *err);
/* m->window: the layers that attention.sliding_window_pattern, a list, names
 * see as many tokens as attention.sliding_window says; the others see all. */
pl_status params_windows_each(struct model *m, pl_err *err);
/* Layers with a window take the value of this key, where it is there, in place
 * of (*v)[layer], a width of heads. */
pl_status params_of_windows(struct model *m, const char *name,
                            const int64_t **v, pl_err *err);
/* m->softcap, by the key final_logit_softcapping. */
pl_status params_softcap(struct model *m, pl_err *err);
/* How many values of a head RoPE rotates; d_key where the key is absent. */
pl_status params_rope_count(const struct model *m, const char *name,
                            int64_t d_key, int64_t *out, pl_err *err);
/* A base of RoPE's angles; 10000 where the key is absent. */
pl_status params_rope_base(const struct model *m, const char *name, double *out,
                           pl_err *err);

#endif
