/* The building blocks of model families.
 *
 * A builder function stores its first error in the graph, and all later ones do
 * nothing. So the code of a family reads like its equations, and model_graph
 * checks for errors once at the end. `base` is the name of a tensor without
 * "blk.N." and without ".weight".
 *
 * Short names: b is the graph being built, m its model, x the values passed
 * from layer to layer, h the values x after a norm. */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "model/model.h"

/* The cache tensors of a layer after the keys and values of the step's tokens
 * have been written to them. */
struct model_kv {
    pl_tensor k, v;
};

struct build;

/* A function of the hidden values of a feed-forward part without gate. */
typedef pl_tensor model_hidden(struct build *b, pl_tensor x);

/* A graph being built. */
struct build {
    const struct model *m;
    pl_graph *g;
    int64_t layer;    /* layer of the nodes built next; -1 outside of layers */
    char prefix[32];  /* of the names of the layer's weights: "blk.3.", or "" */
    int64_t first;    /* layer with which the graph begins: 0, or that of a
                      multi-token-prediction block */
    bool block;       /* true if the graph is that of a multi-token-prediction
                      block, not of the network */
    bool hidden_rows; /* the graph has the output hidden_rows (model.h) */
    int64_t n_ctx;    /* requested context in tokens */
    pl_tensor ids, pos, out_ids;
    pl_tensor ends; /* last positions of the tokens' texts; -1 unless the model
                       is an encoder */
    pl_format cache_k, cache_v;
    struct model_kv kv; /* the caches that the most recently built attention
                           reads */
    /* The function of the hidden values of feed-forward parts and experts
     * without gate: down(hidden(up h)). NULL if they have a gate. */
    model_hidden *hidden;
    bool bare_scan; /* the results of Mamba-2 blocks may have no norm */
    /* [n_tok, top_keys] the positions that the most recently built indexer has
     * chosen; -1 if there is none */
    pl_tensor chosen;
    /* [n_tok, n_expert_used] the experts of the layer built next, -1 if its
     * router chooses them */
    pl_tensor expert_ids;
};

/* The expected size of a dimension, and the metadata key that it comes from,
 * which errors name. */
struct model_dim {
    int64_t n;
    const char *key;
};

/* ---- weights of the graph: weight.c ------------------------------------- */

/* Adds the weight `base`.`suffix` of the file, or `base` if suffix is NULL, to
 * the graph and returns its node. Fails if its shape in the file is not
 * dim[n_dim]. If the file lacks the weight, returns -1, which is an error
 * unless `optional`. Another call with the same name returns the same node. */
pl_tensor model_weight(struct build *b, const char *base, const char *suffix,
                       pl_role role, bool optional, int n_dim,
                       const struct model_dim *dim);

/* Returns true if the file contains the tensor `base`.`suffix`. */
bool model_has(const struct build *b, const char *base, const char *suffix);

/* Returns the number of rows of the matrix `base`.weight in the file, 0 if it
 * has none. */
int64_t model_rows(const struct build *b, const char *base);

/* Returns the weight rope_freqs.weight, the divisors of RoPE's angles, or -1 if
 * the file has none. */
pl_tensor model_rope_freqs(struct build *b);

/* Returns the weight `base`.scale, by which results of the matrix `base` are
 * multiplied, or -1 if the file has none. It has one value. Only if `experts`
 * may it have one for each expert; *each is set to true then. */
pl_tensor model_scale(struct build *b, const char *base, bool experts,
                      bool *each);

/* Checks that the values of RoPE frequency factors, scales and router biases
 * are usable. `g` is the graph of the model. */
pl_status model_check_values(const struct model *m, const pl_graph *g,
                             pl_err *err);

/* ---- parts of a layer: blocks.c ----------------------------------------- */

/* Assigns the nodes that are built next to layer `layer`, or to no layer if it
 * is -1. */
void model_layer(struct build *b, int64_t layer);

/* Returns d_model, the number of values per token that layers pass on. */
struct model_dim model_width(const struct build *b);

/* Gives the value x the name "NAME-N", where N is the current layer. Returns
 * x. */
pl_tensor model_name(struct build *b, pl_tensor x, const char *name);

/* model_heads reshapes x, which has n_tok * n * d values, to [n_tok, n, d].
 * model_flat reshapes x, which has n_tok * n values, to [n_tok, n]. */
pl_tensor model_heads(struct build *b, pl_tensor x, int64_t n, int64_t d);
pl_tensor model_flat(struct build *b, pl_tensor x, int64_t n);

/* Returns x [*, in] times `base`.weight [out, in], times `base`.scale if the
 * file has one, plus `base`.bias. The bias is optional, too, unless
 * `need_bias`. */
pl_tensor model_matmul(struct build *b, pl_tensor x, const char *base,
                       pl_role role, struct model_dim out, struct model_dim in,
                       bool need_bias);

/* Returns x normalised over its last dimension d, by an RMS norm or a layer
 * norm, times `base`.weight [d], plus `base`.bias [d] if the model's norms have
 * biases. */
pl_tensor model_norm(struct build *b, pl_tensor x, const char *base,
                     struct model_dim d);

/* Returns the rows of token_embd for the step's tokens: [n_tok, d_model]. Fails
 * for a multi-token-prediction block. Families that support such blocks call
 * model_enter instead. */
pl_tensor model_embed(struct build *b);

/* Returns the input of layer b->first, and sets *end to the number of the layer
 * after the last. The input is the result of model_embed, or in a
 * multi-token-prediction block
 *
 * eh_proj (norm(embedding, enorm), norm(hidden, hnorm))
 *
 * Source: arXiv:2412.19437, section 2.2. */
pl_tensor model_enter(struct build *b, int64_t *end);

/* Normalisation of q and k in a family: never; of each head before RoPE, only
 * if the file has the norm weights, or always; of each head after RoPE; of all
 * heads together before RoPE; of each head by a layer norm before RoPE, with
 * weights of its own, if the file has them. */
enum model_qk_norm {
    QK_NORM_NEVER,
    QK_NORM_IF_GIVEN,
    QK_NORM_ALWAYS,
    QK_NORM_AFTER_ROPE,
    QK_NORM_ALL_HEADS,
    QK_NORM_OWN_IF_GIVEN
};

/* A function of single values, such as pl_sigmoid. */
typedef pl_tensor model_act(pl_graph *g, pl_tensor x);

struct model_attention {
    /* true if the file must have biases of q, k and v; false if they are
     * optional */
    bool bias;
    enum model_qk_norm qk_norm;
    bool gate; /* the matrix attn_q also computes a gate for each head, as
                        wide as the head */
    /* The function of gates from the matrix attn_gate, one for each head or one
     * for each value; NULL if there is no such matrix. */
    model_act *gate_act;
    bool v_norm;     /* each head of v is normalised; this norm has no weight */
    bool v_is_k;     /* if the file lacks attn_v, v is the result of attn_k */
    bool sinks;      /* the weight attn_sinks adds a term to the softmax of each
                        head */
    bool some_sinks; /* the same, in those layers that have the weight */
    pl_tensor freqs; /* [n_rot / 2] the weight with divisors of RoPE's angles;
                        -1 if none */
    bool freqs_full; /* `freqs` is only for layers without a window */
    /* the earlier layer's caches that this layer reads; NULL if it has caches
     * of its own */
    const struct model_kv *kv;
};

/* Returns causal self-attention of h [n_tok, d_model] with the layer's caches,
 * times the output matrix: [n_tok, d_model]. The matrices of q, k and v may be
 * fused into attn_qkv. */
pl_tensor model_attention(struct build *b, pl_tensor h,
                          const struct model_attention *o);

/* Returns the queries q [n_tok, n_head, d] times the temperature of their
 * positions, if the model has one. d is even. */
pl_tensor model_tempered(struct build *b, pl_tensor q, int64_t d);

/* Returns the result of a gated delta net for h [n_tok, d_model], which some
 * layers have instead of attention: [n_tok, d_model]. Uses the layer's
 * recurrent states. Defined in delta.c. */
pl_tensor model_delta_net(struct build *b, pl_tensor h);

/* Returns the result of Kimi delta attention for h [n_tok, d_model], which some
 * layers have instead of attention: [n_tok, d_model]. Uses the layer's
 * recurrent states. Defined in kda.c, with the function that reads its sizes
 * and the layers that have it, those without KV heads. */
pl_tensor model_kda(struct build *b, pl_tensor h);
pl_status model_kda_params(struct model *m, pl_err *err);

/* Returns latent attention of h [n_tok, d_model] with the layer's cache, times
 * the output matrix: [n_tok, d_model]. Uses the field gate_act of *o alone.
 * Defined in deepseek2.c. */
pl_tensor model_latent_attention(struct build *b, pl_tensor h,
                                 const struct model_attention *o);

/* Multiplies y [n_tok, n_head, d_value], the result of attention, by the gates
 * act(attn_gate h), one for each head or one for each value. */
pl_tensor model_gated(struct build *b, pl_tensor y, pl_tensor h,
                      model_act *act);

/* Returns the result of a Mamba-2 block for h [n_tok, d_model], which some
 * layers have instead of attention or besides it: [n_tok, d_model]. Uses the
 * layer's recurrent states. Defined in mamba2.c, with the function that reads
 * its sizes. */
pl_tensor model_mamba2(struct build *b, pl_tensor h);
pl_status model_mamba2_params(struct model *m, pl_err *err);

/* Sets b->chosen to the positions that attention attends to, if the layer has
 * an indexer. h [n_tok, d_model] is the input of attention, r [n_tok, q_rank]
 * the latents of its queries. Defined in indexer.c. */
void model_indexer(struct build *b, pl_tensor h, pl_tensor r);
/* Returns the blocks of positions [n_tok, n_head_kv, top_keys] that attention
 * attends to with each KV head, or -1 if the layer attends to all. h [n_tok,
 * d_model] is the input of attention. Defined in minimax_m3.c. */
pl_tensor model_index_blocks(struct build *b, pl_tensor h);

/* A function that combines the results of the gate and up matrices: pl_swiglu
 * or pl_geglu. */
typedef pl_tensor model_glu(pl_graph *g, pl_tensor gate, pl_tensor up);
/* Returns max(0, x)^2. */
pl_tensor model_relu_squared(struct build *b, pl_tensor x);
/* Returns down(glu(gate h, up h)), or down(b->hidden(up h)). The matrices gate
 * and up may be fused into ffn_gate_up. */
pl_tensor model_mlp(struct build *b, pl_tensor h, model_glu *glu);
/* Returns the logits of the router, ffn_gate_inp times h: [n_tok, n_expert]. */
pl_tensor model_router(struct build *b, pl_tensor h);
/* Returns the weighted sum of the results of the best n_expert_used experts,
 * each computed like model_mlp, plus the shared expert, if any. The router's
 * `logits` determine the choice and the weights. */
pl_tensor model_experts(struct build *b, pl_tensor h, pl_tensor logits,
                        model_glu *glu);

/* Builds the output head: selects the rows out_ids of x, normalises them and
 * multiplies by output.weight, or by token_embd.weight if embeddings are tied.
 * Marks the logits as output. */
void model_head(struct build *b, pl_tensor x);

/* Builds the output of an encoder: selects the rows out_ids of x, multiplies
 * them by the matrices dense_2 and dense_3 if the file has them, names them
 * result_norm, and adds the scores of a class head. Marks both as output. */
void model_embeddings(struct build *b, pl_tensor x);

/* The layers of a decoder. All fields may be zero but attention.freqs. */
struct model_layers {
    struct model_attention attention;
    /* The attention of layers; model_attention if NULL. */
    pl_tensor (*attend)(struct build *b, pl_tensor h,
                        const struct model_attention *o);
    /* The part instead of attention in recurrent layers; model_delta_net if
     * NULL. */
    pl_tensor (*recurrent)(struct build *b, pl_tensor h);
    /* Not NULL if layers have another part besides attention, whose result is
     * added to that of attention. */
    pl_tensor (*beside)(struct build *b, pl_tensor h);
    model_glu *glu; /* pl_swiglu if NULL */
    /* Not NULL if feed-forward parts have no gate: down(hidden(up h)). */
    model_hidden *hidden;
    const char *ffn_norm; /* name of the norm before the feed-forward part;
                             "ffn_norm" if NULL */
    bool mtp;             /* multi-token-prediction blocks are supported */
    bool parallel;        /* both parts read attn_norm x, and x becomes the sum
                             of x and both results */
    bool bare;            /* both parts of a layer read x without a norm */
    bool post_norm; /* the results of both parts are normalised, too, by the
                       weights post_attention_norm and post_ffw_norm */
    float post_eps; /* epsilon of these norms; the model's if 0 */
    bool embd_norm; /* embeddings are normalised, without a weight */
};

/* Builds a whole network, from embedding to logits, of layers x += attention or
 * delta net(attn_norm x); x += mlp or experts(ffn_norm x). */
void model_decoder(struct build *b, const struct model_layers *o);
/* Returns the result of a layer's feed-forward part, or of its experts. */
pl_tensor model_feed_forward(struct build *b, pl_tensor h,
                             const struct model_layers *o);
/* Returns gelu(x) in its tanh form. */
pl_tensor model_gelu(struct build *b, pl_tensor x);

/* ---- builders of the families, one file each ----------------------------- */

void model_llama(struct build *b);
void model_qwen2(struct build *b);
void model_qwen3(struct build *b); /* Builds the graph of the families qwen3 and
                                      qwen3moe. */
void model_glm4moe(struct build *b);
pl_status model_gemma3_read(struct model *m, pl_err *err);
void model_gemma3(struct build *b);
pl_status model_gemma4_read(struct model *m, pl_err *err);
void model_gemma4(struct build *b);
pl_status model_gptoss_read(struct model *m, pl_err *err);
void model_gptoss(struct build *b);
pl_status model_qwen35_read(struct model *m, pl_err *err);
pl_status model_qwen3next_read(struct model *m, pl_err *err);
void model_qwen35(struct build *b); /* Builds the graph of the families qwen35,
                                       qwen35moe and qwen3next. */
pl_status model_deepseek2_read(struct model *m, pl_err *err);
void model_deepseek2(struct build *b);
pl_status model_deepseek32_read(struct model *m, pl_err *err);
pl_status model_glm_dsa_read(struct model *m, pl_err *err);
pl_status model_deepseek4_read(struct model *m, pl_err *err);
void model_deepseek4(struct build *b);
pl_status model_granite_read(struct model *m, pl_err *err);
void model_granite(struct build *b);
pl_status model_smollm3_read(struct model *m, pl_err *err);
void model_smollm3(struct build *b);
pl_status model_phi3_read(struct model *m, pl_err *err);
void model_phi3(struct build *b);
pl_status model_phimoe_read(struct model *m, pl_err *err);
pl_status model_glm4_read(struct model *m, pl_err *err);
void model_glm4(struct build *b);
void model_seed_oss(struct build *b);
pl_status model_hunyuan_dense_read(struct model *m, pl_err *err);
void model_hunyuan(struct build *b);
pl_status model_hunyuan_moe_read(struct model *m, pl_err *err);
pl_status model_hy_v3_read(struct model *m, pl_err *err);
void model_bailingmoe2(struct build *b);
void model_ernie4_5(struct build *b);
pl_status model_ernie4_5_read(struct model *m, pl_err *err);
pl_status model_bailingmoe2_read(struct model *m, pl_err *err);
pl_status model_qwen2moe_read(struct model *m, pl_err *err);
pl_status model_olmo2_read(struct model *m, pl_err *err);
void model_olmo2(struct build *b);
pl_status model_olmoe_read(struct model *m, pl_err *err);
void model_olmoe(struct build *b);
pl_status model_minimax_m2_read(struct model *m, pl_err *err);
pl_status model_minimax_m3_read(struct model *m, pl_err *err);
void model_minimax_m3(struct build *b);
pl_status model_exaone4_read(struct model *m, pl_err *err);
void model_exaone4(struct build *b);
pl_status model_exaone_moe_read(struct model *m, pl_err *err);
pl_status model_afmoe_read(struct model *m, pl_err *err);
void model_afmoe(struct build *b);
pl_status model_laguna_read(struct model *m, pl_err *err);
void model_laguna(struct build *b);
pl_status model_step35_read(struct model *m, pl_err *err);
void model_step35(struct build *b);
pl_status model_mimo2_read(struct model *m, pl_err *err);
void model_mimo2(struct build *b);
pl_status model_mistral3_read(struct model *m, pl_err *err);
void model_mistral3(struct build *b);
pl_status model_mistral4_read(struct model *m, pl_err *err);
/* Multiplies cos and sin by YaRN's factor (1 + 0.1 ln f) / (1 + l ln f), and
 * scores by its square, with the key yarn_log_multiplier l. */
pl_status model_yarn_stretch(struct model *m, pl_err *err);
pl_status model_muse_glimmer_read(struct model *m, pl_err *err);
void model_muse_glimmer(struct build *b);
void model_arcee(struct build *b);
pl_status model_apertus_read(struct model *m, pl_err *err);
void model_apertus(struct build *b);
pl_status model_gemma2_read(struct model *m, pl_err *err);
void model_gemma2(struct build *b);
pl_status model_command_r_read(struct model *m, pl_err *err);
pl_status model_cohere2_read(struct model *m, pl_err *err);
pl_status model_cohere2moe_read(struct model *m, pl_err *err);
void model_cohere(struct build *b); /* Builds the graph of the families
                                       command-r, cohere2 and cohere2moe. */
pl_status model_lfm2_read(struct model *m, pl_err *err);
void model_lfm2(struct build *b);
pl_status model_nemotron_read(struct model *m, pl_err *err);
void model_nemotron(struct build *b);
pl_status model_stablelm_read(struct model *m, pl_err *err);
void model_stablelm(struct build *b);
pl_status model_bert_read(struct model *m, pl_err *err);
void model_bert(struct build *b); /* Builds the graph of the families bert,
                                     nomic-bert, nomic-bert-moe and
                                     jina-bert-v3. */
pl_status model_modern_bert_read(struct model *m, pl_err *err);
void model_modern_bert(struct build *b);
pl_status model_gemma_embedding_read(struct model *m, pl_err *err);
pl_status model_starcoder2_read(struct model *m, pl_err *err);
void model_starcoder2(struct build *b);
pl_status model_nemotron_h_read(struct model *m, pl_err *err);
void model_nemotron_h(struct build *b); /* Builds the graph of the families
                                           mamba2, nemotron_h and
                                           nemotron_h_moe. */
pl_status model_granitehybrid_read(struct model *m, pl_err *err);
pl_status model_kimi_linear_read(struct model *m, pl_err *err);
pl_status model_bailingmoe3_read(struct model *m, pl_err *err);
void model_kimi_linear(struct build *b); /* Builds the graph of the families
                                            kimi-linear and bailingmoe3. */
pl_status model_falcon_h1_read(struct model *m, pl_err *err);
void model_falcon_h1(struct build *b);

#endif
