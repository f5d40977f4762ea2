/* Synthetic models: each known shape opens, has about the number of weights
 * that its name states, and can be planned for one memory and for GPUs that
 * share it, with two sums a layer or the reason for more. The files have holes
 * instead of weights. Costs the gate 4 s. */
#include "lib/support.h"
#include "pl.h"
#include "quant/format.h"
#include "synth/synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of weights that a name such as "lfm2-1.2b" states. */
static double stated(const char *name)
{
    const char *at = strrchr(name, '-');
    char *unit;
    double n = strtod(at + 1, &unit);

    return n * (*unit == 't' ? 1e12 : *unit == 'b' ? 1e9 : 1e6);
}

static void check_size(const struct synth_shape *s)
{
    struct synth_type t;
    uint64_t bytes;
    double ratio;
    pl_err err;

    TEST_OK(synth_type(&t, "f32", &err), err);
    TEST_OK(synth_bytes(s, &t, &bytes, &err), err);
    ratio = (double)bytes / 4 / stated(s->name);
    if (!(ratio > 0.9 && ratio < 1.12))
        fail_msg("%s: %.4g weights", s->name, (double)bytes / 4);
}

/* Checks that the plan gives the reason of each AllReduce that a layer has
 * beside one for attention and one for the feed-forward part. */
static void check_sums(const struct synth_shape *s, const pl_plan *p)
{
    static const char why[] = ", for a norm over all heads";
    struct test_text t = {0};
    int n = 0;
    pl_err err;

    TEST_OK(pl_plan_print(p, false, test_text_add, &t, &err), err);
    for (char *line = t.s, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (!strstr(line, "  AllReduce "))
            n = 0; /* other layers follow */
        n += strstr(line, "  AllReduce ") && !strstr(line, why);
        if (n > 2)
            fail_msg("%s: a layer has more than two sums: %s", s->name, line);
    }
    free(t.s);
}

static void check_plan(const struct synth_shape *s, const char *path,
                       const char *machine, int n_ranks)
{
    const pl_options opt = {.size = sizeof opt,
                            .device_spec = machine,
                            .n_ctx = 512,
                            .n_ranks = n_ranks};
    pl_model *m;
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_model_open(&m, path, &err), err);
    if (pl_plan_create(&p, m, &opt, &err) != PL_OK)
        fail_msg("%s on %s: %s", s->name, machine, err.message);
    check_sums(s, p);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Shapes have the biases of the models that they are named after, and a wrong
 * name of any length is answered by all names. */
TEST(synth_shapes_are_named_and_have_biases)
{
    static const struct {
        const char *shape, *bias;
    } rows[] = {{"gpt-oss-20b", "ffn_down_exps.bias"},
                {"gpt-oss-120b", "ffn_gate_inp.bias"},
                {"glm4moe-106b", "attn_k.bias"},
                {"starcoder2-7b", "ffn_up.bias"}};
    char wrong[400];
    const char *last = "";
    const struct synth_shape *s;
    pl_err err;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_non_null(
            strstr(synth_shape(rows[i].shape, &err)->optional, rows[i].bias));
    for (int i = 0; (s = synth_shape_at(i)); i++)
        if (strcmp(s->name, "tiny") != 0)
            last = s->name;
    memset(wrong, 'x', sizeof wrong - 1);
    wrong[sizeof wrong - 1] = '\0';
    assert_null(synth_shape(wrong, &err));
    assert_non_null(strstr(err.message, last));
}

TEST(synth_shapes_open_and_can_be_planned)
{
    const int one_in = 4 / test_draws(1, 4);
    const struct synth_shape *s;
    int n = 0;

    for (int i = 0; (s = synth_shape_at(i)); i++) {
        const char *path = test_temp("shape.gguf");
        struct synth_type t;
        pl_err err;

        if (strcmp(s->name, "tiny") == 0)
            continue;
        check_size(s);
        if (i % one_in != (int)(test_seed() % (uint64_t)one_in))
            continue;
        TEST_OK(synth_type(&t, "q4_k_m", &err), err);
        TEST_OK(synth_save(s, &t, path, true, NULL, &err), err);
        check_plan(s, path, "cpu:2TiB:400GB/s", 1);
        check_plan(s, path, "gpu:512GiB:2TB/s*4", 4);
        n++;
    }
    assert_true(n > 8);
}

/* Writes a model with its weights, computes a text of 16 tokens, and returns
 * the sum of squares of its n_row * width results. */
static double computed(const struct synth_shape *s, bool encoder, int64_t width)
{
    const char *path = test_temp("written.gguf");
    pl_options opt = {.size = sizeof opt, .devices = "cpu", .n_ctx = 64};
    int32_t token[16];
    float *out = test_need(16 * (size_t)width, sizeof *out);
    pl_batch b = {.size = sizeof b, .n = 16, .token = token};
    struct synth_type t;
    double sum = 0;
    pl_engine *e;
    pl_model *m;
    pl_err err;

    *(encoder ? &b.norm_out : &b.logits) = out;
    TEST_OK(synth_type(&t, "q8_0", &err), err);
    TEST_OK(synth_save(s, &t, path, false, NULL, &err), err);
    TEST_OK(pl_model_open(&m, path, &err), err);
    TEST_OK(pl_engine_create(&e, m, &opt, &err), err);
    for (int i = 0; i < 16; i++)
        token[i] = 300 + 7 * i;
    TEST_OK(pl_engine_decode(e, &b, NULL, &err), err);
    for (int64_t i = 0; i < 16 * width; i++)
        sum += (double)out[i] * out[i];
    pl_engine_free(e);
    pl_model_free(m);
    free(out);
    return sum;
}

TEST(synth_models_of_keys_compute)
{
    static const struct synth_array ratios[] = {
        {"attention.compress_ratios", "0cC", 'c', 4, 'C', 128}};
    static const struct synth_shape v4 = {
        .name = "small",
        .arch = "deepseek4",
        .n_vocab = 512,
        .keys = ".block_count=int:3,.embedding_length=int:64,"
                ".attention.head_count=int:4,.attention.head_count_kv=int:1,"
                ".attention.key_length=int:32,.attention.value_length=int:32,"
                ".attention.q_lora_rank=int:32,.context_length=int:4096,"
                ".attention.layer_norm_rms_epsilon=float:1e-6,"
                ".rope.dimension_count=int:16,.attention.sliding_window=int:8,"
                ".attention.output_group_count=int:2,"
                ".attention.output_lora_rank=int:32,.hash_layer_count=int:2,"
                ".hyper_connection.count=int:4,"
                ".hyper_connection.sinkhorn_iterations=int:4,"
                ".hyper_connection.epsilon=float:1e-6,"
                ".attention.compress_rope_freq_base=float:1e4,"
                ".attention.indexer.head_count=int:2,"
                ".attention.indexer.key_length=int:32,"
                ".attention.indexer.top_k=int:4,.expert_count=int:6,"
                ".expert_used_count=int:3,.expert_shared_count=int:1,"
                ".expert_feed_forward_length=int:32,"
                ".expert_gating_func=int:4",
        .optional = "output.weight exp_probs_b.bias",
        .array = ratios,
        .n_array = 1};
    double sum = computed(&v4, false, v4.n_vocab);

    assert_true(isfinite(sum) && sum > 1);
    sum = computed(synth_shape("bert-33m", NULL), true, 384);
    assert_true(isfinite(sum) && sum > 1);
}
