/* The facts of a plan, collected once for text, JSON and SVG. */
#ifndef REPORT_PLAN_FACTS_H
#define REPORT_PLAN_FACTS_H

#include "cost/cost.h"
#include "engine/engine.h"

/* A weight or cache of the graph, in all versions that are stored. */
struct plan_tensor {
    const struct graph_node *node;
    const char *layout;     /* layout_print text; versions joined by " and " */
    const pl_layout *first; /* the first version's */
    int group;              /* its home group */
    uint64_t *bytes;        /* [n_dev], as allocated */
};

struct plan_device {
    uint64_t weights, cache, buffers;
};

enum plan_basis {
    PLAN_CALIBRATED, /* from this machine's cached calibration: calibration.h */
    PLAN_ASSUMED,    /* default rates of the kernel set */
    PLAN_DESCRIBED,  /* rates from a description */
};

struct plan_estimate {
    enum plan_basis basis;
    unsigned guessed; /* COST_GUESSED_ bits */
    int64_t n_prompt; /* tokens of the step of prefill_tps */
    int64_t n_past;   /* tokens before the one of decode_tps */
    double prefill_tps, decode_tps;
};

/* The predicted times of the devices. */
struct plan_time {
    double seconds;
    struct cost_use *use; /* [n_dev] */
};

/* Pipelined micro-batches. n 0: no pipeline */
struct plan_pipeline {
    int n;
    int64_t n_tok; /* of each */
    double seconds;
    double one_by_one_s; /* the same tokens unpipelined */
};

struct plan_facts {
    struct arena arena;
    int n_dev, n_tensor;
    struct plan_tensor *tensor;     /* weights and caches, in graph order */
    struct plan_device *dev;        /* [n_dev] */
    uint64_t io_buffers;            /* inputs and results, in memory accessible
                                       to the caller */
    int64_t token_bytes;            /* logical bytes of the collectives of one
                                       token */
    int64_t copy_bytes;             /* of one token, without streaming and the
                                       past */
    const struct cost_rates *rates; /* [devices of the plan, and io] */
    struct plan_estimate estimate;
    struct plan_time prefill, decode; /* of the estimate's tokens */
    struct plan_pipeline pipeline;
};

/* *f must be freed by plan_facts_fini, also on failure. */
pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err);
void plan_facts_fini(struct plan_facts *f);

/* Evaluates a sum of two parts, such as the bytes of collectives and copies. */
int64_t plan_bytes_at(const pl_dim sum[2], const struct graph_sizes *z);

/* Returns the copies of VARIANT_RESIDENT or VARIANT_STREAMED; sets *n to their
 * number. */
const struct lowered_copy *plan_copies(const struct compiled *q,
                                       enum compiled_variant variant, int *n);
/* Returns "n_tok", "n_out", "both" or "step": what the bytes of a collective or
 * copy grow with. */
const char *plan_bytes_symbol(const pl_dim bytes[2]);

/* plan_groups.c: prints the groups with their members and contents, the copies
 * between groups, and the predicted times of devices */
struct sink;
void plan_print_groups(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_copies(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_times(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to);
/* Returns "attn_q" for "blk.7.attn_q.weight", "cache_k" for "cache_k.7",
 * "l_out" for "l_out-7": sufficient within a layer. */
enum { PLAN_NAME = 32 };
const char *plan_short_name(const char *name, char buf[PLAN_NAME]);

/* plan_json.c */
pl_status plan_print_json(const pl_plan *p, const struct plan_facts *f,
                          const struct sink *to, pl_err *err);

#endif
