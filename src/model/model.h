/* Models: the hyper-parameters of a network in a GGUF file, and its graph.
 *
 * model_open reads the hyper-parameters and checks every tensor that the graph
 * names, so that a file that opens can be planned. Then it examines the keys
 * and tensors that no code has read (unread.c), and rejects the file if its
 * results would be wrong without them. A family is one short file that combines
 * shared parts of layers (blocks.h); the table in model.c lists the families.
 * Only a few vectors of the weights are read, to validate their values. This
 * layer does not know devices. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "pl_graph.h"

struct build; /* state of a graph that is being built, declared in blocks.h */
struct model;

/* Use of experts (MoE) in a family instead of a single feed-forward part:
 * never, only if the file has the key expert_count, or always. */
enum model_moe { MOE_NEVER, MOE_IF_GIVEN, MOE_ALWAYS };

/* A family of models: one row of the table in model.c. */
struct model_family {
    const char *arch; /* the family's name in the key general.architecture */
    /* RoPE rotates pairs of values (i, i + n_rot/2) if true, (2i, 2i + 1) if
     * false */
    bool neox;
    enum model_moe moe;
    /* Files of this family have keys for the router, for a shared expert and
     * for leading layers without experts. */
    bool shared;
    const char *expert_width; /* name of the key with the width of an expert */
    /* Reads keys that only this family has; NULL if there are none. */
    pl_status (*read)(struct model *m, pl_err *err);
    void (*graph)(struct build *b);
};

/* Sizes of a gated delta net: n_key key heads and n_value value heads, all
 * d_head wide. Several value heads share a key head. n_tap is the number of
 * tokens over which the short convolution before the net sums. */
struct model_delta {
    int64_t n_key, n_value, d_head, n_tap;
    /* Adjacent value heads share a key head if true; value heads that are n_key
     * apart share one if false. */
    bool neighbours;
};

/* Sizes of deepseek4: how often its streams' weights are normalised, and the
 * epsilon; the tokens of a compressed key in each layer, 0 for a layer without
 * them; the window of attention, and how many tokens caches of few tokens keep;
 * runs of heads with an output matrix each, and its rows; the number of layers
 * that choose experts by token. */
struct model_v4 {
    int64_t n_iter;
    float eps;
    const float *ratio; /* [n_layer], or NULL if all are 0 */
    int64_t window, kept, n_group, out_rank, n_hash;
};

/* Sizes of a Mamba-2 block: n_head heads with d_inner values together, and
 * n_group groups of them, which share the vectors of d_state values that read
 * and write the states. n_tap is as in struct model_delta. */
struct model_ssm {
    int64_t n_head, n_group, d_inner, d_state, n_tap;
};

struct model {
    const struct gguf *file; /* the model's file, borrowed until model_close */
    /* The optional tensors of a file to be made, which has none yet
     * (model_weights); NULL for a file that exists. */
    const char *made;
    const struct model_family *family;
    struct arena arena; /* owns the arrays of this struct */
    int64_t n_vocab, d_model;
    int64_t n_ctx_train;   /* longest context in tokens, as trained or as
                              extended by YaRN */
    int64_t n_layer;       /* number of layers of the network */
    int64_t n_next;        /* number of multi-token-prediction blocks after the
                              layers */
    const char *vocab_key; /* name of the key from which n_vocab was read */
    /* [n_layer + n_next] numbers of query heads and of KV heads of each layer.
     * The last n_next entries are for the multi-token-prediction blocks and
     * equal those of the last layer with attention. */
    const int64_t *n_head, *n_head_kv;
    const int64_t *d_key, *d_value; /* [n_layer + n_next] width of a head of
                                       keys, and of values */
    /* Number of trailing layers that read the cache of an earlier layer instead
     * of their own. */
    int64_t n_shared_kv;
    int64_t n_dense; /* number of leading layers without experts */
    /* [n_layer] width of the feed-forward part of each layer; NULL if none has
     * one */
    const int64_t *d_ff;
    int64_t n_expert, n_expert_used; /* number of experts, and of those used per
                                        token; 0 if the model has none */
    const int64_t *d_expert; /* [n_layer] width of an expert; NULL if the model
                                has none */
    int64_t n_shared; /* number of shared experts, which process every token */
    /* width of all shared experts together; 0 if it is n_shared * d_expert */
    int64_t d_shared;
    bool shared_mean;    /* the results of the experts and of the shared experts
                            are averaged, not added */
    bool shared_gate;    /* the shared experts' result is multiplied by a
                            sigmoid of its own */
    int64_t d_per_layer; /* width of the per-layer embeddings; 0 if the model
                            has none */
    /* Number of groups of experts, and of groups from which a token's experts
     * come; 0 if none. */
    int64_t n_group, n_group_used;
    pl_gating gating;
    bool normalise; /* the weights of the chosen experts are divided by their
                       sum */
    /* factor by which the weights of the chosen experts are multiplied */
    float routed;
    float eps;
    bool layer_norm; /* norms subtract the mean, unlike RMS norms */
    bool norm_bias;  /* norms have biases */
    /* widths of the latents of queries and of keys and values in latent
     * attention; q_rank is 0 if queries have no latents */
    int64_t q_rank, kv_rank;
    bool latent; /* the cache contains latents instead of keys and values */
    /* The indexer that chooses the keys of attention: number and width of its
     * heads, and how many keys a token attends to; 0 if there is none. */
    int64_t n_index, d_index, top_keys;
    /* If it chooses blocks for each KV head: positions of a block, 0 if it does
     * not, and how many of the last blocks are always chosen. Then top_keys
     * counts blocks, and the first n_dense layers have no indexer. */
    int64_t index_block, index_local;
    /* [n_layer + n_next] false for a layer that uses the choice of the last
     * layer with an indexer; NULL if all have one */
    const bool *indexer;
    float index_eps; /* epsilon of the norm of the indexer's keys */
    bool index_neox; /* which pairs RoPE rotates in the indexer, as
                        model_family.neox */
    pl_rope rope;
    /* [n_layer] window of attention in tokens, 0 for no window; NULL if no
     * layer has one. */
    const int64_t *window;
    /* [n_layer] true for a recurrent part, such as a delta net, instead of
     * attention; NULL if all false. */
    const bool *recurrent;
    /* [n_layer] true for a layer whose attention has no RoPE; NULL if all have
     * RoPE. */
    const bool *no_rope;
    /* [n_layer] true for a layer without experts; NULL if these are the first
     * n_dense ones. */
    const bool *dense;
    struct model_delta delta;
    float decay_bound; /* least logarithm of a decay of Kimi delta attention; 0
                          for no bound */
    struct model_ssm ssm;
    struct model_v4 v4;
    int64_t n_tap; /* number of tokens that a short convolution without delta
                      net sums */
    const char *output_norm; /* name of the last norm; NULL for output_norm */
    pl_rope rope_window;     /* parameters of RoPE for layers with a window */
    float query_scale;       /* factor by which the scores of attention are
                            multiplied */
    float attn_softcap;      /* limit of the scores of attention, 0 for none */
    /* Factors of the embeddings, of the result of attention, of the results of
     * both parts of a layer, and of the logits; 1 for none. */
    float embedding_scale, value_scale, residual_scale, logit_scale;
    bool fused_up;    /* ffn_up has the rows of gate, then those of up */
    bool select_bias; /* the router may have a bias, exp_probs_b, that only
                         affects the choice of experts */
    /* [n_layer] limit of the hidden values of experts, and of the shared expert
     * or a feed-forward part, 0 for none; NULL if no layer has one. */
    const float *clamp_expert, *clamp_shared;
    bool clamp_first; /* the limit of the gate applies before SiLU */
    /* The temperature of queries: they are multiplied by 1 + temp ln(floor(
     * position / temp_length) + 1); 0 for none. */
    float temp;
    int64_t temp_length;
    int64_t n_ctx_short;   /* longest context in tokens with which phi3 and
                            phimoe use rope_factors_short */
    const float *xielu[4]; /* [n_layer] each: alpha_p, alpha_n, beta and eps of
                              apertus */
    float softcap;         /* a logit x becomes c tanh(x / c) with this c; 0 if
                            logits stay unchanged */
    /* Multi-token-prediction blocks take the output of the last norm, not its
     * input. */
    bool next_normed;
    pl_pooling pooling; /* pooling of embeddings that the file recommends */
    int64_t n_label;    /* number of scores of the class head, 0 if none */
    bool encoder;       /* tokens attend to the whole text, and there are no
                           logits */
    int64_t n_unused;   /* number of tensors of the file that the graph does
                            not read */
    /* text of a warning with the keys and tensors of the file that plait does
     * not know; NULL if there are none */
    const char *unread;
};

/* Returns the name of family i of the table, or NULL if i is not below the
 * number of families. */
const char *model_family_name(int i);

/* Reads and checks the model in `file`, which is borrowed until model_close. On
 * failure *out is NULL. */
pl_status model_open(struct model **out, const struct gguf *file, pl_err *err);
void model_close(struct model *m);

/* Sets *out to a graph of the model that the keys of `file` describe. The file
 * has no tensors; the graph's weights are those that such a model needs, all of
 * them F32 or I32, and the optional ones in `optional`. These are separated by
 * blanks and named without "blk.N.", such as "exp_probs_b.bias". "NAME=N" has N
 * rows, where keys do not say how many. */
pl_status model_weights(pl_graph **out, const struct gguf *file,
                        const char *optional, pl_err *err);

/* Returns true if the layer has a feed-forward part without experts. */
static inline bool model_is_dense(const struct model *m, int64_t layer)
{
    if (m->n_expert == 0)
        return true;
    return m->dense && layer < m->n_layer ? m->dense[layer]
                                          : layer < m->n_dense;
}

/* Give access to the file's tensors that form the graph's weight `name`: one
 * tensor, or one for each expert. model_weight_parts returns their number, 0 if
 * the file lacks the weight. model_weight_part returns tensor `part`, or NULL
 * if there is none with this index. */
int64_t model_weight_parts(const struct model *m, const char *name);
const struct gguf_tensor *model_weight_part(const struct model *m,
                                            const char *name, int64_t part);

struct model_graph_options {
    pl_format cache_k, cache_v;
    /* 0 for the graph of the network, N for that of its Nth
     * multi-token-prediction block */
    int64_t mtp;
    pl_numerics numerics;
    /* The requested context in tokens, as in pl_options; 0 for the default. */
    int64_t n_ctx;
    bool hidden_rows; /* the graph also has the output hidden_rows */
};

/* Builds the whole network into `g`, which must be empty:
 *
 *   ids, pos   I32 [n_tok]   inputs: tokens and their positions
 *   out_ids    I32 [n_out]   input: the rows whose logits are wanted
 *   cache_k.N, cache_v.N     [n_slot, n_head_kv, d_head], N the layer
 *   cache_kv.N               [n_slot, 1, d], instead of these: latents
 *   cache_index.N            [n_slot, 1, d]: keys of an indexer
 *   cache_block.N            [n_slot, 1, d]: keys of blocks of tokens
 *   cache_raw.N, cache_index_raw.N   [n_slot, 1, d]: what such keys are made of
 *   state.N, conv_state*.N   of layers with a delta net or a Mamba-2 block
 *   weights                  by their names in the file, formats as there
 *   logits     F32 [n_out, n_vocab], marked as output; not of an encoder
 *   scores     F32 [n_out, n_label], marked as output, of a class head
 *
 * A multi-token-prediction block has the same inputs and output. Its ids are
 * one token ahead of pos, and its logits predict the token after ids. It also
 * has
 *
 *   hidden     F32 [n_tok, d_model]  input: result_hidden of the tokens before,
 *                                    of the network or the block before; or
 *                                    result_norm if next_normed
 *
 * With hidden_rows, the network has one more output, which a first block can
 * take as `hidden`:
 *
 *   hidden_rows  F32 [n_tok, d_model]  the last norm of all tokens; without its
 *                                      weight unless next_normed, because a
 *                                      block normalises it again
 *
 * An encoder has another input, and its output is result_norm:
 *
 *   ends         I32 [n_tok]           the last position of each token's text
 *   result_norm  F32 [n_out, d_model]  embeddings of tokens
 *
 * Intermediate values have the names known from reference traces: attn_norm-N,
 * kqv_out-N, ffn_inp-N, ffn_norm-N, l_out-N, result_norm. result_hidden is the
 * input of the last norm: l_out of the wanted rows. */
pl_status model_graph(const struct model *m, pl_graph *g,
                      const struct model_graph_options *opt, pl_err *err);

#endif
