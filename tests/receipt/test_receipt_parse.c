/* Receipts come from others: whatever is wrong with one is rejected by name,
 * costs no more than its bytes, and cannot write to a terminal. No allocation
 * that fails leaves a receipt with a part missing. */
#include "lib/alloc_fail.h"
#include "lib/receipt_way.h"
#include "lib/ref_models.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct engine_run opened(void)
{
    pl_options o = engine_run_options();
    const char *name = "made/llama-gqa-f32";
    struct engine_run r;

    engine_run_open(&r, ref_model_path(name), name, &o);
    return r;
}

/* Returns a receipt with a grammar and a forced token. */
static char *whole(const struct engine_run *r)
{
    struct way w = way(7);

    return way_write(r, &w, PL_RECEIPT_FULL);
}

/* ---- wrong documents ----------------------------------------------------- */

/* A value at a path is replaced, or added if it is new; "" drops it. The
 * message has the word `named`. */
static const struct {
    const char *path, *value, *named;
} wrong[] = {
    {"plait_receipt", "", "plait_receipt"},
    {"plait_receipt", "0", "plait_receipt"},
    {"plait_receipt", "\"1\"", "plait_receipt"},
    {"plait_receipt", "2", "version 2"},
    {"plait", "", "plait"},
    {"plait", "1", "plait"},
    {"unknown", "0", "unknown"},
    {"model", "", "model"},
    {"model", "[]", "model"},
    {"model.name", "1", "model"},
    {"model.hash", "\"0123456789abcde\"", "model"},
    {"model.hash", "\"0123456789ABCDEF\"", "model"},
    {"model.new", "1", "model.new"},
    {"numerics", "", "numerics"},
    {"numerics.ranks", "2", "numerics"},
    {"numerics.ranks", "1000000", "numerics"},
    {"numerics.shares", "\"nan\"", "numerics"},
    {"numerics.shares", "\"-1\"", "numerics"},
    {"numerics.shares", "\"inf\"", "numerics"},
    {"numerics.shares", "\"1,\"", "numerics"},
    {"numerics.precision", "\"double\"", "numerics"},
    {"numerics.activations", "1", "numerics"},
    {"numerics.cache", "[\"F16\"]", "numerics"},
    {"numerics.keep", "[1]", "numerics"},
    {"numerics.layouts", "null", "numerics"},
    {"numerics.mtp", "-1", "numerics"},
    {"numerics.order", "1e3", "numerics"},
    {"numerics.rope", "1", "numerics.rope"},
    {"sampling", "", "sampling"},
    {"sampling", "[1]", "sampling"},
    {"sampling", "null", "sampling"},
    {"output.nll", "1", "nll"},
    {"output.nll", "\"1\"", "nll"},
    {"output.nll", "\"inf\"", "nll"},
    {"sampling.top_k", "\"40\"", "top_k"},
    {"sampling.top_k", "1.5", "top_k"},
    {"sampling.top_k", "3000000000", "top_k"},
    {"sampling.top_p", "", "top_p"},
    {"sampling.top_p", "\"much\"", "top_p"},
    {"sampling.seed", "8", "seed"},
    {"sampling.seed", "\"08\"", "seed"},
    {"sampling.seed", "\"-1\"", "seed"},
    {"sampling.seed", "\"18446744073709551616\"", "seed"},
    {"sampling.bias", "{}", "bias"},
    {"sampling.bias", "[[1]]", "bias"},
    {"sampling.bias", "[[1, \"nan\"]]", "bias"},
    {"sampling.bias", "[[0.5, 1]]", "bias"},
    {"sampling.samplers", "[]", "samplers"},
    {"sampling.samplers", "[\"none\"]", "samplers"},
    {"sampling.samplers", "[1]", "samplers"},
    {"sampling.dry_breakers", "\"x\"", "dry_breakers"},
    {"sampling.dry_breakers", "[1]", "dry_breakers"},
    {"sampling.new", "1", "new"},
    {"prompt", "", "prompt"},
    {"prompt.n", "-1", "prompt"},
    {"prompt.n", "6", "prompt"},
    {"prompt.n", "67108864", "prompt"},
    {"prompt.n", "9000000000000000000", "prompt"},
    {"prompt.sha256", "\"00\"", "prompt"},
    {"prompt.tokens", "\"1\"", "prompt"},
    {"prompt.tokens.3", "5", "sha256"},
    {"prompt.tokens.3", "-1", "prompt"},
    {"prompt.tokens.3", "4294967297", "prompt"},
    {"prompt.new", "1", "prompt.new"},
    {"output", "", "output"},
    {"output.n", "3", "output"},
    {"output.n", "67108864", "output"},
    {"output.n", "null", "output"},
    {"output.tokens", "{}", "output"},
    {"output.tokens.5", "400", "sha256"},
    {"output.tokens.5", "true", "output"},
    {"output.forced", "", "forced"},
    {"output.forced", "[[1, 2]]", "forced"},
    {"output.forced.0.0", "12", "forced"},
    {"output.forced.0.0", "-1", "forced"},
    {"output.forced.0.1", "0", "forced"},
    {"output.forced.0.2", "1", "forced"},
    {"output.no_eog", "", "no_eog"},
    {"output.no_eog", "[[0, 99]]", "no_eog"},
    {"output.no_eog", "[[0, 0]]", "no_eog"},
    {"output.no_eog", "[[0, 2], [1, 2]]", "no_eog"},
    {"output.no_eog", "[[5, 2], [1, 2]]", "no_eog"},
    {"output.new", "1", "output.new"},
    {"rows", "", "output"},
    {"rows.n", "12", "rows"},
    {"rows.hash", "\"0123456789abcdeg\"", "rows"},
    {"rows.hash", "7", "rows"},
    {"rows.each", "\"0123\"", "output"},
    {"rows.each", "[]", "output"},
    {"rows.new", "1", "rows.new"},
    {"grammar", "", "grammar"},
    {"grammar", "{}", "grammar"},
    {"grammar", "null", "forced"},
    {"grammar.form", "\"ebnf\"", "grammar"},
    {"grammar.from", "12", "grammar"},
    {"grammar.from", "-1", "grammar"},
    {"grammar.from", "5", "forced"},
    {"grammar.text", "\"root ::= .\"", "sha256"},
    {"grammar.text", "7", "grammar"},
    {"grammar.new", "1", "grammar.new"},
    {"end", "[]", "end"},
    {"end.reason", "\"boredom\"", "end"},
    {"end.max_tokens", "-2", "end"},
    {"end.max_tokens", "1.0", "end"},
    {"end.stop", "[1]", "end"},
    {"end.new", "1", "end.new"},
};

/* Sets or drops the value at a path of the document. */
static void set_at(json_t *doc, const char *path, const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL), *in = doc;
    char name[64];

    for (;;) {
        size_t n = strcspn(path, ".");

        snprintf(name, sizeof name, "%.*s", (int)n, path);
        path += n;
        if (*path++ == '\0')
            break;
        in = json_is_array(in) ? json_array_get(in, strtoul(name, NULL, 10))
                               : json_object_get(in, name);
        assert_non_null(in);
    }
    if (json_is_array(in))
        json_array_set(in, strtoul(name, NULL, 10), value);
    else if (*text == '\0')
        assert_int_equal(json_object_del(in, name), 0);
    else
        json_object_set(in, name, value);
    json_decref(value);
}

static void must_refuse(const char *json, size_t n, const char *what,
                        const char *named)
{
    pl_receipt *r = (pl_receipt *)&r;
    pl_err err;
    pl_status s = pl_receipt_parse(&r, json, n, &err);

    if (s != PL_BAD_FILE && s != PL_UNSUPPORTED)
        fail_msg("%s: status %d", what, s);
    assert_null(r);
    if (!strstr(err.message, "receipt") || !strstr(err.message, named))
        fail_msg("%s: the message does not name %s: %s", what, named,
                 err.message);
    for (const char *p = err.message; *p != '\0'; p++)
        assert_true(*p >= ' ' && *p <= '~');
}

TEST(receipts_that_are_wrong_are_refused_by_name)
{
    struct engine_run r = opened();
    char *json = whole(&r);

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *doc = json_loads(json, 0, NULL);
        char what[128], *text;

        set_at(doc, wrong[i].path, wrong[i].value);
        text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        snprintf(what, sizeof what, "%s = %s", wrong[i].path, wrong[i].value);
        must_refuse(text, strlen(text), what, wrong[i].named);
        json_decref(doc);
        free(text);
    }
    free(json);
    engine_run_close(&r);
}

/* Every prefix, and a document with more after its end. */
TEST(receipts_that_are_cut_are_refused)
{
    struct engine_run r = opened();
    char *json = whole(&r), *more;
    size_t n = strlen(json);

    for (size_t i = 0; i < n; i++)
        must_refuse(json, i, "a cut one", "receipt");
    more = test_need(n + 3, 1);
    sprintf(more, "%s{}", json);
    must_refuse(more, n + 2, "two in one", "receipt");
    must_refuse(json, n + 1, "a NUL at the end", "receipt");
    free(more);
    free(json);
    engine_run_close(&r);
}

/* Nesting, repeated names, bytes that a terminal would execute. */
TEST(receipts_that_are_hostile_are_refused)
{
    static const char *const texts[] = {
        "",
        " ",
        "[]",
        "7",
        "null",
        "{\"plait_receipt\":1,\"plait_receipt\":1}",
        "{\"plait_receipt\":1,\"\\u001b[2J\":1}",
        "{\"plait_receipt\":1,\"\xc2\x9b[2J\":1}",
        "{\"\x1b[2J\":1}",
        "\x1b]0;title\x07",
        "{\"plait_receipt\": 1e999}",
        "{\"plait_receipt\": 100000000000000000000}",
        "\xff\xfe{}",
    };
    enum { DEEP = 200000 };
    char *deep = test_need(DEEP, 1);

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        must_refuse(texts[i], strlen(texts[i]), texts[i], "receipt");
    memset(deep, '[', DEEP);
    must_refuse(deep, DEEP, "deep nesting", "receipt");
    for (int i = 0; i + 5 < DEEP; i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    must_refuse(deep, DEEP, "deep nesting", "receipt");
    free(deep);
}

/* A small file requests little memory and time, whatever its counts say: no
 * tokens for 64 Mi of them, and ranges that overlap. */
TEST(receipts_cost_no_more_than_their_bytes)
{
    enum { N = 20000 };
    struct engine_run r = opened();
    struct way w = way(0);
    char *json = way_write(&r, &w, PL_RECEIPT_NO_TOKENS), *text;
    json_t *doc = json_loads(json, 0, NULL), *list = json_array();
    json_t *output = json_object_get(doc, "output");
    double start = test_cpu_seconds();
    struct alloc_stat stat;

    for (int i = 0; i < N; i++)
        json_array_append_new(list, json_pack("[i, i]", 0, 1 << 26));
    json_object_set_new(output, "no_eog", list);
    json_object_set_new(output, "n", json_integer(1 << 26));
    text = json_dumps(doc, JSON_COMPACT);
    alloc_stat_reset();
    must_refuse(text, strlen(text), "many tokens", "output");
    stat = alloc_stat_get();
    assert_true(stat.peak_bytes < 1 << 20);
    assert_true(test_cpu_seconds() - start < 10);
    json_decref(doc);
    free(text);
    free(json);
    engine_run_close(&r);
}

/* ---- what parses, but cannot be used ------------------------------------- */

/* The call succeeds, and the verdict says why: the caller has other receipts to
 * check. */
TEST(receipts_that_no_sampler_can_have_written_get_a_verdict)
{
    static const struct {
        const char *path, *value, *named;
    } all[] = {
        {"sampling.temperature", "-1", "temperature"},
        {"sampling.temperature", "\"inf\"", "temperature"},
        {"sampling.penalty_last_n", "-2", "penalty_last_n"},
        {"sampling.mirostat", "3", "mirostat"},
        {"sampling.bias", "[[1000000, 1]]", "1000000"},
        {"sampling.samplers", "[\"xtc\", \"xtc\"]", "twice"},
        {"model.name", "\"a\\u001b[2J\\u009b\"", "other weights"},
    };
    struct engine_run r = opened();
    char *json = whole(&r);

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        json_t *doc = json_loads(json, 0, NULL);
        pl_receipt_result got;
        pl_receipt *receipt;
        char *text;

        set_at(doc, all[i].path, all[i].value);
        if (strcmp(all[i].path, "model.name") == 0)
            set_at(doc, "model.hash", "\"0123456789abcdef\"");
        text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        receipt = way_parsed(text);
        got = way_verified(receipt, r.engine, NULL);
        if (got.verdict != PL_RECEIPT_CANNOT || !strstr(got.text, all[i].named))
            fail_msg("%s = %s: verdict %d, %s", all[i].path, all[i].value,
                     got.verdict, got.text);
        for (const char *p = got.text; *p != '\0'; p++)
            assert_true(*p >= ' ' && *p <= '~');
        pl_receipt_free(receipt);
        free(text);
        json_decref(doc);
    }
    free(json);
    engine_run_close(&r);
}

/* JSON has no text that is not UTF-8, so no receipt loses a breaker. */
TEST(receipts_of_settings_that_json_cannot_have_are_refused)
{
    static const char *const breaker[] = {"\n", "\xff"};
    struct engine_run r = opened();
    struct way w = way(0);
    pl_receipt *receipt;
    pl_sampler *s;
    pl_err err;

    w.s.tokenizer = pl_model_tokenizer(r.model);
    w.s.dry_breaker = breaker;
    w.s.n_dry_breaker = 2;
    TEST_OK(pl_sampler_create(&s, &w.s, r.n_vocab, &err), err);
    pl_sampler_accept(s, 1);
    TEST_OK(pl_receipt_begin(&receipt, r.engine, way_prompt, 1, &err), err);
    assert_int_equal(pl_sampler_record(s, receipt, &err), PL_UNSUPPORTED);
    pl_sampler_free(s);
    pl_receipt_free(receipt);
    engine_run_close(&r);
}

/* Where DRY is off, its breakers are not read, and may be anything. */
TEST(receipts_leave_out_breakers_that_nothing_reads)
{
    static const char *const breaker[] = {"x", NULL};
    struct engine_run r = opened();
    pl_sampling s;
    pl_sampler *sampler;
    pl_err err;

    pl_sampling_init(&s);
    for (int n = -1; n < 4; n++) {
        char *json, *text;
        pl_receipt *receipt;

        s.n_dry_breaker = n < 3 ? n : INT32_MAX;
        s.dry_breaker = breaker;
        TEST_OK(pl_sampler_create(&sampler, &s, r.n_vocab, &err), err);
        pl_sampler_accept(sampler, 1);
        TEST_OK(pl_receipt_begin(&receipt, r.engine, way_prompt, 1, &err), err);
        TEST_OK(pl_sampler_record(sampler, receipt, &err), err);
        TEST_OK(pl_receipt_write(receipt, 0, &json, &err), err);
        text = strstr(json, "\"dry_breakers\":");
        assert_non_null(text);
        assert_int_equal(strncmp(text + 15,
                                 n == 0   ? "[]"
                                 : n == 1 ? "[\"x\"]"
                                          : "[\"\\n\",",
                                 n == 0 ? 2 : 5),
                         0);
        pl_sampler_free(sampler);
        pl_receipt_free(receipt);
        free(json);
    }
    engine_run_close(&r);
}

/* ---- failing allocations ------------------------------------------------- */

static void ignore(void *user, const char *line, size_t len)
{
    (void)user;
    (void)line;
    (void)len;
}

/* The JSON library's allocations fail, too. A receipt that is written in spite
 * of a failure is complete. */
TEST(receipts_survive_failing_allocations)
{
    static const char *const stop[] = {"a", "b"};
    struct engine_run r = opened();
    json_malloc_t before_malloc;
    json_free_t before_free;
    struct way w = way(2);
    char *json = whole(&r), *text;
    pl_receipt_result result;
    pl_receipt *a, *b;
    pl_options o;
    pl_sampler *s;
    pl_status got;
    bool same;
    pl_err err;

    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(pl_receipt_parse(&a, json, strlen(json), &err));
        pl_receipt_free(a);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        o = engine_run_options();
        got = pl_receipt_parse(&a, json, strlen(json), &err);
        alloc_ran(got != PL_OK ? got : pl_receipt_options(a, &o, &err));
        pl_receipt_free(a);
    }
    json_get_alloc_funcs(&before_malloc, &before_free);
    /* malloc here is the wrapper that fails on request (lib/alloc_fail.h) */
    json_set_alloc_funcs(malloc, free);
    TEST_OK(pl_sampler_create(&s, &w.s, r.n_vocab, &err), err);
    pl_sampler_accept(s, 1);
    for (int64_t n = 0; alloc_each(&n);) {
        got = pl_receipt_parse(&a, json, strlen(json), &err);
        /* The JSON reader reports some failures as errors of the text. */
        alloc_ran(got == PL_BAD_FILE ? PL_NO_MEMORY : got);
        pl_receipt_free(a);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(pl_receipt_begin(&a, r.engine, way_prompt, 1, &err));
        pl_receipt_free(a);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        got = pl_receipt_begin(&a, r.engine, way_prompt, 1, &err);
        if (got == PL_OK)
            got = pl_sampler_record(s, a, &err);
        if (got == PL_OK)
            got = pl_receipt_set_end(a, PL_RECEIPT_STOP, 3, stop, 2, &err);
        text = NULL;
        if (got == PL_OK)
            got = pl_receipt_write(a, PL_RECEIPT_FULL, &text, &err);
        alloc_ran(got);
        assert_int_equal(got == PL_OK, text != NULL);
        pl_sampler_record(s, NULL, NULL);
        pl_receipt_free(a);
        free(text);
    }
    a = way_parsed(json);
    b = way_parsed(json);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(
            pl_receipt_verify(a, r.engine, NULL, &result, sizeof result, &err));
    assert_int_equal(result.verdict, PL_RECEIPT_HOLDS);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(pl_receipt_diff(a, b, &same, ignore, NULL, &err));
    assert_true(same);
    pl_receipt_free(b);
    pl_receipt_free(a);
    pl_sampler_free(s);
    free(json);
    json_set_alloc_funcs(before_malloc, before_free);
    engine_run_close(&r);
}
