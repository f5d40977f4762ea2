/* arcee (AFM) and apertus: llama with feed-forward parts without gate, down(f
 * (up h)). In arcee f is max(0, x)^2. In apertus, where each head of q and k is
 * normalised before RoPE, f is xIELU:
 *
 *   a_p x^2 + b x                           if x > 0
 *   a_n (e^min(x, eps) - 1 - x) + b x       else,
 *   a_p = softplus(alpha_p), a_n = b + softplus(alpha_n)
 *
 * Source: arXiv:2109.08668 (the square of ReLU), arXiv:2411.13010 (xIELU),
 * arXiv:2509.14233 (Apertus). */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <float.h>
#include <math.h>

void model_arcee(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1,
                                   .hidden = model_relu_squared};

    model_decoder(b, &o);
}

pl_status model_apertus_read(struct model *m, pl_err *err)
{
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n",
                                       "xielu.beta", "xielu.eps"};

    for (int i = 0; i < 4; i++) {
        PL_TRY(params_layer_floats(m, keys[i], -1e4, 1e4, &m->xielu[i], err));
        if (!m->xielu[i])
            return err_set(err, PL_BAD_FILE,
                           "%s: key %s is missing; convert the model again",
                           gguf_path(m->file), keys[i]);
    }
    return PL_OK;
}

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* The part for x > 0 is computed from max(x, 0), the other one from min(x, 0).
 * Each is 0 where the other applies. */
static pl_tensor xielu(struct build *b, pl_tensor x)
{
    const float *const *p = b->m->xielu;
    const int64_t i = b->layer;
    const double beta = (double)p[2][i];
    const float a_p = (float)softplus((double)p[0][i]);
    const float a_n = (float)(beta + softplus((double)p[1][i]));
    pl_tensor pos = pl_relu(b->g, x), neg = pl_sub(b->g, x, pos), e;

    e = pl_exp(b->g, pl_clamp(b->g, neg, -FLT_MAX, fminf(p[3][i], 0)));
    e = pl_sub(b->g, e, pl_clamp(b->g, e, 1, 1));
    e = pl_scale(b->g, pl_sub(b->g, e, neg), a_n);
    pos = pl_scale(b->g, pl_sqr(b->g, pos), a_p);
    return pl_add(b->g, pl_add(b->g, pos, e), pl_scale(b->g, x, (float)beta));
}

void model_apertus(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = model_rope_freqs(b)},
        .hidden = xielu};

    model_decoder(b, &o);
}
