/* What one device runs: flat lists of steps over a table of local tensors.
 *
 * A program is made once, from the plan, for the largest step; sizes that
 * depend on a step are symbolic (pl_dim) and filled in when it runs. It holds
 * no pointers into device memory: tensors are offsets into regions, so it means
 * the same on every kind of device.
 *
 * Scripts. A program has one or more scripts, ways through a step that give the
 * same bits: compute with host weights on the host or stream them, one
 * micro-batch or several in a pipeline. Which one runs is told with the run and
 * is the only choice left to run time. All share weights and caches; their
 * buffers lie over each other, since one runs at a time.
 *
 * Instances. A script works on one or more micro-batches; each of its steps and
 * each tensor whose size depends on a step belongs to one instance. A run may
 * bring fewer: then the steps of the others are passed over by all devices.
 *
 * Order. The steps of all devices stand in one total order (`order`). Each
 * device issues its own in that order, to a compute and a copy queue; steps of
 * one queue run in order, queues and devices run freely against each other
 * except for POST and WAIT. A WAIT names a POST that stands earlier in the
 * total order, so the earliest unfinished step can always run. Devices that
 * share worker threads (the host and cpu devices on its cores) take turns on
 * them in the total order.
 *
 * Where the devices of a group share memory, a MERGE with `meet` replaces
 * POST, PULL and WAIT: all threads of the group meet, then each device reads
 * its peers' memory. A buffer that peers read is written again only after the
 * group's next meeting; the plan keeps it alive until then. Nothing else may
 * touch another device's memory but PULL and PAGES. */
#ifndef DEVICE_PROGRAM_H
#define DEVICE_PROGRAM_H

#include "device/cpu/cpu_kernel.h"
#include "graph/graph.h"

enum region {
    REGION_WEIGHTS,
    REGION_CACHE,
    REGION_WORK, /* activations, inputs, outputs, staging */
    REGION_COUNT
};

/* A contiguous local tensor; dim[] counts this device's part. */
struct prog_tensor {
    pl_format format;
    bool q8; /* holds struct q8_block [rows, k/32] of a [rows, k] tensor */
    int n_dim;
    pl_dim dim[GRAPH_MAX_DIM];
    enum region region;
    size_t offset; /* from the region's start, multiple of 64 */
    size_t bytes;  /* at the largest sizes, for one entry */
    const struct pack *pack;
    int instance; /* whose sizes its dimensions have */
};

/* Two nested strided loops over runs of bytes; all in bytes, offsets from the
 * start of the tensors. */
struct copy_piece {
    int src_dev, src;        /* device in the group, tensor of its program */
    pl_dim src_off, dst_off; /* what grows with the step */
    int64_t src_at, dst_at;  /* and what does not, added to it */
    pl_dim bytes;
    pl_dim n0, src_s0, dst_s0; /* outer loop: count and strides */
    pl_dim n1, src_s1, dst_s1; /* inner loop */
};

/* One value put together on this device: copied from pieces, or, if `reduce`,
 * summed: out = tree over the addends, each read through the same pieces
 * (whose src fields are then unused). Addends are pushed in order on a stack;
 * after each, n_add times the two topmost are replaced by lower + upper; one
 * value remains (the plan sees to it). F32 only when reducing. */
struct merge_addend {
    int dev, tensor;
    size_t off; /* bytes from the tensor's start */
    int n_add;
};
struct merge_item {
    bool reduce;
    int out; /* tensor of this program */
    int n_piece;
    const struct copy_piece *piece;
    int n_addend;
    const struct merge_addend *addend;
    int depth; /* most entries the stack holds */
};

enum step_kind {
    STEP_OP,    /* a kernel */
    STEP_Q8,    /* quantize in[0] into out */
    STEP_MERGE, /* collective or local copy: merge[] */
    STEP_PULL,  /* piece, from other devices into tensor `out` */
    STEP_PAGES, /* pages of a cache, from another device into `out` */
    STEP_POST,  /* event `event` of this device is reached */
    STEP_WAIT,  /* until event `event` of device `dev` is reached */
};

enum queue { QUEUE_COMPUTE, QUEUE_COPY, QUEUE_COUNT };

/* Multiply-adds of a contraction, for the counters: macs times the product of
 * out's dimensions but the last, for each rank. */
struct step_cost {
    int32_t rank;
    int64_t macs; /* a row */
};

struct step {
    enum step_kind kind;
    enum queue queue;
    int order;    /* its place among the steps of all devices; what meets has
                     the same */
    int instance; /* the micro-batch it works for */
    enum op op;
    int node; /* of the graph, for traces and errors; -1 if none */
    struct graph_attr attr;
    int out, n_in, in[GRAPH_MAX_IN]; /* tensors; in = -1: absent */
    int q8;                          /* tensor with in[0] quantized, or -1 */
    struct rank_tree tree;
    size_t out_stride;
    const struct rank_span *span;
    int n_span;
    const int32_t *head_map;
    const struct cpu_custom *custom; /* OP_custom */
    int n_cost;
    const struct step_cost *cost;

    /* MERGE */
    int n_merge;
    const struct merge_item *merge;
    bool meet;
    int group; /* meet: counts meetings of the same devices, < n_group */
    int n_peer;
    const int *peer; /* meet: the devices that meet, this one among them */
    bool message;    /* a collective of a group */
    bool counted;    /* by this device (one of those that take part) */
    pl_dim message_bytes[2]; /* logical bytes: the sum of both */

    /* PULL, PAGES, POST, WAIT */
    const struct copy_piece *piece; /* PULL: n_piece of them */
    int n_piece;
    bool copy;      /* PULL, PAGES: between groups: counts as a copy */
    int dev, event; /* POST, WAIT */

    /* PAGES: for every page that the batch's sequences use, head h of tensor
       `out` from head map[h] (-1: another step brings it) of tensor `src` of
       device `dev`. Tiles of tile_bytes, [page, head]; the numbers of pages are
       the same on both sides. */
    int src;
    const int32_t *map;
    size_t tile_bytes;

    bool barrier; /* this device's threads meet before the step: it reads or
                     overwrites what an earlier step touched */
    /* In a run of a single token the first thread does a small step alone, and
       others go on to the next that is theirs too: fewer must meet. */
    bool alone;
    bool barrier_one; /* in such a run, instead of `barrier` */
};

/* A part of the work region that nobody reads any more once a step after `step`
 * other than POST and WAIT begins; sim devices poison it then. */
struct prog_death {
    int step;
    size_t offset, bytes;
};

enum { PROG_MAX_INSTANCE = 16, PROG_MAX_SCRIPT = 4 };

struct script {
    int n_instance; /* most micro-batches; the same on all devices */
    int n_step;
    const struct step *step; /* ascending order */
    int n_death;
    const struct prog_death *death; /* ascending step */
    bool one_token; /* steps say what is `alone`, and `barrier_one` */
};

struct program {
    int dev;     /* index in the set */
    bool active; /* carries ranks of some group */
    int n_tensor;
    const struct prog_tensor *tensor;
    int n_script; /* the same on all devices */
    const struct script *script;
    int n_event, n_group;
    size_t bytes[REGION_COUNT];
    struct graph_sizes max; /* largest n_tok, n_out of an instance; n_slot as
                               it is */
    int n_seq, page_stride; /* largest batch tables */
};

#endif
