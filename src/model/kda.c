/* Kimi delta attention (KDA), a delta net whose decay has a value per channel
 * of a key:
 *
 *   q, k, v = silu(short convolution(attn_q h)) ..., each with taps of its own
 *   decay = a softplus(f_b f_a h + dt)
 *   o = delta net(q, k, v; decay, beta = sigmoid(beta h))
 *   result = attn_output (norm(o) * sigmoid(g_b g_a h)),  norm over each head
 *
 * Files with a bound of the decay have one matrix instead of f_b f_a, and one
 * instead of g_b g_a:
 *
 *   decay = bound sigmoid(a (f_a h + dt)),  bound < 0
 *
 * Source: arXiv:2510.26692. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_TAPS = 64 };

pl_status model_kda_params(struct model *m, pl_err *err)
{
    struct model_delta *d = &m->delta;
    struct params_key k;
    bool *recurrent = arena_alloc(&m->arena, (size_t)(m->n_layer + m->n_next),
                                  sizeof *recurrent);

    if (!recurrent)
        return err_no_memory(err, "hyper-parameters");
    for (int64_t i = 0; i < m->n_layer; i++)
        recurrent[i] = m->n_head_kv[i] == 0;
    m->recurrent = recurrent;
    PL_TRY(params_need(m, "kda.head_dim", MAX_HEAD, &d->d_head, err));
    PL_TRY(params_need(m, "ssm.conv_kernel", MAX_TAPS, &d->n_tap, err));
    if (d->n_tap < 2)
        return err_set(err, PL_BAD_FILE, "%s: key %s is 1, not 2 to %d",
                       gguf_path(m->file), params_key(m, "ssm.conv_kernel", &k),
                       MAX_TAPS);
    return PL_OK;
}

/* Returns the number of values of all heads. */
static struct model_dim inner(const struct build *b)
{
    return (struct model_dim){b->m->n_head[b->layer] * b->m->delta.d_head,
                              "attention.head_count * kda.head_dim"};
}

static pl_tensor heads(struct build *b, pl_tensor x)
{
    return model_heads(b, x, b->m->n_head[b->layer], b->m->delta.d_head);
}

/* Returns the layer's state `name`, with n rows of `width` values. */
static pl_tensor state(struct build *b, const char *name, int64_t n,
                       int64_t width, pl_role role)
{
    char s[32];

    snprintf(s, sizeof s, "%s.%" PRId64, name, b->layer);
    return pl_state(b->g, s, n, width, role);
}

/* Returns the queries, keys or values of all heads, [n_tok, n_head, d_head]:
 * silu(short convolution(attn_`part` h)). */
static pl_tensor convolved(struct build *b, pl_tensor h, char part,
                           pl_role role)
{
    const struct model_dim n = inner(b);
    const struct model_dim dim[3] = {
        n, {1, "one input"}, {b->m->delta.n_tap, "ssm.conv_kernel"}};
    const pl_dim flat[2] = {{n.n, PL_CONST}, {dim[2].n, PL_CONST}};
    char matrix[16], taps[24], before[24];
    pl_tensor x, w;

    snprintf(matrix, sizeof matrix, "attn_%c", part);
    snprintf(taps, sizeof taps, "ssm_conv1d_%c", part);
    snprintf(before, sizeof before, "conv_state_%c", part);
    x = model_matmul(b, h, matrix, role, n, model_width(b), false);
    w = model_weight(b, taps, "weight", PL_ROLE_CONV, false, 3, dim);
    if (w >= 0 && b->g->node[w].format != PL_F32)
        w = pl_cast(b->g, w, PL_F32);
    w = pl_reshape(b->g, w, 2, flat);
    x = pl_short_conv(b->g, x, w,
                      state(b, before, n.n, dim[2].n - 1, PL_ROLE_CONV_STATE),
                      true);
    return heads(b, x);
}

/* Returns base_b (base_a h), or base_a h if the model has a bound of the decay:
 * [n_tok, n_head * d_head]. */
static pl_tensor product(struct build *b, pl_tensor h, const char *base,
                         pl_role role)
{
    char first[16], second[16];
    struct model_dim rank = {0, "rows of the first matrix"};

    snprintf(first, sizeof first, "%s_a", base);
    snprintf(second, sizeof second, "%s_b", base);
    if (b->m->decay_bound < 0)
        return model_matmul(b, h, first, role, inner(b), model_width(b), false);
    rank.n = model_rows(b, first);
    h = model_matmul(b, h, first, PL_ROLE_DELTA_GATE_A, rank, model_width(b),
                     false);
    return model_matmul(b, h, second, role, inner(b), rank, false);
}

/* Returns the logarithms of the decays, [n_tok, n_head, d_head]. */
static pl_tensor decay(struct build *b, pl_tensor h)
{
    const struct model_dim n = inner(b);
    const struct model_dim one[2] = {
        {b->m->n_head[b->layer], "attention.head_count"},
        {1, "one value per head"}};
    pl_tensor f = product(b, h, "ssm_f", PL_ROLE_DELTA_GATE);
    pl_tensor dt =
        model_weight(b, "ssm_dt", "bias", PL_ROLE_DELTA_GATE, false, 1, &n);
    pl_tensor a =
        model_weight(b, "ssm_a", NULL, PL_ROLE_DELTA_GATE, false, 2, one);

    f = pl_add(b->g, f, dt);
    if (b->m->decay_bound < 0) {
        f = pl_sigmoid(b->g, pl_mul(b->g, heads(b, f), a));
        return pl_scale(b->g, f, b->m->decay_bound);
    }
    return pl_mul(b->g, heads(b, pl_softplus(b->g, f)), a);
}

pl_tensor model_kda(struct build *b, pl_tensor h)
{
    const int64_t n_head = b->m->n_head[b->layer], s = b->m->delta.d_head;
    const struct model_dim d_head = {s, "kda.head_dim"};
    const struct model_dim n = {n_head, "attention.head_count"};
    pl_tensor q = convolved(b, h, 'q', PL_ROLE_ATTN_Q);
    pl_tensor k = convolved(b, h, 'k', PL_ROLE_ATTN_K);
    pl_tensor v = convolved(b, h, 'v', PL_ROLE_ATTN_V);
    pl_tensor g = decay(b, h), beta, gate, y;

    beta = model_matmul(b, h, "ssm_beta", PL_ROLE_DELTA_GATE, n, model_width(b),
                        false);
    y = state(b, "state", n_head, s * s, PL_ROLE_STATE);
    y = pl_delta_net_channels(b->g, q, k, v, g, pl_sigmoid(b->g, beta), y,
                              b->m->eps);
    y = model_norm(b, y, "ssm_norm", d_head);
    gate = product(b, h, "ssm_g", PL_ROLE_ATTN_GATE);
    gate = heads(b, pl_sigmoid(b->g, gate));
    y = model_flat(b, pl_mul(b->g, y, gate), n_head * s);
    model_name(b, y, "kqv_out");
    return model_matmul(b, y, "attn_output", PL_ROLE_ATTN_OUT, model_width(b),
                        inner(b), false);
}
