/* Scenes that users of similar servers reported. Each has a process, its
 * clients, and a check of its resources afterwards. */
#include "lib/serve_try.h"
#include "test_paths.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Splits and placements that give the same bits, four ranks each. */
static const char *const splits[] = {
    "--ranks 4 -sm none",
    "--ranks 4 -dev 'cpu*2' -sm layer",
    "--ranks 4 -dev 'cpu*2' -sm tensor",
    "--ranks 4 -dev 'cpu*4' -sm hybrid:2",
    "--ranks 4 -dev 'cpu*2' -sm tensor -cmoe -nkvo",
    "--ranks 4 -dev 'sim*2' -sm tensor -ngl 3",
};
enum { N_SPLIT = sizeof splits / sizeof splits[0] };

/* Returns the choices of a response as text, to be freed: tokens, and
 * probabilities to the last bit. */
static char *choices_of(const char *body)
{
    json_t *j = serve_try_json(body);
    char *s = json_dumps(json_object_get(j, "choices"),
                         JSON_COMPACT | JSON_SORT_KEYS);

    assert_non_null(s);
    json_decref(j);
    return s;
}

static int64_t cached_of(const char *body)
{
    json_t *j = serve_try_json(body);
    int64_t n = json_integer_value(json_object_get(
        json_object_get(json_object_get(j, "usage"), "prompt_tokens_details"),
        "cached_tokens"));

    json_decref(j);
    return n;
}

/* Returns a request for `most` tokens after n that are drawn from `seed`. With
 * the same seed, a shorter prompt is the start of a longer one. The caller
 * frees it. */
static char *make_request(uint64_t seed, int n, int most, const char *more)
{
    struct test_text t = {0};
    char buf[64];

    test_text_add(&t, "{\"prompt\":[", 11);
    for (int i = 0; i < n; i++) {
        int len = snprintf(buf, sizeof buf, "%s%d", i > 0 ? "," : "",
                           300 + (int)test_below(&seed, 3000));

        test_text_add(&t, buf, (size_t)len);
    }
    test_text_add(&t, buf,
                  (size_t)snprintf(buf, sizeof buf,
                                   "],\"ignore_eos\":true,\"max_tokens\":%d",
                                   most));
    test_text_add(&t, more, strlen(more));
    test_text_add(&t, "}", 1);
    return t.s;
}

/* Returns the choices that a request gets, to be freed. */
static char *ask(struct serve_try *s, uint64_t seed, int n, int most,
                 const char *more)
{
    char *body = make_request(seed, n, most, more);
    char *answer = serve_try_post(s, "/v1/completions", body, 200);
    char *choices = choices_of(answer);

    free(body);
    free(answer);
    return choices;
}

/* ---- disconnects --------------------------------------------------------- */

/* Disconnects during the prompt: at its first progress event. */
static void leave_in_prompt(struct serve_try *s, uint64_t seed)
{
    char *body = make_request(seed, 400, 50,
                              ",\"stream\":true,\"return_progress\":true");
    struct try_client c;

    try_connect(&s->t, &c);
    serve_try_send(&c, "/v1/completions", body);
    while (!c.buf || !memmem(c.buf, c.n, "prompt_progress", 15))
        assert_true(try_fill(&c, c.n + 1));
    try_close(&c);
    free(body);
}

TEST(serve_client_that_leaves_in_its_prompt_leaves_nothing_behind)
{
    static const char cancelled[] =
        "plait_requests_finished_total{reason=\"cancelled\"}";
    enum { N = 3 };
    char more[256];

    for (int i = 0; i < N_SPLIT; i++) {
        struct serve_try s;
        char *before, *after;

        snprintf(more, sizeof more, "-np 2 -ub 32 %s", splits[i]);
        serve_try_start(&s, "", more);
        before = ask(&s, 1, 50, 8, ",\"seed\":1,\"logprobs\":2");
        for (int k = 0; k < N; k++)
            leave_in_prompt(&s, 100 + (uint64_t)k);
        serve_try_idle(&s);
        /* none was cancelled if the clients disconnected too late */
        while (serve_try_metric(&s, cancelled) == 0) {
            leave_in_prompt(&s, 100);
            serve_try_idle(&s);
        }
        after = ask(&s, 1, 50, 8, ",\"seed\":1,\"logprobs\":2");
        assert_string_equal(before, after);
        free(before);
        free(after);
        serve_try_stop(&s);
    }
}

/* ---- equal responses ----------------------------------------------------- */

TEST(serve_answers_are_equal_over_splits)
{
    enum { N = 3 };
    char *first[N] = {0};

    for (int i = 0; i < N_SPLIT; i++) {
        struct serve_try s;

        serve_try_start(&s, "", splits[i]);
        for (int k = 0; k < N; k++) {
            char *is = ask(&s, (uint64_t)k, 20 + 60 * k, 12,
                           k == 2 ? ",\"logprobs\":5,\"temperature\":0"
                                  : ",\"logprobs\":5,\"seed\":4");

            if (i > 0)
                assert_string_equal(is, first[k]);
            else
                first[k] = strdup(is);
            free(is);
        }
        serve_try_stop(&s);
    }
    for (int k = 0; k < N; k++)
        free(first[k]);
}

/* Sends n requests at once; each response must equal the one it got alone. */
static void ask_together(struct serve_try *s, char *const *body,
                         char *const *alone, int n)
{
    struct try_client *c = test_need((size_t)n, sizeof *c);

    for (int i = 0; i < n; i++) {
        try_connect(&s->t, &c[i]);
        serve_try_send(&c[i], "/v1/completions", body[i]);
    }
    for (int i = 0; i < n; i++) {
        struct try_answer a;
        char *is;

        try_read(&c[i], &a, false);
        if (a.status != 200)
            fail_msg("%s%s", a.head, a.body);
        is = choices_of(a.body);
        assert_string_equal(is, alone[i]);
        free(is);
        free(a.body);
        try_close(&c[i]);
    }
    free(c);
}

/* Alone, with other requests, with cached prefixes and without, with
 * preemptions since the cache takes three of eight: the same to the last
 * bit. */
TEST(serve_answers_do_not_depend_on_company_cache_or_places)
{
    enum { N = 8 };
    char *body[2 * N], *alone[2 * N];
    struct serve_try s;

    serve_try_start(&s, "", "-np 1 -ub 64");
    for (int i = 0; i < 2 * N; i++) {
        char how[96];

        snprintf(how, sizeof how,
                 ",\"logprobs\":2,\"seed\":%d,\"cache_prompt\":%s", i,
                 i % 2 ? "true" : "false");
        body[i] = make_request((uint64_t)i / 4, 80 + 15 * (i % 4), 90, how);
        snprintf(how, sizeof how,
                 ",\"logprobs\":2,\"seed\":%d,\"cache_prompt\":false", i);
        alone[i] = ask(&s, (uint64_t)i / 4, 80 + 15 * (i % 4), 90, how);
    }
    serve_try_stop(&s);
    serve_try_start(&s, "", "-np 8 -ub 64 --max-waiting 64");
    for (int round = 0; round < (test_long() ? 10 : 2); round++)
        ask_together(&s, body, alone, 2 * N);
    /* slow clients may have come one after another; choices begin together */
    free(ask(&s, 0, 80, 200, ",\"n\":8,\"ignore_eos\":true"));
    assert_true(serve_try_metric(&s, "plait_preemptions_total") > 0);
    assert_true(serve_try_metric(&s, "plait_cached_tokens_total") > 0);
    serve_try_stop(&s);
    for (int i = 0; i < 2 * N; i++) {
        free(body[i]);
        free(alone[i]);
    }
}

/* A prompt of many steps and pages, cached at its end, is continued there. */
TEST(serve_long_prompt_goes_on_at_its_end)
{
    const int n = test_long() ? 4500 : 1100;
    char more[64], *body, *answer, *cached, *computed;
    struct serve_try s;

    snprintf(more, sizeof more, "-np 2 -c %d", 3 * n);
    serve_try_start(&s, "", more);
    free(ask(&s, 7, n, 8, ""));
    body = make_request(7, n + 20, 8, ",\"seed\":1,\"logprobs\":3");
    answer = serve_try_post(&s, "/v1/completions", body, 200);
    assert_true(cached_of(answer) >= n - 64);
    cached = choices_of(answer);
    computed = ask(&s, 7, n + 20, 8,
                   ",\"seed\":1,\"logprobs\":3,\"cache_prompt\":false");
    assert_string_equal(cached, computed);
    free(body);
    free(answer);
    free(cached);
    free(computed);
    serve_try_stop(&s);
}

/* ---- many ---------------------------------------------------------------- */

static void need_files(int n)
{
    struct rlimit r;

    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_max < (rlim_t)n)
        TEST_SKIP("the system gives no %d files", n);
    r.rlim_cur = r.rlim_max < 4096 ? r.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &r);
}

/* Idle connections, some that send a byte now and then, some that never read a
 * long stream: the other clients are answered as if they were alone. */
TEST(serve_thousand_connections_delay_nobody)
{
    enum { ALL = 1000, SLOW = 50, DEAF = 8, N = 24 };
    static struct try_client c[ALL];
    static const char head[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 5000\r\n\r\n{\"prompt\":";
    const int all = test_long() ? ALL : 300;
    char *deaf, *alone, *is;
    struct serve_try s;

    need_files(2 * ALL);
    serve_try_start(&s, "", "-np 4 --max-waiting 64");
    alone = ask(&s, 3, 40, 16, ",\"seed\":1,\"logprobs\":1");
    deaf = make_request(9, 10, 400, ",\"stream\":true,\"n_probs\":20");
    for (int i = 0; i < all; i++) {
        try_connect(&s.t, &c[i]);
        if (i < DEAF)
            serve_try_send(&c[i], "/v1/completions", deaf);
        else if (i < DEAF + SLOW)
            try_send(&c[i], head);
    }
    for (int k = 0; k < N; k++) {
        for (int i = DEAF; i < DEAF + SLOW; i++)
            try_send(&c[i], " ");
        is = ask(&s, 3, 40, 16, ",\"seed\":1,\"logprobs\":1");
        assert_string_equal(is, alone);
        free(is);
    }
    assert_true(serve_try_metric(&s, "plait_connections") >= all);
    for (int i = 0; i < all; i++)
        try_close(&c[i]);
    serve_try_idle(&s);
    free(alone);
    free(deaf);
    serve_try_stop(&s);
}

/* ---- time ---------------------------------------------------------------- */

/* Changes of the wall clock delay no response and change none. */
TEST(serve_clock_that_jumps_changes_nothing)
{
    /* seconds of a month; the server's wall clock jumps by years */
    enum { N = 12, MONTH_S = 30 * 24 * 3600 };
    struct serve_try s;
    struct try_client idle;
    char *before[N], *after;

    if (TEST_SANITIZED)
        TEST_SKIP("a sanitizer must be loaded first");
    serve_try_start(&s, "", "-np 2");
    for (int i = 0; i < N; i++)
        before[i] =
            ask(&s, (uint64_t)i, 20 + 5 * i, 16, ",\"logprobs\":1,\"seed\":2");
    serve_try_stop(&s);
    serve_try_start(&s, "LD_PRELOAD='" PLAIT_FAKE_CLOCK "'",
                    "-np 2 -to 1000000");
    try_connect(&s.t, &idle);
    for (int i = 0; i < N; i++) {
        after =
            ask(&s, (uint64_t)i, 20 + 5 * i, 16, ",\"logprobs\":1,\"seed\":2");
        assert_string_equal(after, before[i]);
        free(before[i]);
        free(after);
    }
    assert_true(serve_try_metric(&s, "plait_queue_seconds_sum") < MONTH_S);
    assert_true(serve_try_metric(&s, "plait_step_seconds_total") >= 0);
    try_send(&idle, try_get("/health", ""));
    assert_true(try_fill(&idle, 12));
    try_close(&idle);
    serve_try_stop(&s);
}

/* ---- its end ------------------------------------------------------------- */

static void log_has(const struct serve_try *s, const char *text)
{
    size_t n;
    char *log = test_read(s->log, &n);

    if (!strstr(log, text))
        fail_msg("\"%s\" is not in the log: %s", text, log);
    free(log);
}

TEST(serve_sigterm_finishes_what_is_being_written)
{
    char *body = make_request(2, 20, 300, ",\"seed\":1");
    struct try_client busy, late, idle;
    struct try_answer a;
    struct serve_try s;
    int status, n;
    json_t *j;

    serve_try_start(&s, "", "-np 2");
    try_connect(&s.t, &idle);
    try_connect(&s.t, &late);
    try_connect(&s.t, &busy);
    serve_try_send(&busy, "/v1/completions", body);
    TEST_UNTIL(serve_try_metric(&s, "plait_prompt_tokens_total") > 0);
    kill(s.pid, SIGTERM);
    TEST_UNTIL(!try_connects(&s.t));
    try_read(&busy, &a, false);
    assert_int_equal(a.status, 200);
    j = serve_try_json(a.body);
    n = (int)json_integer_value(
        json_object_get(json_object_get(j, "usage"), "completion_tokens"));
    assert_int_equal(n, 300);
    json_decref(j);
    free(a.body);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* the number before this text may include the request for the metrics */
    log_has(&s, " may finish within 30 s; another signal ends ");
    log_has(&s, " stopped\n");
    try_close(&idle);
    try_close(&late);
    try_close(&busy);
    free(body);
}

/* A second signal ends what still runs, and says so. */
TEST(serve_second_signal_ends_what_is_running)
{
    char *body = make_request(2, 20, 6000, ",\"seed\":1,\"stream\":true");
    struct try_client busy;
    struct try_answer a;
    struct serve_try s;
    int status;

    serve_try_start(&s, "", "-c 8192 -np 2");
    try_connect(&s.t, &busy);
    serve_try_send(&busy, "/v1/completions", body);
    TEST_UNTIL(serve_try_metric(&s, "plait_prompt_tokens_total") > 0);
    kill(s.pid, SIGTERM);
    TEST_UNTIL(!try_connects(&s.t));
    kill(s.pid, SIGTERM);
    try_read(&busy, &a, false);
    assert_non_null(strstr(a.body, "the server is stopping"));
    free(a.body);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    log_has(&s, " stopping: ");
    log_has(&s, " at once\n");
    log_has(&s, " ending ");
    log_has(&s, " stopped\n");
    try_close(&busy);
    free(body);
}
