/* plait bench --serve against a scripted server, so that counts and times are
 * known; and against plait serve. */
#include "lib/command.h"
#include "lib/load_try.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char models[] =
    "{\"data\":[{\"id\":\"first\",\"meta\":{\"n_vocab\":1000}},"
    "{\"id\":\"second\",\"meta\":{\"n_vocab\":50}}]}";

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    if (!json_is_number(v))
        fail_msg("%s is no number", key);
    return json_number_value(v);
}

/* Runs plait bench --serve and returns its rows as JSON, which the caller
 * releases. */
static json_t *load(struct load_try *t, const char *more)
{
    size_t size = strlen(more) + 200;
    char *line = test_need(size, 1);
    json_t *all;
    struct ran r;

    snprintf(line, size, "plait bench --serve %s -o json %s", t->url, more);
    r = sh(0, line);
    all = json_loads(r.out, 0, NULL);
    if (!json_is_array(all) || json_array_size(all) < 1)
        fail_msg("%s\n  printed no rows: %.300s", line, r.out);
    free(line);
    return all;
}

/* Returns a prompt of ids in the body of a request. */
static const json_t *ids_of(json_t *body)
{
    const json_t *ids = json_object_get(body, "prompt");

    assert_true(json_is_array(ids));
    return ids;
}

/* ---- counts -------------------------------------------------------------- */

TEST(load_counts_what_went_well_and_why_others_did_not)
{
    struct load_try t = {.script = "otwecdob", .models = models, .n_token = 3};
    json_t *all, *row, *f;
    int seen[600] = {0}, n_text = 0;
    size_t i;

    load_try_start(&t);
    all = load(&t, "--requests 16 --concurrency 4 -p 7 -n 3");
    row = json_array_get(all, 0);
    assert_int_equal(number(row, "n_request"), 16);
    assert_int_equal(number(row, "n_done"), 6);
    assert_int_equal(number(row, "n_failed"), 10);
    assert_int_equal(number(row, "tokens_in"), 6 * 7);
    assert_int_equal(number(row, "tokens_cached"), 6 * 3);
    assert_int_equal(number(row, "tokens_out"), 6 * 3);
    assert_int_equal(number(row, "n_good"), 6);
    json_array_foreach (json_object_get(row, "failures"), i, f) {
        const char *why = json_string_value(json_object_get(f, "message"));

        seen[(int)number(f, "status")] += (int)number(f, "n");
        n_text += !strcmp(why, "too many") || !strcmp(why, "it is broken") ||
                  !strcmp(why, "it broke") || strstr(why, "[DONE]");
    }
    assert_int_equal(seen[429], 2);
    assert_int_equal(seen[500], 2);
    assert_int_equal(seen[0], 6);
    assert_int_equal(n_text, 4);
    json_decref(all);
    load_try_stop(&t);
}

TEST(load_that_fails_as_a_whole_says_why)
{
    struct load_try t = {.script = "t", .n_token = 1};
    char line[200];
    struct ran r;

    load_try_start(&t);
    snprintf(line, sizeof line, "plait bench --serve %s --requests 2", t.url);
    r = sh(1, line);
    must_say(r, "too many");
    load_try_stop(&t);
    r = sh(1, line); /* no server listens at this address any more */
    must_say(r, "start a server there");
}

TEST(load_asks_with_the_key_that_is_given)
{
    struct load_try t = {
        .script = "o", .key = "k1", .models = models, .n_token = 1};
    char line[200];

    load_try_start(&t);
    snprintf(line, sizeof line, "plait bench --serve %s/v1/ --requests 1",
             t.url);
    must_say(sh(1, line), "--api-key");
    json_decref(load(&t, "--requests 1 --api-key k1"));
    load_try_stop(&t);
}

TEST(load_asks_with_all_of_a_long_key)
{
    enum { LONG = 5000 };
    static const char option[] = "--requests 1 --api-key ";
    struct load_try t = {.script = "o", .models = models, .n_token = 1};
    char *words = test_need(sizeof option + LONG, 1);
    char *key = words + sizeof option - 1;

    memcpy(words, option, sizeof option);
    memset(key, 'k', LONG);
    t.key = key;
    load_try_start(&t);
    json_decref(load(&t, words));
    load_try_stop(&t);
    free(words);
}

TEST(load_ends_who_takes_longer_than_the_timeout)
{
    struct load_try t = {.script = "so", .n_token = 2};
    const json_t *why;
    char line[200];
    size_t n_done = 0, i;

    load_try_start(&t);
    /* doubles the seconds until a request ends, because a slow machine takes
     * longer */
    for (int s = 1; n_done == 0; s *= 2) {
        json_t *all, *row;
        struct ran r;

        t.n_body = 0;
        snprintf(line, sizeof line,
                 "plait bench --serve %s -o json --requests 2 --concurrency 2 "
                 "--timeout %d || true",
                 t.url, s);
        r = sh(0, line);
        all = json_loads(r.out, 0, NULL);
        row = json_array_get(all, 0);
        if (!row) {
            must_say(r, "longer than --timeout");
            continue;
        }
        json_array_foreach (json_object_get(row, "failures"), i, why)
            assert_non_null(
                strstr(json_string_value(json_object_get(why, "message")),
                       "longer than --timeout"));
        n_done = (size_t)number(row, "n_done");
        assert_int_equal(number(row, "n_failed"), 2 - n_done);
        assert_in_range(n_done, 0, 1);
        json_decref(all);
    }
    load_try_stop(&t);
}

/* A response without any token does not count as good. */
TEST(load_counts_no_answer_without_a_token_as_good)
{
    struct load_try t = {.script = "o", .n_token = 0};
    json_t *all, *row;

    load_try_start(&t);
    all = load(&t, "--requests 2 --max-first 60000");
    row = json_array_get(all, 0);
    assert_int_equal(number(row, "n_done"), 2);
    assert_int_equal(number(row, "n_good"), 0);
    assert_true(json_is_null(json_object_get(row, "first_p50_ms")));
    json_decref(all);
    load_try_stop(&t);
}

/* ---- times --------------------------------------------------------------- */

/* Of 19 requests the first gets its first token only when the others have
 * ended, which run three at a time. A busy machine makes all of it longer and
 * changes no order. */
TEST(load_percentiles_are_those_of_known_delays)
{
    enum { FIRST = 20, GAP = 10, N = 5, ALL = 19 };
    enum { WHOLE = FIRST + (N - 1) * GAP, LATE = (ALL - 1) / 3 * WHOLE };
    enum { GOOD = LATE / 2 };
    struct load_try t = {.script = "loooooooooooooooooo",
                         .n_token = N,
                         .first_ms = FIRST,
                         .gap_ms = GAP,
                         .behind = ALL - 1};
    json_t *all, *row;
    char more[99];

    load_try_start(&t);
    snprintf(more, sizeof more, "--requests %d --concurrency 4 --max-first %d",
             ALL, GOOD);
    all = load(&t, more);
    row = json_array_get(all, 0);
    assert_true(number(row, "first_p50_ms") >= FIRST);
    assert_true(number(row, "first_p90_ms") < number(row, "first_p99_ms"));
    assert_true(number(row, "first_p99_ms") >= LATE);
    assert_true(number(row, "first_max_ms") == number(row, "first_p99_ms"));
    assert_true(number(row, "gap_max_ms") != number(row, "first_max_ms"));
    assert_true(number(row, "whole_p50_ms") >= WHOLE);
    assert_true(number(row, "whole_max_ms") >= LATE + (N - 1) * GAP);
    assert_int_equal(number(row, "n_done"), ALL);
    assert_true(number(row, "n_good") < ALL);
    assert_true((number(row, "n_good") == ALL - 1) ==
                (number(row, "first_p90_ms") <= GOOD));
    assert_true(number(row, "good_ts") < number(row, "out_ts"));
    json_decref(all);
    t.script = "o"; /* a token read late is nearer to the next one */
    all = load(&t, "--requests 1");
    row = json_array_get(all, 0);
    assert_true(number(row, "first_p50_ms") +
                    (N - 1) * number(row, "between_p50_ms") >=
                WHOLE - 0.1);
    assert_true(number(row, "gap_max_ms") >=
                number(row, "between_p50_ms") - 0.1);
    assert_true(number(row, "gap_max_ms") <= number(row, "whole_max_ms"));
    json_decref(all);
    load_try_stop(&t);
}

/* Prompt time that the server reports does not count as waiting. */
TEST(load_queueing_is_what_the_server_did_not_read_for)
{
    struct load_try t = {
        .script = "q", .n_token = 2, .first_ms = 300, .prompt_ms = 200};
    json_t *all, *row;

    load_try_start(&t);
    all = load(&t, "--requests 3 --concurrency 1");
    row = json_array_get(all, 0);
    assert_true(number(row, "queue_p50_ms") >= 100);
    assert_true(number(row, "first_p50_ms") - number(row, "queue_p50_ms") >
                150);
    json_decref(all);
    t.script = "o";
    all = load(&t, "--requests 1");
    assert_true(
        json_is_null(json_object_get(json_array_get(all, 0), "queue_p50_ms")));
    json_decref(all);
    load_try_stop(&t);
}

/* Requests that wait for a free connection wait on their own time: the last of
 * four that are due at once has waited for three. */
TEST(load_times_count_from_when_a_request_was_due)
{
    struct load_try t = {.script = "o", .n_token = 1, .first_ms = 200};
    json_t *all, *row;

    load_try_start(&t);
    all = load(&t, "--requests 4 --concurrency 1 --rate 100000");
    row = json_array_get(all, 0);
    assert_true(number(row, "first_max_ms") >= 790);
    assert_int_equal(t.most_open, 1);
    json_decref(all);
    load_try_stop(&t);
}

TEST(load_keeps_as_many_at_once_as_it_was_told)
{
    struct load_try t = {.script = "oooooooooooohhhhhhoooooo",
                         .n_token = 2,
                         .first_ms = 20,
                         .crowd = 6};
    json_t *all;

    load_try_start(&t);
    all = load(&t, "--requests 12 --concurrency 3,6");
    assert_int_equal(json_array_size(all), 2);
    assert_int_equal(number(json_array_get(all, 0), "n_done"), 12);
    assert_int_equal(number(json_array_get(all, 1), "concurrency"), 6);
    assert_int_equal(t.most_open, 6);
    json_decref(all);
    load_try_stop(&t);
}

TEST(load_arrives_at_its_rate_and_ends_after_its_seconds)
{
    struct load_try t = {.script = "o", .n_token = 1};
    json_t *all, *row;

    load_try_start(&t);
    all = load(&t, "--rate 40 --seconds 2");
    row = json_array_get(all, 0);
    /* 80 are expected, give or take four times the root of it */
    assert_in_range((int)number(row, "n_request"), 44, 116);
    assert_true(number(row, "seconds") >= 1.5);
    json_decref(all);
    load_try_stop(&t);
}

/* ---- requests ------------------------------------------------------------ */

/* Returns how many ids two prompts share at the start. */
static size_t in_common(const char *a, const char *b)
{
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    size_t n = 0;

    while (
        n < json_array_size(ids_of(x)) && n < json_array_size(ids_of(y)) &&
        json_equal(json_array_get(ids_of(x), n), json_array_get(ids_of(y), n)))
        n++;
    json_decref(x);
    json_decref(y);
    return n;
}

TEST(load_prompts_have_their_lengths_and_their_share_in_common)
{
    struct load_try t = {.script = "o", .models = models, .n_token = 1};
    int n40 = 0, n80 = 0, same = 0;
    json_t *all;

    load_try_start(&t);
    all = load(&t, "-m second --requests 24 --concurrency 1 -p 40,80 -n 5,6 "
                   "--prefix 0.5 --prefixes 2 -s 3");
    for (int i = 0; i < t.n_body; i++) {
        json_t *b = json_loads(t.body[i], 0, NULL);
        size_t n = json_array_size(ids_of(b)), k, common;
        int64_t most = json_integer_value(json_object_get(b, "max_tokens"));
        const json_t *id;

        json_array_foreach (ids_of(b), k, id)
            assert_in_range(json_integer_value(id), 0, 49);
        assert_string_equal(json_string_value(json_object_get(b, "model")),
                            "second");
        assert_in_range(most, 5, 6);
        n40 += n == 40;
        n80 += n == 80;
        common = i > 0 ? in_common(t.body[0], t.body[i]) : 0;
        same += common >= 20;
        assert_true(common < 20 || common < n);
        json_decref(b);
    }
    assert_true(n40 > 2 && n80 > 2);
    assert_int_equal(n40 + n80, 24);
    assert_in_range(same, 3, 20); /* each prompt draws one of two prefixes */
    json_decref(all);
    load_try_stop(&t);
}

TEST(load_of_a_seed_asks_the_same_again)
{
    struct load_try t = {.script = "o", .models = models, .n_token = 1};

    load_try_start(&t);
    for (int i = 0; i < 3; i++)
        json_decref(load(&t, i < 2 ? "-s 5 --requests 4 --concurrency 1 -p 9"
                                   : "-s 6 --requests 4 --concurrency 1 -p 9"));
    assert_int_equal(t.n_body, 12);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(t.body[i], t.body[4 + i]);
        assert_string_not_equal(t.body[i], t.body[8 + i]);
    }
    load_try_stop(&t);
}

/* A server that does not report how many tokens it knows gets words. */
TEST(load_speaks_chat_and_words_where_ids_are_not_known)
{
    struct load_try t = {.script = "ob", .n_token = 4};
    json_t *all;

    load_try_start(&t);
    all = load(&t, "--chat --requests 4 --concurrency 2 -p 6");
    assert_int_equal(number(json_array_get(all, 0), "n_done"), 4);
    assert_string_equal(t.path, "/v1/chat/completions");
    assert_non_null(strstr(t.body[0], "\"role\":\"user\""));
    json_decref(all);
    all = load(&t, "--requests 2 --concurrency 1 -p 6");
    assert_string_equal(t.path, "/v1/completions");
    assert_non_null(strstr(t.body[5], "\"prompt\":\" "));
    json_decref(all);
    load_try_stop(&t);
}

/* ---- forms and misuse ---------------------------------------------------- */

static void must_print(struct ran r, const char *text)
{
    if (!strstr(r.out, text))
        fail_msg("%s\n  should print \"%s\" but did: %.2000s", r.line, text,
                 r.out);
}

TEST(load_prints_tables_and_draws)
{
    struct load_try t = {.script = "oot", .models = models, .n_token = 3};
    char line[300];
    struct ran r;

    load_try_start(&t);
    snprintf(line, sizeof line,
             "plait bench --serve %s --requests 6 --concurrency 1,2 --svg a.svg"
             " --max-between 1000 && cat a.svg",
             t.url);
    r = sh(0, line);
    must_print(r, "first token");
    must_print(r, "good/s");
    must_print(r, "status 429, too many");
    must_print(r, "</svg>");
    snprintf(line, sizeof line, "plait bench --serve %s --requests 3 -o csv",
             t.url);
    r = sh(0, line);
    must_print(r, "\"first_p99_ms\"");
    load_try_stop(&t);
}

TEST(load_options_that_make_no_sense_are_refused)
{
    must_say(sh(2, "plait bench --rate 3"), "--serve");
    must_say(sh(2, "plait bench --serve http://127.0.0.1:1 -t 2"),
             "leave it out");
    must_say(sh(2, "plait bench --serve http://127.0.0.1:1 -n 0"), "-n 0");
    must_say(sh(2, "plait bench --serve http://127.0.0.1:1 --rate 0"),
             "numbers from");
    must_say(sh(1, "plait bench --serve file:///etc/passwd"), "file");
}
