/* Whole models in each block format that no reference model has. Random blocks
 * give the logits of the same model in F32, made from the decoded blocks. */
#include <stdlib.h>
#include <string.h>

#include "lib/engine_run.h"
#include "lib/support.h"
#include "quant/format.h"
#include "synth/synth.h"

/* N_VOCAB is the vocabulary's size of the shape "tiny" */
enum { N_TOKEN = 24, N_VOCAB = 512 };

static const pl_format formats[] = {PL_IQ1_S, PL_IQ1_M,   PL_IQ2_XXS, PL_IQ2_XS,
                                    PL_IQ2_S, PL_IQ3_XXS, PL_IQ3_S,   PL_TQ1_0,
                                    PL_TQ2_0, PL_NVFP4,   PL_IQ4_XS};

static void make(pl_format f, const char *path)
{
    const struct synth_shape *shape;
    struct synth_type type;
    pl_err err = {0};

    shape = synth_shape("tiny", &err);
    assert_non_null(shape);
    TEST_OK(synth_type(&type, format_info(f)->name, &err), err);
    TEST_OK(synth_save(shape, &type, path, false, NULL, &err), err);
}

/* Returns the decoded values of a tensor, which the caller frees. */
static float *decoded(const struct gguf_tensor *t)
{
    int64_t n = 1;
    float *v;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    v = test_need((size_t)n, sizeof *v);
    format_info(t->format)->decode(v, t->data, n);
    return v;
}

/* Writes a copy of the file with all tensors in F32. */
static void make_decoded(const char *from, const char *path)
{
    struct gguf_writer *w;
    struct gguf *g;
    float **value;
    pl_err err = {0};

    TEST_OK(gguf_open(&g, from, &err), err);
    TEST_OK(gguf_writer_create(&w, &err), err);
    value = test_need((size_t)gguf_n_tensor(g), sizeof(*value));
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        value[i] = decoded(t);
        gguf_put_tensor(w, t->name, PL_F32, t->n_dim, t->dim, value[i]);
    }
    TEST_OK(gguf_writer_save(w, path, &err), err);
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        free(value[i]);
    free(value);
    gguf_writer_free(w);
    gguf_close(g);
}

static void logits(const char *path, const pl_options *o, float *out)
{
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t token[N_TOKEN];

    engine_run_open(&r, path, path, o);
    assert_int_equal(r.n_vocab, N_VOCAB);
    engine_run_tokens(&r, &seed, N_TOKEN, token);
    engine_run_decode(&r, 0, N_TOKEN, token, out);
    engine_run_close(&r);
}

static void must_equal(const float *a, const float *b, pl_format f,
                       const char *what)
{
    if (memcmp(a, b, sizeof(float) * N_TOKEN * N_VOCAB) != 0)
        fail_msg("%s: other logits %s", format_info(f)->name, what);
}

/* `reference` multiplies decoded weights, in the same order for all formats. */
TEST(engine_logits_of_blocks_are_those_of_their_values)
{
    static float got[N_TOKEN * N_VOCAB], want[N_TOKEN * N_VOCAB];

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const char *blocks = test_temp("blocks.gguf");
        const char *values = test_temp("values.gguf");
        pl_options o = engine_run_options();

        make(formats[i], blocks);
        make_decoded(blocks, values);
        o.cpu = "reference";
        logits(blocks, &o, got);
        logits(values, &o, want);
        must_equal(got, want, formats[i], "than the values that it holds");
    }
}

/* Three ranks cut rows of 256 values where no block ends. */
TEST(engine_logits_of_blocks_do_not_depend_on_devices)
{
    static float got[N_TOKEN * N_VOCAB], want[N_TOKEN * N_VOCAB];
    static const struct {
        const char *devices, *cpu;
        int64_t n_ubatch;
    } runs[] = {{"cpu", "generic", 64},
                {"cpu*3", NULL, 64},
                {"cpu,sim", NULL, 7},
                {"cpu*2", NULL, 1},
                {"emu*2", NULL, 7}};

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const char *path = test_temp("blocks.gguf");
        pl_options o = engine_run_options();

        make(formats[i], path);
        o.n_ranks = 3;
        logits(path, &o, want);
        for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
            if (!strncmp(runs[k].devices, "emu", 3) && i % 3 && !test_long())
                /* the emulator is slow, and test_cpu_matmul.c tries each format
                 * on it */
                continue;
            o.devices = runs[k].devices;
            o.cpu = runs[k].cpu;
            o.n_ubatch = runs[k].n_ubatch;
            logits(path, &o, got);
            must_equal(got, want, formats[i], runs[k].devices);
        }
    }
}
