/* Quantized files: the formats that the type's name promises, values that
 * decode to what the search gave, all else byte for byte, and the same bytes
 * whatever the number of threads. Nothing is lost by a failure. */
#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/ref_models.h"
#include "pl_quantize.h"
#include "quant/format.h"
#include "quant/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a small model ------------------------------------------------------- */

enum { D = 256, ROWS = 64, N_LAYER = 12, N_EXPERT = 2 };

/* One tensor of each kind that the rules know. */
static const struct made {
    const char *name; /* %d: in each layer */
    int n_dim;
    int64_t dim[3];
} tensors[] = {
    {"token_embd.weight", 2, {64, D}},
    {"blk.%d.attn_norm.weight", 1, {D}},
    {"blk.%d.attn_q.weight", 2, {ROWS, D}},
    {"blk.%d.attn_k.weight", 2, {ROWS / 2, D}},
    {"blk.%d.attn_v.weight", 2, {ROWS / 2, D}},
    {"blk.%d.attn_output.weight", 2, {ROWS, D}},
    {"blk.%d.ffn_gate_inp.weight", 2, {N_EXPERT, D}},
    {"blk.%d.ffn_gate_exps.weight", 3, {N_EXPERT, 32, D}},
    {"blk.%d.ffn_up_exps.weight", 3, {N_EXPERT, 32, D}},
    {"blk.%d.ffn_down_exps.weight", 3, {N_EXPERT, D, 32}},
    {"output_norm.weight", 1, {D}},
    {"output.weight", 2, {64, D}},
};

static bool fill(void *user, int64_t row, void *dst, size_t bytes)
{
    uint64_t *seed = user;

    (void)row;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        float v = test_unit(seed) * test_unit(seed);

        memcpy((char *)dst + i * sizeof v, &v, sizeof v);
    }
    return true;
}

static void put_model_keys(struct gguf_writer *w)
{
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_u32(w, "general.file_type", 0);
    gguf_put_u32(w, "llama.block_count", N_LAYER);
    gguf_put_u32(w, "llama.expert_count", N_EXPERT);
    gguf_put_u32(w, "llama.attention.head_count", 8);
    gguf_put_u32(w, "llama.attention.head_count_kv", 4);
    gguf_put_strs(w, "tokenizer.ggml.tokens",
                  (struct gguf_str[]){{"a", 1}, {"b\0c", 3}}, 2);
}

/* Writes the tensors of parts [part] of n_part: those of a part's layers. */
static void write_part(const char *path, int part, int n_part)
{
    struct gguf_writer *w;
    uint64_t seed = 7 + (uint64_t)part;
    char name[64];
    pl_err err;
    int n = 0;

    TEST_OK(gguf_writer_create(&w, &err), err);
    if (part == 0)
        put_model_keys(w);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const struct made *t = &tensors[i];
        const bool each = strchr(t->name, '%') != NULL;

        for (int l = 0; l < (each ? N_LAYER : 1); l++) {
            n++;
            if ((each ? l * n_part / N_LAYER : 0) != part)
                continue;
            snprintf(name, sizeof name, t->name, l);
            gguf_put_tensor_fill(w, name, PL_F32, t->n_dim, t->dim, fill,
                                 &seed);
        }
    }
    if (n_part > 1) {
        gguf_put_u16(w, "split.no", (uint16_t)part);
        gguf_put_u16(w, "split.count", (uint16_t)n_part);
        gguf_put_i32(w, "split.tensors.count", n);
    }
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
}

static const char *model(void)
{
    const char *path = test_temp("model.gguf");

    if (access(path, F_OK) != 0)
        write_part(path, 0, 1);
    return path;
}

static pl_quantize_options options(const char *type)
{
    pl_quantize_options o;

    pl_quantize_init(&o);
    o.type = type;
    o.n_threads = 2;
    return o;
}

static void quantize(const char *in, const char *out,
                     const pl_quantize_options *o)
{
    pl_err err;

    TEST_OK(pl_quantize(in, out, o, NULL, 0, &err), err);
}

static struct gguf *reopen(const char *path)
{
    struct gguf *g;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    return g;
}

static pl_format format_of(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);

    assert_non_null(t);
    return t->format;
}

/* ---- formats ------------------------------------------------------------- */

/* The files of other engines say which formats their types mean: quantizing
 * them to the type in their name changes nothing. */
TEST(quantize_agrees_with_files_of_llama_cpp)
{
    static const char *const types[] = {"q4_k_m", "q5_k_m", "mxfp4_moe"};
    int n = 0;

    for (const char *const *name = ref_models(true); *name; name++) {
        pl_quantize_result r;
        pl_err err;

        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            size_t len = strlen(*name), end = strlen(types[i]);
            pl_quantize_options o = options(types[i]);

            if (len < end || strcmp(*name + len - end, types[i]) != 0)
                continue;
            o.requantize = o.dry_run = true;
            TEST_OK(pl_quantize(ref_model_path(*name), NULL, &o, &r, sizeof r,
                                &err),
                    err);
            if (r.n_quantized != 0)
                fail_msg("%s: %d of %d tensors have another format", *name,
                         r.n_quantized, r.n_tensor);
            n++;
        }
    }
    assert_true(n >= 5);
}

TEST(quantize_gives_more_bits_where_the_mix_says)
{
    static const struct {
        const char *type, *name;
        pl_format format;
    } rows[] = {
        {"Q4_K_M", "token_embd.weight", PL_Q4_K},
        {"Q4_K_M", "output.weight", PL_Q6_K},
        {"Q4_K_M", "blk.0.attn_v.weight", PL_Q6_K},
        {"Q4_K_M", "blk.1.attn_v.weight", PL_Q4_K},
        {"Q4_K_M", "blk.3.attn_v.weight", PL_Q6_K},
        {"Q4_K_M", "blk.10.attn_v.weight", PL_Q6_K},
        {"Q4_K_M", "blk.0.attn_q.weight", PL_Q4_K},
        /* 32 columns: Q6_K and Q4_K do not fit */
        {"Q4_K_M", "blk.0.ffn_down_exps.weight", PL_Q8_0},
        {"Q4_K_M", "blk.1.ffn_down_exps.weight", PL_Q5_0},
        {"Q4_K_M", "blk.0.ffn_gate_inp.weight", PL_F32},
        {"Q4_K_M", "blk.0.attn_norm.weight", PL_F32},
        {"q4_k_s", "blk.3.attn_v.weight", PL_Q5_K},
        {"q4_k_s", "blk.4.attn_v.weight", PL_Q4_K},
        {"Q3_K_L", "blk.0.attn_output.weight", PL_Q5_K},
        {"Q3_K_M", "blk.2.attn_v.weight", PL_Q4_K},
        {"Q2_K", "blk.2.attn_output.weight", PL_Q3_K},
        {"Q2_K", "blk.2.ffn_down_exps.weight", PL_Q4_0},
        {"IQ4_XS", "blk.2.attn_q.weight", PL_IQ4_XS},
        {"MXFP4_MOE", "blk.2.ffn_down_exps.weight", PL_MXFP4},
        {"MXFP4_MOE", "blk.2.attn_q.weight", PL_Q8_0},
        {"MXFP4_MOE", "output.weight", PL_Q8_0},
        {"Q8_0", "output.weight", PL_Q8_0},
        {"F16", "output.weight", PL_F16},
        {"BF16", "blk.2.attn_v.weight", PL_BF16},
        {"15", "output.weight", PL_Q6_K},
    };
    const char *out = test_temp("rules.gguf"), *last = "";
    struct gguf *g = NULL;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_quantize_options o = options(rows[i].type);

        if (strcmp(rows[i].type, last) != 0) {
            quantize(model(), out, &o);
            gguf_close(g);
            g = reopen(out);
            last = rows[i].type;
        }
        if (format_of(g, rows[i].name) != rows[i].format)
            fail_msg("%s: %s is %s", rows[i].type, rows[i].name,
                     format_info(format_of(g, rows[i].name))->name);
    }
    gguf_close(g);
}

/* Numbers of layers in a file may be any. */
TEST(quantize_takes_any_number_of_layers)
{
    static const char *const names[] = {
        "blk.9223372036854775807.attn_v.weight",
        "blk.-9223372036854775808.ffn_down.weight",
        "blk.99999999999999999999999.attn_v.weight", "blk..attn_v.weight",
        "blk.0.ffn_down.weight"};
    static const int64_t layers[] = {INT64_MAX, INT64_MIN, -1, 0, 1};
    const char *in = test_temp("layers.gguf"), *out = test_temp("l-out.gguf");
    float *x = test_need(2 * D, sizeof *x);

    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        pl_quantize_options o = options("Q4_K_M");
        struct gguf_writer *w;
        struct gguf *g;
        pl_err err;

        TEST_OK(gguf_writer_create(&w, &err), err);
        gguf_put_str(w, "general.architecture", "llama");
        gguf_put_i64(w, "llama.block_count", layers[i]);
        gguf_put_i64(w, "llama.expert_count", layers[i]);
        gguf_put_i64(w, "llama.attention.head_count", layers[i]);
        gguf_put_i64(w, "llama.attention.head_count_kv", layers[4 - i]);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            gguf_put_tensor(w, names[k], PL_F32, 2, (int64_t[]){2, D}, x);
        gguf_put_tensor(w, "blk.1.attn_v.weight", PL_F32, 2, (int64_t[]){1, D},
                        x);
        TEST_OK(gguf_writer_save(w, in, &err), err);
        gguf_writer_free(w);
        quantize(in, out, &o);
        g = reopen(out);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            assert_int_not_equal(format_of(g, names[k]), PL_F32);
        /* one row is a vector */
        assert_int_equal(format_of(g, "blk.1.attn_v.weight"), PL_F32);
        gguf_close(g);
    }
    free(x);
}

TEST(quantize_takes_formats_of_options)
{
    static const char *const types[] = {"blk\\.[01]\\.ATTN_Q=q8_0",
                                        "attn_q=F16", "down_exps=IQ4_NL"};
    const char *out = test_temp("options.gguf");
    pl_quantize_options o = options("Q4_K_M");
    struct gguf *g;

    o.tensor_types = types;
    o.n_tensor_types = 3;
    o.output_type = "Q5_K";
    o.embedding_type = "bf16";
    quantize(model(), out, &o);
    g = reopen(out);
    assert_int_equal(format_of(g, "blk.0.attn_q.weight"), PL_Q8_0);
    assert_int_equal(format_of(g, "blk.2.attn_q.weight"), PL_F16);
    assert_int_equal(format_of(g, "blk.0.ffn_down_exps.weight"), PL_IQ4_NL);
    assert_int_equal(format_of(g, "blk.0.ffn_up_exps.weight"), PL_Q4_K);
    assert_int_equal(format_of(g, "output.weight"), PL_Q5_K);
    assert_int_equal(format_of(g, "token_embd.weight"), PL_BF16);
    gguf_close(g);

    o = options("Q4_K_M");
    o.pure = o.leave_output = true;
    quantize(model(), out, &o);
    g = reopen(out);
    assert_int_equal(format_of(g, "output.weight"), PL_F32);
    assert_int_equal(format_of(g, "blk.0.attn_v.weight"), PL_Q4_K);
    assert_int_equal(format_of(g, "blk.0.ffn_down_exps.weight"), PL_Q5_0);
    gguf_close(g);
}

/* ---- contents ------------------------------------------------------------ */

static void *data_of(const struct gguf *g, const struct gguf_tensor *t)
{
    void *data = test_need(1, t->bytes);
    pl_err err;

    TEST_OK(gguf_read(g, t, 0, data, t->bytes, &err), err);
    return data;
}

/* Every tensor has the bytes that the search gives its rows, or those of the
 * input. */
TEST(quantize_writes_what_the_search_gives)
{
    static const char *const types[] = {"Q4_K_M", "Q8_0", "IQ4_NL"};
    const char *out = test_temp("bytes.gguf");
    struct gguf *from = reopen(model());

    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        pl_quantize_options o = options(types[k]);
        struct gguf *to;

        quantize(model(), out, &o);
        to = reopen(out);
        assert_int_equal(gguf_n_tensor(to), gguf_n_tensor(from));
        for (int64_t i = 0; i < gguf_n_tensor(to); i++) {
            const struct gguf_tensor *a = gguf_tensor_at(from, i);
            const struct gguf_tensor *b = gguf_tensor_at(to, i);
            float *x = data_of(from, a);
            char *y = data_of(to, b), *want = test_need(1, b->bytes);
            const int64_t n = (int64_t)(a->bytes / sizeof *x);

            assert_string_equal(a->name, b->name);
            assert_int_equal(a->n_dim, b->n_dim);
            assert_memory_equal(a->dim, b->dim, sizeof a->dim);
            if (b->format == PL_F32)
                memcpy(want, x, b->bytes);
            else
                quant_search(b->format, want, x, NULL, n);
            assert_memory_equal(y, want, b->bytes);
            free(x);
            free(y);
            free(want);
        }
        gguf_close(to);
    }
    gguf_close(from);
}

/* A tensor larger than a batch of rows has no seam. */
TEST(quantize_joins_batches_of_rows)
{
    enum { N = 2 * 4096 + 5 };
    const char *in = test_temp("long.gguf"), *out = test_temp("long-out.gguf");
    pl_quantize_options o = options("Q4_0");
    float *x = test_need(N * D, sizeof *x);
    char *want = test_need(format_row_bytes(PL_Q4_0, N * D), 1), *got;
    uint64_t seed = test_seed();
    struct gguf_writer *w;
    struct gguf *g;
    pl_err err;

    for (int i = 0; i < N * D; i++)
        x[i] = test_unit(&seed);
    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_tensor(w, "blk.0.attn_q.weight", PL_F32, 2, (int64_t[]){N, D}, x);
    gguf_put_tensor(w, "x", PL_F32, 2, (int64_t[]){N, D}, x);
    TEST_OK(gguf_writer_save(w, in, &err), err);
    gguf_writer_free(w);
    o.no_search = true;
    o.n_threads = 1;
    quantize(in, out, &o);
    quant_round(PL_Q4_0, want, x, N * D);
    g = reopen(out);
    got = data_of(g, gguf_find_tensor(g, "blk.0.attn_q.weight"));
    assert_memory_equal(got, want, format_row_bytes(PL_Q4_0, N * D));
    free(got);
    got = data_of(g, gguf_find_tensor(g, "x"));
    assert_memory_equal(got, x, N * D * sizeof *x);
    gguf_close(g);
    free(got);
    free(want);
    free(x);
}

static int64_t number(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v = -1;

    assert_true(kv == NULL || gguf_as_i64(kv, 0, &v));
    return v;
}

static bool same_value(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (a->type != b->type || a->elem != b->elem || a->count != b->count)
        return false;
    for (uint64_t i = 0; i < a->count; i++) {
        struct gguf_str s, t;
        double x, y;

        if (gguf_as_str(a, i, &s) && gguf_as_str(b, i, &t)) {
            if (s.len != t.len || memcmp(s.s, t.s, s.len) != 0)
                return false;
        } else if (!gguf_as_f64(a, i, &x) || !gguf_as_f64(b, i, &y) || x != y) {
            return false;
        }
    }
    return true;
}

TEST(quantize_keeps_all_other_keys)
{
    const char *out = test_temp("keys.gguf");
    pl_quantize_options o = options("Q5_K_M");
    struct gguf *from = reopen(model()), *to;

    quantize(model(), out, &o);
    to = reopen(out);
    assert_int_equal(number(to, "general.file_type"), 17);
    assert_int_equal(number(to, "general.quantization_version"), 2);
    assert_int_equal(gguf_n_kv(to), gguf_n_kv(from) + 1);
    for (int64_t i = 0; i < gguf_n_kv(from); i++) {
        const struct gguf_kv *kv = gguf_kv_at(from, i);

        if (strcmp(kv->key, "general.file_type") != 0)
            assert_true(same_value(kv, gguf_find(to, kv->key)));
    }
    gguf_close(from);
    gguf_close(to);
}

TEST(quantize_gives_the_same_bytes_with_any_threads)
{
    size_t n[2];
    void *file[2];

    for (int i = 0; i < 2; i++) {
        const char *out = test_temp(i ? "threads-5.gguf" : "threads-1.gguf");
        pl_quantize_options o = options("IQ4_XS");

        o.n_threads = i ? 5 : 1;
        o.errors = i;
        quantize(model(), out, &o);
        file[i] = test_read(out, &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(file[0], file[1], n[0]);
    free(file[0]);
    free(file[1]);
}

/* ---- importances --------------------------------------------------------- */

/* Writes importances of the matrices of 256 columns: column 3 matters most. */
static const char *importances(void)
{
    const char *path = test_temp("importances.gguf");
    struct gguf_writer *w;
    float sums[D], one = 1;
    char name[2][80];
    pl_err err;

    TEST_OK(gguf_writer_create(&w, &err), err);
    for (int i = 0; i < D; i++)
        sums[i] = i == 3 ? 1000 : 1;
    gguf_put_u32(w, "imatrix.chunk_count", 5);
    gguf_put_strs(w, "imatrix.datasets", &(struct gguf_str){"text", 4}, 1);
    for (int l = 0; l < N_LAYER; l++) {
        snprintf(name[0], sizeof name[0], "blk.%d.attn_q.weight.in_sum2", l);
        snprintf(name[1], sizeof name[1], "blk.%d.attn_q.weight.counts", l);
        gguf_put_tensor(w, name[0], PL_F32, 2, (int64_t[]){1, D}, sums);
        gguf_put_tensor(w, name[1], PL_F32, 2, (int64_t[]){1, 1}, &one);
    }
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    return path;
}

/* Returns the sum of squares of the errors of column 3. */
static double column_error(const char *in, const char *out, const char *name)
{
    struct gguf *a = reopen(in), *b = reopen(out);
    const struct gguf_tensor *s = gguf_find_tensor(a, name);
    const struct gguf_tensor *t = gguf_find_tensor(b, name);
    float *x = data_of(a, s), *y = test_need(ROWS * D, sizeof *y), sum = 0;
    void *blocks = data_of(b, t);

    format_info(t->format)->decode(y, blocks, ROWS * D);
    for (int r = 0; r < ROWS; r++)
        sum += (x[r * D + 3] - y[r * D + 3]) * (x[r * D + 3] - y[r * D + 3]);
    free(x);
    free(y);
    free(blocks);
    gguf_close(a);
    gguf_close(b);
    return (double)sum;
}

struct seen {
    int n, with;
    double error, weighted;
};

static void see(void *user, const pl_quantize_tensor *t)
{
    struct seen *s = user;

    s->n++;
    s->with += t->imatrix;
    if (t->imatrix) {
        s->error += t->error;
        s->weighted += t->weighted_error;
    }
}

TEST(quantize_uses_importances)
{
    const char *plain = test_temp("plain.gguf"), *out = test_temp("used.gguf");
    static const char *const some[] = {"blk.1.", "blk.2."};
    pl_quantize_options o = options("Q4_K_S");
    struct seen seen = {0};
    struct gguf *g;

    quantize(model(), plain, &o);
    o.imatrix = importances();
    o.tensor = see;
    o.tensor_user = &seen;
    o.errors = true;
    quantize(model(), out, &o);
    assert_int_equal(seen.with, N_LAYER);
    assert_true(seen.weighted < 0.5 * seen.error);
    assert_true(column_error(model(), out, "blk.0.attn_q.weight") <
                0.1 * column_error(model(), plain, "blk.0.attn_q.weight"));
    g = reopen(out);
    assert_int_equal(number(g, "quantize.imatrix.entries_count"), N_LAYER);
    assert_int_equal(number(g, "quantize.imatrix.chunks_count"), 5);
    assert_non_null(gguf_find(g, "quantize.imatrix.file"));
    assert_non_null(gguf_find(g, "quantize.imatrix.dataset"));
    gguf_close(g);

    o.include = some;
    o.n_include = 2;
    o.exclude = some + 1;
    o.n_exclude = 1;
    seen = (struct seen){0};
    quantize(model(), out, &o);
    assert_int_equal(seen.with, 1);
}

/* Returns the sum of squares of the errors of column `c` of expert `e`. */
static double expert_error(const char *out, int e, int c)
{
    const char *name = "blk.0.ffn_up_exps.weight";
    enum { PER = 32 };
    struct gguf *a = reopen(model()), *b = reopen(out);
    const struct gguf_tensor *t = gguf_find_tensor(b, name);
    float *x = data_of(a, gguf_find_tensor(a, name)), sum = 0;
    float *y = test_need(N_EXPERT * PER * D, sizeof *y);
    void *blocks = data_of(b, t);

    format_info(t->format)->decode(y, blocks, N_EXPERT * PER * D);
    for (int r = e * PER; r < (e + 1) * PER; r++)
        sum += (x[r * D + c] - y[r * D + c]) * (x[r * D + c] - y[r * D + c]);
    free(x);
    free(y);
    free(blocks);
    gguf_close(a);
    gguf_close(b);
    return (double)sum;
}

TEST(quantize_uses_importances_of_each_expert)
{
    const char *path = test_temp("experts.gguf"), *out = test_temp("by.gguf");
    float sums[N_EXPERT * D], counts[N_EXPERT] = {1, 2};
    pl_quantize_options o = options("Q4_K_S");
    struct gguf_writer *w;
    pl_err err;

    for (int i = 0; i < N_EXPERT * D; i++)
        sums[i] = i == 3 || i == D + 9 ? 1000 : 1;
    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_tensor(w, "blk.0.ffn_up_exps.weight.in_sum2", PL_F32, 2,
                    (int64_t[]){N_EXPERT, D}, sums);
    gguf_put_tensor(w, "blk.0.ffn_up_exps.weight.counts", PL_F32, 2,
                    (int64_t[]){N_EXPERT, 1}, counts);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    o.imatrix = path;
    quantize(model(), out, &o);
    assert_true(expert_error(out, 0, 3) < 0.2 * expert_error(out, 1, 3));
    assert_true(expert_error(out, 1, 9) < 0.2 * expert_error(out, 0, 9));
}

/* ---- split models -------------------------------------------------------- */

static const char *part_name(const char *set, int part, int n)
{
    char name[64];

    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", set, part + 1, n);
    return test_temp(name);
}

TEST(quantize_keeps_or_joins_a_split_model)
{
    enum { N = 3 };
    char out[300];
    pl_quantize_options o = options("Q8_0");
    struct gguf *g;
    size_t parts = 0, whole;

    for (int i = 0; i < N; i++)
        write_part(part_name("set", i, N), i, N);
    snprintf(out, sizeof out, "%s", test_temp("kept.gguf"));
    o.keep_split = true;
    quantize(part_name("set", 1, N), out, &o);
    assert_int_equal(access(out, F_OK), -1);
    g = reopen(part_name("kept", 0, N));
    assert_int_equal(gguf_n_part(g), N);
    assert_int_equal(number(g, "general.file_type"), 7);
    parts = (size_t)gguf_n_tensor(g);
    assert_int_equal(gguf_find_tensor(g, "blk.11.attn_q.weight")->part, 2);
    gguf_close(g);

    o.keep_split = false;
    quantize(part_name("set", 0, N), out, &o);
    g = reopen(out);
    assert_int_equal(gguf_n_part(g), 1);
    assert_int_equal(number(g, "split.count"), -1);
    whole = (size_t)gguf_n_tensor(g);
    assert_int_equal(parts, whole);
    gguf_close(g);
}

/* ---- failures ------------------------------------------------------------ */

static void refused(const char *in, const char *out,
                    const pl_quantize_options *o, pl_status want,
                    const char *says)
{
    pl_err err;
    pl_status s = pl_quantize(in, out, o, NULL, 0, &err);

    if (s != want || !strstr(err.message, says))
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", (int)s, err.message,
                 (int)want, says);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

TEST(quantize_refuses_what_would_lose_data)
{
    const char *out = test_temp("refused.gguf"), *kept = test_temp("kept");
    pl_quantize_options o = options("Q4_K_M");
    static const char *const none[] = {"nothing=Q8_0"},
                             *const bad[] = {"(=F16"},
                             *const odd[] = {"attn_q"},
                             *const i32[] = {"attn_q=I32"};
    size_t n;
    char *text;

    refused(model(), model(), &o, PL_BAD_ARGUMENT, "name another");
    assert_int_equal(symlink(model(), test_temp("link.gguf")), 0);
    refused(model(), test_temp("link.gguf"), &o, PL_BAD_ARGUMENT,
            "name another");
    refused(test_model(), out, &o, PL_UNSUPPORTED, "--allow-requantize");
    refused(test_temp("none.gguf"), out, &o, PL_NOT_FOUND, "none.gguf");
    o.imatrix = importances();
    refused(model(), o.imatrix, &o, PL_BAD_ARGUMENT, "file of importances");
    o.imatrix = NULL;
    o.n_tensor_types = 1;
    o.tensor_types = none;
    refused(model(), out, &o, PL_BAD_ARGUMENT, "matches no tensor");
    o.tensor_types = bad;
    refused(model(), out, &o, PL_BAD_ARGUMENT, "regular expression");
    o.tensor_types = odd;
    refused(model(), out, &o, PL_BAD_ARGUMENT, "pattern and a format");
    o.tensor_types = i32;
    refused(model(), out, &o, PL_BAD_ARGUMENT, "I32");
    o = options("Q9_K");
    refused(model(), out, &o, PL_BAD_ARGUMENT, "Q9_K");
    o = options("IQ2_XXS");
    refused(model(), out, &o, PL_UNSUPPORTED, "--imatrix");
    assert_int_equal(access(out, F_OK), -1);

    /* A failure while writing keeps the previous file. */
    write_text(kept, "before");
    o = options("Q4_0");
    o.cancel = &(const volatile int){1};
    refused(model(), kept, &o, PL_CANCELLED, "");
    text = test_read(kept, &n);
    assert_string_equal(text, "before");
    free(text);
}

/* Writes a model, or a part of one, of one matrix with `v` at row 5, column
 * 77. */
static void write_odd_part(const char *path, float v, int part, int n_part)
{
    float *x = test_need(16 * D, sizeof *x);
    struct gguf_writer *w;
    pl_err err;

    x[5 * D + 77] = v;
    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_u16(w, "split.no", (uint16_t)part);
    gguf_put_u16(w, "split.count", (uint16_t)n_part);
    gguf_put_i32(w, "split.tensors.count", n_part);
    gguf_put_tensor(w, part == 0 ? "output.weight" : "blk.0.attn_q.weight",
                    PL_F32, 2, (int64_t[]){16, D}, x);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    free(x);
}

static void write_odd(const char *path, float v)
{
    write_odd_part(path, v, 0, 1);
}

/* A part that fails leaves also the files of parts before it as they were. */
TEST(quantize_commits_no_part_before_the_last)
{
    pl_quantize_options o = options("Q4_0");

    for (int i = 0; i < 2; i++) {
        write_odd_part(part_name("bad", i, 2), i == 1 ? NAN : 1, i, 2);
        write_text(part_name("stays", i, 2), "before");
    }
    o.keep_split = true;
    refused(part_name("bad", 0, 2), test_temp("stays.gguf"), &o, PL_BAD_FILE,
            "row 5, column 77");
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *text = test_read(part_name("stays", i, 2), &n);

        assert_string_equal(text, "before");
        free(text);
    }
}

TEST(quantize_names_values_that_no_format_has)
{
    static const struct {
        float v;
        const char *type;
        bool fits;
    } rows[] = {
        {NAN, "Q8_0", false},     {INFINITY, "Q4_K", false},
        {-INFINITY, "F16", true}, {70000, "F16", false},
        {70000, "BF16", true},    {NAN, "BF16", true},
        {65504, "Q4_0", true},    {-65504, "Q4_K_M", true},
        {66000, "MXFP4", false},
    };
    const char *in = test_temp("odd.gguf"), *out = test_temp("even.gguf");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_quantize_options o = options(rows[i].type);

        write_odd(in, rows[i].v);
        if (rows[i].fits)
            quantize(in, out, &o);
        else
            refused(in, out, &o, PL_BAD_FILE, "row 5, column 77");
    }
}

TEST(quantize_survives_any_failed_allocation)
{
    const char *in = test_temp("tiny.gguf"), *out = test_temp("tiny-out.gguf");
    pl_quantize_options o = options("Q4_K_M");
    static const char *const types[] = {"output=Q8_0"};

    write_odd(in, 1);
    o.tensor_types = types;
    o.n_tensor_types = 1;
    o.n_threads = 1;
    o.errors = true;
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(pl_quantize(in, out, &o, NULL, 0, NULL));
}

/* ---- a model that runs --------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Returns the median over n rows of logits of the relative error. It does not
 * depend on the few tokens for which a router just chooses another expert. */
static double median_error(const float *got, const float *want, int n,
                           int64_t n_vocab)
{
    double error[64];

    for (int i = 0; i < n; i++) {
        double e = 0, all = 0;

        for (int64_t k = 0; k < n_vocab; k++) {
            double x = (double)want[i * n_vocab + k];
            double d = (double)got[i * n_vocab + k] - x;

            e += d * d;
            all += x * x;
        }
        error[i] = sqrt(e / all);
    }
    qsort(error, (size_t)n, sizeof *error, by_size);
    return error[n / 2];
}

/* Logits of a quantized model are near those of the model in F32, nearer with
 * more bits. The bounds are about twice what was measured with six
 * seeds. */
TEST(quantize_makes_models_that_run_alike)
{
    enum { N = 64 };
    static const struct {
        const char *type;
        double bound;
    } rows[] = {{"F16", 0.0005}, {"Q4_K_M", 0.08}, {"Q8_0", 0.015},
                {"Q6_K", 0.035}, {"Q5_K_M", 0.05}, {"Q3_K_M", 0.12}};
    const size_t n_row = test_long() ? sizeof rows / sizeof *rows : 2;
    const pl_options o = engine_run_options();
    const char *in = test_model(), *out = test_temp("runs.gguf");
    pl_quantize_options q = options("F32");
    struct engine_run r;
    int32_t token[N];
    float *want, *got;
    uint64_t seed = test_seed();

    q.requantize = true;
    quantize(in, out, &q); /* in F32, so that activations are not rounded */
    engine_run_open(&r, out, "the model", &o);
    engine_run_tokens(&r, &seed, N, token);
    want = test_need((size_t)(N * r.n_vocab), sizeof *want);
    got = test_need((size_t)(N * r.n_vocab), sizeof *got);
    engine_run_decode(&r, 0, N, token, want);
    engine_run_close(&r);
    for (size_t i = 0; i < n_row; i++) {
        double e;

        q.type = rows[i].type;
        quantize(in, out, &q);
        engine_run_open(&r, out, rows[i].type, &o);
        engine_run_decode(&r, 0, N, token, got);
        e = median_error(got, want, N, r.n_vocab);
        engine_run_close(&r);
        print_message("%s: logits off by %.4f\n", rows[i].type, e);
        if (!(e < rows[i].bound))
            fail_msg("%s: logits off by %.4f", rows[i].type, e);
    }
    free(want);
    free(got);
}
