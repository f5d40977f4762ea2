/* The building blocks of families.
 *
 * A builder stores its first error in the graph, and every later one passes it
 * on. So a family reads as its equations, and model_graph checks once at the
 * end. `base` is a tensor's name without "blk.N." and without ".weight".
 *
 * Short names: b is the graph being built, m its model, x the values passed
 * from layer to layer, h the same after a norm. */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "model/model.h"

/* A layer's cache, including the keys and values of the step's tokens. */
struct model_kv {
    pl_tensor k, v;
};

/* A graph being built. */
struct build {
    const struct model *m;
    pl_graph *g;
    int64_t layer; /* the current one, -1 outside of layers */
    int64_t first; /* the first one of the graph */
    bool block;    /* the graph is a multi-token-prediction block */
    pl_tensor ids, pos, out_ids;
    pl_format cache_k, cache_v;
    struct model_kv kv; /* read by the last attention */
};

/* An expected size and the key that it comes from, for messages. */
struct model_dim {
    int64_t n;
    const char *key;
};

/* ---- weight.c ----------------------------------------------------------- */

/* Returns the weight `base`.`suffix`, or `base` if suffix is NULL. Checks it
 * against the file; its dimensions must be `dim`. If absent, returns -1 if
 * optional, else fails. A second call returns the same leaf. */
pl_tensor model_weight(struct build *b, const char *base, const char *suffix,
                       pl_role role, bool optional, int n_dim,
                       const struct model_dim *dim);

/* Returns true if the file has it. */
bool model_has(const struct build *b, const char *base, const char *suffix);

/* Returns `base`.scale, which multiplies the weight's result, or -1 if absent.
 * It has one value, or one for each expert (*each, only if `experts`). */
pl_tensor model_scale(struct build *b, const char *base, bool experts,
                      bool *each);

/* Checks that the values of factors, scales and the router's biases are usable.
 * `g` is the model's graph. */
pl_status model_check_values(const struct model *m, const pl_graph *g,
                             pl_err *err);

/* ---- blocks.c ----------------------------------------------------------- */

/* Assigns nodes built from here on to this layer, or to none if -1. */
void model_layer(struct build *b, int64_t layer);

/* Returns the width of the values passed from layer to layer. */
struct model_dim model_width(const struct build *b);

/* Names a value "name-N" by the layer; returns it. */
pl_tensor model_name(struct build *b, pl_tensor x, const char *name);

/* Reshape x [n_tok, n * d], or as many values, to [n_tok, n, d] and to
 * [n_tok, n]. */
pl_tensor model_heads(struct build *b, pl_tensor x, int64_t n, int64_t d);
pl_tensor model_flat(struct build *b, pl_tensor x, int64_t n);

/* Returns x [*, in] times `base`.weight [out, in], times `base`.scale, plus
 * `base`.bias, if the file has these. need_bias: the bias is required. */
pl_tensor model_matmul(struct build *b, pl_tensor x, const char *base,
                       pl_role role, struct model_dim out, struct model_dim in,
                       bool need_bias);

/* Returns x normalised over its last dimension d, times `base`.weight [d]. */
pl_tensor model_norm(struct build *b, pl_tensor x, const char *base,
                     struct model_dim d);

/* Returns the rows of token_embd for the step's tokens: [n_tok, d_model]. A
 * family that begins with this has no multi-token-prediction blocks. */
pl_tensor model_embed(struct build *b);

/* Returns the input of the layers from b->first up to *end: model_embed's
 * result, or in a multi-token-prediction block
 *
 *   eh_proj (norm(embedding, enorm), norm(hidden, hnorm))
 *
 * Source: arXiv:2412.19437, section 2.2. */
pl_tensor model_enter(struct build *b, int64_t *end);

/* The cases in which each head of q and k is normalised before rope. */
enum model_qk_norm { QK_NORM_NEVER, QK_NORM_IF_GIVEN, QK_NORM_ALWAYS };

struct model_attention {
    bool bias; /* q, k and v must have biases; otherwise they may */
    enum model_qk_norm qk_norm;
    bool gate;       /* half of the values of each head in attn_q are a gate */
    bool v_norm;     /* each head of v is normalised, without a weight */
    bool v_is_k;     /* without attn_v, v is the result of attn_k */
    bool sinks;      /* attn_sinks: one more value in the softmax of a head */
    pl_tensor freqs; /* [n_rot / 2], divide rope's angles, or -1 */
    /* The cache of an earlier layer, which this one reads instead of its own.
     * NULL: its own. */
    const struct model_kv *kv;
};

/* Returns causal self-attention of h [n_tok, d_model] through the layer's
 * cache, with its output matrix: [n_tok, d_model]. q, k and v may be fused in
 * attn_qkv. */
pl_tensor model_attention(struct build *b, pl_tensor h,
                          const struct model_attention *o);

/* delta.c: the same with a gated delta net, through the layer's states. */
pl_tensor model_delta_net(struct build *b, pl_tensor h);

/* Joins gate and up: pl_swiglu, pl_geglu. */
typedef pl_tensor model_glu(pl_graph *g, pl_tensor gate, pl_tensor up);
/* Returns down(glu(gate h, up h)). Gate and up may be fused in ffn_gate_up. */
pl_tensor model_mlp(struct build *b, pl_tensor h, model_glu *glu);
/* Returns the router's logits, ffn_gate_inp h: [n_tok, n_expert]. */
pl_tensor model_router(struct build *b, pl_tensor h);
/* Returns the weighted sum of model_mlp over the best n_expert_used experts,
 * plus the shared expert, if any. `logits` of the router choose and weigh the
 * experts. */
pl_tensor model_experts(struct build *b, pl_tensor h, pl_tensor logits,
                        model_glu *glu);

/* Picks the wanted rows, normalises them and multiplies by output.weight, or by
 * token_embd.weight if embeddings are tied. Marks the logits as output. */
void model_head(struct build *b, pl_tensor x);

/* Builds a whole network of layers x += attention or delta net(attn_norm x);
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
