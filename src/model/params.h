/* Hyper-parameters: the metadata keys of a GGUF file that determine the
 * network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Reads the metadata keys into *m, whose fields `file` and `family` must be
 * set. Sets all other fields except n_unused and unread. */
pl_status model_params_read(struct model *m, pl_err *err);

/* Returns true if the file has the tensor `name`, or, if it is yet to be made,
 * will have it. Defined in weight.c. */
bool model_has_tensor(const struct model *m, const char *name);

/* ---- for families that have keys of their own ---- */

/* Limits of numbers in a file, which keep products of sizes below 2^63. */
enum {
    MAX_LAYER = 1 << 16,
    /* maximum number of heads, and maximum number of values per head */
    MAX_HEAD = 1 << 16,
    MAX_WIDTH = 1 << 28,
    MAX_EXPERT = 1 << 16,
};

/* A full name of a key, such as "llama.block_count". */
struct params_key {
    char s[96];
};
/* Writes the full key "ARCH.NAME" to *k and returns k->s. */
const char *params_key(const struct model *m, const char *name,
                       struct params_key *k);
/* Sets *out to the integer value of the key `name`, which must be in lo .. hi,
 * or to `def` if the key is absent. */
pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err);
/* Sets *out to the integer value of the key `name`, which must be present and
 * in 1 .. hi. */
pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err);
/* Reads the number of a key, which must be in [1e-6, 1e6]. If `zero`, 0 is
 * valid, too; some files have it with the meaning "none". */
pl_status params_factor(const struct model *m, const char *name, double def,
                        bool zero, double *out, pl_err *err);
/* Reads the key `name`: one integer in 1 .. hi for all layers, or a list with
 * one for each layer. If the key is absent, uses def[n_layer], or fails if
 * `def` is NULL. */
pl_status params_per_layer(struct model *m, const char *name, int64_t hi,
                           const int64_t *def, const int64_t **out,
                           pl_err *err);
/* Reads the width of a head, the same for all layers; `def` if the key is
 * absent. */
pl_status params_head_width(struct model *m, const char *name, int64_t def,
                            const int64_t **out, pl_err *err);
/* Sets m->window, the window of each layer's attention, from two keys.
 * attention.sliding_window is the window in tokens, `width` if it is absent; 0
 * stands for no window. attention.sliding_window_pattern selects the layers
 * with this window. It is a list of booleans, or a number N, which selects all
 * layers but the last of every N. With a list and a `width` of 0 the window is
 * required. If the pattern is absent, N is `pattern`; if that is 0, the call
 * fails. A negative `pattern` stands for N of which the first layer has no
 * window. */
pl_status params_windows(struct model *m, int64_t pattern, int64_t width,
                         pl_err *err);
/* Sets m->no_rope: the last of every `period` layers has no RoPE or, if period
 * is 0, all layers without a window have none. Layers before `first` have
 * RoPE. */
pl_status params_no_rope(struct model *m, int64_t period, int64_t first,
                         pl_err *err);
/* Sets m->layer_norm, and reads the epsilon of layer norms, whose key is not
 * that of RMS norms. */
pl_status params_layer_norm(struct model *m, pl_err *err);
/* Makes the model an encoder: checks that attention.causal is false or absent,
 * and turns the windows, which count tokens on both sides, into the distance
 * from which on tokens are invisible. */
pl_status params_encoder(struct model *m, pl_err *err);
/* Reads the temperature of queries. `length` is the name of the key with the
 * number of positions after which it grows, `def` its default. */
pl_status params_temperature(struct model *m, const char *length, int64_t def,
                             pl_err *err);
/* Sets m->rope_window to RoPE without scaling, with the number of values and
 * the base of the keys rope.dimension_count_swa and rope.freq_base_swa; `base`
 * is the default. */
pl_status params_rope_window(struct model *m, double base, pl_err *err);
/* Reads the keys of a router and the number of leading layers without experts.
 * `gating` and `normalise` are the defaults. */
pl_status params_router(struct model *m, pl_gating gating, bool normalise,
                        pl_err *err);
/* Reads the number of shared experts, `def` if absent, and their width. */
pl_status params_shared(struct model *m, int64_t def, pl_err *err);
/* Sets m->dense for a family whose files have ffn_gate_inp in exactly the
 * layers with experts. */
pl_status params_dense(struct model *m, pl_err *err);
/* Reads `key`, a number in lo .. hi for each layer or for all. Sets *out to
 * NULL if it is absent. */
pl_status params_layer_floats(struct model *m, const char *key, double lo,
                              double hi, const float **out, pl_err *err);
/* Reads the factors of embeddings, of the results of a layer's parts, of
 * attention's scores and of its result, and the divisor of logits. A value of 0
 * stands for none. */
pl_status params_scales(struct model *m, pl_err *err);
/* Reads a list of booleans with one element for each layer, and optionally one
 * for each multi-token-prediction block. Sets *out to NULL if the key is
 * absent. */
pl_status params_flags(struct model *m, const char *name, bool **out,
                       pl_err *err);
/* Sets (*v)[layer], the width of a head, to the value of the key `name` in all
 * layers with a window. Without the key these layers get (*v)[0]. */
pl_status params_of_windows(struct model *m, const char *name,
                            const int64_t **v, pl_err *err);
/* Reads the limit of a soft cap, 0 for none; `def` if the key is absent. */
pl_status params_softcap(const struct model *m, const char *name, double def,
                         float *out, pl_err *err);
/* Reads the number of values of a head that RoPE rotates; d_key if the key is
 * absent. */
pl_status params_rope_count(const struct model *m, const char *name,
                            int64_t d_key, int64_t *out, pl_err *err);
/* Reads the base of RoPE's angles; `def` if the key is absent. */
pl_status params_rope_base(const struct model *m, const char *name, double def,
                           double *out, pl_err *err);

/* Sets *out to the parameters of RoPE: number of rotated values, scaling, and
 * the given base of angles. Heads are as wide as those of the first layer. */
pl_status params_rope(const struct model *m, double base, pl_rope *out,
                      pl_err *err);

/* ---- keys and tensors not read: unread.c -------------------------------- */

/* Classifies the family's keys that no code has looked up and the tensors that
 * the graph `g` does not read. Rejects the file if one of them would change the
 * results. Sets m->n_unused and m->unread. */
pl_status model_judge_unread(struct model *m, const pl_graph *g, pl_err *err);

#endif
