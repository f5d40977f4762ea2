/* Every tensor of every supported model, one at a time, overridden to every
 * placement and to every layout.
 *
 * A placement changes no bit. A layout changes the order of sums: floats stay
 * within the references' limits (max 1e-3, rms 1e-4). A layout that the tensor
 * cannot have is rejected with PL_BAD_ARGUMENT before anything is loaded. The
 * long tier has every tensor, the short one every ninth, different ones for
 * each placement. */
#include "lib/engine_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { N = 9 };

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const struct {
    const char *name;
    bool floats;
} models[] = {
    {"llama-yarn-f32", true},    {"llama3-tied-ropefreqs-f16", false},
    {"qwen2-bias-f32", true},    {"qwen3-tied-f32", true},
    {"qwen3moe-f32", true},      {"glm4moe-f32", true},
    {"llama-moe-f32", true},     {"qwen3moe-q-q4_k_m", false},
    {"glm4moe-q-q4_k_m", false}, {"gemma4-ple-sharedkv-f32", true},
    {"gemma4-moe-f32", true},    {"qwen35moe-f32", true},
};

static const struct {
    const char *devices;
    pl_split_mode mode;
    const char *where;
} places[] = {
    {"cpu*2", PL_SPLIT_TENSOR, "host"},  {"cpu*2", PL_SPLIT_TENSOR, "cpu1"},
    {"sim*2", PL_SPLIT_TENSOR, "host"},  {"sim*2", PL_SPLIT_TENSOR, "sim0"},
    {"cpu,sim", PL_SPLIT_LAYER, "host"}, {"sim*2", PL_SPLIT_LAYER, "layer1"},
    {"cpu*3", PL_SPLIT_LAYER, "layer0"}, {"sim*2", PL_SPLIT_NONE, "sim1"},
};
static const char *const layouts[] = {"mirrored", "split:0", "split:1",
                                      "split:2"};

static pl_options options(bool floats)
{
    pl_options o = engine_run_options();

    o.n_ranks = 3;
    o.cpu = floats ? "reference" : NULL;
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    return o;
}

/* Lists the names of all weights in name[]. Returns their number. */
static int weights(const pl_model *m, const char **name, int most)
{
    pl_options o = options(true);
    pl_plan *p;
    pl_err err;
    int n = 0;

    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    for (int i = 0; i < p->graph->n_node && n < most; i++)
        if (p->graph->node[i].op == OP_weight)
            name[n++] = strdup(p->graph->node[i].name);
    pl_plan_free(p);
    return n;
}

/* Decodes N tokens at once, then one more. Returns false if the options are
 * rejected. */
static bool run(const pl_model *m, const pl_options *o, const char *what,
                float *out)
{
    uint64_t random = 5;
    int32_t token[N + 1];
    struct engine_run r = {.n_vocab = pl_model_n_vocab(m)};
    pl_err err;
    pl_status s = pl_engine_create(&r.engine, m, o, &err);

    if (s == PL_BAD_ARGUMENT)
        return false;
    if (s != PL_OK)
        fail_msg("%s: %s", what, err.message);
    engine_run_tokens(&(struct engine_run){.n_vocab = r.n_vocab}, &random,
                      N + 1, token);
    engine_run_decode(&r, 0, N, token, out);
    engine_run_decode(&r, 0, 1, token + N, out + N * r.n_vocab);
    pl_engine_free(r.engine);
    return true;
}

/* Decodes some tokens with the tensor `name` overridden to `where`. Returns
 * false if the override was rejected. */
static bool run_as(const pl_model *m, pl_options o, const char *name,
                   const char *where, const char *what, float *out)
{
    char text[160];
    const char *override = text;

    snprintf(text, sizeof text, "^%s$=%s", name, where);
    o.overrides = &override;
    o.n_overrides = 1;
    return run(m, &o, what, out);
}

struct count {
    int placed, laid, refused;
};

static void one_model(int k, int step, struct count *c)
{
    char file[128], what[256];
    const char *name[256];
    pl_model *m;
    float *want, *got;
    size_t n;
    int n_name;
    pl_err err;
    pl_options o = options(models[k].floats);

    snprintf(file, sizeof file, "%s.gguf", models[k].name);
    TEST_OK(pl_model_open(&m, test_ref_need(file), &err), err);
    n = (size_t)((N + 1) * pl_model_n_vocab(m));
    want = malloc(n * sizeof *want);
    got = malloc(n * sizeof *got);
    assert_true(want && got);
    n_name = weights(m, name, COUNT(name));
    assert_in_range(n_name, 10, COUNT(name) - 1);
    assert_true(run(m, &o, "one device", want));
    for (int p = 0; p < COUNT(places); p++)
        for (int i = (p + k) % step; i < n_name; i += step, c->placed++) {
            o = options(models[k].floats);
            o.devices = places[p].devices;
            o.split_mode = places[p].mode;
            o.offload = (pl_offload)((i + p) % 3);
            o.sim_seed = (uint64_t)(i + 1);
            snprintf(what, sizeof what, "%s, -dev %s, split mode %d, %s=%s",
                     models[k].name, o.devices, (int)o.split_mode, name[i],
                     places[p].where);
            if (!run_as(m, o, name[i], places[p].where, what, got))
                fail_msg("%s: refused", what);
            if (memcmp(want, got, n * sizeof *got))
                fail_msg("%s: other bits than one device's", what);
        }
    for (int l = 0; l < COUNT(layouts) && models[k].floats; l++)
        for (int i = (l + k) % step; i < n_name; i += step) {
            double most = 0, sum = 0;

            o = options(true);
            o.devices = l % 2 ? "cpu*3" : "sim*3";
            o.split_mode = PL_SPLIT_TENSOR;
            snprintf(what, sizeof what, "%s, %s=%s", models[k].name, name[i],
                     layouts[l]);
            if (!run_as(m, o, name[i], layouts[l], what, got)) {
                c->refused++;
                continue;
            }
            c->laid++;
            for (size_t j = 0; j < n; j++) {
                double d = fabs((double)want[j] - (double)got[j]);

                most = d <= most ? most : d;
                sum += d * d;
            }
            if (!(most <= 1e-3) || sqrt(sum / (double)n) > 1e-4)
                fail_msg("%s: max %g, rms %g off", what, most,
                         sqrt(sum / (double)n));
        }
    for (int i = 0; i < n_name; i++)
        free((char *)name[i]);
    free(want);
    free(got);
    pl_model_free(m);
}

TEST(engine_override_of_each_tensor_to_each_place)
{
    struct count c = {0};

    for (int k = 0; k < COUNT(models); k++)
        one_model(k, test_long() ? 1 : 9, &c);
    print_message("%d places give the same bits, %d layouts the same values; "
                  "%d layouts cannot be\n",
                  c.placed, c.laid, c.refused);
}

/* A pl_log_fn that keeps the text of warnings. */
static void keep(void *user, pl_log_level level, const char *text)
{
    if (level == PL_LOG_WARN)
        test_text_add(user, text, strlen(text));
}

TEST(engine_override_tells_of_layouts_that_cannot_be)
{
    static const struct {
        const char *override, *told;
    } rows[] = {
        {"ffn_up_exps=split:0",
         "blk.0.ffn_up_exps.weight is mirrored instead of split:0, because an "
         "op that reads it needs that layout; likewise "},
        {"output_norm=split:0",
         "output_norm.weight is mirrored instead of split:0"},
        {"ffn_up_exps=split:1", NULL},
        {"ffn_up_exps=split:2", NULL},
        {"ffn_up_exps=mirrored", NULL},
        {"attn_q.w=split:0", NULL},
        {"attn_q.w=split:1", NULL},
        {"ffn_up_exps=host", NULL},
    };
    pl_model *m;

    assert_int_equal(
        pl_model_open(&m, test_ref_need("qwen3moe-f32.gguf"), NULL), PL_OK);
    for (int i = 0; i < COUNT(rows); i++) {
        struct test_text said = {0};
        pl_options o = options(true);
        pl_plan *p;

        o.devices = "cpu*2";
        o.n_ranks = 2;
        o.split_mode = PL_SPLIT_TENSOR;
        o.overrides = &rows[i].override;
        o.n_overrides = 1;
        o.log = keep;
        o.log_user = &said;
        assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
        if (rows[i].told ? !said.s || !strstr(said.s, rows[i].told)
                         : said.s != NULL)
            fail_msg("%s: %s", rows[i].override, said.s ? said.s : "nothing");
        pl_plan_free(p);
        free(said.s);
    }
    pl_model_free(m);
}
