/* What families are put together from.
 *
 * A builder keeps its first error in the graph and every later one passes it
 * on, so that a family reads as its equations; model_graph asks once at the
 * end. `base` is a tensor's name without "blk.N." and without ".weight".
 *
 * Short names: b is the graph that is being built, m its model, x the values
 * that go from layer to layer, h these after a norm. */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "model/model.h"

/* A layer's cache, with the keys and values of the step's tokens. */
struct model_kv {
    pl_tensor k, v;
};

/* A graph that is being built. */
struct build {
    const struct model *m;
    pl_graph *g;
    int64_t layer; /* which one, -1 outside of them */
    int64_t first; /* the first one of the graph */
    bool block;    /* it is for multi-token prediction, and the only one */
    pl_tensor ids, pos, out_ids;
    pl_format cache_k, cache_v;
    struct model_kv kv; /* what the last attention has read */
};

/* An expected size and the key that it follows from, for messages. */
struct model_dim {
    int64_t n;
    const char *key;
};

/* ---- weight.c ----------------------------------------------------------- */

/* The weight `base`.`suffix`, or `base` where that is NULL, with the dimensions
 * expected, checked against the file; absent: -1 if optional, else an error. A
 * second call gives the same leaf. */
pl_tensor model_weight(struct build *b, const char *base, const char *suffix,
                       pl_role role, bool optional, int n_dim,
                       const struct model_dim *dim);

/* Is it in the file? */
bool model_has(const struct build *b, const char *base, const char *suffix);

/* `base`.scale: one value, or one an expert (*each, only if `experts`), which
 * multiplies what the weight yields; -1 if absent. */
pl_tensor model_scale(struct build *b, const char *base, bool experts,
                      bool *each);

/* Are the values of factors, scales and the router's biases such that something
 * can be computed with them? `g` is the model's graph. */
pl_status model_check_values(const struct model *m, const pl_graph *g,
                             pl_err *err);

/* ---- blocks.c ----------------------------------------------------------- */

/* What is built from here on belongs to this layer, -1: to none. */
void model_layer(struct build *b, int64_t layer);

/* The width of what goes from layer to layer. */
struct model_dim model_width(const struct build *b);

/* Names a value "name-N" after the layer; gives it back. */
pl_tensor model_name(struct build *b, pl_tensor x, const char *name);

/* x [n_tok, n * d], or so many values, as [n_tok, n, d]; and as [n_tok, n]. */
pl_tensor model_heads(struct build *b, pl_tensor x, int64_t n, int64_t d);
pl_tensor model_flat(struct build *b, pl_tensor x, int64_t n);

/* x [*, in] times `base`.weight [out, in], times `base`.scale, plus
 * `base`.bias where the file has them; need_bias: it must. */
pl_tensor model_matmul(struct build *b, pl_tensor x, const char *base,
                       pl_role role, struct model_dim out, struct model_dim in,
                       bool need_bias);

/* x normed over its last dimension d, times `base`.weight [d]. */
pl_tensor model_norm(struct build *b, pl_tensor x, const char *base,
                     struct model_dim d);

/* Rows of token_embd for the step's tokens: [n_tok, d_model]. A family that
 * begins so has no blocks for multi-token prediction. */
pl_tensor model_embed(struct build *b);

/* What the layers from b->first up to *end begin with: the same, or in a block
 * for multi-token prediction
 *
 *   eh_proj (norm(embedding, enorm), norm(hidden, hnorm))
 *
 * Source: arXiv:2412.19437, section 2.2. */
pl_tensor model_enter(struct build *b, int64_t *end);

/* Whether each head of q and k is normed before rope. */
enum model_qk_norm { QK_NORM_NEVER, QK_NORM_IF_GIVEN, QK_NORM_ALWAYS };

struct model_attention {
    bool bias; /* q, k and v must have biases, not only may */
    enum model_qk_norm qk_norm;
    bool gate;       /* of each head's values in attn_q half are a gate */
    bool v_norm;     /* each head of v is normed, without a weight */
    bool v_is_k;     /* without attn_v, v is what attn_k gives */
    bool sinks;      /* a value a head joins its softmax: attn_sinks */
    pl_tensor freqs; /* [n_rot / 2], divide rope's angles, or -1 */
    const struct model_kv *kv; /* of an earlier layer, which this one reads and
                                  has none; NULL: its own */
};

/* Causal self-attention of h [n_tok, d_model] through the layer's cache, with
 * its output matrix: [n_tok, d_model]. q, k and v may be fused in attn_qkv. */
pl_tensor model_attention(struct build *b, pl_tensor h,
                          const struct model_attention *o);

/* delta.c: the same by a gated delta net, through the layer's states. */
pl_tensor model_delta_net(struct build *b, pl_tensor h);

/* What joins gate and up: pl_swiglu, pl_geglu. */
typedef pl_tensor model_glu(pl_graph *g, pl_tensor gate, pl_tensor up);
/* down(glu(gate h, up h)); gate and up may be fused in ffn_gate_up. */
pl_tensor model_mlp(struct build *b, pl_tensor h, model_glu *glu);
/* What the router ffn_gate_inp says of h: [n_tok, n_expert]. */
pl_tensor model_router(struct build *b, pl_tensor h);
/* The same as model_mlp by the best n_expert_used experts, each with its
 * weight, both by the router's `logits`, and then by the shared expert, where
 * there is one: the sum of both. */
pl_tensor model_experts(struct build *b, pl_tensor h, pl_tensor logits,
                        model_glu *glu);

/* Picks the rows wanted, norms them, multiplies by output.weight or, where
 * embeddings are tied, token_embd.weight: logits, marked as output. */
void model_head(struct build *b, pl_tensor x);

/* All of a network whose layers are x += attention or delta net(attn_norm x);
 * x += mlp or experts(ffn_norm x). `ffn_norm` is that tensor's name. */
void model_decoder(struct build *b, const struct model_attention *o,
                   const char *ffn_norm, model_glu *glu);

/* ---- the families, one file each; model.c has the table ------------------ */

void model_llama(struct build *b);
void model_qwen2(struct build *b);
void model_qwen3(struct build *b); /* qwen3 and qwen3moe */
void model_glm4moe(struct build *b);
pl_status model_gemma3_read(struct model *m, pl_err *err);
void model_gemma3(struct build *b);
pl_status model_gemma4_read(struct model *m, pl_err *err);
void model_gemma4(struct build *b);
pl_status model_gptoss_read(struct model *m, pl_err *err);
void model_gptoss(struct build *b);
pl_status model_qwen35_read(struct model *m, pl_err *err);
pl_status model_qwen3next_read(struct model *m, pl_err *err);
void model_qwen35(struct build *b); /* qwen35, qwen35moe and qwen3next */
pl_status model_deepseek2_read(struct model *m, pl_err *err);
void model_deepseek2(struct build *b);

#endif
