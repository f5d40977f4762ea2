/* Converts a numeric plan and a placement to the devices' programs.
 *
 * Lowering knows which group computes each node, and which ranks each device
 * carries there, but not how devices work. It orders instructions, turns
 * conversions into collectives and group boundaries into copies, runs the ranks
 * of a PARTIAL subgraph one after another, and places buffers by lifetime. It
 * changes no bit, because all that decides bits is in the numeric plan.
 *
 * Names: lower_X is a request, lowered_X its result apart from the programs. A
 * variant has four types: lower_variant requests it, variant_builder
 * (lower_inner.h) is the one being written, lowered_variant lists its
 * transfers, and the program's struct variant has its instructions. */
#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "layout/numeric.h"
#include "program/program.h"

/* The part of a group that one device carries. Devices without ranks have
 * none. */
struct lower_shard {
    int group, dev;
    int rank0, n_rank; /* consecutive */
    rankset ranks;
};

struct lower_group {
    int first, n; /* its shards, in ascending rank0 */
};

/* The properties of a device that lowering needs. */
struct lower_device {
    int machine; /* as in struct device_desc */
    /* devices of a machine with the same number read each other's; -1:
     * private */
    int memory;
    bool one_queue; /* copies run in the order of the other instructions */
    bool reads;     /* its copy queue can read any memory of its machine that is
                       not private */
    double link_bytes_per_s, link_latency_s; /* to its peers; 0: unknown */
    double p2p_bytes_per_s; /* to devices that have it, too; 0: none */
    double network_bytes_per_s, network_latency_s;     /* to other machines; 0:
                                                      unknown */
    unsigned char packing[PL_FORMAT_COUNT][USE_COUNT]; /* enum packing */
    unsigned char activations[PL_FORMAT_COUNT];        /* enum activations */
};

/* A variant to lower: the group that computes each node. A weight or cache that
 * is read in another group than its home group is streamed there. */
struct lower_variant {
    int n_micro;
    const int *at; /* [num->n] group; of leaves, any */
};

/* A request to print what a pass makes: transfers or programs. The names of
 * passes are in lower_passes.c. */
struct lower_dump {
    const char *pass;
    pl_write_fn *write;
    void *user;
};

struct lower_options {
    int n_dev, n_group, n_shard,
        n_variant;                   /* the last device is "io": lower_io.c */
    const struct lower_group *group; /* [n_group] */
    const struct lower_shard *shard; /* [n_shard], by group */
    const int *home;                 /* [num->n] group of weights and caches */
    const struct lower_variant *variant; /* [n_variant] */
    const struct lower_device *dev;      /* [n_dev] */
    struct graph_sizes max;              /* n_slot: exact */
    int page_stride;
    const struct lower_dump *dump; /* NULL: none */
    /* for tests: what the pass "transfer" would choose, for this plan; NULL: it
     * chooses */
    const struct transfers *transfers;
};

/* The location of a value: a tensor of a device's program. */
struct lowered_value {
    int tensor; /* -1 if it is never materialised there */
    /* for weights that are read as plain values, too: that copy, or -1 */
    int plain;
};

/* The location of a value in a group. */
struct lowered_placed {
    int group;
    struct lowered_value *v;     /* [shards of the group] */
    struct lowered_placed *next; /* in another group */
};

struct lowered_collective {
    int node;  /* graph node of its first value */
    int layer; /* of that node; -1 if of none */
    int group;
    enum num_kind kind;
    int n_item;
    pl_dim bytes[2]; /* logical bytes: the sum of both */
};

/* A copy of a value, weight or cache from one group to another. */
struct lowered_copy {
    int node;        /* num node */
    int from, to;    /* groups */
    int layer;       /* -1: of none */
    pl_dim bytes[2]; /* moved, over all receiving devices: the sum; pages of a
                        cache: those of one token */
    bool pages;
};

/* The transfers of a variant, and where its results are. */
struct lowered_variant {
    int n_micro;
    const int *at; /* [num->n] */
    int n_collective;
    struct lowered_collective *collective; /* of one micro-batch */
    int n_copy;
    struct lowered_copy *copy; /* of one micro-batch */
    /* [n_micro][g->n_node] tensor of "io" that has a result after the step; -1
     * if it is not a result */
    int *result;
};

struct lowered {
    struct arena arena;
    const struct numeric *num; /* borrowed */
    int n_dev, n_group, n_shard;
    const struct lower_group *group;
    const struct lower_shard *shard;
    struct program *prog;           /* [n_dev] */
    struct lowered_placed **stored; /* [num->n] of weights and caches */
    int n_micro;                    /* most micro-batches of a variant */
    /* [n_micro][g->n_node] tensor of "io" into which the caller writes an input
     * before the step; -1 if it is not an input */
    int *input;
    /* [n_micro] tensor of "io" into which the caller writes the token table
     * (program_token_table); -1 without a cache */
    int *token_table;
    int n_variant; /* number of variants */
    struct lowered_variant *variant;
};

pl_status lower(struct lowered **out, const struct numeric *num,
                const struct lower_options *opt, pl_err *err);
void lowered_free(struct lowered *l);

/* Checks that a dump names a pass. */
pl_status lower_dump_check(const struct lower_dump *dump, pl_err *err);

/* Returns the location of weight or cache i; NULL if it has none. */
const struct lowered_placed *lowered_stored(const struct lowered *l, int i);

#endif
