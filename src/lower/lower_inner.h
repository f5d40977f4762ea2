/* State shared by the files of lowering. The header of each file explains its
 * idea. The sections below are in the best order to read them. */
#ifndef LOWER_LOWER_INNER_H
#define LOWER_LOWER_INNER_H

#include "lower/lower.h"
#include "lower/rank_tree.h"
#include "lower/transfers.h"

/* The micro-batch and the predicate of the next instructions. A function that
 * emits instructions for others restores it afterwards. */
struct cursor {
    int micro;
    bool pred_out; /* as in struct insn */
    int64_t min_rows, max_rows;
};

/* ---- a device's program being written ------------------------------------ */

/* The quantized form of a tensor. It has one scale per chunk of the spans or,
 * without spans, per block. */
struct draft_q8 {
    int tensor; /* -1 if there is none yet */
    int n_span;
    const struct rank_span *span;
};

/* Its arrays are in lower.scratch. */
struct program_builder {
    /* of all variants */
    struct prog_tensor *tensor;
    /* [n_tensor] its buffer; -1 if it has none, as weights and caches */
    int *in_buffer;
    struct draft_q8 *q8; /* [n_tensor] newest quantized form */
    int n_tensor;
    struct prog_buffer *buffer;
    int n_buffer;
    size_t bytes[REGION_COUNT];
    int n_event;
    struct variant_draft {
        struct insn *insn;
        int n_insn;
        struct buffer_hold *hold;
        int n_hold;
        int copy_batch; /* of its last copy */
    } draft[PROG_MAX_VARIANT];
};

/* ---- values -------------------------------------------------------------- */

/* The PARTIAL addends of a shard: entries of one tensor. */
struct addends {
    int tensor; /* the first entry; -1: none */
    size_t stride;
};

/* The events to wait for before a value that is being copied can be used. */
struct arrival {
    int n;
    struct insn_event *event; /* [n] */
};

/* A value in a group, while a variant is written. */
struct placed {
    struct lowered_placed h;
    struct addends *sums;    /* [shards] PARTIAL: subtree sums to be reduced */
    struct addends *by_rank; /* [shards] PARTIAL: one entry per present rank */
    /* [shards] event posted when it is computed; -1 if none */
    int *ready;
    struct arrival *arrives; /* [shards] to wait for before use */
};

/* ---- a device in a group ------------------------------------------------- */

/* A tensor that others read without an event afterwards: until the group's next
 * collective of this micro-batch; micro -1: until the variant ends. */
struct peer_read {
    int tensor, micro;
};

/* The state of a shard's collectives so far. */
struct shard_collectives {
    /* By micro-batch: the position in the order where the last collective by
     * inboxes began; -1 if there was none. Peers push the next collective only
     * after the POST of this one, which comes later. So memory of the inbox is
     * free from that position on. */
    int reusable_from[PROG_MAX_MICRO];
    struct peer_read *peer_read; /* not released by a later collective */
    int n_lent;
};

struct shard {
    struct lower_shard u;
    int local; /* index in its group */
    struct shard_collectives collectives;
};

/* ---- the lowering -------------------------------------------------------- */

/* The variant that is being written. */
struct variant_builder {
    int index;     /* index of the variant */
    const int *at; /* [num->n] group that computes each node */
    /* [n_micro][num->n + 1], the last is the token table; NULL before the first
     * variant */
    struct placed ***value;
    /* position of the next instruction in the total order */
    int order;
    const struct variant_transfers *transfers;
    int next_weight; /* index of the first transfer that no prefetch reached */
    int copy_batch;  /* number of the current copy batch */
};

struct lower {
    /* fixed for the call */
    const struct numeric *num;
    const pl_graph *g;
    const struct lower_options *opt; /* "io" is its last group and shard */
    struct lowered *out;
    struct arena *a;      /* out's */
    struct arena scratch; /* until the last pass */
    pl_err *err;
    struct transfers *transfers; /* of all variants */
    struct placed **stored; /* [num->n] weights and caches, for all variants */
    uint64_t *present;      /* [num->n] PARTIAL: ranks that have an addend */

    struct program_builder *dev; /* [n_dev] */
    struct shard *shard;         /* [n_shard] */
    struct variant_builder variant;
    struct cursor now;

    /* each used by one file; in w->a */
    struct partials *partials;      /* lower_partial.c */
    struct inflight_copy *inflight; /* lower_inflight.c; in order of start */
    int n_inflight;
};

/* Returns the graph node of value i. */
static inline const struct graph_node *lower_node(const struct lower *w, int i)
{
    return &w->g->node[w->num->node[i].node];
}

/* Returns true if value i is the result of this op, not a conversion. */
static inline bool lower_is(const struct lower *w, int i, enum op op)
{
    return w->num->node[i].kind == NUM_OP && lower_node(w, i)->op == op;
}

/* Returns true if value i is an input, a weight or a cache. */
static inline bool lower_is_leaf(const struct lower *w, int i)
{
    return w->num->node[i].kind == NUM_OP &&
           !op_info(lower_node(w, i)->op)->dims;
}

/* Returns true if value i is an op's PARTIAL result. i may be -1. */
static inline bool lower_is_partial(const struct lower *w, int i)
{
    return i >= 0 && w->num->node[i].kind == NUM_OP &&
           w->num->node[i].layout->kind == PL_PARTIAL;
}

static inline const struct lower_group *lower_group(const struct lower *w,
                                                    int group)
{
    return &w->opt->group[group];
}

/* Returns the device of shard u. */
static inline int lower_dev(const struct lower *w, int u)
{
    return w->shard[u].u.dev;
}

/* Returns PL_NO_MEMORY if any allocation in the arenas has failed, else
 * PL_OK. */
static inline pl_status lower_memory(const struct lower *w)
{
    return arena_check(w->scratch.failed_bytes ? &w->scratch : w->a,
                       "a program", w->err);
}

/* ---- lower_place.c ------------------------------------------------------- */

/* Returns true if each run of n adjacent shards of the group carries the ranks
 * of a complete subtree. */
bool lower_are_subtrees(const struct lower *w, const struct lower_group *g,
                        int n);
/* Pass "place": sets w->transfers. */
pl_status lower_place(struct lower *w);

/* ---- lower.c, lower_passes.c --------------------------------------------- */

pl_status lower_passes(struct lower *w);
/* Emits the instructions of variant k, in the total order. */
pl_status lower_variant(struct lower *w, int k);
/* Sets w->out->prog to the programs that were emitted. Their arrays are still
 * the builders' memory. */
void lower_build_programs(struct lower *w);

/* ---- lower_builder.c ----------------------------------------------------- */

/* Sets dim[] to the dimensions of value i as shard u stores it. */
void lower_dims(const struct lower *w, int u, int i, pl_dim *dim);
/* Sets *out to the indices of dimension `dim` of value i that shard u
 * stores. */
pl_status lower_local(struct lower *w, int u, int i, int dim,
                      struct layout_local *out);
pl_dim lower_product(const pl_dim *dim, int from, int to, int64_t factor);
/* Adds b to a sum of a constant or n_tok part and an n_out part. */
void lower_add_bytes(pl_dim sum[2], pl_dim b);

/* Adds a tensor of device d, in the work region, in a buffer of its own. The
 * buffer has space for `entries` such values, *stride bytes apart (`stride` may
 * be NULL). The tensor is the first of them; lower_alias makes the others. If
 * `entries` is 0, the tensor has no buffer, and lower_append sets its offset.
 * If it is -1, there is one entry, and `dim` counts bytes instead of values. */
pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out,
                       size_t *stride);
/* Adds a tensor of device d's inbox, which peers may write from position `born`
 * of the order on. `most` limits what its dimensions count; 0 means the largest
 * sizes of the program. */
pl_status lower_inbox_tensor(struct lower *w, int d, pl_format f, int n_dim,
                             const pl_dim *dim, int born, int64_t most,
                             int *out);
/* Moves the buffer of the new tensor t to the inbox. It is born at `born`. */
void lower_to_inbox(struct program_builder *v, int t, int born);
/* Adds a tensor with other dimensions in the memory of `tensor`, from byte
 * `offset` on. */
pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out);
/* Appends an instruction. Sets its micro-batch, predicate and order to the
 * current ones, but leaves the order of a barrier. */
pl_status lower_insn(struct lower *w, int d, const struct insn *s);
/* Keep the tensor's buffer up to the current position of the order, or up to
 * `until`, even if no instruction accesses it. Tensors without a buffer, and
 * -1, are ignored. */
pl_status lower_hold(struct lower *w, int d, int tensor);
pl_status lower_hold_until(struct lower *w, int d, int tensor, int until);

/* Emits a POST in the queue. Sets *event to the number of its event. */
pl_status lower_post(struct lower *w, int d, enum queue q, int *event);
/* Emits a POST that may be put off; see enum post_time. */
pl_status lower_post_at(struct lower *w, int d, enum queue q,
                        enum post_time time, int *event);
pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event);
/* Emits a WAIT of the compute queue for the events e[n] of several devices,
 * possibly including this one. e[] must be in w->a; several devices may share
 * it. */
pl_status lower_wait_all(struct lower *w, int d, const struct insn_event *e,
                         int n);
/* Emits the batched or deferred POSTs of the queue. */
pl_status lower_flush_posts(struct lower *w, int d, enum queue q);
/* Called before copies are emitted in the device's copy queue: posts those of
 * an earlier copy batch. */
pl_status lower_begin_copies(struct lower *w, int d);

/* ---- lower_value.c ------------------------------------------------------- */

/* Returns value i in a group (-1: the micro-batch's token table); NULL if the
 * group does not have it. */
struct placed *lower_find(const struct lower *w, int i, int group);
/* Adds value i to a group, with all its tensors -1. */
pl_status lower_add_value(struct lower *w, int i, int group,
                          struct placed **out);
/* Returns the tensors of a value (of a weight, packed and plain form) on shard
 * u, which must have it. */
static inline struct lowered_value *lower_value(const struct placed *h,
                                                const struct shard *u)
{
    return &h->h.v[u->local];
}
/* Emits the WAITs that shard u needs before it uses the value. */
pl_status lower_await_value(struct lower *w, const struct placed *h, int u);
/* Sets *event to the event that is posted when shard u has its part of the
 * value. */
pl_status lower_ready_event(struct lower *w, struct placed *h, int u,
                            int *event);
/* Keeps values that are still being received until the variant ends. */
pl_status lower_end_arrivals(struct lower *w, int n_micro);

/* ---- lower_resident.c ---------------------------------------------------- */

/* Returns what the op uses operand k for, if that is a weight. */
enum weight_use lower_weight_use(enum op op, int k);
/* Sets *out to the spans of a dimension that a device stores, ascending, each
 * with the rank that counts it. */
pl_status lower_spans(struct lower *w, const struct layout_local *m,
                      struct rank_span **out, int *n);
/* Adds the weights and caches of all groups. */
pl_status lower_stored(struct lower *w);
/* Sets *out to the packed form of weight i as shard u would store it. */
pl_status lower_pack(struct lower *w, int u, int i, struct pack **out);
/* Returns the number of matrices of weight i on shard u: of its experts, or
 * 1. */
int64_t lower_matrices(const struct lower *w, int u, int i);
/* Assigns the next `bytes` of a region to tensor t, which has no buffer. */
void lower_append(struct program_builder *v, int t, enum region r,
                  size_t bytes);

/* ---- lower_io.c ---------------------------------------------------------- */

/* Adds the inputs to the memory of "io". All variants use them. */
pl_status lower_io(struct lower *w);
/* Begins a variant: "io" has its inputs, and no results. */
pl_status lower_io_begin(struct lower *w, struct lowered_variant *o);
/* Transfers all inputs that the transfer's group reads. */
pl_status lower_inputs(struct lower *w, const struct transfer *t);
/* Transfers a result to "io". */
pl_status lower_result(struct lower *w, const struct transfer *t);
/* Sets *tensor to the micro-batch's token table on shard u. */
pl_status lower_token_table(struct lower *w, int u, int *tensor);
/* Sets *tensor to the token table for an instruction in the copy queue, which
 * must wait for *event. `event` may be NULL if it waits for all that is in the
 * compute queue now. */
pl_status lower_token_table_copied(struct lower *w, int u, int *tensor,
                                   int *event);
/* ---- lower_op.c ---------------------------------------------------------- */

/* Emits op i on shard u. in[] and `out` are tensors. `tree` has the ranks whose
 * addends a contraction computes; the sums are `stride` bytes apart. */
pl_status lower_op(struct lower *w, int u, int i, const int *in, int out,
                   const struct rank_tree *tree, size_t stride, bool memo_q8);
/* Fills in the instruction of a caller-defined op. If a dimension is summed
 * over, also emits the copies before it, of the parts of the operands that its
 * rank has. */
pl_status lower_custom(struct lower *w, int u, int i, struct insn_kernel *s);
/* Sets *out to the tensor that op i reads as operand k on shard u; -1 if
 * absent. Waits for it if it is being copied. */
pl_status lower_operand(struct lower *w, int u, int i, int k, int *out);
/* Emits op i, which is not PARTIAL, on all shards of its group. */
pl_status lower_op_all_shards(struct lower *w, int i);

/* ---- lower_partial.c ----------------------------------------------------- */

pl_status lower_find_addend_ranks(struct lower *w);
/* Computes the PARTIAL operands of conversions item[n], and what these need. */
pl_status lower_partial_operands(struct lower *w, int n, const int *item);

/* ---- lower_pieces.c ------------------------------------------------------ */

/* The copies from value `from` in group a to shard u's part of value `to`, of
 * the same graph value: from shard u itself (local), and from other devices. */
struct lower_pieces {
    struct copy_desc *p;
    int n;
};
pl_status lower_pieces(struct lower *w, int u, int a, int from, int to,
                       struct lower_pieces *local, struct lower_pieces *remote);
pl_status lower_add_piece(struct lower *w, struct lower_pieces *l,
                          const struct copy_desc *p);
/* Sets *out to the shards of group a, a bit each, from which lower_pieces would
 * copy. No tensor need exist yet. */
pl_status lower_sources(struct lower *w, int u, int a, int from, int to,
                        uint64_t *out);

/* ---- lower_slice.c, lower_collective.c ----------------------------------- */

/* Emits the slice conversion i in its group. */
pl_status lower_slice(struct lower *w, int i);
/* Emits the collective of conversions item[n] of one group, whose sources are
 * computed. */
pl_status lower_collective(struct lower *w, int group, int n, const int *item);
/* Keeps a tensor of shard u that others read; see struct peer_read. */
pl_status lower_keep(struct lower *w, int u, int tensor, int micro);
/* Keeps the buffers that others may still read when the variant ends. */
pl_status lower_end_collectives(struct lower *w);

/* ---- lower_copy.c -------------------------------------------------------- */

/* Makes group b have value i (computed, input, weight or cache; -1: the token
 * table) as value `as`: emits its transfer, if there is one and the group does
 * not have it yet. */
pl_status lower_materialize(struct lower *w, int i, int as, int b);
/* Starts the transfers of value i, which was just computed. Late ones start at
 * their first reader; in a pipeline, their source posts now. */
pl_status lower_start_transfers(struct lower *w, int i);

/* ---- lower_inflight.c ---------------------------------------------------- */

/* Keeps value h while the shards of group `to` copy it: until the events of
 * `done`. by_rank: they copy its addends, else the value. */
pl_status lower_track_inflight(struct lower *w, const struct placed *h, int to,
                               const struct arrival *done, bool by_rank);
/* Keeps the values that are still being copied until the variant ends. */
pl_status lower_extend_inflight(struct lower *w);

/* ---- lower_stream.c, lower_pages.c --------------------------------------- */

/* Starts the transfers of the first weights that the variant streams. */
pl_status lower_first_weights(struct lower *w);
/* Called before a weight is read: transfers it unless that was started before,
 * and starts the transfers of the weights that are read next. */
pl_status lower_weights(struct lower *w, const struct transfer *t);
/* Returns the cache of which value i is a later state. */
int lower_memory_of(const struct lower *w, int i);
/* Transfers the pages of a cache, or of a cache after a write. */
pl_status lower_pages(struct lower *w, const struct transfer *t);

#endif
