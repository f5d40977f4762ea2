/* Chat templates render as the package jinja2 does with Hugging Face's
 * settings. Scripts in tests/tools/ make the expected results. */
#include "lib/support.h"

#include <jansson.h>
#include <lzma.h>
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t now = 1741529106; /* 2025-03-09 14:05:06 UTC */

static json_t *field(const json_t *line, const char *key)
{
    return json_object_get(line, key);
}

/* Returns the next line of a file of JSON objects, or NULL. */
static json_t *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    json_t *j;

    if (!end)
        return NULL;
    *end = '\0';
    *at = end + 1;
    j = json_loads(line, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    return j;
}

static char *lines_of(const char *name)
{
    const char *path = test_file(name);
    size_t n;

    if (!path)
        fail_msg("%s is missing", name);
    return test_read(path, &n);
}

/* Returns the lines of an .xz file. */
static char *packed_lines_of(const char *name)
{
    enum { MOST = 8 << 20 };
    const char *path = test_file(name);
    uint64_t memory = UINT64_MAX;
    size_t n, at = 0, n_out = 0;
    char *packed, *all = test_need(MOST, 1);

    if (!path)
        fail_msg("%s is missing", name);
    packed = test_read(path, &n);
    assert_int_equal(
        lzma_stream_buffer_decode(&memory, 0, NULL, (const uint8_t *)packed,
                                  &at, n, (uint8_t *)all, &n_out, MOST - 1),
        LZMA_OK);
    all[n_out] = '\0';
    free(packed);
    return all;
}

/* Renders the conversation in a line of conversations.jsonl; NULL on
 * failure. */
static char *render_case(const pl_template *t, const json_t *c, pl_err *err)
{
    char *messages = json_dumps(field(c, "messages"), JSON_ENCODE_ANY);
    char *tools = NULL, *extra, *text;
    json_t *variables = json_pack("{ssssss}", "bos_token", "<s>", "eos_token",
                                  "</s>", "unk_token", "<unk>");
    pl_conversation v;

    if (field(c, "extra"))
        json_object_update(variables, field(c, "extra"));
    if (field(c, "tools"))
        tools = json_dumps(field(c, "tools"), 0);
    extra = json_dumps(variables, 0);
    json_decref(variables);
    pl_conversation_init(&v);
    v.messages = messages;
    v.tools = tools;
    v.extra = extra;
    v.no_generation_prompt = json_is_true(field(c, "no_generation_prompt"));
    v.now = now;
    pl_template_render(t, &v, &text, NULL, err);
    free(messages);
    free(tools);
    free(extra);
    return text;
}

static uint64_t fnv(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

/* Compares with line `want`, which is the hash of this template's case, or
 * "raises". */
static void compare_case(const char *path, const json_t *c, const char *want)
{
    size_t n;
    char *form = test_read(path, &n), *text, got[32] = "raises";
    const char *name = json_string_value(field(c, "name"));
    pl_template *t;
    pl_err err;

    TEST_OK(pl_template_create(&t, form, n, NULL, &err), err);
    text = render_case(t, c, &err);
    if (text)
        snprintf(got, sizeof got, "%016llx", (unsigned long long)fnv(text));
    if (strcmp(got, want) != 0)
        fail_msg("%s, \"%s\": %s, not %s: %s", path, name, got, want,
                 text ? text : err.message);
    free(text);
    free(form);
    pl_template_free(t);
}

/* Published templates are not part of this tree; they may be next to the
 * reference models, in ../templates. */
TEST(chat_published_templates_give_what_jinja2_gives)
{
    enum { MAX_CASE = 200 };
    char *cases = lines_of("tests/chat/conversations.jsonl"), *at = cases;
    char *want = lines_of("tests/chat/published.txt"), *line = want;
    json_t *c[MAX_CASE];
    int n_case = 0, n_done = 0, n_absent = 0;

    setenv("TZ", "UTC", 1);
    while (n_case < MAX_CASE && (c[n_case] = next_line(&at)))
        n_case++;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        char name[256], file[300], hash[32];
        const char *path;
        int i;

        assert_int_equal(sscanf(line, "%255s %d %31s", name, &i, hash), 3);
        assert_true(i < n_case);
        snprintf(file, sizeof file, "../templates/%s", name);
        path = test_ref(file);
        if (path && (!test_brief() || n_done % 4 == 0))
            compare_case(path, c[i], hash);
        n_done += path != NULL;
        n_absent += path == NULL;
    }
    for (int i = 0; i < n_case; i++)
        json_decref(c[i]);
    free(cases);
    free(want);
    if (n_absent > 0)
        TEST_SKIP("%d of %d texts: published templates are not at hand",
                  n_absent, n_absent + n_done);
}

TEST(chat_random_templates_give_what_jinja2_gives)
{
    char *all = packed_lines_of("tests/chat/random.jsonl.xz"), *at = all;
    json_t *variables = next_line(&at), *line;
    char *extra = json_dumps(variables, 0);
    int n = 0;

    while ((line = next_line(&at))) {
        const char *form = json_string_value(field(line, "template"));
        const char *want = json_string_value(field(line, "text"));
        const pl_conversation v = {
            .size = sizeof v, .messages = "[]", .extra = extra, .now = now};
        pl_template *t = NULL;
        char *text = NULL;
        pl_err err;

        if (n++ % 4 != 0 && test_brief()) {
            json_decref(line);
            continue;
        }
        if (pl_template_create(&t, form, strlen(form), NULL, &err) == PL_OK)
            pl_template_render(t, &v, &text, NULL, &err);
        if ((text == NULL) != (want == NULL))
            fail_msg("%d: %s\n: %s", n, form, text ? text : err.message);
        if (text && strcmp(text, want) != 0)
            fail_msg("%d: %s\ngave %s\nnot  %s", n, form, text, want);
        free(text);
        pl_template_free(t);
        json_decref(line);
    }
    printf("%d templates\n", n);
    free(extra);
    json_decref(variables);
    free(all);
}

/* A published template is fast, too: 20 turns with tools take a millisecond or
 * so. */
TEST(chat_twenty_turns_take_two_milliseconds_at_most)
{
    static const char file[] = "../templates/Qwen3.5-4B.jinja";
    size_t n;
    char *form = test_read(test_ref_or_skip(file), &n);
    char *cases = lines_of("tests/chat/conversations.jsonl"), *at = cases;
    double best = 1;
    pl_template *t;
    json_t *c;
    pl_err err;

    TEST_OK(pl_template_create(&t, form, n, NULL, &err), err);
    while ((c = next_line(&at))) {
        bool twenty =
            strcmp(json_string_value(field(c, "name")), "twenty turns") == 0;

        for (int i = 0; twenty && i < 20; i++) {
            double took = test_cpu_seconds();

            free(render_case(t, c, &err));
            took = test_cpu_seconds() - took;
            best = took < best ? took : best;
        }
        json_decref(c);
    }
    printf("twenty turns: %.2f ms\n", best * 1e3);
    /* 2 ms of processor time, and ten times as much under a sanitizer */
    assert_true(best < 0.002 * 10);
    pl_template_free(t);
    free(form);
    free(cases);
}
