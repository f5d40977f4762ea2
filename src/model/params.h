/* Hyper-parameters: the keys of a GGUF file that shape the network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Fills all of `m` but file, family (both set) and what is unused. */
pl_status model_params_read(struct model *m, pl_err *err);

/* ---- for families that have keys of their own ---- */

/* "llama.block_count" */
struct params_key {
    char s[96];
};
const char *params_key(const struct model *m, const char *name,
                       struct params_key *k);
/* An integer of 1 .. hi, which must be there. */
pl_status params_need(const struct model *m, const char *name, int64_t hi,
                      int64_t *out, pl_err *err);
/* An integer of lo .. hi; def where the key is absent. */
pl_status params_get(const struct model *m, const char *name, int64_t def,
                     int64_t lo, int64_t hi, int64_t *out, pl_err *err);
/* m->window: of each `pattern` layers all but the last see as many tokens as
 * the key attention.sliding_window says; all see all where it is absent. */
pl_status params_windows(struct model *m, int64_t pattern, pl_err *err);
/* A base of RoPE's angles; 10000 where the key is absent. */
pl_status params_rope_base(const struct model *m, const char *name, double *out,
                           pl_err *err);

#endif
