/* Models: the hyper-parameters of a network in a GGUF file, and its graph.
 *
 * model_open reads the hyper-parameters and checks every tensor that the graph
 * names, so that a file that opens can be planned. A family is one short file
 * that combines shared blocks (blocks.h); the table in model.c lists them. Only
 * a few vectors are read of the weights, to validate their values. Devices are
 * unknown here. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "pl_graph.h"

struct build; /* blocks.h */
struct model;

/* The use of experts (MoE) instead of one feed-forward part in a family. */
enum model_moe { MOE_NEVER, MOE_IF_GIVEN, MOE_ALWAYS };

/* One row for each family. */
struct model_family {
    const char *arch; /* general.architecture */
    bool neox;        /* rope pairs (i, i + n_rot/2), else (2i, 2i + 1) */
    enum model_moe moe;
    /* Has keys for the router, a shared expert and leading layers without
     * experts. */
    bool shared;
    const char *expert_width; /* key of an expert's width */
    /* Reads keys besides those of all families; NULL: there are none. */
    pl_status (*read)(struct model *m, pl_err *err);
    void (*graph)(struct build *b);
};

/* A gated delta net's heads, all of one width: value heads, several of which
 * share a key head; and the taps of the convolution before it. */
struct model_delta {
    int64_t n_key, n_value, d_head, n_tap;
    bool neighbours; /* adjacent heads share, else heads n_key apart */
};

struct model {
    const struct gguf *file; /* borrowed until model_close */
    const struct model_family *family;
    struct arena arena; /* owns the arrays below */
    int64_t n_vocab, n_ctx_train, d_model;
    int64_t n_layer;       /* layers that are evaluated */
    int64_t n_next;        /* multi-token-prediction blocks after them */
    const char *vocab_key; /* the origin of n_vocab */
    /* Arrays of [n_layer], followed by the n_next other blocks, which equal the
     * last layer with attention. */
    const int64_t *n_head, *n_head_kv;
    const int64_t *d_key, *d_value; /* of a head */
    /* Trailing layers that read the cache of an earlier one instead of their
     * own. */
    int64_t n_shared_kv;
    int64_t n_dense;                 /* leading layers without experts */
    const int64_t *d_ff;             /* [n_layer]; NULL: none */
    int64_t n_expert, n_expert_used; /* 0: no experts */
    const int64_t *d_expert;         /* [n_layer], of one; NULL: none */
    int64_t n_shared;                /* experts that serve every token */
    int64_t d_shared;    /* their width; 0: n_shared times that of the others */
    bool shared_gate;    /* weighted by a sigmoid of their own */
    int64_t d_per_layer; /* of per-layer embeddings; 0: none */
    int64_t n_group, n_group_used; /* of experts, to choose from; 0, 1: none */
    pl_gating gating;
    bool normalise; /* weights of the chosen experts sum to one, */
    float routed;   /* then are multiplied by this */
    float eps;
    int64_t q_rank, kv_rank; /* of latent attention; q_rank 0: not for q */
    bool latent;             /* its cache holds latents */
    pl_rope rope;
    /* [n_layer] tokens that attention sees, 0: all; NULL: all in every
     * layer. */
    const int64_t *window;
    /* [n_layer] has a delta net instead of attention. NULL: no layer has. */
    const bool *recurrent;
    struct model_delta delta;
    pl_rope rope_window; /* of layers with a window */
    float query_scale;   /* of attention's scores */
    float softcap;       /* of logits: c tanh(x / c); 0: none */
    int64_t n_unused;    /* tensors of the file that the graph does not read */
    const char *unused;  /* name of the first, view into the file; or NULL */
};

/* Reads and checks the model; `file` is borrowed. On failure *out is NULL. */
pl_status model_open(struct model **out, const struct gguf *file, pl_err *err);
void model_close(struct model *m);

/* Return the tensors of the file that form a weight of the graph, in order:
 * one, or one for each expert. 0 and NULL: there are none. */
int64_t model_weight_parts(const struct model *m, const char *name);
const struct gguf_tensor *model_weight_part(const struct model *m,
                                            const char *name, int64_t part);

struct model_graph_options {
    pl_format cache_k, cache_v;
    /* 0: the network. N: its Nth multi-token-prediction block instead. */
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
 * A multi-token-prediction block has the same. Its ids are one token ahead of
 * pos, and its logits are those of the token after the ids. It also has
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
