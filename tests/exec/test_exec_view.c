/* Strided views of tensors on devices select the same values as from the whole:
 * every type of tensor, split or not, forwards, backwards, transposed and
 * overlapping. Asynchronous transfers keep their order. */
#include "graph/graph.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

enum { N_TOK = 5, N_SLOT = 128 };

static const char text[] =
    "x: f32[n_tok, 96] = input !want=split(1: 32{0} 64{1,2})\n"
    "i: i32[n_tok] = input\n"
    "w: f32[7, 96] = weight !want=split(0: 3{2} 4{0})\n"
    "w3: f16[3, 5, 96] = weight !want=split(1: 2{0} 1{1} 2{2})\n"
    "q: q8_0[40, 96] = weight role=ffn_up !want=split(1: 32{0} 64{2})\n"
    "k4: q4_k[9, 512] = weight !want=split(0: 3{0} 3{1} 3{2})\n"
    "ck: f16[n_slot, 3, 32] = memory !want=split(1: 1{0} 2{1})\n"
    "c8: q8_0[n_slot, 2, 32] = memory\n"
    "y: f32[n_tok, 40] = matmul(x, q) !keep\n"
    "z: f32[n_tok, 96] = relu(x) !keep !want=split(1: 90{1} 6{2})\n"
    "g: f32[n_tok, 512] = gather_rows(k4, i) !output\n"
    "u: f32[n_tok, 3, 32] = reshape(x)\n"
    "d: f16[n_slot, 3, 32] = cache_write(ck, u)\n";

static pl_exec *create(const pl_graph *g, const char *devices)
{
    const pl_options o = {.size = sizeof o,
                          .devices = devices,
                          .n_ranks = 3,
                          .n_threads = 1,
                          .n_ubatch = N_TOK,
                          .n_ctx = N_SLOT,
                          .n_seq = 1,
                          .no_pin = true};
    pl_exec *x;
    pl_err err;

    TEST_OK(pl_exec_create(&x, g, &o, &err), err);
    return x;
}

static pl_graph *graph(void)
{
    pl_graph *g;
    pl_err err;

    TEST_OK(pl_graph_parse(&g, text, &err), err);
    return g;
}

static int64_t values_of(const struct graph_node *n)
{
    const struct graph_sizes z = {N_TOK, 1, 1, {N_SLOT}};

    return graph_count(n, &z);
}

static size_t bytes_of(const struct graph_node *n)
{
    int64_t row = n->dim[n->n_dim - 1].n;

    if (format_info(n->format)->block == 1)
        return format_row_bytes(n->format, 1) * (size_t)values_of(n);
    return format_row_bytes(n->format, row) * (size_t)(values_of(n) / row);
}

static bool readable(const struct graph_node *n)
{
    return n->n_in == 0 || n->keep || n->output;
}

/* Sets all leaves to random values and executes one step. */
static void fill(pl_exec *x, const pl_graph *g, uint64_t *seed)
{
    const pl_step_tokens rows = {.size = sizeof rows, .n_tok = N_TOK};
    pl_err err;

    for (int t = 0; t < g->n_node; t++) {
        const struct graph_node *n = &g->node[t];
        int64_t c = values_of(n);
        float *v = test_need((size_t)c, 4);
        void *b = test_need(bytes_of(n), 1);

        for (int64_t i = 0; i < c; i++) {
            int32_t id = (int32_t)test_below(seed, 9);

            v[i] = test_unit(seed);
            if (n->format == PL_I32)
                memcpy(&v[i], &id, 4);
        }
        if (format_info(n->format)->encode && n->format != PL_I32)
            format_info(n->format)->encode(b, v, c);
        else
            memcpy(b, v, bytes_of(n));
        if (n->n_in == 0 &&
            pl_tensor_set(x, t, b, 0, bytes_of(n), &err) != PL_OK)
            fail_msg("%s: %s", n->name, err.message);
        free(v);
        free(b);
    }
    TEST_OK(pl_exec_step(x, &rows, &err), err);
}

/* Reads the values of the whole tensor as a view has them. */
static unsigned char *whole(pl_exec *x, const pl_graph *g, pl_tensor t,
                            size_t *size)
{
    const struct graph_node *n = &g->node[t];
    unsigned char *b = test_need(bytes_of(n), 1);
    float *v;
    pl_err err;

    if (pl_tensor_get(x, t, b, 0, bytes_of(n), &err) != PL_OK)
        fail_msg("%s: %s", n->name, err.message);
    *size = 4;
    if (format_info(n->format)->block == 1) {
        *size = format_row_bytes(n->format, 1);
        return b;
    }
    v = test_need((size_t)values_of(n), 4);
    format_info(n->format)->decode(v, b, values_of(n));
    free(b);
    return (unsigned char *)v;
}

/* Draws a view that stays within c values. */
static pl_view draw(int64_t c, uint64_t *seed)
{
    pl_view v = {.n_dim = 1 + (int)test_below(seed, 4)};
    int64_t lo = 0, hi = 0;

    for (int d = v.n_dim - 1; d >= 0; d--) {
        int64_t room = c - 1 - (hi - lo), most;

        v.dim[d] = 1 + test_below(seed, 9);
        most = v.dim[d] > 1 ? room / (v.dim[d] - 1) : room;
        v.stride[d] = d == v.n_dim - 1 && test_below(seed, 2)
                          ? 1
                          : test_below(seed, (most < 300 ? most : 300) + 1);
        if (v.stride[d] > most)
            v.dim[d] = 1;
        if (test_below(seed, 3) == 0) {
            v.stride[d] = -v.stride[d];
            lo += (v.dim[d] - 1) * v.stride[d];
        } else {
            hi += (v.dim[d] - 1) * v.stride[d];
        }
    }
    v.start = -lo + test_below(seed, c - (hi - lo));
    return v;
}

static int64_t count(const pl_view *v)
{
    int64_t n = 1;

    for (int d = 0; d < v->n_dim; d++)
        n *= v->dim[d];
    return n;
}

/* Returns the index of the tensor's value for value k of the view. */
static int64_t at(const pl_view *v, int64_t k)
{
    int64_t a = v->start;

    for (int d = v->n_dim - 1; d >= 0; d--) {
        a += k % v->dim[d] * v->stride[d];
        k /= v->dim[d];
    }
    return a;
}

TEST(exec_view_gets_what_the_whole_has_there)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2"};
    uint64_t seed = test_seed();
    pl_graph *g = graph();

    for (int k = 0; k < 3; k++) {
        pl_exec *x = create(g, devices[k]);

        fill(x, g, &seed);
        for (int t = 0; t < g->n_node; t++) {
            size_t size;
            unsigned char *all;

            if (!readable(&g->node[t]))
                continue;
            all = whole(x, g, t, &size);
            for (int i = 0; i < 40; i++) {
                pl_view v = draw(values_of(&g->node[t]), &seed);
                unsigned char *got = test_need((size_t)count(&v), size);
                pl_err err;

                if (pl_tensor_get_view(x, t, &v, got, &err) != PL_OK)
                    fail_msg("%s: %s", g->node[t].name, err.message);
                for (int64_t j = 0; j < count(&v); j++)
                    if (memcmp(got + (size_t)j * size,
                               all + (size_t)at(&v, j) * size, size))
                        fail_msg("%s on %s: value %lld of a view differs",
                                 g->node[t].name, devices[k], (long long)j);
                free(got);
            }
            free(all);
        }
        pl_exec_free(x);
    }
    pl_graph_free(g);
}

TEST(exec_view_sets_its_values_alone)
{
    static const char *const devices[] = {"cpu*2", "sim*3"};
    uint64_t seed = test_seed();
    pl_graph *g = graph();

    for (int k = 0; k < 2; k++) {
        pl_exec *x = create(g, devices[k]);

        fill(x, g, &seed);
        for (int t = 0; t < g->n_node; t++) {
            const struct graph_node *n = &g->node[t];

            for (int i = 0; i < 20 && n->n_in == 0; i++) {
                pl_view v = draw(values_of(n), &seed);
                size_t size;
                unsigned char *want = whole(x, g, t, &size), *got;
                unsigned char *put = test_need((size_t)count(&v), size);
                pl_status s;
                pl_err err;

                for (size_t b = 0; b < (size_t)count(&v) * size; b++)
                    put[b] = (unsigned char)test_below(&seed, 64);
                s = pl_tensor_set_view(x, t, &v, put, &err);
                if (format_info(n->format)->block > 1) {
                    assert_int_equal(s, PL_UNSUPPORTED);
                    assert_non_null(strstr(err.message, "single values"));
                } else if (s != PL_OK) {
                    fail_msg("%s: %s", n->name, err.message);
                }
                for (int64_t j = 0; s == PL_OK && j < count(&v); j++)
                    memcpy(want + (size_t)at(&v, j) * size,
                           put + (size_t)j * size, size);
                got = whole(x, g, t, &size);
                if (memcmp(got, want, size * (size_t)values_of(n)))
                    fail_msg("%s on %s: set otherwise than asked", n->name,
                             devices[k]);
                free(got);
                free(want);
                free(put);
            }
        }
        pl_exec_free(x);
    }
    pl_graph_free(g);
}

TEST(exec_view_outside_is_refused)
{
    static const struct {
        const char *name;
        pl_view v;
        pl_status status;
        const char *message;
    } cases[] = {
        {"w", {1, {672}, {1}, 0}, PL_OK, ""},
        {"w", {1, {673}, {1}, 0}, PL_BAD_ARGUMENT, "w: 3072 bytes"},
        {"w", {1, {1}, {0}, -1}, PL_BAD_ARGUMENT, "w: a view that exceeds"},
        {"w", {1, {2}, {-1}, 0}, PL_BAD_ARGUMENT, "w: a view that exceeds"},
        {"w", {2, {2, 2}, {INT64_MAX, 1}, 0}, PL_BAD_ARGUMENT, "exceeds the"},
        {"w", {2, {3, 1}, {INT64_MAX, 1}, 0}, PL_BAD_ARGUMENT, "exceeds the"},
        {"w", {2, {0, 9}, {1, 99999}, 0}, PL_OK, ""},
        {"w",
         {2, {1 << 30, (int64_t)1 << 40}, {0}, 0},
         PL_BAD_ARGUMENT,
         "too many values"},
        {"w", {0, {0}, {0}, 0}, PL_BAD_ARGUMENT, "one to four dimensions"},
        {"w", {5, {0}, {0}, 0}, PL_BAD_ARGUMENT, "one to four dimensions"},
        {"w", {1, {-1}, {1}, 0}, PL_BAD_ARGUMENT, "a negative dimension"},
        {"y", {1, {201}, {1}, 0}, PL_BAD_ARGUMENT, "y: "},
        {"u", {1, {1}, {1}, 0}, PL_BAD_ARGUMENT, "mark it with pl_keep"},
        {"u", {1, {0}, {1}, 0}, PL_BAD_ARGUMENT, "mark it with pl_keep"},
    };
    pl_graph *g = graph();
    pl_exec *x = create(g, "cpu*2");
    uint64_t seed = test_seed();
    float out[700];

    fill(x, g, &seed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err err = {0};
        pl_status s = pl_tensor_get_view(x, pl_tensor_find(g, cases[i].name),
                                         &cases[i].v, out, &err);

        if (s != cases[i].status || !strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s: %s", i, pl_status_name(s), err.message);
    }
    assert_int_equal(pl_tensor_get_view(x, 99, &cases[0].v, out, NULL),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_tensor_get_view(x, -1, &cases[0].v, out, NULL),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_tensor_set_view(x, pl_tensor_find(g, "y"),
                                        &(pl_view){1, {1}, {1}, 0}, out, NULL),
                     PL_BAD_ARGUMENT);
    pl_exec_free(x);
    pl_graph_free(g);
}

/* Weights are written while the last step's values are read. The next step sees
 * all weights; the values are those of the step before. */
TEST(exec_async_keeps_the_order_of_the_calls)
{
    static const char *const devices[] = {"cpu*2", "sim*3"};
    const pl_step_tokens rows = {.size = sizeof rows, .n_tok = N_TOK};
    uint64_t seed = test_seed();
    pl_graph *g = graph();
    pl_tensor w = pl_tensor_find(g, "w"), z = pl_tensor_find(g, "z");
    pl_tensor x = pl_tensor_find(g, "x");

    for (int k = 0; k < 2; k++) {
        static float put[20][N_TOK * 96], got[20][N_TOK * 96], back[7 * 96];
        pl_exec *e = create(g, devices[k]);
        pl_err err;

        /* waiting succeeds if no transfer is queued */
        TEST_OK(pl_exec_wait(e, &err), err);
        fill(e, g, &seed);
        for (int i = 0; i < 20; i++) {
            for (int j = 0; j < N_TOK * 96; j++)
                put[i][j] = test_unit(&seed);
            TEST_OK(pl_tensor_set_async(e, x, put[i], 0, sizeof put[i], &err),
                    err);
            TEST_OK(pl_tensor_set_async(e, w, put[i], 4 * 96, 2 * 4 * 96, &err),
                    err);
            TEST_OK(pl_exec_step(e, &rows, &err), err);
            TEST_OK(pl_tensor_get_async(e, z, got[i], 0, sizeof got[i], &err),
                    err);
        }
        TEST_OK(pl_exec_wait(e, &err), err);
        TEST_OK(pl_tensor_get(e, w, back, 0, sizeof back, &err), err);
        assert_memory_equal(back + 96, put[19], 2 * 4 * 96);
        for (int i = 0; i < 20; i++)
            for (int j = 0; j < N_TOK * 96; j++)
                assert_true(got[i][j] == (put[i][j] > 0 ? put[i][j] : 0));
        /* pl_exec_free is called while transfers are queued */
        for (int i = 0; i < 20; i++)
            TEST_OK(pl_tensor_get_async(e, z, got[i], 0, sizeof got[i], &err),
                    err);
        pl_exec_free(e);
    }
    pl_graph_free(g);
}

TEST(exec_async_tells_its_failure_once)
{
    pl_graph *g = graph();
    pl_exec *e = create(g, "cpu*2");
    pl_tensor w = pl_tensor_find(g, "w");
    float v[4] = {1, 2, 3, 4}, got[4] = {0};
    pl_err err;

    TEST_OK(pl_tensor_set(e, w, v, 0, sizeof v, &err), err);
    TEST_OK(pl_tensor_get_async(e, w, got, 4 * 672, 4, &err), err);
    TEST_OK(pl_tensor_set_async(e, w, got, 0, sizeof v, &err), err);
    assert_int_equal(
        pl_exec_step(
            e, &(pl_step_tokens){.size = sizeof(pl_step_tokens), .n_tok = 1},
            &err),
        PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "w: 4 bytes from byte 2688"));
    TEST_OK(pl_tensor_get(e, w, got, 0, sizeof v, &err), err);
    /* calls queued after the failed one were not executed */
    assert_memory_equal(got, v, sizeof v);
    TEST_OK(pl_exec_wait(e, &err), err);
    pl_exec_free(e);
    pl_graph_free(g);
}

TEST(exec_view_and_async_survive_want_of_memory)
{
    const pl_view row = {1, {30}, {3}, 5};
    pl_graph *g = graph();
    pl_tensor q = pl_tensor_find(g, "q");
    unsigned char got[128];
    pl_exec *e = create(g, "cpu*2");

    for (int k = 0; k < 2; k++) {
        bool reached = true;

        for (int n = 1; reached; n++) {
            pl_status s;

            alloc_fail_at(n);
            s = k ? pl_tensor_get_async(e, q, got, 3, 100, NULL)
                  : pl_tensor_get_view(e, q, &row, got, NULL);
            if (s == PL_OK)
                s = pl_exec_wait(e, NULL);
            reached = alloc_fail_off();
            assert_int_equal(s, reached ? PL_NO_MEMORY : PL_OK);
        }
    }
    pl_exec_free(e);
    pl_graph_free(g);
}
