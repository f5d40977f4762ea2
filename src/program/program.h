/* The program of one device: flat lists of instructions over a table of local
 * tensors.
 *
 * A program is built once, from the plan, for the largest micro-batches. Sizes
 * that depend on the step are symbolic (pl_dim) and evaluated when it begins. A
 * program has no pointers into device memory: tensors are offsets into regions,
 * so the program is valid on every backend. A backend derives the rest when it
 * loads the program, for example its thread barriers and fused instructions.
 *
 * Step and instruction. A *step* is what one call of pl_exec_step starts: every
 * device executes its program once. An *instruction* is an element of a
 * program.
 *
 * Variants. A program has one or more variants, lists of instructions that give
 * the same bits. They compute with host weights on the host or stream them, and
 * run one micro-batch or several in a pipeline. The step names its variant,
 * which is the only choice made at run time. Variants share weights and caches.
 * Their buffers overlap, because only one variant runs at a time.
 *
 * Micro-batches. A variant works on one or more micro-batches. Each of its
 * instructions belongs to one micro-batch, and so does each tensor whose size
 * depends on the step. A step may have fewer micro-batches. All devices then
 * skip the instructions of the others.
 *
 * Order. The instructions of all devices have one total order (`order`). Each
 * device issues its own instructions in that order, to a compute and a copy
 * queue. Instructions of one queue run in order. Queues and devices run
 * independently of each other except for POST and WAIT. A WAIT names a POST
 * earlier in the total order, so the earliest unfinished instruction can always
 * run. Devices that share worker threads (the host and cpu devices on its
 * cores) take turns on them in the total order.
 *
 * On one device a WAIT for another device's event, or a barrier, depends on
 * every earlier POST or barrier of that device, whatever the queue. The
 * dependency is the order of one queue and its waits for the other's events. So
 * hardware may run the two queues as one, in any order that these dependencies
 * allow. Whatever the first blocked instruction waits for is then still
 * executed before it.
 *
 * Other devices' memory is accessed in four ways. Devices that share memory use
 * a *barrier*: a MERGE with `barrier`. All threads of the group synchronize,
 * then each device reads its peers' buffers. These are written again only after
 * the group's next barrier. All other devices PUSH what a peer needs into its
 * inbox and POST; the peer WAITs and reads it. An inbox is written only by
 * pushes, so a device may keep a copy of it where reads are fast. A device may
 * push to itself. PULL and PAGES read memory that the device can access, mostly
 * the host's.
 *
 * The last device, "io", runs no kernels. The caller writes a step's inputs
 * into its work region and reads the results from its inbox. Other devices PULL
 * the inputs, or the io device PUSHes them. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "program/kernel.h"
#include "quant/pack.h"

enum region {
    REGION_WEIGHTS,
    REGION_CACHE,
    REGION_WORK,  /* activations, inputs, outputs and other buffers of one
                     step */
    REGION_INBOX, /* received data; the only region that peers write, by PUSH
                     and PAGES only */
    REGION_COUNT
};

/* Returns the name of a region as plans show it, such as "weights". */
const char *region_name(enum region r);

/* A contiguous tensor of one device. dim[] is the shape of the part of a value
 * that this device has. */
struct prog_tensor {
    pl_format format;
    bool q8; /* the tensor consists of struct q8_block: [rows, k / 32] blocks
                for [rows, k] values */
    int n_dim;
    pl_dim dim[GRAPH_MAX_DIM];
    enum region region;
    /* offset in bytes from the start of the region or, until buffers have
     * offsets, from the start of its buffer; a multiple of 64 */
    size_t offset;
    /* Size in bytes at the largest sizes of a step. If a rank tree leaves
     * several sums (n_out), this is the size of one. */
    size_t bytes;
    const struct pack *pack;
    /* index of the micro-batch whose n_tok and n_out the symbolic dimensions
     * stand for */
    int micro;
};

/* A copy: two nested loops, whose body copies `bytes` adjacent bytes. Offsets
 * count from the start of the source and destination tensor. Offsets and
 * strides are in bytes. */
struct copy_desc {
    /* index of the source device in the set; index of the source tensor in that
     * device's program */
    int src_dev, src;
    /* the part of the source's and of the destination's offset that depends on
     * the step, in bytes */
    pl_dim src_off, dst_off;
    /* the constant part of the two offsets, which is added to src_off and
     * dst_off, in bytes */
    int64_t src_const, dst_const;
    pl_dim bytes;
    /* outer loop: number of iterations, stride in the source, stride in the
     * destination */
    pl_dim n0, src_s0, dst_s0;
    /* inner loop: number of iterations, stride in the source, stride in the
     * destination */
    pl_dim n1, src_s1, dst_s1;
};

/* merge_item is a value that a MERGE puts together on this device. Unless
 * `reduce`, the copies piece[] put it together. If `reduce`, it is the sum of
 * the addends, which are F32. Each addend is read by the same copies, whose src
 * fields are not used then. Addends are pushed on a stack, in order. After
 * each, the two topmost entries are replaced by their sum (lower + upper),
 * n_add times. The plan guarantees that one entry remains: the sum. */
struct merge_addend {
    int dev, tensor;
    size_t off; /* offset in bytes in `tensor` from which the copies' source
                   offsets count */
    /* If `tensor` holds only the end of the value, the number of bytes before
     * it. They are subtracted from the copies' source offsets. */
    pl_dim skip;
    int n_add;
};
struct merge_item {
    bool reduce;
    int out; /* index of the tensor of this program that receives the value */
    int n_piece;
    const struct copy_desc *piece;
    int n_addend;
    const struct merge_addend *addend;
    int depth; /* greatest number of entries on the stack */
};

enum insn_kind {
    INSN_KERNEL,
    INSN_MERGE, /* puts values together from copies, or sums addends: a
                   collective, or local */
    INSN_PULL,  /* copies from other devices' tensors into one of this device */
    INSN_PAGES, /* copies the pages of a cache that sequences use, as a pull or
                   a push */
    INSN_PUSH,  /* copies of this device's tensors into peers' inboxes */
    INSN_POST,  /* signals an event of this device, for other queues and
                   devices */
    INSN_WAIT,  /* waits until events of other queues or devices have been
                   signalled */
};

enum queue { QUEUE_COMPUTE, QUEUE_COPY, QUEUE_COUNT };

struct kernel_arg {
    /* index of a tensor of this program; -1 if the argument is absent */
    int tensor;
    enum access access;
};

struct insn_kernel {
    enum kernel kernel;
    int n_arg;
    struct kernel_arg arg[KERNEL_MAX_ARG]; /* the kernel's arguments, in the
                                              order of kernels.def */
    const struct graph_attr *attr;         /* parameters of the op; NULL if all
                                              are zero */
    struct rank_tree tree; /* for a contraction, gather_rows or sum: the ranks
                              and the order of their addends */
    size_t out_stride;     /* distance in bytes between the sums that the rank
                              tree leaves */
    /* Intervals of the dimension that is split: for gather_rows the table's
     * rows, for sum the summed dimension, for quantize the last dimension. NULL
     * for other kernels. */
    const struct rank_span *span;
    int n_span;
    /* If kernel_maps_heads() is true: for each head that this device has of
     * argument *many, the head of argument *few that it shares. Else NULL. */
    const int32_t *head_map;
    /* The caller-defined op, for KERNEL_custom; NULL for other kernels. */
    const struct kernel_custom *custom;
    int n_cost;
    const struct kernel_cost *cost;
};

static inline bool insn_kernel_is_bf16(const struct insn_kernel *k)
{
    return k->attr && k->attr->bf16;
}

struct insn_merge {
    int n_item;
    const struct merge_item *item;
    bool barrier;
    int group; /* for a barrier: index of its group of devices, less than
                  n_group */
    int n_peer;
    const int *peer; /* for a barrier: [n_peer] indices of its devices,
                        including this one */
    bool collective; /* the instruction is part of a collective of its group,
                        for statistics and costs */
    bool counted;    /* this device counts the collective in statistics, so that
                        its peers need not */
    /* bytes of the values that the collective exchanges: the sum of both */
    pl_dim collective_bytes[2];
};

struct insn_pull {
    int out;
    /* number of bytes of `out` that are written, from its start; 0 if all
     * are */
    size_t out_bytes;
    const struct copy_desc *piece;
    int n_piece;
    /* true if this copies between groups, false if it is part of a
     * collective */
    bool between_groups;
};

/* A destination of a PUSH: tensor `out` in the inbox of device `dev`. `at`
 * bytes are added to the destination offsets of the copies. */
struct push_to {
    int dev, out;
    size_t at;
};

/* Copies bytes of this device to the inboxes of other devices, the destinations
 * to[n_to]. Each destination gets all copies. If `scatter`, destination k gets
 * copy k only. */
struct insn_push {
    int n_to;
    const struct push_to *to;
    const struct copy_desc *piece;
    int n_piece;
    bool scatter;
    /* true if this copies between groups, false if it is part of a
     * collective */
    bool between_groups;
};

/* Copies pages of a cache between two devices, one of which is this one: from
 * tensor `src` of device src_dev to tensor `out` of device out_dev. Copies all
 * pages that the micro-batch's sequences use. If the destination is the other
 * device, `out` is in its inbox. Head h of `out` is copied from head map[h] of
 * `src`; if map[h] is -1, another instruction copies it. Both tensors consist
 * of tiles of tile_bytes, [page][head], and page numbers are the same on
 * both. */
struct insn_pages {
    int out_dev, out, src_dev, src;
    /* index of this device's tensor with the micro-batch's token table */
    int token_table;
    const int32_t *map; /* [heads of `out`] for each head of `out`, the head of
                           `src`, or -1 */
    size_t tile_bytes;
};

struct insn_event {
    int dev, event;
};

/* When a POST is due. All but POST_NOW exist only until the pass "events"
 * (lower/events.h). */
enum post_time {
    POST_NOW,
    /* before the device's next instruction other than transfers, once for all
     * that are batched */
    POST_BATCHED,
    POST_DEFERRED, /* before a WAIT for it, or at a POST_FLUSH */
    POST_FLUSH     /* no event: posts the queue's batched or deferred POSTs */
};

struct insn_post {
    int dev, event; /* as in struct insn_event */
    enum post_time time;
};

/* A WAIT for one or more events, usually one. The function wait_event() returns
 * them. */
struct insn_wait {
    struct insn_event first;
    int n_more;
    const struct insn_event *more; /* [n_more] the other events that it waits
                                      for */
};

struct insn {
    enum insn_kind kind;
    enum queue queue;
    /* Position of the instruction in the total order of all devices. The
     * instructions of a barrier's devices have the same position. */
    int order;
    int micro; /* index of the micro-batch to which the instruction belongs */
    int node;  /* graph node that the instruction computes, for traces and
                  errors; -1 if none */
    /* The predicate. The instruction is executed only if n_tok of its
     * micro-batch, or n_out if pred_out, is between min_rows and max_rows. If
     * max_rows is 0, it is always executed. */
    bool pred_out; /* the predicate tests n_out, else n_tok */
    /* for estimates: in steps of few tokens a GPU does the instruction in the
     * launch of an earlier one (backend_ops.mark_launches) */
    bool in_launch;
    int64_t min_rows, max_rows;
    union { /* `kind` tells which member is valid */
        struct insn_kernel kernel;
        struct insn_merge merge;
        struct insn_pull pull;
        struct insn_push push;
        struct insn_pages pages;
        struct insn_event event; /* the event that a POST signals, or the first
                                    event of a WAIT */
        struct insn_post post;
        struct insn_wait wait;
    };
};

/* A range of bytes of the work region that no instruction accesses after
 * instruction `insn`. A simulated device overwrites it when the next
 * instruction other than a POST or WAIT begins, so that tests find accesses
 * that come too late. */
struct dead_range {
    int insn;
    size_t offset, bytes;
};

/* Memory of tensors that have no offset in a region yet. It is needed from
 * position `born` of the total order, before which no instruction writes it, to
 * the last instruction that accesses it, or longer if a buffer_hold requires
 * so. */
struct prog_buffer {
    size_t bytes; /* a multiple of 64 */
    enum region region;
    int variant;
    int born; /* -1: before the step */
};

/* Keeps the buffer of a tensor up to position `until` of the total order, or to
 * the end of the step if no instruction of the device follows. */
struct buffer_hold {
    int tensor, until;
};

enum {
    PROG_MAX_MICRO = 16,
    PROG_MAX_VARIANT = 4,
    PROG_MAX_MACHINE = 128, /* most machines that devices are on */
    MERGE_MAX_DEPTH = 64, /* maximum number of addends on the stack of a sum */
};

struct variant {
    int n_micro; /* maximum number of micro-batches of a step; equal on all
                    devices */
    int n_insn;
    const struct insn *insn; /* [n_insn] the device's instructions, in ascending
                                `order` */
    int n_dead;
    const struct dead_range *dead; /* [n_dead] ranges of memory that become
                                      unused, in ascending `insn` */
    int n_hold;                    /* 0 if buffers have offsets */
    struct buffer_hold *hold;      /* [n_hold] in ascending `until` */
};

struct program {
    int dev;     /* index of the device in the device set */
    bool active; /* the device carries ranks of at least one group */
    int n_tensor;
    const struct prog_tensor *tensor;
    /* Buffers, until the pass "buffers" assigns offsets (lower/buffers.h). Then
     * n_buffer is 0 and in_buffer is NULL. */
    int n_buffer;
    struct prog_buffer *buffer; /* [n_buffer] */
    const int *in_buffer;       /* [n_tensor] the tensor's buffer; -1 if none */
    int n_variant;              /* number of variants; equal on all devices */
    const struct variant *variant;
    int n_event, n_group;
    size_t bytes[REGION_COUNT];
    /* Largest n_tok, n_out and n_seq of a micro-batch. n_slot is not a limit
     * but the number of slots of each pool. */
    struct graph_sizes max;
    int page_stride; /* number of entries in a sequence's row of a page table */
};

/* Returns the number of pools of caches and states. Their numbers of slots are
 * the first entries of max->n_slot[]. */
static inline int program_pools(const struct graph_sizes *max)
{
    int n = 0;

    while (n < PL_MAX_POOL && max->n_slot[n] > 0)
        n++;
    return n;
}

/* The token table of a micro-batch is a tensor of I32 words: pos[max.n_tok],
 * seq[max.n_tok], then pages[max.n_seq][page_stride] for each pool. Its offsets
 * depend on the largest sizes only, not on the step. program_pages_word returns
 * the offset in words of a pool's `pages`, program_token_table_words the number
 * of words of the table. */
static inline int64_t program_pages_word(const struct program *p, int pool)
{
    return 2 * p->max.n_tok + pool * p->max.n_seq * p->page_stride;
}
static inline int64_t program_token_table_words(const struct program *p)
{
    return program_pages_word(p, program_pools(&p->max));
}

/* Returns pointers into the token table at `data` for a micro-batch of sizes
 * `z`, with the page table of pool `pool`. */
static inline struct token_table
program_token_table(const struct program *p, const void *data,
                    const struct graph_sizes *z, int pool)
{
    const int32_t *x = data;

    return (struct token_table){.n_tok = z->n_tok,
                                .n_out = z->n_out,
                                .pos = x,
                                .seq = x + p->max.n_tok,
                                .pages = x + program_pages_word(p, pool),
                                .page_stride = p->page_stride};
}

/* Returns the index of the pool to which the tensor belongs if it is a cache or
 * state, else -1. */
static inline int prog_tensor_pool(const struct prog_tensor *t)
{
    return t->n_dim > 0 ? dim_pool(t->dim[0]) : -1;
}

/* Returns the size in bytes of the work region and the inbox, that is, of all
 * regions except weights and caches. */
static inline size_t program_buffers(const struct program *p)
{
    return p->bytes[REGION_WORK] + p->bytes[REGION_INBOX];
}

/* ---- properties of instructions ------------------------------------------ */

static inline bool insn_is_barrier(const struct insn *s)
{
    return s->kind == INSN_MERGE && s->merge.barrier;
}

static inline bool insn_is_collective(const struct insn *s)
{
    return s->kind == INSN_MERGE && s->merge.collective;
}

/* Returns true if the instruction only copies bytes between devices. */
static inline bool insn_is_transfer(const struct insn *s)
{
    return s->kind == INSN_PULL || s->kind == INSN_PAGES ||
           s->kind == INSN_PUSH;
}

/* Returns true if the instruction copies data from one group of devices to
 * another. */
static inline bool insn_is_group_copy(const struct insn *s)
{
    return s->kind == INSN_PAGES ||
           (s->kind == INSN_PULL && s->pull.between_groups) ||
           (s->kind == INSN_PUSH && s->push.between_groups);
}

static inline bool insn_predicate_holds(const struct insn *s,
                                        const struct graph_sizes *z)
{
    int64_t n = s->pred_out ? z->n_out : z->n_tok;

    return n >= s->min_rows && n <= s->max_rows;
}

/* Returns true if the instruction is executed in a step of n_micro
 * micro-batches whose n_tok and n_out are in sizes[]. */
static inline bool insn_enabled(const struct insn *s, int n_micro,
                                const struct graph_sizes *sizes)
{
    return s->micro < n_micro &&
           (s->max_rows == 0 || insn_predicate_holds(s, &sizes[s->micro]));
}

/* Returns the copies that a PUSH makes to its destination k, and sets *n to
 * their number. */
static inline const struct copy_desc *push_pieces(const struct insn_push *p,
                                                  int k, int *n)
{
    *n = p->scatter ? 1 : p->n_piece;
    return p->scatter ? p->piece + k : p->piece;
}

static inline int wait_count(const struct insn_wait *w)
{
    return 1 + w->n_more;
}

/* Returns event i, of wait_count() events, for which a WAIT waits. */
static inline struct insn_event wait_event(const struct insn_wait *w, int i)
{
    return i == 0 ? w->first : w->more[i - 1];
}

static inline bool insn_is_event(const struct insn *s)
{
    return s->kind == INSN_POST || s->kind == INSN_WAIT;
}

/* An instruction's access to a tensor. */
struct insn_access {
    int dev, tensor; /* index of the device in the set; index of the tensor in
                        its program */
    size_t off;      /* offset in bytes of the first byte accessed, from the
                        start of the tensor */
    size_t bytes;    /* number of bytes accessed; 0 for all of the tensor at the
                        largest sizes of a step */
    enum access access;
};
typedef void insn_access_fn(void *user, const struct insn_access *u);

/* Calls `fn` with `user` for each tensor that an instruction of device `dev`
 * accesses, on this or another device. A tensor may be reported more than once.
 * `t` is the array of tensors of device `dev`. With NULL, which callers that do
 * not know whether the tensors exist pass, the size of an access may be
 * missing. */
void insn_accesses(const struct insn *s, int dev, const struct prog_tensor *t,
                   insn_access_fn *fn, void *user);

#endif
