/* Reads and writes of cache rows. Tiles of many positions equal single ones,
 * and rows of caches that devices share are read back as written, whichever
 * device has a head. */
#include "exec/cache_io.h"

#include "lib/cache_formats.h"
#include "lib/cache_rows.h"
#include "lib/support.h"
#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

static void fill(uint64_t *seed, void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)p)[i] = (unsigned char)test_random(seed);
}

/* Any span of positions, any width, rows apart: the same bytes as one position
 * after another, and no other byte changes. */
TEST(cache_rows_equal_single_rows)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < 400; k++) {
        pl_format f = cache_formats[k % N_CACHE_FORMAT];
        int64_t d = format_info(f)->block > 1 ? 32 * (1 + test_below(&seed, 5))
                                              : 1 + test_below(&seed, 70);
        bool values = k / N_CACHE_FORMAT % 2;
        int j0 = (int)test_below(&seed, PAGE_TOKENS);
        int n = 1 + (int)test_below(&seed, PAGE_TOKENS - j0);
        size_t bytes = cache_tile_bytes(f, d);
        size_t row = format_row_bytes(f, d);
        size_t stride = row + (size_t)test_below(&seed, 9);
        char *tile = malloc(bytes), *want = malloc(bytes);
        char *rows = malloc((size_t)n * stride), *one = malloc(row);

        assert_true(tile && want && rows && one);
        fill(&seed, tile, bytes);
        fill(&seed, rows, (size_t)n * stride);
        memcpy(want, tile, bytes);
        for (int j = 0; j < n; j++)
            cache_row_write(f, d, values, want, j0 + j,
                            rows + (size_t)j * stride);
        cache_tile_write(f, d, values, tile, j0, n, rows, stride);
        assert_memory_equal(tile, want, bytes);
        fill(&seed, tile, bytes);
        cache_tile_read(f, d, values, tile, j0, n, rows, stride);
        for (int j = 0; j < n; j++) {
            cache_row_read(f, d, values, tile, j0 + j, one);
            assert_memory_equal(one, rows + (size_t)j * stride, row);
        }
        free(tile);
        free(want);
        free(rows);
        free(one);
    }
}

/* The list of formats in lib/cache_formats.h is that of the library. */
TEST(cache_formats_are_those_of_the_table)
{
    int n = 0;

    for (int f = -1; f <= PL_FORMAT_COUNT; f++)
        n += format_is_cache((pl_format)f);
    assert_int_equal(n, N_CACHE_FORMAT);
    for (int i = 0; i < N_CACHE_FORMAT; i++)
        assert_true(format_is_cache(cache_formats[i]));
}

/* Returns a graph that only writes and reads a cache. */
static pl_graph *graph(pl_format f, int64_t n_head)
{
    pl_graph *g;
    pl_dim dim[3] = {{1, PL_N_TOK}, {n_head, PL_CONST}, {32, PL_CONST}};
    pl_tensor x, k, v;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 3, dim);
    k = pl_cache_write(g, pl_cache(g, "k", f, n_head, 32, false, 0), x);
    v = pl_cache_write(g, pl_cache(g, "v", f, n_head, 32, true, 0), x);
    pl_output(g, pl_attention(g, x, k, v, -1, 1.0f, 0, 0));
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    return g;
}

/* Rows of any span of a page are those last written there, in any layout;
 * pl_tensor_get reads the same bytes. */
TEST(cache_gives_back_what_was_written)
{
    static const char *const devices[] = {"cpu", "cpu*2", "sim*3"};
    enum { HEADS = 3, SLOTS = 256 };
    uint64_t seed = test_seed();

    for (int k = 0; k < 3 * N_CACHE_FORMAT; k++) {
        pl_format f = cache_formats[k % N_CACHE_FORMAT];
        pl_options o = {.size = sizeof o,
                        .devices = devices[k / N_CACHE_FORMAT],
                        .n_ranks = 1 + k % 5,
                        .n_threads = 1,
                        .no_pin = true,
                        .n_ctx = SLOTS};
        size_t row = HEADS * format_row_bytes(f, 32);
        char *want = calloc(SLOTS, row), *got = malloc(SLOTS * row);
        pl_graph *g = graph(f, HEADS);
        struct exec_caches c;
        pl_exec *x;

        assert_true(want && got);
        assert_int_equal(pl_exec_create(&x, g, &o, NULL), PL_OK);
        assert_int_equal(exec_caches_open(&c, x, -1, NULL), PL_OK);
        assert_int_equal(c.n, 2);
        for (int i = 0; i < 2; i++) {
            pl_tensor t = pl_tensor_find(g, i ? "v" : "k");

            assert_int_equal(c.cache[i].node, t);
            assert_int_equal(pl_tensor_set(x, t, want, 0, SLOTS * row, NULL),
                             PL_OK);
            for (int r = 0; r < 40; r++) {
                int page = (int)test_below(&seed, SLOTS / PAGE_TOKENS);
                int j0 = (int)test_below(&seed, PAGE_TOKENS);
                int n = 1 + (int)test_below(&seed, PAGE_TOKENS - j0);
                char *at = want + (size_t)(page * PAGE_TOKENS + j0) * row;
                size_t a = (size_t)test_below(&seed, SLOTS * (int64_t)row);
                size_t b = (size_t)test_below(&seed, SLOTS * (int64_t)row -
                                                         (int64_t)a + 1);

                fill(&seed, at, (size_t)n * row);
                assert_int_equal(exec_cache_write(&c, i, page, j0, n, at, NULL),
                                 PL_OK);
                assert_int_equal(exec_cache_read(&c, i, page, j0, n, got, NULL),
                                 PL_OK);
                assert_memory_equal(at, got, (size_t)n * row);
                assert_int_equal(pl_tensor_get(x, t, got, a, b, NULL), PL_OK);
                assert_memory_equal(want + a, got, b);
                fill(&seed, want + a, b);
                assert_int_equal(pl_tensor_set(x, t, want + a, a, b, NULL),
                                 PL_OK);
            }
            memset(want, 0, SLOTS * row);
        }
        exec_caches_close(&c);
        pl_exec_free(x);
        pl_graph_free(g);
        free(want);
        free(got);
    }
}
