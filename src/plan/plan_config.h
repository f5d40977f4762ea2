/* What is asked of a plan: pl_options, read and checked once.
 *
 * Where options leave something open, the usual choice stands here and `open`
 * says so; whoever fills in what is open changes a copy (fit/fit.h). A copy is
 * an assignment: what pointers point to belongs to the arena of the first and
 * is not written after it was made.
 *
 * Short names, in all of planning: in is an intent, p a placement, q a compiled
 * plan, d a device's index, l a layer's, and y whatever a file's functions work
 * on. */
#ifndef PLAN_PLAN_CONFIG_H
#define PLAN_PLAN_CONFIG_H

#include "device/device.h"
#include "graph/graph.h"
#include "plan/diagnostics.h"

enum {
    INTENT_N_CTX = 4096, /* what pl_options of 0 mean */
    INTENT_N_UBATCH = 512,
    INTENT_N_OUT = 64,
    INTENT_N_SEQ = 8,
    INTENT_N_CHECKPOINT = 4,
    INTENT_MIXED_RANKS = 16, /* of groups whose devices are of unlike kinds */
};

/* A rule of -ot. What `where` means is known when there are groups. */
struct override {
    const char *regex, *where;
};

/* What the options leave to whoever plans. */
struct plan_config_auto {
    bool mode, share, layers, experts, ubatch, ctx;
};

struct plan_config {
    const pl_graph *g; /* borrowed */
    int n_layer;       /* of the graph: highest layer of a leaf + 1 */

    /* where */
    struct device_list list; /* those named; owned by the first */
    bool paper;              /* they are only described */
    int n_thread;            /* asked for a device; 0: its cores */
    enum kernel_set kernel_set;

    /* how */
    pl_split_mode mode;  /* not AUTO */
    int width;           /* devices a group, of HYBRID */
    int main_device;     /* of NONE */
    int n_rank;          /* 0: one a device of the widest group, but of mixed
                            groups without shares INTENT_MIXED_RANKS */
    const double *share; /* [list.n] of devices, NULL: alike */

    /* what is on the host */
    int n_on;            /* layers on devices: the last n_on of n_layer + 1 */
    const bool *experts; /* [n_layer + 1] of which layers; the last stands for
                            those that belong to no layer. NULL: none */
    bool cache;
    int n_override;
    const struct override *override; /* [n_override] the first that matches */
    const int *override_of; /* [g->n_node] decides: its index, -1: none does */
    pl_offload offload;

    /* of a step */
    int64_t n_ctx, n_ubatch, n_out;
    int n_seq, n_checkpoint;

    struct plan_config_auto open;
};

/* *out is to be freed also after a failure. Notes: what is odd about it. */
pl_status plan_config_parse(struct plan_config *out, struct arena *a,
                            const pl_graph *g, const pl_options *opt,
                            struct notes *notes, pl_err *err);
void plan_config_free(struct plan_config *in);
/* Are there experts that it keeps on the host? */
bool plan_config_has_host_experts(const struct plan_config *in);
/* Does its mode put accelerators and processors of the machine into one group?
 * They differ so much that ranks are dealt whole, by rates, which shall decide
 * no bit: so there are enough of them for any such machine, all alike. Only
 * devices of a share above zero count where `share` is not NULL. */
bool plan_config_is_mixed(const struct plan_config *in, const double *share);

/* ---- plan_config_text.c
 * ------------------------------------------------------- */

/* Text as it grows; what has no room is cut off. */
struct plan_config_text {
    char s[8192];
    size_t n;
};
void plan_config_format(struct plan_config_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "-sm layer -ts 3,1": mode and shares. */
void plan_config_format_mode(struct plan_config_text *t,
                             const struct plan_config *in);
/* "all", "20": layers on devices. */
void plan_config_format_layers(struct plan_config_text *t,
                               const struct plan_config *in);
/* "all", "3" (the first so many), "0-3,7-7": layers whose experts are on the
 * host; "0" if there are none. */
void plan_config_format_experts(struct plan_config_text *t,
                                const struct plan_config *in);
/* The options that ask for this, nothing left open, beside those that it does
 * not name; n_rank: ranks of its plan. */
void plan_config_print(struct plan_config_text *t, const struct plan_config *in,
                       int n_rank);

#endif
