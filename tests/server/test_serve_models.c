/* Several models behind one port, as users run them, a process with clients of
 * bare sockets: each model answers its own requests. */
#include "lib/command.h"
#include "lib/hub_try.h"
#include "lib/serve_try.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts the server. `args` are words of a shell, $M the model of the tests, $D
 * a folder of models: its files tiny.gguf and, in the folder "tales",
 * another. */
static void start(struct serve_try *s, const char *args)
{
    const char *dir = test_temp("models_dir");
    char before[1024], words[2048];

    snprintf(before, sizeof before,
             "D='%s' M='%s'; rm -rf \"$D\"; mkdir -p \"$D/tales\" && "
             "ln -s \"$M\" \"$D/tales/x.gguf\" && ln -s '%s' "
             "\"$D/tiny.gguf\" &&",
             dir, test_model(), test_ref("llama-q-q8_0.gguf"));
    snprintf(words, sizeof words, "-c 256 %s", args);
    serve_try_run(s, before, words);
}

static void send_post(struct serve_try *s, struct try_client *c,
                      const char *path, const char *body)
{
    try_connect(&s->t, c);
    serve_try_send(c, path, body);
}

/* Returns the response's body, malloc'ed. */
static char *take(struct try_client *c, int status)
{
    struct try_answer a;

    try_read(c, &a, false);
    if (a.status != status)
        fail_msg("%d is not %d: %s", a.status, status, a.body);
    try_close(c);
    return a.body;
}

/* Returns the text of a completion, malloc'ed; frees the body. */
static char *text_of(char *body)
{
    json_t *j = json_loads(body, 0, NULL);
    const char *text = json_string_value(json_object_get(
        json_array_get(json_object_get(j, "choices"), 0), "text"));
    char *copy = text ? strdup(text) : NULL;

    if (!copy)
        fail_msg("no text: %s", body);
    json_decref(j);
    free(body);
    return copy;
}

static const char ask_form[] =
    "{\"model\":\"%s\",\"prompt\":\"Once upon a time\",\"seed\":%d,"
    "\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":%s}";

static void make_ask(char out[256], const char *model, int seed, int n,
                     bool stream)
{
    snprintf(out, 256, ask_form, model, seed, n, stream ? "true" : "false");
}

static bool has_state(struct serve_try *s, const char *name, const char *state)
{
    struct try_client c;
    struct try_answer a;
    json_t *j;
    const json_t *e;
    size_t i;
    bool is = false;

    try_connect(&s->t, &c);
    try_send(&c, try_get("/v1/models", ""));
    try_read(&c, &a, false);
    j = json_loads(a.body, 0, NULL);
    json_array_foreach (json_object_get(j, "data"), i, e)
        if (!strcmp(json_string_value(json_object_get(e, "id")), name))
            is = !strcmp(json_string_value(json_object_get(
                             json_object_get(e, "status"), "value")),
                         state);
    json_decref(j);
    free(a.body);
    try_close(&c);
    return is;
}

static void wait_state(struct serve_try *s, const char *name, const char *state)
{
    TEST_UNTIL(has_state(s, name, state));
}

/* ---- cases --------------------------------------------------------------- */

TEST(serve_models_answer_at_once_as_alone)
{
    static const char *const name[] = {"tiny", "tales"};
    enum { N = 6 };
    struct serve_try s;
    struct try_client c[2 * N];
    char ask[256], *alone[2 * N];

    start(&s, "--models-dir \"$D\" --models-max 1");
    for (int i = 0; i < 2 * N; i++) {
        make_ask(ask, name[i % 2], i, 30, false);
        alone[i] = text_of(serve_try_post(&s, "/v1/completions", ask, 200));
        if (i == 1)
            assert_true(has_state(&s, "tiny", "unloaded"));
    }
    serve_try_stop(&s);
    start(&s, "--models-dir \"$D\"");
    for (int i = 0; i < 2 * N; i++) {
        make_ask(ask, name[i % 2], i, 30, false);
        send_post(&s, &c[i], "/v1/completions", ask);
    }
    for (int i = 0; i < 2 * N; i++) {
        char *text = text_of(take(&c[i], 200));

        assert_string_equal(text, alone[i]);
        free(text);
        free(alone[i]);
    }
    assert_true(has_state(&s, "tiny", "loaded") &&
                has_state(&s, "tales", "loaded"));
    serve_try_stop(&s);
}

/* A model to be unloaded gets no more requests, and finishes its responses. */
TEST(serve_models_that_leave_finish_their_streams)
{
    struct serve_try s;
    struct try_client c;
    char ask[256], *body;

    start(&s, "-m \"$M\" -a tales -m \"$D/tiny.gguf\" -a tiny");
    assert_true(has_state(&s, "tiny", "loaded"));
    make_ask(ask, "tales", 1, 200, true);
    send_post(&s, &c, "/v1/completions", ask);
    assert_true(try_fill(&c, 400));
    free(serve_try_post(&s, "/models/unload", "{\"model\":\"tales\"}", 200));
    body = take(&c, 200);
    assert_non_null(strstr(body, "data: [DONE]"));
    free(body);
    wait_state(&s, "tales", "unloaded");
    make_ask(ask, "tales", 1, 5, false);
    free(serve_try_post(&s, "/v1/completions", ask, 200));
    serve_try_stop(&s);
}

/* A model's totals stay while it is unloaded and after it is loaded again. */
TEST(serve_models_totals_outlive_them)
{
    static const char name[] = "plait_requests_total{model=\"tiny\"}",
                      used[] = "plait_cache_pages{model=\"tiny\"}";
    struct serve_try s;
    char ask[256];

    start(&s, "--models-dir \"$D\"");
    make_ask(ask, "tiny", 1, 5, false);
    for (int i = 1; i <= 3; i++) {
        free(serve_try_post(&s, "/v1/completions", ask, 200));
        assert_int_equal(serve_try_metric(&s, name), i);
        assert_true(serve_try_metric(&s, used) > 0);
        free(serve_try_post(&s, "/models/unload", "{\"model\":\"tiny\"}", 200));
        wait_state(&s, "tiny", "unloaded");
        assert_int_equal(serve_try_metric(&s, name), i);
        assert_int_equal(serve_try_metric(&s, used), 0);
    }
    serve_try_stop(&s);
    /* with a single model, metrics have no label `model` */
    start(&s, "-m \"$M\"");
    for (int i = 1; i <= 2; i++) {
        make_ask(ask, "any", 1, 5, false);
        free(serve_try_post(&s, "/v1/completions", ask, 200));
        free(serve_try_post(&s, "/models/unload", "{}", 200));
        assert_int_equal(serve_try_metric(&s, "plait_requests_total"), i);
    }
    serve_try_stop(&s);
}

/* Pages that a model still writes as it is unloaded count too: as many as there
 * are files. */
TEST(serve_models_totals_have_what_is_written_at_their_end)
{
    static const char name[] =
        "plait_cache_pages_written_total{model=\"tiny\"}";
    const char *dir = test_temp("totals-cache");
    char more[500], ask[256], line[500];
    struct serve_try s;
    int n;

    snprintf(more, sizeof more, "--models-dir \"$D\" --cache-dir '%s'", dir);
    snprintf(line, sizeof line, "ls '%s' | grep -c 'page$'", dir);
    start(&s, more);
    for (int i = 1; i <= 6; i++) {
        FILE *p;

        make_ask(ask, "tiny", i, 90, false);
        free(serve_try_post(&s, "/v1/completions", ask, 200));
        free(serve_try_post(&s, "/models/unload", "{\"model\":\"tiny\"}", 200));
        wait_state(&s, "tiny", "unloaded");
        p = popen(line, "r");
        assert_non_null(p);
        assert_int_equal(fscanf(p, "%d", &n), 1);
        pclose(p);
        assert_int_equal(serve_try_metric(&s, name), n);
    }
    assert_true(n > 0);
    serve_try_stop(&s);
}

static size_t n_listed(struct serve_try *s)
{
    char *body = serve_try_get(s, "/v1/models");
    json_t *j = serve_try_json(body);
    size_t n = json_array_size(json_object_get(j, "data"));

    json_decref(j);
    free(body);
    return n;
}

static void shell(const char *form, const char *a, const char *b)
{
    char line[2048];

    snprintf(line, sizeof line, form, a, b);
    assert_int_equal(system(line), 0);
}

/* Writes a GGUF file that has no tensors and says that it is of this type. */
static void write_other(const char *path, const char *type)
{
    FILE *f = fopen(path, "wb");
    const uint64_t n_tensor = 0, n_key = 1, n_name = 12, n = strlen(type);
    const uint32_t version = 3, string = 8;

    assert_non_null(f);
    fwrite("GGUF", 1, 4, f);
    fwrite(&version, sizeof version, 1, f);
    fwrite(&n_tensor, sizeof n_tensor, 1, f);
    fwrite(&n_key, sizeof n_key, 1, f);
    fwrite(&n_name, sizeof n_name, 1, f);
    fwrite("general.type", 1, n_name, f);
    fwrite(&string, sizeof string, 1, f);
    fwrite(&n, sizeof n, 1, f);
    fwrite(type, 1, n, f);
    assert_int_equal(fclose(f), 0);
}

/* Files that are put into the folder are models as soon as a client asks, and
 * no more when they are gone. Files of other kinds are none, in the folder or
 * beside a model. */
TEST(serve_models_come_and_go_with_their_files)
{
    const char *dir = test_temp("models_dir");
    char ask[256], path[1024];
    struct serve_try s;

    start(&s, "--models-dir \"$D\"");
    assert_int_equal(n_listed(&s), 2);
    snprintf(path, sizeof path, "%s/tales/x-imatrix.gguf", dir);
    write_other(path, "imatrix");
    snprintf(path, sizeof path, "%s/vision.gguf", dir);
    write_other(path, "mmproj");
    assert_int_equal(n_listed(&s), 2);
    shell("ln -s '%s' '%s/more.gguf'", test_ref("llama-q-q8_0.gguf"), dir);
    make_ask(ask, "more", 1, 5, false);
    free(serve_try_post(&s, "/v1/completions", ask, 200));
    assert_int_equal(n_listed(&s), 3);
    shell("mkdir '%s/late'%s", dir, "");
    shell("ln -s '%s' '%s/late/y.gguf'", test_model(), dir);
    assert_int_equal(n_listed(&s), 4);
    shell("rm '%s/more.gguf'%s", dir, "");
    assert_int_equal(n_listed(&s), 3);
    free(serve_try_post(&s, "/v1/completions", ask, 404));
    serve_try_stop(&s);
    /* restores the folder as it was at the start */
    shell("rm '%s/vision.gguf'%s", dir, "");
    snprintf(ask, sizeof ask, "--models-dir '%s' -c 256", dir);
    serve_try_run(&s, "", ask);
    assert_int_equal(n_listed(&s), 3);
    serve_try_stop(&s);
}

/* Clients and logs see a model's address without its secrets. */
TEST(serve_models_show_no_password_of_an_address)
{
    struct serve_try s;
    struct try_client c;
    struct try_answer a;
    char *said;

    start(&s, "-m \"$M\" -a tales --offline "
              "-mu 'http://me:hidden@127.0.0.1:9/f/x.gguf?sig=hidden'");
    try_connect(&s.t, &c);
    try_send(&c, try_get("/models", ""));
    try_read(&c, &a, false);
    assert_null(strstr(a.body, "hidden"));
    assert_non_null(strstr(a.body, "\"id\":\"x\""));
    assert_non_null(strstr(a.body, "http://...@127.0.0.1:9/f/x.gguf?..."));
    free(a.body);
    try_close(&c);
    said = serve_try_post(&s, "/v1/completions",
                          "{\"model\":\"x\",\"prompt\":\"a\"}", 500);
    assert_null(strstr(said, "hidden"));
    free(said);
    serve_try_stop(&s);
    must_say(sh(1, "plait plan --offline "
                   "-mu 'http://me:hidden@127.0.0.1:9/x.gguf?hidden'"),
             "http://...@127.0.0.1:9/x.gguf?... is not in the cache");
}

/* Downloads a file of the repository T/R, with these bytes, to the client's
 * cache. */
static void download(struct hub_use *u, struct hub_try *t, const char *file,
                     const void *data, size_t n)
{
    (void)hub_try_add(t, file, data, n);
    hub_use(u, "T/R", file, PL_OK, NULL);
}

static void complete(struct serve_try *s, const char *model, int status)
{
    char ask[256];

    make_ask(ask, model, 1, 2, false);
    free(serve_try_post(s, "/v1/completions", ask, status));
}

/* A command line that names no model serves those that were downloaded, under
 * the names that -hf takes, although the hub is gone. */
TEST(serve_models_of_the_cache_need_no_command_line)
{
    char *data, *list, before[1024];
    struct serve_try s;
    struct hub_try t;
    struct hub_use u;
    size_t n;

    data = test_read(test_model(), &n);
    hub_try_start(&t);
    hub_use_init(&u, &t);
    download(&u, &t, "fable-q8_0.gguf", data, n);
    download(&u, &t, "broken-Q4_0.gguf", "GGUF", 4);
    snprintf(before, sizeof before, "export PLAIT_CACHE='%s' HF_ENDPOINT='%s';",
             u.o.cache, t.origin);
    serve_try_run(&s, before, "-c 256");
    assert_true(has_state(&s, "T/R:Q8_0", "unloaded"));
    list = serve_try_get(&s, "/v1/models");
    assert_null(strstr(list, "Q4_0"));
    free(list);
    complete(&s, "T/R:Q8_0", 200);
    complete(&s, "t/r", 200);
    complete(&s, "T/R:F16", 404);
    /* files come and go while the server runs */
    download(&u, &t, "fable-F16.gguf", data, n);
    complete(&s, "T/R:F16", 200);
    complete(&s, "T/R", 404); /* several fit */
    assert_int_equal(remove(u.path), 0);
    free(serve_try_get(&s, "/v1/models"));
    complete(&s, "T/R:F16", 404);
    complete(&s, "T/R", 200);
    hub_try_stop(&t);
    serve_try_stop(&s);
    data = (free(data), test_read(s.log, &n));
    list = strstr(data, "skipping T/R:Q4_0 of the cache: ");
    assert_non_null(list);
    assert_null(strstr(list + 1, "skipping"));
    must_say(sh(2, "PLAIT_CACHE=empty plait serve"),
             "no model; give one with -m FILE, or download one with "
             "-hf USER/REPO; empty has none");
    must_say(sh(2, "plait serve -a tales"),
             "--alias tales: the command line names no model");
    must_say(sh(2, "plait serve --models-dir . -a tales"),
             "give one with -m or -hf");
    free(data);
    hub_use_fini(&u);
}

/* Two tenths of the available memory for each: both models fit. Six tenths:
 * only one does. */
TEST(serve_models_leave_each_other_the_memory_of_their_caches)
{
    static const int mib[] = {2 * 1024, 6 * 1024};
    char args[256], ask[256];
    struct serve_try s;

    setenv("PLAIT_MEMORY", "64GiB:10GiB", 1);
    for (int k = 0; k < 2; k++) {
        snprintf(args, sizeof args, "--models-dir \"$D\" --cache-ram %dMiB",
                 mib[k]);
        start(&s, args);
        make_ask(ask, "tiny", 1, 2, false);
        free(serve_try_post(&s, "/v1/completions", ask, 200));
        make_ask(ask, "tales", 1, 2, false);
        free(serve_try_post(&s, "/v1/completions", ask, 200));
        assert_true(has_state(&s, "tiny", k == 0 ? "loaded" : "unloaded"));
        serve_try_stop(&s);
    }
    /* the value that the test runner had set */
    setenv("PLAIT_MEMORY", "64GiB", 1);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

TEST(serve_models_have_options_of_their_own)
{
    const char *ini = test_temp("presets.ini");
    char text[4096], args[512];
    struct serve_try s;
    struct try_client c;
    struct try_answer a;

    snprintf(text, sizeof text,
             "version = 1\n[*]\nc = 128\nctk = q8_0\npinned = true\n"
             "stop-timeout = 5\ndedup-cache-models = 1\n"
             "LLAMA_ARG_MLOCK = 0\nLLAMA_ARG_TOOLS =\n"
             "LLAMA_ARG_NO_WEBUI = 1\n"
             "[one \"x\"]\nmodel = %s\n"
             "dev = cpu*2\nc = 192\nload-on-startup = true\n"
             "[bad]\nmodel = /nowhere.gguf\npinned = false\n",
             test_model());
    write_file(ini, text);
    snprintf(args, sizeof args, "--models-preset '%s'", ini);
    start(&s, args); /* start() adds -c 256, which overrides the presets */
    assert_true(has_state(&s, "one \"x\"", "loaded"));
    try_connect(&s.t, &c);
    try_send(&c, try_get("/props?model=one%20%22x%22", ""));
    try_read(&c, &a, false);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"n_ctx\":256"));
    assert_non_null(strstr(a.body, "2 ranks"));
    free(a.body);
    try_send(&c, try_get("/v1/models", ""));
    try_read(&c, &a, false);
    assert_non_null(strstr(a.body, "\"pinned\":true"));
    assert_non_null(strstr(a.body, "\"pinned\":false"));
    free(a.body);
    try_close(&c);
    free(serve_try_post(&s, "/v1/completions",
                        "{\"model\":\"bad\",\"prompt\":\"a\"}", 500));
    free(serve_try_post(&s, "/v1/completions",
                        "{\"model\":\"bad\",\"prompt\":\"a\"}", 500));
    serve_try_stop(&s);
}

/* A file that a section names is missing: requests for its model get the reason
 * until the file is there. */
TEST(serve_models_with_missing_files_leave_the_others_alone)
{
    const char *ini = test_temp("missing.ini");
    const char *form = test_temp("missing.jinja");
    char text[4096], args[512], ask[256], *answer;
    struct serve_try s;

    snprintf(text, sizeof text,
             "[good]\nmodel = %s\n"
             "[bad]\nmodel = %s\nchat-template-file = %s\n"
             "load-on-startup = true\n"
             "[worse]\nmodel = %s\nslot-save-path = /nowhere\n",
             test_model(), test_model(), form, test_model());
    write_file(ini, text);
    snprintf(args, sizeof args, "--models-preset '%s'", ini);
    start(&s, args);
    make_ask(ask, "good", 1, 2, false);
    free(serve_try_post(&s, "/v1/completions", ask, 200));
    make_ask(ask, "bad", 1, 2, false);
    answer = serve_try_post(&s, "/v1/completions", ask, 500);
    assert_non_null(strstr(answer, "missing.jinja: No such file"));
    free(answer);
    assert_true(has_state(&s, "bad", "unloaded")); /* a failed load, too */
    make_ask(ask, "worse", 1, 2, false);
    answer = serve_try_post(&s, "/v1/completions", ask, 500);
    assert_non_null(strstr(answer, "--slot-save-path /nowhere"));
    free(answer);
    write_file(form, "{{ messages[0].content }}");
    make_ask(ask, "bad", 1, 2, false);
    free(serve_try_post(&s, "/v1/completions", ask, 200));
    serve_try_stop(&s);
}

/* Sections that scale positions alike in three ways, and one that does not. */
TEST(serve_models_have_keys_of_their_own)
{
    static const char *const names[] = {"plain", "flags", "keys", "variables"};
    const char *ini = test_temp("keys.ini");
    char text[4096], args[512], ask[256], *answer[4];
    struct serve_try s;

    snprintf(text, sizeof text,
             "[plain]\nmodel = %s\n"
             "[flags]\nmodel = %s\nrope-scaling = yarn\nrope-scale = 4\n"
             "yarn-orig-ctx = 64\n"
             "[keys]\nmodel = %s\noverride-kv = "
             "qwen3moe.rope.scaling.type=str:yarn,.rope.scaling.factor=float:4,"
             ".rope.scaling.original_context_length=int:64\n"
             "[variables]\nmodel = %s\nLLAMA_ARG_ROPE_SCALING_TYPE = yarn\n"
             "LLAMA_ARG_ROPE_FREQ_SCALE = 0.25\n"
             "LLAMA_ARG_YARN_ORIG_CTX = 64\n",
             test_model(), test_model(), test_model(), test_model());
    write_file(ini, text);
    snprintf(args, sizeof args, "--models-preset '%s'", ini);
    start(&s, args);
    for (int i = 0; i < 4; i++) {
        make_ask(ask, names[i], 7, 30, false);
        answer[i] = text_of(serve_try_post(&s, "/v1/completions", ask, 200));
    }
    serve_try_stop(&s);
    assert_string_not_equal(answer[0], answer[1]);
    assert_string_equal(answer[1], answer[2]);
    assert_string_equal(answer[1], answer[3]);
    for (int i = 0; i < 4; i++)
        free(answer[i]);
}

TEST(serve_models_names_what_is_wrong_in_presets)
{
    static const struct {
        const char *text, *said;
    } row[] = {
        {"[a]\nport = 5\n", "line 2: port: a server option"},
        {"[a]\napi-key = 5\n", "line 2: api-key: a server option"},
        {"[a]\nnonsense = 5\n", "line 2: nonsense: unknown option"},
        {"[a]\npinned = maybe\n", "line 2: pinned: give true or false"},
        {"[a]\nc = many\n", "--ctx-size many: give a whole number"},
        {"[a]\nc = 5\n", "[a] of the presets has no model"},
        {"[a]\nc 5\n", "line 2: neither"},
        {("[a]\nmodel = a.gguf\nlookup-cache-dynamic = l.bin\n"
          "[b]\nmodel = b.gguf\nlookup-cache-dynamic = ./l.bin\n"),
         "give each model a file of its own"},
        {"", "has no model"},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *ini = test_temp("bad.ini");
        char line[512];

        write_file(ini, row[i].text);
        snprintf(line, sizeof line, "plait serve --models-preset '%s' --port 0",
                 ini);
        must_say(sh(2, line), row[i].said);
    }
    must_say(sh(1, "plait serve --models-dir /nowhere --port 0"),
             "reading the directory /nowhere");
    must_say(sh(2, "plait serve -m a/x.gguf -m b/x.gguf --port 0"),
             "model name \"x\" is used twice");
    must_say(sh(2, "plait serve -m a.gguf -m b.gguf -lcd l.bin --port 0"),
             "a and b would overwrite each other's statistics");
}

/* Unloads the model. Returns true once the request has its response; a request
 * that arrives after an unload starts another load. */
static bool given_up(struct serve_try *s, const char *model,
                     struct try_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    struct try_client other;
    struct try_answer a;

    send_post(s, &other, "/models/unload", model);
    try_read(&other, &a, false);
    free(a.body);
    try_close(&other);
    return poll(&p, 1, 0) == 1;
}

/* A load that takes hours, as this download does, is cancelled when it is not
 * needed any more, and when the server ends. */
TEST(serve_models_that_are_being_loaded_hold_up_nothing)
{
    static const char load[] = "{\"model\":\"slow\"}";
    const char *ini = test_temp("slow.ini"), *cache = test_temp("slow-cache");
    char text[256], before[1024];
    struct serve_try s;
    struct try_client c;
    struct hub_try hub;

    hub_try_start(&hub);
    hub.repo = NULL;
    hub.block = 1;
    hub.slow_us = 50000;
    hub_try_add_random(&hub, "x.gguf", 1 << 20);
    snprintf(text, sizeof text, "[slow]\nmodel-url = %s/x.gguf\n", hub.origin);
    write_file(ini, text);
    snprintf(before, sizeof before, "PLAIT_CACHE='%s'", cache);
    snprintf(text, sizeof text, "-c 256 -m '%s' --models-preset '%s'",
             test_model(), ini);
    serve_try_run(&s, before, text);
    free(serve_try_post(&s, "/models/load", load, 200));
    wait_state(&s, "slow", "loading");
    send_post(&s, &c, "/v1/completions", "{\"model\":\"slow\",\"prompt\":1}");
    TEST_UNTIL(given_up(&s, load, &c));
    free(take(&c, 503));
    wait_state(&s, "slow", "unloaded");
    free(serve_try_post(&s, "/models/load", load, 200));
    wait_state(&s, "slow", "loading");
    serve_try_stop(&s);
    hub_try_stop(&hub);
}

/* ---- devices that are lost ----------------------------------------------- */

/* Returns a process that another has started and not yet lost; 0: none. Any of
 * its threads may have started it. */
static pid_t any_child_of(pid_t of)
{
    char line[256];
    long pid = 0;
    FILE *f;

    snprintf(line, sizeof line, "cat /proc/%d/task/*/children", (int)of);
    f = popen(line, "r");
    assert_non_null(f);
    if (fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    pclose(f);
    return (pid_t)pid;
}

/* A device dies during two requests. Returns 1 if both were cut; 0 if one was
 * faster. Other models continue, and the next request loads the model anew. */
static int lose_a_device(struct serve_try *s, const char *model)
{
    struct try_client c, d, other;
    struct try_answer a;
    char ask[256], *body;
    int cut;

    make_ask(ask, model, 1, 230, true);
    send_post(s, &c, "/v1/completions", ask);
    make_ask(ask, model, 2, 230, false);
    send_post(s, &d, "/v1/completions", ask);
    make_ask(ask, "tiny", 2, 20, false);
    send_post(s, &other, "/v1/completions", ask);
    assert_true(try_fill(&c, 400));
    assert_true(any_child_of(s->pid) > 1);
    kill(any_child_of(s->pid), SIGKILL);
    body = take(&c, 200);
    cut = strstr(body, "\"error\"") != NULL;
    free(body);
    try_read(&d, &a, false);
    assert_true(a.status == 200 || a.status == 503);
    cut &= a.status == 503;
    free(a.body);
    try_close(&d);
    free(take(&other, 200));
    return cut;
}

TEST(serve_models_come_back_when_a_device_is_lost)
{
    const char *ini = test_temp("lost.ini");
    char text[4096], args[512], ask[256], *before, *after;
    struct serve_try s;
    int cut = 0;

    snprintf(text, sizeof text,
             "[tales]\nmodel = %s\ndev = proc*2\n[tiny]\nmodel = %s\n",
             test_model(), test_ref("llama-q-q8_0.gguf"));
    write_file(ini, text);
    snprintf(args, sizeof args, "--models-preset '%s'", ini);
    start(&s, args);
    make_ask(ask, "tales", 1, 20, false);
    before = text_of(serve_try_post(&s, "/v1/completions", ask, 200));
    while (cut == 0) {
        cut = lose_a_device(&s, "tales");
        after = text_of(serve_try_post(&s, "/v1/completions", ask, 200));
        assert_string_equal(before, after);
        free(after);
    }
    free(before);
    serve_try_stop(&s);
}
