/* minimax-m3 (MiniMax M3): each head of q and k is normalised before RoPE,
 * which rotates pairs (i, i + n_rot/2). After the first layers, which are
 * dense, come experts with a router as in glm4moe, and attention to chosen
 * blocks of adjacent positions. An indexer with one key for each token scores
 * all earlier tokens for each KV head alone:
 *
 *   q = norm(a head of q_proj h),  k = norm(k_proj h),  both with RoPE
 *   score = q k;  score of a block = the largest of its visible positions
 *
 * The query heads of a KV head attend to its top_k best blocks. The last ones
 * are always among them. A choice concerns one KV head, so the queries are
 * split with the KV heads. The keys are small and mirrored. Hidden values are
 * those of gpt-oss, without biases. Source: the graph of llama.cpp. */
#include "base/err.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_BLOCK = 1 << 20 };

static pl_status bad_indexer(const struct model *m, const char *name,
                             int64_t value, const char *fact, pl_err *err)
{
    struct params_key k;

    return err_set(err, PL_BAD_FILE,
                   "%s: key %s is %" PRId64 ", %s; the file is damaged",
                   gguf_path(m->file), params_key(m, name, &k), value, fact);
}

/* Reads the keys of the indexer, and checks them against those of attention. */
static pl_status read_indexer(struct model *m, pl_err *err)
{
    PL_TRY(params_need(m, "attention.indexer.head_count", MAX_HEAD, &m->n_index,
                       err));
    PL_TRY(params_need(m, "attention.indexer.key_length", MAX_HEAD, &m->d_index,
                       err));
    PL_TRY(params_need(m, "attention.indexer.top_k", MAX_BLOCK, &m->top_keys,
                       err));
    PL_TRY(params_need(m, "attention.indexer.block_size", MAX_BLOCK,
                       &m->index_block, err));
    PL_TRY(params_get(m, "attention.indexer.local_blocks", 0, 0, MAX_BLOCK,
                      &m->index_local, err));
    if (m->index_local > m->top_keys)
        return bad_indexer(m, "attention.indexer.local_blocks", m->index_local,
                           "more than attention.indexer.top_k", err);
    if (m->d_index < m->rope.n_rot)
        return bad_indexer(m, "attention.indexer.key_length", m->d_index,
                           "less than rope.dimension_count", err);
    for (int64_t i = m->n_dense; i < m->n_layer; i++)
        if (m->n_head_kv[i] != m->n_index)
            return bad_indexer(m, "attention.indexer.head_count", m->n_index,
                               "not attention.head_count_kv", err);
    return PL_OK;
}

pl_status model_minimax_m3_read(struct model *m, pl_err *err)
{
    m->select_bias = true;
    PL_TRY(params_router(m, PL_GATING_SIGMOID, false, err));
    PL_TRY(params_shared(m, 1, err));
    m->d_shared *= m->n_shared;
    return read_indexer(m, err);
}

/* Returns n heads of the indexer's queries or keys, after norm and RoPE. */
static pl_tensor heads(struct build *b, pl_tensor h, char what, pl_role role,
                       int64_t n)
{
    const struct model_dim d = {b->m->d_index, "attention.indexer.key_length"};
    const struct model_dim all = {n * d.n,
                                  "indexer.head_count * indexer.key_length"};
    char name[24];

    snprintf(name, sizeof name, "indexer.%c_proj", what);
    h = model_matmul(b, h, name, role, n > 1 ? all : d, model_width(b), false);
    snprintf(name, sizeof name, "indexer.%c_norm", what);
    h = model_norm(b, model_heads(b, h, n, d.n), name, d);
    return pl_rope_apply(b->g, h, b->pos, -1, &b->m->rope);
}

pl_tensor model_index_blocks(struct build *b, pl_tensor h)
{
    const struct model *m = b->m;
    pl_tensor q, k;
    char name[40];

    if (m->index_block == 0 || b->layer < m->n_dense)
        return -1;
    q = heads(b, h, 'q', PL_ROLE_INDEXER_Q, m->n_index);
    k = heads(b, h, 'k', PL_ROLE_INDEXER, 1);
    snprintf(name, sizeof name, "cache_index.%" PRId64, b->layer);
    k = pl_cache_write(b->g, pl_index_cache(b->g, name, b->cache_k, m->d_index),
                       k);
    return pl_index_blocks(b->g, q, k, (int)m->top_keys, (int)m->index_block,
                           (int)m->index_local);
}

static pl_tensor glu(pl_graph *g, pl_tensor gate, pl_tensor up)
{
    return pl_swiglu_oai(g, gate, up, 7);
}

void model_minimax_m3(struct build *b)
{
    const struct model_layers o = {
        .attention = {.qk_norm = QK_NORM_ALWAYS, .freqs = -1}, .glu = glu};

    model_decoder(b, &o);
}
