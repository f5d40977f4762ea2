/* Invalid options are rejected before anything else, by field name. Structs of
 * older and newer headers are accepted. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const one_null[] = {"x=host", NULL};

/* Each is wrong in one field, which the message names. */
static const struct {
    pl_options o;
    const char *words;
} rows[] = {
    {{.n_ranks = -1}, "n_ranks is -1"},
    {{.n_threads = -2}, "n_threads is -2"},
    {{.hybrid_size = -2}, "hybrid_size is -2"},
    {{.main_device = -1}, "main_device is -1"},
    {{.n_seq = -1}, "n_seq is -1"},
    {{.n_ctx = -1}, "n_ctx is -1"},
    {{.n_ubatch = INT64_MIN}, "n_ubatch is -9223372036854775808"},
    {{.n_out = -5}, "n_out is -5"},
    {{.fit_ctx = -1}, "fit_ctx is -1"},
    {{.n_tensor_split = -1}, "n_tensor_split is -1"},
    {{.n_tensor_split = 2}, "n_tensor_split is 2 but tensor_split is NULL"},
    {{.n_overrides = -3}, "n_overrides is -3"},
    {{.n_overrides = 1}, "n_overrides is 1 but overrides is NULL"},
    {{.n_overrides = 2, .overrides = one_null}, "overrides[1] is NULL"},
    {{.n_keep = -1}, "n_keep is -1"},
    {{.n_keep = 3}, "n_keep is 3 but keep is NULL"},
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
        pl_options copy = rows[i].o, *o = &copy;
        pl_exec *x = (pl_exec *)g;
        pl_plan *p = (pl_plan *)g;
        pl_engine *e = (pl_engine *)g;
        pl_err err = {PL_OK, ""};

        o->size = sizeof *o;
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
        /* text that the error must contain; NULL if the settings are
         * accepted */
        const char *words;
    } cases[] = {
        {1, id, bias, 10, NULL},
        {0, NULL, NULL, 10, NULL},
        {-1, id, bias, 10, "n_bias is -1"},
        {1, NULL, bias, 10, "bias_id is NULL"},
        {1, id, NULL, 10, "n_bias is 1 but bias is NULL"},
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

        pl_sampling_init(&o);
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

/* Options of graphs, executors and custom ops with invalid fields are
 * rejected. */
TEST(options_of_graphs_are_refused)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    const pl_layout l = {PL_SPLIT, 1, 4, 1, NULL};
    pl_graph *g;
    pl_err err;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_want_layout(g, pl_input(g, "x", PL_F32, 2, dim), &l);
    assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "x: the requested layout"));
    pl_graph_free(g);
    assert_int_equal(pl_graph_parse_ops(&g, "", 1, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "def is NULL"));
    assert_null(g);
    assert_int_equal(pl_graph_parse_ops(&g, "", -1, NULL, &err),
                     PL_BAD_ARGUMENT);
}

/* ---- sizes -------------------------------------------------------------- */

/* The arguments besides the struct that the calls below need. */
struct scene {
    pl_model *m;
    pl_engine *e;
    pl_graph *g;
    pl_exec *x;
};

static pl_status create_plan(struct scene *s, const void *given, pl_err *err)
{
    pl_plan *p;
    pl_status st = pl_plan_create(&p, s->m, given, err);

    pl_plan_free(p);
    return st;
}

static pl_status create_engine(struct scene *s, const void *given, pl_err *err)
{
    pl_engine *e;
    pl_status st = pl_engine_create(&e, s->m, given, err);

    pl_engine_free(e);
    return st;
}

static pl_status create_exec(struct scene *s, const void *given, pl_err *err)
{
    pl_exec *x;
    pl_status st = pl_exec_create(&x, s->g, given, err);

    pl_exec_free(x);
    return st;
}

/* Measures kernels that do not exist, because measuring takes seconds. */
static pl_status measure(struct scene *s, const void *given, pl_err *err)
{
    pl_status st = pl_devices_measure(given, false, sink, NULL, err);

    (void)s;
    return strstr(err->message, "unknown kernel set 'none'") ? PL_OK : st;
}

static pl_status create_sampler(struct scene *s, const void *given, pl_err *err)
{
    pl_sampler *p;
    pl_status st = pl_sampler_create(&p, given, 10, err);

    (void)s;
    pl_sampler_free(p);
    return st;
}

static pl_status decode(struct scene *s, const void *given, pl_err *err)
{
    return pl_engine_decode(s->e, given, NULL, err);
}

static pl_status step(struct scene *s, const void *given, pl_err *err)
{
    return pl_exec_step(s->x, given, err);
}

static pl_status custom(struct scene *s, const void *given, pl_err *err)
{
    const pl_dim dim = {4, PL_CONST};
    pl_status st;
    pl_graph *g;
    pl_tensor x;

    (void)s;
    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 1, &dim);
    pl_custom(g, given, 1, &x);
    st = pl_graph_check(g, err);
    pl_graph_free(g);
    return st;
}

static pl_status parse_ops(struct scene *s, const void *given, pl_err *err)
{
    const pl_op_def *def = given;
    pl_graph *g;
    pl_status st = pl_graph_parse_ops(
        &g, "x: f32[4] = input\ny: f32[4] = own(x)\n", 1, &def, err);

    (void)s;
    pl_graph_free(g);
    return st;
}

static pl_status rope(struct scene *s, const void *given, pl_err *err)
{
    const pl_dim dim[3] = {{1, PL_N_TOK}, {2, PL_CONST}, {4, PL_CONST}};
    pl_status st;
    pl_graph *g;

    (void)s;
    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_rope_apply(g, pl_input(g, "x", PL_F32, 3, dim),
                  pl_input(g, "pos", PL_I32, 1, dim), -1, given);
    st = pl_graph_check(g, err);
    pl_graph_free(g);
    return st;
}

static void nothing(const pl_op_call *c)
{
    (void)c;
}

/* Every call that takes a struct with a size: a short one, followed by bytes
 * that must not be read; one with more fields than this library knows; and
 * sizes that no header has. */
TEST(options_of_any_header_are_understood)
{
    static const int32_t id[1] = {1};
    static const uint8_t no[1] = {0};
    const pl_dim dim[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    pl_options o, unknown;
    pl_sampling sampling;
    pl_batch batch;
    pl_step_tokens tokens;
    pl_op_def def;
    pl_rope turn;
    const struct {
        const char *type;
        const void *full;
        /* size of the struct in this header, and in an older one */
        size_t known, less;
        pl_status (*call)(struct scene *, const void *, pl_err *);
    } calls[] = {
        {"pl_options", &o, sizeof o, offsetof(pl_options, n_ctx), create_plan},
        {"pl_options", &o, sizeof o, offsetof(pl_options, n_ctx),
         create_engine},
        {"pl_options", &o, sizeof o, offsetof(pl_options, n_ctx), create_exec},
        {"pl_options", &unknown, sizeof o, offsetof(pl_options, n_ctx),
         measure},
        {"pl_sampling", &sampling, sizeof sampling,
         offsetof(pl_sampling, top_p), create_sampler},
        {"pl_batch", &batch, sizeof batch, offsetof(pl_batch, logits), decode},
        {"pl_step_tokens", &tokens, sizeof tokens,
         offsetof(pl_step_tokens, pos), step},
        {"pl_op_def", &def, sizeof def, offsetof(pl_op_def, user), custom},
        {"pl_op_def", &def, sizeof def, offsetof(pl_op_def, user), parse_ops},
        {"pl_rope", &turn, sizeof turn, offsetof(pl_rope, yarn), rope},
    };
    struct scene s;

    pl_options_init(&o);
    o.n_threads = 1;
    unknown = o;
    unknown.cpu = "none";
    pl_sampling_init(&sampling);
    pl_batch_init(&batch);
    batch.n = 1;
    batch.token = id;
    batch.wanted = no;
    pl_rows_init(&tokens);
    tokens.n_tok = 1;
    pl_op_def_init(&def);
    def.name = "own";
    def.dims = "*->*";
    def.run = nothing;
    pl_rope_init(&turn);
    turn.n_rot = 4;
    turn.base = 10000;
    assert_int_equal(
        pl_model_open(&s.m, test_file("models/fable-moe-Q8_0.gguf"), NULL),
        PL_OK);
    assert_int_equal(pl_engine_create(&s.e, s.m, &o, NULL), PL_OK);
    assert_int_equal(pl_graph_create(&s.g, NULL), PL_OK);
    pl_output(s.g, pl_relu(s.g, pl_input(s.g, "x", PL_F32, 2, dim)));
    assert_int_equal(pl_exec_create(&s.x, s.g, &o, NULL), PL_OK);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t known = calls[i].known, less = calls[i].less;
        const struct {
            size_t size;
            /* value of each byte in memory after the fields that are set: those
             * of an older header if `size` is `less`, else all */
            int behind;
            pl_status status;
            const char *words;
        } cases[] = {
            {known, 0xff, PL_OK, ""},
            {less, 0xff, PL_OK, ""},
            {known + 24, 0, PL_OK, ""},
            {known + 24, 1, PL_UNSUPPORTED, "built for a newer version"},
            {0, 0, PL_BAD_ARGUMENT, "size is 0; call "},
            {sizeof(size_t), 0, PL_BAD_ARGUMENT,
             "_init, or initialize it with"},
            {known - 1, 0, PL_BAD_ARGUMENT, "{.size = sizeof("},
            {SIZE_MAX, 0, PL_BAD_ARGUMENT, "size is "},
        };

        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            _Alignas(16) unsigned char given[1024];
            size_t end = cases[k].size == less ? less : known;
            pl_err err = {PL_OK, ""};
            pl_status st;

            memset(given, cases[k].behind, sizeof given);
            memcpy(given, calls[i].full, end);
            memcpy(given, &cases[k].size, sizeof cases[k].size);
            st = calls[i].call(&s, given, &err);
            if (st != cases[k].status || !strstr(err.message, cases[k].words) ||
                (st != PL_OK && !strstr(err.message, calls[i].type)))
                fail_msg("call %zu, size %zu: %s: %s", i, cases[k].size,
                         pl_status_name(st), err.message);
        }
    }
    pl_exec_free(s.x);
    pl_graph_free(s.g);
    pl_engine_free(s.e);
    pl_model_free(s.m);
}

/* Callers with older headers get the fields that they have, those with newer
 * ones zeros in the rest. */
TEST(counters_fill_structs_of_any_header)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {4, PL_CONST}};
    const int64_t shape[2] = {4, 4};
    _Alignas(16) unsigned char got[sizeof(pl_counters) + 16];
    pl_counters want;
    pl_graph *g;
    pl_exec *x;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_output(g, pl_matmul(g, pl_input(g, "x", PL_F32, 2, dim),
                           pl_weight(g, "w", PL_F32, 2, shape, PL_ROLE_NONE)));
    assert_int_equal(pl_exec_create(&x, g, NULL, NULL), PL_OK);
    pl_exec_counters(x, &want, sizeof want);
    assert_int_equal(want.weight_bytes[0], 64);
    for (size_t n = 0; n <= sizeof got; n += 8) {
        memset(got, 0xaa, sizeof got);
        pl_exec_counters(x, (pl_counters *)(void *)got, n);
        for (size_t i = 0; i < sizeof got; i++)
            assert_int_equal(got[i], i >= n ? 0xaa
                                     : i >= sizeof want
                                         ? 0
                                         : ((uint8_t *)&want)[i]);
    }
    pl_exec_free(x);
    pl_graph_free(g);
}
