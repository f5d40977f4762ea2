/* A server of an encoder offers embeddings, that of a reranker /rerank, in the
 * forms of llama-server, Jina, Cohere and TEI. Texts come whole, so a text that
 * is too long is rejected by its length. Costs the gate 2 s. */
#include "lib/made_model.h"
#include "lib/serve_try.h"
#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void start(struct serve_try *s, const char *name, const char *more)
{
    char file[80], line[900];
    const char *path;

    snprintf(file, sizeof file, "serve-%s.gguf", name);
    path = test_temp(file);
    made_model_write(PLAIT_SOURCE_DIR "/tests/refs/encoders", name, path);
    snprintf(line, sizeof line, "-m '%s' -a tiny -t 1 %s", path, more);
    serve_try_run(s, "", line);
}

/* Fails unless the response with this status contains `text`. */
static void must_hold(struct serve_try *s, const char *path, const char *body,
                      int status, const char *text)
{
    char *got = serve_try_post(s, path, body, status);

    if (!strstr(got, text))
        fail_msg("%s: %s", path, got);
    free(got);
}

TEST(serve_of_an_encoder_has_embeddings)
{
    struct serve_try s;
    json_t *j, *data, *one;
    char *body, long_text[2000] = "{\"input\": \"a";
    double sum = 0;

    start(&s, "bert", "-np 3");
    body = serve_try_post(&s, "/v1/embeddings",
                          "{\"input\": [\"the cat\", \"a\", \"the cat\", "
                          "\"dog sat on the mat\"]}",
                          200);
    j = serve_try_json(body);
    data = json_object_get(j, "data");
    assert_int_equal(json_array_size(data), 4);
    one = json_object_get(json_array_get(data, 0), "embedding");
    assert_int_equal(json_array_size(one), 48);
    for (size_t i = 0; i < 48; i++)
        sum += pow(json_number_value(json_array_get(one, i)), 2);
    assert_true(fabs(sum - 1) < 1e-5);
    assert_true(
        json_equal(one, json_object_get(json_array_get(data, 2), "embedding")));
    assert_false(
        json_equal(one, json_object_get(json_array_get(data, 1), "embedding")));
    /* CLS the cat SEP, and so on */
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(j, "usage"), "prompt_tokens")),
                     4 + 3 + 4 + 7);
    json_decref(j);
    free(body);
    must_hold(&s, "/embedding", "{\"content\": \"the cat\"}", 200,
              "\"embedding\":[[");
    must_hold(&s, "/completion", "{\"prompt\": \"the cat\"}", 400,
              "generates no text");
    must_hold(&s, "/rerank", "{\"query\": \"a\", \"documents\": [\"b\"]}", 501,
              "--rerank");
    for (int i = 0; i < 140; i++)
        strcat(long_text, " a");
    strcat(long_text, "\"}");
    must_hold(&s, "/v1/embeddings", long_text, 400, "larger -ub");
    serve_try_stop(&s);
}

/* Texts of different lengths, more of them than slots, get the vectors that
 * they have alone. */
TEST(serve_computes_texts_of_an_encoder_whole)
{
    struct serve_try s;
    char text[8][400], all[4000] = "{\"input\": [", one[500];
    json_t *j, *k;
    char *body;

    start(&s, "modern-bert", "-np 4 -ub 64 --pooling mean");
    for (int i = 0; i < 8; i++) {
        text[i][0] = '\0';
        for (int n = 0; n < 5 + 7 * i; n++)
            strcat(text[i], n % 3 ? " cat" : " the");
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\"%s\"",
                 i ? "," : "", text[i]);
    }
    strcat(all, "]}");
    body = serve_try_post(&s, "/v1/embeddings", all, 200);
    j = serve_try_json(body);
    free(body);
    for (size_t i = 0; i < 8; i++) {
        snprintf(one, sizeof one, "{\"input\": \"%.399s\"}", text[i]);
        body = serve_try_post(&s, "/v1/embeddings", one, 200);
        k = serve_try_json(body);
        free(body);
        assert_true(json_equal(
            json_object_get(json_array_get(json_object_get(j, "data"), i),
                            "embedding"),
            json_object_get(json_array_get(json_object_get(k, "data"), 0),
                            "embedding")));
        json_decref(k);
    }
    json_decref(j);
    serve_try_stop(&s);
}

/* Fails unless the results' scores, named `key`, fall. Returns their number. */
static int must_fall(const json_t *list, const char *key)
{
    double last = HUGE_VAL;
    json_t *v;
    size_t i;

    json_array_foreach (list, i, v) {
        const json_t *score = json_object_get(v, key);

        assert_true(json_is_real(score));
        assert_true(json_number_value(score) <= last);
        last = json_number_value(score);
    }
    return (int)json_array_size(list);
}

TEST(serve_ranks_documents)
{
    static const char query[] = "\"query\": \"the cat\"";
    static const char docs[] =
        "[\"a\", \"the cat sat\", {\"text\": \"dog\"}, \"mat on\", \"a\"]";
    struct serve_try s;
    char body[400], *got;
    json_t *j, *k, *list;
    int at[2] = {-1, -1};

    start(&s, "bert-rank", "-np 2 --rerank");
    snprintf(body, sizeof body, "{%s, \"documents\": %s}", query, docs);
    got = serve_try_post(&s, "/v1/rerank", body, 200);
    j = serve_try_json(got);
    free(got);
    list = json_object_get(j, "results");
    assert_int_equal(must_fall(list, "relevance_score"), 5);
    assert_string_equal(json_string_value(json_object_get(j, "object")),
                        "list");
    /* The first of equal documents comes first. */
    for (size_t i = 0; i < 5; i++) {
        int n = (int)json_integer_value(
            json_object_get(json_array_get(list, i), "index"));

        if (n % 4 == 0)
            at[n / 4] = (int)i;
    }
    assert_int_equal(at[1], at[0] + 1);
    snprintf(body, sizeof body,
             "{%s, \"documents\": %s, \"top_n\": 2, \"return_documents\": "
             "true}",
             query, docs);
    got = serve_try_post(&s, "/reranking", body, 200);
    k = serve_try_json(got);
    free(got);
    list = json_object_get(k, "results");
    assert_int_equal(must_fall(list, "relevance_score"), 2);
    assert_true(json_is_string(json_object_get(
        json_object_get(json_array_get(list, 0), "document"), "text")));
    assert_true(json_equal(
        json_object_get(json_array_get(list, 0), "relevance_score"),
        json_object_get(json_array_get(json_object_get(j, "results"), 0),
                        "relevance_score")));
    json_decref(k);
    snprintf(body, sizeof body, "{%s, \"texts\": %s}", query, docs);
    got = serve_try_post(&s, "/rerank", body, 200);
    k = serve_try_json(got);
    free(got);
    assert_int_equal(must_fall(k, "score"), 5);
    json_decref(k);
    json_decref(j);
    must_hold(&s, "/rerank", "{\"query\": \"a\"}", 400, "documents");
    must_hold(&s, "/rerank", "{\"query\": \"a\", \"documents\": []}", 400,
              "send 1 to");
    must_hold(&s, "/rerank", "{\"query\": \"a\", \"documents\": [1]}", 400,
              "documents[0]");
    must_hold(&s, "/v1/embeddings", "{\"input\": \"a\"}", 501, "--pooling");
    serve_try_stop(&s);
}
