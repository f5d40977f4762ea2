/* modern-bert (ModernBERT): an encoder with RoPE and norms before the parts of
 * a layer, without biases. In two of three layers attention has a window to
 * both sides, and RoPE another base. The first layer has no norm before
 * attention. The matrix ffn_up has the rows of the gate, then those of up:
 *
 *   x = norm(embedding, token_embd_norm)
 *   x += attention(norm x);  x += down(gelu(gate h) * up h), h the norm of x
 *
 * GELU is exact. Source: arXiv:2412.13663. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

enum { PATTERN = 3 };

pl_status model_modern_bert_read(struct model *m, pl_err *err)
{
    m->fused_up = true;
    PL_TRY(params_windows(m, -PATTERN, 0, err));
    PL_TRY(params_rope_window(m, 10000, err));
    PL_TRY(params_layer_norm(m, err));
    return params_encoder(m, err);
}

static pl_tensor glu(pl_graph *g, pl_tensor gate, pl_tensor up)
{
    return pl_mul(g, pl_gelu_erf(g, gate), up);
}

void model_modern_bert(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1, .glu = glu};
    const struct model_dim e = model_width(b);
    pl_tensor x = model_norm(b, model_embed(b), "token_embd_norm", e), h;

    for (int64_t i = 0; i < b->m->n_layer; i++) {
        model_layer(b, i);
        h = i == 0 ? x : model_norm(b, x, "attn_norm", e);
        x = pl_add(b->g, x, model_attention(b, h, &o.attention));
        model_name(b, x, "ffn_inp");
        h = model_norm(b, x, "ffn_norm", e);
        x = pl_add(b->g, x, model_feed_forward(b, h, &o));
        model_name(b, x, "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_layer(b, -1);
    model_embeddings(b, model_norm(b, x, "output_norm", e));
}
