/* Layouts of leaves by their roles, in models whose layers are not all
 * alike. */
#include "lib/support.h"
#include "plan/roles.h"

#include <stdio.h>

enum { D = 48, D_HEAD = 16, N_KV = 3, N_LAYER = 5 };

static pl_tensor weight(pl_graph *g, int layer, const char *part, pl_format f,
                        int64_t n, int64_t k, pl_role role)
{
    char name[32];

    snprintf(name, sizeof name, "%s.%d", part, layer);
    return pl_weight(g, name, f, 2, (const int64_t[]){n, k}, role);
}

/* Adds one attention of n_head heads, with its own caches if kv[0] < 0, else
 * with kv's. */
static pl_tensor layer(pl_graph *g, int i, pl_tensor x, int64_t n_head,
                       int64_t n_kv, pl_format out, pl_tensor kv[2])
{
    static const char *const part[2] = {"k", "v"};
    const pl_dim t = {1, PL_N_TOK}, d = {D_HEAD, PL_CONST};
    pl_tensor q;

    pl_layer(g, i);
    q = pl_matmul(
        g, x, weight(g, i, "q", PL_F32, n_head * D_HEAD, D, PL_ROLE_ATTN_Q));
    for (int k = 0; k < 2 && kv[k] < 0; k++) {
        char name[16];

        snprintf(name, sizeof name, "cache_%s.%d", part[k], i);
        kv[k] = pl_matmul(g, x,
                          weight(g, i, part[k], PL_F32, n_kv * D_HEAD, D,
                                 k ? PL_ROLE_ATTN_V : PL_ROLE_ATTN_K));
        kv[k] = pl_reshape(g, kv[k], 3, (pl_dim[]){t, {n_kv, PL_CONST}, d});
        kv[k] = pl_cache_write(g, pl_cache(g, name, PL_F32, n_kv, D_HEAD, k, 0),
                               kv[k]);
    }
    q = pl_reshape(g, q, 3, (pl_dim[]){t, {n_head, PL_CONST}, d});
    x = pl_attention(g, q, kv[0], kv[1], -1, 1, 0, 0);
    x = pl_reshape(g, x, 2, (pl_dim[]){t, {n_head * D_HEAD, PL_CONST}});
    return pl_matmul(
        g, x, weight(g, i, "out", out, D, n_head * D_HEAD, PL_ROLE_ATTN_OUT));
}

/* Returns the owners of an index of a tensor's split dimension. */
static rankset owners(const pl_layout *l, int64_t size, int64_t index,
                      int n_rank)
{
    struct run_walk w;

    if (!l || l->kind != PL_SPLIT)
        return ranks_all(n_rank);
    run_walk_first(&w, l, size);
    while (w.pos + w.left <= index)
        assert_true(run_walk_next(&w));
    return run_walk_owners(&w);
}

/* Checks that each query head is where its KV head is, in the cache that it
 * reads. */
static void check_heads(const pl_graph *g, const pl_layout *const *leaf, int i,
                        int of, int64_t n_head, int n_rank)
{
    char q[16], out[16], cache[16];
    int tq, to, tc;

    snprintf(q, sizeof q, "q.%d", i);
    snprintf(out, sizeof out, "out.%d", i);
    snprintf(cache, sizeof cache, "cache_k.%d", of);
    tq = pl_tensor_find(g, q);
    to = pl_tensor_find(g, out);
    tc = pl_tensor_find(g, cache);
    assert_non_null(leaf[tq]);
    assert_non_null(leaf[to]);
    for (int64_t v = 0; v < n_head * D_HEAD; v++) {
        rankset mine = owners(leaf[tq], n_head * D_HEAD, v, n_rank);
        rankset kv =
            owners(leaf[tc], N_KV, v / D_HEAD / (n_head / N_KV), n_rank);

        if (mine & ~kv)
            fail_msg("%d ranks: %s, value %d: of ranks %x, but its keys of %x",
                     n_rank, q, (int)v, (unsigned)mine, (unsigned)kv);
        assert_int_equal(owners(leaf[to], n_head * D_HEAD, v, n_rank), mine);
        /* with quantized weights a head's values v-1 and v lie in the same
         * block, which has one owner */
        if (v % 32)
            assert_int_equal(owners(leaf[to], n_head * D_HEAD, v - 1, n_rank),
                             mine);
    }
}

/* Layers 1, 3 and 4 read the caches of 0, 2 and 0, with other numbers of heads.
 * 3 heads of keys have a remainder for every number of ranks but 3. */
TEST(roles_deal_heads_with_the_cache_they_read)
{
    static const int of[N_LAYER] = {0, 0, 2, 2, 0};
    static const int64_t n_head[N_LAYER] = {6, 12, 6, 6, 18};

    for (int n_rank = 2; n_rank <= 8; n_rank++)
        for (int uneven = 0; uneven < 2; uneven++) {
            const pl_dim dim[2] = {{1, PL_N_TOK}, {D, PL_CONST}};
            const pl_layout **leaf;
            pl_tensor x, kv[N_LAYER][2];
            struct arena a = {0};
            double share[8];
            pl_graph *g;
            pl_err err;

            assert_int_equal(pl_graph_create(&g, &err), PL_OK);
            x = pl_input(g, "x", PL_F32, 2, dim);
            for (int i = 0; i < N_LAYER; i++) {
                kv[i][0] = kv[i][1] = -1;
                x = layer(g, i, x, n_head[i], N_KV, i % 2 ? PL_Q8_0 : PL_F32,
                          kv[of[i]]);
            }
            TEST_OK(pl_graph_check(g, &err), err);
            for (int r = 0; r < n_rank; r++)
                share[r] = uneven ? 1 + r % 3 : 1;
            leaf = arena_alloc(&a, (size_t)g->n_node, sizeof *leaf);
            TEST_OK(roles_layouts(g, n_rank, share, &a, leaf, &err), err);
            for (int i = 0; i < N_LAYER; i++)
                check_heads(g, leaf, i, of[i], n_head[i], n_rank);
            arena_fini(&a);
            pl_graph_free(g);
        }
}

/* In a layer, or outside of all, any combination is possible. */
TEST(roles_of_heads_that_do_not_go_together)
{
    for (int n_rank = 2; n_rank <= 8; n_rank++) {
        const pl_dim dim[2] = {{1, PL_N_TOK}, {D, PL_CONST}};
        pl_tensor x, kv[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
        const double share[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        const pl_layout **leaf;
        struct arena a = {0};
        pl_graph *g;
        pl_err err;

        assert_int_equal(pl_graph_create(&g, &err), PL_OK);
        x = pl_input(g, "x", PL_F32, 2, dim);
        x = layer(g, 0, x, 8, 4, PL_F32, kv[0]);
        x = layer(g, 1, x, 6, 3, PL_F32, kv[1]);
        layer(g, 2, x, 4, 2, PL_F32, kv[2]);
        for (int i = 0; i < g->n_node; i++)
            g->node[i].layer = -1;
        TEST_OK(pl_graph_check(g, &err), err);
        leaf = arena_alloc(&a, (size_t)g->n_node, sizeof *leaf);
        TEST_OK(roles_layouts(g, n_rank, share, &a, leaf, &err), err);
        arena_fini(&a);
        pl_graph_free(g);
    }
}

/* Biases of experts are rows, which may be in blocks like those of matrices. */
TEST(roles_cut_no_block_of_a_bias)
{
    enum { N_EXPERT = 3, FF = 160, BLOCK = 32 };

    for (int n_rank = 2; n_rank <= 8; n_rank++) {
        const double share[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        const int64_t dim[3] = {N_EXPERT, FF, D}, bias[2] = {N_EXPERT, FF};
        const pl_layout **leaf;
        struct arena a = {0};
        pl_tensor up, b;
        pl_graph *g;
        pl_err err;

        assert_int_equal(pl_graph_create(&g, &err), PL_OK);
        pl_layer(g, 0);
        up = pl_weight(g, "up", PL_F32, 3, dim, PL_ROLE_FFN_UP_EXPS);
        b = pl_weight(g, "b", PL_Q8_0, 2, bias, PL_ROLE_FFN_UP_EXPS_BIAS);
        leaf = arena_alloc(&a, (size_t)g->n_node, sizeof *leaf);
        TEST_OK(roles_layouts(g, n_rank, share, &a, leaf, &err), err);
        for (int64_t v = 0; v < FF; v++) {
            rankset mine = owners(leaf[b], FF, v, n_rank);

            assert_int_equal(owners(leaf[up], FF, v, n_rank), mine);
            if (v % BLOCK)
                assert_int_equal(owners(leaf[b], FF, v - 1, n_rank), mine);
        }
        assert_int_equal(leaf[b]->kind, PL_SPLIT);
        arena_fini(&a);
        pl_graph_free(g);
    }
}
