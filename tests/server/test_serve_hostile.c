/* Requests of a malicious user. Each is answered or rejected with little work,
 * with a status that blames the right side, and the next request gets the same
 * response as before. */
#include "lib/serve_try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_S = 20 }; /* processor seconds for a response */

/* ---- texts --------------------------------------------------------------- */

static void add(struct test_text *t, const char *s)
{
    test_text_add(t, s, strlen(s));
}

static void add_times(struct test_text *t, const char *s, int n)
{
    for (int i = 0; i < n; i++)
        add(t, s);
}

/* Appends `open` n times, `middle`, `close` n times. */
static void add_nest(struct test_text *t, const char *open, const char *middle,
                     const char *close, int n)
{
    add_times(t, open, n);
    add(t, middle);
    add_times(t, close, n);
}

/* Returns {head a, b, b, ... b tail */
static char *many(const char *head, const char *first, const char *next, int n,
                  const char *tail)
{
    struct test_text t = {0};

    add(&t, head);
    add(&t, first);
    add_times(&t, next, n);
    add(&t, tail);
    return t.s;
}

static char *nest(const char *head, const char *open, const char *middle,
                  const char *close, int n, const char *tail)
{
    struct test_text t = {0};

    add(&t, head);
    add_nest(&t, open, middle, close, n);
    add(&t, tail);
    return t.s;
}

/* ---- checks -------------------------------------------------------------- */

static const char calm[] = "{\"prompt\":\"Once upon a time\",\"seed\":3,"
                           "\"max_tokens\":12,\"logprobs\":1}";

/* Returns the status after little work; the connection may be closed
 * instead. */
static int status_of(struct serve_try *s, const char *path, const char *body)
{
    double began = serve_try_cpu(s);
    struct try_client c;
    struct try_answer a;
    int status;

    try_connect(&s->t, &c);
    serve_try_send(&c, path, body);
    try_read(&c, &a, false);
    status = a.status;
    if (status >= 500)
        fail_msg("%s %.120s: %s%.300s", path, body, a.head, a.body);
    if (serve_try_cpu(s) - began > MOST_S)
        fail_msg("%s %.120s: took %.0f s of the processor", path, body,
                 serve_try_cpu(s) - began);
    free(a.body);
    try_close(&c);
    return status;
}

/* Checks the status and frees the body; 0: any status but a server error. */
static void must_be(struct serve_try *s, const char *path, char *body, int want)
{
    int status = status_of(s, path, body);

    if (want != 0 && status != want)
        fail_msg("%s %.120s: %d, not %d", path, body, status, want);
    free(body);
}

static char *choices(struct serve_try *s)
{
    char *body = serve_try_post(s, "/v1/completions", calm, 200);
    json_t *j = serve_try_json(body);
    char *text = json_dumps(json_object_get(j, "choices"), JSON_COMPACT);

    json_decref(j);
    free(body);
    return text;
}

static void end(struct serve_try *s, char *before)
{
    char *after;

    serve_try_idle(s);
    after = choices(s);
    assert_string_equal(after, before);
    free(before);
    free(after);
    serve_try_stop(s);
}

/* ---- sizes --------------------------------------------------------------- */

TEST(serve_numbers_that_are_too_large_are_refused_or_do_nothing)
{
    static const struct {
        const char *field;
        int status;
    } rows[] = {
        {"\"n\":1000000000", 400},
        {"\"n\":0", 400},
        {"\"n\":-1", 400},
        {"\"n\":1e18", 400},
        {"\"max_tokens\":0", 200},
        {"\"max_tokens\":1", 200},
        {"\"max_tokens\":-5", 400},
        {"\"max_tokens\":99999999999999999999999999", 400},
        {"\"temperature\":1e999", 400},
        {"\"temperature\":-1", 400},
        {"\"temperature\":\"NaN\"", 400},
        {"\"top_p\":7", 400},
        {"\"top_k\":2147483647", 200},
        {"\"top_k\":9223372036854775807", 400},
        {"\"logprobs\":1000000", 400},
        {"\"logit_bias\":{\"999999999\":1}", 400},
        {"\"logit_bias\":{\"1\":1e308}", 400},
        {"\"logit_bias\":[[1,false]]", 200},
        {"\"repeat_last_n\":2147483647", 200},
        {"\"stop\":\"\"", 200},
        {"\"stop\":[\"\"]", 200},
        {"\"seed\":18446744073709551616", 400},
        {"\"stream\":5", 400},
        {"\"prompt\":[]", 400},
        {"\"prompt\":[[]]", 400},
        {"\"prompt\":[-1]", 400},
        {"\"prompt\":[99999999]", 400},
        {"\"prompt\":[1.5]", 400},
    };
    struct serve_try s;
    char body[256], *before;

    serve_try_start(&s, "", "-np 2");
    before = choices(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool own = strncmp(rows[i].field, "\"prompt\"", 8) == 0;
        bool most = strstr(rows[i].field, "max_tokens") != NULL;
        int status;

        snprintf(body, sizeof body, "{%s%s%s}", rows[i].field,
                 own ? "" : ",\"prompt\":\"a\"",
                 most ? "" : ",\"max_tokens\":2");
        status = status_of(&s, "/v1/completions", body);
        if (status != rows[i].status)
            fail_msg("%s: %d, not %d", body, status, rows[i].status);
    }
    end(&s, before);
}

TEST(serve_lists_that_are_too_long_are_refused_or_read)
{
    struct serve_try s;
    char *before;

    serve_try_start(&s, "", "-np 2");
    before = choices(&s);
    must_be(&s, "/v1/completions",
            many("{\"prompt\":\"a\",\"max_tokens\":9,\"stop\":[", "\"xyzzy\"",
                 ",\"xyzzy plugh\"", 999, "]}"),
            400);
    must_be(&s, "/v1/completions",
            many("{\"prompt\":\"a\",\"max_tokens\":2,\"stop\":[\"", "a", "b",
                 1 << 20, "\"]}"),
            400);
    must_be(&s, "/v1/completions",
            many("{\"prompt\":\"a\",\"max_tokens\":2,\"logit_bias\":[",
                 "[1,0.5]", ",[2,0.5]", 100000, "]}"),
            200);
    must_be(
        &s, "/v1/completions",
        many("{\"max_tokens\":2,\"prompt\":[", "\"a\"", ",\"a\"", 20000, "]}"),
        400);
    must_be(
        &s, "/v1/completions",
        many("{\"max_tokens\":2,\"prompt\":\"", "a", " word", 1 << 20, "\"}"),
        400);
    must_be(&s, "/v1/chat/completions",
            many("{\"max_tokens\":2,\"messages\":[",
                 "{\"role\":\"user\",\"content\":\"a\"}",
                 ",{\"role\":\"assistant\",\"content\":\"b\"}"
                 ",{\"role\":\"user\",\"content\":\"a\"}",
                 50000, "]}"),
            400);
    must_be(&s, "/tokenize",
            many("{\"content\":\"", "a", "aaaaaaaaaaaaaaaa", 1 << 16, "\"}"),
            200);
    end(&s, before);
}

/* ---- depths -------------------------------------------------------------- */

TEST(serve_depths_that_would_take_for_ever_are_refused)
{
    static const char schema[] = "{\"prompt\":\"a\",\"max_tokens\":4,"
                                 "\"json_schema\":";
    struct serve_try s;
    char *before;

    serve_try_start(&s, "", "-np 2");
    before = choices(&s);
    must_be(&s, "/v1/completions",
            nest("{\"prompt\":", "[", "1", "]", 100000, "}"), 400);
    must_be(&s, "/v1/completions",
            nest("{\"prompt\":\"a\",\"x\":", "{\"a\":", "1", "}", 100000, "}"),
            400);
    must_be(&s, "/v1/completions",
            nest(schema, "{\"items\":", "{}", "}", 100000, "}"), 400);
    must_be(
        &s, "/v1/completions",
        nest(schema, "{\"anyOf\":[{\"type\":\"null\"},", "{}", "]}", 1000, "}"),
        200);
    must_be(&s, "/v1/completions",
            many(schema, "{\"type\":\"string\",\"pattern\":\"^(a", "|(a*)*b",
                 2000, ")$\"}}"),
            0);
    must_be(&s, "/v1/completions",
            many(schema, "{\"type\":\"array\",\"minItems\":1000000000", "", 0,
                 "}}"),
            200);
    must_be(&s, "/v1/completions",
            many(schema,
                 "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":"
                 "\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}",
                 "", 0, "}}"),
            400);
    must_be(&s, "/v1/completions",
            nest("{\"prompt\":\"a\",\"max_tokens\":4,\"grammar\":\"root ::= ",
                 "(", "\\\"a\\\"", ")*", 5000, "\"}"),
            400);
    end(&s, before);
}

/* ---- bytes --------------------------------------------------------------- */

TEST(serve_bodies_that_are_no_json_are_refused)
{
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "null",
        "\"a\"",
        "{\"prompt\":\"\xff\xfe\"}",
        "{\"prompt\":\"\xc0\xaf\"}",
        "{\"prompt\":\"a\"}}",
        "{\"prompt\":\"a\",}",
        "{'prompt':'a'}",
        "{\"prompt\":\"a\nb\"}",
        "{\"prompt\":NaN}",
        "{\"prompt\":{\"a\":1}}",
        "{\"prompt\":null}",
    };
    static const char *const paths[] = {
        "/v1/completions", "/v1/chat/completions", "/v1/messages",
        "/v1/responses",   "/completion",          "/tokenize",
        "/detokenize",     "/apply-template"};
    struct serve_try s;
    char *before;

    serve_try_start(&s, "", "-np 2");
    before = choices(&s);
    for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++)
        for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
            int status = status_of(&s, paths[p], bodies[i]);

            if (status != 400)
                fail_msg("%s %s: %d", paths[p], bodies[i], status);
        }
    /* half a surrogate pair, as clients cut it, is U+FFFD */
    assert_int_equal(status_of(&s, "/v1/completions",
                               "{\"prompt\":\"\\ud800\",\"max_tokens\":1}"),
                     200);
    end(&s, before);
}

TEST(serve_body_of_64_mib_is_read_and_a_larger_one_refused)
{
    enum { MOST = 64 << 20 };
    struct test_text t = {0};
    struct serve_try s;
    char *before, *blanks = test_need(1 << 20, 1);

    serve_try_start(&s, "", "-np 2");
    before = choices(&s);
    memset(blanks, ' ', 1 << 20);
    add(&t, calm);
    while (t.n < MOST)
        test_text_add(&t, blanks, MOST - t.n < 1 << 20 ? MOST - t.n : 1 << 20);
    assert_int_equal(status_of(&s, "/v1/completions", t.s), 200);
    test_text_add(&t, " ", 1);
    assert_int_equal(status_of(&s, "/v1/completions", t.s), 413);
    free(t.s);
    free(blanks);
    end(&s, before);
}

/* ---- leaving ------------------------------------------------------------- */

/* After each part of its own request, and after each number of bytes of the
 * response. */
TEST(serve_clients_that_leave_anywhere_leave_nothing_behind)
{
    static const char head[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 88\r\n\r\n";
    static const char body[] =
        "{\"prompt\":\"Once upon a time\",\"max_tokens\":80,\"stream\":true,"
        "\"ignore_eos\":true}         ";
    const int step = test_long() ? 1 : 9;
    struct serve_use first, now;
    struct serve_try s;
    char *before;

    serve_try_start(&s, "", "-np 2 -ub 32");
    before = choices(&s);
    first = serve_try_use(&s);
    for (int i = 0; i < (int)(sizeof head + sizeof body); i += step) {
        struct try_client c;
        size_t n = (size_t)i < sizeof head - 1 ? (size_t)i : sizeof head - 1;
        size_t m = (size_t)i - n;

        try_connect(&s.t, &c);
        try_send_bytes(&c, head, n);
        try_send_bytes(&c, body, m < sizeof body - 1 ? m : sizeof body - 1);
        try_close(&c);
    }
    for (size_t i = 1; i < 6000; i += 200 * (size_t)step) {
        struct try_client c;

        try_connect(&s.t, &c);
        serve_try_send(&c, "/v1/completions", body);
        assert_true(try_fill(&c, i));
        try_close(&c);
    }
    serve_try_idle(&s);
    TEST_UNTIL((now = serve_try_use(&s)).n_file <= first.n_file + 2);
    assert_true(now.n_thread <= first.n_thread + 1);
    end(&s, before);
}

/* ---- little space -------------------------------------------------------- */

/* Conversations that begin alike and grow, in a cache of a few pages: tasks are
 * preempted and prefixes evicted all the time, and every response is the same
 * as without that. */
TEST(serve_conversations_in_a_small_cache_answer_the_same)
{
    enum { TURNS = 4, AT_ONCE = 8 };
    const int n = test_long() ? 500 : 6;
    uint64_t seed = test_seed();
    struct serve_try s, calm_one;

    serve_try_start(&s, "", "-np 6 -c 320 -ub 64 --max-waiting 64");
    serve_try_start(&calm_one, "", "-np 1 -c 320 -ub 64");
    for (int i = 0; i < n; i++) {
        struct try_client c[AT_ONCE];
        char *body[AT_ONCE];

        for (int k = 0; k < AT_ONCE; k++) {
            struct test_text t = {0};
            char tail[128];

            add(&t, "{\"prompt\":\"");
            add_times(&t, "Once upon a time there was a king. ",
                      1 + (int)test_below(&seed, TURNS));
            snprintf(tail, sizeof tail,
                     "%d\",\"seed\":%d,\"max_tokens\":%d,\"logprobs\":1,"
                     "\"ignore_eos\":true}",
                     (int)test_below(&seed, 40), k,
                     60 + (int)test_below(&seed, 60));
            add(&t, tail);
            body[k] = t.s;
            try_connect(&s.t, &c[k]);
            serve_try_send(&c[k], "/v1/completions", body[k]);
        }
        for (int k = 0; k < AT_ONCE; k++) {
            struct try_answer a;

            try_read(&c[k], &a, false);
            assert_int_equal(a.status, 200);
            if (i % 5 == 0 || k == i % AT_ONCE) {
                char *alone =
                    serve_try_post(&calm_one, "/v1/completions", body[k], 200);
                json_t *x = serve_try_json(a.body), *y = serve_try_json(alone);

                assert_true(json_equal(json_object_get(x, "choices"),
                                       json_object_get(y, "choices")));
                json_decref(x);
                json_decref(y);
                free(alone);
            }
            free(a.body);
            free(body[k]);
            try_close(&c[k]);
        }
    }
    /* slow clients may have come one after another; choices begin together */
    free(serve_try_post(&s, "/v1/completions",
                        "{\"prompt\":\"Once\",\"max_tokens\":110,\"n\":8,"
                        "\"ignore_eos\":true}",
                        200));
    assert_true(serve_try_metric(&s, "plait_preemptions_total") > 0);
    serve_try_idle(&s);
    serve_try_stop(&s);
    serve_try_stop(&calm_one);
}

/* A context of one page and one slot: what fits to the last token is generated,
 * what does not is rejected for its length. */
TEST(serve_context_of_one_page_is_used_to_its_last_token)
{
    struct serve_try s;

    serve_try_start(&s, "", "-np 1 -c 64");
    for (int n = 1; n <= 70; n += n < 56 ? 11 : 1) {
        char *body = many("{\"ignore_eos\":true,\"prompt\":[", "301", ",302",
                          n - 1, "]}");
        char *answer =
            serve_try_post(&s, "/v1/completions", body, n < 64 ? 200 : 400);

        if (n < 64) {
            json_t *j = serve_try_json(answer);
            const json_t *usage = json_object_get(j, "usage");

            assert_int_equal(
                json_integer_value(json_object_get(usage, "total_tokens")), 64);
            json_decref(j);
        }
        free(body);
        free(answer);
    }
    serve_try_stop(&s);
}
