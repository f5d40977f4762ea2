/* plait's graphs: custom tensors and ops, executed on several devices as if
 * they were one, and access to the graph of a model's plan and engine.
 *
 * Programs that only run models need pl.h alone. Its rules hold here too. */
#ifndef PL_GRAPH_H
#define PL_GRAPH_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graphs ------------------------------------------------------------ */

/* Maximum number of pools in a graph. Caches and states with the same retention
 * rule share a pool: caches of all tokens, caches of the last W tokens of each
 * sequence, or states. Pools are numbered in the order of first use. */
enum { PL_MAX_POOL = 4 };

/* A dimension: n times 1, n_tok, n_out or the slots of a pool. */
typedef enum pl_symbol {
    PL_CONST,
    PL_N_TOK, /* tokens of the step */
    PL_N_OUT, /* rows of the step whose results are wanted */
    /* token slots of pool 0, fixed when a plan is made; pool i: PL_N_SLOT +
     * i */
    PL_N_SLOT,
} pl_symbol;

typedef struct pl_dim {
    int64_t n;
    pl_symbol symbol;
} pl_dim;

/* The purpose of a leaf. A tensor is split by its role, never by its name.
 * PL_ROLE_NONE: mirrored unless a layout is requested.
 *
 * In addition to the names that files use: ATTN_GATE, a value for each value of
 * the heads' results; CONV, taps of channels, q, k and v of a delta net;
 * DELTA_GATE, a row or a value per value head; DELTA_GATES, rows of two such
 * gates: for each key head, the rows of its value heads of the first gate, then
 * of the second; STATE and CONV_STATE, a state per value head and per
 * channel. */
#define PL_ROLE_MAP(X)                                                         \
    X(NONE)                                                                    \
    X(TOKEN_EMBD)                                                              \
    X(OUTPUT)                                                                  \
    X(NORM)                                                                    \
    X(ATTN_Q)                                                                  \
    X(ATTN_K)                                                                  \
    X(ATTN_V)                                                                  \
    X(ATTN_QKV)                                                                \
    X(ATTN_Q_BIAS)                                                             \
    X(ATTN_K_BIAS)                                                             \
    X(ATTN_V_BIAS)                                                             \
    X(ATTN_QKV_BIAS)                                                           \
    X(ATTN_Q_A)                                                                \
    X(ATTN_KV_A)                                                               \
    X(ATTN_KV_B)                                                               \
    X(ATTN_K_B)                                                                \
    X(ATTN_V_B)                                                                \
    X(ATTN_SINKS)                                                              \
    X(ATTN_OUT)                                                                \
    X(ATTN_OUT_BIAS)                                                           \
    X(FFN_GATE)                                                                \
    X(FFN_UP)                                                                  \
    X(FFN_GATE_UP)                                                             \
    X(FFN_DOWN)                                                                \
    X(ROUTER)                                                                  \
    X(ROUTER_BIAS)                                                             \
    X(FFN_GATE_EXPS)                                                           \
    X(FFN_UP_EXPS)                                                             \
    X(FFN_GATE_UP_EXPS)                                                        \
    X(FFN_DOWN_EXPS)                                                           \
    X(FFN_GATE_EXPS_BIAS)                                                      \
    X(FFN_UP_EXPS_BIAS)                                                        \
    X(FFN_DOWN_EXPS_BIAS)                                                      \
    X(PER_LAYER_EMBD)                                                          \
    X(PER_LAYER_PROJ)                                                          \
    X(PER_LAYER_GATE)                                                          \
    X(PER_LAYER_OUT)                                                           \
    X(ROPE_FREQS)                                                              \
    X(SCALE)                                                                   \
    X(ATTN_GATE)                                                               \
    X(CONV)                                                                    \
    X(DELTA_GATE)                                                              \
    X(DELTA_GATES)                                                             \
    X(MTP_PROJ)                                                                \
    X(CACHE_K)                                                                 \
    X(CACHE_V)                                                                 \
    X(STATE)                                                                   \
    X(CONV_STATE)

typedef enum pl_role {
#define PL_ROLE_ENUM(name) PL_ROLE_##name,
    PL_ROLE_MAP(PL_ROLE_ENUM)
#undef PL_ROLE_ENUM
        PL_ROLE_COUNT
} pl_role;

/* The layout of one logical tensor in a group. SPLIT: dimension `dim` is tiled
 * by intervals. Interval i covers run[i].len indices held by the ranks in
 * run[i].owners (bit r = rank r). The tiling repeats every `period` indices:
 * the sum of the lengths, which divides the dimension's size. */
typedef enum pl_layout_kind {
    PL_MIRRORED, /* every rank sees all values */
    PL_PARTIAL,  /* the value is the sum of the ranks' addends */
    PL_SPLIT,
} pl_layout_kind;

typedef struct pl_interval {
    int64_t len;
    uint64_t owners;
} pl_interval;

typedef struct pl_layout {
    pl_layout_kind kind;
    int dim;        /* SPLIT only, counted from the outermost */
    int64_t period; /* SPLIT only */
    int n_run;      /* SPLIT only */
    const pl_interval *run;
} pl_layout;

typedef struct pl_graph pl_graph; /* opaque */

/* A tensor of a graph: its index, or -1 after an error. Builders accept -1 and
 * pass it on, and the graph keeps the first error, so only pl_graph_check needs
 * testing. In this sense all functions that change a graph are builders: after
 * an error they do nothing. Changing a graph that an executor uses is an error,
 * too. With g NULL they return -1 or do nothing. */
typedef int32_t pl_tensor;

/* Expert scores from router logits. */
typedef enum pl_gating {
    PL_GATING_SOFTMAX,          /* over all experts */
    PL_GATING_SIGMOID,          /* each on its own */
    PL_GATING_SOFTMAX_SELECTED, /* over the selected ones */
} pl_gating;

typedef struct pl_rope {
    size_t size;
    int n_rot;        /* rotated values of a head; even */
    bool neox;        /* pairs (i, i + n_rot/2), else (2i, 2i + 1) */
    float base;       /* frequency base */
    float freq_scale; /* 1 / factor of linear or YaRN scaling; 0 means 1 */
    bool yarn;
    float yarn_low, yarn_high; /* ramp over pair indices */
    float mscale;              /* on cos and sin; 0 means 1 */
} pl_rope;

static inline void pl_rope_init(pl_rope *r)
{
    if (!r)
        return;
    memset(r, 0, sizeof *r);
    r->size = sizeof *r;
}

PL_API pl_status pl_graph_create(pl_graph **out, pl_err *err);
PL_API void pl_graph_free(pl_graph *g);
/* Returns the first error of any builder, with its message. */
PL_API pl_status pl_graph_check(const pl_graph *g, pl_err *err);

/* Assigns the tensors created from now on to this layer of the model, counted
 * from 0; -1, as in a new graph: to none. Devices are given layers, and options
 * and plans count by them. */
PL_API void pl_layer(pl_graph *g, int layer);

/* Sets the numerics of ops created from now on. A new graph is exact. */
PL_API void pl_set_numerics(pl_graph *g, pl_numerics numerics);

/* Create leaves. Names are unique. An input is filled by the host before each
 * step (F32 or I32). A weight is loaded once; block formats need two or three
 * dimensions, the last of whole blocks. A cache holds [slots, n_head, d_head]
 * of keys or values for attention: of all tokens, or, if window > 0, of those
 * that an attention with that window still sees. */
PL_API pl_tensor pl_input(pl_graph *g, const char *name, pl_format f, int n_dim,
                          const pl_dim *dim);
PL_API pl_tensor pl_weight(pl_graph *g, const char *name, pl_format f,
                           int n_dim, const int64_t *dim, pl_role role);
PL_API pl_tensor pl_cache(pl_graph *g, const char *name, pl_format f,
                          int64_t n_head, int64_t d_head, bool values,
                          int64_t window);
/* Creates a state [slots, n_head, d_head] (F32), one slot per sequence. The op
 * that reads it updates it with each token. Role STATE or CONV_STATE. */
PL_API pl_tensor pl_state(pl_graph *g, const char *name, int64_t n_head,
                          int64_t d_head, pl_role role);

/* Returns rows of `table` [v, d] by ids [*] (I32): [*, d]. Ids out of range
 * give zeros. */
PL_API pl_tensor pl_gather_rows(pl_graph *g, pl_tensor table, pl_tensor ids);
/* x [*, k] times w [n, k] (a weight): [*, n]. */
PL_API pl_tensor pl_matmul(pl_graph *g, pl_tensor x, pl_tensor w);
/* x [t, h, k], w [h, n, k] (a weight): [t, h, n]; each head has its own
 * matrix. */
PL_API pl_tensor pl_head_matmul(pl_graph *g, pl_tensor x, pl_tensor w);
/* x [t, u or 1, k], w [e, n, k], ids [t, u]: [t, u, n]; choice u uses expert
 * ids[t, u]. */
PL_API pl_tensor pl_expert_matmul(pl_graph *g, pl_tensor x, pl_tensor w,
                                  pl_tensor ids);
/* x [t, u, k], w [e, n, k], ids [t, u]: [t, n], summed over choices and k,
 * experts ascending. The caller multiplies router weights into x beforehand. */
PL_API pl_tensor pl_expert_down(pl_graph *g, pl_tensor x, pl_tensor w,
                                pl_tensor ids);
/* x / sqrt(mean(x^2) + eps) over the last dimension, times w [d] unless -1. */
PL_API pl_tensor pl_rms_norm(pl_graph *g, pl_tensor x, pl_tensor w, float eps);
/* Rotates x [t, h, d] by positions pos [t] (I32); freqs [n_rot/2] divides the
 * angles, -1 for none. */
PL_API pl_tensor pl_rope_apply(pl_graph *g, pl_tensor x, pl_tensor pos,
                               pl_tensor freqs, const pl_rope *rope);
/* Stores x [t, n_head, d_head] at the step's positions; returns the cache for
 * attention to read. */
PL_API pl_tensor pl_cache_write(pl_graph *g, pl_tensor cache, pl_tensor x);
/* q [t, n_head, d], caches with n_head a multiple of theirs: [t, n_head, e].
 * Causal within each sequence; window 0 and softcap 0 mean none; sinks
 * [n_head] or -1. */
PL_API pl_tensor pl_attention(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor sinks, float scale,
                              int64_t window, float softcap);
/* The same over latents: one cache (of values) [slots, n_head, d_head] holds
 * the keys, and the first d_value of a key are its values. Returns [t, n_head,
 * d_value]. */
PL_API pl_tensor pl_latent_attention(pl_graph *g, pl_tensor q, pl_tensor cache,
                                     int64_t d_value, float scale);
/* Causal convolution of each channel of x [t, c] with its taps w [c, n], the
 * last of which applies to the token itself; followed by SiLU, if `silu`: [t,
 * c]. The state [slots, c, n - 1] holds the inputs of earlier tokens. */
PL_API pl_tensor pl_short_conv(pl_graph *g, pl_tensor x, pl_tensor w,
                               pl_tensor state, bool silu);
/* Gated delta net: q and k [t, n_key, d], v [t, n_head, e], decay and beta [t,
 * n_head], the state [slots, n_head, d * e], a matrix M [d, e] per head:
 *
 *   k, q divided by max(their Euclidean norm, eps)
 *   M = exp(decay) M;  M += k (beta (v - M^T k))^T;  result M^T q / sqrt(d)
 *
 * token after token: [t, n_head, e]. Head h has the key head h / (n_head /
 * n_key) or, tiled, h % n_key. Source: arXiv:2412.06464. */
PL_API pl_tensor pl_delta_net(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor decay, pl_tensor beta,
                              pl_tensor state, float eps, bool tiled);
PL_API pl_tensor pl_softmax(pl_graph *g, pl_tensor x);
/* Returns the n_used best experts of logits [*, e], best first, ties by lower
 * id: I32 [*, n_used]. bias [e] or -1 is added for the choice only. n_group >
 * 1: only experts of the n_group_used best groups, ranked by the sum of their
 * two best experts (softmax gating: by their best). */
PL_API pl_tensor pl_router_topk(pl_graph *g, pl_tensor logits, pl_tensor bias,
                                pl_gating gating, int n_used, int n_group,
                                int n_group_used);
/* Returns the weights [*, n_used] of the chosen experts. `normalise` divides by
 * max(sum, 2^-14); then `scale` multiplies. */
PL_API pl_tensor pl_router_weights(pl_graph *g, pl_tensor logits, pl_tensor ids,
                                   pl_gating gating, bool normalise,
                                   float scale);

/* Elementwise with broadcast (sizes 1, missing outer dimensions). */
PL_API pl_tensor pl_add(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_sub(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_mul(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_div(pl_graph *g, pl_tensor a, pl_tensor b);
/* silu(gate) * up;  gelu(gate) * up (tanh form);  gpt-oss:
 * (clamp(up, -limit, limit) + 1) * g * sigmoid(1.702 g),
 * g = min(gate, limit) */
PL_API pl_tensor pl_swiglu(pl_graph *g, pl_tensor gate, pl_tensor up);
PL_API pl_tensor pl_geglu(pl_graph *g, pl_tensor gate, pl_tensor up);
PL_API pl_tensor pl_swiglu_oai(pl_graph *g, pl_tensor gate, pl_tensor up,
                               float limit);
PL_API pl_tensor pl_scale(pl_graph *g, pl_tensor x, float factor);
PL_API pl_tensor pl_clamp(pl_graph *g, pl_tensor x, float lo, float hi);
PL_API pl_tensor pl_sqr(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_sqrt(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_exp(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_tanh(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_sigmoid(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_softplus(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_silu(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_gelu(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_relu(pl_graph *g, pl_tensor x);
/* Sums over the second-last dimension: [*, u, d] -> [*, d]. */
PL_API pl_tensor pl_sum(pl_graph *g, pl_tensor x);
/* Rounds to F16 or BF16 and back to F32 values (format F32: unchanged). */
PL_API pl_tensor pl_cast(pl_graph *g, pl_tensor x, pl_format f);
PL_API pl_tensor pl_contiguous(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_reshape(pl_graph *g, pl_tensor x, int n_dim,
                            const pl_dim *dim);
/* Result dimension i is x's dimension perm[i]. */
PL_API pl_tensor pl_permute(pl_graph *g, pl_tensor x, const int *perm);
/* Returns len indices of `axis` from start on; not along a symbolic
 * dimension. */
PL_API pl_tensor pl_slice(pl_graph *g, pl_tensor x, int axis, int64_t start,
                          int64_t len);
PL_API pl_tensor pl_concat(pl_graph *g, int n, const pl_tensor *x, int axis);

/* ---- custom ops --------------------------------------------------------- */

/* A part of a split dimension that this device holds: indices index .. index +
 * n - 1 lie at at .. at + n - 1. */
typedef struct pl_op_part {
    int64_t index, at, n;
} pl_op_part;

/* An operand or the result as a kernel sees it: the values that this device
 * holds, contiguous, the last dimension innermost. The size of a split
 * dimension counts only these, and may be 0. */
typedef struct pl_op_value {
    /* float or int32_t; operands are read-only; NULL: absent */
    void *data;
    pl_format format; /* F32 or I32; the result: F32 */
    int n_dim;
    int64_t dim[4];         /* on this device, in this step */
    int split;              /* the split dimension, or -1 */
    int n_part;             /* split >= 0: parts on this device, ascending */
    const pl_op_part *part; /* [n_part] */
} pl_op_value;

typedef struct pl_op_call {
    void *user; /* the definition's */
    pl_op_value out;
    int n_in;
    pl_op_value in[4];
    int ith, nth; /* this thread, and the number of threads */
} pl_op_call;

/* Computes an op on this device. All nth threads of a device call it at once,
 * and each computes its share of the result's values. The bits must not depend
 * on nth, on the other rows, or on how much of a split dimension the device
 * holds. It must not fail, nor write anything but the result. Several devices
 * call it at the same time. */
typedef void pl_op_kernel(const pl_op_call *c);

/* The operands that may be PARTIAL: one addend per rank, not yet summed. The
 * kernel is then called once per rank with that rank's addends.
 *
 *   PL_OP_NONE       none
 *   PL_OP_ONE | m    one of those whose bits are in m, the others complete; the
 *                    kernel must be linear in it
 *   PL_OP_SUM        any of them; the kernel must be linear in all of them
 *                    together. One without an addend on a rank is absent there
 *                    (in[i].data NULL) and counts as zeros */
enum { PL_OP_NONE = 0, PL_OP_SUM = 0x100, PL_OP_ONE = 0x200 };

/* The definition of an op. `dims` has a letter for each dimension of each
 * operand, then of the result, outermost first: "tk,nk->tn" is a matrix
 * product. Dimensions with the same letter have the same size. It also says
 * which may be split:
 *
 *   a letter of the result       may be split: then the operands that have it
 *                                are split alike, and the kernel sees parts
 *   one that the result lacks    is summed over. If it is split, the kernel is
 *                                called once per rank with that rank's part of
 *                                it, and computes an addend
 *   x!                           is never split
 *   n_tok, n_out                 dimensions of these sizes are never split
 *   *                            any number of leading dimensions, aligned at
 *                                the right; an operand may lack some of them or
 *                                have size 1 there
 *   (gr)                         one dimension of size g * r, g the outer
 *                                factor. The result has it too, or it is never
 *                                split: (gr)!
 *   ?                            at the end of an operand: it may be absent */
typedef struct pl_op_def {
    size_t size;
    /* letters, digits, "._-/+"; not the name of a built-in op */
    const char *name;
    const char *dims; /* one to four operands, of up to four dimensions */
    unsigned partial; /* PL_OP_NONE, PL_OP_SUM, PL_OP_ONE | mask */
    pl_op_kernel *run;
    void *user; /* passed to run; must outlive graph and plans */
    /* A different number whenever run gives different bits. It is part of the
     * numeric hash, with name and row. */
    uint64_t edition;
} pl_op_def;

static inline void pl_op_def_init(pl_op_def *d)
{
    if (!d)
        return;
    memset(d, 0, sizeof *d);
    d->size = sizeof *d;
}

/* Applies a custom op to n_in operands (F32 or I32; -1: absent); its result is
 * F32. The definition is copied. Ops of one graph with the same name must have
 * the same definition. */
PL_API pl_tensor pl_custom(pl_graph *g, const pl_op_def *def, int n_in,
                           const pl_tensor *in);

/* Mark a result. An output is read after every step; a kept tensor may be
 * read. */
PL_API void pl_output(pl_graph *g, pl_tensor x);
PL_API void pl_keep(pl_graph *g, pl_tensor x);
/* Requests a layout for any tensor (copied). Caches are split by heads only.
 * Caches that one attention reads are split alike: a rank has every head that
 * was requested for it in either. */
PL_API void pl_want_layout(pl_graph *g, pl_tensor x, const pl_layout *l);
PL_API const char *pl_tensor_name(const pl_graph *g, pl_tensor x);
/* Names a tensor for pl_tensor_get and messages; leaves already have names. */
PL_API void pl_name(pl_graph *g, pl_tensor x, const char *name);
PL_API pl_tensor pl_tensor_find(const pl_graph *g, const char *name);
/* Returns the number of dimensions, or -1; fills dim[4], which may be NULL. */
PL_API int pl_tensor_shape(const pl_graph *g, pl_tensor x, pl_dim dim[4]);

/* Convert to and from the text form: one line per tensor, `name: f32[n_tok, 64]
 * = add(a, b)`. */
PL_API pl_status pl_graph_print(const pl_graph *g, pl_write_fn *write,
                                void *user, pl_err *err);
PL_API pl_status pl_graph_parse(pl_graph **out, const char *text, pl_err *err);
/* Parses a text that names custom ops. */
PL_API pl_status pl_graph_parse_ops(pl_graph **out, const char *text, int n_def,
                                    const pl_op_def *const *def, pl_err *err);

/* ---- running a graph --------------------------------------------------- */

/* A graph planned for a set of devices, with its own memory. */
typedef struct pl_exec pl_exec; /* opaque */

/* Plans `g` (borrowed until pl_exec_free) and allocates device memory. */
PL_API pl_status pl_exec_create(pl_exec **out, const pl_graph *g,
                                const pl_options *opt, pl_err *err);
PL_API void pl_exec_free(pl_exec *x);

/* Writes bytes of the logical tensor in its own format, row by row; packed
 * weights in the format's blocks. A weight that was never set is zeros. This
 * function and those below change nothing if the range exceeds the tensor, or
 * if the tensor is a computed value (BAD_ARGUMENT). */
PL_API pl_status pl_tensor_set(pl_exec *x, pl_tensor t, const void *data,
                               size_t offset, size_t bytes, pl_err *err);
/* Reads any byte range of a weight, a cache, an input, an output or a kept
 * tensor (any other: BAD_ARGUMENT). Sizes that depend on the step are those of
 * the last one, 0 before the first. */
PL_API pl_status pl_tensor_get(pl_exec *x, pl_tensor t, void *data,
                               size_t offset, size_t bytes, pl_err *err);

/* The same, asynchronously: executed in the order of the calls, on a thread of
 * the executor. `data` must stay valid until pl_exec_wait, or until a step or
 * another get or set has returned: these wait on their own. The call that waits
 * returns the first failure; operations queued after it are not executed. Wait
 * before any other call of an engine. */
PL_API pl_status pl_tensor_get_async(pl_exec *x, pl_tensor t, void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_tensor_set_async(pl_exec *x, pl_tensor t, const void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_exec_wait(pl_exec *x, pl_err *err);

/* A strided view: its index i is value start + sum of i_d * stride_d of the
 * tensor, counted row by row. Strides may be 0 or negative. */
typedef struct pl_view {
    int n_dim; /* 1 to 4 */
    int64_t dim[4], stride[4];
    int64_t start;
} pl_view;

/* Read and write a view's values in its own order, densely packed: in the
 * tensor's format, or F32 for block formats. Whole rows of weights and caches
 * are read for it. Values of block formats cannot be set. If a view has a value
 * several times, the last one is set. */
PL_API pl_status pl_tensor_get_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    void *data, pl_err *err);
PL_API pl_status pl_tensor_set_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    const void *data, pl_err *err);

/* Tokens of a step, in order; those of one sequence are adjacent. */
typedef struct pl_step_tokens {
    size_t size;
    int64_t n_tok, n_out;
    const int32_t *pos; /* [n_tok] position in its sequence */
    const int32_t *seq; /* [n_tok] row of pages */
    /* For each pool, [n_seq, page_stride]: the page of 64 slots that holds
     * positions 64 i .. 64 i + 63. If the pool has a window, only pages with
     * positions that the tokens see are read. For the pool of states, three
     * words: the slot of the state that is read; the slot, the same or another,
     * where the state after the step's tokens is written; and the position that
     * the former state stands before, where these tokens begin. At 0 nothing is
     * read. */
    const int32_t *pages[PL_MAX_POOL];
    int64_t page_stride;
} pl_step_tokens;

static inline void pl_rows_init(pl_step_tokens *r)
{
    if (!r)
        return;
    memset(r, 0, sizeof *r);
    r->size = sizeof *r;
}

/* Executes the graph once. Inputs are those set by pl_tensor_set, or unchanged.
 * pos, seq and pages may each be NULL: then all tokens are at position 0, of
 * sequence 0, in the first page. But in a graph with caches or states, seq
 * needs pages. BAD_ARGUMENT, with nothing executed: more tokens or results than
 * planned, or no token; a position or sequence outside the page table; a page
 * or slot that the pool does not have; tables for only some pools; tokens of a
 * state out of order, not adjacent, or before the state's position; an executor
 * that belongs to an engine. */
PL_API pl_status pl_exec_step(pl_exec *x, const pl_step_tokens *rows,
                              pl_err *err);

/* size: sizeof *out. */
PL_API void pl_exec_traced(const pl_exec *x, pl_traced *out, size_t size);
PL_API void pl_exec_counters(const pl_exec *x, pl_counters *out, size_t size);

/* ---- the graph of a model ------------------------------------------------ */

/* Returns the graph of a model as planned; valid as long as the plan. */
PL_API const pl_graph *pl_plan_graph(const pl_plan *p);
/* Return the engine's executor, and a tensor by name, or -1. With them tensors
 * are read and set between calls of the engine; kept values are those of its
 * last step. The engine owns the executor: pl_exec_free does nothing, and
 * pl_exec_step gives BAD_ARGUMENT. */
PL_API pl_exec *pl_engine_exec(pl_engine *e);
PL_API pl_tensor pl_engine_tensor(const pl_engine *e, const char *name);

#ifdef __cplusplus
}
#endif
#endif
