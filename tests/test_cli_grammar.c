/* plait run with a grammar: the output follows it, from the first token to the
 * end. */
#include "lib/command.h"
#include "lib/support.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define RUN "plait run " MODEL "-p 'Once upon a time' --no-display-prompt "

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\","
    " \"minLength\": 1, \"maxLength\": 12}, \"age\": {\"type\": \"integer\","
    " \"minimum\": 7, \"maximum\": 120}, \"kind\": {\"enum\": [\"king\", 3,"
    " null]}, \"sons\": {\"type\": \"array\", \"items\": {\"pattern\":"
    " \"^[A-Z][a-z]{1,5}$\"}, \"minItems\": 1, \"maxItems\": 3}},"
    " \"required\": [\"name\", \"age\", \"sons\"]}";

/* Returns true for a name as the pattern has it. */
static bool is_name(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    return n >= 2 && n <= 6 && s[0] >= 'A' && s[0] <= 'Z' &&
           strspn(s + 1, "abcdefghijklmnopqrstuvwxyz") == n - 1;
}

/* Returns the number of UTF-8 characters in the text. */
static size_t length_of(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Returns true if the value matches the schema, without the code that made the
 * grammar. */
static bool fits(const json_t *v)
{
    const json_t *name = json_object_get(v, "name");
    const json_t *age = json_object_get(v, "age");
    const json_t *kind = json_object_get(v, "kind");
    const json_t *sons = json_object_get(v, "sons"), *item;
    size_t n = json_array_size(sons), i;

    json_array_foreach (sons, i, item)
        if (!is_name(json_string_value(item)))
            return false;
    return json_is_string(name) && length_of(json_string_value(name)) >= 1 &&
           length_of(json_string_value(name)) <= 12 && json_is_integer(age) &&
           json_integer_value(age) >= 7 && json_integer_value(age) <= 120 &&
           n >= 1 && n <= 3 && json_object_size(v) == 3 + (kind != NULL) &&
           (!kind || json_is_null(kind) || json_integer_value(kind) == 3 ||
            strcmp(json_string_value(kind), "king") == 0);
}

TEST(cli_grammar_of_a_schema_is_kept)
{
    static const char *const temperature[] = {"0", "0.8", "4"};
    FILE *f = fopen(test_temp("s.json"), "w");

    assert_non_null(f);
    fputs(schema, f);
    fclose(f);
    for (int seed = 1; seed <= (test_brief() ? 2 : 4); seed++)
        for (int t = test_brief() ? seed : 0; t < 3;
             t += test_brief() ? 2 : 1) {
            char line[256];
            json_error_t e;
            struct ran r;
            json_t *v;

            snprintf(line, sizeof line, RUN "-n 400 -s %d --temp %s %s", seed,
                     temperature[t],
                     seed % 2 ? "-jf s.json" : "-j \"$(cat s.json)\"");
            r = sh(0, line);
            v = json_loadb(r.out, r.n_out, JSON_REJECT_DUPLICATES, &e);
            if (!v || !fits(v))
                fail_msg("%s\nwrote %s", line, r.out);
            json_decref(v);
        }
}

TEST(cli_grammar_gbnf_is_kept_to_the_end)
{
    struct ran r;

    sh(0, "printf 'root ::= line{3}\nline ::= \"- \" [a-z ]{1,9} \"\\\\n\"\n' "
          ">g.gbnf");
    r = sh(0, RUN "-n 99 -s 3 --grammar-file g.gbnf && echo .");
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(r.out, "- ", 2);
        r.out += strcspn(r.out, "\n") + 1;
    }
    assert_string_equal(r.out, ".\n");
}

/* A grammar that allows any text changes nothing. */
TEST(cli_grammar_of_any_text_changes_no_token)
{
    for (int seed = 1; seed <= test_draws(3, 3); seed++) {
        struct ran free, kept;
        char line[256];

        snprintf(line, sizeof line, RUN "-n 48 -s %d", seed);
        free = sh(0, line);
        snprintf(line, sizeof line, RUN "-n 48 -s %d --grammar 'root ::= .*'",
                 seed);
        kept = sh(0, line);
        assert_string_equal(free.out, kept.out);
    }
}

/* Each turn is a text of its own; reasoning that the prompt opens is not part
 * of it. */
TEST(cli_grammar_holds_for_the_answers_of_a_chat)
{
    struct ran r;

    sh(0, "printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}"
          "{% if enable_thinking %}<think>{% endif %}' >t.jinja");
    r = sh(0, "printf 'Once\nupon\n' | plait run " MODEL
              "-i -n 24 --temp 0 --template t.jinja --grammar 'root ::= "
              "\"yes\"'");
    assert_string_equal(r.out, "yes\nyes\n");
    r = sh(0, "printf 'Once\n' | plait run " MODEL
              "-i -n 24 --temp 0 --template t.jinja --reasoning on "
              "--grammar 'root ::= \"yes\"'");
    assert_string_equal(r.out, "");
    assert_true(strcspn(r.err, "\n") > 6);
    r = sh(0, "printf 'Once\nupon\n' | plait run " MODEL
              "-i --no-template --grammar 'root ::= \"yes\"'");
    assert_string_equal(r.out, "yes\nyes\n");
}

TEST(cli_grammar_mistakes_have_a_place_and_a_remedy)
{
    static const struct {
        const char *line, *says;
        int code;
    } list[] = {
        {RUN "--grammar 'root ::= a'",
         "--grammar: line 1, column 10: the rule a is not defined; define it",
         2},
        {"printf 'root ::= x\nx ::= x\n' >bad.gbnf; " RUN
         "--grammar-file bad.gbnf",
         "bad.gbnf: line 2, column 1: the rule x can never end", 2},
        {RUN "-j false", "--json-schema: #: the schema allows no document", 2},
        {RUN "-j '{\"const\": 1, \"maxContains\": 1, \"a\": 1}'",
         "note: --json-schema: #: a is not known, and ignored", 0},
        {RUN "-j '{'", "--json-schema: invalid JSON: line 1, column", 2},
        {RUN "-j '[]'", "#: the schema must be an object, or true", 2},
        {RUN "-j '{\"type\": \"x\"}'", "#: type must be one or more of", 2},
        {RUN "-j '{\"pattern\": \"(\"}'", "a group is not closed", 2},
        {RUN "-jf none.json", "-jf none.json: No such file", 1},
        {RUN "-jf -", "name a file", 2},
        {RUN "-j '{}' --grammar 'root ::= \"a\"'",
         "--json-schema: another grammar is already given; leave one out", 2},
        {RUN "-j '{}' --ignore-eos", "leave one out", 2},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        must_say(sh(list[i].code, list[i].line), list[i].says);
}
