/* Facts about a plan, which plan_print.c shows as text, plan_json.c as JSON and
 * plan_svg.c as a picture. */
#ifndef REPORT_PLAN_FACTS_H
#define REPORT_PLAN_FACTS_H

#include "cost/cost.h"
#include "engine/engine.h"

/* A weight or cache of the graph. A weight that ops read in several layouts is
 * stored once in each. */
struct plan_tensor {
    const struct graph_node *node;
    const char *layout;     /* the layout as layout_print writes it; several
                               layouts are joined by " and " */
    const pl_layout *first; /* the tensor's layout, the first one if it is
                               stored in several */
    int group; /* index of the group that holds the weight or cache */
    /* [n_dev] bytes that it takes on each device, in all of its layouts */
    uint64_t *bytes;
};

struct plan_device {
    uint64_t weights, cache, buffers;
    uint64_t block; /* bytes of the model's block for multi-token prediction,
                       which is a plan of its own (pl_plan.block) */
};

enum plan_basis {
    PLAN_CALIBRATED, /* rates measured on this machine (cost/calibration.h) */
    PLAN_ASSUMED,    /* default rates, because this machine was not measured */
    PLAN_DESCRIBED,  /* rates from a description of the devices
                        (--device-spec) */
};

struct plan_estimate {
    enum plan_basis basis;
    /* COST_GUESSED_ bits: figures that were guessed because a description lacks
     * them */
    unsigned guessed;
    int64_t n_prompt; /* number of prompt tokens for which prefill_tps, in
                         tokens per second, is estimated */
    int64_t n_past;   /* number of tokens in the cache for which decode_tps, in
                         tokens per second, is estimated */
    double prefill_tps, decode_tps;
};

/* The predicted duration of a step, and the seconds that each device spends on
 * each activity in it. */
struct plan_time {
    double seconds;
    struct cost_use *use; /* [n_dev] for each device, the seconds of each
                             activity */
};

/* The predicted duration of a step with n micro-batches in a pipeline. n is 0
 * if the plan has no pipeline. */
struct plan_pipeline {
    int n;
    int64_t n_tok; /* number of tokens of each micro-batch */
    double seconds;
    /* seconds that the same micro-batches take one after another, without a
     * pipeline */
    double one_by_one_s;
};

/* The parts of networks that every rank computes for itself: indexers, the
 * matrices of latents, routers, and the weights and sums of residual
 * streams. */
enum plan_part { PART_INDEXERS, PART_LATENTS, PART_ROUTERS, PART_STREAMS };
enum { PLAN_PARTS = PART_STREAMS + 1 };

struct plan_facts {
    struct arena arena;
    int n_dev, n_tensor;
    struct plan_tensor *tensor; /* [n_tensor] weights and caches, in the
                                   order of the graph */
    struct plan_device *dev;    /* [n_dev] bytes that each device needs */
    struct plan_device io;      /* bytes of host memory for the inputs and
                                   results of a step */
    /* Bytes of the values that collectives exchange for one token, each value
     * counted once; and bytes copied between groups for one token, without
     * streamed weights and cache pages. */
    uint64_t token_bytes, copy_bytes;
    /* the copies between groups that each variant makes; none if the plan lacks
     * the variant */
    struct plan_copies {
        const struct lowered_copy *v;
        int n;
    } copies[VARIANT_COUNT];
    const struct cost_rates *rates; /* [n_dev + 1] rates of the devices; the
                                       last is that of the io device */
    struct plan_estimate estimate;
    /* predicted times of a prompt of n_prompt tokens, and of one token after
     * n_past tokens; both numbers are in `estimate` */
    struct plan_time prefill, decode;
    /* the greatest fraction of a device's seconds in kernels that each part
     * which is mirrored takes of a prompt and of a token; 0 if there is none */
    double mirrored[PLAN_PARTS][2];
    struct plan_pipeline pipeline;
    /* number of machines, and [n_machine * n_machine] what machine a sends to
     * machine b in a step of one token, at a * n_machine + b; NULL for one
     * machine */
    int n_machine;
    struct plan_crossing {
        int n_message;
        uint64_t bytes;
    } * crossing;
};

/* Returns the end of the list, which may be empty. */
static inline const struct lowered_copy *
plan_copies_end(const struct plan_copies *c)
{
    return c->n > 0 ? c->v + c->n : c->v;
}

/* Collects the facts of plan p. The caller frees *f with plan_facts_fini, even
 * on failure. */
pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err);
void plan_facts_fini(struct plan_facts *f);

/* Returns the sum of two symbolic sizes, such as the bytes of a collective or a
 * copy, for one token. */
uint64_t plan_bytes(const pl_dim sum[2]);

/* Adds to *sum the bytes that device d needs. */
void plan_add_bytes(struct plan_device *sum, const struct compiled *q, int d);
/* Returns the bytes of the values that collectives exchange for one token, each
 * value counted once. */
uint64_t plan_token_bytes(const struct compiled *q);

/* Return the index of the first tensor or collective of a layer, -1 for none,
 * whose index is at least i; -1 if there is no such one. */
int plan_next_tensor(const struct plan_facts *f, int i, int layer);
int plan_next_collective(const struct lowered_variant *w, int i, int layer);
/* Returns the name of the number to which the bytes of a collective or copy are
 * proportional: "n_tok", "n_out", "both" for a sum of both, or "step" if they
 * are constant per step. */
const char *plan_bytes_symbol(const pl_dim bytes[2]);

/* The purposes by which reports group tensors. */
enum plan_kind {
    PLAN_ATTENTION,
    PLAN_FEED_FORWARD,
    PLAN_EXPERTS,
    PLAN_EMBEDDING,
    PLAN_CACHE,
    PLAN_OTHER,
    PLAN_KINDS
};
enum plan_kind plan_kind(const struct graph_node *n);

/* Print parts of a plan: plan_print_groups the groups with their devices and
 * tensors, plan_print_copies the copies between groups, plan_print_times the
 * predicted times of the devices. Defined in plan_groups.c. */
struct sink;
void plan_print_groups(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_copies(const pl_plan *p, const struct plan_facts *f,
                       const struct sink *to);
void plan_print_times(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to);
/* Prints `before`, and the layers i < n for which in(what, i) is true, such as
 * "layers 0-4, 7". If there are more than `most` ranges of layers, prints the
 * first two and the last. Prints nothing and returns false if no layer is
 * meant. */
bool plan_print_layers(const struct sink *to, const char *before, int n,
                       bool (*in)(const void *what, int layer),
                       const void *what, int most);
/* Writes a short name of a tensor to `buf`, without layer and suffix: "attn_q"
 * for "blk.7.attn_q.weight", "cache_k" for "cache_k.7", "l_out" for "l_out-7".
 * Short names are unique within a layer. Returns `buf`. */
enum { PLAN_NAME = 32 };
const char *plan_short_name(const char *name, char buf[PLAN_NAME]);

/* Prints the plan as JSON. `block` are the facts of p->block, if there is one.
 * Defined in plan_json.c. */
void plan_print_json(const pl_plan *p, const struct plan_facts *f,
                     const struct plan_facts *block, const struct sink *to);

#endif
