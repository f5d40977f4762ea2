/* Models: what a GGUF file says of a network, and the graph that it means.
 *
 * model_open reads the hyper-parameters and checks every tensor that the graph
 * will name, so that a file that opens can be planned. A family is one short
 * file that puts shared blocks together (blocks.h); the table in model.c lists
 * them. Of weights nothing is read but a few vectors that decide, and nothing
 * is known of devices. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "pl_graph.h"

struct build; /* blocks.h */
struct model;

/* Do a family's models have experts (MoE) in place of one feed-forward part? */
enum model_moe { MOE_NEVER, MOE_IF_GIVEN, MOE_ALWAYS };

/* One row a family. */
struct model_family {
    const char *arch; /* general.architecture */
    bool neox;        /* rope pairs (i, i + n_rot/2), else (2i, 2i + 1) */
    enum model_moe moe;
    bool shared; /* routers as the keys say, a shared expert, leading layers
                    without experts */
    const char *expert_width; /* key of an expert's width */
    /* Keys beside those of all families; NULL: there are none. */
    pl_status (*read)(struct model *m, pl_err *err);
    void (*graph)(struct build *b);
};

/* A gated delta net's heads, all of one width: value heads, of which several
 * share a key head; and the taps of the convolution before it. */
struct model_delta {
    int64_t n_key, n_value, d_head, n_tap;
    bool neighbours; /* neighbours share; else heads that are n_key apart */
};

struct model {
    const struct gguf *file; /* borrowed until model_close */
    const struct model_family *family;
    struct arena arena; /* owns the arrays below */
    int64_t n_vocab, n_ctx_train, d_model;
    int64_t n_layer;       /* those that are evaluated */
    int64_t n_next;        /* behind them, of further tokens */
    const char *vocab_key; /* where n_vocab comes from */
    /* Of [n_layer]; behind them are the n_next others, which are as the last
     * layer that attends. */
    const int64_t *n_head, *n_head_kv;
    const int64_t *d_key, *d_value;  /* of a head */
    int64_t n_shared_kv;             /* trailing layers that read the cache of
                                          an earlier one and have none */
    int64_t n_dense;                 /* leading layers without experts */
    const int64_t *d_ff;             /* [n_layer]; NULL: none */
    int64_t n_expert, n_expert_used; /* 0: no experts */
    const int64_t *d_expert;         /* [n_layer], of one; NULL: none */
    int64_t n_shared;                /* experts that serve every token */
    int64_t d_shared;    /* their width; 0: n_shared times that of the others */
    bool shared_gate;    /* they are weighed by a sigmoid of their own */
    int64_t d_per_layer; /* of what a token brings to each layer; 0: nothing */
    int64_t n_group, n_group_used; /* of experts, to choose from; 0, 1: none */
    pl_gating gating;
    bool normalise; /* weights of the chosen experts sum to one, */
    float routed;   /* and then this factor */
    float eps;
    int64_t q_rank, kv_rank; /* of latent attention; q_rank 0: q has none */
    bool latent;             /* its cache holds latents */
    pl_rope rope;
    const int64_t
        *window; /* [n_layer] tokens that attention sees, 0: all; NULL:
                              all in every layer */
    const bool *recurrent; /* [n_layer] has a delta net in place of attention;
                              NULL: none has */
    struct model_delta delta;
    pl_rope rope_window; /* of layers with a window */
    float query_scale;   /* of attention's scores */
    float softcap;       /* of logits: c tanh(x / c); 0: none */
    int64_t n_unused;    /* tensors of the file that the graph does not read */
    const char *unused;  /* the first one's name, view into the file; or NULL */
};

/* Reads and checks; `file` is borrowed. On failure *out is NULL. */
pl_status model_open(struct model **out, const struct gguf *file, pl_err *err);
void model_close(struct model *m);

/* The tensors of the file that a weight of the graph is in, one behind the
 * other: one, or one an expert. 0 and NULL: there are none. */
int64_t model_weight_parts(const struct model *m, const char *name);
const struct gguf_tensor *model_weight_part(const struct model *m,
                                            const char *name, int64_t part);

struct model_graph_options {
    pl_format cache_k, cache_v;
    int64_t mtp; /* 0: the network; N: its Nth block that predicts a further
                    token, in its place */
    pl_numerics numerics;
};

/* Builds the whole network into `g`, which is empty:
 *
 *   ids, pos   I32 [n_tok]   inputs: tokens and their positions
 *   out_ids    I32 [n_out]   input: the rows whose logits are wanted
 *   cache_k.N, cache_v.N     [n_slot, n_head_kv, d_head], N the layer
 *   cache_kv.N               [n_slot, 1, d], in their place: latents
 *   state.N, conv_state.N    of layers with a delta net
 *   weights                  by their names in the file, formats as there
 *   logits     F32 [n_out, n_vocab], marked as output
 *
 * A block for multi-token prediction has the same, with ids one token further
 * than pos says, the logits of the token behind those, and
 *
 *   hidden     F32 [n_tok, d_model]  input: result_hidden of the tokens before,
 *                                    of the network or the block before
 *
 * Values on the way have the names that users of reference traces know:
 * attn_norm-N, kqv_out-N, ffn_inp-N, ffn_norm-N, l_out-N, result_norm;
 * result_hidden is what is normed last: l_out of the rows that are wanted. */
pl_status model_graph(const struct model *m, pl_graph *g,
                      const struct model_graph_options *opt, pl_err *err);

#endif
