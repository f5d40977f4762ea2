/* From the numeric plan to the devices' programs.
 *
 * Lowering knows which device carries which ranks, and nothing of how devices
 * work. It orders steps, turns conversions into messages, runs the ranks of a
 * PARTIAL region one after another, places buffers by lifetime, and says where
 * threads must meet. It changes no bit: all that decides bits is in the numeric
 * plan. */
#ifndef EXEC_LOWER_H
#define EXEC_LOWER_H

#include "device/program.h"
#include "layout/numeric.h"

struct lower_options {
    int n_dev;
    const int *rank0, *n_rank;         /* [n_dev] consecutive, in order */
    bool share_memory;                 /* messages by meeting, not by copies */
    const struct cpu_kernels *kernels; /* tells which ops read q8 */
    struct graph_sizes max;            /* n_slot: exact */
    int n_seq, page_stride;
};

/* Where a value lies: a tensor of each device's program. */
struct lowered_value {
    int tensor; /* -1: never materialised there */
    int plain;  /* weights read as plain values too: that copy, or -1 */
};

struct lowered {
    struct arena arena;
    const struct numeric *num; /* borrowed */
    int n_dev;
    rankset *dev_ranks;           /* [n_dev] */
    struct program *prog;         /* [n_dev] */
    struct lowered_value **value; /* [n_dev][num->n] */
    int n_message;                /* of a step */
    struct lowered_message {
        int layer; /* of the op that made it, -1 outside */
        enum num_kind kind;
        int n_item;
        pl_dim bytes, more; /* logical, the sum of both: values that grow with
                               n_tok and such that grow with n_out */
    } * message;
};

pl_status lower(struct lowered **out, const struct numeric *num,
                const struct lower_options *opt, pl_err *err);
void lowered_free(struct lowered *l);

#endif
