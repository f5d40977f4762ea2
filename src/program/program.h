/* What one device does in a run: flat lists of steps over a table of local
 * tensors.
 *
 * A program is made once, from the plan, for the largest micro-batches; sizes
 * that depend on a run are symbolic (pl_dim) and filled in when it begins. It
 * holds no pointers into device memory: tensors are offsets into regions, so it
 * means the same on every kind of device. What only one kind needs to know
 * (where its threads meet, which steps it runs as one) that kind derives from
 * the program when it is given one.
 *
 * Run and step. A *run* is what one call of pl_exec_step sets going: every
 * device goes once through its program. A *step* is an instruction of a
 * program.
 *
 * Scripts. A program has one or more scripts, lists of steps that give the same
 * bits: compute with host weights on the host or stream them, one micro-batch
 * or several in a pipeline. Which one is taken is told with the run and
 * is the only choice left to run time. All share weights and caches; their
 * buffers lie over each other, since one runs at a time.
 *
 * Micro-batches. A script works on one or more micro-batches; each of its steps
 * and each tensor whose size depends on a run belongs to one micro-batch. A
 * run may bring fewer: then the steps of the others are passed over by all
 * devices.
 *
 * Order. The steps of all devices stand in one total order (`order`). Each
 * device issues its own in that order, to a compute and a copy queue; steps of
 * one queue run in order, queues and devices run freely against each other
 * except for POST and WAIT. A WAIT names a POST that stands earlier in the
 * total order, so the earliest unfinished step can always run. Devices that
 * share worker threads (the host and cpu devices on its cores) take turns on
 * them in the total order.
 *
 * On one device a WAIT for another one's event, or a meeting, depends on every
 * earlier POST or meeting of that device, whatever the queue: through the order
 * of one queue and its waits for the other's events. So hardware may run the
 * two queues as one, in any order that these dependencies allow, and the first
 * of the blocked steps still finds what it waits for.
 *
 * Other devices' memory is touched in four ways. Devices that share memory
 * *meet*: a MERGE with `meet`; all threads of the group come together, then
 * each device reads its peers' buffers, which are written again only after the
 * group's next meeting. All others PUSH what a peer needs into its inbox and
 * POST; the peer WAITs and reads what has come. Nothing but
 * what is pushed is written there, so a device may keep a copy of what has come
 * where it likes to read; it may push to itself. PULL and PAGES read memory
 * that is open to the device, the host's for most.
 *
 * The last device, "io", has no kernels to run: the caller puts a run's
 * inputs into its work region, which others PULL or it PUSHes to them, and
 * finds results in its inbox. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "program/kernel.h"
#include "quant/pack.h"

enum region {
    REGION_WEIGHTS,
    REGION_CACHE,
    REGION_WORK,  /* activations, inputs, outputs, staging */
    REGION_INBOX, /* the only region that peers write; written by PUSH and
                     PAGES of theirs alone */
    REGION_COUNT
};

const char *region_name(enum region r); /* "weights", as plans print it */

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
    int micro; /* whose sizes its dimensions have */
};

/* Two nested strided loops over intervals of bytes; all in bytes, offsets from
 * the start of the tensors. */
struct copy_desc {
    int src_dev, src;             /* device in the set, tensor of its program */
    pl_dim src_off, dst_off;      /* what grows with the run */
    int64_t src_const, dst_const; /* and what does not, added to it */
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
    size_t off;  /* bytes from the tensor's start */
    pl_dim skip; /* bytes of the value that the tensor does not begin with: it
                    holds a part from there on */
    int n_add;
};
struct merge_item {
    bool reduce;
    int out; /* tensor of this program */
    int n_piece;
    const struct copy_desc *piece;
    int n_addend;
    const struct merge_addend *addend;
    int depth; /* most entries the stack holds */
};

enum insn_kind {
    INSN_KERNEL,
    INSN_MERGE, /* a collective or a local copy */
    INSN_PULL,  /* pieces of other devices' tensors into one of this device */
    INSN_PAGES, /* pages of a cache, pulled or pushed */
    INSN_PUSH,  /* pieces of this device's tensors into peers' inboxes */
    INSN_POST,  /* an event of this device is reached */
    INSN_WAIT,  /* until events of some devices are reached */
};

enum queue { QUEUE_COMPUTE, QUEUE_COPY, QUEUE_COUNT };

struct kernel_arg {
    int tensor; /* of this program; -1: absent */
    enum access access;
};

struct insn_kernel {
    enum kernel kernel;
    int n_arg;
    struct kernel_arg arg[KERNEL_MAX_ARG]; /* as kernels.def has them */
    const struct graph_attr *attr;         /* NULL: all zero */
    struct rank_tree tree;                 /* contractions, gather_rows, sum */
    size_t out_stride;            /* bytes between the tree's results */
    const struct rank_span *span; /* gather_rows: rows of the table; sum: the
                                     summed dimension; others: none */
    int n_span;
    const int32_t *head_map; /* kernel_maps_heads(): of each local head of the
                                many, the local one of the few */
    const struct kernel_custom *custom; /* custom */
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
    int group; /* meet: the group that meets, < n_group */
    int n_peer;
    const int *peer; /* meet: the devices that meet, this one among them */
    bool collective; /* a collective of a group */
    bool counted;    /* this device counts the message, its peers do not */
    pl_dim collective_bytes[2]; /* logical bytes: the sum of both */
};

struct insn_pull {
    int out;
    size_t out_bytes; /* written, from the tensor's start; 0: all of it */
    const struct copy_desc *piece;
    int n_piece;
    bool between_groups; /* counts as a copy; else it is part of a message */
};

/* Where a PUSH goes to: tensor `out` in the inbox of another device, `at` bytes
 * beyond where the pieces say. */
struct push_to {
    int dev, out;
    size_t at;
};

/* All pieces go to each of to[n_to]; if `deal`, the k-th piece to the k-th
 * alone. src_dev of the pieces is this device. */
struct insn_push {
    int n_to;
    const struct push_to *to;
    const struct copy_desc *piece;
    int n_piece;
    bool scatter;
    bool between_groups; /* counts as a copy; else it is part of a message */
};

/* For every page that the micro-batch's sequences use, head h of cache `out`
 * of device out_dev from head map[h] (-1: another step brings it) of tensor
 * `src` of device src_dev; one of them is this device, and what is not its own
 * to write is in its owner's inbox. Tiles of tile_bytes, [page, head]; the
 * numbers of pages are the same on both sides. */
struct insn_pages {
    int out_dev, out, src_dev, src;
    int token_table;    /* tensor of this device: the micro-batch's table */
    const int32_t *map; /* [heads of out] */
    size_t tile_bytes;
};

struct insn_event {
    int dev, event;
};

/* For most there is one event; see wait_event(). */
struct insn_wait {
    struct insn_event first;
    int n_more;
    const struct insn_event *more; /* [n_more] */
};

struct insn {
    enum insn_kind kind;
    enum queue queue;
    int order; /* its place among the steps of all devices; what meets has
                     the same */
    int micro; /* the micro-batch it works for */
    int node;  /* of the graph, for traces and errors; -1 if none */
    /* The step is in the run of a micro-batch only if so many of n_tok, or of
     * n_out, are in it; most = 0: always. */
    bool pred_out; /* n_out, else n_tok */
    int64_t min_rows, max_rows;
    union { /* by kind */
        struct insn_kernel kernel;
        struct insn_merge merge;
        struct insn_pull pull;
        struct insn_push push;
        struct insn_pages pages;
        struct insn_event event; /* POST; of a WAIT the first */
        struct insn_wait wait;
    };
};

/* A part of the work region that nobody reads any more once a step after `step`
 * other than POST and WAIT begins; sim devices poison it then. */
struct dead_range {
    int insn;
    size_t offset, bytes;
};

enum {
    PROG_MAX_MICRO = 16,
    PROG_MAX_VARIANT = 4,
    MERGE_MAX_DEPTH = 64, /* of a stack of addends */
};

struct variant {
    int n_micro; /* most micro-batches; the same on all devices */
    int n_insn;
    const struct insn *insn; /* ascending order */
    int n_dead;
    const struct dead_range *dead; /* ascending step */
};

struct program {
    int dev;     /* index in the set */
    bool active; /* carries ranks of some group */
    int n_tensor;
    const struct prog_tensor *tensor;
    int n_variant; /* the same on all devices */
    const struct variant *variant;
    int n_event, n_group;
    size_t bytes[REGION_COUNT];
    struct graph_sizes max; /* largest n_tok, n_out, n_seq of a micro-batch;
                               n_slot as it is */
    int page_stride;        /* entries of a sequence in a table of pages */
};

/* Pools of memories that there are: the first so many. */
static inline int program_pools(const struct graph_sizes *max)
{
    int n = 0;

    while (n < PL_MAX_POOL && max->n_slot[n] > 0)
        n++;
    return n;
}

/* The table of a micro-batch: who its tokens are. It is a tensor like any
 * other, I32 words at places that are fixed by the largest sizes:
 * pos [max.n_tok], seq [max.n_tok], and for each pool of memories
 * pages [max.n_seq, page_stride]. */
static inline int64_t program_pages_word(const struct program *p, int pool)
{
    return 2 * p->max.n_tok + pool * p->max.n_seq * p->page_stride;
}
static inline int64_t program_token_table_words(const struct program *p)
{
    return program_pages_word(p, program_pools(&p->max));
}

/* What lies at `data`, of a micro-batch of size z, with the pages of a pool. */
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

/* The pool whose pages a tensor has, or -1: it is no memory. */
static inline int prog_tensor_pool(const struct prog_tensor *t)
{
    return t->n_dim > 0 ? dim_pool(t->dim[0]) : -1;
}

/* Bytes of everything but weights and caches. */
static inline size_t program_buffers(const struct program *p)
{
    return p->bytes[REGION_WORK] + p->bytes[REGION_INBOX];
}

/* ---- what steps do, asked without a look at their kind ------------------ */

static inline bool insn_is_barrier(const struct insn *s)
{
    return s->kind == INSN_MERGE && s->merge.barrier;
}

static inline bool insn_is_collective(const struct insn *s)
{
    return s->kind == INSN_MERGE && s->merge.collective;
}

/* Does it only carry bytes between devices? */
static inline bool insn_is_transfer(const struct insn *s)
{
    return s->kind == INSN_PULL || s->kind == INSN_PAGES ||
           s->kind == INSN_PUSH;
}

/* A copy between groups. */
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

/* Is it in a run of n_micro micro-batches of these sizes? */
static inline bool insn_enabled(const struct insn *s, int n_micro,
                                const struct graph_sizes *sizes)
{
    return s->micro < n_micro &&
           (s->max_rows == 0 || insn_predicate_holds(s, &sizes[s->micro]));
}

/* The pieces that a PUSH brings to its k-th destination. */
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

/* The i-th event that a WAIT waits for. */
static inline struct insn_event wait_event(const struct insn_wait *w, int i)
{
    return i == 0 ? w->first : w->more[i - 1];
}

static inline bool insn_is_event(const struct insn *s)
{
    return s->kind == INSN_POST || s->kind == INSN_WAIT;
}

/* One tensor that a step touches. */
struct insn_access {
    int dev, tensor; /* device in the set, tensor of its program */
    size_t off;      /* bytes from the tensor's start */
    size_t bytes;    /* 0: as many as the tensor has at its largest */
    enum access access;
};
typedef void insn_access_fn(void *user, const struct insn_access *u);

/* Tells of each tensor that a step of device `dev` touches, on whichever
 * device; one may come more than once. t: this device's tensors. */
void insn_accesses(const struct insn *s, int dev, const struct prog_tensor *t,
                   insn_access_fn *fn, void *user);

#endif
