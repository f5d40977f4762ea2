/* deepseek32 (DeepSeek V3.2) and glm-dsa (GLM-5, 5.1, 5.2): deepseek2 in which
 * a token attends to chosen keys. An indexer with J narrow heads of d values
 * and one key for each token scores all earlier tokens:
 *
 *   q = a head of attn_q_b r,  k = norm(attn_k h),  both with RoPE
 *   w = proj h / sqrt(J d),  score = sum over heads of w max(0, q k)
 *
 * where r are the latents of attention's queries. Attention sees the top_k keys
 * with the largest scores. The indexer is small and mirrored: all devices of a
 * group choose the same keys.
 *
 * In glm-dsa only some layers have an indexer; the others use the choice of the
 * last layer that has one. Source: DeepSeek-V3.2's technical report. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MAX_KEYS = 1 << 20 };

static pl_status read_indexer(struct model *m, pl_err *err)
{
    struct params_key k;

    PL_TRY(model_deepseek2_read(m, err));
    if (!m->latent || m->q_rank == 0)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: key %s or attention.q_lora_rank is missing; for %s "
                       "both are needed, convert the model again",
                       gguf_path(m->file),
                       params_key(m, "attention.key_length_mla", &k),
                       m->family->arch);
    PL_TRY(params_need(m, "attention.indexer.head_count", MAX_HEAD, &m->n_index,
                       err));
    PL_TRY(params_need(m, "attention.indexer.key_length", MAX_HEAD, &m->d_index,
                       err));
    PL_TRY(
        params_need(m, "attention.indexer.top_k", MAX_KEYS, &m->top_keys, err));
    if (m->d_index >= m->rope.n_rot)
        return PL_OK;
    return err_set(err, PL_BAD_FILE,
                   "%s: key %s is %" PRId64 ", less than rope.dimension_count, "
                   "%d",
                   gguf_path(m->file),
                   params_key(m, "attention.indexer.key_length", &k),
                   m->d_index, m->rope.n_rot);
}

pl_status model_deepseek32_read(struct model *m, pl_err *err)
{
    PL_TRY(read_indexer(m, err));
    m->index_eps = 1e-6f;
    m->index_neox = true;
    return model_yarn_stretch(m, err);
}

/* Sets m->indexer. Without the key, models for a context of a million tokens
 * have an indexer in layers 0 and 1, then in every fourth layer from layer 2
 * on. Multi-token-prediction blocks have one. */
static pl_status read_types(struct model *m, pl_err *err)
{
    enum { LONG = 1 << 20, PERIOD = 4 };
    struct params_key k;
    bool *has;

    PL_TRY(params_flags(m, "attention.indexer.types", &has, err));
    if (!has && m->n_ctx_train >= LONG) {
        has = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next),
                          sizeof *has);
        if (!has)
            return err_no_memory(err, "hyper-parameters");
        for (int64_t i = 0; i < m->n_layer; i++)
            has[i] = i < 2 || (i - 2) % PERIOD == 0;
    }
    for (int64_t i = 0; has && i < m->n_next; i++)
        has[m->n_layer + i] = true;
    if (has && !has[0])
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s: the first layer has no indexer, so its "
                       "keys are unknown; the file is damaged",
                       gguf_path(m->file),
                       params_key(m, "attention.indexer.types", &k));
    m->indexer = has;
    return PL_OK;
}

pl_status model_glm_dsa_read(struct model *m, pl_err *err)
{
    struct params_key k;
    double eps;

    PL_TRY(read_indexer(m, err));
    PL_TRY(read_types(m, err));
    PL_TRY(gguf_get_f64(m->file,
                        params_key(m, "attention.layer_norm_epsilon", &k), 1e-6,
                        &eps, err));
    if (!(eps >= 0 && eps <= 1))
        return err_set(err, PL_BAD_FILE, "%s: key %s is %g, not in 0 .. 1",
                       gguf_path(m->file), k.s, eps);
    m->index_eps = (float)eps;
    return PL_OK;
}

/* Returns the keys of the step's tokens, [n_tok, d_index], before RoPE. */
static pl_tensor keys(struct build *b, pl_tensor h)
{
    const struct model_dim d = {b->m->d_index, "attention.indexer.key_length"};
    pl_tensor w =
        model_weight(b, "indexer.k_norm", "weight", PL_ROLE_NORM, false, 1, &d);
    pl_tensor bias =
        model_weight(b, "indexer.k_norm", "bias", PL_ROLE_NORM, false, 1, &d);

    h = model_matmul(b, h, "indexer.attn_k", PL_ROLE_INDEXER, d, model_width(b),
                     false);
    return pl_add(b->g, pl_layer_norm(b->g, h, w, b->m->index_eps), bias);
}

void model_indexer(struct build *b, pl_tensor h, pl_tensor r)
{
    const struct model *m = b->m;
    const struct model_dim n = {m->n_index, "attention.indexer.head_count"};
    const struct model_dim rank = {m->q_rank, "attention.q_lora_rank"};
    const struct model_dim all = {m->n_index * m->d_index,
                                  "indexer.head_count * indexer.key_length"};
    const float scale = (float)(1 / sqrt((double)all.n));
    pl_rope rope = m->rope;
    pl_tensor q, k, w;
    char name[40];

    if (m->n_index == 0 || (m->indexer && !m->indexer[b->layer]))
        return;
    rope.neox = m->index_neox;
    q = model_matmul(b, r, "indexer.attn_q_b", PL_ROLE_INDEXER, all, rank,
                     false);
    q = pl_rope_apply(b->g, model_heads(b, q, m->n_index, m->d_index), b->pos,
                      -1, &rope);
    k = model_heads(b, keys(b, h), 1, m->d_index);
    k = pl_rope_apply(b->g, k, b->pos, -1, &rope);
    w = model_matmul(b, h, "indexer.proj", PL_ROLE_INDEXER, n, model_width(b),
                     false);
    snprintf(name, sizeof name, "cache_index.%" PRId64, b->layer);
    k = pl_cache_write(b->g, pl_index_cache(b->g, name, b->cache_k, m->d_index),
                       k);
    b->chosen =
        pl_index_topk(b->g, q, pl_scale(b->g, w, scale), k, (int)m->top_keys);
}
