/* Writes files with the tensors of a qwen3moe model, by way of the writer of
 * synthetic models. */
#include "lib/hollow_model.h"

#include "quant/format.h"
#include "synth/synth.h"

const struct hollow_model hollow_400b = {
    .n_layer = 94,
    .d_model = 4096,
    .n_head = 64,
    .n_head_kv = 4,
    .d_head = 128,
    .n_expert = 128,
    .n_used = 8,
    .d_ff = 2560,
    .n_vocab = 151936,
    .format = PL_Q4_K,
};

pl_status hollow_model_write(const char *path, const struct hollow_model *m,
                             pl_err *err)
{
    const struct synth_shape s = {.name = "hollow",
                                  .arch = "qwen3moe",
                                  .n_layer = m->n_layer,
                                  .d_model = m->d_model,
                                  .n_head = m->n_head,
                                  .n_head_kv = m->n_head_kv,
                                  .d_head = m->d_head,
                                  .d_ff = m->d_ff,
                                  .n_expert = m->n_expert,
                                  .n_used = m->n_used,
                                  .n_vocab = m->n_vocab};
    const struct synth_type t = {"hollow", m->format, m->format, m->format};

    return synth_save(&s, &t, path, true, NULL, err);
}
