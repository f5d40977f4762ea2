/* Options that nobody should give are refused by field, first of all. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <math.h>
#include <string.h>

static const char *const one_null[] = {"x=host", NULL};

/* Each is wrong in one field, whose name the message has. */
static const struct {
    pl_options o;
    const char *words;
} rows[] = {
    {{.n_ranks = -1}, "n_ranks is -1"},
    {{.n_threads = -2}, "n_threads is -2"},
    {{.hybrid_size = -1}, "hybrid_size is -1"},
    {{.main_device = -1}, "main_device is -1"},
    {{.n_seq = -1}, "n_seq is -1"},
    {{.n_ctx = -1}, "n_ctx is -1"},
    {{.n_ubatch = INT64_MIN}, "n_ubatch is -9223372036854775808"},
    {{.n_out = -5}, "n_out is -5"},
    {{.fit_ctx = -1}, "fit_ctx is -1"},
    {{.n_tensor_split = -1}, "n_tensor_split is -1"},
    {{.n_tensor_split = 2}, "n_tensor_split is 2 and tensor_split is NULL"},
    {{.n_overrides = -3}, "n_overrides is -3"},
    {{.n_overrides = 1}, "n_overrides is 1 and overrides is NULL"},
    {{.n_overrides = 2, .overrides = one_null}, "overrides[1] is NULL"},
    {{.n_keep = -1}, "n_keep is -1"},
    {{.n_keep = 3}, "n_keep is 3 and keep is NULL"},
    {{.n_keep = 2, .keep = one_null}, "keep[1] is NULL"},
    {{.split_mode = (pl_split_mode)5}, "split_mode is 5"},
    {{.split_mode = (pl_split_mode)-1}, "split_mode is -1"},
    {{.offload = (pl_offload)3}, "offload is 3"},
    {{.cache_set = true, .cache_k = PL_Q4_K, .cache_v = PL_F16}, "cache_k is"},
    {{.cache_set = true, .cache_v = (pl_format)99}, "cache_v is format 99"},
    {{.cache_set = true, .cache_k = (pl_format)-1}, "cache_k is format -1"},
};
enum { N_ROW = sizeof rows / sizeof rows[0] };

static void expect(pl_status s, const pl_err *err, int row, const char *call)
{
    if (s != PL_BAD_ARGUMENT || !strstr(err->message, rows[row].words))
        fail_msg("%s, \"%s\": %s: %s", call, rows[row].words, pl_status_name(s),
                 err->message);
}

static void sink(void *user, const char *text, size_t len)
{
    (void)user;
    (void)text;
    (void)len;
}

TEST(options_that_cannot_be_are_refused_by_field)
{
    static const char name[] = "models/fable-moe-Q8_0.gguf";
    const char *path = test_file(name);
    const pl_dim dim[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    pl_model *m = NULL;
    pl_graph *g;

    if (path)
        assert_int_equal(pl_model_open(&m, path, NULL), PL_OK);
    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_output(g, pl_relu(g, pl_input(g, "x", PL_F32, 2, dim)));
    for (int i = 0; i < N_ROW; i++) {
        const pl_options *o = &rows[i].o;
        pl_exec *x = (pl_exec *)g;
        pl_plan *p = (pl_plan *)g;
        pl_engine *e = (pl_engine *)g;
        pl_err err = {PL_OK, ""};

        expect(pl_exec_create(&x, g, o, &err), &err, i, "pl_exec_create");
        assert_null(x);
        assert_int_equal(pl_exec_create(&x, g, o, NULL), PL_BAD_ARGUMENT);
        expect(pl_devices_measure(o, false, sink, NULL, &err), &err, i,
               "pl_devices_measure");
        if (!m)
            continue;
        expect(pl_plan_create(&p, m, o, &err), &err, i, "pl_plan_create");
        assert_null(p);
        expect(pl_engine_create(&e, m, o, &err), &err, i, "pl_engine_create");
        assert_null(e);
    }
    pl_graph_free(g);
    pl_model_free(m);
    if (!m)
        TEST_SKIP("%s is not at hand", name);
}

TEST(options_of_samplers_are_refused_by_field)
{
    static const int32_t id[1] = {3};
    static const float bias[1] = {1};
    static const struct {
        int n_bias;
        const int32_t *id;
        const float *bias;
        int64_t n_vocab;
        const char *words; /* NULL: taken */
    } cases[] = {
        {1, id, bias, 10, NULL},
        {0, NULL, NULL, 10, NULL},
        {-1, id, bias, 10, "n_bias is -1"},
        {1, NULL, bias, 10, "bias_id is NULL"},
        {1, id, NULL, 10, "n_bias is 1 and bias is NULL"},
        {1, id, bias, 3, "a bias for token 3"},
        {0, NULL, NULL, 0, "a vocabulary of 0"},
        {0, NULL, NULL, -1, "a vocabulary of -1"},
        {0, NULL, NULL, ((int64_t)1 << 32) + 10, "a vocabulary of 4294967306"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_sampling o;
        pl_sampler *s;
        pl_err err = {PL_OK, ""};
        pl_status st;

        pl_sampling_defaults(&o);
        o.n_bias = cases[i].n_bias;
        o.bias_id = cases[i].id;
        o.bias = cases[i].bias;
        st = pl_sampler_create(&s, &o, cases[i].n_vocab, &err);
        if (st != (cases[i].words ? PL_BAD_ARGUMENT : PL_OK) ||
            (cases[i].words && !strstr(err.message, cases[i].words)))
            fail_msg("case %zu: %s: %s", i, pl_status_name(st), err.message);
        assert_true((s == NULL) == (st != PL_OK));
        pl_sampler_free(s);
    }
}

/* Other structs of the caller's. */
TEST(options_of_graphs_are_refused)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    const pl_layout l = {PL_SPLIT, 1, 4, 1, NULL};
    pl_graph *g;
    pl_err err;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_want_layout(g, pl_input(g, "x", PL_F32, 2, dim), &l);
    assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "x: the layout asked for"));
    pl_graph_free(g);
    assert_int_equal(pl_graph_parse_ops(&g, "", 1, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "n_def is 1 and def is NULL"));
    assert_null(g);
    assert_int_equal(pl_graph_parse_ops(&g, "", -1, NULL, &err),
                     PL_BAD_ARGUMENT);
}
