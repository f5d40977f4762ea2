/* The logical graph: the computation, without devices.
 *
 * A graph is an array of nodes in creation order. Each node has one result; its
 * operands are indices of earlier nodes. Nodes are appended by the public
 * builder functions (pl_graph.h), which graph.c implements. A builder checks
 * the shape of the new node. The graph keeps the first error. graph_text.c has
 * the text form of graphs.
 *
 * Short names, here and in all readers of graphs: g is a graph, n or x one of
 * its nodes, v or i a node's index, f a format, a an arena. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "pl_graph.h"

#include <stdatomic.h>

enum op {
    OP_input,  /* an input, which the host fills before each step */
    OP_weight, /* a weight, which is loaded once */
    /* A memory: data kept from step to step. It is a KV cache, or a recurrent
     * state with one slot per sequence. Shape [slots, n_head, d_head]. */
    OP_memory,
#define OP(name, dims, partial, result, refused) OP_##name,
#include "graph/ops.def"
#undef OP
    OP_COUNT
};

struct op_info {
    const char *name;
    /* letters of the dimensions, as in ops.def; NULL for inputs, weights and
     * memories, "MOVE" for ops that only move data */
    const char *dims;
    /* which operands may be PARTIAL: PL_OP_NONE, PL_OP_SUM, or PL_OP_ONE with a
     * bit mask of operands */
    unsigned partial;
    /* index of the operand to which the op writes, which is a memory; -1 if the
     * op writes to none */
    int updates;
    /* true if the result is a new value; false if it is the memory to which the
     * op writes */
    bool is_new;
    const char *refused;
};

/* Returns the row of ops.def for an op. Custom ops have no row there. */
const struct op_info *op_info(enum op op);
enum op op_from_name(const char *name); /* Returns the op with this name, or
                                           OP_COUNT if there is none. */

/* Parameters of ops: one flat record. The comment of a field names the ops that
 * use it; for other ops the field is zero. Columns: type, name. */
#define GRAPH_ATTR_COMMON(X)                                                   \
    X(float, eps)     /* *_norm, norms in delta_net, sinkhorn: epsilon */      \
    X(float, scale)   /* a factor; *attention: of scores; rope: of ln(pos) */  \
    X(float, softcap) /* attention: limit of the scores, 0 = none */           \
    X(float, lo)      /* clamp: lower limit; swiglu_oai: of up */              \
    X(float, hi)      /* clamp: upper limit; swiglu_oai: of gate and up */     \
    X(float, alpha)   /* swiglu_oai: factor in the sigmoid */                  \
    X(float, base)    /* rope: base of the angles */                           \
    X(float, freq_scale) /* rope: 1 / linear or YaRN scaling factor */         \
    X(float, yarn_low)   /* rope: pair index where YaRN's ramp begins */       \
    X(float, yarn_high)  /* rope: pair index where YaRN's ramp ends */         \
    X(float, mscale)     /* rope: factor on cos and sin */                     \
    X(int, yarn)         /* rope: 1 if YaRN scales the angles */               \
    X(int, n_rot)        /* rope: number of rotated values of each head */     \
    X(int, neox)         /* rope: 1: pairs (i, i + n/2); 0: (2i, 2i + 1) */    \
    X(int64_t, window)   /* attention, memory, rope: in tokens, 0 = none */    \
    X(int, n_used)       /* number of chosen experts, positions, blocks */     \
    X(int, gating)       /* router_*: an enum pl_gating */                     \
    X(int, normalise)    /* router_weights: 1 to divide by the sum */          \
    X(int, n_group)      /* router_topk: groups of experts, 0 or 1 = none */   \
    X(int, n_group_used) /* router_topk: number of groups used */              \
    X(int, axis)         /* slice, concat: index of the dimension */           \
    X(int64_t, start)    /* slice: first index; rope: the position 0 */        \
    X(int, perm0)        /* permute: result dim i is operand dim perm_i */     \
    X(int, perm1)                                                              \
    X(int, perm2)                                                              \
    X(int, perm3)                                                              \
    X(int, format)      /* cast: an enum pl_format */                          \
    X(int, values)      /* memory: 1 if it holds values, 0 if keys */          \
    X(int, state)       /* memory: 1 if a slot holds a sequence's state */     \
    X(int, silu)        /* short_conv: 1 to apply SiLU to the result */        \
    X(int64_t, d_value) /* latent_attention, block_mean: width of values */    \
    X(int, bf16)        /* contractions, *attention*: 1 for BF16 products */
/* Those that count for the hash of a numeric plan only where they are not 0, so
 * that plans without them keep their hash. */
#define GRAPH_ATTR_RARE(X)                                                     \
    X(int, block)  /* *_blocks: positions of a block */                        \
    X(int, local)  /* index_blocks: last blocks, always chosen */              \
    X(int, ratio)  /* index_topk, compressed_attention: tokens of a block */   \
    X(int, back)   /* rope: 1 to turn by the negative angles */                \
    X(int, n_iter) /* sinkhorn: how often columns are normalised */
#define GRAPH_ATTR_MAP(X) GRAPH_ATTR_COMMON(X) GRAPH_ATTR_RARE(X)

struct graph_attr {
#define GRAPH_ATTR_FIELD(type, name) type name;
    GRAPH_ATTR_MAP(GRAPH_ATTR_FIELD)
#undef GRAPH_ATTR_FIELD
};

enum { GRAPH_MAX_IN = 6, GRAPH_MAX_DIM = 4, GRAPH_MAX_LAYER = 65536 };

struct graph_node {
    enum op op;
    int n_in;
    /* indices of the operands, which are earlier nodes; -1 if absent */
    int in[GRAPH_MAX_IN];
    int n_dim;
    pl_dim dim[GRAPH_MAX_DIM]; /* sizes of the result's dimensions, outermost
                                  first */
    pl_format format;          /* format of the result: F32 or I32 for computed
                                  values, any for weights and caches */
    pl_role role;              /* for inputs, weights and caches: the purpose of
                                  the tensor, which decides its layout */
    int layer; /* layer of the model that the node belongs to, -1 if none */
    struct graph_attr attr;
    const char *name; /* name of the result, unique and never NULL; the GGUF
                         name for weights */
    bool output;      /* result of the graph (pl_output), which the host reads
                         after a step */
    bool keep;        /* the value stays readable after a step (pl_keep) */
    /* The node is computed besides the network (graph_aside). */
    bool aside;
    const struct pl_layout *want; /* layout of the result that the user
                                     requested; NULL if none was */
    /* Definition of an OP_custom node, with row and kernel; owned by the
     * graph's arena. NULL for other ops. */
    const struct pl_op_def *custom;
};

/* Return columns of a node's op: those of op_info(), or for a custom op those
 * of its own definition. graph_dims returns the letters of the dimensions, NULL
 * for inputs, weights and memories, "MOVE" for ops that only move data. */
const char *graph_dims(const struct graph_node *n);
unsigned graph_partial(const struct graph_node *n);
const char *graph_op_name(const struct graph_node *n);
/* Returns true if node n is a weight that contains the matrices of all
 * experts. */
static inline bool graph_is_experts(const struct graph_node *n)
{
    return n->role == PL_ROLE_FFN_GATE_EXPS || n->role == PL_ROLE_FFN_UP_EXPS ||
           n->role == PL_ROLE_FFN_GATE_UP_EXPS ||
           n->role == PL_ROLE_FFN_DOWN_EXPS;
}

/* Marks x as computed besides the network: its result and the conversions of
 * its operands do not count for the numeric plan's hash, and change no layout
 * of other nodes. No unmarked node may read x, and x needs operands that are
 * not PARTIAL. Marked nodes come after all others. */
void graph_aside(pl_graph *g, pl_tensor x);
/* Sets *out to a view of a graph without the nodes at its end that are computed
 * besides the network. It is valid until g gets another node, is not changed
 * and not freed. Returns false if there are no such nodes. */
bool graph_network(pl_graph *out, const pl_graph *g);

/* Returns true if the op is a matrix product whose operand 1, the matrix, may
 * have any format. */
static inline bool graph_is_contraction(enum op op)
{
    return op == OP_matmul || op == OP_head_matmul || op == OP_expert_matmul ||
           op == OP_expert_down;
}

static inline bool graph_is_attention(enum op op)
{
    return op == OP_attention || op == OP_bidirectional_attention ||
           op == OP_latent_attention || op == OP_attention_blocks ||
           op == OP_compressed_attention;
}

/* Returns true if an op with these attributes reads what it should: kernels
 * tell ops with blocks by them. */
static inline bool graph_blocks_fit(enum op op, const struct graph_attr *a)
{
    return (a->block == 0 || op == OP_attention_blocks ||
            op == OP_index_blocks) &&
           (a->ratio == 0 || op == OP_index_topk ||
            op == OP_compressed_attention);
}

/* A pool: the memories (caches or states) with the same retention rule. All
 * memories of a pool have the same number of slots, and a sequence has the same
 * pages in each. */
struct graph_pool {
    /* The pool holds recurrent states: a page is one slot, with the state of a
     * sequence after its last token. */
    bool state;
    int64_t window; /* number of a sequence's last tokens that a cache keeps; 0
                       if it keeps all */
};

struct pl_graph {
    struct arena arena; /* owns the strings and layouts of nodes */
    struct graph_node *node;
    int n_node, cap;
    int n_pool;
    struct graph_pool pool[PL_MAX_POOL];
    int layer;            /* layer of the nodes created next (pl_layer) */
    pl_numerics numerics; /* numerics of the ops created next
                             (pl_set_numerics) */
    int *named;           /* owned, [named_cap] hash table of nodes by name: the
                             index of a node, or -1 if the entry is free */
    int n_named, named_cap;
    atomic_int n_held; /* number of executors that use the graph and need it
                          unchanged */
    pl_err err; /* first error of a builder; its status is PL_OK if there was
                   none */
};

/* graph_hold makes the builders of a graph fail, because an executor's plan
 * refers to the graph's nodes. graph_let_go undoes one graph_hold. */
void graph_hold(const pl_graph *g);
void graph_let_go(const pl_graph *g);
/* Returns true if a builder may append to the graph. Returns false if g is
 * NULL, if a builder has failed before, or if the graph is held, which is
 * recorded as a failure. */
bool graph_is_open(pl_graph *g);

/* Like pl_cache, with a role; PL_ROLE_NONE is that of keys or values. */
pl_tensor graph_cache(pl_graph *g, const char *name, pl_format f,
                      int64_t n_head, int64_t d_head, bool values,
                      int64_t window, pl_role role);

/* Returns the memory to which node i refers: node i itself if it is a memory,
 * or the memory that op i (cache_write) writes to. Returns -1 if node i is
 * neither. */
int graph_memory(const pl_graph *g, int i);

/* The symbol for the number of sequences in a step. Only programs use it, not
 * graphs. */
#define GRAPH_N_SEQ ((pl_symbol)(PL_N_SLOT + PL_MAX_POOL))

/* Returns the pool whose number of slots is the size of dimension d, or -1 if
 * the size is something else. */
static inline int dim_pool(pl_dim d)
{
    int k = (int)d.symbol - (int)PL_N_SLOT;

    return k >= 0 && k < PL_MAX_POOL ? k : -1;
}

/* Number of token positions in a page of a cache. Sequences occupy whole
 * pages. */
enum { PAGE_TOKENS = 64 };

static inline int pool_page_slots(const struct graph_pool *p)
{
    return p->state ? 1 : PAGE_TOKENS;
}

/* Entries of a sequence's row in the table of a pool of states. STATE_READ is
 * the slot with the state before the step, STATE_WRITTEN the slot for the state
 * after it, and STATE_AT the sequence's length before the step. The sequence's
 * first token in a step, at position STATE_AT, continues from slot STATE_READ,
 * or from zeros if STATE_AT is 0. A later micro-batch of the step continues
 * from slot STATE_WRITTEN, where each micro-batch stores the state after its
 * last token. */
enum { STATE_READ, STATE_WRITTEN, STATE_AT, STATE_WORDS };

/* The numbers that symbolic dimensions stand for. n_slot[k] is the number of
 * slots of pool k, a multiple of the page size, or 0 if there is no such
 * pool. */
struct graph_sizes {
    int64_t n_tok, n_out, n_seq;
    int64_t n_slot[PL_MAX_POOL];
};
/* Returns the sizes of a step with the given counts, and with the numbers of
 * slots of `max`. */
static inline struct graph_sizes graph_sizes_of(const struct graph_sizes *max,
                                                int64_t n_tok, int64_t n_out,
                                                int64_t n_seq)
{
    struct graph_sizes z = *max;

    z.n_tok = n_tok;
    z.n_out = n_out;
    z.n_seq = n_seq;
    return z;
}
int64_t dim_value(pl_dim d, const struct graph_sizes *s);
/* Returns the number of elements of the value of node n: the product of its
 * dimensions for sizes s. */
int64_t graph_count(const struct graph_node *n, const struct graph_sizes *s);

#endif
