/* Models: the hyper-parameters of a network in a GGUF file, and its graph.
 *
 * model_open reads the hyper-parameters and checks every tensor that the graph
 * names, so that a file that opens can be planned. Then it judges what nothing
 * has read (unread.c): a file whose results would be wrong is rejected. A
 * family is one short file that combines shared blocks (blocks.h); the table in
 * model.c lists them. Only a few vectors of the weights are read, to validate
 * their values. This layer does not know devices. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "pl_graph.h"

struct build; /* declared in blocks.h */
struct model;

/* Use of experts (MoE) instead of one feed-forward part in a family: never;
 * only if the file contains the key expert_count; or always. */
enum model_moe { MOE_NEVER, MOE_IF_GIVEN, MOE_ALWAYS };

/* One row for each family. */
struct model_family {
    const char *arch; /* the value of the key general.architecture */
    /* true: RoPE rotates pairs (i, i + n_rot/2); false: (2i, 2i + 1) */
    bool neox;
    enum model_moe moe;
    /* The file contains keys for the router, for a shared expert and for
     * leading layers without experts. */
    bool shared;
    const char *expert_width; /* key of the width of an expert */
    /* Reads keys that only this family has; NULL if there are none. */
    pl_status (*read)(struct model *m, pl_err *err);
    void (*graph)(struct build *b);
};

/* Sizes of a gated delta net. All heads have the same width; several value
 * heads share a key head. n_tap is the length of the convolution before it. */
struct model_delta {
    int64_t n_key, n_value, d_head, n_tap;
    /* true: adjacent value heads share a key head; false: value heads that are
     * n_key apart share one */
    bool neighbours;
};

struct model {
    const struct gguf *file; /* borrowed until model_close */
    const struct model_family *family;
    struct arena arena; /* owns the arrays below */
    int64_t n_vocab, d_model;
    int64_t n_ctx_train;   /* in tokens; as far as YaRN extends it */
    int64_t n_layer;       /* layers of the network */
    int64_t n_next;        /* multi-token-prediction blocks after them */
    const char *vocab_key; /* the key that n_vocab comes from */
    /* Arrays of n_layer + n_next elements. The last n_next are for the
     * multi-token-prediction blocks and equal those of the last layer with
     * attention. */
    const int64_t *n_head, *n_head_kv;
    const int64_t *d_key, *d_value; /* width of a head */
    /* Number of trailing layers that read the cache of an earlier layer instead
     * of their own. */
    int64_t n_shared_kv;
    int64_t n_dense; /* number of leading layers without experts */
    /* [n_layer] width of the feed-forward part; NULL if none */
    const int64_t *d_ff;
    int64_t n_expert, n_expert_used; /* 0 if none */
    const int64_t *d_expert; /* [n_layer], width of an expert; NULL if none */
    int64_t n_shared; /* number of shared experts, which process every token */
    /* width of all shared experts together; 0 means n_shared * d_expert */
    int64_t d_shared;
    bool shared_gate;    /* the shared experts are weighted by a sigmoid */
    int64_t d_per_layer; /* width of per-layer embeddings; 0 if none */
    int64_t n_group, n_group_used; /* groups of experts; 0 if none */
    pl_gating gating;
    bool normalise; /* divide the weights of the chosen experts by their sum */
    /* factor by which the weights of the chosen experts are multiplied */
    float routed;
    float eps;
    /* ranks of latent attention; q_rank is 0 if queries have no latents */
    int64_t q_rank, kv_rank;
    bool latent; /* the cache contains latents */
    pl_rope rope;
    /* [n_layer] window of attention in tokens, 0 for no window; NULL if no
     * layer has one. */
    const int64_t *window;
    /* [n_layer] true for a delta net instead of attention; NULL if all
     * false. */
    const bool *recurrent;
    struct model_delta delta;
    pl_rope rope_window; /* RoPE of layers with a window */
    float query_scale;   /* factor of the scores of attention */
    float softcap;       /* logits become c tanh(x / c); 0 if none */
    pl_pooling pooling;  /* how the file wants embeddings pooled */
    int64_t n_unused;    /* tensors of the file that the graph does not read */
    /* Names the keys and tensors that no code knows, for a warning; NULL if
     * there are none. */
    const char *unread;
};

/* Reads and checks the model in `file`, which is borrowed until model_close. On
 * failure *out is NULL. */
pl_status model_open(struct model **out, const struct gguf *file, pl_err *err);
void model_close(struct model *m);

/* Return the tensors of the file that form the weight `name` of the graph: one
 * tensor, or one for each expert. model_weight_parts returns their number, 0 if
 * there are none. model_weight_part returns tensor `part`, or NULL if there is
 * none. */
int64_t model_weight_parts(const struct model *m, const char *name);
const struct gguf_tensor *model_weight_part(const struct model *m,
                                            const char *name, int64_t part);

struct model_graph_options {
    pl_format cache_k, cache_v;
    /* 0: the graph is that of the network. N: it is that of the network's Nth
     * multi-token-prediction block. */
    int64_t mtp;
    pl_numerics numerics;
};

/* Builds the whole network into `g`, which must be empty:
 *
 *   ids, pos   I32 [n_tok]   inputs: tokens and their positions
 *   out_ids    I32 [n_out]   input: the rows whose logits are wanted
 *   cache_k.N, cache_v.N     [n_slot, n_head_kv, d_head], N the layer
 *   cache_kv.N               [n_slot, 1, d], instead of these: latents
 *   state.N, conv_state.N    of layers with a delta net
 *   weights                  by their names in the file, formats as there
 *   logits     F32 [n_out, n_vocab], marked as output
 *
 * A multi-token-prediction block has the same inputs and output. Its ids are
 * one token ahead of pos, and its logits predict the token after ids. It also
 * has
 *
 *   hidden     F32 [n_tok, d_model]  input: result_hidden of the tokens before,
 *                                    of the network or the block before
 *
 * Intermediate values have the names known from reference traces: attn_norm-N,
 * kqv_out-N, ffn_inp-N, ffn_norm-N, l_out-N, result_norm. result_hidden is the
 * input of the last norm: l_out of the wanted rows. */
pl_status model_graph(const struct model *m, pl_graph *g,
                      const struct model_graph_options *opt, pl_err *err);

#endif
