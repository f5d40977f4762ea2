/* The plan config: pl_options, parsed and checked once.
 *
 * What the options leave open has its default here, and `open` records it. The
 * code that decides open options works on a copy (fit/fit.h). A copy is an
 * assignment: pointers refer to the arena of the first, and what they point to
 * is never written again.
 *
 * Short names in all of planning: in is a plan config, p a placement, q a
 * compiled plan, d a device's index, l a layer's, and y what a file's functions
 * work on. */
#ifndef PLAN_PLAN_CONFIG_H
#define PLAN_PLAN_CONFIG_H

#include "device/device.h"
#include "graph/graph.h"
#include "plan/diagnostics.h"

enum {
    PLAN_CONFIG_N_CTX = 4096, /* defaults, for pl_options of 0 */
    PLAN_CONFIG_N_UBATCH = 512,
    PLAN_CONFIG_N_OUT = 64,
    PLAN_CONFIG_N_SEQ = 8,
    PLAN_CONFIG_N_CHECKPOINT = 4,
    PLAN_CONFIG_MIXED_RANKS = 16, /* see plan_config_is_mixed() */
};

/* A rule of -ot. `where` is interpreted once groups exist. */
struct override {
    const char *regex, *where;
};

/* Options that are left open to the planner. */
struct plan_config_auto {
    bool mode, share, layers, experts, ubatch, ctx;
};

struct plan_config {
    const pl_graph *g; /* borrowed */
    int n_layer;       /* of the graph: highest layer of a leaf + 1 */

    /* where */
    struct device_list list; /* the named ones; owned by the first */
    bool paper;              /* the devices are only described */
    int n_thread;            /* requested per device; 0: its cores */
    enum kernel_set kernel_set;

    /* how */
    pl_split_mode mode;  /* not AUTO */
    int width;           /* devices of a group, in HYBRID mode */
    int main_device;     /* in NONE mode */
    int n_rank;          /* 0: one a device of the widest group; in mixed groups
                            without shares PLAN_CONFIG_MIXED_RANKS */
    const double *share; /* [list.n] of devices, NULL: equal */

    /* on the host */
    int n_on; /* layers on devices: the last n_on of n_layer + 1 */
    /* [n_layer + 1] layers whose experts are on the host; the last entry is for
     * experts outside layers. NULL: none */
    const bool *experts;
    bool cache;
    int n_override;
    const struct override *override; /* [n_override] the first that matches */
    const int *override_of;          /* [g->n_node] index of the override that
                                        applies, or -1 */
    pl_offload offload;

    /* of a step */
    int64_t n_ctx, n_ubatch, n_out;
    int n_seq, n_checkpoint;

    struct plan_config_auto open;
};

/* *out must be freed also after a failure. Notes: unusual settings. */
pl_status plan_config_parse(struct plan_config *out, struct arena *a,
                            const pl_graph *g, const pl_options *opt,
                            struct notes *notes, pl_err *err);
void plan_config_free(struct plan_config *in);
/* Returns true if it keeps any experts on the host. */
bool plan_config_has_host_experts(const struct plan_config *in);
/* Returns true if its mode puts accelerators and processors of the machine into
 * one group. Their rates differ so much that ranks are apportioned whole, by
 * rates, which must not decide any bit. So the number of ranks is a constant
 * that suffices for any such machine. If `share` is not NULL, only devices with
 * a share above zero count. */
bool plan_config_is_mixed(const struct plan_config *in, const double *share);

/* ---- plan_config_text.c -------------------------------------------------- */

/* A growing text; the excess is truncated. */
struct plan_config_text {
    char s[8192];
    size_t n;
};
void plan_config_format(struct plan_config_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints "-sm layer -ts 3,1": mode and shares. */
void plan_config_format_mode(struct plan_config_text *t,
                             const struct plan_config *in);
/* Prints "all" or "20": layers on devices. */
void plan_config_format_layers(struct plan_config_text *t,
                               const struct plan_config *in);
/* Prints "all", "3" (the first three) or "0-3,7-7": layers whose experts are on
 * the host; "0" if there are none. */
void plan_config_format_experts(struct plan_config_text *t,
                                const struct plan_config *in);
/* Prints the options that reproduce this config with nothing left open, in
 * addition to those that it does not name. n_rank: ranks of its plan. */
void plan_config_print(struct plan_config_text *t, const struct plan_config *in,
                       int n_rank);

#endif
