/* Propagation moves the fewest bytes: of two ways to bring operands together it
 * takes the cheaper, and a weight is not moved if an activation can be. */
#include "layout/numeric.h"

#include "lib/support.h"

#include <stdio.h>
#include <string.h>

/* Counts conversions by kind, and versions of the weight w, in the plan of a
 * matmul of x [n_tok, k] and w [n, k] on two ranks. */
struct moved {
    int kind[NUM_KIND_COUNT];
    int n_weight;
};

static void plan(struct moved *m, int64_t n, int64_t k, const char *x_want,
                 const char *w_want)
{
    char text[512];
    struct numeric *p = NULL;
    pl_graph *g = NULL;
    pl_err err;

    snprintf(text, sizeof text,
             "x: f32[n_tok, %lld] = input%s\n"
             "w: f32[%lld, %lld] = weight%s\n"
             "y: f32[n_tok, %lld] = matmul(x, w) !output\n",
             (long long)k, x_want, (long long)n, (long long)k, w_want,
             (long long)n);
    memset(m, 0, sizeof *m);
    if (pl_graph_parse(&g, text, &err) != PL_OK ||
        numeric_create(&p, g, 2, NULL, &err) != PL_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < p->n; i++) {
        m->kind[p->node[i].kind]++;
        m->n_weight += g->node[p->node[i].node].op == OP_weight;
    }
    numeric_free(p);
    pl_graph_free(g);
}

static void want(char *buf, size_t size, int dim, int64_t first, int64_t all)
{
    snprintf(buf, size, " !want=split(%d: %lld{0} %lld{1})", dim,
             (long long)first, (long long)(all - first));
}

/* x is split along k and all ranks have w: either x is gathered or y summed. */
TEST(layout_price_gathers_what_is_smaller_than_its_sum)
{
    uint64_t seed = test_seed();

    for (int t = 0; t < 500; t++) {
        int64_t n = 1 + test_below(&seed, 300), k = 2 + test_below(&seed, 300);
        char x[64];
        struct moved m;

        want(x, sizeof x, 1, 1 + test_below(&seed, k - 1), k);
        plan(&m, n, k, x, "");
        assert_int_equal(m.kind[NUM_ALL_GATHER], k < n);
        assert_int_equal(m.kind[NUM_ALL_REDUCE], k >= n);
        assert_int_equal(m.n_weight, 1);
    }
}

/* x is split along k and w along n: x is moved, at any size. */
TEST(layout_price_stores_no_weight_twice)
{
    uint64_t seed = test_seed();

    for (int t = 0; t < 500; t++) {
        int64_t n = 2 + test_below(&seed, 300), k = 2 + test_below(&seed, 300);
        char x[64], w[64];
        struct moved m;

        want(x, sizeof x, 1, 1 + test_below(&seed, k - 1), k);
        want(w, sizeof w, 0, 1 + test_below(&seed, n - 1), n);
        plan(&m, n, k, x, w);
        assert_int_equal(m.kind[NUM_ALL_GATHER], 1);
        assert_int_equal(m.kind[NUM_ALL_REDUCE], 0);
        assert_int_equal(m.n_weight, 1);
    }
}
