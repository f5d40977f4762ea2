/* mistral3 (Ministral 3, Devstral 2 Small, Mistral Small 3 as newer converters
 * write it): llama, but queries have a temperature that grows with their
 * position. YaRN's factor f changes cos and sin by
 *
 *   (1 + 0.1 ln f) / (1 + 0.1 l ln f)
 *
 * with the key yarn_log_multiplier l, which is 0 if absent.
 *
 * mistral4 (Mistral Small 4): deepseek2, whose queries may have such a
 * temperature, with this factor in addition; there l is ten times the key.
 * Source: the model cards of Ministral 3 and Mistral Small 4. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <math.h>

static double yarn_scale(double factor, double l)
{
    return 1 + 0.1 * l * log(factor);
}

pl_status model_yarn_stretch(struct model *m, pl_err *err)
{
    const double factor = 1 / (double)m->rope.freq_scale;
    double l, stretch;

    PL_TRY(
        params_factor(m, "rope.scaling.yarn_log_multiplier", 0, true, &l, err));
    if (!m->rope.yarn || !(factor > 1))
        return PL_OK;
    stretch = yarn_scale(factor, 1) / yarn_scale(factor, 10 * l);
    m->rope.mscale *= (float)stretch;
    m->query_scale *= (float)(stretch * stretch);
    return PL_OK;
}

pl_status model_mistral3_read(struct model *m, pl_err *err)
{
    const double factor = 1 / (double)m->rope.freq_scale;
    double l;

    PL_TRY(
        params_factor(m, "rope.scaling.yarn_log_multiplier", 0, true, &l, err));
    if (m->rope.yarn && factor > 1)
        m->rope.mscale /= (float)yarn_scale(factor, l);
    return params_temperature(m, "rope.scaling.original_context_length",
                              m->n_ctx_train, err);
}

pl_status model_mistral4_read(struct model *m, pl_err *err)
{
    PL_TRY(model_deepseek2_read(m, err));
    return model_yarn_stretch(m, err);
}

void model_mistral3(struct build *b)
{
    const struct model_layers o = {.attention.freqs = -1};

    model_decoder(b, &o);
}
