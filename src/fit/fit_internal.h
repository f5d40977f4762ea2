/* Declarations that the files of fitting share.
 *
 *   fit.c               decides what to search; ends with a plan
 *   fit_modes.c         tries split modes and numbers of devices
 *   fit_spill.c         moves parts that do not fit to the host
 *   fit_local_search.c  makes small changes
 *   fit_candidate.c     compiles one candidate and keeps the best
 *   fit_score.c         computes a candidate's memory and time
 *   fit_block.c         compiles a block for multi-token prediction with it
 *   fit_explain.c       reports the memory that is missing
 *
 * A *candidate* is a plan config with nothing left open. Short names: f is the
 * search, p a candidate, q its compiled plan, in or x a plan config. */
#ifndef FIT_FIT_INTERNAL_H
#define FIT_FIT_INTERNAL_H

#include "base/arena.h"
#include "cost/calibration.h"
#include "fit/fit.h"

/* Number of candidates that lack memory, kept for fit_spill. */
enum { FIT_MAX_OVERSIZED = 8 };

/* Sizes of micro-batches that are tried: the candidate's own, its half, and so
 * on. */
enum { FIT_N_UBATCH = 5 };
static inline int64_t fit_ubatch(const struct plan_config *in, int i)
{
    return in->n_ubatch >> i > 0 ? in->n_ubatch >> i : 1;
}

/* The graph of the block, and what the options say about it. */
struct fit_block {
    struct plan_config asked; /* owned; without devices */
    bool *all;                /* [asked.n_layer + 1] true */
    bool local; /* other machines have devices, too; machine 0 has those of
                   `list`, which is owned */
    struct device_list list;
};

/* A compiled candidate. It is freed with the last reference. */
struct fit_candidate {
    struct plan_config in;
    struct compiled *q, *block; /* block: NULL if there is none */
    int n_ref;
    /* [q->list.n] bytes that each device allocates, without and with those of
     * the block; one array, owned */
    uint64_t *need[2];
    int64_t missing; /* bytes, over all devices; 0: it fits */
    double seconds;  /* whether it fits or not; INFINITY if it cannot be
                         compiled */
    double prompt_s; /* the prompt's part */
};

struct fit {
    struct arena arena;
    struct notes notes;       /* of reading the options */
    struct plan_config asked; /* owned; arrays of candidates are the arena's */
    pl_graph network;         /* asked.g without what it computes besides */
    const struct fit_block *block; /* NULL if there is none */
    struct calibration cal;
    bool calibrated, unlike; /* unlike: devices are not all the same */
    int n_machine;           /* machines of the devices */
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
    bool layers_fit;            /* some candidate in layer mode fits */
    const volatile int *cancel; /* pl_options's */
    pl_status failed; /* of the first candidate that could not be compiled */
    pl_err why;
};

/* ---- fit_score.c ------------------------------------------------------- */

/* Returns the bytes that each device of p allocates. Those of the block count
 * if available memory does, so that they change no ranks. */
static inline const uint64_t *fit_needs(const struct fit *f,
                                        const struct fit_candidate *p)
{
    return p->need[f->now];
}

/* Bytes of a device that may be planned with, the margin among them; 0: it is
 * not known. */
uint64_t fit_memory(const struct fit *f, const struct device_desc *x);
uint64_t fit_margin(const struct fit *f, const struct device_desc *x);
/* Returns the bytes by which plan p exceeds the memory, less the margin, of
 * device d and those that share its memory. A negative result is what is left;
 * INT64_MIN: the memory is unknown, or belongs to others. */
int64_t fit_lacks(const struct fit *f, const struct fit_candidate *p, int d);
/* Returns the bytes that all devices lack together. */
int64_t fit_all_lacks(const struct fit *f, const struct fit_candidate *p);
/* Sets *rates to the known rates of the plan's devices, in f's arena. */
pl_status fit_rates(struct fit *f, const struct compiled *q,
                    struct cost_rates **rates, pl_err *err);

/* ---- fit_candidate.c --------------------------------------------------- */

/* Compiles a candidate. *out is a reference of the caller's; NULL if it cannot
 * be compiled, which is an error only if out of memory. */
pl_status candidate_compile(struct fit *f, const struct plan_config *in,
                            struct fit_candidate **out, pl_err *err);
/* Returns a lower bound of a candidate's seconds if it exceeds those of the
 * best plan, else 0. */
double candidate_bound(const struct fit *f, const struct plan_config *in);
/* Compiles a candidate, estimates its time, and keeps it as the best if it fits
 * and is. Does not compile it if it has a candidate_bound. *out is set as
 * above; `out` may be NULL. */
pl_status candidate_try(struct fit *f, const struct plan_config *in,
                        struct fit_candidate **out, pl_err *err);
/* Keeps a candidate that lacks memory, if it is among the fastest of these. */
void fit_keep_oversized(struct fit *f, struct fit_candidate *p);
struct fit_candidate *fit_ref(struct fit_candidate *p);
void fit_unref(struct fit_candidate *p); /* takes NULL */

/* ---- fit_block.c ------------------------------------------------------- */

/* Reads the options for the block's graph, and for the devices of f->asked.
 * `opt` has its numbers of sequences and outputs. The caller calls
 * fit_block_close in all cases. */
pl_status fit_block_open(struct fit_block *b, struct fit *f,
                         const struct fit_graphs *g, const pl_options *opt,
                         pl_err *err);
void fit_block_close(struct fit_block *b);
/* Compiles the block for candidate `in`. */
pl_status fit_block_compile(struct compiled **out, struct fit *f,
                            const struct plan_config *in, pl_err *err);

/* ---- fit_modes.c ------------------------------------------------------- */

/* Fills in f->speed. */
pl_status fit_find_speeds(struct fit *f, pl_err *err);
/* Sets the ranks of a mixed group, if they are left open, and how many of them
 * each device carries: the plan config's shares of devices. */
pl_status fit_assign_ranks(struct fit *f, struct plan_config *x, pl_err *err);
/* Tries all that may be tried. *f has the best candidate. */
pl_status fit_search(struct fit *f, pl_err *err);

/* ---- fit_spill.c ------------------------------------------------------- */

/* Moves parts of the candidates that lack memory to the host, so that they fit
 * and are fastest. */
pl_status fit_spill(struct fit *f, pl_err *err);

/* ---- fit_local_search.c ------------------------------------------------ */

/* In layer mode on a few devices, moves layers from devices that lack memory to
 * the fastest that have space, so that the devices hold all that they can hold
 * together. If devices are not alike, the fastest are filled first. */
pl_status fit_balance_layers(struct fit *f, pl_err *err);
/* Makes small changes to the best candidate as long as they help. */
pl_status fit_local_search(struct fit *f, pl_err *err);
/* Finds the longest context with which the best candidate fits, to within 256
 * tokens. */
pl_status fit_grow_context(struct fit *f, pl_err *err);

/* ---- fit_explain.c ------------------------------------------------------ */

/* Prints a line for each device that lacks memory, "cpu1: needs 3.20 GiB more
 * (weights ..". If f is NULL, prints a line for each device, with the memory
 * that it has and needs. */
void fit_table(struct plan_config_text *t, const struct fit *f,
               const struct fit_candidate *p);
/* Appends the part of the memory that the nearest candidate lacks which half
 * the context, half the micro-batch and smaller cache formats save: "; -c 2048
 * saves 1.20 GiB, ...". */
pl_status fit_savings(struct plan_config_text *t, struct fit *f, pl_err *err);
/* Prints the options by which candidate `in` differs from `asked`, so that a
 * user who adds them gets the same plan. `any`: also prints mode and shares,
 * because they were not searched for. */
void fit_format_options(struct plan_config_text *out,
                        const struct plan_config *in,
                        const struct plan_config *asked, bool any);

#endif
