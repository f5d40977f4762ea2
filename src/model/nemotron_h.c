/* mamba2, and nemotron_h and nemotron_h_moe (Nemotron Nano 2, Nemotron 3): each
 * layer has one part, x += part(norm x). With KV heads it is attention without
 * RoPE. Without them and with a width of 0 it is a Mamba-2 block (mamba2.c).
 * Otherwise it is a feed-forward part without gate, down(max(0, up h)^2), or
 * such experts, chosen by a sigmoid and a bias that only affects the choice. A
 * model of mamba2 has no attention and no feed-forward parts. Source:
 * arXiv:2405.21060, arXiv:2508.14444. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_nemotron_h_read(struct model *m, pl_err *err)
{
    bool *recurrent = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next),
                                  sizeof *recurrent);

    if (!recurrent)
        return err_no_memory(err, "hyper-parameters");
    PL_TRY(model_mamba2_params(m, err));
    PL_TRY(params_no_rope(m, 1, 0, err));
    for (int64_t i = 0; i < m->n_layer; i++)
        recurrent[i] = m->n_head_kv[i] == 0;
    m->recurrent = recurrent;
    if (m->n_expert == 0)
        return PL_OK;
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, true, err));
    PL_TRY(params_shared(m, 0, err));
    return params_per_layer(m, "feed_forward_length", MAX_WIDTH, NULL, &m->d_ff,
                            err);
}

/* Returns the result of the layer's part for h, the norm of its input. */
static pl_tensor part(struct build *b, pl_tensor h)
{
    const struct model *m = b->m;
    const struct model_attention attention = {.freqs = -1};

    if (m->n_head_kv[b->layer] > 0)
        return model_attention(b, h, &attention);
    if (m->d_ff[b->layer] == 0)
        return model_mamba2(b, h);
    return m->n_expert == 0 ? model_mlp(b, h, NULL)
                            : model_experts(b, h, model_router(b, h), NULL);
}

void model_nemotron_h(struct build *b)
{
    pl_tensor x = model_embed(b), h;

    b->hidden = model_relu_squared;
    for (int64_t i = b->first; i < b->m->n_layer; i++) {
        model_layer(b, i);
        h = model_norm(b, x, "attn_norm", model_width(b));
        h = part(b, model_name(b, h, "attn_norm"));
        x = model_name(b, pl_add(b->g, x, h), "l_out");
        if (b->g->err.status != PL_OK)
            return;
    }
    model_head(b, x);
}
