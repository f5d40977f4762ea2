/* The plan config: pl_options, parsed and checked once. An option that is left
 * to the planner has its default value here, and `open` records that it is
 * undecided. The code that decides such options works on copies (fit/fit.h). A
 * config is copied by assignment. The copy's pointers refer to the arena of the
 * original, whose data never changes. Short names in all of planning: in is a
 * plan config, p a placement, q a compiled plan, d a device's index, l a
 * layer's, and y the state that the functions of a file share. */
#ifndef PLAN_PLAN_CONFIG_H
#define PLAN_PLAN_CONFIG_H

#include "device/device.h"
#include "graph/graph.h"
#include "plan/diagnostics.h"

enum {
    PLAN_CONFIG_N_CTX = 4096, /* defaults for fields of pl_options that the
                                 caller left 0 */
    PLAN_CONFIG_N_UBATCH = 512,
    PLAN_CONFIG_N_OUT = 64,
    PLAN_CONFIG_N_SEQ = 8,
    PLAN_CONFIG_N_CHECKPOINT = 4,
    PLAN_CONFIG_BY_MACHINE = -1,  /* width of groups: a group a machine */
    PLAN_CONFIG_MIXED_RANKS = 16, /* number of ranks where
                                     plan_config_is_mixed() returns true */
};

/* One override of placement, REGEX=WHERE of the option -ot. WHERE stays a
 * string until the groups of devices exist that it may name. */
struct override {
    const char *regex, *where;
};

/* Options that the user left to the planner. A field is true while the option
 * is undecided. */
struct plan_config_auto {
    bool mode, share, layers, experts, ubatch, ctx;
};

struct plan_config {
    const pl_graph *g; /* borrowed: the graph that is planned */
    int n_layer;       /* number of layers of the graph */

    /* The devices of the plan. */
    struct device_list list; /* the devices that the user requested; copies of
                                the config borrow the list */
    bool paper;              /* the devices exist only as descriptions
                                (pl_options.device_spec) */
    int n_thread;            /* number of threads per CPU device that the user
                                requested; 0 for one per core */
    enum kernel_set kernel_set;

    /* The distribution of the model over the devices. */
    pl_split_mode mode; /* split mode; already chosen, so never PL_SPLIT_AUTO */
    /* number of devices in a group, in HYBRID mode; PLAN_CONFIG_BY_MACHINE: a
     * group has the neighbouring devices of one machine */
    int width;
    int main_device; /* index in the list of the only device used, in NONE
                           mode */
    /* Number of ranks that the user requested; 0 if the planner sets it: one
     * per device of the widest group, or PLAN_CONFIG_MIXED_RANKS in mixed
     * groups without shares. */
    int n_rank;
    const double *share; /* [list.n] share of the work of each device; NULL if
                            equal */
    const double *rank_share; /* [n_rank] share of the work of each rank; NULL
                                 if the user gave none */

    /* The parts of the model that are on the host. */
    int n_on; /* number of layers on devices, not on the host: the last n_on of
                 n_layer + 1 layers, since the output counts as one */
    /* [n_layer + 1] true for layers whose experts are on the host; the last
     * element is for experts outside of layers. NULL if no experts are on the
     * host. */
    const bool *experts;
    bool cache;
    bool host; /* the host is in the plan whatever it holds, because another
                  graph needs it */
    int n_override;
    const struct override *override; /* [n_override] overrides of placement; the
                                        first that matches a weight applies */
    /* [g->n_node] for each graph node, the index of the override that applies,
     * or -1. */
    const int *override_of;
    pl_offload offload;

    /* Limits: context length in tokens, tokens of a micro-batch, outputs of a
     * micro-batch. */
    int64_t n_ctx, n_ubatch, n_out;
    int n_seq, n_checkpoint;

    struct plan_config_auto open;
};

/* Parses and checks `opt` for graph g into *out, whose arrays are allocated
 * from `a`. Options may also name layers and weights of graph `also`, which is
 * planned together with g; it may be NULL. Adds notes about unusual settings.
 * The caller frees *out with plan_config_free, even after a failure. */
pl_status plan_config_parse(struct plan_config *out, struct arena *a,
                            const pl_graph *g, const pl_graph *also,
                            const pl_options *opt, struct notes *notes,
                            pl_err *err);
void plan_config_free(struct plan_config *in);
/* Returns true if the config keeps the experts of any layer on the host. */
bool plan_config_has_host_experts(const struct plan_config *in);
/* Returns true if the split mode puts accelerators and CPU devices of this
 * machine into one group. Their rates differ so much that devices must carry
 * different numbers of whole ranks, chosen by measured rates. So that the bits
 * of results do not depend on measured rates, the number of ranks is a constant
 * that suffices for any such machine. If `share` is not NULL, only devices with
 * a share above zero count. */
bool plan_config_is_mixed(const struct plan_config *in, const double *share);
/* Returns the end of the group of neighbouring devices that begins with device
 * `first`. Each device is a group of its own in LAYER and NONE mode. */
int plan_config_group_end(const struct plan_config *in, int first);
/* Returns the number of devices of the widest group. */
int plan_config_widest(const struct plan_config *in);

/* ---- printing the config: plan_config_text.c ----------------------------- */

/* Text that plan_config_format appends to. Text beyond the buffer is
 * dropped. */
struct plan_config_text {
    char s[8192];
    size_t n;
};
void plan_config_format(struct plan_config_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends the split mode and the shares as options: "-sm layer -ts 3,1". */
void plan_config_format_mode(struct plan_config_text *t,
                             const struct plan_config *in);
/* Appends the number of layers that are on devices, not on the host: "all" or
 * "20". */
void plan_config_format_layers(struct plan_config_text *t,
                               const struct plan_config *in);
/* Appends the layers whose experts are on the host: "all", "3" (the first
 * three) or "0-3,7-7". Appends "0" if there are none. */
void plan_config_format_experts(struct plan_config_text *t,
                                const struct plan_config *in);
/* Appends the options that reproduce this config and leave nothing to the
 * planner. Devices, cache formats and other options without a part in the
 * config are not included and must be given in addition. n_rank is the number
 * of ranks of the plan. */
void plan_config_print(struct plan_config_text *t, const struct plan_config *in,
                       int n_rank);

#endif
