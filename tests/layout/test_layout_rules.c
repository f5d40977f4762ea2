/* Every row of ops.def agrees with computation.
 *
 * A rule says: if a letter of one operand is split so, the others must be held
 * so, and the result is held so (or PARTIAL). It is right if every rank can
 * compute its part of the result from what it holds (all else is NaN), or if
 * the ranks' results, each from its own addends (all else is zero), sum up to
 * the unsplit one. It is complete if no rank needs less than the rule demands,
 * if a PARTIAL result could not have been SPLIT, and if what the row forbids is
 * really wrong, or named in its reason. This decides any combination of splits:
 * it is legal if it contains what some rule demands.
 *
 * The evaluator is eval64.c, which knows neither letters nor layouts. */
#include "layout/rules.h"
#include "lib/eval64.h"
#include "lib/random_layout.h"
#include "lib/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOK = 3, N_SEQ = 2, MAX_POS = 3, N_DRAW = 60 };

/* Leaves, then nodes of one op that differ only in their attributes: a rule
 * must hold for all. */
static const char *const cases[] = {
    "w: f32[4, 6] = weight\ni: i32[7] = input\n"
    "y: f32[7, 6] = gather_rows(w, i)\n",
    "w: f32[3, 2] = input\ni: i32[2, 5] = input\n"
    "y: f32[2, 5, 2] = gather_rows(w, i)\n",
    "w: f32[3, 5] = weight\ni: i32[n_tok] = input\n"
    "y: f32[n_tok, 5] = gather_rows(w, i)\n",
    "x: f32[5, 6] = input\nw: f32[7, 6] = weight\n"
    "y: f32[5, 7] = matmul(x, w)\n",
    "x: f32[2, 3, 6] = input\nw: f32[6, 6] = weight\n"
    "y: f32[2, 3, 6] = matmul(x, w)\n",
    "x: f32[n_tok, 8] = input\nw: f32[5, 8] = weight\n"
    "y: f32[n_tok, 5] = matmul(x, w)\n",
    "x: f32[4, 3, 5] = input\nw: f32[3, 6, 5] = weight\n"
    "y: f32[4, 3, 6] = head_matmul(x, w)\n",
    "x: f32[n_tok, 5, 4] = input\nw: f32[5, 3, 4] = weight\n"
    "y: f32[n_tok, 5, 3] = head_matmul(x, w)\n",
    "x: f32[4, 3, 5] = input\nw: f32[3, 6, 5] = weight\ni: i32[4, 3] = input\n"
    "y: f32[4, 3, 6] = expert_matmul(x, w, i)\n",
    "x: f32[4, 1, 5] = input\nw: f32[3, 6, 5] = weight\ni: i32[4, 3] = input\n"
    "y: f32[4, 3, 6] = expert_matmul(x, w, i)\n",
    "x: f32[n_tok, 2, 5] = input\nw: f32[2, 4, 5] = weight\n"
    "i: i32[n_tok, 2] = input\n"
    "y: f32[n_tok, 2, 4] = expert_matmul(x, w, i)\n",
    "x: f32[4, 3, 5] = input\nw: f32[3, 6, 5] = weight\ni: i32[4, 3] = input\n"
    "y: f32[4, 6] = expert_down(x, w, i)\n",
    "x: f32[n_tok, 2, 5] = input\nw: f32[2, 4, 5] = weight\n"
    "i: i32[n_tok, 2] = input\n"
    "y: f32[n_tok, 4] = expert_down(x, w, i)\n",
    "x: f32[4, 5, 6] = input\nw: f32[6] = weight\n"
    "y: f32[4, 5, 6] = rms_norm(x, w) eps=1e-5\n",
    "x: f32[7, 4] = input\ny: f32[7, 4] = rms_norm(x) eps=1e-5\n",
    "x: f32[4, 5, 6] = input\nw: f32[6] = weight\n"
    "y: f32[4, 5, 6] = layer_norm(x, w) eps=1e-2\n",
    "x: f32[7, 4] = input\ny: f32[7, 4] = layer_norm(x) eps=1e-2\n",
    "x: f32[5, 4, 6] = input\np: i32[5] = input\n"
    "y: f32[5, 4, 6] = rope(x, p) base=100 n_rot=6\n"
    "z: f32[5, 4, 6] = rope(x, p) base=100 n_rot=4 neox=1 freq_scale=0.5"
    " scale=0.5 window=1\n",
    "x: f32[n_tok, 4, 6] = input\np: i32[n_tok] = input\nf: f32[2] = weight\n"
    "y: f32[n_tok, 4, 6] = rope(x, p, f) base=100 n_rot=4 yarn=1"
    " yarn_low=0 yarn_high=1 mscale=1.25\n"
    "z: f32[n_tok, 4, 6] = rope(x, p, f) base=100 n_rot=4 neox=1\n",
    "c: f32[n_slot, 4, 6] = memory values=0\nx: f32[n_tok, 4, 6] = input\n"
    "y: f32[n_slot, 4, 6] = cache_write(c, x)\n",
    "c: f16[n_slot, 5, 6] = memory values=1\nx: f32[n_tok, 5, 6] = input\n"
    "y: f16[n_slot, 5, 6] = cache_write(c, x) values=1\n",
    "q: f32[n_tok, 6, 4] = input\nk: f32[n_slot, 3, 4] = memory values=0\n"
    "v: f32[n_slot, 3, 5] = memory values=1\n"
    "y: f32[n_tok, 6, 5] = attention(q, k, v) scale=0.5\n"
    "z: f32[n_tok, 6, 5] = attention(q, k, v) scale=0.5 window=2\n"
    "u: f32[n_tok, 6, 5] = attention(q, k, v) scale=2 softcap=1.5\n",
    "q: f32[n_tok, 8, 4] = input\nk: f32[n_slot, 2, 4] = memory values=0\n"
    "v: f32[n_slot, 2, 3] = memory values=1\ns: f32[8] = weight\n"
    "y: f32[n_tok, 8, 3] = attention(q, k, v, s) scale=0.5 window=2\n"
    "z: f32[n_tok, 8, 3] = attention(q, k, v, s) scale=0.5\n",
    "q: f32[n_tok, 5, 4] = input\nk: f32[n_slot, 5, 4] = memory values=0\n"
    "v: f32[n_slot, 5, 4] = memory values=1\n"
    "y: f32[n_tok, 5, 4] = attention(q, k, v) scale=0.5\n",
    "q: f32[n_tok, 4, 3] = input\nk: f32[n_slot, 1, 3] = memory values=0\n"
    "v: f32[n_slot, 1, 2] = memory values=1\n"
    "y: f32[n_tok, 4, 2] = attention(q, k, v) scale=0.5\n",
    "q: f32[n_tok, 6, 4] = input\nk: f32[n_slot, 3, 4] = memory values=0\n"
    "v: f32[n_slot, 3, 5] = memory values=1\ne: i32[n_tok] = input\n"
    "y: f32[n_tok, 6, 5] = bidirectional_attention(q, k, v, e) scale=0.5\n"
    "z: f32[n_tok, 6, 5] = bidirectional_attention(q, k, v, e) scale=0.5"
    " window=2 softcap=1.5\n",
    "q: f32[n_tok, 6, 5] = input\nk: f32[n_slot, 3, 5] = memory values=1\n"
    "y: f32[n_tok, 6, 3] = latent_attention(q, k) scale=0.5 d_value=3\n"
    "z: f32[n_tok, 6, 5] = latent_attention(q, k) scale=2 d_value=5\n",
    "q: f32[n_tok, 4, 3] = input\nk: f32[n_slot, 1, 3] = memory values=1\n"
    "y: f32[n_tok, 4, 2] = latent_attention(q, k) scale=0.5 d_value=2\n",
    "q: f32[n_tok, 4, 3] = input\nk: f32[n_slot, 2, 3] = memory values=1\n"
    "p: i32[n_tok, 2] = input\n"
    "y: f32[n_tok, 4, 2] = latent_attention(q, k, p) scale=0.5 d_value=2\n",
    "q: f32[n_tok, 3, 4] = input\nw: f32[n_tok, 3] = input\n"
    "k: f32[n_slot, 1, 4] = memory values=0 role=cache_index\n"
    "y: i32[n_tok, 2] = index_topk(q, w, k) n_used=2\n"
    "z: i32[n_tok, 2] = index_topk(q, w, k) n_used=2 ratio=2\n",
    "q: f32[n_tok, 6, 4] = input\nk: f32[n_slot, 3, 4] = memory values=0\n"
    "v: f32[n_slot, 3, 5] = memory values=1\np: i32[n_tok, 3, 2] = input\n"
    "y: f32[n_tok, 6, 5] = attention_blocks(q, k, v, p) scale=0.5 block=1\n",
    "q: f32[n_tok, 3, 4] = input\n"
    "k: f32[n_slot, 1, 4] = memory values=0 role=cache_index\n"
    "y: i32[n_tok, 3, 2] = index_blocks(q, k) n_used=2 block=1 local=1\n",
    "q: f32[n_tok, 4, 3] = input\nk: f32[n_slot, 2, 3] = memory values=1\n"
    "b: f32[n_slot, 2, 3] = memory values=1\ns: f32[4] = input\n"
    "y: f32[n_tok, 4, 3] = compressed_attention(q, k, b, s) scale=0.5 window=3"
    " ratio=2\n",
    "q: f32[n_tok, 4, 3] = input\nk: f32[n_slot, 2, 3] = memory values=1\n"
    "b: f32[n_slot, 2, 3] = memory values=1\ns: f32[4] = input\n"
    "p: i32[n_tok, 2] = input\n"
    "z: f32[n_tok, 4, 3] = compressed_attention(q, k, b, s, p) scale=0.5 "
    "window=3"
    " ratio=1\n",
    /* one channel, whose mean reads all of each token */
    "k: f32[n_slot, 1, 2] = memory values=1 role=cache_index\n"
    "p: i32[n_tok] = input\nw: f32[2, 1] = weight\n"
    "y: f32[n_tok, 1] = block_mean(k, p, w) d_value=1\n",
    "k: f32[n_slot, 1, 4] = memory values=1 role=cache_index\n"
    "p: i32[n_tok] = input\nw: f32[1, 2] = weight\n"
    "z: f32[n_tok, 1] = block_mean(k, p, w) d_value=1\n",
    "x: f32[n_tok, 8] = input\ns: f32[3] = weight\nb: f32[8] = weight\n"
    "y: f32[n_tok, 8] = sinkhorn(x, s, b) eps=0.01 n_iter=3\n",
    "v: f32[n_tok, 2, 5] = input\nu: f32[n_tok, 5] = input\n"
    "x: f32[n_tok, 6] = input\n"
    "z: f32[n_tok, 2, 5] = mix_streams(v, u, x)\n",
    "x: f32[n_tok, 5] = input\nw: f32[5, 3] = weight\n"
    "s: f32[n_slot, 5, 2] = memory state=1 role=conv_state\n"
    "r: f32[n_slot, 5, 2] = memory state=1 role=conv_state\n"
    "y: f32[n_tok, 5] = short_conv(x, w, s)\n"
    "z: f32[n_tok, 5] = short_conv(x, w, r) silu=1\n",
    "x: f32[n_tok, 4] = input\nw: f32[4, 2] = input\n"
    "s: f32[n_slot, 4, 1] = memory state=1\n"
    "r: f32[n_slot, 4, 1] = memory state=1\n"
    "y: f32[n_tok, 4] = short_conv(x, w, s)\n"
    "z: f32[n_tok, 4] = short_conv(x, w, r) silu=1\n",
    "q: f32[n_tok, 3, 2] = input\nk: f32[n_tok, 3, 2] = input\n"
    "v: f32[n_tok, 3, 3] = input\n"
    "a: f32[n_tok, 3] = input\nb: f32[n_tok, 3] = input\n"
    "s: f32[n_slot, 3, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 3, 3] = delta_net(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 2, 3] = input\nk: f32[n_tok, 2, 3] = input\n"
    "v: f32[n_tok, 6, 2] = input\n"
    "a: f32[n_tok, 6] = input\nb: f32[n_tok, 6] = input\n"
    "s: f32[n_slot, 6, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 6, 2] = delta_net(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 1, 2] = input\nk: f32[n_tok, 1, 2] = input\n"
    "v: f32[n_tok, 4, 2] = input\n"
    "a: f32[n_tok, 4] = input\nb: f32[n_tok, 4] = input\n"
    "s: f32[n_slot, 4, 4] = memory state=1 role=state\n"
    "y: f32[n_tok, 4, 2] = delta_net(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 3, 2] = input\nk: f32[n_tok, 3, 2] = input\n"
    "v: f32[n_tok, 3, 3] = input\n"
    "a: f32[n_tok, 3] = input\nb: f32[n_tok, 3] = input\n"
    "s: f32[n_slot, 3, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 3, 3] = delta_net_tiled(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 2, 3] = input\nk: f32[n_tok, 2, 3] = input\n"
    "v: f32[n_tok, 6, 2] = input\n"
    "a: f32[n_tok, 6] = input\nb: f32[n_tok, 6] = input\n"
    "s: f32[n_slot, 6, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 6, 2] = delta_net_tiled(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 1, 2] = input\nk: f32[n_tok, 1, 2] = input\n"
    "v: f32[n_tok, 4, 2] = input\n"
    "a: f32[n_tok, 4] = input\nb: f32[n_tok, 4] = input\n"
    "s: f32[n_slot, 4, 4] = memory state=1 role=state\n"
    "y: f32[n_tok, 4, 2] = delta_net_tiled(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 3, 2] = input\nk: f32[n_tok, 3, 2] = input\n"
    "v: f32[n_tok, 3, 3] = input\n"
    "a: f32[n_tok, 3, 2] = input\nb: f32[n_tok, 3] = input\n"
    "s: f32[n_slot, 3, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 3, 3] = delta_net_channels(q, k, v, a, b, s) eps=0.01\n",
    "q: f32[n_tok, 2, 3] = input\nk: f32[n_tok, 2, 3] = input\n"
    "v: f32[n_tok, 6, 2] = input\n"
    "a: f32[n_tok, 6, 3] = input\nb: f32[n_tok, 6] = input\n"
    "s: f32[n_slot, 6, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 6, 2] = delta_net_channels(q, k, v, a, b, s) eps=0.01\n",
    "c: f32[n_tok, 3, 2] = input\nb: f32[n_tok, 3, 2] = input\n"
    "x: f32[n_tok, 3, 3] = input\na: f32[n_tok, 3] = input\n"
    "s: f32[n_slot, 3, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 3, 3] = ssm_scan(c, b, x, a, s)\n",
    "c: f32[n_tok, 2, 3] = input\nb: f32[n_tok, 2, 3] = input\n"
    "x: f32[n_tok, 6, 2] = input\na: f32[n_tok, 6] = input\n"
    "s: f32[n_slot, 6, 6] = memory state=1 role=state\n"
    "y: f32[n_tok, 6, 2] = ssm_scan(c, b, x, a, s)\n",
    "c: f32[n_tok, 1, 2] = input\nb: f32[n_tok, 1, 2] = input\n"
    "x: f32[n_tok, 4, 2] = input\na: f32[n_tok, 4] = input\n"
    "s: f32[n_slot, 4, 4] = memory state=1 role=state\n"
    "y: f32[n_tok, 4, 2] = ssm_scan(c, b, x, a, s)\n",
    "x: f32[4, 5, 6] = input\ny: f32[4, 5, 6] = softmax(x)\n",
    "x: f32[5, 6] = input\nb: f32[6] = weight\n"
    "y: i32[5, 2] = router_topk(x, b) n_used=2\n"
    "z: i32[5, 2] = router_topk(x, b) n_used=2 gating=1\n"
    "u: i32[5, 2] = router_topk(x, b) n_used=2 gating=2 n_group=3"
    " n_group_used=2\n",
    "x: f32[3, 4, 6] = input\ny: i32[3, 4, 3] = router_topk(x) n_used=3\n",
    "x: f32[5, 6] = input\ni: i32[5, 3] = input\n"
    "y: f32[5, 3] = router_weights(x, i) scale=1\n"
    "z: f32[5, 3] = router_weights(x, i) scale=2 normalise=1\n"
    "u: f32[5, 3] = router_weights(x, i) scale=2 gating=1\n"
    "v: f32[5, 3] = router_weights(x, i) scale=2 gating=2\n",
    "a: f32[4, 5] = input\nb: f32[4, 5] = input\n"
    "y: f32[4, 5] = add(a, b)\n",
    "a: f32[4, 5] = input\nb: f32[5] = input\ny: f32[4, 5] = add(a, b)\n",
    "a: f32[5] = input\nb: f32[3, 1, 5] = input\n"
    "y: f32[3, 1, 5] = sub(a, b)\n",
    "a: f32[3, 4, 5] = input\nb: f32[4, 1] = input\n"
    "y: f32[3, 4, 5] = mul(a, b)\n",
    "a: f32[3, 1, 6] = input\nb: f32[4, 1] = input\n"
    "y: f32[3, 4, 6] = mul(a, b)\n",
    "a: f32[n_tok, 6] = input\nb: f32[n_tok, 6] = input\n"
    "y: f32[n_tok, 6] = div(a, b)\n",
    "a: f32[1, 6] = input\nb: f32[3, 1] = input\ny: f32[3, 6] = div(a, b)\n",
    "a: f32[4, 5] = input\nb: f32[4, 5] = input\n"
    "y: f32[4, 5] = swiglu(a, b)\n",
    "a: f32[4, 5] = input\nb: f32[4, 1] = input\n"
    "y: f32[4, 5] = geglu(a, b)\n",
    "a: f32[4, 5] = input\nb: f32[4, 5] = input\n"
    "y: f32[4, 5] = swiglu_oai(a, b) lo=-1 hi=1 alpha=1.702\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = scale(a) scale=3\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = clamp(a) lo=-0.5 hi=0.25\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = sqr(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = sqrt(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = exp(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = tanh(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = sigmoid(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = softplus(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = silu(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = gelu(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = gelu_erf(a)\n",
    "a: f32[2, 3, 2, 3] = input\ny: f32[2, 3, 2, 3] = relu(a)\n",
    "a: f32[3, 4, 5] = input\ny: f32[3, 5] = sum(a)\n",
    "a: f32[4, 5] = input\ny: f32[5] = sum(a)\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = cast(a)\n"
    "z: f32[4, 5] = cast(a) format=1\nu: f32[4, 5] = cast(a) format=2\n",
    "a: f32[4, 5] = input\ny: f32[4, 5] = contiguous(a)\n",
    "a: f32[4, 6] = input\ny: f32[3, 8] = reshape(a)\n",
    "a: f32[4, 6] = input\ny: f32[6, 4] = permute(a) perm0=1\n",
    "a: f32[4, 6] = input\ny: f32[4, 3] = slice(a) axis=1 start=2\n",
    "a: f32[4, 2] = input\nb: f32[4, 3] = input\n"
    "y: f32[4, 5] = concat(a, b) axis=1\n",
};
enum { N_CASE = sizeof cases / sizeof *cases };

struct
try {
    pl_graph *g;
    int first; /* index of the node in its first variant */
    const struct graph_node *n;
    struct eval_rows rows;
    int32_t pos[N_TOK], seq[N_TOK];
    /* operands of the node, and its result without a split */
    struct eval_value in[GRAPH_MAX_IN], whole;
    uint64_t *seed;
};

static const struct graph_node *operand(const struct try *t, int i)
{
    return &t->g->node[t->n->in[i]];
}

static bool has(const struct try *t, int i)
{
    return i < t->n->n_in && t->n->in[i] >= 0;
}

/* Draws a value; ids of a row are distinct if the op needs that. */
static double draw_value(const struct try *t, int i, int64_t k)
{
    const struct graph_node *n = t->n;

    if (operand(t, i)->format == PL_I32) {
        int64_t below = n->op == OP_rope ? 9 : operand(t, 0)->dim[0].n;

        if (n->op == OP_gather_rows)
            return (double)(test_below(t->seed, below + 1) - (k == 0));
        if (n->op == OP_expert_matmul || n->op == OP_expert_down)
            below = operand(t, 1)->dim[0].n;
        if (n->op == OP_bidirectional_attention)
            below = MAX_POS;
        if (n->op == OP_router_weights)
            return (double)((k * 2 + k / 3) % operand(t, 0)->dim[1].n);
        return (double)test_below(t->seed, below);
    }
    if (n->op == OP_sqrt || (n->op == OP_div && i == 1))
        return 1.5 + (double)test_unit(t->seed);
    return 2 * (double)test_unit(t->seed);
}

static void try_init(struct try *t, const char *text, uint64_t *seed)
{
    static const int32_t pos[N_TOK] = {1, 2, 0}, seq[N_TOK] = {0, 0, 1};
    pl_err err;

    *t = (struct try){.seed = seed};
    if (pl_graph_parse(&t->g, text, &err) != PL_OK)
        fail_msg("%s\n%s", err.message, text);
    while (!op_info(t->g->node[t->first].op)->dims)
        t->first++;
    t->n = &t->g->node[t->first];
    memcpy(t->pos, pos, sizeof pos);
    memcpy(t->seq, seq, sizeof seq);
    t->rows = (struct eval_rows){N_TOK, 1, MAX_POS, t->pos, t->seq};
}

static void draw_operand(struct try *t, int i, struct eval_value *v)
{
    const struct graph_sizes s = {N_TOK, 1, N_SEQ, {N_SEQ * MAX_POS}};

    v->n_dim = operand(t, i)->n_dim;
    v->n = 1;
    for (int d = 0; d < v->n_dim; d++) {
        v->dim[d] = dim_value(operand(t, i)->dim[d], &s);
        v->n *= v->dim[d];
    }
    free(v->x);
    v->x = test_need((size_t)v->n, sizeof *v->x);
    for (int64_t k = 0; k < v->n; k++)
        v->x[k] = draw_value(t, i, k);
}

static void try_draw(struct try *t)
{
    for (int i = 0; i < t->n->n_in; i++)
        if (has(t, i))
            draw_operand(t, i, &t->in[i]);
}

static void try_variant(struct try *t, int node)
{
    t->n = &t->g->node[node];
    eval_value_free(&t->whole);
    eval64_op(t->n, t->in, &t->rows, &t->whole, NULL);
}

static void try_free(struct try *t)
{
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        eval_value_free(&t->in[i]);
    eval_value_free(&t->whole);
    pl_graph_free(t->g);
}

/* Returns the index along dimension d of value k. */
static int64_t index_of(const struct eval_value *v, int d, int64_t k)
{
    for (int i = v->n_dim - 1; i > d; i--)
        k /= v->dim[i];
    return k % v->dim[d];
}

static bool holds(const pl_layout *l, const struct eval_value *v, int64_t k,
                  int rank)
{
    return l->kind != PL_SPLIT ||
           naive_owners(l, index_of(v, l->dim, k), 64) >> rank & 1;
}

static bool counts(const pl_layout *l, const struct eval_value *v, int64_t k,
                   int rank)
{
    return l->kind != PL_SPLIT ||
           rank_first(naive_owners(l, index_of(v, l->dim, k), 64)) == rank;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

static void clone(struct eval_value *to, const struct eval_value *v)
{
    *to = *v;
    to->x = test_need(1, (size_t)v->n * sizeof *v->x);
    memcpy(to->x, v->x, (size_t)v->n * sizeof *v->x);
}

/* Computes the op on what one rank holds; elsewhere `fill` (NaN: absent; 0:
 * another rank's addend). Index `gone` of dimension `dim` of operand `of` is
 * removed as well. */
static void run_rank(struct try *t, const pl_layout *const *l, int rank,
                     double fill, int of, int dim, int64_t gone,
                     struct eval_value *out)
{
    struct eval_value in[GRAPH_MAX_IN] = {{0}};

    for (int i = 0; i < t->n->n_in; i++) {
        if (!has(t, i))
            continue;
        clone(&in[i], &t->in[i]);
        for (int64_t k = 0; k < in[i].n; k++)
            if (isnan(fill) ? !holds(l[i], &in[i], k, rank)
                            : !counts(l[i], &in[i], k, rank))
                in[i].x[k] = fill;
            else if (i == of && index_of(&in[i], dim, k) == gone)
                in[i].x[k] = NAN;
    }
    eval64_op(t->n, in, &t->rows, out, NULL);
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        eval_value_free(&in[i]);
}

/* Returns true if every rank can compute its part of the result. */
static bool fits(struct try *t, const pl_layout *const *l,
                 const pl_layout *result, int n_rank)
{
    bool ok = true;

    for (int r = 0; r < n_rank && ok; r++) {
        struct eval_value out;

        run_rank(t, l, r, NAN, -1, 0, 0, &out);
        for (int64_t k = 0; k < out.n && ok; k++)
            ok = !holds(result, &out, k, r) || near(out.x[k], t->whole.x[k]);
        eval_value_free(&out);
    }
    return ok;
}

/* Returns true if the result is the sum of the ranks' results. */
static bool adds_up(struct try *t, const pl_layout *const *l, int n_rank)
{
    struct eval_value sum;
    bool ok = true;

    clone(&sum, &t->whole);
    memset(sum.x, 0, (size_t)sum.n * sizeof *sum.x);
    for (int r = 0; r < n_rank; r++) {
        struct eval_value out;

        run_rank(t, l, r, 0, -1, 0, 0, &out);
        for (int64_t k = 0; k < out.n; k++)
            sum.x[k] += out.x[k];
        eval_value_free(&out);
    }
    for (int64_t k = 0; k < sum.n && ok; k++)
        ok = near(sum.x[k], t->whole.x[k]);
    eval_value_free(&sum);
    return ok;
}

/* A rule as applied to one node and one split. */
struct rule {
    /* required layouts of the operands, and layout of the result; PARTIAL if
     * the letter is summed over */
    const pl_layout *in[GRAPH_MAX_IN], *out;
    bool forbidden; /* true if the row forbids the split with '!' */
};

/* Returns false if a symbolic dimension would be split, which is never
 * tried. */
static bool rule_of(const struct try *t, struct arena *a,
                    const struct rule_split *s, int n_rank, struct rule *r)
{
    struct node_letters l;
    const pl_layout *p;

    rules_letters(t->g, t->n, &l);
    r->forbidden = false;
    for (int i = -1; i < t->n->n_in; i++) {
        struct dim_letters *d = i < 0 ? l.out : l.in[i], free_[GRAPH_MAX_DIM];
        const struct graph_node *x = i < 0 ? t->n : operand(t, i);
        enum rule_fit f = rules_project(a, s, d, x->n_dim, x->dim, n_rank, &p);

        memcpy(free_, d, sizeof free_);
        for (int k = 0; k < GRAPH_MAX_DIM; k++)
            free_[k].whole = false;
        r->forbidden |= f == RULE_ILLEGAL;
        f = rules_project(a, s, free_, x->n_dim, x->dim, n_rank, &p);
        assert_true(f == RULE_FREE || f == RULE_SPLIT);
        if (f == RULE_FREE)
            p = i < 0 ? &layout_partial : &layout_mirrored;
        if (p->kind == PL_SPLIT && x->dim[p->dim].symbol != PL_CONST)
            return false;
        *(i < 0 ? &r->out : &r->in[i]) = p;
    }
    return true;
}

static bool variants_agree(struct try *t, const struct rule *r, int n_rank)
{
    bool ok = true;

    for (int v = t->first; v < t->g->n_node && ok; v++) {
        try_variant(t, v);
        ok = r->out->kind == PL_PARTIAL ? adds_up(t, r->in, n_rank)
                                        : fits(t, r->in, r->out, n_rank);
    }
    try_variant(t, t->first);
    return ok;
}

/* Checks that each index that a rank must hold is read by it in some draw. */
static void rule_is_tight(struct try *t, const struct rule *r, int n_rank)
{
    for (int i = 0; i < t->n->n_in; i++) {
        if (!has(t, i))
            continue;
        for (int d = 0; d < operand(t, i)->n_dim; d++) {
            if (operand(t, i)->dim[d].symbol != PL_CONST ||
                (r->in[i]->kind == PL_SPLIT && r->in[i]->dim != d))
                continue;
            for (int rank = 0; rank < n_rank; rank++)
                for (int64_t x = 0; x < t->in[i].dim[d]; x++) {
                    bool part = false, read = false;

                    if (r->in[i]->kind == PL_SPLIT &&
                        !(naive_owners(r->in[i], x, 64) >> rank & 1))
                        continue;
                    for (int draw = 0; draw < N_DRAW && !read; draw++) {
                        struct eval_value out;

                        if (draw > 0)
                            try_draw(t);
                        run_rank(t, r->in, rank, NAN, i, d, x, &out);
                        for (int64_t k = 0; k < out.n && !read; k++)
                            if (holds(r->out, &out, k, rank)) {
                                part = true;
                                read = isnan(out.x[k]);
                            }
                        eval_value_free(&out);
                        if (!part)
                            break;
                    }
                    if (part && !read)
                        fail_msg("%s: rank %d holds index %d of dimension %d "
                                 "of operand %d and never reads it: a split "
                                 "is missing",
                                 op_info(t->n->op)->name, rank, (int)x, d, i);
                }
        }
    }
    try_draw(t);
    try_variant(t, t->first);
}

/* Returns the split of `s` on a dimension of another size: how = 0 outer
 * factor, 1 inner. NULL if the sizes are unrelated. */
static const pl_layout *related(struct arena *a, const struct rule_split *s,
                                int dim, int64_t size, int how, int n_rank)
{
    pl_interval *run = arena_alloc(a, (size_t)size, sizeof *run);

    assert_non_null(run);
    if (size % s->size && s->size % size)
        return NULL;
    for (int64_t i = 0; i < size; i++)
        run[i].len = 1;
    for (int64_t k = 0; k < (size > s->size ? size : s->size); k++) {
        int64_t big = size > s->size ? size : s->size;
        int64_t small = size > s->size ? s->size : size;
        int64_t o = how == 0 ? k / (big / small) : k % small;

        if (size > s->size)
            run[k].owners = naive_owners(s->l, o, n_rank);
        else
            run[o].owners |= naive_owners(s->l, k, n_rank);
    }
    return layout_split(a, dim, size, (int)size, run, n_rank);
}

/* Returns true if the row's reason names the letter, before the colon. */
static bool reason_names(enum op op, int letter)
{
    const char *s = op_info(op)->refused, *end = strchr(s, ':');

    for (bool alone = true; end && s < end; alone = *s++ == ' ')
        if (alone && *s == letter && (s[1] == ',' || s[1] == ':'))
            return true;
    return false;
}

struct verdict {
    /* for each letter that a '!' of the row forbids: a split of it was tried;
     * it was legal in all cases */
    bool seen[256], legal[256];
};

/* Tries splits that start at one dimension of one operand. */
static void check_origin(struct try *t, int i, int d, int n_rank,
                         struct verdict *v)
{
    const struct graph_node *x = operand(t, i);
    int n = test_long() ? 40 : 5, n_split = 0;
    int tries = 8 * n;
    bool legal = true, forbidden = false, summed = false;
    /* other[d][k]: dimension d of the result could be SPLIT instead */
    bool other[GRAPH_MAX_DIM][2];
    struct node_letters l;
    struct rule r;

    memset(other, true, sizeof other);
    rules_letters(t->g, t->n, &l);
    if (l.in[i][d].a == 0 || x->dim[d].symbol != PL_CONST)
        return;
    while (n_split < n && tries-- > 0) {
        struct random_layout raw;
        struct arena a = {0};
        struct rule_split s = {l.in[i][d].a, l.in[i][d].b, x->dim[d].n, NULL};

        random_split(&raw, d, s.size, n_rank, t->seed);
        s.l = layout_split(&a, d, s.size, raw.l.n_run, raw.run, n_rank);
        assert_non_null(s.l);
        if (s.l->kind == PL_SPLIT && rule_of(t, &a, &s, n_rank, &r)) {
            bool ok;

            /* with a single interval one set of ranks has all values */
            n_split += s.l->n_run > 1;
            summed = r.out->kind == PL_PARTIAL;
            try_draw(t);
            try_variant(t, t->first);
            ok = variants_agree(t, &r, n_rank);
            forbidden |= r.forbidden;
            legal &= ok;
            if (!ok && !r.forbidden)
                fail_msg("%s: splitting dimension %d of operand %d is wrong",
                         op_info(t->n->op)->name, d, i);
            if (!r.forbidden && r.out->kind == PL_PARTIAL)
                for (int e = 0; e < t->n->n_dim; e++)
                    for (int how = 0; how < 2; how++) {
                        const pl_layout *o =
                            t->n->dim[e].symbol != PL_CONST
                                ? NULL
                                : related(&a, &s, e, t->n->dim[e].n, how,
                                          n_rank);

                        other[e][how] &= o && fits(t, r.in, o, n_rank);
                    }
            if (!r.forbidden && r.out->kind == PL_SPLIT && s.l->n_run > 1 &&
                n_split < 3)
                rule_is_tight(t, &r, n_rank);
        }
        arena_fini(&a);
    }
    if (n_split == 0)
        return;
    for (int e = 0; e < t->n->n_dim && !forbidden; e++)
        if (summed && (other[e][0] || other[e][1]))
            fail_msg("%s: splitting dimension %d of operand %d may split the "
                     "result's %d",
                     op_info(t->n->op)->name, d, i, e);
    if (forbidden) {
        int letter =
            l.in[i][d].b && !l.in[i][d].a ? l.in[i][d].b : l.in[i][d].a;

        if (!v->seen[letter])
            v->legal[letter] = true;
        v->seen[letter] = true;
        v->legal[letter] &= legal;
    }
}

/* Checks letters that are only in the result: every operand is needed whole. */
static void check_result_letters(struct try *t)
{
    struct node_letters l;

    rules_letters(t->g, t->n, &l);
    for (int d = 0; d < t->n->n_dim; d++) {
        struct rule r = {.out = NULL};
        struct random_layout raw;
        struct arena a = {0};
        bool borne = false;

        for (int i = 0; i < t->n->n_in; i++)
            for (int e = 0; has(t, i) && e < operand(t, i)->n_dim; e++)
                borne |= l.in[i][e].a == l.out[d].a ||
                         (l.out[d].b && l.in[i][e].a == l.out[d].b);
        if (borne || t->n->dim[d].symbol != PL_CONST || t->n->dim[d].n < 2)
            continue;
        for (int i = 0; i < GRAPH_MAX_IN; i++)
            r.in[i] = &layout_mirrored;
        do
            random_split(&raw, d, t->n->dim[d].n, 2, t->seed);
        while (raw.l.n_run < 2);
        r.out = &raw.l;
        try_draw(t);
        try_variant(t, t->first);
        rule_is_tight(t, &r, 2);
        arena_fini(&a);
    }
}

TEST(layout_rules_are_right_and_complete)
{
    static struct verdict v[OP_COUNT];
    static const int ranks[] = {2, 3, 5};
    uint64_t seed = test_seed();
    bool seen[OP_COUNT] = {false};

    memset(v, 0, sizeof v);
    for (int c = 0; c < N_CASE; c++) {
        struct try t;

        try_init(&t, cases[c], &seed);
        seen[t.n->op] = true;
        if (strcmp(op_info(t.n->op)->dims, "MOVE") != 0) {
            try_draw(&t);
            try_variant(&t, t.first);
            for (int k = 0; k < 3; k++)
                for (int i = 0; i < t.n->n_in; i++)
                    for (int d = 0; has(&t, i) && d < operand(&t, i)->n_dim;
                         d++)
                        check_origin(&t, i, d, ranks[k], &v[t.n->op]);
            check_result_letters(&t);
        }
        try_free(&t);
    }
    for (int op = OP_gather_rows; op < OP_custom; op++) {
        if (!seen[op])
            fail_msg("%s has no graph in cases", op_info(op)->name);
        for (int x = 0; x < 256; x++) {
            if (v[op].seen[x] && v[op].legal[x] && !reason_names(op, x))
                fail_msg("%s: splitting '%c' would be right; no reason is "
                         "given against it",
                         op_info(op)->name, x);
            if (!v[op].legal[x] && reason_names(op, x))
                fail_msg("%s: '%c' is refused with a reason, though "
                         "splitting it is wrong anyway",
                         op_info(op)->name, x);
        }
    }
}

/* ---- PARTIAL operands ---------------------------------------------------- */

/* Returns true if the result is the sum of runs on addends: operand i is the
 * sum of random ones if bit i of `partial` is set; else all have it, or the
 * first alone. */
static bool linear(struct try *t, unsigned partial, bool first_alone)
{
    enum { R = 3 };
    struct eval_value in[R][GRAPH_MAX_IN] = {{{0}}}, sum;
    const struct eval_value *whole = t->in;
    bool ok = true;

    clone(&sum, &t->whole);
    memset(sum.x, 0, (size_t)sum.n * sizeof *sum.x);
    for (int i = 0; i < t->n->n_in; i++)
        for (int r = 0; r < R && has(t, i); r++) {
            clone(&in[r][i], &whole[i]);
            for (int64_t k = 0; k < whole[i].n; k++)
                if (partial >> i & 1) {
                    double rest = whole[i].x[k];

                    for (int q = 0; q < r; q++)
                        rest -= in[q][i].x[k];
                    in[r][i].x[k] =
                        r == R - 1 ? rest : 2 * (double)test_unit(t->seed);
                } else if (first_alone && r > 0) {
                    in[r][i].x[k] = 0;
                }
        }
    for (int r = 0; r < R; r++) {
        struct eval_value out;

        eval64_op(t->n, in[r], &t->rows, &out, NULL);
        for (int64_t k = 0; k < out.n; k++)
            sum.x[k] += out.x[k];
        eval_value_free(&out);
        for (int i = 0; i < t->n->n_in; i++)
            eval_value_free(&in[r][i]);
    }
    for (int64_t k = 0; k < sum.n && ok; k++)
        ok = near(sum.x[k], t->whole.x[k]);
    eval_value_free(&sum);
    return ok;
}

/* Returns the operands that can be PARTIAL at all: computed values. */
static unsigned computed(const struct try *t)
{
    unsigned s = 0;

    for (int i = 0; i < t->n->n_in; i++)
        if (has(t, i) && operand(t, i)->format != PL_I32 &&
            operand(t, i)->op != OP_memory &&
            !(i == 1 && operand(t, i)->op == OP_weight &&
              graph_is_contraction(t->n->op)))
            s |= 1u << i;
    return s;
}

TEST(layout_rules_partial_operands_are_linear)
{
    uint64_t seed = test_seed();
    /* true if the op is linear in the operand, and in all operands together, in
     * every case tried */
    bool one[OP_COUNT][GRAPH_MAX_IN], all[OP_COUNT];
    unsigned may[OP_COUNT] = {0};

    memset(one, true, sizeof one);
    memset(all, true, sizeof all);
    for (int c = 0; c < N_CASE; c++) {
        struct try t;

        try_init(&t, cases[c], &seed);
        for (int k = 0; k < 5; k++)
            for (int node = t.first; node < t.g->n_node; node++) {
                unsigned m = computed(&t);

                try_draw(&t);
                try_variant(&t, node);
                may[t.n->op] |= m;
                for (int i = 0; i < t.n->n_in; i++)
                    if (m >> i & 1)
                        one[t.n->op][i] &= linear(&t, 1u << i, false);
                for (unsigned p = 1; p < 1u << t.n->n_in; p++)
                    if ((p & m) == p)
                        all[t.n->op] &= linear(&t, p, true);
            }
        try_free(&t);
    }
    for (int op = OP_gather_rows; op < OP_custom; op++) {
        const struct op_info *info = op_info(op);
        bool excused = strncmp(info->refused, "PARTIAL", 7) == 0;

        for (int i = 0; i < GRAPH_MAX_IN; i++) {
            bool claimed =
                (info->partial & PL_OP_ONE) && info->partial >> i & 1;

            if (!(may[op] >> i & 1)) {
                if (claimed)
                    fail_msg("%s: operand %d is never computed", info->name, i);
                continue;
            }
            if (claimed && !one[op][i])
                fail_msg("%s is not linear in operand %d", info->name, i);
            if (!claimed && one[op][i] && !excused &&
                !(info->partial & PL_OP_SUM))
                fail_msg("%s is linear in operand %d, and the row does not "
                         "say so",
                         info->name, i);
        }
        if ((info->partial & PL_OP_SUM) && !all[op])
            fail_msg("%s is not linear in all operands at once", info->name);
        if (!(info->partial & PL_OP_SUM) && all[op] &&
            (may[op] & (may[op] - 1)) && !excused)
            fail_msg("%s is linear in all operands at once, and the row does "
                     "not say so",
                     info->name);
    }
}

/* ---- letters of composite dimensions ------------------------------------- */

TEST(layout_rules_project_composites_index_by_index)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < 4000; k++) {
        int64_t g = 1 + test_below(&seed, 6), r = 1 + test_below(&seed, 6);
        int n_rank = 2 + (int)test_below(&seed, 4);
        const int64_t size[3] = {g * r, g, r};
        const struct dim_letters letters[3] = {
            {'g', 'r', false}, {'g', 0, false}, {'r', 0, false}};
        int from = (int)test_below(&seed, 3), to = (int)test_below(&seed, 3);
        const pl_dim dim = {size[to], PL_CONST};
        struct rule_split s = {letters[from].a, letters[from].b, size[from],
                               NULL};
        rankset want[36] = {0};
        const pl_layout *out = NULL;
        struct random_layout raw;
        struct arena a = {0};
        enum rule_fit f;

        random_split(&raw, 2, size[from], n_rank, &seed);
        s.l = layout_split(&a, 2, size[from], raw.l.n_run, raw.run, n_rank);
        assert_non_null(s.l);
        if (s.l->kind == PL_SPLIT) {
            f = rules_project(&a, &s, &letters[to], 1, &dim, n_rank, &out);
            for (int64_t i = 0; i < g * r; i++) {
                int64_t x[3] = {i, i / r, i % r};

                want[x[to]] |= naive_owners(s.l, x[from], n_rank);
            }
            /* the letters g and r of a dimension have nothing in common */
            if (from + to == 3) {
                assert_int_equal(f, RULE_FREE);
            } else {
                assert_int_equal(f, RULE_SPLIT);
                for (int64_t i = 0; i < size[to]; i++)
                    assert_true(naive_owners(out, i, n_rank) == want[i]);
                assert_true(out->kind == PL_MIRRORED || out->dim == 0);
            }
        }
        arena_fini(&a);
    }
}

/* ---- moves --------------------------------------------------------------- */

/* A graph of one moving op on n operands [dim]; n_tok stands for `tok`. */
struct move {
    pl_graph *g;
    const struct graph_node *n;
    struct random_layout raw[GRAPH_MAX_IN];
    const pl_layout *in[GRAPH_MAX_IN];
    int n_rank;
};

static void some_dims(pl_dim *dim, int *n_dim, int64_t most, uint64_t *seed)
{
    *n_dim = 1 + (int)test_below(seed, 4);
    for (int d = 0; d < *n_dim; d++)
        dim[d] = (pl_dim){1 + test_below(seed, most), PL_CONST};
}

/* Draws another factoring of the same number of values. */
static void refactor(const pl_dim *x, int n_x, pl_dim *y, int *n_y,
                     uint64_t *seed)
{
    int64_t count = 1;
    pl_symbol s = PL_CONST;

    for (int d = 0; d < n_x; d++) {
        count *= x[d].n;
        s = x[d].symbol ? x[d].symbol : s;
    }
    *n_y = 1 + (int)test_below(seed, 4);
    for (int d = 0; d < *n_y; d++) {
        int64_t f = d + 1 == *n_y ? count : 1 + test_below(seed, count);

        while (count % f)
            f--;
        y[d] = (pl_dim){f, PL_CONST};
        count /= f;
    }
    if (s)
        y[test_below(seed, *n_y)].symbol = s;
}

static void move_draw(struct move *m, enum op op, uint64_t *seed)
{
    pl_tensor x[GRAPH_MAX_IN], y = -1;
    pl_dim dim[GRAPH_MAX_DIM], to[GRAPH_MAX_DIM];
    int n_dim, n_to, axis, n_in = 1;
    int perm[4] = {0, 1, 2, 3};

    memset(m, 0, sizeof *m);
    m->n_rank = 1 + (int)test_below(seed, 5);
    assert_int_equal(pl_graph_create(&m->g, NULL), PL_OK);
    some_dims(dim, &n_dim, op == OP_reshape ? 6 : 9, seed);
    axis = (int)test_below(seed, n_dim);
    if (test_below(seed, 3) == 0 && n_dim > 1)
        dim[(axis + 1) % n_dim].symbol = PL_N_TOK;
    if (op == OP_concat)
        n_in = 2 + (int)test_below(seed, 3);
    for (int i = 0; i < n_in; i++) {
        char name[16];
        int d = axis;

        snprintf(name, sizeof name, "x%d", i);
        if (op == OP_concat)
            dim[axis].n = 1 + test_below(seed, 8);
        x[i] = pl_input(m->g, name, PL_F32, n_dim, dim);
        if (op != OP_concat)
            while (dim[d].symbol != PL_CONST || test_below(seed, 2))
                d = (int)test_below(seed, n_dim);
        m->in[i] = &layout_mirrored;
        if (n_in == 1 || test_below(seed, 4))
            m->in[i] = random_split(&m->raw[i], d, dim[d].n, m->n_rank, seed);
    }
    switch (op) {
    case OP_reshape:
        refactor(dim, n_dim, to, &n_to, seed);
        y = pl_reshape(m->g, x[0], n_to, to);
        break;
    case OP_permute:
        for (int d = n_dim - 1; d > 0; d--) {
            int o = (int)test_below(seed, d + 1), was = perm[d];

            perm[d] = perm[o];
            perm[o] = was;
        }
        y = pl_permute(m->g, x[0], perm);
        break;
    case OP_slice: {
        int64_t start = test_below(seed, dim[axis].n);

        y = pl_slice(m->g, x[0], axis, start,
                     1 + test_below(seed, dim[axis].n - start));
        break;
    }
    default:
        y = pl_concat(m->g, n_in, x, axis);
    }
    assert_int_equal(pl_graph_check(m->g, NULL), PL_OK);
    m->n = &m->g->node[y];
}

/* Finds the owners of every value of the result by moving them as numbers. */
static void move_owners(const struct move *m, int64_t n_tok,
                        struct eval_value *out)
{
    struct eval_value in[GRAPH_MAX_IN] = {{0}};
    const struct graph_sizes s = {n_tok, 1, 1, {1}};

    for (int i = 0; i < m->n->n_in; i++) {
        const struct graph_node *x = &m->g->node[m->n->in[i]];

        in[i].n_dim = x->n_dim;
        in[i].n = graph_count(x, &s);
        for (int d = 0; d < x->n_dim; d++)
            in[i].dim[d] = dim_value(x->dim[d], &s);
        in[i].x = test_need(1, (size_t)in[i].n * sizeof *in[i].x);
        for (int64_t k = 0; k < in[i].n; k++)
            in[i].x[k] = m->in[i]->kind == PL_SPLIT
                             ? (double)naive_owners(
                                   m->in[i], index_of(&in[i], m->in[i]->dim, k),
                                   m->n_rank)
                             : (double)ranks_all(m->n_rank);
    }
    eval64_op(m->n, in, NULL, out, NULL);
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        eval_value_free(&in[i]);
}

/* Returns true if the owners depend only on the index along dimension d. */
static bool told_by(const struct eval_value *owners, int d)
{
    double by[1 << 12];

    assert_true(owners->dim[d] <= 1 << 12);
    for (int64_t i = 0; i < owners->dim[d]; i++)
        by[i] = -1;
    for (int64_t k = 0; k < owners->n; k++) {
        double *x = &by[index_of(owners, d, k)];

        if (*x >= 0 && *x != owners->x[k])
            return false;
        *x = owners->x[k];
    }
    return true;
}

static void check_moves(enum op op, int n)
{
    uint64_t seed = test_seed() + op;
    int moved = 0, gathered = 0;

    for (int k = 0; k < n; k++) {
        struct eval_value owners[2];
        const pl_layout *out;
        struct arena a = {0};
        struct move m;
        bool told = false;
        char buf[256];

        move_draw(&m, op, &seed);
        for (int i = 0; i < m.n->n_in; i++)
            if (m.in[i]->kind == PL_SPLIT) {
                m.in[i] = layout_split(
                    &a, m.in[i]->dim, m.g->node[m.n->in[i]].dim[m.in[i]->dim].n,
                    m.in[i]->n_run, m.in[i]->run, m.n_rank);
                assert_non_null(m.in[i]);
            }
        out = move_layout(&a, m.g, m.n, m.in, m.n_rank);
        for (int i = 0; i < 2; i++)
            move_owners(&m, i ? 11 : 7, &owners[i]);
        for (int d = 0; d < m.n->n_dim; d++)
            told |= m.n->dim[d].symbol == PL_CONST && told_by(&owners[0], d) &&
                    told_by(&owners[1], d);
        if (!out && told) {
            pl_graph_print(m.g, test_text_show, NULL, NULL);
            fail_msg("%s: runs express the result's owners, yet it is "
                     "gathered: operand 0 is %s",
                     op_info(op)->name, layout_print(m.in[0], buf, sizeof buf));
        }
        gathered += !out;
        moved += out && out->kind == PL_SPLIT;
        for (int i = 0; i < 2 && out; i++)
            for (int64_t v = 0; v < owners[i].n; v++) {
                rankset o = ranks_all(m.n_rank);

                if (out->kind == PL_SPLIT)
                    o = naive_owners(out, index_of(&owners[i], out->dim, v),
                                     m.n_rank);
                assert_true((double)o == owners[i].x[v]);
            }
        /* the result's layout must be in normal form */
        if (out && out->kind == PL_SPLIT) {
            const pl_layout *again =
                layout_split(&a, out->dim, m.n->dim[out->dim].n, out->n_run,
                             out->run, m.n_rank);

            assert_non_null(again);
            assert_true(layout_equal(out, again));
        }
        for (int i = 0; i < 2; i++)
            eval_value_free(&owners[i]);
        arena_fini(&a);
        pl_graph_free(m.g);
    }
    assert_true(moved > n / 10);
    assert_true(op != OP_reshape || gathered > n / 20);
}

static int move_count(void)
{
    return test_long() ? 50000 : 3000;
}

TEST(layout_rules_reshape_moves_runs_where_it_can)
{
    check_moves(OP_reshape, move_count());
}

TEST(layout_rules_permute_moves_runs)
{
    check_moves(OP_permute, move_count());
}

TEST(layout_rules_slice_moves_runs)
{
    check_moves(OP_slice, move_count());
}

TEST(layout_rules_concat_joins_runs)
{
    check_moves(OP_concat, move_count());
}
