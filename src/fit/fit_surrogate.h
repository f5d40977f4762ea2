/* What moving layers and experts to the host would do, without compiling it.
 *
 * Learned from two plans of one mode: one with everything on devices and one
 * with everything on the host. From each come, a layer, the seconds of its
 * steps and the bytes of its weights and caches; sums of these say which of all
 * ways to keep some layers and some experts on the host fit, and about how fast
 * each is. What is chosen so is compiled before it is believed. */
#ifndef FIT_FIT_SURROGATE_H
#define FIT_FIT_SURROGATE_H

#include "fit/fit_internal.h"

/* A way to relieve devices: the last n_on layers stay on them, but for the
 * experts of the first n_experts layers of the model. */
struct spill_choice {
    int n_on, n_experts;
    int ubatch;     /* fit_ubatch's number */
    double seconds; /* about; INFINITY: it does not fit */
};

struct fit_surrogate; /* opaque; the arena's */

/* The plans with everything on devices and on the host; the first lives as long
 * as the sketch is used. */
pl_status fit_sketch_make(struct fit_surrogate **out, struct fit *f,
                          const struct fit_candidate *devices,
                          const struct fit_candidate *host, pl_err *err);
/* The fastest that fits. */
pl_status fit_sketch_best(struct fit_surrogate *k, struct spill_choice *best,
                          pl_err *err);
/* The intent that it means; experts are the arena's. */
pl_status fit_surrogate_config(struct fit_surrogate *k,
                               const struct spill_choice *r,
                               struct plan_config *out, pl_err *err);
/* What came of it when it was compiled; p NULL: it could not be. Bytes that
 * devices lack or have left and seconds are corrected by it. */
pl_status fit_surrogate_correct(struct fit_surrogate *k,
                                const struct spill_choice *r,
                                const struct fit_candidate *p, pl_err *err);

#endif
