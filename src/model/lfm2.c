/* lfm2 and lfm2moe (LFM 2): layers without KV heads have a short convolution
 * instead of attention, a memory of the last few tokens,
 *
 *   b, c, u = in_proj h
 *   x += out_proj (c * convolution(b * u))
 *
 * with n_tap taps a channel and no activation. The others are as in qwen3. In
 * lfm2moe, layers after the leading dense ones have experts, chosen by a
 * sigmoid and a bias that only affects the choice. The last norm has the name
 * token_embd_norm. Source: the model cards of LFM2 and LFM2-8B-A1B. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_TAPS = 64 };

pl_status model_lfm2_read(struct model *m, pl_err *err)
{
    bool *recurrent = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next),
                                  sizeof *recurrent);
    struct params_key k;

    if (!recurrent)
        return err_no_memory(err, "hyper-parameters");
    for (int64_t i = 0; i < m->n_layer; i++)
        recurrent[i] = m->n_head_kv[i] == 0;
    m->recurrent = recurrent;
    m->output_norm = "token_embd_norm";
    PL_TRY(params_need(m, "shortconv.l_cache", MAX_TAPS, &m->n_tap, err));
    if (m->n_tap < 2)
        return err_set(err, PL_BAD_FILE, "%s: key %s is 1, not 2 to %d",
                       gguf_path(m->file),
                       params_key(m, "shortconv.l_cache", &k), MAX_TAPS);
    if (m->n_expert == 0)
        return PL_OK;
    m->select_bias = true;
    return params_router(m, PL_GATING_SIGMOID, true, err);
}

/* Returns the result of a short convolution for h [n_tok, d_model]. The roles
 * are those of heads, of which each channel is one: a rank has the same
 * channels of b, c and u. */
static pl_tensor short_convolution(struct build *b, pl_tensor h)
{
    const struct model_dim e = model_width(b);
    const struct model_dim all = {3 * e.n, "3 * embedding_length"};
    const struct model_dim taps[2] = {e, {b->m->n_tap, "shortconv.l_cache"}};
    pl_tensor x = model_matmul(b, h, "shortconv.in_proj", PL_ROLE_ATTN_QKV, all,
                               e, false);
    pl_tensor in = pl_slice(b->g, x, 1, 0, e.n);
    pl_tensor out = pl_slice(b->g, x, 1, e.n, e.n);
    pl_tensor u = pl_slice(b->g, x, 1, 2 * e.n, e.n);
    pl_tensor w = model_weight(b, "shortconv.conv", "weight",
                               PL_ROLE_DELTA_GATE, false, 2, taps);
    char name[32];
    pl_tensor state;

    if (w >= 0 && b->g->node[w].format != PL_F32)
        w = pl_cast(b->g, w, PL_F32);
    snprintf(name, sizeof name, "state.%" PRId64, b->layer);
    state = pl_state(b->g, name, e.n, b->m->n_tap - 1, PL_ROLE_STATE);
    x = pl_short_conv(b->g, pl_mul(b->g, in, u), w, state, false);
    x = pl_mul(b->g, out, x);
    model_name(b, x, "kqv_out");
    return model_matmul(b, x, "shortconv.out_proj", PL_ROLE_ATTN_OUT, e, e,
                        false);
}

void model_lfm2(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1},
        .recurrent = short_convolution};

    model_decoder(b, &o);
}
