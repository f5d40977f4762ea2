/* Builds the small graphs of measure_graphs.h, whose run times are measured. */
#include "measure/measure_graphs.h"

#include <stdio.h>

static pl_dim constant(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

static pl_tensor weight(pl_graph *g, const char *kind, int64_t layer,
                        pl_format f, int64_t rows, int64_t k, pl_role role)
{
    const int64_t dim[2] = {rows, k};
    char name[32];

    snprintf(name, sizeof name, "blk.%d.%s", (int)layer, kind);
    return pl_weight(g, name, f, 2, dim, role);
}

void measure_layers(pl_graph *g, const struct measure_size *z)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, constant(z->d)};
    pl_tensor x = pl_input(g, "x", PL_F32, 2, dim), h;

    for (int64_t i = 0; i < z->n_layer; i++) {
        h = pl_rms_norm(g, x, -1, 1e-6f);
        h = pl_matmul(
            g, h, weight(g, "up", i, z->format, z->ff, z->d, PL_ROLE_FFN_UP));
        h = pl_matmul(
            g, pl_silu(g, h),
            weight(g, "down", i, z->format, z->d, z->ff, PL_ROLE_FFN_DOWN));
        x = pl_add(g, x, h);
    }
    pl_output(g, x);
}

static pl_tensor cache(pl_graph *g, const char *kind, int64_t layer,
                       pl_format f, int64_t n_head, int64_t d_head)
{
    char name[32];

    snprintf(name, sizeof name, "cache_%s.%d", kind, (int)layer);
    return pl_cache(g, name, f, n_head, d_head, *kind == 'v', 0);
}

void measure_attention(pl_graph *g, const struct measure_size *z)
{
    enum { N_KV = 8, N_QUERY = 32, D_HEAD = 64 };
    const pl_dim q[3] = {{1, PL_N_TOK}, constant(N_QUERY), constant(D_HEAD)};
    const pl_dim kv[3] = {{1, PL_N_TOK}, constant(N_KV), constant(D_HEAD)};
    pl_tensor k = pl_input(g, "k", PL_F32, 3, kv);
    pl_tensor v = pl_input(g, "v", PL_F32, 3, kv);
    pl_tensor x = pl_input(g, "q", PL_F32, 3, q);

    for (int64_t i = 0; i < z->n_layer; i++)
        x = pl_attention(
            g, x,
            pl_cache_write(g, cache(g, "k", i, z->format, N_KV, D_HEAD), k),
            pl_cache_write(g, cache(g, "v", i, z->format, N_KV, D_HEAD), v), -1,
            0.125f, 0, 0);
    pl_output(g, x);
}

/* Makes those rows of x that the input `rows` selects the output of the graph,
 * as a model does for the tokens that get logits. */
static void one_row(pl_graph *g, pl_tensor x)
{
    const pl_dim n_out = {1, PL_N_OUT};

    pl_output(g, pl_gather_rows(g, x, pl_input(g, "rows", PL_I32, 1, &n_out)));
}

static pl_tensor from_table(pl_graph *g, const struct measure_size *z)
{
    const pl_dim n_tok = {1, PL_N_TOK};
    const int64_t dim[2] = {1, z->d};

    return pl_gather_rows(g,
                          pl_weight(g, "table", PL_F32, 2, dim, PL_ROLE_NONE),
                          pl_input(g, "ids", PL_I32, 1, &n_tok));
}

void measure_values(pl_graph *g, const struct measure_size *z)
{
    pl_tensor x = from_table(g, z);

    for (int64_t i = 0; i < z->n_layer; i++)
        x = pl_silu(g, x);
    one_row(g, x);
}

void measure_into(pl_graph *g, const struct measure_size *z)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, constant(z->d)};

    one_row(g, pl_input(g, "x", PL_F32, 2, dim));
}

void measure_out_of(pl_graph *g, const struct measure_size *z)
{
    pl_output(g, from_table(g, z));
}
