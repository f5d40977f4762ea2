/* The Python packages that speak the server's protocols: it parses their
 * requests, and they parse its responses, as tests/tools/server_clients.py
 * expects. */
#include "lib/command.h"
#include "lib/support.h"
#include "server/response.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Named as in the script. */
static const struct {
    const char *name;
    enum request_kind kind;
} calls[] = {
    {"chat", REQUEST_CHAT},
    {"chat-stream", REQUEST_CHAT},
    {"chat-helper", REQUEST_CHAT},
    {"chat-error", REQUEST_CHAT},
    {"text", REQUEST_COMPLETIONS},
    {"text-stream", REQUEST_COMPLETIONS},
    {"response", REQUEST_RESPONSES},
    {"response-stream", REQUEST_RESPONSES},
    {"response-helper", REQUEST_RESPONSES},
    {"message", REQUEST_MESSAGES},
    {"message-stream", REQUEST_MESSAGES},
    {"message-helper", REQUEST_MESSAGES},
    {"message-error", REQUEST_MESSAGES},
};

/* The output that the script expects. */
static const pl_reply_part said[] = {
    {PL_REPLY_REASONING, "why \xc3\xbc", 6, NULL, NULL},
    {PL_REPLY_CONTENT, "say \xe6\x9d\xb1 \"\\\" \xf0\x9f\x8e\x89\n", 17, NULL,
     NULL},
    {PL_REPLY_CALL, "{\"x\": \"\xc3\xbc\"}", 11, "f", NULL},
    {PL_REPLY_CALL, "{}", 2, "g", NULL},
};

static bool write_file(void *file, const void *data, size_t n)
{
    return fwrite(data, 1, n, file) == n;
}

/* Texts are sent a byte at a time, calls whole. */
static void answer_all(const struct request *a, FILE *f)
{
    struct response_about about = {.model = "tale",
                                   .id = "a1",
                                   .created = 99,
                                   .write = write_file,
                                   .user = f};
    struct response_end end = {.why = RESPONSE_ENDED,
                               .n_prompt = 10,
                               .n_cached = 4,
                               .n_written = 8,
                               .times = {0.5, 2}};
    struct response_token token = {
        .id = 7, .text = "say", .len = 3, .logprob = -0.5};
    bool talks = a->messages != NULL;
    struct response *w;
    pl_err err;

    TEST_OK(response_create(&w, a, &about, &err), err);
    assert_true(response_progress(w, 0, 5, 10, 4, 0.1));
    assert_true(response_prompt(w, 0, 10, 4, NULL));
    assert_true(response_token(w, 0, &token, &end.times));
    for (int i = talks ? 0 : 1; i < (talks ? 4 : 2); i++) {
        pl_reply_part part = said[i];

        if (part.kind == PL_REPLY_CALL)
            assert_true(response_part(w, 0, &part));
        for (part.len = 1; part.kind != PL_REPLY_CALL &&
                           part.text < said[i].text + said[i].len;
             part.text++)
            assert_true(response_part(w, 0, &part));
    }
    assert_true(response_end(w, 0, &end));
    response_free(w);
}

/* Handles DIR/NAME.body as the server would. */
static void serve(const char *folder, const char *name, enum request_kind kind)
{
    static const struct request_rules rules = {.n_vocab = 1000,
                                               .max_tokens = -1};
    struct api_error why = {0};
    char path[4096];
    struct request a;
    size_t n;
    char *body;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s.body", folder, name);
    body = test_read(path, &n);
    if (!request_parse(&a, kind, body, n, &rules, &why))
        fail_msg("%s: %s", body, why.message);
    free(body);
    snprintf(path, sizeof(path), "%s/%s.answer", folder, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    if (strstr(name, "-error") == NULL) {
        answer_all(&a, f);
    } else {
        api_error_set(&why, 400, "invalid_value", "temperature",
                      "temperature is 7");
        body = api_error_body(&why, request_shape(kind));
        assert_true(write_file(f, body, strlen(body)));
        free(body);
    }
    fclose(f);
    request_fini(&a);
}

static int run(const char *script, const char *folder, const char *mode)
{
    char command[9000];
    int status;

    snprintf(command, sizeof(command), "'%s' '%s' '%s' %s", command_python(),
             script, folder, mode);
    status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* In the short tier they are tried against a server by test_serve. */
TEST_LONG(server_is_understood_by_the_packages_of_its_protocols)
{
    const char *script = test_file("tests/tools/server_clients.py");
    const char *folder = test_temp("clients");
    int status;

    assert_non_null(script);
    status = run(script, folder, "asks");
    if (status == 77)
        TEST_SKIP("Python lacks openai, or the package of /v1/messages");
    assert_int_equal(status, 0);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        serve(folder, calls[i].name, calls[i].kind);
    assert_int_equal(run(script, folder, "answers"), 0);
}
