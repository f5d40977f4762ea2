/* JSON Schema: the grammar accepts exactly the right documents, and unsupported
 * schemas get a clear error. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "lib/alloc_fail.h"
#include "lib/schema_try.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *schema, const char *const *in,
                   const char *const *out)
{
    schema_try_expect(schema, in, out, "");
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
        struct schema_try r;

        snprintf(schema, sizeof schema,
                 "{'type': 'integer', 'minimum': %d, 'exclusiveMaximum': %d}",
                 (int)bounds[i][0], (int)bounds[i][1] + 1);
        schema_try_start(&r, schema);
        for (int k = -3200; k <= 3200; k++) {
            snprintf(text, sizeof text, "%d", k);
            if (schema_try_takes(&r, text) !=
                (k >= bounds[i][0] && k <= bounds[i][1]))
                fail_msg("%s: %d", schema, k);
        }
        assert_false(schema_try_takes(&r, "00"));
        assert_false(schema_try_takes(&r, "-0"));
        schema_try_stop(&r);
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
    char *schema = schema_quoted(text);
    struct grammar *g = NULL;
    pl_err err = {0};

    assert_int_not_equal(
        grammar_from_schema(&g, schema, strlen(schema), "s.json", &err), PL_OK);
    assert_null(g);
    if (!strstr(err.message, message))
        fail_msg("%s\nsays: %s\nnot: %s", schema, err.message, message);
    free(schema);
}

TEST(schema_mistakes_are_named)
{
    expect_error("{'anyOf': [{'type': 'x'}]}", "#/anyOf/0: type must be");
    expect_error("{'properties': {'a': {'type': []}}}",
                 "s.json: #/properties/a: type must name");
    expect_error("{'$ref': '#/$defs/x'}", "#: $ref points to nothing");
    expect_error("{'$ref': 5}", "#: $ref must be a string");
    expect_error("{'properties': {'a': {'$ref': '#/$defs/l/x'}}, '$defs':"
                 " {'l': [{}]}}",
                 "#/properties/a: $ref points to nothing");
    expect_error("{'$ref': '#'}", "s.json, written as a grammar: line 14, "
                                  "column 1: the rule s0 can never end");
    expect_error("{'pattern': '(a'}", "a group is not closed");
    expect_error("{'pattern': 'a)'}",
                 "#: pattern (at byte 1): no group is open here");
    expect_error("{'pattern': '*'}", "has no meaning here");
    expect_error("{'pattern': '[a'}", "the pattern ends unexpectedly");
    expect_error("{'type': 'integer', 'minimum': 3, 'maximum': 2}",
                 "#: the schema allows no document");
    expect_error("{'properties': {'a': false}, 'required': ['a']}",
                 "#: the schema allows no document");
    expect_error("{'minLength': -1}", "minLength must be an integer from 0");
    expect_error("{'minimum': '1'}", "minimum must be a number");
    expect_error("{'multipleOf': 0}", "multipleOf must be a number above 0");
    expect_error("{'enum': []}", "#: enum must be a list");
    expect_error("{'anyOf': []}", "#: anyOf must be a list");
    expect_error("{'allOf': {}}", "#: allOf must be a list");
    expect_error("{'properties': [1]}", "#: properties must be an object");
    expect_error("false", "#: the schema allows no document");
    expect_error("[]", "#: the schema must be an object, or true");
    expect_error("{'a'", "s.json: invalid JSON: line 1, column");
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
    char *long_pattern;

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
    expect_refused(
        repeated('@', "{'enum': [", "'one of many, number @'", 50000, "]}"),
        "#: the schema or its grammar has more than 1 MiB");
    /* A keyword that is large by itself is left out. */
    long_pattern = repeated('@', "{'pattern': '", "\\\\s\\\\D", 20000, "'}");
    schema_try_expect(long_pattern, TEXTS("''"), TEXTS("1"),
                      "it is longer than 8 KiB");
    free(long_pattern);
    schema_try_expect("{'minLength': 1000000000}", TEXTS("''"), TEXTS("1"),
                      "minLength above 6000 is not enforced");
    schema_try_expect("{'pattern': 'a{1000000000}'}", TEXTS("''"), TEXTS("1"),
                      "more than 10,000 times");
    schema_try_expect("{'pattern': '^((a{100}){100}){100}$'}", TEXTS("''"),
                      TEXTS("1"), "it is too large");
    schema_try_expect("{'type': 'array', 'maxItems': 1000000000}", TEXTS("[]"),
                      TEXTS("1"), "maxItems above 2000 is not enforced");
    schema_try_expect("{'type': 'array', 'maxItems': 4e24}", TEXTS("[]"),
                      TEXTS("1"), "maxItems above 2000 is not enforced");
}

/* Fails each allocation of the JSON values, too: the grammar is the same, or
 * there is none. */
static void survive_json(const char *text)
{
    json_t *schema = json_loads(text, 0, NULL);
    struct gbnf_text want = {0};
    struct schema_sums none = {0};
    json_malloc_t before_malloc;
    json_free_t before_free;
    uint32_t rule;

    assert_non_null(schema);
    assert_int_equal(
        schema_put_rule(&want, &none, schema, schema, "it", &rule, NULL),
        PL_OK);
    json_get_alloc_funcs(&before_malloc, &before_free);
    json_set_alloc_funcs(malloc, free); /* the wrapped ones, which fail on
                                           request */
    for (int64_t n = 0; alloc_each(&n);) {
        struct schema_sums sums = {0};
        struct gbnf_text out = {0};

        if (!alloc_ran(schema_put_rule(&out, &sums, schema, schema, "it", &rule,
                                       NULL))) {
            assert_int_equal(out.n, want.n);
            assert_memory_equal(out.s, want.s, want.n);
        }
        gbnf_text_fini(&out);
    }
    json_set_alloc_funcs(before_malloc, before_free);
    gbnf_text_fini(&want);
    json_decref(schema);
}

TEST(schema_allocation_failures_leave_nothing)
{
    static const char *const texts[] = {
        "{'properties': {'a': {'$ref': '#/$defs/b'}, 'c': {'pattern':"
        " '^a[b-d]$'}}, 'additionalProperties': true, '$defs': {'b':"
        " {'prefixItems': [{'const': 1}]}}}",
        "{'patternProperties': {'^x': {'format': 'date'}, 'y$': {}},"
        "'propertyNames': {'maxLength': 3}, 'not': {'required': ['x']},"
        "'minProperties': 1, 'if': {'required': ['y']}, 'then': {'properties':"
        " {'z': {'enum': [1, 2]}}}}",
        "{'allOf': [{'type': ['string', 'number'], 'minimum': 0.5},"
        " {'minLength': 1, 'not': {'enum': ['a']}, 'multipleOf': 0.25}], "
        "'nullable': true}",
        "{'items': {'enum': ['a', 'b']}, 'uniqueItems': true}",
        "{'contains': true}",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *text = schema_quoted(texts[i]);

        for (int64_t n = 0; alloc_each(&n);) {
            struct gbnf_text out;

            alloc_ran(schema_to_gbnf(&out, text, strlen(text), "s", NULL));
            gbnf_text_fini(&out);
        }
        survive_json(text);
        free(text);
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
