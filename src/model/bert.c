/* bert, nomic-bert, nomic-bert-moe and jina-bert-v3: encoders, in which a token
 * attends to the whole text, and norms follow the sums:
 *
 *   x = norm(embedding + token type 0 + position, token_embd_norm)
 *   x = norm(x + attention(x), attn_output_norm)
 *   x = norm(x + down(gelu(up x)), layer_output_norm)
 *
 * bert learns an embedding of each position; the others have RoPE. nomic-bert
 * has a gate, down(silu(gate x) * up x). In nomic-bert-moe, every nth layer has
 * experts without gate instead, whose weights are a softmax over all experts.
 * GELU is exact. All tokens have type 0. Source: arXiv:1810.04805,
 * arXiv:2402.01613, arXiv:2502.07972, arXiv:2409.10173. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <string.h>

/* Checks that every nth layer has experts, beginning with layer 1. */
static pl_status check_experts(const struct model *m, pl_err *err)
{
    int64_t n;

    PL_TRY(params_get(m, "moe_every_n_layers", 1, 2, MAX_LAYER, &n, err));
    for (int64_t i = 0; i < m->n_layer; i++)
        if (m->dense[i] == (i % n == 1))
            return err_set(err, PL_BAD_FILE,
                           "%s: layer %" PRId64 " %s blk.%" PRId64
                           ".ffn_gate_inp.weight, against moe_every_n_layers, "
                           "which is %" PRId64 "; convert the model again",
                           gguf_path(m->file), i, m->dense[i] ? "lacks" : "has",
                           i, n);
    return PL_OK;
}

/* Returns true if the family learns embeddings of positions, without RoPE. */
static bool has_positions(const struct model *m)
{
    return !strcmp(m->family->arch, "bert");
}

pl_status model_bert_read(struct model *m, pl_err *err)
{
    m->norm_bias = true;
    m->normalise = false;
    if (m->n_expert > 0) {
        PL_TRY(params_dense(m, err));
        PL_TRY(check_experts(m, err));
    }
    if (has_positions(m))
        PL_TRY(params_no_rope(m, 1, 0, err));
    PL_TRY(params_layer_norm(m, err));
    return params_encoder(m, err);
}

/* Returns x plus the embedding of token type 0, if the file has types. */
static pl_tensor with_type(struct build *b, pl_tensor x)
{
    const int64_t n = model_rows(b, "token_types");
    const struct model_dim dim[2] = {{n, "rows of token_types"},
                                     model_width(b)};
    pl_tensor types;

    if (n == 0)
        return x;
    types =
        model_weight(b, "token_types", "weight", PL_ROLE_NONE, false, 2, dim);
    return pl_add(b->g, x, pl_slice(b->g, types, 0, 0, 1));
}

/* Returns x plus the embeddings of the tokens' positions. */
static pl_tensor with_positions(struct build *b, pl_tensor x)
{
    const struct model_dim dim[2] = {{b->m->n_ctx_train, "context_length"},
                                     model_width(b)};
    pl_tensor table =
        model_weight(b, "position_embd", "weight", PL_ROLE_NONE, false, 2, dim);

    return pl_add(b->g, x, pl_gather_rows(b->g, table, b->pos));
}

static pl_tensor gelu(struct build *b, pl_tensor x)
{
    return pl_gelu_erf(b->g, x);
}

void model_bert(struct build *b)
{
    const bool gated = !strcmp(b->m->family->arch, "nomic-bert");
    const struct model_layers o = {.attention.freqs = -1,
                                   .hidden = gated ? NULL : gelu};
    const struct model_dim e = model_width(b);
    pl_tensor x = with_type(b, model_embed(b)), h;

    b->hidden = o.hidden;
    if (has_positions(b->m))
        x = with_positions(b, x);
    x = model_norm(b, x, "token_embd_norm", e);
    for (int64_t i = 0; i < b->m->n_layer; i++) {
        model_layer(b, i);
        h = model_attention(b, x, &o.attention);
        x = model_norm(b, pl_add(b->g, x, h), "attn_output_norm", e);
        model_name(b, x, "ffn_inp");
        h = model_feed_forward(b, x, &o);
        x = model_norm(b, pl_add(b->g, x, h), "layer_output_norm", e);
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_embeddings(b, x);
}
