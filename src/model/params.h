/* Hyper-parameters: the metadata keys of a GGUF file that determine the
 * network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Fills all fields of `m` except file and family, which must be set, and the
 * unused tensors. */
pl_status model_params_read(struct model *m, pl_err *err);

/* ---- for families that have keys of their own ---- */

/* Limits of the numbers in a file. With them, products of sizes stay below
 * 2^63. */
enum {
    MAX_LAYER = 1 << 16,
    /* maximum number of heads, and maximum width of a head */
    MAX_HEAD = 1 << 16,
    MAX_WIDTH = 1 << 28,
    MAX_EXPERT = 1 << 16,
};

/* A full key, such as "llama.block_count". */
struct params_key {
    char s[96];
};
/* Writes the full key "ARCH.NAME" to *k and returns k->s. */
const char *params_key(const struct model *m, const char *name,
                       struct params_key *k);
/* Reads an integer in lo .. hi; uses `def` if the key is absent. */
pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err);
/* Reads a required integer in 1 .. hi. */
pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err);
/* Reads one integer in 1 .. hi for all layers, or a list with one for each
 * layer. If the key is absent, uses def[n_layer], or fails if `def` is NULL. */
pl_status params_per_layer(struct model *m, const char *name, int64_t hi,
                           const int64_t *def, const int64_t **out,
                           pl_err *err);
/* Reads the width of a head, the same for all layers; `def` if the key is
 * absent. */
pl_status params_head_width(struct model *m, const char *name, int64_t def,
                            const int64_t **out, pl_err *err);
/* Sets m->window. The key attention.sliding_window_pattern says which layers
 * have a window of attention.sliding_window tokens: those that a list marks, or
 * all but the last of every N. If it is absent, N is `pattern`, or the call
 * fails if that is 0. Without attention.sliding_window no layer has one. */
pl_status params_windows(struct model *m, int64_t pattern, pl_err *err);
/* Reads a list with a boolean for each layer, and for each
 * multi-token-prediction block or none. *out is NULL if the key is absent. */
pl_status params_flags(struct model *m, const char *name, bool **out,
                       pl_err *err);
/* Replaces (*v)[layer], the width of a head, by the value of the key `name` in
 * layers with a window. Keeps (*v)[0] there if the key is absent. */
pl_status params_of_windows(struct model *m, const char *name,
                            const int64_t **v, pl_err *err);
/* Sets m->softcap to the value of the key final_logit_softcapping, 0 if
 * absent. */
pl_status params_softcap(struct model *m, pl_err *err);
/* Reads the number of values of a head that RoPE rotates; d_key if the key is
 * absent. */
pl_status params_rope_count(const struct model *m, const char *name,
                            int64_t d_key, int64_t *out, pl_err *err);
/* Reads the base of RoPE's angles; `def` if the key is absent. */
pl_status params_rope_base(const struct model *m, const char *name, double def,
                           double *out, pl_err *err);

/* Reads how positions are rotated and scaled, with this base of angles, for
 * heads as wide as those of the first layer. */
pl_status params_rope(const struct model *m, double base, pl_rope *out,
                      pl_err *err);

/* ---- unread.c ----------------------------------------------------------- */

/* Judges the keys of the family that were not asked for and the tensors that
 * the graph `g` does not read. Rejects the file if one of them would change the
 * results. Sets n_unused and unread. */
pl_status model_judge_unread(struct model *m, const pl_graph *g, pl_err *err);

#endif
