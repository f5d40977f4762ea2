/* State shared by the files of the lowering. Each says at its top what its idea
 * is; below they stand in the order in which they are best read. */
#ifndef LOWER_LOWER_INNER_H
#define LOWER_LOWER_INNER_H

#include "lower/lower.h"
#include "lower/rank_tree.h"

/* In which runs steps are: those of a message are there twice, for few rows and
 * for many. Rows are n_tok or n_out. */
enum predicate {
    PRED_NONE,
    PRED_ONE_SHOT_TOK,
    PRED_TWO_SHOT_TOK,
    PRED_ONE_SHOT_OUT,
    PRED_TWO_SHOT_OUT,
    PRED_COUNT
};

/* What the next steps are made for. Who makes some for another micro-batch in
 * between sets it and puts it back. */
struct cursor {
    int micro;                /* micro-batch */
    enum predicate predicate; /* which runs have them */
};

/* ---- a device's program being written ------------------------------------ */

/* The quantized form of a tensor: with one scale for each chunk of the spans,
 * or, if there are none, each block. */
struct draft_q8 {
    int tensor; /* -1: there is none yet */
    int n_span;
    const struct rank_span *span;
};

struct program_builder {
    /* of all scripts */
    struct prog_tensor *tensor;
    int *in_buffer;      /* [n_tensor] its buffer; -1: weights and caches */
    struct draft_q8 *q8; /* [n_tensor] its newest quantized form */
    int n_tensor, tensor_cap;
    struct prog_buffer *buffer;
    int n_buffer, buffer_cap;
    size_t bytes[REGION_COUNT];
    int n_event;
    struct script {
        struct insn *insn;
        int n_insn, insn_cap;
        struct buffer_hold *hold;
        int n_hold, hold_cap;
        int copy_batch; /* of its last copy */
    } script[PROG_MAX_VARIANT];
};

/* ---- values -------------------------------------------------------------- */

/* PARTIAL addends of a unit: entries of one tensor. */
struct addends {
    int tensor; /* the first entry; -1: none */
    size_t stride;
};

/* What must have happened before a value that is on its way is there. */
struct arrival {
    int n, cap;
    struct insn_event *event; /* [n] */
};

/* A value as a group holds it, while its script is written. */
struct placed {
    struct lowered_placed h;
    struct addends *sums;    /* [units] PARTIAL: subtree sums to be reduced */
    struct addends *by_rank; /* [units] PARTIAL: one entry a present rank */
    int *ready;              /* [units] event that says it is there, or -1 */
    struct arrival *arrives; /* [units] to wait for before use */
};

/* ---- a device in a group ------------------------------------------------- */

/* A tensor that peers read until they have taken another message. */
struct peer_read {
    int tensor, micro;
};

/* What a unit's messages have read and written so far. */
struct shard_collectives {
    /* By micro-batch: where in the order the last message by inboxes began.
       Its peers push the next one only after this one's POST, which comes
       later, so a place in the inbox is free from there on. -1: there was
       none. */
    int reusable_from[PROG_MAX_MICRO];
    struct peer_read
        *peer_read; /* read in messages not yet followed by another */
    int n_lent, lent_cap;
};

/* The token table of a micro-batch, as far as a unit has it: lower_io.c's. */
struct shard_token_table {
    int tensor;     /* -1: not here */
    int ready;      /* event that says to the copy queue that it is, or -1 */
    bool peer_read; /* the copy queue reads it, nobody says until when */
};

struct shard {
    struct lower_shard u;
    int local; /* index in its group */
    struct shard_collectives collectives;
    struct shard_token_table token_table[PROG_MAX_MICRO];
};

/* ---- the lowering -------------------------------------------------------- */

/* The script being written. */
struct variant_builder {
    int index;              /* among the scripts */
    const int *at;          /* [num->n] group that computes each node */
    struct placed ***value; /* [n_micro][num->n]; NULL: no script yet */
    int order;              /* of the next step, in the total order */
    int copy_batch;         /* of copies that set out together */
    int copy_cap;           /* of the lowered script's copies */
};

struct lower {
    /* fixed for the call */
    const struct numeric *num;
    const pl_graph *g;
    const struct lower_options *opt; /* "io" is its last group and unit */
    struct lowered *out;
    struct arena *a; /* out's */
    pl_err *err;
    int *user0, *user; /* readers of node i: user[user0[i] .. user0[i + 1]) */
    const int **group_dev;  /* [n_group] devices of its units */
    struct placed **stored; /* [num->n] weights and caches, for all scripts */
    uint64_t *present;      /* [num->n] PARTIAL: ranks that have an addend */
    int64_t one_shot_rows;  /* most rows for which a collective takes one shot:
                               those of the first sum that needs two; 0: none
                               did yet */

    struct program_builder *dev; /* [n_dev] */
    struct shard *shard;         /* [n_unit] */
    struct variant_builder variant;
    struct cursor now;

    /* one file's own each; in w->a */
    struct partials *partials; /* lower_partial.c */
    struct transits
        *transits;           /* lower_inflight.c; NULL: nothing was lent yet */
    struct streams *streams; /* lower_stream.c, of the script */
};

/* The graph's node of value i. */
static inline const struct graph_node *lower_node(const struct lower *w, int i)
{
    return &w->g->node[w->num->node[i].node];
}

/* Is value i the result of this op, and no conversion? */
static inline bool lower_is(const struct lower *w, int i, enum op op)
{
    return w->num->node[i].kind == NUM_OP && lower_node(w, i)->op == op;
}

static inline const struct lower_group *lower_group(const struct lower *w,
                                                    int group)
{
    return &w->opt->group[group];
}

/* The device of unit u. */
static inline int lower_dev(const struct lower *w, int u)
{
    return w->shard[u].u.dev;
}

/* The first failure to allocate in the arena. */
static inline pl_status lower_memory(const struct lower *w)
{
    return arena_check(w->a, "a program", w->err);
}

/* ---- lower.c, lower_passes.c --------------------------------------------- */

pl_status lower_passes(struct lower *w);
/* Emits the instructions of variant k, in the total order. */
pl_status lower_variant(struct lower *w, int k);
/* The programs that have been emitted, in w->out; the builders keep their
 * memory. */
void lower_draft(struct lower *w);

/* ---- lower_builder.c -------------------------------------------------------
 */

/* Room for one more than the n that *p has: by realloc, to be freed; or in
 * w->a. */
pl_status lower_grow(struct lower *w, void **p, int n, int *cap, size_t size);
pl_status lower_grow_arena(struct lower *w, void **p, int n, int *cap,
                           size_t size);
/* Value i's dimensions as unit u stores them. */
void lower_dims(const struct lower *w, int u, int i, pl_dim *dim);
/* How unit u stores value i's dimension `dim`. */
pl_status lower_local(struct lower *w, int u, int i, int dim,
                      struct layout_local *out);
pl_dim lower_product(const pl_dim *dim, int from, int to, int64_t factor);
/* Adds b to a sum of a constant or n_tok part and an n_out part. */
void lower_add_bytes(pl_dim sum[2], pl_dim b);

/* New tensor of device d, in the work region, in a buffer of its own. The
 * buffer has room for `entries` such values one after another, *stride bytes
 * apart (stride may be NULL); the tensor is the first of them, lower_alias()
 * makes the others. entries 0: it has no buffer, and lower_append() says where
 * it lies; -1: a single entry, of which dim counts bytes and not values. */
pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out,
                       size_t *stride);
/* A tensor of device d's inbox, which peers may write from position `born` of
 * the order on; at most `most` of what its dimensions count (0: as many as the
 * program allows). */
pl_status lower_inbox_tensor(struct lower *w, int d, pl_format f, int n_dim,
                             const pl_dim *dim, int born, int64_t most,
                             int *out);
/* Tensor t, just made, lies in the inbox, and its buffer is born at `born`. */
void lower_to_inbox(struct program_builder *v, int t, int born);
/* The same memory under other dimensions, `offset` bytes in. */
pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out);
/* Appends an instruction. Its micro-batch and order are the current ones; a
 * barrier's order is given. */
pl_status lower_insn(struct lower *w, int d, const struct insn *s);
/* The tensor's buffer lives up to here, whatever touches it; or up to position
 * `until` of the order. Tensors without a buffer, and -1, are ignored. */
pl_status lower_hold(struct lower *w, int d, int tensor);
pl_status lower_hold_until(struct lower *w, int d, int tensor, int until);

/* A POST in the queue; *event is its number. */
pl_status lower_post(struct lower *w, int d, enum queue q, int *event);
/* The same, but the POST comes later: see enum post_time. */
pl_status lower_post_at(struct lower *w, int d, enum queue q,
                        enum post_time time, int *event);
pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event);
/* A WAIT of the compute queue for events of several devices, this one perhaps
 * among them. e[n] is the caller's to keep in w->a; several devices may have
 * the same. */
pl_status lower_wait_all(struct lower *w, int d, const struct insn_event *e,
                         int n);
/* Batched or deferred POSTs of the queue are due. */
pl_status lower_flush_posts(struct lower *w, int d, enum queue q);
/* Copies are about to enter the device's copy queue: those of an earlier wave
 * are posted before. */
pl_status lower_begin_copies(struct lower *w, int d);

/* ---- lower_value.c ------------------------------------------------------ */

/* Value i in a group, NULL: not there. */
struct placed *lower_find(const struct lower *w, int i, int group);
/* Value i in a group from now on, all its tensors -1. */
pl_status lower_add_value(struct lower *w, int i, int group,
                          struct placed **out);
/* The tensor of value i (of a weight: packed or plain form) at unit u, which
 * must hold it. */
static inline struct lowered_value *lower_value(const struct placed *h,
                                                const struct shard *u)
{
    return &h->h.v[u->local];
}
/* The value is about to be used at unit u. */
pl_status lower_await_value(struct lower *w, const struct placed *h, int u);
/* The event that says that unit u has its part of the value. */
pl_status lower_ready_event(struct lower *w, struct placed *h, int u,
                            int *event);
/* The script ends: what nobody has waited for may come until then. */
pl_status lower_end_arrivals(struct lower *w, int n_micro);

/* ---- lower_resident.c ------------------------------------------------------
 */

/* What operand k of this op, if it is a weight, is read for. */
enum weight_use lower_weight_use(enum op op, int k);
/* Spans of a dimension that a device stores, ascending, with the rank that
 * counts each. */
pl_status lower_spans(struct lower *w, const struct layout_local *m,
                      struct rank_span **out, int *n);
/* Weights and caches of all groups. */
pl_status lower_stored(struct lower *w);
/* The packed form of weight i as unit u would hold it. */
pl_status lower_pack(struct lower *w, int u, int i, struct pack **out);
/* Matrices of weight i that unit u holds: experts, or one. */
int64_t lower_matrices(const struct lower *w, int u, int i);
/* Gives tensor t, which has no buffer, the next `bytes` of a region. */
void lower_append(struct program_builder *v, int t, enum region r,
                  size_t bytes);

/* ---- lower_io.c -------------------------------------------------------- */

/* Memory of "io" for inputs: for good. */
pl_status lower_io(struct lower *w);
/* A script begins: io has its inputs, and no results. */
pl_status lower_io_begin(struct lower *w, struct lowered_variant *o);
/* Input i in a group, with the others that are read there. */
pl_status lower_input(struct lower *w, int i, int group);
/* The micro-batch's token table at unit u. */
pl_status lower_token_table(struct lower *w, int u, int *tensor);
/* The same for a step in the device's copy queue, which comes behind *event;
 * NULL: behind all that the compute queue has now. */
pl_status lower_token_table_copied(struct lower *w, int u, int *tensor,
                                   int *event);
/* Value i is there: to io, if the caller may want it. */
pl_status lower_output(struct lower *w, int i);
/* The script ends: token tables that the copy queue may still read. */
pl_status lower_end_token_tables(struct lower *w, int n_micro);

/* ---- lower_op.c -------------------------------------------------------- */

/* Op i at unit u: in[] and out are tensors; tree says which ranks' addends
 * (contractions) and stride where they go. */
pl_status lower_op(struct lower *w, int u, int i, const int *in, int out,
                   const struct rank_tree *tree, size_t stride, bool memo_q8);
/* What the step of an op of the caller's own carries beside; if a letter is
 * summed over, also the copies before it: what its rank has of operands. */
pl_status lower_custom(struct lower *w, int u, int i, struct insn_kernel *s);
/* The tensor that op i reads as operand k at unit u; -1: absent. Waits for it
 * if it is on its way. */
pl_status lower_operand(struct lower *w, int u, int i, int k, int *out);
/* Op i, not PARTIAL, at all units of its group. */
pl_status lower_op_all_shards(struct lower *w, int i);

/* ---- lower_partial.c --------------------------------------------------- */

pl_status lower_find_addend_ranks(struct lower *w);
/* Computes the PARTIAL operands of conversions item[n], and what these need. */
pl_status lower_partial_operands(struct lower *w, int n, const int *item);

/* ---- lower_pieces.c ---------------------------------------------------- */

/* Copies from value `from`, as group a holds it, to unit u's part of value `to`
 * of the same graph value: from u itself, and from other devices. */
struct lower_pieces {
    struct copy_desc *p;
    int n, cap;
};
pl_status lower_pieces(struct lower *w, int u, int a, int from, int to,
                       struct lower_pieces *local, struct lower_pieces *remote);
pl_status lower_add_piece(struct lower *w, struct lower_pieces *l,
                          const struct copy_desc *p);

/* ---- lower_slice.c, lower_collective.c --------------------------------------
 */

/* Slice conversion i, in its group. */
pl_status lower_slice(struct lower *w, int i);
/* The message of conversions item[n] of one group; their sources are ready. */
pl_status lower_collective(struct lower *w, int group, int n, const int *item);
/* The script ends: what peers may still read. */
pl_status lower_end_collectives(struct lower *w);

/* ---- lower_copy.c -------------------------------------------------------- */

/* Makes value i (computed, input, weight or cache) available to group b. */
pl_status lower_copy_to_group(struct lower *w, int i, int b);
/* Conversion j of group b whose operand lies in another group. */
pl_status lower_convert_copy(struct lower *w, int j);
/* The addends of PARTIAL value i, rank by rank, to group b. */
pl_status lower_copy_ranks(struct lower *w, int i, int b);
/* Value i is there: starts its copies to the groups that will read it. */
pl_status lower_start_copies(struct lower *w, int i);

/* ---- lower_inflight.c
 * -------------------------------------------------------- */

/* Value h is read by the units of group `to`, who have it when the events of
 * `done` have come. by_rank: its addends, else its value. */
pl_status lower_track_inflight(struct lower *w, const struct placed *h, int to,
                               const struct arrival *done, bool by_rank);
/* The script ends: what is still lent lives to its end. */
pl_status lower_extend_inflight(struct lower *w);

/* ---- lower_stream.c, lower_pages.c --------------------------------------- */

/* Finds the weights that the script streams, and starts the first. */
pl_status lower_find_streams(struct lower *w);
/* Weight i is about to be read in group b: it is there or on its way, and what
 * is read next sets out ahead of its use. */
pl_status lower_prefetch_weights(struct lower *w, int i, int b);
/* The pages of cache value i (a cache, or what was written into it) to group
 * b. */
pl_status lower_stream_pages(struct lower *w, int i, int b);

#endif
