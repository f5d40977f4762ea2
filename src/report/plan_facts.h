/* What a plan shows, gathered once for text, JSON and picture. */
#ifndef REPORT_PLAN_FACTS_H
#define REPORT_PLAN_FACTS_H

#include "cost/cost.h"
#include "engine/engine.h"

/* A weight or cache of the graph, in however many versions it is stored. */
struct plan_tensor {
    const struct graph_node *node;
    const char *layout;     /* layout_print text; versions joined by " and " */
    const pl_layout *first; /* the first version's */
    int group;              /* where it lives */
    uint64_t *bytes;        /* [n_dev], as allocated */
};

struct plan_device {
    uint64_t weights, cache, buffers;
};

enum plan_basis {
    PLAN_CALIBRATED, /* on this machine, before: calibration.h */
    PLAN_ASSUMED,    /* constants of the kernel set */
    PLAN_DESCRIBED,  /* a description's figures */
};

struct plan_estimate {
    enum plan_basis basis;
    unsigned guessed; /* COST_GUESSED_ bits */
    int64_t n_prompt; /* tokens of the step that prefill_tps is for */
    int64_t n_past;   /* tokens before the one that decode_tps is for */
    double prefill_tps, decode_tps;
};

/* What the devices are predicted to do. */
struct plan_time {
    double seconds;
    struct cost_use *use; /* [n_dev] */
};

/* Micro-batches through the groups, one behind the other. n 0: there is none */
struct plan_pipeline {
    int n;
    int64_t n_tok; /* of each */
    double seconds;
    double one_by_one_s; /* the same tokens without it */
};

struct plan_facts {
    struct arena arena;
    int n_dev, n_tensor;
    struct plan_tensor *tensor; /* weights and caches, in graph order */
    struct plan_device *dev;    /* [n_dev] */
    uint64_t io_buffers;        /* of inputs and results, where the caller finds
                                   them */
    int64_t token_bytes;        /* logical bytes of the messages of one token */
    int64_t copy_bytes; /* of one token; without streaming and the past */
    const struct cost_rates *rates; /* [devices of the plan, and io] */
    struct plan_estimate estimate;
    struct plan_time prefill, decode; /* of the estimate's tokens */
    struct plan_pipeline pipeline;
};

/* To be ended by plan_facts_fini, also on failure. */
pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err);
void plan_facts_fini(struct plan_facts *f);

/* A sum of two parts, as messages and copies have their bytes. */
int64_t plan_bytes_at(const pl_dim sum[2], const struct graph_sizes *z);

/* Copies of VARIANT_RESIDENT or VARIANT_STREAMED; *n 0: there are none. */
const struct lowered_copy *plan_copies(const struct compiled *q,
                                       enum compiled_variant variant, int *n);
/* "n_tok", "n_out", "both" or "step": what the bytes of a message or copy grow
 * with. */
const char *plan_bytes_symbol(const pl_dim bytes[2]);

/* plan_groups.c: who is in which group and what lives there, what goes between
 * groups, what devices are predicted to do; for people */
struct sink;
void plan_print_groups(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_copies(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_times(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to);
/* "attn_q" of "blk.7.attn_q.weight", "cache_k" of "cache_k.7", "l_out" of
 * "l_out-7": enough within a layer. */
enum { PLAN_NAME = 32 };
const char *plan_short_name(const char *name, char buf[PLAN_NAME]);

/* plan_json.c */
pl_status plan_print_json(const pl_plan *p, const struct plan_facts *f,
                          const struct sink *to, pl_err *err);

#endif
