/* The Mamba-2 block, a state space model, that some layers have instead of
 * attention or besides it:
 *
 *   z, (x, b, c), dt = ssm_in h
 *   x, b, c = silu(short convolution(x, b, c) + bias)
 *   dt = softplus(dt + bias)
 *   y = scan(c, b, dt x; decay = a dt) + d x
 *   result = ssm_out norm(y * silu(z)),  the norm over each group, if any
 *
 * Source: arXiv:2405.21060. */
#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_TAPS = 64 };

pl_status model_mamba2_params(struct model *m, pl_err *err)
{
    struct model_ssm *s = &m->ssm;
    struct params_key k;

    PL_TRY(params_need(m, "ssm.conv_kernel", MAX_TAPS, &s->n_tap, err));
    PL_TRY(params_need(m, "ssm.inner_size", MAX_WIDTH, &s->d_inner, err));
    PL_TRY(params_need(m, "ssm.state_size", MAX_HEAD, &s->d_state, err));
    PL_TRY(params_need(m, "ssm.time_step_rank", MAX_HEAD, &s->n_head, err));
    PL_TRY(params_need(m, "ssm.group_count", MAX_HEAD, &s->n_group, err));
    if (s->n_tap < 2)
        return err_set(err, PL_BAD_FILE, "%s: key %s is 1, not 2 to %d",
                       gguf_path(m->file), params_key(m, "ssm.conv_kernel", &k),
                       MAX_TAPS);
    if (s->d_inner % s->n_head)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %" PRId64
                       ", not a multiple of ssm.time_step_rank, %" PRId64,
                       gguf_path(m->file), params_key(m, "ssm.inner_size", &k),
                       s->d_inner, s->n_head);
    if (s->n_head % s->n_group)
        return err_set(err, PL_BAD_FILE,
                       "%s: key %s is %" PRId64
                       ", not a multiple of ssm.group_count, %" PRId64,
                       gguf_path(m->file),
                       params_key(m, "ssm.time_step_rank", &k), s->n_head,
                       s->n_group);
    return PL_OK;
}

/* Returns the layer's state `name`, with n rows of `width` values. */
static pl_tensor state(struct build *b, const char *name, int64_t n,
                       int64_t width, pl_role role)
{
    char s[32];

    snprintf(s, sizeof s, "%s.%" PRId64, name, b->layer);
    return pl_state(b->g, s, n, width, role);
}

/* Returns x, b and c [n_tok, channels] after the short convolution. */
static pl_tensor convolved(struct build *b, pl_tensor x, int64_t n)
{
    const struct model_dim dim[2] = {
        {n, "ssm.inner_size + 2 ssm.group_count * ssm.state_size"},
        {b->m->ssm.n_tap, "ssm.conv_kernel"}};
    pl_tensor w = model_weight(b, "ssm_conv1d", "weight", PL_ROLE_SSM_CONV,
                               false, 2, dim);
    pl_tensor bias =
        model_weight(b, "ssm_conv1d", "bias", PL_ROLE_SSM_CONV, true, 1, dim);
    pl_tensor before =
        state(b, "conv_state", n, dim[1].n - 1, PL_ROLE_SSM_CONV_STATE);

    if (w >= 0 && b->g->node[w].format != PL_F32)
        w = pl_cast(b->g, w, PL_F32);
    x = pl_short_conv(b->g, x, w, before, bias < 0);
    return bias < 0 ? x : pl_silu(b->g, pl_add(b->g, x, bias));
}

/* Returns the sum of squares of the n values of each group of y, [n_tok,
 * n_group, 1]. */
static pl_tensor group_squares(struct build *b, pl_tensor y, int64_t n)
{
    const pl_dim four[4] = {{1, PL_N_TOK},
                            {b->m->ssm.n_group, PL_CONST},
                            {n, PL_CONST},
                            {1, PL_CONST}};

    return pl_sum(b->g, pl_reshape(b->g, pl_sqr(b->g, y), 4, four));
}

/* Returns the root mean square of n values whose squares have the sum s. */
static pl_tensor rms(struct build *b, pl_tensor s, int64_t n)
{
    s = pl_scale(b->g, s, (float)(1 / (double)n));
    s = pl_add(b->g, s, pl_clamp(b->g, s, b->m->eps, b->m->eps));
    return pl_sqrt(b->g, s);
}

/* Returns ssm_out times the norm of y [n_tok, d_inner] over each group. The
 * norm is written out because a group's heads may be split: ranks exchange only
 * their sums of squares, not y. With one group the product is divided instead
 * of y, and nothing stands between both sums over ranks, so that they travel as
 * one message. */
static pl_tensor output(struct build *b, pl_tensor y)
{
    const struct model_ssm *s = &b->m->ssm;
    const int64_t n = s->d_inner / s->n_group;
    const struct model_dim inner = {s->d_inner, "ssm.inner_size"};
    const struct model_dim group[2] = {{s->n_group, "ssm.group_count"},
                                       {n, "ssm.inner_size / ssm.group_count"}};
    const pl_dim flat = {s->d_inner, PL_CONST};
    const bool norm = !b->bare_scan || model_has(b, "ssm_norm", "weight");
    const bool one = norm && s->n_group == 1;
    pl_tensor squares = -1, w;

    if (norm) {
        w = model_weight(b, "ssm_norm", "weight", PL_ROLE_NORM, false, 2,
                         group);
        squares = group_squares(b, y, n);
        if (!one) {
            y = model_heads(b, y, s->n_group, n);
            y = pl_div(b->g, y, rms(b, squares, n));
            y = model_flat(b, y, s->d_inner);
        }
        y = pl_mul(b->g, y, pl_reshape(b->g, w, 1, &flat));
    }
    model_name(b, y, "ssm_normed");
    y = model_matmul(b, y, "ssm_out", PL_ROLE_SSM_OUT, model_width(b), inner,
                     false);
    return one ? pl_div(b->g, y, rms(b, model_flat(b, squares, 1), n)) : y;
}

pl_tensor model_mamba2(struct build *b, pl_tensor h)
{
    const struct model_ssm *s = &b->m->ssm;
    const int64_t d_head = s->d_inner / s->n_head;
    const int64_t n_b = s->n_group * s->d_state, n_conv = s->d_inner + 2 * n_b;
    const struct model_dim all = {
        s->d_inner + n_conv + s->n_head,
        "2 (ssm.inner_size + ssm.group_count * ssm.state_size) + "
        "ssm.time_step_rank"};
    const struct model_dim one[2] = {{s->n_head, "ssm.time_step_rank"},
                                     {1, "one value per head"}};
    pl_tensor z = model_matmul(b, h, "ssm_in", PL_ROLE_SSM_IN, all,
                               model_width(b), false);
    pl_tensor x = pl_slice(b->g, z, 1, s->d_inner, n_conv);
    pl_tensor dt = pl_slice(b->g, z, 1, s->d_inner + n_conv, s->n_head);
    pl_tensor bias =
        model_weight(b, "ssm_dt", "bias", PL_ROLE_SSM_GATE, false, 1, one);
    pl_tensor a =
        model_weight(b, "ssm_a", NULL, PL_ROLE_SSM_GATE, false, 2, one);
    pl_tensor skip =
        model_weight(b, "ssm_d", NULL, PL_ROLE_SSM_GATE, false, 2, one);
    pl_tensor to, from, y;

    z = pl_slice(b->g, z, 1, 0, s->d_inner);
    x = convolved(b, x, n_conv);
    to = pl_slice(b->g, x, 1, s->d_inner, n_b);
    from = pl_slice(b->g, x, 1, s->d_inner + n_b, n_b);
    x = pl_slice(b->g, x, 1, 0, s->d_inner);
    to = model_heads(b, to, s->n_group, s->d_state);
    from = model_heads(b, from, s->n_group, s->d_state);
    x = model_heads(b, x, s->n_head, d_head);
    dt = pl_softplus(b->g, pl_add(b->g, dt, bias));
    dt = model_heads(b, dt, s->n_head, 1);
    a = model_flat(b, pl_mul(b->g, dt, a), s->n_head);
    y = state(b, "state", s->n_head, s->d_state * d_head, PL_ROLE_SSM_STATE);
    y = pl_ssm_scan(b->g, from, to, pl_mul(b->g, x, dt), a, y);
    y = pl_add(b->g, y, pl_mul(b->g, x, skip));
    y = pl_swiglu(b->g, z, model_flat(b, y, s->d_inner));
    return output(b, y);
}
