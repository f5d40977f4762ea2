/* The minimum vertex cut equals that of an exhaustive search. */
#include "layout/cut.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_V = 12, MAX_E = MAX_V * MAX_V };

struct region {
    struct cut_graph g;
    int64_t bytes[MAX_V];
    bool born[MAX_V], needed[MAX_V];
    int from[MAX_E], to[MAX_E];
};

/* Draws values in graph order; an edge leads from a lower to a higher one. */
static void draw(struct region *r, uint64_t *seed)
{
    memset(r, 0, sizeof *r);
    r->g = (struct cut_graph){
        .n = 1 + (int)test_below(seed, MAX_V),
        .bytes = r->bytes,
        .born = r->born,
        .needed = r->needed,
        .from = r->from,
        .to = r->to,
    };
    for (int v = 0; v < r->g.n; v++) {
        bool any = false;

        r->bytes[v] = 1 + test_below(seed, 5);
        for (int u = 0; u < v; u++)
            for (int k = test_below(seed, 3) == 0; k > 0; k--) {
                r->from[r->g.n_edge] = u;
                r->to[r->g.n_edge++] = v;
                any = true;
            }
        r->born[v] = !any || test_below(seed, 4) == 0;
        r->needed[v] = test_below(seed, 3) == 0;
    }
}

/* Returns the values that are still PARTIAL when those of `cut` are reduced. */
static unsigned unsummed(const struct region *r, unsigned cut)
{
    unsigned partial = 0;

    for (int v = 0; v < r->g.n; v++) {
        bool p = r->born[v];

        for (int e = 0; e < r->g.n_edge; e++)
            p |= r->to[e] == v && (partial >> r->from[e] & 1);
        if (p && !(cut >> v & 1))
            partial |= 1u << v;
    }
    return partial;
}

static unsigned needed(const struct region *r)
{
    unsigned s = 0;

    for (int v = 0; v < r->g.n; v++)
        s |= (unsigned)r->needed[v] << v;
    return s;
}

static int64_t price(const struct region *r, unsigned cut)
{
    int64_t sum = 0;

    for (int v = 0; v < r->g.n; v++)
        sum += cut >> v & 1 ? r->bytes[v] : 0;
    return sum;
}

static unsigned solve(const struct region *r)
{
    bool cut[MAX_V];
    unsigned s = 0;

    assert_int_equal(cut_minimum(&r->g, cut, NULL), PL_OK);
    for (int v = 0; v < r->g.n; v++)
        s |= (unsigned)cut[v] << v;
    return s;
}

/* The cut is nearest the contractions: the values before it (PARTIAL and
 * unsummed) are a subset of those before any other minimum cut. */
TEST(layout_cut_equals_exhaustive_search)
{
    uint64_t seed = test_seed();
    int n = test_long() ? 20000 : 600;

    for (int t = 0; t < n; t++) {
        struct region r;
        unsigned mine, before, need;
        int64_t least = INT64_MAX;

        draw(&r, &seed);
        mine = solve(&r);
        need = needed(&r);
        before = unsummed(&r, mine);
        assert_int_equal(before & need, 0);
        for (unsigned c = 0; c < 1u << r.g.n; c++)
            if (price(&r, c) < least && !(unsummed(&r, c) & need))
                least = price(&r, c);
        assert_int_equal(price(&r, mine), least);
        for (unsigned c = 0; c < 1u << r.g.n; c++)
            if (price(&r, c) == least && !(unsummed(&r, c) & need)) {
                /* the sides of a cut: unsummed, and connected to a reader */
                unsigned other = unsummed(&r, c);

                for (int v = 0; v < r.g.n; v++)
                    if (before >> v & 1 && !(other >> v & 1)) {
                        /* v is summed under c, but PARTIAL under ours: then
                         * ours was further away, unless v has no reader at
                         * all */
                        unsigned reach = 1u << v;

                        for (int w = v; w < r.g.n; w++)
                            for (int e = 0; e < r.g.n_edge; e++)
                                if (r.from[e] == w && reach >> w & 1)
                                    reach |= 1u << r.to[e];
                        assert_int_equal(reach & need, 0);
                    }
            }
    }
}

/* Two addends of a residual stream: one sum, taken at the cheaper end. */
TEST(layout_cut_takes_the_contraction_of_equals)
{
    struct region r;

    memset(&r, 0, sizeof r);
    r.g = (struct cut_graph){3, r.bytes, r.born, r.needed, 2, r.from, r.to};
    for (int v = 0; v < 3; v++)
        r.bytes[v] = 4;
    r.born[0] = r.needed[2] = true;
    r.from[0] = 0;
    r.to[0] = r.from[1] = 1;
    r.to[1] = 2;
    assert_int_equal(solve(&r), 1);
    r.bytes[2] = 3;
    assert_int_equal(solve(&r), 4);
    r.needed[1] = true;
    assert_int_equal(solve(&r), 1);
    /* no value has a reader that needs a sum */
    r.needed[1] = r.needed[2] = false;
    assert_int_equal(solve(&r), 0);
}

/* A long chain: about linear time, and no recursion. */
TEST(layout_cut_long_chain_is_solved)
{
    enum { N = 20000 };
    struct cut_graph g = {.n = N, .n_edge = N - 1};
    bool *cut = calloc(N, sizeof *cut);
    int n = 0;

    g.bytes = calloc(N, sizeof *g.bytes);
    g.born = calloc(N, sizeof *g.born);
    g.needed = calloc(N, sizeof *g.needed);
    g.from = calloc(N, sizeof *g.from);
    g.to = calloc(N, sizeof *g.to);
    for (int v = 0; v < N; v++) {
        g.bytes[v] = v == N / 2 ? 7 : 8;
        if (v > 0) {
            g.from[v - 1] = v - 1;
            g.to[v - 1] = v;
        }
    }
    g.born[0] = g.needed[N - 1] = true;
    assert_int_equal(cut_minimum(&g, cut, NULL), PL_OK);
    for (int v = 0; v < N; v++)
        n += cut[v];
    assert_int_equal(n, 1);
    assert_true(cut[N / 2]);
    free(g.bytes);
    free(g.born);
    free(g.needed);
    free(g.from);
    free(g.to);
    free(cut);
}

TEST(layout_cut_out_of_memory_is_a_status)
{
    uint64_t seed = test_seed();
    struct region r;

    draw(&r, &seed);
    for (int64_t n = 0; alloc_each(&n);) {
        bool cut[MAX_V];

        alloc_ran(cut_minimum(&r.g, cut, NULL));
    }
}
