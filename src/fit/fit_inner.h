/* What the files of fitting share: fit.c says what is to be searched and ends
 * with a plan, fit_modes.c goes through split modes and numbers of devices,
 * fit_relieve.c moves to the host what does not fit, fit_climb.c makes small
 * changes, fit_try.c plans one guess, fit_weigh.c says what it needs and how
 * fast it is, fit_text.c writes. */
#ifndef FIT_FIT_INNER_H
#define FIT_FIT_INNER_H

#include "base/arena.h"
#include "cost/calibration.h"
#include "fit/fit.h"

enum { FIT_FEW = 4 }; /* devices so few that plans of them are cheap */

/* A guess: what differs from the caller's options. Arrays belong to the arena
 * of the search and are not written after they are made. */
struct fit_choice {
    pl_split_mode mode;
    int width, main_device; /* of hybrid, of none */
    const double *split;    /* [n_dev], or NULL: the caller's */
    int n_ranks;
    int n_on;            /* layers on devices, -1: the caller's */
    const bool *experts; /* [n_layer] on the host, or NULL: the caller's */
    int64_t n_ubatch, n_ctx;
};

/* Micro-batches that are tried: the guess's own, then smaller ones. */
enum { FIT_N_UBATCH = 3 };
static inline int64_t fit_ubatch(const struct fit_choice *c, int i)
{
    return i == 0 ? c->n_ubatch : i == 1 ? 128 : 32;
}

/* The best of some guesses. */
struct fit_best {
    bool found;
    struct fit_choice choice;
    double seconds;
};

/* A guess planned. */
struct fit_try {
    struct compiled *compiled; /* owned by who asked */
    int64_t missing;           /* bytes, over all devices; 0: it fits */
    double seconds;
};

struct fit {
    const pl_graph *g;
    const pl_options *opt;
    struct arena arena;
    struct device_list list; /* without the host */
    struct calibration cal;
    bool calibrated, unlike; /* unlike: devices are not all the same */
    bool known;              /* all of them tell their memory */
    uint64_t weights;        /* bytes of all weights in the file */
    uint64_t margin;
    int n_layer;
    bool may_split, may_layers, may_experts, may_ubatch, may_ctx;
    int64_t ctx_least, ctx_most;
    int n_plan, n_fit, budget; /* plans made, that fit, that are worth it */
    bool found, usual_fits;
    struct fit_choice best, usual; /* usual: tensor over all, as it comes */
    double best_s, usual_s;
    struct fit_best of_mode[PL_SPLIT_HYBRID + 1];
    struct fit_choice nearest; /* what lacked the least, to explain */
    int64_t nearest_missing;
    pl_status failed; /* of the first guess that could not be planned */
    pl_err why;
};

/* ---- fit_try.c --------------------------------------------------------- */

/* Plans it and, if it fits, keeps it as the best if it is. t may be NULL; else
 * t->compiled is to be freed. A guess that cannot be planned lacks INT64_MAX
 * bytes. Fails only for want of memory. */
pl_status fit_consider(struct fit *f, const struct fit_choice *c,
                       struct fit_try *t, pl_err *err);

/* ---- fit_modes.c ------------------------------------------------------- */

/* Tries all that may be tried; *f says what was best. */
pl_status fit_search(struct fit *f, const struct fit_choice *start,
                     pl_err *err);

/* ---- fit_relieve.c ----------------------------------------------------- */

/* Guess c does not fit: moves as little as needed to the host. */
pl_status fit_relieve(struct fit *f, const struct fit_choice *c, pl_err *err);

/* ---- fit_climb.c ------------------------------------------------------- */

/* In layer mode on a few devices: layers go from who lacks memory to who has
 * most room, so that what devices can hold together they do hold. */
pl_status fit_even_out(struct fit *f, const struct fit_choice *c, pl_err *err);
/* Small changes of the best guess as long as they help. */
pl_status fit_climb(struct fit *f, pl_err *err);
/* The best guess with the longest context that fits, to within 256 tokens. */
pl_status fit_stretch(struct fit *f, pl_err *err);

/* ---- fit_text.c -------------------------------------------------------- */

/* Options and messages as they grow. */
struct fit_text {
    char s[8192];
    size_t n;
};
void fit_say(struct fit_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The options of guess c; experts and layers are what they point to. */
void fit_options(const struct fit *f, const struct fit_choice *c,
                 struct fit_text *experts, char layers[16], pl_options *out);
/* "0-3,7": the layers that are set; nothing if none is. */
void fit_ranges(struct fit_text *t, const bool *on, int n);
/* "-sm layer -ts 3,1": the mode and shares of guess c, whose options are o. */
void fit_say_mode(struct fit_text *t, const struct fit_choice *c,
                  const pl_options *o);
/* The options that reproduce a plan of guess c. */
void fit_describe(struct fit_text *t, const struct fit *f,
                  const struct fit_choice *c, const struct compiled *q);
/* "cpu1: needs 3.20 GiB more (weights ..": a line a device that lacks memory,
 * or all lines. */
void fit_table(struct fit_text *t, const struct compiled *q, uint64_t margin,
               bool all);

#endif
