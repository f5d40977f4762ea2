/* Builds the model of place_model.h through the public interface, with names
 * and roles as in GGUF files. */
#include "lib/place_model.h"

#include "device/device_spec.h"
#include "lib/support.h"

#include <stdio.h>
#include <string.h>

enum { D = 128, FF = 96, N_EXPERT = 8, N_USED = 2 };

struct made {
    pl_graph *g;
    pl_tensor freqs, pos, x;
    int layer;
};

static const pl_dim n_tok = {1, PL_N_TOK};

static pl_dim size(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

static pl_tensor weight(struct made *m, const char *base, pl_role role, int n,
                        const int64_t *dim)
{
    char name[64];

    if (m->layer < 0)
        snprintf(name, sizeof name, "%s.weight", base);
    else
        snprintf(name, sizeof name, "blk.%d.%s.weight", m->layer, base);
    return pl_weight(m->g, name, n > 1 ? PL_Q8_0 : PL_F32, n, dim, role);
}

static pl_tensor named(struct made *m, pl_tensor x, const char *base)
{
    char name[64];

    snprintf(name, sizeof name, "%s.%d", base, m->layer);
    pl_name(m->g, x, name);
    return x;
}

static pl_tensor matmul(struct made *m, pl_tensor x, const char *base,
                        pl_role role, int64_t n, int64_t k)
{
    return pl_matmul(m->g, x, weight(m, base, role, 2, (int64_t[]){n, k}));
}

static pl_tensor norm(struct made *m, pl_tensor x, const char *base)
{
    return named(m,
                 pl_rms_norm(m->g, x,
                             weight(m, base, PL_ROLE_NORM, 1, (int64_t[]){D}),
                             1e-5f),
                 base);
}

static pl_tensor cached(struct made *m, pl_tensor x, bool values)
{
    char name[32];

    snprintf(name, sizeof name, "cache_%c.%d", values ? 'v' : 'k', m->layer);
    return pl_cache_write(m->g, pl_cache(m->g, name, PL_F16, 4, 16, values, 0),
                          x);
}

/* Adds attention with four heads of 16 values, separate weights for q, k and v,
 * and RoPE frequencies that all layers share. */
static pl_tensor attention(struct made *m, pl_tensor h)
{
    const pl_rope rope = {.size = sizeof rope, .n_rot = 16, .base = 10000};
    const pl_dim heads[3] = {n_tok, size(4), size(16)};
    pl_tensor q = matmul(m, h, "attn_q", PL_ROLE_ATTN_Q, 64, D);
    pl_tensor k = matmul(m, h, "attn_k", PL_ROLE_ATTN_K, 64, D);
    pl_tensor v = matmul(m, h, "attn_v", PL_ROLE_ATTN_V, 64, D);

    named(m, q, "q");
    named(m, k, "k");
    q = pl_rope_apply(m->g, pl_reshape(m->g, q, 3, heads), m->pos, m->freqs,
                      &rope);
    k = pl_rope_apply(m->g, pl_reshape(m->g, k, 3, heads), m->pos, m->freqs,
                      &rope);
    named(m, q, "q_rope");
    named(m, k, "k_rope");
    named(m, v, "v");
    k = cached(m, k, false);
    v = cached(m, pl_reshape(m->g, v, 3, heads), true);
    q = pl_attention(m->g, q, k, v, -1, 0.25f, 0, 0);
    named(m, q, "kqv");
    q = pl_reshape(m->g, q, 2, (pl_dim[]){n_tok, size(64)});
    return matmul(m, q, "attn_output", PL_ROLE_ATTN_OUT, D, 64);
}

static pl_tensor experts(struct made *m, pl_tensor h)
{
    const int64_t in[3] = {N_EXPERT, FF, D}, out[3] = {N_EXPERT, D, FF};
    pl_tensor logits =
        matmul(m, h, "ffn_gate_inp", PL_ROLE_ROUTER, N_EXPERT, D);
    pl_tensor ids =
        pl_router_topk(m->g, logits, -1, PL_GATING_SOFTMAX, N_USED, 0, 0);
    pl_tensor w =
        pl_router_weights(m->g, logits, ids, PL_GATING_SOFTMAX, true, 1);
    pl_tensor x = pl_reshape(m->g, h, 3, (pl_dim[]){n_tok, size(1), size(D)});
    pl_tensor gate, up;

    named(m, ids, "ids");
    named(m, w, "weights");
    w = pl_reshape(m->g, w, 3, (pl_dim[]){n_tok, size(N_USED), size(1)});
    gate = pl_expert_matmul(
        m->g, x, weight(m, "ffn_gate_exps", PL_ROLE_FFN_GATE_EXPS, 3, in), ids);
    up = pl_expert_matmul(
        m->g, x, weight(m, "ffn_up_exps", PL_ROLE_FFN_UP_EXPS, 3, in), ids);
    x = pl_mul(m->g, pl_swiglu(m->g, gate, up), w);
    return pl_expert_down(
        m->g, x, weight(m, "ffn_down_exps", PL_ROLE_FFN_DOWN_EXPS, 3, out),
        ids);
}

pl_graph *place_model(int n_layer)
{
    struct made m = {.layer = -1};
    pl_tensor x, y;

    if (pl_graph_create(&m.g, NULL) != PL_OK)
        return NULL;
    x = pl_input(m.g, "tokens", PL_I32, 1, &n_tok);
    m.pos = pl_input(m.g, "pos", PL_I32, 1, &n_tok);
    m.freqs = weight(&m, "rope_freqs", PL_ROLE_ROPE_FREQS, 1, (int64_t[]){8});
    x = pl_gather_rows(
        m.g,
        weight(&m, "token_embd", PL_ROLE_TOKEN_EMBD, 2, (int64_t[]){256, D}),
        x);
    pl_name(m.g, x, "embd");
    for (m.layer = 0; m.layer < n_layer; m.layer++) {
        pl_layer(m.g, m.layer);
        y = attention(&m, norm(&m, x, "attn_norm"));
        x = named(&m, pl_add(m.g, x, named(&m, y, "attn_out")), "ffn_inp");
        y = experts(&m, norm(&m, x, "ffn_norm"));
        x = named(&m, pl_add(m.g, x, named(&m, y, "moe_out")), "l_out");
    }
    x = pl_gather_rows(
        m.g, x, pl_input(m.g, "out_ids", PL_I32, 1, &(pl_dim){1, PL_N_OUT}));
    pl_name(m.g, x, "x_out");
    m.layer = -1;
    pl_layer(m.g, -1);
    x = norm(&m, x, "output_norm");
    pl_output(m.g, matmul(&m, x, "output", PL_ROLE_OUTPUT, 256, D));
    return m.g;
}

/* ---- the scene ---------------------------------------------------------- */

static void keep_warning(void *user, pl_log_level level, const char *text)
{
    struct place_scene *s = user;
    size_t n = strlen(s->warned);

    if (level == PL_LOG_WARN)
        snprintf(s->warned + n, sizeof s->warned - n, "%s\n", text);
}

pl_status place_scene_open(struct place_scene *s, pl_graph *g, pl_options opt)
{
    pl_status st;

    *s = (struct place_scene){.g = g};
    s->notes.a = &s->a;
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    s->home = arena_alloc(&s->a, (size_t)g->n_node, sizeof *s->home);
    s->want = arena_alloc(&s->a, (size_t)g->n_node, sizeof *s->want);
    st = plan_config_parse(&s->in, &s->a, g, NULL, &opt, &s->notes, &s->err);
    diag_emit(&s->notes, keep_warning, s);
    s->notes = (struct notes){.a = &s->a};
    if (st == PL_OK)
        st = device_list_copy(&s->l, &s->in.list, &s->err);
    if (st == PL_OK)
        st = place_groups(&s->p, &s->a, &s->l, &s->in, &s->err);
    return st;
}

pl_status place_scene_leaves(struct place_scene *s)
{
    pl_status st = place_leaves(&s->p, &s->a, &s->l, &s->in, s->home, s->want,
                                &s->notes, &s->err);

    diag_emit(&s->notes, keep_warning, s);
    s->notes = (struct notes){.a = &s->a};
    return st;
}

void place_scene_close(struct place_scene *s)
{
    numeric_free(s->num);
    plan_config_free(&s->in);
    device_list_free(&s->l);
    pl_graph_free(s->g);
    arena_fini(&s->a);
}
