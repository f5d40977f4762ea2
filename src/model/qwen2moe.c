/* qwen2moe (Qwen1.5-MoE, Qwen2-57B-A14B): qwen2 with experts in every layer,
 * whose weights are not normalised, and a shared expert that is weighted by a
 * sigmoid of its own. Source: arXiv:2407.10671. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

pl_status model_qwen2moe_read(struct model *m, pl_err *err)
{
    PL_TRY(params_router(m, PL_GATING_SOFTMAX, false, err));
    m->shared_gate = true;
    return params_get(m, "expert_shared_feed_forward_length", m->d_expert[0], 1,
                      MAX_WIDTH, &m->d_shared, err);
}
