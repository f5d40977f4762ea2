/* Hyper-parameters: the keys of a GGUF file that shape the network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Fills all of `m` except file and family, which are set, and the unused
 * tensors. */
pl_status model_params_read(struct model *m, pl_err *err);

/* ---- for families that have keys of their own ---- */

/* Limits of a file's numbers: their products stay below 2^63. */
enum {
    MAX_LAYER = 1 << 16,
    MAX_HEAD = 1 << 16, /* heads, and values of a head */
    MAX_WIDTH = 1 << 28,
    MAX_EXPERT = 1 << 16,
};

/* "llama.block_count" */
struct params_key {
    char s[96];
};
const char *params_key(const struct model *m, const char *name,
                       struct params_key *k);
/* Reads an integer of lo .. hi; def if the key is absent. */
pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err);
/* Reads a required integer, 1 or more. */
pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err);
/* Reads one integer of 1 .. hi for all layers, or a list with one for each
 * layer. If the key is absent, uses def[n_layer], or fails if def is NULL. */
pl_status params_per_layer(struct model *m, const char *name, int64_t hi,
                           const int64_t *def, const int64_t **out,
                           pl_err *err);
/* Does the same for a width of heads, for all layers. */
pl_status params_head_width(struct model *m, const char *name, int64_t def,
                            const int64_t **out, pl_err *err);
/* Sets m->window: of each `pattern` layers all but the last see
 * attention.sliding_window tokens. If the key is absent, all layers see all
 * tokens. */
pl_status params_windows(struct model *m, int64_t pattern, pl_err *err);
/* Sets m->window: the layers in the list attention.sliding_window_pattern see
 * attention.sliding_window tokens. The others see all. */
pl_status params_windows_each(struct model *m, pl_err *err);
/* Replaces (*v)[layer], a width of heads, by this key's value in layers with a
 * window, if the key is present. */
pl_status params_of_windows(struct model *m, const char *name,
                            const int64_t **v, pl_err *err);
/* Sets m->softcap by the key final_logit_softcapping. */
pl_status params_softcap(struct model *m, pl_err *err);
/* Reads how many values of a head RoPE rotates; d_key if the key is absent. */
pl_status params_rope_count(const struct model *m, const char *name,
                            int64_t d_key, int64_t *out, pl_err *err);
/* Reads a base of RoPE's angles; 10000 if the key is absent. */
pl_status params_rope_base(const struct model *m, const char *name, double *out,
                           pl_err *err);

#endif
