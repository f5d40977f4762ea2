/* JSON Schema: the grammar accepts exactly the right documents, and unsupported
 * schemas get a clear error. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "lib/alloc_fail.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text with ' for each quote replaced. */
static char *quoted(const char *s)
{
    char *copy = test_need(strlen(s) + 1, 1);

    for (size_t i = 0; s[i]; i++)
        copy[i] = (char)(s[i] == '\'' ? '"' : s[i]);
    return copy;
}

static struct grammar *read_schema(const char *text)
{
    char *schema = quoted(text);
    struct grammar *g = NULL;
    pl_err err = {0};

    if (grammar_from_schema(&g, schema, strlen(schema), "test", &err) != PL_OK)
        fail_msg("%s\n%s", schema, err.message);
    free(schema);
    return g;
}

struct reader {
    struct grammar *g;
    struct grammar_vocab *v;
    struct grammar_masks *m;
};

static struct reader reader_of(const char *schema)
{
    struct reader r = {.g = read_schema(schema)};
    struct grammar_token token[256];
    static char byte[256];
    pl_err err = {0};

    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        token[i] = (struct grammar_token){&byte[i], 1, GRAMMAR_TOKEN_TEXT};
    }
    TEST_OK(grammar_vocab_create(&r.v, token, 256, &err), err);
    TEST_OK(grammar_masks_create(&r.m, r.g, r.v, 0, &err), err);
    return r;
}

static void reader_fini(struct reader *r)
{
    grammar_masks_free(r->m);
    grammar_vocab_free(r->v);
    grammar_free(r->g);
}

static bool takes(const struct reader *r, const char *text)
{
    char *document = quoted(text);
    struct grammar_state *s = NULL;
    pl_err err = {0};
    bool whole;

    TEST_OK(grammar_state_create(&s, r->m, &err), err);
    whole = grammar_accept_text(s, document, strlen(document), &err) == PL_OK &&
            grammar_is_whole(s);
    grammar_state_free(s);
    free(document);
    return whole;
}

/* Generates a random document byte by byte, which ends as soon as it may, after
 * a while. It must be JSON. */
static void expect_json(const struct reader *r, const char *schema,
                        uint64_t *rng)
{
    struct grammar_state *s = NULL;
    struct test_text text = {0};
    pl_err err = {0};
    json_t *j;

    TEST_OK(grammar_state_create(&s, r->m, &err), err);
    for (int i = 0; i < 2000; i++) {
        uint32_t bits[8], id = (uint32_t)test_below(rng, 128);
        char c;

        if (grammar_is_whole(s) && (i > 40 || test_below(rng, 4) == 0))
            break;
        TEST_OK(grammar_mask(s, bits, &err), err);
        if (i > 40 && bits['"' / 32] >> '"' % 32 & 1)
            id = '"';
        for (int k = 0; k < 256 && !(bits[id / 32] >> id % 32 & 1); k++)
            id = (id + 1) % 256;
        c = (char)id;
        if (!(bits[id / 32] >> id % 32 & 1))
            break;
        test_text_add(&text, &c, 1);
        TEST_OK(grammar_accept(s, (int32_t)id, &err), err);
    }
    if (grammar_is_whole(s)) {
        j = json_loadb(text.s, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (!j)
            fail_msg("%s\nmakes %.*s", schema, (int)text.n, text.s);
        json_decref(j);
    }
    free(text.s);
    grammar_state_free(s);
}

/* `in` and `out` end with NULL. */
static void expect(const char *schema, const char *const *in,
                   const char *const *out)
{
    struct reader r = reader_of(schema);
    uint64_t rng = test_seed();

    for (; *in; in++)
        if (!takes(&r, *in))
            fail_msg("%s\ndoes not take %s", schema, *in);
    for (; *out; out++)
        if (takes(&r, *out))
            fail_msg("%s\ntakes %s", schema, *out);
    for (int i = 0; i < 20; i++)
        expect_json(&r, schema, &rng);
    reader_fini(&r);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(schema_any_value_is_json)
{
    const char *const in[] = {"{}",   "[]",   "'a\\n\\u00e9'",      "-1.5e+3",
                              "true", "null", "[1, {'a': [ ]} ,2]", NULL};
    const char *const out[] = {"",     "{",         "01",   "+1",
                               "'\n'", "'\\x'",     "[1,]", "{'a'}",
                               "tru",  "'\\ud83d'", "1 2",  NULL};

    expect("true", in, out);
    expect("{}", in, out);
    expect("{'description': 'anything', '$schema': 'x'}", in, out);
    expect("{'type': 'object'}", TEXTS("{}", "{'a': 1}"), TEXTS("1", "[]"));
    expect("{'type': ['null', 'boolean']}", TEXTS("null", "true", "false"),
           TEXTS("0", "''"));
}

TEST(schema_numbers_keep_their_bounds)
{
    static const int64_t bounds[][2] = {
        {0, 0},     {0, 9},       {3, 7},     {10, 20},    {7, 123},
        {-5, 5},    {-120, -7},   {99, 101},  {0, 1000},   {-1, 0},
        {199, 211}, {-999, 1000}, {100, 100}, {1999, 3001}};

    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        char schema[128], text[32];
        struct reader r;

        snprintf(schema, sizeof schema,
                 "{'type': 'integer', 'minimum': %d, 'exclusiveMaximum': %d}",
                 (int)bounds[i][0], (int)bounds[i][1] + 1);
        r = reader_of(schema);
        for (int k = -3200; k <= 3200; k++) {
            snprintf(text, sizeof text, "%d", k);
            if (takes(&r, text) != (k >= bounds[i][0] && k <= bounds[i][1]))
                fail_msg("%s: %d", schema, k);
        }
        assert_false(takes(&r, "00"));
        assert_false(takes(&r, "-0"));
        reader_fini(&r);
    }
    expect("{'type': 'integer', 'minimum': 18}",
           TEXTS("18", "99", "100", "123456789012345678"),
           TEXTS("17", "9", "-20", "018"));
    expect("{'type': 'integer', 'exclusiveMaximum': 0}",
           TEXTS("-1", "-99", "-123456789012345678"), TEXTS("0", "1", "-"));
    expect("{'type': 'number'}", TEXTS("0", "-1.25", "3e8"),
           TEXTS("1.", ".5", "'1'"));
}

TEST(schema_texts)
{
    expect("{'type': 'string', 'minLength': 2, 'maxLength': 3}",
           TEXTS("'ab'", "'abc'", "'\xc3\xa9\\n\xf0\x9f\x98\x80'"),
           TEXTS("''", "'a'", "'abcd'", "'\xc3\xa9'"));
    expect("{'type': 'string', 'minLength': 2}", TEXTS("'ab'", "'abcdefgh'"),
           TEXTS("'a'"));
    expect("{'format': 'date'}", TEXTS("'2024-02-28'", "'1999-12-31'"),
           TEXTS("'2024-13-01'", "'2024-02-30'", "'2024-04-31'", "'24-1-1'"));
    expect("{'type': 'string', 'format': 'date-time'}",
           TEXTS("'2024-01-30T23:59:00Z'", "'2024-01-30T00:00:00.5+01:00'"),
           TEXTS("'2024-01-30'", "'2024-01-30T24:00:00Z'"));
    expect("{'type': 'string', 'format': 'time'}", TEXTS("'01:02:03Z'"),
           TEXTS("'01:02Z'", "'01:60:03Z'"));
    expect("{'type': 'string', 'format': 'uuid'}",
           TEXTS("'123e4567-e89b-12d3-a456-426614174000'"),
           TEXTS("'123e4567-e89b-12d3-a456-42661417400'"));
    expect("{'enum': ['a', 1, null, [1, {'b': 2}], 'q\\'\xc3\xa9']}",
           TEXTS("'a'", "1", "null", "[1,{'b':2}]"), TEXTS("'b'", "a"));
    expect("{'const': {'a': true}}", TEXTS("{'a':true}"), TEXTS("{}"));
    expect("{'type': 'string', 'enum': ['x', 'y']}", TEXTS("'x'", "'y'"),
           TEXTS("'z'"));
}

TEST(schema_patterns)
{
    expect("{'pattern': '^[a-c]+\\\\d{2}$'}", TEXTS("'a12'", "'cab00'"),
           TEXTS("'12'", "'a1'", "'a123'", "'d12'"));
    expect("{'pattern': 'b.'}", TEXTS("'b1'", "'aaabxaaa'", "'bb'"),
           TEXTS("'ab'", "''"));
    expect("{'pattern': '^(?:ab|c)?[^x\\\\s]|z$'}",
           TEXTS("'abq'", "'y'", "'xz'", "'cab'"), TEXTS("'x'", "' '", "'xx'"));
    expect("{'pattern': '^\\\\w+@\\\\w+\\\\.(com|org)$'}",
           TEXTS("'a_b@c.com'", "'x@y.org'"), TEXTS("'a@b'", "'@c.com'"));
    expect("{'pattern': '^[\\\\u0022\\\\\\\\\\\\n]$'}",
           TEXTS("'\\\"'", "'\\\\'", "'\\n'"), TEXTS("'n'", "'a'", "'\\'"));
    expect("{'pattern': '^$'}", TEXTS("''"), TEXTS("'a'"));
    expect("{'pattern': '^.\\\\x41\\\\/$'}", TEXTS("'xA/'"), TEXTS("'A/'"));
}

TEST(schema_arrays)
{
    expect("{'type': 'array', 'items': {'type': 'integer'}}",
           TEXTS("[]", "[1]", "[1, 2,3]"), TEXTS("['a']", "[1 2]", "[,]"));
    expect("{'items': {'const': 1}, 'minItems': 2, 'maxItems': 3}",
           TEXTS("[1,1]", "[1,1,1]"), TEXTS("[]", "[1]", "[1,1,1,1]"));
    expect("{'prefixItems': [{'const': 1}, {'const': 2}], 'items': false}",
           TEXTS("[]", "[1]", "[1,2]"), TEXTS("[2]", "[1,2,3]", "[1,1]"));
    expect("{'prefixItems': [{'const': 1}, {'const': 2}], 'minItems': 2,"
           " 'items': {'const': 3}, 'maxItems': 3}",
           TEXTS("[1,2]", "[1,2,3]"), TEXTS("[]", "[1]", "[1,2,3,3]"));
    expect("{'type': 'array', 'maxItems': 0}", TEXTS("[]", "[ ]"),
           TEXTS("[1]"));
    expect("{'type': 'array', 'maxItems': 1}", TEXTS("[]", "['x']"),
           TEXTS("[1,1]"));
}

TEST(schema_objects)
{
    expect("{'type': 'object', 'properties': {'a': {'const': 1}, 'b':"
           " {'const': 2}, 'c': {'const': 3}}, 'required': ['b']}",
           TEXTS("{'b':2}", "{'a': 1, 'b': 2}", "{'b':2,'c':3}",
                 "{ 'a':1,'b':2,'c':3}"),
           TEXTS("{}", "{'a':1}", "{'c':3,'b':2}", "{'b':1}", "{'b':2,}",
                 "{,'b':2}", "{'b':2,'d':1}", "{'a':1 'b':2}"));
    expect("{'properties': {'a': {'const': 1}, 'b': {'const': 2}}}",
           TEXTS("{}", "{'a':1}", "{'b':2}", "{'a':1,'b':2}"),
           TEXTS("{'c':1}", "1"));
    expect("{'type': 'object', 'properties': {'a': {'const': 1}, 'ab':"
           " {'const': 2}}, 'additionalProperties': {'const': 3}}",
           TEXTS("{}", "{'a':1,'ab':2,'abc':3}", "{'':3}", "{'b':3,'ax':3}"),
           TEXTS("{'a':3}", "{'ab':3}", "{'x':1}", "{'\\u0061':3}"));
    expect("{'additionalProperties': false}", TEXTS("{}", "{ }"),
           TEXTS("{'a':1}"));
    expect("{'type': 'object', 'additionalProperties': {'type': 'null'}}",
           TEXTS("{}", "{'a':null,'b':null}"), TEXTS("{'a':1}"));
    expect("{'properties': {'q\\'\xc3\xa9': {'const': 1}}}", TEXTS("{}"),
           TEXTS("{'q':1}"));
}

TEST(schema_references_and_alternatives)
{
    expect("{'$defs': {'n': {'type': 'object', 'properties': {'v': {'type':"
           " 'integer'}, 'next': {'anyOf': [{'$ref': '#/$defs/n'}, {'type':"
           " 'null'}]}}, 'required': ['v', 'next']}}, '$ref': '#/$defs/n'}",
           TEXTS("{'v':1,'next':null}",
                 "{'v':1,'next':{'v':2,'next':{'v':3,'next':null}}}"),
           TEXTS("{'v':1}", "{'v':1,'next':1}"));
    expect("{'type': 'array', 'items': {'$ref': '#'}}",
           TEXTS("[]", "[[],[[]]]"), TEXTS("[1]", "[[]"));
    expect("{'oneOf': [{'type': 'string'}, {'type': 'integer'}]}",
           TEXTS("'a'", "1"), TEXTS("null"));
    expect("{'oneOf': [{'type': 'object', 'properties': {'k': {'const': 'a'},"
           " 'x': true}, 'required': ['k']}, {'type': 'object', 'properties':"
           " {'k': {'const': 'b'}}, 'required': ['k']}]}",
           TEXTS("{'k':'a','x':[1]}", "{'k':'b'}"), TEXTS("{'k':'b','x':1}"));
    expect("{'allOf': [{'$ref': '#/$defs/a'}, {'properties': {'b': {'const':"
           " 2}}, 'required': ['b']}], '$defs': {'a': {'type': 'object',"
           " 'properties': {'a': {'const': 1}}, 'required': ['a']}}}",
           TEXTS("{'a':1,'b':2}"), TEXTS("{'a':1}", "{'b':2}"));
}

static void expect_error(const char *text, const char *message)
{
    char *schema = quoted(text);
    struct grammar *g = NULL;
    pl_err err = {0};

    assert_int_not_equal(
        grammar_from_schema(&g, schema, strlen(schema), "s.json", &err), PL_OK);
    assert_null(g);
    if (!strstr(err.message, message))
        fail_msg("%s\nsays: %s\nnot: %s", schema, err.message, message);
    free(schema);
}

TEST(schema_what_is_not_supported_is_named)
{
    expect_error("{'type': 'object', 'properties': {'a': {'multipleOf': 3}}}",
                 "s.json: #/properties/a: multipleOf is not supported");
    expect_error("{'type': 'array', 'items': {'uniqueItems': true}}",
                 "#/items: uniqueItems is not supported");
    expect_error("{'type': 'string', 'minimum': 3}",
                 "#: minimum is not supported with the other keywords here, or "
                 "does not apply to this type");
    expect_error("{'type': 'number', 'maximum': 3}",
                 "#: maximum is supported only for integers");
    expect_error("{'anyOf': [{'type': 'x'}]}", "#/anyOf/0: type must be");
    expect_error("{'anyOf': [true], 'minLength': 1}", "#: minLength is not");
    expect_error("{'type': 'object', 'anyOf': [{}]}", "#: type is not");
    expect_error("{'$ref': 'http://x/y'}", "#: $ref is supported only as");
    expect_error("{'$ref': '#/$defs/x'}", "#: $ref points to nothing");
    expect_error("{'properties': {'a': {'$ref': '#/$defs/l/x'}}, '$defs':"
                 " {'l': [{}]}}",
                 "#/properties/a: $ref points to nothing");
    expect_error("{'$ref': '#'}", "s.json, written as a grammar: line 14, "
                                  "column 1: the rule s0 can never end");
    expect_error("{'format': 'email'}", "#: format is supported only as date");
    expect_error("{'pattern': '(?=a)b'}",
                 "#: pattern (at byte 2): lookaround and named groups");
    expect_error("{'pattern': 'a\\\\b'}", "this escape is not supported");
    expect_error("{'pattern': '(a'}", "a group is not closed");
    expect_error("{'pattern': 'a)'}", "no group is open here");
    expect_error("{'pattern': '*'}", "has no meaning here");
    expect_error("{'pattern': '[a'}", "the pattern ends unexpectedly");
    expect_error("{'pattern': 'a', 'minLength': 1}",
                 "pattern is not supported with format");
    expect_error("{'required': ['a']}",
                 "required names something not in properties");
    expect_error("{'oneOf': [{'type': 'number'}, {'type': 'integer'}]}",
                 "#: oneOf has alternatives that may both match");
    expect_error("{'type': 'integer', 'minimum': 3, 'maximum': 2}",
                 "maximum is below minimum");
    expect_error("{'minLength': -1}", "minLength must be an integer from 0");
    expect_error("{'allOf': [{'type': 'string'}]}",
                 "#: type is not supported in or next to allOf");
    expect_error("{'type': 'string', 'enum': [1]}",
                 "enum has a value that does not match the type");
    expect_error("{'enum': []}", "#: enum must be a list");
    expect_error("false", "#: the schema false allows no document");
    expect_error("[]", "#: the schema must be an object, or true");
    expect_error("{'a'", "s.json: invalid JSON: line 1, column");
    expect_error("{'patternProperties': {}}", "patternProperties is not");
}

/* Returns n times `part` between `before` and `after`; in it `mark` is the
 * index, and ! the next one. */
static char *repeated(char mark, const char *before, const char *part, int n,
                      const char *after)
{
    struct test_text t = {0};
    char number[16];

    test_text_add(&t, before, strlen(before));
    for (int i = 0; i < n; i++) {
        test_text_add(&t, ",", i > 0);
        for (const char *c = part; *c; c++) {
            snprintf(number, sizeof number, "%d", i + (*c == '!'));
            if (*c == mark || *c == '!')
                test_text_add(&t, number, strlen(number));
            else
                test_text_add(&t, c, 1);
        }
    }
    test_text_add(&t, after, strlen(after));
    return t.s;
}

static void expect_refused(char *text, const char *message)
{
    expect_error(text, message);
    free(text);
}

/* Small schemas that expand to huge ones are rejected at once. */
TEST(schema_hostile_sizes_are_refused)
{
    char *list = repeated('@', "{'enum': [", "'~-@'", 300, "]}");
    char *much =
        repeated('@', "{'properties': {", "'p@': {}", 1500, "}, 'required': [");

    expect_refused(repeated('~', "{'oneOf': [", list, 300, "]}"),
                   "#: oneOf takes too long to process");
    expect_refused(repeated('~', much, "'p1499'", 20000, "]}"),
                   "#: required takes too long to process");
    free(list);
    free(much);
    expect_refused(
        repeated('@', "{'$defs': {",
                 "'d@': {'allOf': [{'$ref': '#/$defs/d!'},{'$ref': "
                 "'#/$defs/d!'},{'$ref': '#/$defs/d!'},{'$ref': '#/$defs/d!'},"
                 "{'$ref': '#/$defs/d!'},{'$ref': '#/$defs/d!'},{'$ref': "
                 "'#/$defs/d!'},{'$ref': '#/$defs/d!'},{'$ref': '#/$defs/d!'},"
                 "{'$ref': '#/$defs/d!'},{'$ref': '#/$defs/d!'},{'$ref': "
                 "'#/$defs/d!'}]}",
                 7, ", 'd7': {}}, '$ref': '#/$defs/d0'}"),
        "allOf takes too long to process");
    expect_refused(repeated('@', "{'pattern': '", "\\\\s\\\\D", 20000, "'}"),
                   "#: the schema or its grammar has more than 1 MiB");
    expect_refused(
        repeated('@', "{'enum': [", "'one of many, number @'", 50000, "]}"),
        "#: the schema or its grammar has more than 1 MiB");
    expect_error("{'minLength': 1000000000}", "an integer from 0 to 10,000");
    expect_error("{'pattern': 'a{1000000000}'}", "repetition");
}

TEST(schema_allocation_failures_leave_nothing)
{
    static const char text[] =
        "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/b\"}, \"c\": "
        "{\"pattern\":"
        " \"^a[b-d]$\"}}, \"additionalProperties\": true, \"$defs\": {\"b\":"
        " {\"prefixItems\": [{\"const\": 1}]}}}";

    for (int64_t n = 0; alloc_each(&n);) {
        struct gbnf_text out;

        alloc_ran(schema_to_gbnf(&out, text, strlen(text), "s", NULL));
        gbnf_text_fini(&out);
    }
}

/* Many small schemas that refer to a slow one take its time once each. */
TEST(schemas_within_a_grammar_share_what_they_may_take)
{
    json_t *schema =
        json_loads("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                   "\"null\"}}, \"required\": [\"a\"]}",
                   0, NULL);
    struct schema_sums sums = {0};
    struct gbnf_text out = {0};
    uint32_t rule;
    pl_err err;

    assert_non_null(schema);
    TEST_OK(schema_put_rule(&out, &sums, schema, schema, "it", &rule, &err),
            err);
    assert_int_equal(rule, 0);
    assert_true(sums.n_step > 0);
    sums.n_step = 1 << 22;
    assert_int_not_equal(
        schema_put_rule(&out, &sums, schema, schema, "it", &rule, &err), PL_OK);
    assert_non_null(strstr(err.message, "too long"));
    gbnf_text_fini(&out);
    json_decref(schema);
}
