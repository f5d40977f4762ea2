/* A model's file says more than its weights, and users notice: plait run and
 * plait serve name unknown keys once, begin with the sampling that the file
 * recommends, and pool embeddings as it says. */
#include "lib/command.h"
#include "lib/edit_model.h"
#include "lib/serve_try.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* Runs the command on a model; `line` has one %s for its path. */
static struct ran on(int code, const char *line, const char *path)
{
    char text[1024];

    snprintf(text, sizeof text, line, path);
    return sh(code, text);
}

static void start(struct serve_try *s, const char *path, const char *more)
{
    char words[1024];

    snprintf(words, sizeof words, "-m %s -c 512 -np 1 %s", path, more);
    serve_try_run(s, "", words);
}

/* Returns the number at a path such as "a.b" in the response; the caller frees
 * nothing. */
static double number(const char *body, const char *path)
{
    json_t *all = serve_try_json(body), *at = all;
    char part[64];
    double v;

    for (; at && *path; path += *path == '.') {
        size_t n = strcspn(path, ".");

        snprintf(part, sizeof part, "%.*s", (int)n, path);
        at = json_object_get(at, part);
        path += n;
    }
    if (!json_is_number(at))
        fail_msg("not a number: %s", part);
    v = json_number_value(at);
    json_decref(all);
    return v;
}

TEST(file_unknown_keys_are_named_once_by_run_and_serve)
{
    const struct edit e = {".no_such_key", EDIT_INT, 7, NULL};
    const struct edit wrong = {"blk.0.attn_sub_norm.weight", EDIT_TENSOR, 256,
                               NULL};
    const char *path = edit_model(test_model(), false, &e, 1);
    struct serve_try s;
    struct ran r;
    size_t n;
    char *log;

    r = on(0, "plait run -m %s -p Once -n 1 -t 1", path);
    assert_int_equal(count(r.err, "no_such_key"), 1);
    must_say(r, "qwen3moe.no_such_key");
    r = on(0, "plait plan -m %s", path);
    assert_int_equal(count(r.err, "no_such_key"), 1);
    start(&s, path, "");
    log = test_read(s.log, &n);
    assert_int_equal(count(log, "no_such_key"), 1);
    free(log);
    serve_try_stop(&s);
    r = on(1, "plait run -m %s -p Once -n 1 -t 1",
           edit_model(test_model(), true, &wrong, 1));
    must_say(r, "blk.0.attn_sub_norm.weight");
}

/* Options are stronger than the file, and requests than options. */
TEST(file_sampling_is_the_default_of_serve)
{
    static const struct edit e[] = {
        {"general.sampling.temp", EDIT_FLOAT, 0.25, NULL},
        {"general.sampling.top_k", EDIT_INT, 7, NULL},
        {"general.sampling.top_p", EDIT_FLOAT, 0.5, NULL},
        {"general.sampling.penalty_last_n", EDIT_INT, 32, NULL},
        {"general.sampling.mirostat_tau", EDIT_FLOAT, 3, NULL},
        {"general.sampling.sequence", EDIT_TEXT, 0, "top_k;temperature"},
    };
    static const char settings[] = "default_generation_settings.";
    static const struct {
        const char *name;
        double v;
    } rows[] = {
        {"temperature", 0.25},
        {"top_k", 7},
        {"top_p", 0.75},
        {"min_p", 0.05},
        {"params.repeat_last_n", 32},
        {"params.mirostat_tau", 3},
        {"params.repeat_penalty", 1.5},
    };
    const char *path = edit_model(test_model(), false, e, 6);
    struct serve_try s;
    char *body, name[80];

    start(&s, path, "--top-p 0.75 --repeat-penalty 1.5");
    body = serve_try_get(&s, "/props");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "%s%s", settings, rows[i].name);
        assert_float_equal(number(body, name), rows[i].v, 1e-6);
    }
    assert_non_null(strstr(body, "\"samplers\":[\"top_k\",\"temperature\"]"));
    free(body);
    body = serve_try_post(&s, "/completion",
                          "{\"prompt\": \"a\", \"n_predict\": 1, \"top_k\": 3}",
                          200);
    assert_float_equal(number(body, "generation_settings.temperature"), 0.25,
                       1e-6);
    assert_int_equal(number(body, "generation_settings.top_k"), 3);
    free(body);
    serve_try_stop(&s);
}

/* The file's temperature of 0 takes the likeliest token. With --temp, tokens
 * are drawn as without the file's setting. */
TEST(file_sampling_is_the_default_of_run)
{
    static const struct edit e[] = {
        {"general.sampling.temp", EDIT_FLOAT, 0, NULL},
        {"general.sampling.min_p", EDIT_TEXT, 0, "none"}};
    static const char run[] = "plait run -m %s -p Once -n 8 -t 1 -s 5 ";
    const char *path = edit_model(test_model(), false, e, 2);
    char with[100];
    struct ran r[4];

    r[0] = on(0, run, path);
    must_say(r[0], "general.sampling.min_p is none");
    snprintf(with, sizeof with, "%s--temp 0", run);
    r[1] = on(0, with, test_model());
    assert_string_equal(r[0].out, r[1].out);
    snprintf(with, sizeof with, "%s--temp 2", run);
    r[2] = on(0, with, path);
    r[3] = on(0, with, test_model());
    assert_string_equal(r[2].out, r[3].out);
    assert_string_not_equal(r[0].out, r[2].out);
}

TEST(file_pooling_is_the_default_of_embeddings)
{
    const struct edit none = {".pooling_type", EDIT_INT, 0, NULL};
    const struct edit rank = {".pooling_type", EDIT_INT, 4, NULL};
    const char *path = edit_model(test_model(), false, &none, 1);
    struct serve_try s;
    char *body;

    start(&s, path, "--embeddings");
    body = serve_try_post(&s, "/v1/embeddings", "{\"input\": \"a\"}", 400);
    assert_non_null(strstr(body, "--pooling none"));
    free(body);
    serve_try_stop(&s);
    start(&s, path, "--embeddings --pooling mean");
    free(serve_try_post(&s, "/v1/embeddings", "{\"input\": \"a\"}", 200));
    serve_try_stop(&s);
    must_say(on(1, "plait serve -m %s --port 0 --embeddings",
                edit_model(test_model(), true, &rank, 1)),
             "--pooling last");
}

/* A token that the file suppresses is never sampled. */
TEST(file_suppressed_tokens_are_never_generated)
{
    struct ran usual = on(0,
                          "plait run -m %s -p Once -n 1 -t 1 --temp 0 "
                          "--no-display-prompt",
                          test_model()),
               r;
    struct edit e = {"tokenizer.ggml.suppress_tokens", EDIT_INT, 0, NULL};
    char line[400];

    snprintf(line, sizeof line, "plait tokenize %s -p '%s' --ids", MODEL,
             usual.out);
    r = sh(0, line);
    e.v = atof(strpbrk(r.out, "0123456789"));
    r = on(0, "plait run -m %s -p Once -n 1 -t 1 --temp 0 --no-display-prompt",
           edit_model(test_model(), false, &e, 1));
    assert_string_not_equal(r.out, usual.out);
}
