/* From the numeric plan and a placement to the devices' programs.
 *
 * Lowering knows which group computes each node and which device carries which
 * ranks there, and nothing of how devices work. It orders steps, turns
 * conversions into messages and group boundaries into copies, runs the ranks of
 * a PARTIAL subgraph one after another, and places buffers by lifetime. It
 * changes no bit: all that decides bits is in the numeric plan.
 *
 * Names: lower_X is a request, lowered_X its result apart from the programs. A
 * variant has four types: lower_variant requests it, variant_builder
 * (lower_inner.h) is the one being written, lowered_variant lists its
 * transfers, and the program's struct variant has its instructions. */
#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "layout/numeric.h"
#include "program/program.h"

/* A device's part in a group. Only those with ranks are units. */
struct lower_shard {
    int group, dev;
    int rank0, n_rank; /* consecutive */
    rankset ranks;
};

struct lower_group {
    int first, n; /* its units, ascending rank0 */
};

/* What lowering asks of a device. */
struct lower_device {
    int memory;     /* devices of one number read each other's; -1: private */
    bool one_queue; /* copies run among the other steps */
    bool reads;     /* any memory that is not private, by its copy queue */
    double link_bytes_per_s, link_latency_s; /* to its peers; 0: unknown */
    double p2p_bytes_per_s; /* to those that have it too; 0: none */
    unsigned char packing[PL_FORMAT_COUNT][USE_COUNT]; /* enum packing */
    unsigned char activations[PL_FORMAT_COUNT];        /* enum activations */
};

/* A script that is asked for: where each node is computed. A weight or cache
 * that is read in another group than its home is streamed there. */
struct lower_variant {
    int n_micro;
    const int *at; /* [num->n] group; leaves: any */
};

/* Prints the programs as a pass leaves them (lower_passes.c has the names). */
struct lower_dump {
    const char *pass;
    pl_write_fn *write;
    void *user;
};

struct lower_options {
    int n_dev, n_group, n_shard,
        n_variant;                   /* the last device is "io": lower_io.c */
    const struct lower_group *group; /* [n_group] */
    const struct lower_shard *shard; /* [n_unit], by group */
    const int *home;                 /* [num->n] group of weights and caches */
    const struct lower_variant *variant; /* [n_variant] */
    const struct lower_device *dev;      /* [n_dev] */
    struct graph_sizes max;              /* n_slot: exact */
    int page_stride;
    const struct lower_dump *dump; /* NULL: none */
};

/* Where a value lies: a tensor of a device's program. */
struct lowered_value {
    int tensor; /* -1: never materialised there */
    int plain;  /* weights read as plain values too: that copy, or -1 */
};

/* A value as it lies in a group. */
struct lowered_placed {
    int group;
    struct lowered_value *v;     /* [units of the group] */
    struct lowered_placed *next; /* another group's */
};

struct lowered_collective {
    int layer; /* of the first value of it, -1: of none */
    int group;
    enum num_kind kind;
    int n_item;
    pl_dim bytes[2]; /* logical: the sum of both */
};

/* A value, weight or cache that goes from one group to another. */
struct lowered_copy {
    int node;        /* num node */
    int from, to;    /* groups */
    int layer;       /* -1: of none */
    pl_dim bytes[2]; /* moved, over all receiving devices: the sum; pages of a
                        cache: those of one token */
    bool pages;
};

/* What a script of the programs exchanges, and where its results are. */
struct lowered_variant {
    int n_micro;
    const int *at; /* [num->n] */
    int n_collective;
    struct lowered_collective *collective; /* of one micro-batch */
    int n_copy;
    struct lowered_copy *copy; /* of one micro-batch */
    int *result; /* [n_micro][g->n_node] tensor of "io" where a result is
                    after the run; -1: it is none */
};

struct lowered {
    struct arena arena;
    const struct numeric *num; /* borrowed */
    int n_dev, n_group, n_shard;
    const struct lower_group *group;
    const struct lower_shard *shard;
    struct program *prog;           /* [n_dev] */
    struct lowered_placed **stored; /* [num->n] of weights and caches */
    int n_micro;                    /* most micro-batches of a script */
    int *input;       /* [n_micro][g->n_node] tensor of "io" where an input is
                         put before the run; -1: it is none */
    int *token_table; /* [n_micro] tensor of "io" where the token table is put
                         (program_token_table); -1: no cache, no table */
    int n_variant;    /* scripts of the programs */
    struct lowered_variant *variant;
};

pl_status lower(struct lowered **out, const struct numeric *num,
                const struct lower_options *opt, pl_err *err);
void lowered_free(struct lowered *l);

/* Checks that a dump names a pass. */
pl_status lower_dump_check(const struct lower_dump *dump, pl_err *err);

/* Where weight or cache i lies; NULL: nowhere. */
const struct lowered_placed *lowered_stored(const struct lowered *l, int i);

#endif
