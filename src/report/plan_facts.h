/* Facts about a plan, which plan_print.c, plan_json.c and plan_svg.c present as
 * text, JSON and SVG. */
#ifndef REPORT_PLAN_FACTS_H
#define REPORT_PLAN_FACTS_H

#include "cost/cost.h"
#include "engine/engine.h"

/* A weight or cache of the graph. A weight that is read under several layouts
 * is stored in several versions. */
struct plan_tensor {
    const struct graph_node *node;
    const char *layout;     /* text of layout_print; the versions' texts are
                               joined by " and " */
    const pl_layout *first; /* layout of the first version */
    int group;              /* home group */
    /* [n_dev] bytes allocated on each device, for all versions */
    uint64_t *bytes;
};

struct plan_device {
    uint64_t weights, cache, buffers;
};

enum plan_basis {
    PLAN_CALIBRATED, /* rates from this machine's calibration
                        (cost/calibration.h) */
    PLAN_ASSUMED,    /* default rates, because this machine is not calibrated */
    PLAN_DESCRIBED,  /* rates from a description */
};

struct plan_estimate {
    enum plan_basis basis;
    /* COST_GUESSED_ bits of the figures that a description lacks */
    unsigned guessed;
    int64_t n_prompt; /* number of prompt tokens for prefill_tps */
    int64_t n_past;   /* number of tokens in the cache for decode_tps */
    double prefill_tps, decode_tps;
};

/* The predicted duration of a computation, and how each device spends it. */
struct plan_time {
    double seconds;
    struct cost_use *use; /* [n_dev] */
};

/* The predicted duration of a step of n pipelined micro-batches. n is 0 if
 * there is no pipeline. */
struct plan_pipeline {
    int n;
    int64_t n_tok; /* tokens per micro-batch */
    double seconds;
    /* duration of the same micro-batches without overlap */
    double one_by_one_s;
};

struct plan_facts {
    struct arena arena;
    int n_dev, n_tensor;
    struct plan_tensor *tensor;     /* weights and caches, in graph order */
    struct plan_device *dev;        /* [n_dev] */
    uint64_t io_buffers;            /* bytes of inputs and results, in host
                                       memory */
    int64_t token_bytes;            /* size in bytes of the values exchanged in
                                       collectives for one token, each counted
                                       once */
    int64_t copy_bytes;             /* bytes copied between groups for one
                                       token, without streamed weights and cache
                                       pages */
    const struct cost_rates *rates; /* [n_dev + 1] rates of the devices, then of
                                       io */
    struct plan_estimate estimate;
    /* predictions for n_prompt tokens, and for one token after n_past tokens
     * (see `estimate`) */
    struct plan_time prefill, decode;
    struct plan_pipeline pipeline;
};

/* Collects the facts of plan p. The caller frees *f with plan_facts_fini, even
 * on failure. */
pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err);
void plan_facts_fini(struct plan_facts *f);

/* Returns the value of a size that is the sum of two dimensions, such as the
 * bytes of a collective or a copy, for sizes z. */
int64_t plan_bytes_at(const pl_dim sum[2], const struct graph_sizes *z);

/* Returns the copies between groups of a variant, VARIANT_RESIDENT or
 * VARIANT_STREAMED. Sets *n to their number. Returns NULL if the plan lacks the
 * variant. */
const struct lowered_copy *plan_copies(const struct compiled *q,
                                       enum compiled_variant variant, int *n);
/* Returns the name of the number to which the bytes of a collective or copy are
 * proportional: "n_tok", "n_out", "both" for a sum of both, or "step" if they
 * are constant per step. */
const char *plan_bytes_symbol(const pl_dim bytes[2]);

/* Print parts of a plan: the groups with their members and contents; the copies
 * between groups; the predicted times of the devices. Defined in
 * plan_groups.c. */
struct sink;
void plan_print_groups(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_copies(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_times(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to);
/* Writes to `buf`, and returns, a tensor's name without the layer and the
 * suffix: "attn_q" for "blk.7.attn_q.weight", "cache_k" for "cache_k.7",
 * "l_out" for "l_out-7". It is unique within a layer. */
enum { PLAN_NAME = 32 };
const char *plan_short_name(const char *name, char buf[PLAN_NAME]);

/* Prints the plan as JSON. Defined in plan_json.c. */
pl_status plan_print_json(const pl_plan *p, const struct plan_facts *f,
                          const struct sink *to, pl_err *err);

#endif
