/* Encoders: texts whose tokens attend to both sides, one row of embeddings a
 * token, scores of class heads.
 *
 * The models are made from tests/refs/encoders, which has numbers of their
 * embeddings that tests/tools/encoder_models.py computed from the equations in
 * float64 (and compared with the package `transformers` where it could). The
 * graph in double must give these numbers, and the engine their values. A
 * text's bits depend on the ranks alone: not on devices, split, placement,
 * other texts of the batch, or threads. Costs the gate 4 s. */
#include "lib/edit_model.h"
#include "lib/engine_run.h"
#include "lib/eval64.h"
#include "lib/made_model.h"
#include "model/model.h"
#include "test_paths.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXT = 3, MAX_TEXT = 128, SEVERAL = 8 };

static const char *const names[] = {
    "bert",         "bert-rank",   "nomic-bert",       "nomic-bert-moe",
    "jina-bert-v3", "modern-bert", "modern-bert-rank", "gemma-embedding"};
enum { N_MODEL = sizeof names / sizeof *names };

/* A made model and what its description says of it. */
struct encoder {
    const char *name;
    char path[600];
    json_t *j; /* owned */
    struct {
        int32_t id[MAX_TEXT];
        int64_t n;
    } text[N_TEXT];
};

static void encoder_init(struct encoder *x, const char *name)
{
    char path[600];
    const char *dir = PLAIT_SOURCE_DIR "/tests/refs/encoders";
    json_t *s, *id;
    size_t i, k;

    *x = (struct encoder){.name = name};
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    x->j = json_load_file(path, 0, NULL);
    assert_non_null(x->j);
    snprintf(path, sizeof path, "encoder-%s.gguf", name);
    snprintf(x->path, sizeof x->path, "%s", test_temp(path));
    made_model_write(dir, name, x->path);
    json_array_foreach (json_object_get(x->j, "sequences"), i, s) {
        assert_in_range(i, 0, N_TEXT - 1);
        json_array_foreach (json_object_get(s, "tokens"), k, id) {
            assert_in_range(k, 0, MAX_TEXT - 1);
            x->text[i].id[k] = (int32_t)json_integer_value(id);
        }
        x->text[i].n = (int64_t)k;
    }
}

static void encoder_fini(struct encoder *x)
{
    json_decref(x->j);
}

/* Fails unless the values [n] of a text give the numbers in list `key` of the
 * description, up to `tolerance` of their size. */
static void keeps(const struct encoder *x, const char *key, int text,
                  const double *v, int64_t n, double tolerance)
{
    const json_t *want =
        json_array_get(json_object_get(x->j, key), (size_t)text);
    double got[MADE_NUMBERS], rms;

    assert_int_equal(json_array_size(want), MADE_NUMBERS);
    made_model_numbers(v, n, got);
    rms = sqrt(json_number_value(json_array_get(want, 1)) / (double)n);
    for (size_t k = 0; k < MADE_NUMBERS; k++) {
        double w = json_number_value(json_array_get(want, k));
        double scale = k == 0 ? rms * (double)n : k == 1 ? w : rms;

        if (!(fabs(got[k] - w) <= tolerance * scale))
            fail_msg("%s: text %d: number %zu of %s is %.9g, not %.9g", x->name,
                     text, k, key, got[k], w);
    }
}

/* ---- the graph in double ------------------------------------------------- */

static void set(struct eval64 *e, const char *name, const int32_t *v,
                const struct eval_rows *rows)
{
    struct eval_value *x = eval64_input(e, pl_tensor_find(e->g, name), rows);

    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = v[i];
}

static void evaluate(const struct encoder *x, struct eval64 *e, int text)
{
    const int64_t n = x->text[text].n;
    int32_t at[MAX_TEXT], seq[MAX_TEXT] = {0}, end[MAX_TEXT];
    const struct eval_rows rows = {n, n, MAX_TEXT, at, seq};
    const struct eval_value *v;

    for (int32_t i = 0; i < n; i++) {
        at[i] = i;
        end[i] = (int32_t)n - 1;
    }
    set(e, "ids", x->text[text].id, &rows);
    if (pl_tensor_find(e->g, "pos") >= 0)
        set(e, "pos", at, &rows);
    set(e, "out_ids", at, &rows);
    set(e, "ends", end, &rows);
    eval64_step(e, &rows);
    v = &e->value[pl_tensor_find(e->g, "result_norm")];
    keeps(x, "rows", text, v->x, v->n, 1e-6);
    if (pl_tensor_find(e->g, "scores") < 0)
        return;
    v = &e->value[pl_tensor_find(e->g, "scores")];
    keeps(x, "scores", text, v->x, v->n, 1e-6);
}

TEST(encoder_graphs_meet_the_equations)
{
    const struct model_graph_options opt = {.cache_k = PL_F32,
                                            .cache_v = PL_F32};

    for (int i = 0; i < N_MODEL; i++) {
        struct encoder x;
        struct gguf *file;
        struct model *m;
        pl_graph *g;
        struct eval64 *e;
        pl_err err;

        encoder_init(&x, names[i]);
        TEST_OK(gguf_open(&file, x.path, &err), err);
        TEST_OK(model_open(&m, file, &err), err);
        assert_null(m->unread);
        TEST_OK(pl_graph_create(&g, &err), err);
        TEST_OK(model_graph(m, g, &opt, &err), err);
        e = eval64_create(g, 1, MAX_TEXT);
        for (int k = 0; k < g->n_node; k++)
            if (g->node[k].op == OP_weight)
                eval64_weight(e, k,
                              gguf_find_tensor(file, g->node[k].name)->data);
        for (int t = 0; t < N_TEXT; t++)
            evaluate(&x, e, t);
        eval64_free(e);
        pl_graph_free(g);
        model_close(m);
        gguf_close(file);
        encoder_fini(&x);
    }
}

/* ---- the engine ---------------------------------------------------------- */

static pl_options options(void)
{
    pl_options o = engine_run_options();

    o.n_ctx = SEVERAL * MAX_TEXT;
    o.n_ubatch = MAX_TEXT;
    o.n_seq = SEVERAL;
    o.no_fit = true;
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    return o;
}

/* Empties all sequences, then decodes texts[n] as sequences 0 .. n-1 in one
 * batch. Writes the rows of all tokens to out. */
static pl_status embed(const struct engine_run *r, const struct encoder *x,
                       const int *texts, int n, float *out, float *scores,
                       pl_err *err)
{
    int32_t id[SEVERAL * MAX_TEXT], seq[SEVERAL * MAX_TEXT];
    pl_batch b;

    pl_batch_init(&b);
    b.token = id;
    b.seq = seq;
    b.norm_out = out;
    b.scores = scores;
    for (int t = 0; t < n; t++) {
        TEST_OK(pl_seq_trim(r->engine, t, 0, NULL, err), *err);
        for (int64_t i = 0; i < x->text[texts[t]].n; i++) {
            id[b.n] = x->text[texts[t]].id[i];
            seq[b.n++] = t;
        }
    }
    return pl_engine_decode(r->engine, &b, NULL, err);
}

/* Returns the rows of a text computed alone [n, d_model], owned. */
static float *alone(const struct engine_run *r, const struct encoder *x, int t)
{
    float *out = test_need((size_t)(x->text[t].n * pl_model_d_model(r->model)),
                           sizeof *out);
    pl_err err;

    TEST_OK(embed(r, x, &t, 1, out, NULL, &err), err);
    return out;
}

static void check_numbers(const struct engine_run *r, const struct encoder *x,
                          double tolerance)
{
    for (int t = 0; t < N_TEXT; t++) {
        const int64_t n = x->text[t].n * pl_model_d_model(r->model);
        const int64_t n_score = x->text[t].n * pl_model_n_label(r->model);
        float *got = alone(r, x, t);
        double *v = test_need((size_t)(n + n_score), sizeof *v);
        pl_err err;

        for (int64_t i = 0; i < n; i++)
            v[i] = (double)got[i];
        keeps(x, "rows", t, v, n, tolerance);
        if (n_score > 0) {
            TEST_OK(embed(r, x, &t, 1, NULL, got, &err), err);
            for (int64_t i = 0; i < n_score; i++)
                v[i] = (double)got[i];
            keeps(x, "scores", t, v, n_score, tolerance);
        }
        free(v);
        free(got);
    }
}

TEST(encoder_rows_meet_the_equations_on_any_ranks)
{
    static const int ranks[] = {1, 2, 3, 5};

    for (int i = 0; i < N_MODEL; i++)
        for (int k = 0; k < 4; k++) {
            pl_options o = options();
            struct encoder x;
            struct engine_run r;

            encoder_init(&x, names[i]);
            o.n_ranks = ranks[k];
            engine_run_open(&r, x.path, names[i], &o);
            assert_true(pl_model_is_encoder(r.model));
            check_numbers(&r, &x, 2e-5);
            engine_run_close(&r);
            encoder_fini(&x);
        }
}

TEST(encoder_rows_meet_the_equations_on_uneven_shares)
{
    static const double shares[] = {3, 1, 2};

    for (int i = 0; i < N_MODEL; i++) {
        pl_options o = options();
        struct encoder x;
        struct engine_run r;

        encoder_init(&x, names[i]);
        o.devices = "cpu*3";
        o.tensor_split = shares;
        o.n_tensor_split = 3;
        engine_run_open(&r, x.path, names[i], &o);
        check_numbers(&r, &x, 2e-5);
        engine_run_close(&r);
        encoder_fini(&x);
    }
}

/* Fails unless the rows of the longest text under `o` have the bits `want`. */
static void same_bits(const struct encoder *x, pl_options o, const float *want,
                      const char *what)
{
    struct engine_run r;
    float *got;

    engine_run_open(&r, x->path, what, &o);
    got = alone(&r, x, 2);
    if (memcmp(got, want,
               (size_t)(x->text[2].n * pl_model_d_model(r.model)) *
                   sizeof *got) != 0)
        fail_msg("%s: %s: other bits", x->name, what);
    free(got);
    engine_run_close(&r);
}

static void check_placements(const char *name)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
        bool host_cache, host_layers;
    } ways[] = {{"cpu*2", PL_SPLIT_TENSOR, false, false},
                {"cpu*3", PL_SPLIT_TENSOR, true, false},
                {"cpu*3", PL_SPLIT_LAYER, false, false},
                {"sim*4", PL_SPLIT_HYBRID, false, false},
                {"sim*2", PL_SPLIT_TENSOR, false, true},
                {"cpu,sim", PL_SPLIT_LAYER, true, false},
                {"emu*2", PL_SPLIT_TENSOR, false, false}};
    static const int ranks[] = {3, 5};

    for (int k = 0; k < 2; k++) {
        pl_options o = options();
        struct encoder x;
        struct engine_run r;
        float *want;

        encoder_init(&x, name);
        o.n_ranks = ranks[k];
        o.cpu = "generic";
        engine_run_open(&r, x.path, name, &o);
        want = alone(&r, &x, 2);
        engine_run_close(&r);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            o = options();
            o.n_ranks = ranks[k];
            o.devices = ways[i].devices;
            o.split_mode = ways[i].mode;
            o.hybrid_size = ways[i].mode == PL_SPLIT_HYBRID ? 2 : 0;
            o.host_cache = ways[i].host_cache;
            o.device_layers = ways[i].host_layers ? "1" : NULL;
            same_bits(&x, o, want, ways[i].devices);
        }
        o = options();
        o.n_ranks = ranks[k];
        o.n_threads = 3;
        same_bits(&x, o, want, "three threads");
        free(want);
        encoder_fini(&x);
    }
}

TEST(encoder_bits_do_not_depend_on_placement)
{
    check_placements("bert");
    check_placements("modern-bert");
    check_placements("gemma-embedding");
    if (test_long()) {
        check_placements("nomic-bert");
        check_placements("nomic-bert-moe");
        check_placements("jina-bert-v3");
    }
}

/* Texts in one batch, some of them in a further micro-batch. */
TEST(encoder_texts_do_not_depend_on_company)
{
    static const int all[] = {1, 2, 0, 1, 2, 1};
    enum { N = sizeof all / sizeof *all };

    for (int i = 0; i < N_MODEL; i++) {
        pl_options o = options();
        struct encoder x;
        struct engine_run r;
        float *got, *want;
        int64_t at = 0;
        pl_err err;

        encoder_init(&x, names[i]);
        o.n_ranks = 2;
        if (i % 2) {
            o.devices = "cpu*2";
            o.split_mode = PL_SPLIT_LAYER;
        }
        engine_run_open(&r, x.path, names[i], &o);
        got = test_need((size_t)(N * MAX_TEXT * pl_model_d_model(r.model)),
                        sizeof *got);
        TEST_OK(embed(&r, &x, all, N, got, NULL, &err), err);
        for (int t = 0; t < N; t++) {
            const int64_t n = x.text[all[t]].n * pl_model_d_model(r.model);

            want = alone(&r, &x, all[t]);
            assert_memory_equal(got + at, want, (size_t)n * sizeof *want);
            at += n;
            free(want);
        }
        free(got);
        engine_run_close(&r);
        encoder_fini(&x);
    }
}

/* A causal reranker: scores of the class head besides logits, after
 * a prompt at once or cut anywhere. */
TEST(reranker_scores_meet_the_equations)
{
    static const int ranks[] = {1, 3};
    float out[MAX_TEXT * 2];
    double v[MAX_TEXT * 2];

    for (int k = 0; k < 4; k++) {
        pl_options o = options();
        struct encoder x;
        struct engine_run r;
        pl_batch b;
        pl_err err;

        encoder_init(&x, "qwen3-rank");
        o.n_ranks = ranks[k % 2];
        o.n_ubatch = k < 2 ? MAX_TEXT : 7;
        engine_run_open(&r, x.path, x.name, &o);
        assert_false(pl_model_is_encoder(r.model));
        assert_int_equal(pl_model_n_label(r.model), 2);
        for (int t = 0; t < N_TEXT; t++) {
            TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
            pl_batch_init(&b);
            b.n = x.text[t].n;
            b.token = x.text[t].id;
            b.scores = out;
            TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
            for (int64_t i = 0; i < 2 * b.n; i++)
                v[i] = (double)out[i];
            keeps(&x, "scores", t, v, 2 * b.n, 2e-5);
        }
        engine_run_close(&r);
        encoder_fini(&x);
    }
}

/* ---- what an encoder rejects --------------------------------------------- */

static void must_reject(const struct engine_run *r, const pl_batch *b,
                        pl_status status, const char *text)
{
    pl_err err;

    assert_int_equal(pl_engine_decode(r->engine, b, NULL, &err), status);
    if (!strstr(err.message, text))
        fail_msg("%s", err.message);
}

TEST(encoder_batches_are_whole_texts)
{
    int32_t id[100] = {5, 6, 7}, seq[100] = {0, 1, 0};
    float out[100 * 48];
    int64_t n;
    pl_options o = options();
    struct encoder x;
    struct engine_run r;
    pl_batch b;
    pl_err err;

    encoder_init(&x, "bert");
    o.n_ubatch = 96;
    o.prefix_cache = true;
    engine_run_open(&r, x.path, "bert", &o);
    assert_int_equal(pl_engine_max_text(r.engine), 96);
    assert_int_equal(pl_model_n_label(r.model), 0);
    pl_batch_init(&b);
    b.n = 3;
    b.token = id;
    b.seq = seq;
    b.norm_out = out;
    must_reject(&r, &b, PL_BAD_ARGUMENT, "not adjacent");
    memset(seq, 0, sizeof seq);
    b.n = 97;
    must_reject(&r, &b, PL_FULL, "of at most 96");
    b.n = 3;
    b.scores = out;
    must_reject(&r, &b, PL_UNSUPPORTED, "no class head");
    b.scores = NULL;
    b.logits = out;
    must_reject(&r, &b, PL_UNSUPPORTED, "has no logits");
    b.logits = NULL;
    TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
    must_reject(&r, &b, PL_BAD_ARGUMENT, "empty the sequence first");
    /* A row depends on all tokens of its text, so no page is shared. */
    for (int i = 0; i < 2; i++) {
        TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
        TEST_OK(pl_seq_share(r.engine, 0, id, b.n, &n, &err), err);
        assert_int_equal(n, 0);
        b.n = 96;
        if (i == 0)
            TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
    }
    engine_run_close(&r);
    encoder_fini(&x);
}

/* ---- pairs of texts for rerankers ---------------------------------------- */

/* Fails unless a query and a document give the tokens want[n]. */
static void pair_gives(const char *path, const int32_t *want, int64_t n_want)
{
    pl_model *m;
    int32_t *id;
    int64_t n;
    pl_err err;

    TEST_OK(pl_model_open(&m, path, &err), err);
    TEST_OK(pl_tokenize_pair(m, "the cat", 7, "dog", 3, &id, &n, &err), err);
    assert_int_equal(n, n_want);
    assert_memory_equal(id, want, (size_t)n * sizeof *id);
    free(id);
    pl_model_free(m);
}

/* CLS query SEP document SEP, or what the file's template says. */
TEST(tokenizer_pairs_have_the_tokens_between)
{
    static const struct edit form = {"tokenizer.chat_template.rerank",
                                     EDIT_TEXT, 0, "on {document} {query}"};
    enum { CLS = 2, SEP, THE = 72, CAT, DOG, SAT, ON };
    struct encoder x;

    encoder_init(&x, "bert-rank");
    pair_gives(x.path, (const int32_t[]){CLS, THE, CAT, SEP, DOG, SEP}, 6);
    pair_gives(edit_model(x.path, true, &form, 1),
               (const int32_t[]){CLS, ON, DOG, THE, CAT, SEP}, 6);
    encoder_fini(&x);
}
