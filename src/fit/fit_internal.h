/* Declarations that the files of fitting share.
 *
 *   fit.c               decides what to search; ends with a plan
 *   fit_modes.c         tries split modes and numbers of devices
 *   fit_spill.c         moves to the host what does not fit
 *   fit_local_search.c  makes small changes
 *   fit_candidate.c     compiles one guess and keeps the best
 *   fit_score.c         computes what a guess needs and how fast it is
 *   fit_explain.c       says what is missing
 *
 * A *guess* is an intent with nothing left open. Short names: f is the search,
 * p a guess's plan, q that plan compiled, in or x an intent. */
#ifndef FIT_FIT_INTERNAL_H
#define FIT_FIT_INTERNAL_H

#include "base/arena.h"
#include "cost/calibration.h"
#include "fit/fit.h"

/* Guesses that lack memory, kept for fit_spill. */
enum { FIT_MAX_OVERSIZED = 8 };

/* Micro-batches that are tried: the guess's own, its half, and so on. */
enum { FIT_N_UBATCH = 5 };
static inline int64_t fit_ubatch(const struct plan_config *in, int i)
{
    return in->n_ubatch >> i > 0 ? in->n_ubatch >> i : 1;
}

/* A compiled guess, counted by references: freed with the last. */
struct fit_candidate {
    struct plan_config in;
    struct compiled *q;
    int n_ref;
    uint64_t *need;  /* [q->list.n] bytes that each device allocates, owned */
    int64_t missing; /* bytes, over all devices; 0: it fits */
    double seconds;  /* whether it fits or not; INFINITY if it cannot be
                         compiled */
    double prompt_s; /* the prompt's part */
};

struct fit {
    struct arena arena;
    struct notes notes;       /* of reading the options */
    struct plan_config asked; /* owned; arrays of guesses are the arena's */
    struct calibration cal;
    bool calibrated, unlike; /* unlike: devices are not all the same */
    bool known;              /* all of them tell their memory */
    bool now;      /* what is available now counts, not all memory: fit.c */
    double *speed; /* [asked.list.n] how fast each is beside the others, by the
                      rates that plans have */
    uint64_t weights;            /* bytes of all weights in the file */
    uint64_t margin, reserve;    /* as the options have them */
    struct plan_config_auto may; /* what may be changed */
    int64_t ctx_least, ctx_most;
    int n_plan, budget; /* plans made, and that are worth making */
    /* Seconds of an answer on one device that holds everything, if devices are
     * alike; 0: unknown. fixed_s: the part that each kernel takes whatever its
     * size. */
    double alone_s, fixed_s;
    struct plan_config default_config; /* what options and defaults ask for */
    struct fit_candidate *ready; /* a reference to its plan, not priced yet */
    struct fit_candidate *best, *usual_plan, *nearest; /* refs; NULL: none yet.
                                                     nearest: lacks the least */
    struct fit_candidate
        *oversized[FIT_MAX_OVERSIZED]; /* refs: modes and shares that lack
                                         memory, the fastest first */
    int n_lack;
    bool layers_fit;            /* some guess in layer mode fits */
    const volatile int *cancel; /* pl_options's */
    pl_status failed; /* of the first guess that could not be compiled */
    pl_err why;
};

/* ---- fit_score.c ------------------------------------------------------- */

/* Bytes of a device that may be planned with, the margin among them; 0: it is
 * not known. */
uint64_t fit_memory(const struct fit *f, const struct device_desc *x);
uint64_t fit_margin(const struct fit *f, const struct device_desc *x);
/* Returns the bytes that device d and those that it shares memory with need for
 * plan p beyond that memory less the margin. A negative result is what is left;
 * INT64_MIN: the memory is unknown, or that of others. */
int64_t fit_lacks(const struct fit *f, const struct fit_candidate *p, int d);
/* Returns the bytes that all devices lack together. */
int64_t fit_all_lacks(const struct fit *f, const struct fit_candidate *p);
/* Returns the bytes that device d of a plan allocates. */
uint64_t fit_need(const struct compiled *q, int d);
/* Sets *rates to the known rates of the plan's devices, in f's arena. */
pl_status fit_rates(struct fit *f, const struct compiled *q,
                    struct cost_rates **rates, pl_err *err);

/* ---- fit_candidate.c --------------------------------------------------- */

/* Compiles a guess. *out is a reference of the caller's; NULL where it cannot
 * be compiled, which is an error only for want of memory. */
pl_status candidate_compile(struct fit *f, const struct plan_config *in,
                            struct fit_candidate **out, pl_err *err);
/* Returns seconds that a guess takes at least, if these are more than those of
 * the best plan; else 0. */
double candidate_bound(const struct fit *f, const struct plan_config *in);
/* Compiles and prices a guess, and keeps it as the best if it fits and is. If
 * it has a candidate_bound, does not compile it. *out is set as above; `out`
 * may be NULL. */
pl_status candidate_try(struct fit *f, const struct plan_config *in,
                        struct fit_candidate **out, pl_err *err);
/* Keeps a guess that lacks memory among the fastest such. */
void fit_keep_oversized(struct fit *f, struct fit_candidate *p);
struct fit_candidate *fit_ref(struct fit_candidate *p);
void fit_unref(struct fit_candidate *p); /* takes NULL */

/* ---- fit_modes.c ------------------------------------------------------- */

/* Fills in f->speed. */
pl_status fit_find_speeds(struct fit *f, pl_err *err);
/* The ranks of a mixed group, if they are left open, and who carries how many:
 * an intent's shares of devices. */
pl_status fit_assign_ranks(struct fit *f, struct plan_config *x, pl_err *err);
/* Tries all that may be tried; *f says what was best. */
pl_status fit_search(struct fit *f, pl_err *err);

/* ---- fit_spill.c ------------------------------------------------------- */

/* Of guesses that lack memory moves to the host what is best there. */
pl_status fit_spill(struct fit *f, pl_err *err);

/* ---- fit_local_search.c ------------------------------------------------ */

/* In layer mode on a few devices: layers go from who lacks memory to the
 * fastest that have room, so that what devices can hold together they do hold.
 * Where devices are not alike, the fastest are filled first. */
pl_status fit_balance_layers(struct fit *f, pl_err *err);
/* Small changes of the best guess as long as they help. */
pl_status fit_local_search(struct fit *f, pl_err *err);
/* The best guess with the longest context that fits, to within 256 tokens. */
pl_status fit_grow_context(struct fit *f, pl_err *err);

/* ---- fit_explain.c ------------------------------------------------------ */

/* "cpu1: needs 3.20 GiB more (weights ..": a line a device that lacks memory;
 * f NULL: a line each, what they have and what they need. */
void fit_table(struct plan_config_text *t, const struct fit *f,
               const struct fit_candidate *p);
/* Appends what half the context, half the micro-batch and smaller cache formats
 * save of what the nearest guess lacks: "; -c 2048 saves 1.20 GiB, ...". */
pl_status fit_savings(struct plan_config_text *t, struct fit *f, pl_err *err);
/* What of `asked` guess `in` changes, so that who adds it to the options has
 * what fits; `any`: mode and shares were not searched for, so tell them too. */
void fit_format_options(struct plan_config_text *out,
                        const struct plan_config *in,
                        const struct plan_config *asked, bool any);

#endif
