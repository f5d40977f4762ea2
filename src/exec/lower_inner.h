/* State shared by the files of the lowering: lower.c orders the steps,
 * lower_op.c writes the steps of ops, lower_message.c those of messages. */
#ifndef EXEC_LOWER_INNER_H
#define EXEC_LOWER_INNER_H

#include "exec/buffers.h"
#include "exec/lower.h"
#include "exec/rank_tree.h"

/* A program being written. */
struct draft {
    rankset ranks;
    int rank0, n_rank;
    struct step *step;
    int n_step, step_cap;
    struct prog_tensor *tensor;
    int *buffer;    /* [n_tensor] buffer it lies in, -1 outside WORK */
    size_t *inside; /* [n_tensor] offset in the buffer */
    int *q8;        /* [n_tensor] its quantized form, or -1 */
    int n_tensor, tensor_cap;
    struct buffer *buf;
    int n_buf, buf_cap;
    size_t weights, cache;       /* region sizes so far */
    struct lowered_value *value; /* [num->n] */
    struct addends {             /* [num->n] PARTIAL values to be reduced */
        int tensor;              /* first result; others follow at stride */
        size_t stride;
    } * addends;
    int meet_step; /* of the last message */
    int *peers;    /* buffers peers read in the last message */
    int n_peers, peers_cap;
};

struct lower {
    const struct numeric *num;
    const pl_graph *g;
    const struct lower_options *opt;
    struct lowered *out;
    struct arena *a;   /* out's */
    struct draft *dev; /* [n_dev] */
    uint64_t *present; /* [num->n] PARTIAL: ranks that have an addend */
    bool *lone;        /* [num->n] a contraction no PARTIAL op reads */
    int order;         /* next place in the order of all devices' steps */
    int *peer, n_peer; /* the devices with ranks: they meet */
    pl_err *err;
};

/* Value i's dimensions as device d stores them. */
void lower_dims(const struct lower *w, int d, int i, pl_dim *dim);
/* How device d stores value i's split dimension (or any dimension `dim`). */
pl_status lower_local(struct lower *w, int d, int i, int dim,
                      struct layout_local *out);
pl_dim lower_product(const pl_dim *dim, int from, int to, int64_t factor);

/* New tensor of the work region (a buffer of its own, `entries` times). */
pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out,
                       size_t *stride);
/* The same memory under other dimensions, `offset` bytes in. */
pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out);
/* Appends a step and counts its uses of buffers. It gets the next place in the
 * order of all steps; a step that meets has it already. */
pl_status lower_step(struct lower *w, int d, const struct step *s);
/* The buffer of `tensor` is touched at step `at`. */
void lower_use(struct draft *v, int tensor, int at);

/* Is operand k of this op, a weight of format f, read in packed form? */
bool lower_reads_packed(enum op op, int k, pl_format f);
/* Weights and caches of all devices. */
pl_status lower_leaves(struct lower *w);
/* Op i on device d: in[] and out are tensors; tree says which ranks' addends
 * (contractions) and stride where they go. */
pl_status lower_op(struct lower *w, int d, int i, const int *in, int out,
                   const struct rank_tree *tree, size_t stride, bool memo_q8);
/* What the step of an op of the caller's own carries beside; if a letter is
 * summed over, also the copies before it: what its rank has of operands. */
pl_status lower_custom(struct lower *w, int d, int i, struct step *s);
/* Copies from value `from` to device d's part of value `to` of the same graph
 * value, in F32 elements: from d itself, and from peers. */
struct lower_pieces {
    struct copy_piece *p;
    int n, cap;
};
pl_status lower_pieces(struct lower *w, int d, int from, int to,
                       struct lower_pieces *local, struct lower_pieces *remote);
/* Slice conversion i on device d. */
pl_status lower_slice(struct lower *w, int d, int i);
/* The message of conversions item[n]; their sources are ready. */
pl_status lower_message(struct lower *w, int n, const int *item);

#endif
