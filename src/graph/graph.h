/* The logical graph: the computation, without devices.
 *
 * A graph is an array of nodes in creation order, each with one result. An
 * operand is the index of an earlier node. Builder functions are public
 * (pl_graph.h) and implemented in graph.c; they check shapes at once and keep
 * the first error. The text form is in graph_text.c.
 *
 * Short names, here and in all readers of graphs: g is a graph, n or x one of
 * its nodes, v or i a node's index, f a format, a an arena. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "pl_graph.h"

#include <stdatomic.h>

enum op {
    OP_input,  /* filled by the host before a step */
    OP_weight, /* loaded once */
    /* Data that outlives a step: a cache, or a state of each sequence,
     * [slots, n_head, d_head]. */
    OP_memory,
#define OP(name, dims, partial, result, refused) OP_##name,
#include "graph/ops.def"
#undef OP
    OP_COUNT
};

struct op_info {
    const char *name;
    const char *dims; /* NULL for leaves; "MOVE" for moving ops */
    unsigned partial; /* PL_OP_NONE, PL_OP_SUM or PL_OP_ONE | mask */
    int updates;      /* the operand that is written into, a memory; -1: none */
    bool is_new;      /* the result is not that operand */
    const char *refused;
};

const struct op_info *op_info(enum op op); /* has no row for custom */
enum op op_from_name(const char *name);    /* OP_COUNT if unknown */

/* Parameters of ops: one flat record. An op reads the fields whose comment
 * names it and leaves the others zero. Columns: type, name. */
#define GRAPH_ATTR_MAP(X)                                                      \
    X(float, eps)        /* rms_norm; delta_net: of the norms of q and k */    \
    X(float, scale)      /* scale: factor; *attention: of scores; router: c */ \
    X(float, softcap)    /* attention: 0 = none */                             \
    X(float, lo)         /* clamp; swiglu_oai: -limit of up */                 \
    X(float, hi)         /* clamp; swiglu_oai: limit */                        \
    X(float, alpha)      /* swiglu_oai: 1.702 */                               \
    X(float, base)       /* rope */                                            \
    X(float, freq_scale) /* rope: 1 / linear or YaRN factor */                 \
    X(float, yarn_low)   /* rope: ramp of YaRN over pair indices */            \
    X(float, yarn_high)                                                        \
    X(float, mscale)   /* rope: factor on cos and sin */                       \
    X(int, yarn)       /* rope: 1 = YaRN ramp in use */                        \
    X(int, n_rot)      /* rope: rotated values of each head */                 \
    X(int, neox)       /* rope: pairs (i, i + n/2), else (2i, 2i + 1) */       \
    X(int64_t, window) /* attention, memory: 0 = none */                       \
    X(int, n_used)     /* router_topk */                                       \
    X(int, gating)     /* router_*: enum pl_gating */                          \
    X(int, normalise)  /* router_weights: divide by max(sum, 2^-14) */         \
    X(int, n_group)    /* router_topk: expert groups, 0 or 1 = none */         \
    X(int, n_group_used)                                                       \
    X(int, axis)      /* slice, concat */                                      \
    X(int64_t, start) /* slice */                                              \
    X(int, perm0)     /* permute: result dim i is operand dim perm_i */        \
    X(int, perm1)                                                              \
    X(int, perm2)                                                              \
    X(int, perm3)                                                              \
    X(int, format)      /* cast: enum pl_format */                             \
    X(int, values)      /* memory: 1 = holds values, 0 = keys */               \
    X(int, state)       /* memory: 1 = a slot holds a sequence's state */      \
    X(int, silu)        /* short_conv: 1 = SiLU of the result */               \
    X(int64_t, d_value) /* latent_attention */                                 \
    X(int, bf16)        /* contractions, *attention: 1 = products of BF16 */

struct graph_attr {
#define GRAPH_ATTR_FIELD(type, name) type name;
    GRAPH_ATTR_MAP(GRAPH_ATTR_FIELD)
#undef GRAPH_ATTR_FIELD
};

enum { GRAPH_MAX_IN = 6, GRAPH_MAX_DIM = 4, GRAPH_MAX_LAYER = 65536 };

struct graph_node {
    enum op op;
    int n_in;
    int in[GRAPH_MAX_IN]; /* earlier nodes */
    int n_dim;
    pl_dim dim[GRAPH_MAX_DIM]; /* outermost first */
    pl_format format;          /* F32 or I32 for values; any for leaves */
    pl_role role;              /* leaves: what the tensor is for */
    int layer;                 /* of the model; -1: none */
    struct graph_attr attr;
    const char *name; /* unique, never NULL; leaves: the GGUF name */
    bool output;      /* read by the host after a step */
    bool keep;        /* readable after a step (pl_keep) */
    const struct pl_layout *want; /* requested by the user, or NULL */
    /* OP_custom: its own row and kernel, in the graph's arena. */
    const struct pl_op_def *custom;
};

/* Return the row of a node's op: dims and partial of op_info(), or of its own
 * definition. NULL for leaves; "MOVE" for moving ops. */
const char *graph_dims(const struct graph_node *n);
unsigned graph_partial(const struct graph_node *n);
const char *graph_op_name(const struct graph_node *n);
/* Returns true if it holds the matrices of all experts. */
static inline bool graph_is_experts(const struct graph_node *n)
{
    return n->role == PL_ROLE_FFN_GATE_EXPS || n->role == PL_ROLE_FFN_UP_EXPS ||
           n->role == PL_ROLE_FFN_GATE_UP_EXPS ||
           n->role == PL_ROLE_FFN_DOWN_EXPS;
}

/* Returns true if the op multiplies by matrices, its operand 1, that may have
 * any format. */
static inline bool graph_is_contraction(enum op op)
{
    return op == OP_matmul || op == OP_head_matmul || op == OP_expert_matmul ||
           op == OP_expert_down;
}

/* Memories with the same retention rule: they have equally many slots, and
 * pages with the same numbers. */
struct graph_pool {
    /* A page is one slot with a sequence's state after its last token.
     * Otherwise the rule is: */
    bool state;
    int64_t window; /* the last tokens that are kept; 0: all */
};

struct pl_graph {
    struct arena arena; /* owns nodes' strings and layouts */
    struct graph_node *node;
    int n_node, cap;
    int n_pool;
    struct graph_pool pool[PL_MAX_POOL];
    int layer;            /* of the tensors made from here on (pl_layer) */
    pl_numerics numerics; /* of the ops made from here on (pl_set_numerics) */
    int *named;           /* owned: hash table of nodes by name, -1 = free */
    int n_named, named_cap;
    atomic_int n_held; /* executors, which need it unchanged */
    pl_err err; /* the first failure of a builder; status PL_OK if none */
};

/* Between these two calls builders fail, because plans refer to the graph's
 * tensors. */
void graph_hold(const pl_graph *g);
void graph_let_go(const pl_graph *g);
/* Returns false if a builder must stop: there is no graph, it failed before, or
 * it fails now because it is held. */
bool graph_is_open(pl_graph *g);

/* Returns the memory that node i is, or that ops wrote into to make it; -1:
 * none. */
int graph_memory(const pl_graph *g, int i);

/* A dimension that only programs have, not graphs: the sequences of the
 * step. */
#define GRAPH_N_SEQ ((pl_symbol)(PL_N_SLOT + PL_MAX_POOL))

/* Returns the pool whose slots a dimension counts, or -1. */
static inline int dim_pool(pl_dim d)
{
    int k = (int)d.symbol - (int)PL_N_SLOT;

    return k >= 0 && k < PL_MAX_POOL ? k : -1;
}

/* Positions in a page of a cache. A sequence takes whole pages. */
enum { PAGE_TOKENS = 64 };

static inline int pool_page_slots(const struct graph_pool *p)
{
    return p->state ? 1 : PAGE_TOKENS;
}

/* The words of a sequence's row in the table of a pool of states. A step's
 * first token of a sequence, at position STATE_AT, continues from the state in
 * slot STATE_READ, or from zeros at position 0. All others continue from slot
 * STATE_WRITTEN, where each micro-batch leaves the state after its last
 * token. */
enum { STATE_READ, STATE_WRITTEN, STATE_AT, STATE_WORDS };

/* Values of a dimension for actual counts. n_slot: of each pool, whole pages;
 * 0: no such pool. */
struct graph_sizes {
    int64_t n_tok, n_out, n_seq;
    int64_t n_slot[PL_MAX_POOL];
};
/* Returns the sizes of a step with the slots of `max`. */
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
/* Returns the product of all dimensions. */
int64_t graph_count(const struct graph_node *n, const struct graph_sizes *s);

#endif
