/* plait bench and plait synth as their users run them, and the script that
 * compares with llama.cpp: their output is right. No test checks speed. */
#include "lib/command.h"
#include "lib/made_model.h"
#include "lib/support.h"
#include "quant/format.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUICK " --no-limits -r 2 -p 8 -n 4 "
#define TINY  "plait bench --shape tiny" QUICK

static double number(const json_t *row, const char *key)
{
    json_t *v = json_object_get(row, key);

    if (!json_is_number(v))
        fail_msg("%s is no number", key);
    return json_number_value(v);
}

static const char *text(const json_t *row, const char *key)
{
    json_t *v = json_object_get(row, key);

    if (!json_is_string(v))
        fail_msg("%s is no string", key);
    return json_string_value(v);
}

/* Returns the rows that `line` prints as JSON, to be released. */
static json_t *rows(const char *line)
{
    struct ran r = sh(0, line);
    json_t *all = json_loads(r.out, 0, NULL);

    if (!json_is_array(all))
        fail_msg("%s\n  should print a list but did: %.300s", line, r.out);
    return all;
}

/* Each repetition is compared with the limit measured around it; a row has the
 * median of the shares. */
static void has_median_share(json_t *row)
{
    json_t *ts = json_object_get(row, "samples_ts"),
           *limits = json_object_get(row, "samples_limit_ts"),
           *shares = json_object_get(row, "samples_limit_share");
    double share = number(row, "limit_share");
    size_t less = 0, more = 0, n = json_array_size(ts);

    assert_int_equal(json_array_size(limits), n);
    assert_int_equal(json_array_size(shares), n);
    for (size_t i = 0; i < n; i++) {
        double x = json_number_value(json_array_get(ts, i)) /
                   json_number_value(json_array_get(limits, i));

        assert_true(fabs(json_number_value(json_array_get(shares, i)) - x) <
                    1e-9 * x);
        less += x <= share * (1 + 1e-9);
        more += x >= share * (1 - 1e-9);
    }
    assert_true(n % 2 == 1 && less >= (n + 1) / 2 && more >= (n + 1) / 2);
}

TEST(bench_json_has_the_keys_of_llama_bench)
{
    static const char *const texts[] = {
        "model_filename", "model_type", "backend",   "type_k",  "type_v",
        "split_mode",     "cpu_info",   "int8_unit", "numerics"};
    static const char *const numbers[] = {
        "model_size",       "model_n_params",  "n_threads",
        "n_ubatch",         "n_prompt",        "n_gen",
        "n_depth",          "n_seq",           "avg_ts",
        "stddev_ts",        "avg_ns",          "stddev_ns",
        "median_ts",        "min_ts",          "max_ts",
        "limit_ts",         "limit_share",     "compute_share",
        "wait_share",       "copy_share",      "n_devices",
        "read_bytes_per_s", "int8_ops_per_s",  "n_cores",
        "amx_ops_per_s",    "float_ops_per_s", "read_bytes",
        "int8_ops",         "float_ops",       "bf16_ops",
        "bf16_ops_per_s"};
    json_t *all, *row;
    size_t i;

    all = rows("plait bench " MODEL "-r 3 -p 8 -n 4 -o json");
    assert_int_equal(json_array_size(all), 2);
    json_array_foreach (all, i, row) {
        json_t *samples = json_object_get(row, "samples_ts");
        double sum = 0;

        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
            assert_true(strlen(text(row, texts[k])) > 0);
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
            assert_true(isfinite(number(row, numbers[k])));
        assert_int_equal(json_array_size(samples), 3);
        for (size_t k = 0; k < 3; k++)
            sum += json_number_value(json_array_get(samples, k));
        assert_true(fabs(sum / 3 / number(row, "avg_ts") - 1) < 1e-9);
        assert_true(number(row, "min_ts") <= number(row, "median_ts"));
        assert_true(number(row, "median_ts") <= number(row, "max_ts"));
        has_median_share(row);
        assert_true(number(row, "compute_share") > 0);
        assert_true(fabs(number(row, "compute_share") +
                         number(row, "wait_share") + number(row, "copy_share") -
                         1) < 1e-6);
    }
    json_decref(all);
}

/* If repetitions take longer than a moment, which depends on the machine, each
 * has a limit of its own. */
TEST(bench_holds_each_run_against_its_own_limit)
{
    bool differ = false;

    for (int n = 800; n <= 51200 && !differ; n *= 2) {
        char line[200];
        json_t *all, *row, *limits;

        snprintf(line, sizeof line,
                 "plait bench " MODEL "-r 3 -p 0 -n %d -o json", n);
        all = rows(line);
        row = json_array_get(all, 0);
        limits = json_object_get(row, "samples_limit_ts");
        has_median_share(row);
        differ = json_number_value(json_array_get(limits, 0)) !=
                 json_number_value(json_array_get(limits, 2));
        json_decref(all);
    }
    assert_true(differ);
}

/* A file's name need not be UTF-8, but JSON must be. */
TEST(bench_json_has_a_model_of_any_name)
{
    json_t *all = rows("ln -s \"$PWD/models/fable-moe-Q8_0.gguf\" "
                       "$(printf 'a\\377.gguf') && "
                       "plait bench -m $(printf 'a\\377.gguf') --no-limits "
                       "-r 1 -p 2 -n 0 -o json");

    assert_string_equal(text(json_array_get(all, 0), "model_filename"),
                        "a\xef\xbf\xbd.gguf");
    json_decref(all);
    all = rows("plait bench " MODEL "--no-limits -r 1 -p 2 -n 0 -o json");
    assert_string_equal(text(json_array_get(all, 0), "model_filename"),
                        "models/fable-moe-Q8_0.gguf");
    json_decref(all);
}

/* A token of a dense model reads all weights, but only a row of embedding
 * tables, and at the start next to nothing of the cache. */
static void limit_is_that_of_reading(const char *model, const char *unread)
{
    char line[1000];
    struct ran r;
    json_t *all, *about, *t, *row;
    double bytes = 0, share;
    size_t i;

    snprintf(line, sizeof line, "plait inspect --json '%s'", model);
    r = sh(0, line);
    about = json_loads(r.out, 0, NULL);
    json_array_foreach (json_object_get(about, "tensors"), i, t)
        if (strcmp(text(t, "name"), unread) != 0)
            bytes += number(t, "bytes");
    snprintf(line, sizeof line, "plait bench -r 1 -p 0 -n 1 -o json -m '%s'",
             model);
    all = rows(line);
    row = json_array_get(all, 0);
    share = number(row, "limit_ts") * bytes / number(row, "read_bytes_per_s");
    if (!(share > 0.95 && share <= 1))
        fail_msg("%s: the limit reads %g times the weights", model, 1 / share);
    json_decref(about);
    json_decref(all);
}

TEST(bench_limit_is_that_of_reading)
{
    limit_is_that_of_reading(test_file("tests/refs/llama-q-q8_0.gguf"), "none");
    limit_is_that_of_reading(test_ref_need("llama-wide-q4_k_m.gguf"),
                             "token_embd.weight");
    limit_is_that_of_reading(test_ref_need("gemma4-ple-sharedkv-f32.gguf"),
                             "per_layer_token_embd.weight");
}

/* The output names the devices, and has no limit with a GPU, as the limit is
 * that of the processors. */
TEST(bench_names_gpus_and_gives_them_no_limit)
{
    static const struct {
        const char *dev, *backend;
    } list[] = {{"emu*2", "emu"}, {"emu,cpu", "emu, CPU "}};
    char line[400];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const char *backend;
        json_t *all, *row;

        snprintf(line, sizeof line,
                 "plait-emu bench -m '%s' -sm tensor -p 2 -n 0 -r 1 -dev "
                 "'%s' -o json",
                 test_file("tests/refs/llama-q-q4_0.gguf"), list[i].dev);
        all = rows(line);
        row = json_array_get(all, 0);
        backend = json_string_value(json_object_get(row, "backend"));
        if (strncmp(backend, list[i].backend, strlen(list[i].backend)) != 0)
            fail_msg("-dev %s is called %s", list[i].dev, backend);
        assert_true(json_is_null(json_object_get(row, "limit_ts")));
        assert_true(json_is_null(json_object_get(row, "limit_share")));
        json_decref(all);
    }
}

/* Of 7 layers one sees all tokens, and the others' windows are full: one more
 * token costs 2 heads of 32 keys and as many values, in F16. */
TEST(bench_limit_knows_windows)
{
    char line[1000];
    json_t *all;

    snprintf(line, sizeof line,
             "plait bench" QUICK "-d 100,200 -o json -m '%s'",
             test_ref_need("gemma3-swa-f32.gguf"));
    all = rows(line);
    assert_true(fabs(number(json_array_get(all, 3), "read_bytes") -
                     number(json_array_get(all, 1), "read_bytes") -
                     4 * 100 * 2. * 2 * 32 * 2) < 1e-6);
    json_decref(all);
}

/* The cache of each format has the size that a plan gives it: one more token
 * costs each of 2 layers 2 heads of 32 keys and as many values. */
TEST(bench_limit_knows_formats_of_caches)
{
    static const struct {
        const char *k, *v;
        double bytes; /* of a value of each */
    } row[] = {{"f32", "q4_1", 4 + 20 / 32.},
               {"f16", "q5_0", 2 + 22 / 32.},
               {"bf16", "q5_1", 2 + 24 / 32.},
               {"q8_0", "q4_0", 34 / 32. + 18 / 32.},
               {"iq4_nl", "f16", 18 / 32. + 2}};
    char line[1000];

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double more;
        json_t *all;

        snprintf(line, sizeof line,
                 "plait bench --no-limits -r 1 -p 0 -n 4 -d 100,200 -o json "
                 "-fa on -ctk %s -ctv %s -m '%s'",
                 row[i].k, row[i].v, test_file("tests/refs/llama-q-q8_0.gguf"));
        all = rows(line);
        more = number(json_array_get(all, 1), "read_bytes") -
               number(json_array_get(all, 0), "read_bytes");
        if (!(fabs(more / (4 * 100) - 2. * 2 * 32 * row[i].bytes) < 1e-6))
            fail_msg("%s, %s: %g bytes a token", row[i].k, row[i].v,
                     more / (4 * 100));
        json_decref(all);
    }
}

/* One more token costs each of 2 layers a latent of 80 values, in F16, and 64
 * multiply-adds for each of 4 heads, twice. */
TEST(bench_limit_knows_latents)
{
    char line[1000];
    json_t *all, *deep, *flat;

    snprintf(line, sizeof line,
             "plait bench" QUICK "-d 100,200 -o json -m '%s'",
             test_ref_need("deepseek2-mla-f32.gguf"));
    all = rows(line);
    deep = json_array_get(all, 3);
    flat = json_array_get(all, 1);
    assert_true(fabs(number(deep, "read_bytes") - number(flat, "read_bytes") -
                     4 * 100 * 2. * 80 * 2) < 1e-6);
    assert_true(fabs(number(deep, "float_ops") - number(flat, "float_ops") -
                     4 * 100 * 2. * 2 * 2 * 4 * 64) < 1e-6);
    json_decref(all);
}

/* Every combination occurs once, and no two rows are the same. */
TEST(bench_lists_multiply_out)
{
    json_t *all = rows("plait bench --shape tiny --type q8_0,f16 --no-limits "
                       "-r 1 -p 8,3 -n 4 -d 0,70 -np 1,2 -dev cpu -dev 'cpu*2' "
                       "-ctk f16,q8_0 -o json");
    size_t n = json_array_size(all);

    assert_int_equal(n, 2 * 3 * 2 * 2 * 2 * 2);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            static const char *const texts[] = {"model_filename", "devices",
                                                "varied", "type_k"};
            static const char *const numbers[] = {"n_prompt", "n_gen",
                                                  "n_depth", "n_seq"};
            json_t *a = json_array_get(all, i), *b = json_array_get(all, k);
            bool same = true;

            for (int j = 0; j < 4; j++)
                same &= !strcmp(text(a, texts[j]), text(b, texts[j])) &&
                        number(a, numbers[j]) == number(b, numbers[j]);
            assert_false(same);
        }
    json_decref(all);
}

static double sum_of(const json_t *row, const char *key)
{
    json_t *v;
    double sum = 0;
    size_t i;

    json_array_foreach (json_object_get(row, key), i, v)
        sum += json_number_value(v);
    return sum;
}

/* Checks a row without drafts and the next one, with them. */
static void has_drafts(json_t *all, size_t i, const char *type)
{
    const json_t *a = json_array_get(all, i), *b = json_array_get(all, i + 1);

    assert_string_equal(text(a, "spec_type"), "");
    assert_string_equal(text(b, "spec_type"), type);
    assert_true(number(a, "n_gen") == number(b, "n_gen"));
    assert_true(number(a, "n_seq") == number(b, "n_seq"));
    assert_true(number(a, "draft_n") == 0);
    assert_true(json_is_null(json_object_get(a, "speedup")));
    assert_true(number(b, "draft_n") > 0);
    assert_true(number(b, "draft_n") == sum_of(b, "drafted_at"));
    assert_true(number(b, "draft_n_accepted") == sum_of(b, "accepted_at"));
    assert_true(number(b, "draft_n_accepted") < number(b, "draft_n"));
    assert_int_equal(strlen(text(b, "text_hash")), 16);
    assert_string_equal(text(a, "text_hash"), text(b, "text_hash"));
    assert_true(number(b, "speedup") > 0);
}

/* A generation with --spec-type has two rows of the same text. Costs half a
 * second. */
TEST(bench_generates_the_same_text_with_drafts)
{
    char line[500];
    json_t *all =
        rows("plait bench " MODEL "--no-limits -r 2 -p 4 -n 30 -d 0,70 -np 2 "
             "-f models/heldout.txt --spec-type ngram-simple "
             "--spec-ngram-simple-size-n 1 --draft-max 4 -t 1 -o json");

    assert_int_equal(json_array_size(all), 2 * 3);
    has_drafts(all, 1, "ngram-simple");
    has_drafts(all, 4, "ngram-simple");
    assert_string_not_equal(text(json_array_get(all, 1), "text_hash"),
                            text(json_array_get(all, 4), "text_hash"));
    json_decref(all);
    snprintf(line, sizeof line,
             "plait bench -m %s --no-limits -r 2 -p 0 -n 20 -pg 5,9 -d 70 "
             "-t 1 --spec-type draft-mtp --draft-max 3 -o json",
             made_model_with_block("qwen35-dense-f32"));
    all = rows(line);
    assert_int_equal(json_array_size(all), 4);
    has_drafts(all, 0, "draft-mtp");
    has_drafts(all, 2, "draft-mtp");
    json_decref(all);
    all = rows("plait bench " MODEL "--no-limits -r 1 -p 0 -n 20 -t 1 -md "
               "models/fable-moe-Q8_0.gguf --draft-max 1,2 "
               "-o json");
    assert_int_equal(json_array_size(all), 2 * 2);
    assert_true(number(json_array_get(all, 1), "draft_n_accepted") > 0);
    assert_int_equal(
        json_array_size(json_object_get(json_array_get(all, 3), "drafted_at")),
        2);
    json_decref(all);
}

static int count(const char *s, const char *word)
{
    int n = 0;

    for (; (s = strstr(s, word)) != NULL; s += strlen(word))
        n++;
    return n;
}

TEST(bench_tables_have_as_many_cells_in_each_line)
{
    struct ran md = sh(0, TINY "-d 0,5 -dev 'cpu*2'"),
               csv = sh(0, TINY "--spec-type ngram-simple -o csv");
    char *line, *rest = md.out;
    int columns = 0, lines = 0;

    assert_non_null(strstr(md.out, "generation 4 @ 5"));
    while ((line = strsep(&rest, "\n")) != NULL && line[0] == '|') {
        if (lines++ == 0)
            columns = count(line, "|");
        assert_int_equal(count(line, "|"), columns);
        assert_int_equal(strlen(line), strlen(md.out));
    }
    assert_int_equal(lines, 2 + 4);
    rest = csv.out;
    columns = 0;
    for (lines = 0; (line = strsep(&rest, "\n")) && line[0]; lines++) {
        if (lines == 0)
            columns = count(line, "\",\"");
        assert_int_equal(count(line, "\",\""), columns);
    }
    assert_int_equal(lines, 1 + 3);
}

/* Each element of the SVG picture that is opened is also closed. */
TEST(bench_svg_is_well_formed)
{
    struct ran r = sh(0, TINY "-d 0,70 -dev cpu -dev 'cpu*2' --svg b.svg "
                              ">/dev/null && cat b.svg");

    assert_int_equal(strncmp(r.out, "<svg ", 5), 0);
    assert_string_equal(r.out + r.n_out - 7, "</svg>\n");
    assert_int_equal(count(r.out, "<text"), count(r.out, "</text>"));
    assert_int_equal(count(r.out, "<"), count(r.out, ">"));
    /* a dot for each of 8 rows in two panels */
    assert_int_equal(count(r.out, "<circle"), 2 * 8);
    assert_null(strstr(r.out, "nan"));
    r = sh(0, TINY "-t 1,2 --svg b.svg >/dev/null && cat b.svg");
    assert_non_null(strstr(r.out, ", 1 thread,"));
    assert_non_null(strstr(r.out, ", 2 threads,"));
}

/* Encoders have prompts, but generate nothing. */
TEST(bench_measures_whole_texts_of_encoders)
{
    static const char bench[] =
        "plait bench --shape bert-33m --type q8_0 -r 1 -p 24";
    char line[200];
    struct ran r;

    snprintf(line, sizeof line, "%s -n 0", bench);
    r = sh(0, line);
    assert_non_null(strstr(r.out, "prompt 24"));
    r = sh(2, bench);
    assert_non_null(strstr(r.err, "an encoder computes whole texts"));
    snprintf(line, sizeof line, "%s -n 0 -d 8", bench);
    r = sh(2, line);
    assert_non_null(strstr(r.err, "without -pg, -d and drafts"));
    snprintf(line, sizeof line, "%s -n 0 --spec-type ngram-simple", bench);
    r = sh(2, line);
    assert_non_null(strstr(r.err, "without -pg, -d and drafts"));
}

/* plait bench removes the synthetic models that it has written. */
TEST(bench_removes_its_models)
{
    static const char *const line =
        "mkdir t && TMPDIR=t " TINY ">/dev/null && rmdir t";

    (void)sh(0, line);
}

TEST(bench_mistakes_name_the_value_and_the_remedy)
{
    static const struct {
        const char *line, *says;
        int code;
    } list[] = {
        {"plait bench", "--shape qwen3-0.6b", 2},
        {"plait bench " MODEL "--shape tiny", "leave one out", 2},
        {"plait bench --shape qwen9", "unknown shape \"qwen9\"; known (", 2},
        {"plait bench --shape tiny --type q9", "unknown type \"q9\"; known are",
         2},
        {"plait bench --shape tiny,qwen9", "\"qwen9\"", 2},
        {TINY "-p 0 -n 0 -p x", "-p x: give a whole number", 2},
        {"plait bench --shape tiny -p 0 -n 0", "nothing to measure", 2},
        {TINY "-np 0", "from 1 to", 2},
        {TINY "-t 1,,2", "whole number", 2},
        {TINY "-o xml", "md, csv, json, jsonl or sql", 2},
        {TINY "-f models/heldout.txt", "give --spec-type", 2},
        {TINY "-d 9 -f /dev/null --spec-type ngram-simple",
         "give a longer text", 2},
        {TINY "-c 5", "-c is an option of `plait run`", 2},
        {"plait bench -m nothing.gguf", "nothing.gguf", 1},
        {"TMPDIR=/nowhere " TINY, "set TMPDIR", 1},
        {"plait synth --shape tiny", "give -o FILE", 2},
        {"plait synth -o x.gguf", "--shape", 2},
        {"plait synth --shape tiny -o no/where.gguf", "no/where.gguf", 1},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct ran r = sh(list[i].code, list[i].line);

        must_say(r, list[i].says);
    }
}

/* All types open, and their logits are finite and of ordinary size. */
TEST(synth_models_of_every_type_compute)
{
    for (int f = -2; f < PL_FORMAT_COUNT; f++) {
        enum { N_VOCAB = 512, N_TOKEN = 3 };
        char line[300];
        const char *type = f == -2   ? "Q4_K_M"
                           : f == -1 ? "q5_k_m"
                                     : format_info((pl_format)f)->name;
        double sum = 0;
        struct ran r;

        if (f == PL_I32)
            continue;
        snprintf(line, sizeof line,
                 "plait synth --shape tiny --type %s -o x.gguf && "
                 "plait inspect x.gguf >&2 && plait logits -m x.gguf --tokens "
                 "1,2,3 -o -",
                 type);
        r = sh(0, line);
        must_say(r, "tiny");
        assert_int_equal(r.n_out, N_VOCAB * N_TOKEN * sizeof(float));
        for (size_t k = 0; k < r.n_out; k += sizeof(float)) {
            float v;

            memcpy(&v, r.out + k, sizeof v);
            sum += v * v;
        }
        sum = sqrt(sum / (N_VOCAB * N_TOKEN));
        if (!(sum > 0.3 && sum < 3))
            fail_msg("%s: logits of about %g, 1 is meant", type, sum);
    }
}

/* Q4_K_M has Q6_K weights in the layers where llama.cpp has them, and in the
 * output matrix. */
TEST(synth_q4_k_m_has_more_bits_where_llama_cpp_has)
{
    struct ran r = sh(0, "plait synth --shape qwen3-0.6b -o x.gguf && "
                         "plait inspect x.gguf && rm x.gguf");
    int more = 0;

    for (int i = 0; i < 28; i++) {
        char name[64];
        const char *s;
        bool six;

        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        s = strstr(r.out, name);
        assert_non_null(s);
        six = strcspn(s, "\n") > (size_t)(strstr(s, "Q6_K") - s);
        assert_int_equal(six, i < 3 || i >= 24 || (i - 3) % 3 == 2);
        more += six;
    }
    assert_int_equal(more, 14);
}

/* Options that would change nothing are skipped with a note, with their values,
 * by every command that takes options of a model. */
TEST(cli_llama_cpp_options_without_effect_are_ignored)
{
    static const char *const lines[] = {
        "plait plan " MODEL "-fa on --no-mmap >/dev/null",
        "plait plan " MODEL "-fa --mlock -tb 4 >/dev/null",
        "plait plan " MODEL "--flash-attn=off --numa distribute >/dev/null",
        "plait logits " MODEL "--tokens 1 -o x --poll 50 --no-warmup",
        TINY "-fa 1 -mmp 0 >/dev/null",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct ran r = sh(0, lines[i]);

        must_say(r, "passing over options that change no result here: ");
    }
}

/* Runs bench/compare.py with a llama-bench, then two plaits, that always print
 * the same. */
TEST(compare_prints_ratios)
{
    const char *script = test_file("bench/compare.py");
    char line[1000];
    struct ran r;

    if (script == NULL || system("python3 -c '' 2>/dev/null") != 0)
        skip();
    snprintf(line, sizeof line,
             "printf '%%s\\n' '#!/bin/sh' 'echo \"[{\\\"n_prompt\\\": 8, "
             "\\\"n_gen\\\": 0, \\\"n_depth\\\": 0, \\\"avg_ts\\\": 1e-3}, "
             "{\\\"n_prompt\\\": 0, \\\"n_gen\\\": 4, \\\"avg_ts\\\": 2e9}]\"' "
             ">fake && chmod +x fake && python3 '%s' "
             "models/fable-moe-Q8_0.gguf -p 8 -n 4 -r 2 --plait '%s' "
             "--llama-bench ./fake",
             script, command_path());
    r = sh(0, line);
    assert_non_null(strstr(r.out, "| prompt 8 |"));
    assert_non_null(strstr(r.out, "| generation 4 |"));
    assert_non_null(strstr(r.out, "| 2000000000.0 | 0.00 |"));
    snprintf(line, sizeof line,
             "python3 '%s' one.gguf two.gguf -p 8 -n 4 -r 2 --plait ./fake "
             "--plait-b ./fake",
             script);
    r = sh(0, line);
    assert_non_null(strstr(r.out, "| plait b t/s |"));
    assert_non_null(strstr(r.out, "| one.gguf | generation 4 | 2000000000.0 "
                                  "| 2000000000.0 | 1.00 |"));
    assert_non_null(strstr(r.out, "| two.gguf | prompt 8 |"));
}

/* Each word of the synthetic vocabulary is one token, reached by its merges. */
TEST(synth_texts_of_words_have_a_token_each)
{
    struct ran r;

    sh(0, "plait synth --shape tiny --type q8_0 -o words.gguf");
    r = sh(0, "plait tokenize -m words.gguf --ids -p ' a z aa ab iu q'");
    assert_int_equal(atoi(r.out), 256);
    assert_non_null(strstr(r.out, "281"));
    assert_non_null(strstr(r.out, "282"));
    assert_non_null(strstr(r.out, "283"));
    assert_non_null(strstr(r.out, "510")); /* id of the last token */
    assert_non_null(strstr(r.out, "272"));
}

#define FORMS "plait bench --shape tiny --no-limits -r 1 "

/* Output formats and tests are those of llama-bench. */
TEST(bench_has_the_forms_and_tests_of_llama_bench)
{
    struct ran r = sh(0, FORMS "-p 4 -n 2 -pg 4,2 -o jsonl -fa 0,1 -nkvo 0");
    char *line, *next = r.out;
    int n = 0;
    json_t *j;

    while ((line = strsep(&next, "\n")) != NULL && line[0] != '\0') {
        j = json_loads(line, 0, NULL);
        assert_true(json_is_number(json_object_get(j, "avg_ts")));
        n += (int)json_integer_value(json_object_get(j, "n_prompt")) * 100 +
             (int)json_integer_value(json_object_get(j, "n_gen"));
        json_decref(j);
    }
    assert_int_equal(n, 804);
    r = sh(0, FORMS "-p 2-8*2 -n 0 -o json");
    j = json_loads(r.out, 0, NULL);
    assert_int_equal(json_array_size(j), 3);
    json_decref(j);
    r = sh(0, FORMS "-p 4 -n 0 -o sql");
    assert_non_null(strstr(r.out, "CREATE TABLE IF NOT EXISTS test (\n"));
    assert_non_null(strstr(r.out, "  avg_ts REAL,\n"));
    assert_non_null(strstr(r.out, "INSERT INTO test VALUES ('"));
    must_say(sh(2, FORMS "-pg 4"), "give two numbers, like 512,128");
}
