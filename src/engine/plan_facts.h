/* What a plan shows, gathered once for both its forms. */
#ifndef ENGINE_PLAN_FACTS_H
#define ENGINE_PLAN_FACTS_H

#include "engine/engine.h"

/* A weight or cache of the graph, in however many versions it is stored. */
struct plan_tensor {
    const struct graph_node *node;
    const char *layout;     /* layout_print text; versions joined by " and " */
    const pl_layout *first; /* the first version's */
    uint64_t *bytes;        /* [n_dev], as allocated */
};

struct plan_device {
    uint64_t weights, cache, buffers;
};

enum plan_basis {
    PLAN_MEASURED,   /* on the devices, just now */
    PLAN_CALIBRATED, /* on this machine, before: calibration.h */
    PLAN_ASSUMED,    /* constants of the kernel family */
    PLAN_DESCRIBED,  /* a description's figures */
};

struct plan_estimate {
    enum plan_basis basis;
    unsigned guessed; /* COST_GUESSED_ bits */
    int64_t n_prompt; /* tokens of the step that prefill_tps is for */
    int64_t n_past;   /* tokens before the one that decode_tps is for */
    double prefill_tps, decode_tps;
};

struct plan_facts {
    struct arena arena;
    int n_dev, n_tensor;
    struct plan_tensor *tensor; /* weights and caches, in graph order */
    struct plan_device *dev;    /* [n_dev] */
    int64_t token_bytes;        /* logical bytes of the messages of one token */
    struct plan_estimate estimate;
};

/* Measures the devices if the plan is not for paper. To be ended by
 * plan_facts_fini, also on failure. */
pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err);
void plan_facts_fini(struct plan_facts *f);

/* A sum of two parts, as messages and copies have their bytes. */
int64_t plan_pair(const pl_dim sum[2], const struct graph_sizes *z);

/* plan_json.c */
struct sink;
pl_status plan_print_json(const pl_plan *p, const struct plan_facts *f,
                          const struct sink *to, pl_err *err);

#endif
