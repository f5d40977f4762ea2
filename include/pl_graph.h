/* plait's graphs: custom tensors and ops that are executed on several devices
 * as if they were one. Also gives access to the graph of a model's plan and
 * engine.
 *
 * Programs that only run models need only pl.h. The rules at its start hold
 * here too. */
#ifndef PL_GRAPH_H
#define PL_GRAPH_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graphs ------------------------------------------------------------ */

/* Maximum number of pools in a graph. A pool has the cache slots of all caches
 * and states with the same retention rule. The rules are: keep all tokens, keep
 * the last W tokens of each sequence, or keep states. Pools are numbered in the
 * order of first use. */
enum { PL_MAX_POOL = 4 };

/* The factor of a dimension's size that is known only when a graph is planned
 * or a step is executed. A dimension (pl_dim) has the size n times this factor;
 * PL_CONST is the factor 1. */
typedef enum pl_symbol {
    PL_CONST,
    PL_N_TOK, /* number of tokens of the step */
    PL_N_OUT, /* number of the step's tokens whose results are wanted */
    /* Number of cache or state slots of pool 0, fixed when a plan is made.
     * PL_N_SLOT + i is that of pool i. */
    PL_N_SLOT,
} pl_symbol;

typedef struct pl_dim {
    int64_t n;
    pl_symbol symbol;
} pl_dim;

/* The purpose of a leaf (an input, weight, cache or state). The role decides
 * how the tensor is split; the name never does. A leaf with PL_ROLE_NONE is
 * mirrored unless a layout is requested.
 *
 * Most roles are named like the tensors of GGUF files. The others are:
 *
 *   ATTN_GATE    rows that give a gate value for each value of a head's result
 *   CONV         convolution taps of the channels of a delta net's q, k and v,
 *                or of one of these
 *   DELTA_GATE   one row or value per value head of a delta net, or as many as
 *                a head has values
 *   DELTA_GATES  the rows of two such gates; for each key head, the rows of its
 *                value heads of the first gate, then those of the second
 *   DELTA_GATE_A rows that all value heads share: DELTA_GATE or ATTN_GATE times
 *                the results of this matrix are gates
 *   ATTN_OUT_A   matrices of groups of adjacent query heads, whose results the
 *                columns of ATTN_OUT belong to
 *   EXPERT_IDS   the experts of each token id
 *   INDEXER      a matrix of the indexer, which chooses the keys of attention
 *   INDEXER_Q    the indexer's queries, if it chooses for each KV head
 *   CACHE_INDEX  the indexer's keys, and what keys of blocks are made of
 *   STATE        a recurrent state per value head
 *   CONV_STATE   earlier inputs per channel of a convolution
 *   SSM_IN       rows of a state space model's z, x, b, c and dt, in this order
 *   SSM_CONV     convolution taps or biases of the channels of its x, b and c
 *   SSM_GATE     one value per head of it
 *   SSM_OUT      columns that belong to values of its heads
 *   SSM_STATE, SSM_CONV_STATE   as STATE and CONV_STATE */
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
    X(INDEXER)                                                                 \
    X(INDEXER_Q)                                                               \
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
    X(CACHE_INDEX)                                                             \
    X(STATE)                                                                   \
    X(CONV_STATE)                                                              \
    X(SSM_IN)                                                                  \
    X(SSM_CONV)                                                                \
    X(SSM_GATE)                                                                \
    X(SSM_OUT)                                                                 \
    X(SSM_STATE)                                                               \
    X(SSM_CONV_STATE)                                                          \
    X(DELTA_GATE_A)                                                            \
    X(ATTN_OUT_A)                                                              \
    X(EXPERT_IDS)

typedef enum pl_role {
#define PL_ROLE_ENUM(name) PL_ROLE_##name,
    PL_ROLE_MAP(PL_ROLE_ENUM)
#undef PL_ROLE_ENUM
        PL_ROLE_COUNT
} pl_role;

/* The layout of one logical tensor among the ranks. If it is SPLIT, dimension
 * `dim` is tiled by intervals. Interval i covers run[i].len indices, which the
 * ranks in run[i].owners (bit r is rank r) hold. The tiling repeats every
 * `period` indices. `period` is the sum of the lengths and divides the
 * dimension's size. */
typedef enum pl_layout_kind {
    PL_MIRRORED, /* every rank has all values */
    /* the value is the sum of addends, of which each rank has one */
    PL_PARTIAL,
    PL_SPLIT,
} pl_layout_kind;

typedef struct pl_interval {
    int64_t len;
    uint64_t owners;
} pl_interval;

typedef struct pl_layout {
    pl_layout_kind kind;
    /* SPLIT only: index of the dimension that is split; 0 is the outermost */
    int dim;
    /* SPLIT only: number of indices after which the intervals repeat, the sum
     * of the lengths in run[] */
    int64_t period;
    int n_run;              /* SPLIT only: number of intervals in run[] */
    const pl_interval *run; /* SPLIT only: [n_run] the intervals, in order */
} pl_layout;

typedef struct pl_graph pl_graph; /* opaque */

/* A tensor of a graph: its index, or -1 after an error. The functions that
 * change a graph are its builders. Builders accept -1 and return -1 then, and
 * the graph keeps the first error, so a caller needs to test only
 * pl_graph_check. After an error, and if `g` is NULL, builders do nothing.
 * Changing a graph that an executor uses is an error. */
typedef int32_t pl_tensor;

/* The function that turns router logits into the scores of experts. */
typedef enum pl_gating {
    PL_GATING_SOFTMAX,          /* softmax over all experts */
    PL_GATING_SIGMOID,          /* sigmoid of each expert's logit */
    PL_GATING_SOFTMAX_SELECTED, /* softmax over selected experts */
    PL_GATING_SQRT_SOFTPLUS,    /* sqrt(softplus) of each expert's logit */
} pl_gating;

typedef struct pl_rope {
    size_t size;
    int n_rot;        /* how many values of a head are rotated; even */
    bool neox;        /* rotates pairs (i, i + n_rot/2); else (2i, 2i + 1) */
    float base;       /* frequency base */
    float freq_scale; /* 1 / factor of linear or YaRN scaling; 0 means 1 */
    bool yarn;
    /* the first and the last pair index of YaRN's ramp */
    float yarn_low, yarn_high;
    float mscale; /* factor of the cosines and sines; 0 means 1 */
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

/* Assigns the tensors created from now on to a layer of the model, counted from
 * 0. -1, the value in a new graph, assigns them to no layer. Planning assigns
 * whole layers to devices. */
PL_API void pl_layer(pl_graph *g, int layer);

/* Sets the numerics of ops created from now on. A new graph has
 * PL_NUMERICS_EXACT. */
PL_API void pl_set_numerics(pl_graph *g, pl_numerics numerics);

/* Create leaves. Names are unique. The host fills an input before each step
 * (F32 or I32). A weight is loaded once. In a block format it needs two or
 * three dimensions, the last a multiple of the block's size. A cache [slots,
 * n_head, d_head] holds keys, or values if `values`, for attention. The cache
 * holds the keys or values of all tokens, or, if window > 0, of the tokens in
 * the attention window. */
PL_API pl_tensor pl_input(pl_graph *g, const char *name, pl_format f, int n_dim,
                          const pl_dim *dim);
PL_API pl_tensor pl_weight(pl_graph *g, const char *name, pl_format f,
                           int n_dim, const int64_t *dim, pl_role role);
PL_API pl_tensor pl_cache(pl_graph *g, const char *name, pl_format f,
                          int64_t n_head, int64_t d_head, bool values,
                          int64_t window);
/* Creates a cache [slots, 1, d] for pl_index_topk and pl_index_blocks: the keys
 * of an indexer, for all tokens. All ranks hold all of it. */
PL_API pl_tensor pl_index_cache(pl_graph *g, const char *name, pl_format f,
                                int64_t d);
/* Creates a state [slots, n_head, d_head] (F32), one slot per sequence. The op
 * that reads the state updates it with each token. The role is PL_ROLE_STATE or
 * PL_ROLE_CONV_STATE. */
PL_API pl_tensor pl_state(pl_graph *g, const char *name, int64_t n_head,
                          int64_t d_head, pl_role role);

/* The builders of ops follow. Each comment gives the shapes of the operands
 * and, after "->", of the result; [*] stands for any leading dimensions, t for
 * tokens.
 *
 * Gathers rows: table [v, d], ids [*] (I32) -> [*, d]. Ids out of range give
 * zeros. */
PL_API pl_tensor pl_gather_rows(pl_graph *g, pl_tensor table, pl_tensor ids);
/* Multiplies by a weight: x [*, k], w [n, k] -> [*, n]. */
PL_API pl_tensor pl_matmul(pl_graph *g, pl_tensor x, pl_tensor w);
/* Multiplies each head by its own matrix of a weight: x [t, h, k], w [h, n, k]
 * -> [t, h, n]. */
PL_API pl_tensor pl_head_matmul(pl_graph *g, pl_tensor x, pl_tensor w);
/* Multiplies by the matrices of chosen experts: x [t, u or 1, k], w [e, n, k],
 * ids [t, u] (I32) -> [t, u, n]. Choice u of token t uses the matrix of expert
 * ids[t, u]. */
PL_API pl_tensor pl_expert_matmul(pl_graph *g, pl_tensor x, pl_tensor w,
                                  pl_tensor ids);
/* Multiplies by the matrices of chosen experts and adds up the results of a
 * token: x [t, u, k], w [e, n, k], ids [t, u] (I32) -> [t, n]. Experts are
 * added in ascending order. The caller multiplies x by the router weights
 * beforehand. */
PL_API pl_tensor pl_expert_down(pl_graph *g, pl_tensor x, pl_tensor w,
                                pl_tensor ids);
/* Computes x / sqrt(mean(x^2) + eps) over the last dimension, multiplied by w
 * [d] unless `w` is -1. */
PL_API pl_tensor pl_rms_norm(pl_graph *g, pl_tensor x, pl_tensor w, float eps);
/* Computes (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) over the last
 * dimension, multiplied by w [d] unless `w` is -1. */
PL_API pl_tensor pl_layer_norm(pl_graph *g, pl_tensor x, pl_tensor w,
                               float eps);
/* Rotary position embedding: rotates pairs of values of x [t, h, d] by angles
 * in proportion to the positions pos [t] (I32). freqs [n_rot/2] divides the
 * angles; -1 for none. */
PL_API pl_tensor pl_rope_apply(pl_graph *g, pl_tensor x, pl_tensor pos,
                               pl_tensor freqs, const pl_rope *rope);
/* Stores x [t, n_head, d_head] in the cache at the positions of the step's
 * tokens. Returns the cache, for attention to read. */
PL_API pl_tensor pl_cache_write(pl_graph *g, pl_tensor cache, pl_tensor x);
/* Causal attention within each sequence: q [t, n_head, d], caches k [slots,
 * n_kv, d] and v [slots, n_kv, e] -> [t, n_head, e]. n_head is a multiple of
 * n_kv. `sinks` [n_head] are logits of attention sinks; -1 for none. A token
 * attends to the last `window` tokens; 0 for all. `softcap` limits scores; 0
 * for no limit. */
PL_API pl_tensor pl_attention(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor sinks, float scale,
                              int64_t window, float softcap);
/* Attention to both sides within each sequence: like pl_attention without
 * sinks, but a token also attends to later tokens, up to position ends [t]
 * (I32), which must be in the cache. A token attends to those fewer than
 * `window` positions away on either side; 0 for all. */
PL_API pl_tensor pl_bidirectional_attention(pl_graph *g, pl_tensor q,
                                            pl_tensor k, pl_tensor v,
                                            pl_tensor ends, float scale,
                                            int64_t window, float softcap);
/* Causal attention over latents (MLA): one cache, created with `values`, holds
 * the keys, and the first d_value values of a key are its value vector. q [t,
 * n_head, d], cache [slots, n_kv, d] -> [t, n_head, d_value]. */
PL_API pl_tensor pl_latent_attention(pl_graph *g, pl_tensor q, pl_tensor cache,
                                     int64_t d_value, float scale);
/* Like pl_latent_attention, but a token attends to k chosen positions: chosen
 * [t, k] (I32), of which each is limited to 0 .. the token's own position. A
 * token with at most k positions attends to all of them. */
PL_API pl_tensor pl_chosen_attention(pl_graph *g, pl_tensor q, pl_tensor cache,
                                     pl_tensor chosen, int64_t d_value,
                                     float scale);
/* Chooses for each token the k positions with the largest scores, of its own
 * and the earlier positions of its sequence: queries q [t, j, d] and weights w
 * [t, j] of j heads, keys in a cache [slots, 1, d] of pl_index_cache -> [t, k]
 * (I32), ascending.
 *
 *   score(u) = sum over heads i of w_i max(0, q_i key_u)
 *
 * Of equal scores the earlier position is chosen. If a token has fewer than k
 * positions, the rest of its row is -1. Source: DeepSeek-V3.2. */
PL_API pl_tensor pl_index_topk(pl_graph *g, pl_tensor q, pl_tensor w,
                               pl_tensor cache, int k);
/* Like pl_attention without sinks, window and soft cap, but the query heads of
 * a KV head attend to k chosen blocks of `block` adjacent positions, up to the
 * token's own: chosen [t, n_kv, k] (I32), as pl_index_blocks returns them. A
 * token with at most k blocks attends to all of them. */
PL_API pl_tensor pl_attention_blocks(pl_graph *g, pl_tensor q, pl_tensor k,
                                     pl_tensor v, pl_tensor chosen, int block,
                                     float scale);
/* Chooses for each token and each of j heads k blocks of `block` adjacent
 * positions, of those up to the token's own: queries q [t, j, d], keys in a
 * cache [slots, 1, d] of pl_index_cache -> [t, j, k] (I32), ascending. The
 * score of a block is the largest product of the head's query with a key up to
 * the token's own position. The last `local` blocks, at most k, are always
 * chosen, and others by the largest scores; of equal scores the earlier block.
 * If a token has fewer than k blocks, the rest of its row is -1. Source:
 * MiniMax-M3. */
PL_API pl_tensor pl_index_blocks(pl_graph *g, pl_tensor q, pl_tensor cache,
                                 int k, int block, int local);
/* Means of blocks of R tokens, which serve as keys. The cache [slots, 1, 2 c],
 * F32, created with `values`, has for each token the values v [c] and then the
 * gates g [c]; pos [t] (I32) are the positions of the step's tokens, bias
 * [R, c] -> [t, d]. c is d or 2 d. The result of a token that ends a block,
 * (pos + 1) % R = 0, is for each of d channels a mean of v over the block's
 * tokens, weighted by the softmax over these tokens of g + bias[pos % R]. If c
 * is 2 d, these are the last d channels of the block's tokens, and the first d
 * of the tokens of the block before, if any. Other results are 0. Source:
 * DeepSeek-V4's model card. */
PL_API pl_tensor pl_block_mean(pl_graph *g, pl_tensor cache, pl_tensor pos,
                               pl_tensor bias, int64_t d);
/* Causal attention to the last `window` tokens and to blocks of `ratio` tokens:
 * q [t, n_head, d], caches of values `keys` and `blocks` [slots, n_kv, d] that
 * keep all tokens, and sinks [n_head] -> [t, n_head, d]. A key is its value,
 * too. The key of block b is in `blocks` at the position of its last token. A
 * token sees the blocks that end at or before its own position: all of them,
 * or, if `chosen` [t, k] (I32) is not -1 and there are more than k, those whose
 * numbers it lists. */
PL_API pl_tensor pl_compressed_attention(pl_graph *g, pl_tensor q,
                                         pl_tensor keys, pl_tensor blocks,
                                         pl_tensor sinks, pl_tensor chosen,
                                         int ratio, float scale,
                                         int64_t window);
/* Like pl_index_topk, but chooses blocks of `ratio` tokens that end at or
 * before a token. The key of a block is at the position of its last token. */
PL_API pl_tensor pl_compressed_topk(pl_graph *g, pl_tensor q, pl_tensor w,
                                    pl_tensor cache, int k, int ratio);
/* Computes the weights of n residual streams (hyper-connections,
 * arXiv:2409.19606): x [*, n (n + 2)], scale [3], base [n (n + 2)] -> like x: n
 * weights a, n weights o and the matrix c [from, to]. With v = x scale + base,
 * of which a, o and c have a scale each:
 *
 *   a = sigmoid(v) + eps,  o = 2 sigmoid(v),  c = softmax over `to` of v, + eps
 *
 * Then each column of c is divided by its sum + eps, and n_iter - 1 times each
 * row, then each column. n is at most 8. */
PL_API pl_tensor pl_sinkhorn(pl_graph *g, pl_tensor x, pl_tensor scale,
                             pl_tensor base, int n_iter, float eps);
/* Adds y [t, e] to n residual streams x [t, n, e] and mixes them, by the
 * weights w [t, n (n + 1)], which are o and c of pl_sinkhorn: stream i becomes
 * o_i y + sum over j of c[j, i] x_j. */
PL_API pl_tensor pl_mix_streams(pl_graph *g, pl_tensor x, pl_tensor y,
                                pl_tensor w);
/* Causal convolution of each channel: x [t, c], taps w [c, n] -> [t, c]. The
 * last tap applies to the token itself, those before it to earlier tokens,
 * whose inputs the state [slots, c, n - 1] holds. If `silu`, SiLU follows. */
PL_API pl_tensor pl_short_conv(pl_graph *g, pl_tensor x, pl_tensor w,
                               pl_tensor state, bool silu);
/* Gated delta net (arXiv:2412.06464): q and k [t, n_key, d], v [t, n_head, e],
 * decay and beta [t, n_head] -> [t, n_head, e]. The state [slots, n_head, d *
 * e] is a matrix M [d, e] per head. For each token in turn:
 *
 *   k, q divided by max(their Euclidean norm, eps)
 *   M = exp(decay) M;  M += k (beta (v - M^T k))^T;  result M^T q / sqrt(d)
 *
 * Head h uses key head h / (n_head / n_key), or h % n_key if `tiled`. */
PL_API pl_tensor pl_delta_net(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor decay, pl_tensor beta,
                              pl_tensor state, float eps, bool tiled);
/* Gated delta net with a decay per channel (Kimi delta attention,
 * arXiv:2510.26692): like pl_delta_net, but decay is [t, n_head, d], k and q
 * are divided by the square root of (their sum of squares + eps), and
 *
 *   M[i][j] = exp(decay[i]) M[i][j];  M += k (beta (v - M^T k))^T
 *
 * Head h uses key head h / (n_head / n_key). */
PL_API pl_tensor pl_delta_net_channels(pl_graph *g, pl_tensor q, pl_tensor k,
                                       pl_tensor v, pl_tensor decay,
                                       pl_tensor beta, pl_tensor state,
                                       float eps);
/* The scan of a state space model (Mamba-2, arXiv:2405.21060): c and b [t,
 * n_group, d], x [t, n_head, e], already multiplied by the step sizes, decay
 * [t, n_head] -> [t, n_head, e]. The state [slots, n_head, d * e] is a matrix M
 * [d, e] per head. For each token in turn:
 *
 *   M = exp(decay) M + b x^T;  result M^T c
 *
 * Head h uses the c and b of group h / (n_head / n_group). */
PL_API pl_tensor pl_ssm_scan(pl_graph *g, pl_tensor c, pl_tensor b, pl_tensor x,
                             pl_tensor decay, pl_tensor state);
PL_API pl_tensor pl_softmax(pl_graph *g, pl_tensor x);
/* Chooses the n_used best experts: logits [*, e] -> ids [*, n_used] (I32), best
 * first; of equal ones the lower id comes first. bias [e] is added to the
 * scores for the choice only; -1 for none. If n_group > 1, experts form groups
 * and only those of the n_group_used best groups are chosen from. Groups are
 * ranked by the sum of their two best scores, or by their best score with
 * softmax gating. */
PL_API pl_tensor pl_router_topk(pl_graph *g, pl_tensor logits, pl_tensor bias,
                                pl_gating gating, int n_used, int n_group,
                                int n_group_used);
/* Returns the weights of the chosen experts: logits [*, e], ids [*, n_used] ->
 * [*, n_used]. If `normalise`, they are divided by max(their sum, 2^-14). Then
 * they are multiplied by `scale`. */
PL_API pl_tensor pl_router_weights(pl_graph *g, pl_tensor logits, pl_tensor ids,
                                   pl_gating gating, bool normalise,
                                   float scale);

/* Elementwise operations. An operand is broadcast along dimensions of size 1
 * and outer dimensions that it lacks. */
PL_API pl_tensor pl_add(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_sub(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_mul(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_div(pl_graph *g, pl_tensor a, pl_tensor b);
/* Gated activations. pl_swiglu computes silu(gate) * up; pl_geglu computes
 * gelu(gate) * up with the tanh form of gelu. pl_swiglu_oai, of gpt-oss,
 * computes (clamp(up, -limit, limit) + 1) * g * sigmoid(1.702 g) with
 * g = min(gate, limit). */
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
/* x times the normal distribution at x: pl_gelu in its tanh form, pl_gelu_erf
 * exactly. */
PL_API pl_tensor pl_gelu(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_gelu_erf(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_relu(pl_graph *g, pl_tensor x);
/* Sums over the second-last dimension: [*, u, d] -> [*, d]. */
PL_API pl_tensor pl_sum(pl_graph *g, pl_tensor x);
/* Rounds values to F16 or BF16; the result is F32 again. With format F32,
 * values are unchanged. */
PL_API pl_tensor pl_cast(pl_graph *g, pl_tensor x, pl_format f);
PL_API pl_tensor pl_contiguous(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_reshape(pl_graph *g, pl_tensor x, int n_dim,
                            const pl_dim *dim);
/* Permutes dimensions: dimension i of the result is dimension perm[i] of x. */
PL_API pl_tensor pl_permute(pl_graph *g, pl_tensor x, const int *perm);
/* Returns the indices start .. start + len - 1 of dimension `axis`, whose size
 * must be constant. */
PL_API pl_tensor pl_slice(pl_graph *g, pl_tensor x, int axis, int64_t start,
                          int64_t len);
PL_API pl_tensor pl_concat(pl_graph *g, int n, const pl_tensor *x, int axis);

/* ---- custom ops --------------------------------------------------------- */

/* A range of a split dimension that this device holds. Indices index .. index +
 * n - 1 of the whole dimension are indices at .. at + n - 1 of the device's
 * data. */
typedef struct pl_op_part {
    int64_t index, at, n;
} pl_op_part;

/* An operand or the result in a kernel's call: the values that this device
 * holds, contiguous in memory. In a split dimension, dim[] counts only the
 * indices that the device holds, which may be none. */
typedef struct pl_op_value {
    /* the values, [dim[0], ...] of float or int32_t; read-only for operands;
     * NULL if the operand is absent */
    void *data;
    pl_format format; /* F32 or I32; F32 for the result */
    int n_dim;
    int64_t dim[4]; /* sizes on this device in this step */
    int split;      /* the split dimension, or -1 */
    /* number of ranges of the split dimension that this device holds */
    int n_part;
    /* [n_part] ranges of the split dimension, in order */
    const pl_op_part *part;
} pl_op_value;

typedef struct pl_op_call {
    void *user; /* pl_op_def.user */
    pl_op_value out;
    int n_in;
    pl_op_value in[4];
    /* this thread's number, 0 .. nth-1, and the number of threads */
    int ith, nth;
} pl_op_call;

/* Computes an op on this device. All nth threads of a device call it at once,
 * and each computes its share of the result's values. The bits of a row must
 * not depend on nth, on other rows, or on how much of a split dimension the
 * device holds. The kernel must not fail or write anything but the result.
 * Several devices call it at the same time. */
typedef void pl_op_kernel(const pl_op_call *c);

/* Values of pl_op_def.partial: which operands may be PARTIAL, that is, one
 * addend per rank, not yet summed. With a PARTIAL operand the kernel is called
 * once per rank, with that rank's addend.
 *
 *   PL_OP_NONE       none
 *   PL_OP_ONE | m    one of the operands whose bits are set in m, if the others
 *                    are not PARTIAL; the kernel must be linear in that operand
 *   PL_OP_SUM        any of them; the kernel must be linear in all of them
 *                    together. An operand without an addend on a rank is absent
 *                    in that call (in[i].data is NULL) and counts as zeros */
enum { PL_OP_NONE = 0, PL_OP_SUM = 0x100, PL_OP_ONE = 0x200 };

/* The definition of an op. `dims` has a letter for each dimension of each
 * operand, then of the result, outermost first: "tk,nk->tn" is a matrix
 * product. Dimensions with the same letter have the same size. It also tells
 * which dimensions may be split:
 *
 *   a letter of the result       may be split. Operands with the letter are
 *                                then split alike, and the kernel gets the
 *                                device's ranges
 *   a letter only of operands    is summed over. If it is split, the kernel is
 *                                called once per rank with that rank's range of
 *                                the dimension, and computes an addend
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
    /* consists of letters, digits and "._-/+"; not the name of a built-in op */
    const char *name;
    const char *dims; /* dimensions of 1 to 4 operands, up to 4 each, and of the
                         result */
    unsigned partial; /* PL_OP_NONE, PL_OP_SUM, PL_OP_ONE | mask */
    pl_op_kernel *run;
    void *user; /* passed to `run`; must outlive graphs and plans */
    /* Version of the kernel's numerics; the caller changes it whenever the
     * results of `run` change in any bit. The numeric hash includes it, the
     * name and the dims. */
    uint64_t edition;
} pl_op_def;

static inline void pl_op_def_init(pl_op_def *d)
{
    if (!d)
        return;
    memset(d, 0, sizeof *d);
    d->size = sizeof *d;
}

/* Applies a custom op to n_in operands in[] (F32 or I32; -1 if absent). The
 * result is F32. The definition is copied. Ops of one graph with the same name
 * must have the same definition. */
PL_API pl_tensor pl_custom(pl_graph *g, const pl_op_def *def, int n_in,
                           const pl_tensor *in);

/* Mark results of the graph. An output is made available after every step. A
 * kept tensor is an intermediate value that may be read between steps. */
PL_API void pl_output(pl_graph *g, pl_tensor x);
PL_API void pl_keep(pl_graph *g, pl_tensor x);
/* Requests a layout for a tensor; `l` is copied. Caches can be split by heads
 * only. The two caches that an attention op reads are split alike: a rank holds
 * each head that was requested for it in either of them. */
PL_API void pl_want_layout(pl_graph *g, pl_tensor x, const pl_layout *l);
PL_API const char *pl_tensor_name(const pl_graph *g, pl_tensor x);
/* Names a tensor for pl_tensor_get and messages; leaves already have names. */
PL_API void pl_name(pl_graph *g, pl_tensor x, const char *name);
PL_API pl_tensor pl_tensor_find(const pl_graph *g, const char *name);
/* Returns the number of dimensions, or -1 on failure. Fills dim[4], which may
 * be NULL. */
PL_API int pl_tensor_shape(const pl_graph *g, pl_tensor x, pl_dim dim[4]);

/* Convert a graph to and from its text form, which has one line per tensor:
 * `name: f32[n_tok, 64] = add(a, b)`. */
PL_API pl_status pl_graph_print(const pl_graph *g, pl_write_fn *write,
                                void *user, pl_err *err);
PL_API pl_status pl_graph_parse(pl_graph **out, const char *text, pl_err *err);
/* Like pl_graph_parse, but the text may also use the custom ops def[n_def]. */
PL_API pl_status pl_graph_parse_ops(pl_graph **out, const char *text, int n_def,
                                    const pl_op_def *const *def, pl_err *err);

/* ---- running a graph --------------------------------------------------- */

/* A graph planned for a set of devices, with its own memory. */
typedef struct pl_exec pl_exec; /* opaque */

/* Plans `g` (borrowed until pl_exec_free) and allocates device memory. */
PL_API pl_status pl_exec_create(pl_exec **out, const pl_graph *g,
                                const pl_options *opt, pl_err *err);
PL_API void pl_exec_free(pl_exec *x);

/* Writes `bytes` bytes at `offset` of the logical tensor, which is the whole
 * tensor in its own format, row after row, in blocks for block formats. A
 * weight that was never set is zero. BAD_ARGUMENT, with nothing changed: the
 * range exceeds the tensor, or the tensor is computed. The same holds for the
 * functions below. */
PL_API pl_status pl_tensor_set(pl_exec *x, pl_tensor t, const void *data,
                               size_t offset, size_t bytes, pl_err *err);
/* Reads any byte range of a weight, a cache, an input, an output or a kept
 * tensor (any other: BAD_ARGUMENT). A tensor whose size depends on the step has
 * its size in the last step, or 0 before the first. */
PL_API pl_status pl_tensor_get(pl_exec *x, pl_tensor t, void *data,
                               size_t offset, size_t bytes, pl_err *err);

/* Asynchronous forms of pl_tensor_get and pl_tensor_set, executed in the order
 * of the calls on a thread of the executor. `data` must stay valid until
 * pl_exec_wait, a step, or a synchronous get or set has returned; each of these
 * waits for all earlier operations. The call that waits returns the first
 * failure; operations queued after a failed one are not executed. Call
 * pl_exec_wait before any other function of an engine. */
PL_API pl_status pl_tensor_get_async(pl_exec *x, pl_tensor t, void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_tensor_set_async(pl_exec *x, pl_tensor t, const void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_exec_wait(pl_exec *x, pl_err *err);

/* A strided view of a tensor. The tensor's values are numbered row by row. The
 * value at index (i_0, i_1, ...) of the view is the tensor's value number start
 * + sum of i_d * stride[d]. Strides may be 0 or negative. */
typedef struct pl_view {
    int n_dim; /* number of dimensions of the view, 1 to 4 */
    int64_t dim[4], stride[4];
    int64_t start;
} pl_view;

/* Read and write the values of a view. `data` has them densely packed in the
 * view's order, in the tensor's format, or as F32 for block formats. Values of
 * block formats cannot be set. If a view contains a value several times, the
 * value that stands last in `data` is set. */
PL_API pl_status pl_tensor_get_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    void *data, pl_err *err);
PL_API pl_status pl_tensor_set_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    const void *data, pl_err *err);

/* The tokens of a step, in the order of their rows. Tokens of the same sequence
 * are adjacent. */
typedef struct pl_step_tokens {
    size_t size;
    int64_t n_tok, n_out;
    const int32_t *pos; /* [n_tok] position of each token in its sequence */
    const int32_t *seq; /* [n_tok] sequence of each token: a row of `pages` */
    /* The page table of each pool, [n_seq, page_stride]. Entry i of a row is
     * the number of the page, of 64 slots, that holds positions 64 i .. 64 i +
     * 63 of the sequence. If the pool has a window, only entries of positions
     * inside the windows of the step's tokens are read.
     *
     * For a pool of states the first three entries are: the slot of the state
     * to read; the slot, perhaps the same, to which the state after the step's
     * tokens is written; and the number of tokens that the state to read
     * covers, at which the step's tokens begin. If that is 0, the state is not
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

/* Executes the graph once. Inputs that pl_tensor_set has not set since the last
 * step keep their values. If `pos`, `seq` or a page table is NULL, all tokens
 * are at position 0, of sequence 0, or in the first page. In a graph with
 * caches or states, `seq` needs page tables.
 *
 * BAD_ARGUMENT, with nothing executed: no token, or more tokens or results than
 * planned; a position or sequence outside the page table; a page or slot that
 * the pool does not have; page tables for only some of the pools; tokens of a
 * sequence with a state that are out of order, not adjacent, or before the
 * state's position; an executor that belongs to an engine. */
PL_API pl_status pl_exec_step(pl_exec *x, const pl_step_tokens *rows,
                              pl_err *err);

/* Writes the totals of the executor's trace to *out. `size` is sizeof *out. */
PL_API void pl_exec_traced(const pl_exec *x, pl_traced *out, size_t size);
PL_API void pl_exec_counters(const pl_exec *x, pl_counters *out, size_t size);

/* ---- the graph of a model ------------------------------------------------ */

/* Returns the graph of a model as planned; valid as long as the plan. */
PL_API const pl_graph *pl_plan_graph(const pl_plan *p);
/* pl_engine_exec returns the engine's executor. pl_engine_tensor returns the
 * tensor of the engine's graph with this name, or -1 if there is none. Callers
 * use both to read and set tensors between calls of the engine. Kept values are
 * those of the last step. Because the engine owns the executor, pl_exec_free
 * does nothing and pl_exec_step returns BAD_ARGUMENT. */
PL_API pl_exec *pl_engine_exec(pl_engine *e);
PL_API pl_tensor pl_engine_tensor(const pl_engine *e, const char *name);

#ifdef __cplusplus
}
#endif
#endif
