/* gpt-oss: llama with biases everywhere, including those of experts. Each head
 * has a sink: a value in its softmax that adds nothing to the result. Unless
 * the file says otherwise, every other layer has a window, beginning with the
 * first. The router's softmax covers only the chosen experts. Their hidden
 * values are
 *
 *   (up + 1) gate / (1 + e^(-1.702 gate)),  gate at most 7, up in -7 .. 7.
 *
 * YaRN's ramp begins and ends at whole pairs, as in llama.cpp, the source of
 * the reference logits; the model's authors do not round them.
 *
 * Source: the model card of gpt-oss, arXiv:2508.10925. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_gptoss_read(struct model *m, pl_err *err)
{
    double base;

    m->gating = PL_GATING_SOFTMAX_SELECTED;
    m->normalise = false;
    PL_TRY(params_rope_base(m, "rope.freq_base_swa", (double)m->rope.base,
                            &base, err));
    PL_TRY(params_rope(m, base, &m->rope_window, err));
    return params_windows(m, 2, 0, err);
}

static pl_tensor glu(pl_graph *g, pl_tensor gate, pl_tensor up)
{
    return pl_swiglu_oai(g, gate, up, 7);
}

void model_gptoss(struct build *b)
{
    const struct model_layers o = {
        .attention = {.bias = true, .sinks = true, .freqs = -1},
        .glu = glu,
        .ffn_norm = "post_attention_norm",
        .mtp = true};

    model_decoder(b, &o);
}
