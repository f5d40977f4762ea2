/* Caches that keep only the last tokens. Attention with a window has the same
 * bits as over a cache of all tokens, whatever the devices, the steps and the
 * other sequences; and the cache takes only the window's memory. */
#include "kv/pages.h"

#include "exec/exec.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEADS = 2,
    WIDTH = 32,
    ROW = HEADS * WIDTH,
    WINDOW = 64,
    CONTEXT = 4096,
    UBATCH = 64,
    N_SEQ = 2,
};

/* Returns a graph of two layers: the first sees all tokens, the second a
 * window, over a cache that keeps `kept`. */
static pl_graph *graph(int64_t kept)
{
    const pl_dim dim[3] = {{1, PL_N_TOK}, {HEADS, PL_CONST}, {WIDTH, PL_CONST}};
    pl_graph *g;
    pl_tensor x;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 3, dim);
    for (int i = 0; i < 2; i++) {
        const char *const name[2][2] = {{"k.0", "v.0"}, {"k.1", "v.1"}};
        int64_t window = i ? WINDOW : 0;
        pl_tensor c[2];

        pl_layer(g, i);
        for (int v = 0; v < 2; v++)
            c[v] = pl_cache_write(
                g,
                pl_cache(g, name[i][v], PL_F16, HEADS, WIDTH, v, i ? kept : 0),
                x);
        x = pl_attention(g, x, c[0], c[1], -1, 0.1f, window, 0);
    }
    pl_name(g, x, "y");
    pl_output(g, x);
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    return g;
}

struct machine {
    pl_graph *g;
    pl_exec *x;
    struct kv kv;
};

static pl_status copy_page(void *user, int pool, int from, int to, pl_err *err)
{
    return exec_copy_page(user, pool, from, to, err);
}

static void start(struct machine *m, const char *devices, bool on_host,
                  int64_t kept)
{
    pl_options o = {.size = sizeof o,
                    .devices = devices,
                    .n_ranks = 2,
                    .n_threads = 1,
                    .no_pin = true,
                    .host_cache = on_host,
                    .n_ubatch = UBATCH,
                    .n_seq = N_SEQ,
                    .n_ctx = CONTEXT};
    int n_page[PL_MAX_POOL] = {0};
    pl_err err;

    m->g = graph(kept);
    TEST_OK(pl_exec_create(&m->x, m->g, &o, &err), err);
    for (int k = 0; k < m->g->n_pool; k++)
        n_page[k] = (int)(m->x->plan->max.n_slot[k] / PAGE_TOKENS);
    TEST_OK(kv_init(&m->kv, N_SEQ, m->x->plan->page_stride, m->g, n_page, &err),
            err);
}

static void stop(struct machine *m)
{
    kv_fini(&m->kv);
    pl_exec_free(m->x);
    pl_graph_free(m->g);
}

/* Decodes n more tokens of a sequence; a value of `in` depends on its
 * position. */
static void step(struct machine *m, int seq, int64_t n, const float *in,
                 float *out)
{
    int32_t pos[UBATCH], seqs[UBATCH];
    pl_step_tokens rows = {.size = sizeof rows,
                           .n_tok = n,
                           .pos = pos,
                           .seq = seqs,
                           .page_stride = m->kv.stride};
    size_t bytes = (size_t)(n * ROW) * sizeof *in;
    pl_err err;

    for (int64_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(m->kv.length[seq] + i);
        seqs[i] = seq;
    }
    for (int k = 0; k < m->kv.n_pool; k++)
        rows.pages[k] = m->kv.pool[k].table;
    TEST_OK(kv_reserve(&m->kv, seq, n, false, copy_page, m->x, &err), err);
    TEST_OK(pl_tensor_set(m->x, pl_tensor_find(m->g, "x"),
                          in + m->kv.length[seq] * ROW, 0, bytes, &err),
            err);
    TEST_OK(pl_exec_step(m->x, &rows, &err), err);
    TEST_OK(pl_tensor_get(m->x, pl_tensor_find(m->g, "y"), out, 0, bytes, &err),
            err);
    kv_commit(&m->kv, seq, n, false);
    kv_trim_windows(&m->kv, seq);
}

static uint64_t cache_bytes(const struct machine *m)
{
    const struct lowered *low = m->x->plan->low;
    uint64_t n = 0;

    for (int d = 0; d < low->n_dev; d++)
        n += low->prog[d].bytes[REGION_CACHE];
    return n;
}

/* Runs the same steps, copies and trims with windows and with all tokens. */
static void compare(const char *devices, bool on_host, int n_step,
                    uint64_t *seed)
{
    static float in[CONTEXT * ROW], got[UBATCH * ROW], want[UBATCH * ROW];
    const uint64_t page = PAGE_TOKENS * ROW * 2 * sizeof(uint16_t);
    struct machine all, some;
    pl_err err;

    for (int i = 0; i < CONTEXT * ROW; i++)
        in[i] = (float)test_below(seed, 2001) / 1000 - 1;
    start(&all, devices, on_host, 0);
    start(&some, devices, on_host, WINDOW);
    assert_int_equal(all.kv.n_pool, 1);
    assert_int_equal(some.kv.n_pool, 2);
    assert_int_equal(cache_bytes(&all), 2 * CONTEXT / PAGE_TOKENS * page);
    assert_true(cache_bytes(&some) <=
                (CONTEXT / PAGE_TOKENS + N_SEQ * 3 + 2) * page);
    for (int k = 0; k < n_step; k++) {
        int seq = (int)test_below(seed, N_SEQ);
        int64_t n = 1 + test_below(seed, k % 3 ? UBATCH : 4), least;

        if (test_below(seed, 12) == 0) {
            TEST_OK(kv_copy(&all.kv, 1 - seq, seq, copy_page, all.x, &err),
                    err);
            TEST_OK(kv_copy(&some.kv, 1 - seq, seq, copy_page, some.x, &err),
                    err);
        }
        least = kv_min_length(&some.kv, seq);
        if (test_below(seed, 8) == 0) { /* trims as far as possible */
            kv_trim(&all.kv, seq, least);
            kv_trim(&some.kv, seq, least);
        }
        if (all.kv.length[0] + all.kv.length[1] + n > CONTEXT - PAGE_TOKENS)
            for (int s = 0; s < N_SEQ; s++) {
                kv_trim(&all.kv, s, 0);
                kv_trim(&some.kv, s, 0);
            }
        step(&all, seq, n, in, want);
        step(&some, seq, n, in, got);
        assert_memory_equal(got, want, (size_t)(n * ROW) * sizeof *got);
        assert_true(some.kv.pool[1].n_page - some.kv.pool[1].n_free <=
                    N_SEQ * 3);
    }
    stop(&all);
    stop(&some);
}

TEST(exec_windows_have_the_bits_of_all_tokens)
{
    uint64_t seed = test_seed();
    int n = test_draws(60, 1000);

    compare("cpu", false, 2 * n, &seed);
    compare("cpu*2", false, n, &seed);
    compare("sim*2", false, n, &seed);
    compare("cpu*2", true, n, &seed);
    compare("sim*2", true, n, &seed);
}
