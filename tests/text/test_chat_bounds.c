/* Chat templates: wrong ones are rejected with the line, and no template
 * exceeds its limits. test_chat_reference.c checks the texts. */
#include "chat/template.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Renders with these limits; the text is the caller's, NULL on failure. */
static char *render_within(const char *form, const char *variables,
                           const struct chat_limits *limits, pl_err *err)
{
    const struct chat_variable var = {NULL, variables, strlen(variables), true};
    struct chat_template *t = NULL;
    char *text = NULL;
    size_t len;

    err->status = PL_OK;
    if (chat_template_create(&t, form, strlen(form), err) == PL_OK)
        chat_template_render(t, &var, 1, 0, limits, &text, &len, err);
    chat_template_free(t);
    return text;
}

static void must_fail(const char *form, pl_status status, const char *part)
{
    pl_err err;
    char *text = render_within(form, "{\"d\": {\"a\": 1}, \"s\": \"x\"}",
                               &chat_usual_limits, &err);

    if (text)
        fail_msg("%s gave \"%s\"", form, text);
    if (err.status != status || !strstr(err.message, part))
        fail_msg("%s: %s: %s", form, pl_status_name(err.status), err.message);
}

static void must_give(const char *form, const char *want)
{
    pl_err err;
    char *text = render_within(form, "{\"d\": {\"a\": 1}, \"s\": \"x\"}",
                               &chat_usual_limits, &err);

    if (!text)
        fail_msg("%s: %s", form, err.message);
    assert_string_equal(text, want);
    free(text);
}

TEST(chat_errors_name_the_line)
{
    must_fail("a\n\n{% if x %}", PL_BAD_FILE, "line 3: the template ends");
    must_fail("{{ 1 +\n\n }}", PL_BAD_FILE,
              "line 3: unexpected \"}}\"; expected an expr");
    must_fail("{{ 'a }}", PL_BAD_FILE, "a string is not closed");
    must_fail("\n{# x", PL_BAD_FILE, "line 2: a comment is not closed");
    must_fail("{% raw %}", PL_BAD_FILE, "not closed by {% endraw %}");
    must_fail("{{ (1] }}", PL_BAD_FILE, "closing bracket");
    must_fail("{{ 99999999999999999999 }}", PL_BAD_FILE, "64 bits");
    must_fail("{% for 1 in x %}{% endfor %}", PL_BAD_FILE, "assigned");
    must_fail("{% break %}", PL_BAD_FILE, "outside a loop");
    must_fail("{% extends 'x' %}", PL_UNSUPPORTED, "\"extends\" is not");
    must_fail("{% nonsense %}", PL_BAD_FILE,
              "unexpected \"nonsense\"; expected a tag");
    must_fail("{{ range(*l, 1) }}", PL_BAD_FILE, "further argument");
    must_fail("{{ range(*range(40)) }}", PL_UNSUPPORTED, "more than 32");
    must_fail("{{ dict(**[1]) }}", PL_BAD_ARGUMENT, "** needs a dict");
    must_fail("{{ dict(a=1, **{'a': 2}) }}", PL_BAD_ARGUMENT, "given twice");
    must_fail("{% call s %}{% endcall %}", PL_BAD_FILE,
              "must be followed by a call");
    must_fail("{% macro m(caller) %}{{ caller }}{% endmacro %}", PL_BAD_FILE,
              "\"caller\" needs a default");
    must_fail("{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
              PL_BAD_ARGUMENT, "'caller' is undefined");
    must_fail("{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
              PL_BAD_ARGUMENT, "has no parameter \"caller\"");
    must_fail("{% for x in 'a' %}{{ loop('b') }}{% endfor %}", PL_BAD_ARGUMENT,
              "write \"recursive\"");
    must_fail("{% for x in 'a' recursive %}{{ loop('a') }}{% endfor %}",
              PL_BAD_ARGUMENT, "nest too deeply");
    must_fail("\n{{ s|nonsense }}", PL_UNSUPPORTED, "line 2: unknown fil");
    must_fail("{{ s is nonsense }}", PL_UNSUPPORTED,
              "unknown test \"nonsense\"");
    must_fail("\n\n{{ x.y }}", PL_BAD_ARGUMENT, "line 3: 'x' is undefined");
    must_fail("{{ d.b.c }}", PL_BAD_ARGUMENT,
              "'dict object' has no attribute 'b'");
    must_fail("{{ s + 1 }}", PL_BAD_ARGUMENT, "\"+\" is not supported between");
    must_fail("{{ [1].remove(1) }}", PL_BAD_ARGUMENT,
              "'remove' would modify a list object, which templates may");
    must_fail("{% set l = [] %}{{ l.append({'a': [l]}) }}", PL_BAD_ARGUMENT,
              "cannot contain itself");
    must_fail("{{ [].pop() }}", PL_BAD_ARGUMENT, "0 items");
    must_fail("{{ (1, 2).append(3) }}", PL_BAD_ARGUMENT, "no attribute");
    must_fail("{{ 9223372036854775807 + 1 }}", PL_UNSUPPORTED, "64 bits");
    must_fail("{{ 9223372036854775807|round(-1) }}", PL_UNSUPPORTED, "64");
    must_fail("{{ 1 // 0 }}", PL_BAD_ARGUMENT, "division by zero");
    must_fail("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", PL_BAD_ARGUMENT,
              "\"m\" takes 1 arguments, not 2");
    must_fail("{{ range(100001) }}", PL_FULL, "more than 100000 items");
    must_fail("\n{{ raise_exception('no ' ~ s) }}", PL_BAD_ARGUMENT,
              "template line 2: no x");
}

TEST(chat_templates_see_what_python_would_show)
{
    must_give("{{ [1, 1.0, 1e16, 1e-5, 0.1, -0.0, 123456789.125] }}",
              "[1, 1.0, 1e+16, 1e-05, 0.1, -0.0, 123456789.125]");
    must_give("{{ ['a', \"it's\", '\\n\\t\\x01é', none, true] }}",
              "['a', \"it's\", '\\n\\t\\x01é', None, True]");
    must_give("{{ missing }}{{ d.b }}|{{ d.get('b') }}", "|None");
    must_give("{% for x in [] %}{% else %}none{% endfor %}", "none");
    must_give("{% set ns = namespace(n=0) %}{% for i in range(5) if i is odd "
              "%}{% set ns.n = ns.n + i * loop.index %}{% endfor %}{{ ns.n }}",
              "7");
    must_give("a\n  {% if true %}\n  b\n  {%- endif %} c\n", "a\n  b c");
    must_give("{{ strftime_now('%Y') }}{{ 'é'.upper() }}{{ '東京'[1:] }}",
              "1970É京");
    must_give("{% generation %}{{ s }}{% endgeneration %}", "x");
    /* A list that was copied, sliced or joined keeps its items. */
    must_give("{% set l = [1] %}{% set m = l %}{% set c = l.copy() %}"
              "{% set s = l[:] %}{% set _ = l.append(2) %}"
              "{% set f = l|list %}{% set j = l + [5] %}"
              "{% set _ = l.extend([3, 4]) %}{% set _ = f.append(6) %}"
              "{% set _ = l.insert(0, 0) %}{{ m }}{{ c }}{{ s }}{{ f }}{{ j }}",
              "[0, 1, 2, 3, 4][1][1][1, 2, 6][1, 2, 5]");
    must_give("{% set l = [1, 2, 3, 4] %}{% set f = l|list %}{{ l.pop() }}"
              "{{ l.pop(0) }}{{ l.pop(-2) }}{% set _ = l.append(7) %}{{ l }}"
              "{{ f }}",
              "412[3, 7][1, 2, 3, 4]");
    must_give("{{ [none|select|list, 0|map('upper')|list, "
              "missing|rejectattr('a')|list] }}",
              "[[], [], []]");
    must_fail("{{ 5|select|list }}", PL_BAD_ARGUMENT, "no items");
    must_fail("{{ none|indent }}", PL_BAD_ARGUMENT, "expected a string");
    must_give("{{ (-0.5)|round(0, 'ceil') }}", "0.0");
}

/* |safe and |escape mark a string, and text joined to it by "+", "%" or a
 * method is escaped. A template that writes '<|user|>' + (x|safe) gets Hugging
 * Face's result. */
TEST(chat_templates_see_markup_as_python_would_show)
{
    must_give("{{ '<a>' + (s|safe) + '<b>' }}", "&lt;a&gt;x&lt;b&gt;");
    must_give("{{ '<a>' ~ (s|safe) ~ '<b>' }}", "<a>x<b>");
    must_give("{{ ('%s'|safe) % '<' }}{{ ('%d'|safe) % 7 }}", "&lt;7");
    must_give("{{ ('%(a)s'|safe) % {'a': '<'} }}", "&lt;");
    must_give("{{ ('{}'|safe).format('<') }}{{ '{}'.format('<'|safe) }}",
              "&lt;<");
    must_give(
        "{{ (s|safe).replace('x', '<') }}{{ (s|safe)|replace('x', '<') }}",
        "&lt;<");
    must_give("{{ (','|safe).join(['<', 'b'|safe]) }}{{ ['<', s|safe]|join }}",
              "&lt;,b<x");
    must_give("{{ '<'|e|e }}{{ '<'|e|forceescape }}{{ '<'|safe|e }}",
              "&lt;&amp;lt;<");
    must_give("{{ (s|safe|upper|trim)[0] + '<' }}{{ (s|safe)|title + '<' }}",
              "X&lt;X<");
    must_give("{{ [s|safe] }}{{ s|safe is escaped }}{{ s is escaped }}",
              "[Markup('x')]TrueFalse");
    must_give("{{ (s|safe) == s }}{{ {s: 1}[s|safe] }}{{ (s|safe)|tojson }}",
              "True1\"x\"");
    must_give("{{ ('a b'|safe).split()[1] + '<' }}{{ 2 * (s|safe) + '<' }}",
              "b&lt;xx&lt;");
}

TEST(chat_templates_that_do_not_end_are_stopped)
{
    static const char many[] =
        "{% set l = range(999)|list %}{% for a in l %}{% for b in l %}"
        "{% for c in l %}{% set d = c %}{% endfor %}{% endfor %}{% endfor %}";
    static const char deep[] = "{% macro m(x) %}{{ m(x) }}{% endmacro %}"
                               "{{ m(1) }}";
    static const char nested[] =
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set n.l = [n.l] %}{% endfor %}{{ n.l }}";
    static const char round[] =
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}";
    static const char doubled[] =
        "{% set n = namespace(s='x') %}{% for i in range(99) %}"
        "{% set n.s = n.s + n.s %}{% endfor %}";

    must_fail(many, PL_FULL, "step limit");
    must_fail(deep, PL_BAD_ARGUMENT, "nest too deeply");
    must_fail(nested, PL_BAD_ARGUMENT, "nest too deeply");
    must_fail(round, PL_BAD_ARGUMENT, "nest too deeply");
    must_fail(doubled, PL_FULL, "memory limit");
    must_fail("{{ 'x' * 10 ** 12 }}", PL_FULL, "memory limit");
    must_fail("{% set x = 'x' * 9999 %}{% for i in range(9999) %}{{ x }}"
              "{% endfor %}",
              PL_FULL, "output exceeds");
    must_fail("{{ '%99999999d' % 1 }}", PL_FULL, "width");
}

/* A loop without break ends when it has nothing left to do, and a list that
 * grows is not copied each time. Otherwise this would take 50 million
 * iterations and 800 MB. */
TEST(chat_loops_end_with_nothing_left_to_do)
{
    must_give("{% set n = namespace(l=[]) %}{% for i in range(9999) %}"
              "{% set f = namespace(found=false) %}"
              "{% for j in range(i, -1, -1) %}{% if not f.found %}"
              "{% if j % 2 == 0 %}{% set f.found = true %}{% endif %}"
              "{% endif %}{% endfor %}{% set n.l = n.l + [i] %}{% endfor %}"
              "{{ n.l|length }}",
              "9999");
    must_give("{% for x in 'abcd' %}{% if loop.index == 3 %}y{% endif %}"
              "{% endfor %}{% for x in 'abc' %}{% for y in 'ab' %}"
              "{% if x == 'c' %}z{% endif %}{% endfor %}{% endfor %}",
              "yzz");
    must_give("{% set c = cycler(1, 2, 3) %}{% for x in 'abcd' %}"
              "{% if c.next() == 3 %}x{% endif %}{% endfor %}"
              "{% set i = [1, 2]|reverse %}{% for x in 'abc' %}"
              "{% if not i|list %}i{% endif %}{% endfor %}",
              "xii");
    must_fail("{% for a, b in [[1, 2], [3]] %}{% endfor %}", PL_BAD_ARGUMENT,
              "unpack");
}

/* Each of these expressions looks at a megabyte or more: 99,999 times, or once
 * for each of its bytes. */
TEST(chat_steps_count_the_bytes_looked_at)
{
    static const char *const looks[] = {
        "a == b",
        "a < b",
        "d[a]",
        "a in d",
        "a in [b]",
        "\"%.0s\" % a",
        "a|wordcount",
        "a is lower",
        "a.startswith(b)",
        "a.isalpha()",
        "a.strip(a)",
        "a.strip('y' ~ a)",
        "a.rfind('y' ~ a)",
        "a.rfind(a[:500000] ~ 'y')",
    };
    struct chat_limits l = chat_usual_limits;
    char form[400];
    pl_err err;

    l.steps /= test_brief() ? 200 : 20;
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        snprintf(form, sizeof form,
                 "{%% set a = ('x' * 1000) * 1000 %%}"
                 "{%% set b = ('x' * 1000) * 1000 %%}{%% set d = {b: 1} %%}"
                 "{%% for i in range(99999) %%}{%% set y = %s %%}"
                 "{%% endfor %%}",
                 looks[i]);
        if (render_within(form, "{}", &l, &err))
            fail_msg("%s comes to its end", looks[i]);
        assert_int_equal(err.status, PL_FULL);
    }
}

static void put_int(FILE *f, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        fputc((int)(v >> 8 * i & 0xff), f);
}

static void put_bytes(FILE *f, const char *s, size_t n)
{
    put_int(f, n, 8);
    assert_int_equal(fwrite(s, 1, n, f), n);
}

TEST(chat_special_tokens_may_hold_zero_bytes)
{
    static const char tokens[] = "tokenizer.ggml.tokens";
    static const char bos[] = "tokenizer.ggml.bos_token_id";
    const char *path = test_temp("zero_token.gguf");
    pl_conversation c;
    pl_template *t;
    pl_err err;
    char *text;
    size_t len;
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fputs("GGUF", f);
    put_int(f, 3, 4); /* version of the GGUF format */
    put_int(f, 0, 8); /* number of tensors */
    put_int(f, 2, 8); /* number of keys */
    put_bytes(f, tokens, strlen(tokens));
    put_int(f, 9, 4); /* type of the value: array */
    put_int(f, 8, 4); /* type of its elements: string */
    put_int(f, 1, 8);
    put_bytes(f, "a\0bcdefghijklmnopqrstuvwxyz", 27);
    put_bytes(f, bos, strlen(bos));
    put_int(f, 4, 4); /* type of the value: uint32 */
    put_int(f, 0, 4);
    assert_int_equal(fclose(f), 0);
    TEST_OK(pl_template_create(&t, "{{ bos_token }}", 15, path, &err), err);
    pl_conversation_init(&c);
    c.messages = "[]";
    TEST_OK(pl_template_render(t, &c, &text, &len, &err), err);
    assert_int_equal(len, 27);
    assert_memory_equal(text, "a\0bcdefghijklmnopqrstuvwxyz", 27);
    free(text);
    pl_template_free(t);
}

TEST(chat_conversations_are_lists)
{
    static const char *const wrong[] = {NULL, "", "{}", "\"a\"", " null", "7"};
    pl_template *t;
    pl_conversation c;
    char *text;
    pl_err err;

    TEST_OK(pl_template_create(&t, "{{ tools }}", 11, NULL, &err), err);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pl_conversation_init(&c);
        c.messages = wrong[i];
        assert_int_equal(pl_template_render(t, &c, &text, NULL, &err),
                         PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "messages"));
        c.messages = "\n[]";
        c.tools = wrong[i];
        assert_int_equal(pl_template_render(t, &c, &text, NULL, &err),
                         wrong[i] ? PL_BAD_ARGUMENT : PL_OK);
        free(text);
    }
    pl_template_free(t);
}

TEST(chat_templates_nest_within_bounds_only)
{
    enum { N = 100000 };
    static const char *const opens[] = {"(", "[", "not ", "-", "{1:"};
    char *form = test_need(1, 8 * N);
    pl_err err;

    for (size_t k = 0; k < sizeof opens / sizeof opens[0]; k++) {
        strcpy(form, "{{ ");
        for (size_t i = 0, at = 3; i < N; i++, at += strlen(opens[k]))
            strcpy(form + at, opens[k]);
        assert_null(render_within(form, "{}", &chat_usual_limits, &err));
        assert_int_equal(err.status, PL_BAD_FILE);
    }
    free(form);
}

TEST(chat_limits_are_exact)
{
    struct chat_limits l = chat_usual_limits;
    pl_err err;
    char *text;

    l.output_bytes = 6; /* five characters and the NUL that ends them */
    text = render_within("abcde", "{}", &l, &err);
    assert_string_equal(text, "abcde");
    free(text);
    assert_null(render_within("abcdef", "{}", &l, &err));
    assert_int_equal(err.status, PL_FULL);
    l = chat_usual_limits;
    l.steps = 2; /* two steps: the template's block and the text in it */
    text = render_within("abcdef", "{}", &l, &err);
    assert_non_null(text);
    free(text);
    l.steps = 1;
    assert_null(render_within("abcdef", "{}", &l, &err));
    assert_int_equal(err.status, PL_FULL);
    l = chat_usual_limits;
    l.depth = 1;
    assert_null(render_within("abcdef", "{}", &l, &err));
    assert_int_equal(err.status, PL_BAD_ARGUMENT);
}

TEST(chat_variables_must_be_json)
{
    pl_err err;

    assert_null(render_within("x", "[1", &chat_usual_limits, &err));
    assert_int_equal(err.status, PL_BAD_ARGUMENT);
    assert_null(render_within("x", "[1]", &chat_usual_limits, &err));
    assert_int_equal(err.status, PL_BAD_ARGUMENT);
}

/* Integers beyond 64 bits are shown with all their digits. */
TEST(chat_variables_keep_their_digits)
{
    static const char form[] =
        "{{ a }} {{ -a }} {{ l }} {{ l|tojson }} {{ a is integer }} "
        "{{ a is float }} {{ a is number }} {{ a is string }} {{ a > 5 }} "
        "{{ a == b }} {{ a ~ '!' }}{% if a %}.{% endif %}";
    pl_err err;
    char *text = render_within(
        form,
        "{\"a\": 99999999999999999999, \"b\": 99999999999999999999, "
        "\"l\": [-9223372036854775809, 9223372036854775807]}",
        &chat_usual_limits, &err);

    assert_non_null(text);
    assert_string_equal(text, "99999999999999999999 -1e+20 "
                              "[-9223372036854775809, 9223372036854775807] "
                              "[-9223372036854775809, 9223372036854775807] "
                              "True False True False True True "
                              "99999999999999999999!.");
    free(text);
}

TEST(chat_allocation_failures_leave_nothing)
{
    static const char form[] =
        "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% for i in l %}"
        "{{ m(i ~ 'ab' * 5000)[::2]|tojson(indent=2) }}{% endfor %}"
        "{{ dict(a=1, b=l|sort(reverse=true)) }}{{ '%5s' % 1 }}";
    static const char variables[] = "{\"l\": [\"b\", \"a\"]}";
    const struct chat_variable var = {NULL, variables, strlen(variables), true};

    for (int64_t n = 0; alloc_each(&n);) {
        struct chat_template *t;
        char *text = NULL;
        size_t len;
        pl_status s = chat_template_create(&t, form, strlen(form), NULL);

        if (s == PL_OK)
            s = chat_template_render(t, &var, 1, 0, &chat_usual_limits, &text,
                                     &len, NULL);
        alloc_ran(s);
        free(text);
        chat_template_free(t);
    }
}
