/* Makes the grammars that bench-grammar measures; battery.h describes the
 * function. */
#include "battery.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

/* ---- written out --------------------------------------------------------- */

static const char json[] =
    "root ::= object\n"
    "value ::= object | array | string | number |"
    " (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (string \":\" ws value"
    " (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" char* \"\\\"\" ws\n"
    "char ::= [^\"\\\\\\x7F\\x00-\\x1F] |"
    " \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)?"
    " ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char arithmetic[] =
    "root ::= (expr \"=\" ws term \"\\n\")+\n"
    "expr ::= term ([-+*/] ws term)*\n"
    "term ::= ident | num | \"(\" ws expr \")\" ws\n"
    "ident ::= [a-z] [a-z0-9_]* ws\n"
    "num ::= [0-9]+ ws\n"
    "ws ::= [ \\t\\n]*\n";

static const char lines[] = "root ::= (line \"\\n\")+\n"
                            "line ::= \"- \" [^\\n]+\n";

static const char chess[] =
    "root ::= (number \". \" move \" \" move \"\\n\")+\n"
    "number ::= [1-9] [0-9]{0,2}\n"
    "move ::= (piece | pawn | castle) [+#]?\n"
    "piece ::= [KQRBN] [a-h]? [1-8]? \"x\"? square\n"
    "pawn ::= ([a-h] \"x\")? square (\"=\" [QRBN])?\n"
    "castle ::= \"O-O\" \"-O\"?\n"
    "square ::= [a-h] [1-8]\n";

static const char program[] =
    "root ::= (function ws)+\n"
    "function ::= type name \"(\" (type name (\", \" type name)*)? \")\" ws"
    " block\n"
    "block ::= \"{\" ws (statement ws)* \"}\"\n"
    "statement ::= type name \" = \" value \";\" | name \" = \" value \";\""
    " | \"if (\" value \")\" ws block (ws \"else\" ws block)?"
    " | \"while (\" value \")\" ws block | \"return \" value \";\""
    " | name \"(\" (value (\", \" value)*)? \");\""
    " | \"/*\" ([^*] | \"*\"+ [^*/])* \"*\"+ \"/\"\n"
    "value ::= term (\" \" [-+*/%<>&|^] \" \" term)*\n"
    "term ::= name | number | \"(\" value \")\" | \"\\\"\" [^\"\\\\\\n]*"
    " \"\\\"\"\n"
    "type ::= (\"int\" | \"char\" | \"double\" | \"struct \" name) \" \"\n"
    "name ::= [a-zA-Z_] [a-zA-Z0-9_]*\n"
    "number ::= [0-9]+ (\".\" [0-9]+)?\n"
    "ws ::= [ \\n\\t]*\n";

static const char markup[] =
    "root ::= element\n"
    "element ::= \"<\" name (\" \" name \"=\\\"\" [^\"<&]* \"\\\"\")*"
    " (\"/>\" | \">\" (element | text)* \"</\" name \">\")\n"
    "text ::= ([^<&] | \"&\" [a-z]{2,8} \";\")+\n"
    "name ::= [a-zA-Z_:] [a-zA-Z0-9_:.-]*\n";

/* A grammar of free text and code: the text must not contain ```, which
 * encloses the code. */
static const char fenced[] =
    "root ::= text \"```\" [a-z]* \"\\n\" code \"```\"\n"
    "text ::= ([^`] | \"`\" [^`] | \"``\" [^`])*\n"
    "code ::= ([^`] | \"`\" [^`] | \"``\" [^`])*\n";

static const char scripts[] =
    "root ::= (kana | cyrillic | han | latin)+\n"
    "kana ::= [\\u3041-\\u3096\\u30A1-\\u30FA\\u30FC]+ [\\u3001\\u3002 ]\n"
    "cyrillic ::= [\\u0410-\\u044F\\u0401\\u0451]+ [ ,.]\n"
    "han ::= [\\u4E00-\\u9FFF\\u3400-\\u4DBF]+ [\\u3001\\u3002 ]\n"
    "latin ::= [a-zA-Z\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u017F]+"
    " [ ,.]\n";

/* Allows every second ideograph of several ranges, so that adjacent characters
 * are never treated alike. */
static const char some_han[] =
    "root ::= (a | b)+\n"
    "a ::= [\\u4E00-\\u4E7F\\u5000-\\u56FF]\n"
    "b ::= [\\u5800-\\u5A33\\u6001-\\u6777] \" \"?\n";

static const char almost_letters[] = "root ::= [a-yA-Y ]+ \"z\"\n";

/* The vowels of a text come in pairs, so that the parser's state changes with
 * every vowel. */
static const char vowel_pairs[] =
    "root ::= (c* [aeiou] c* [aeiou])* c* \"\\n\"\n"
    "c ::= [b-df-hj-np-tv-zA-Z ]\n";

/* A word may end after each letter, and letters may follow the word, so that a
 * text has many parses. */
static const char ends_anywhere[] =
    "root ::= word [a-zA-Z ]* \".\"\n"
    "word ::= \"x\" root \"y\" | [a-zA-Z ]+ | [a-zA-Z]+ \"-\" [a-zA-Z]+\n";

static const char two_ways[] = "root ::= a b c \".\"\n"
                               "a ::= [a-z ]* | \"(\" a \")\"\n"
                               "b ::= [a-z ]* | \"[\" b \"]\"\n"
                               "c ::= [a-z ]* | \"{\" c \"}\"\n";

static const char counts_in_counts[] =
    "root ::= ([a-z]{0,20} \",\"? ){0,20} \".\"\n";

static const char long_rows[] =
    "root ::= ([^\\n]{0,80} \"\\n\"){1,40} \"---\" [a-z ]{100,400} \".\"\n";

static const char ambiguous_tail[] = "root ::= [ab]* \"a\" [a-z]{20} \".\"\n";

static const char brackets[] =
    "root ::= (\"(\" root \")\" | \"[\" root \"]\" | \"{\" root \"}\" |"
    " [a-z ]+)*\n";

static const char dates[] =
    "root ::= (date \" \" time \" \" address \" \" id \"\\n\")+\n"
    "date ::= [0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\""
    " (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] (\".\" [0-9]{1,9})?"
    "\n"
    "address ::= byte \".\" byte \".\" byte \".\" byte\n"
    "byte ::= [0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] |"
    " \"25\" [0-5]\n"
    "id ::= [0-9a-f]{8} (\"-\" [0-9a-f]{4}){3} \"-\" [0-9a-f]{12}\n";

/* Strings of bounded length, for which the grammar has one state per
 * character. */
static const char records[] =
    "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\":"
    " {\"name\": {\"type\": \"string\", \"maxLength\": 200}, \"kind\":"
    " {\"enum\": [\"first\", \"second\", \"third\"]}, \"count\": {\"type\":"
    " \"integer\", \"minimum\": 0, \"maximum\": 5000}, \"id\": {\"type\":"
    " \"string\", \"format\": \"uuid\"}, \"tags\": {\"type\": \"array\","
    " \"items\": {\"type\": \"string\"}}}, \"required\": [\"name\", "
    "\"kind\"]}}";

static const char any_value[] = "true";

static const char long_string[] =
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\","
    " \"minLength\": 300, \"maxLength\": 2000}, \"b\": {\"type\": \"array\","
    " \"maxItems\": 20, \"items\": {\"type\": \"string\", \"maxLength\": 50}}},"
    " \"required\": [\"a\", \"b\"]}";

static const char patterns[] =
    "{\"type\": \"object\", \"properties\": {"
    "\"person\": {\"type\": \"string\", \"pattern\":"
    " \"^[A-Z][a-z]{1,30}( [A-Z][a-z]{1,30}){0,5}$\"},"
    "\"phone\": {\"type\": \"string\", \"pattern\":"
    " \"^(\\\\+[0-9]{1,3} )?[0-9]{2,4}(-[0-9]{2,5}){1,4}$\"},"
    "\"mail\": {\"type\": \"string\", \"pattern\":"
    " \"^[a-z0-9._-]{1,64}@([a-z0-9-]{1,63}\\\\.){1,4}[a-z]{2,10}$\"},"
    "\"slug\": {\"type\": \"string\", \"pattern\":"
    " \"^[a-z0-9]+(-[a-z0-9]+)*$\"},"
    "\"greek\": {\"type\": \"string\", \"pattern\":"
    " \"^[\\u0391-\\u03a9\\u03b1-\\u03c9 ]{3,60}$\"}},"
    " \"required\": [\"person\", \"phone\", \"mail\", \"slug\", \"greek\"]}";

static const char tree[] =
    "{\"$ref\": \"#/$defs/node\", \"$defs\": {\"node\": {\"type\": \"object\","
    " \"properties\": {\"label\": {\"type\": \"string\", \"maxLength\": 30},"
    " \"weight\": {\"type\": \"number\"}, \"children\": {\"type\": \"array\","
    " \"items\": {\"$ref\": \"#/$defs/node\"}}}, \"required\": [\"label\","
    " \"children\"]}}}";

static const char map[] =
    "{\"type\": \"object\", \"additionalProperties\": {\"anyOf\": ["
    "{\"type\": \"string\"}, {\"type\": \"array\", \"items\": {\"type\":"
    " \"number\"}}, {\"type\": \"object\", \"additionalProperties\":"
    " {\"type\": \"string\"}}]}}";

/* ---- made ---------------------------------------------------------------- */

struct text {
    char *s; /* text of n bytes, in memory of `cap` bytes */
    size_t n, cap;
};

static void put(struct text *t, const char *form, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *form, ...)
{
    va_list args;

    if (t->cap - t->n < 512) {
        t->cap = t->cap ? 2 * t->cap : 4096;
        t->s = realloc(t->s, t->cap);
        if (!t->s)
            bench_die("a grammar", "out of memory");
    }
    va_start(args, form);
    t->n += (size_t)vsnprintf(t->s + t->n, 512, form, args);
    va_end(args);
}

static const char *word(char out[16], unsigned i)
{
    static const char *const part[16] = {"ba", "ce", "di", "fo", "gu", "ha",
                                         "je", "ki", "lo", "mu", "na", "pe",
                                         "ri", "so", "tu", "va"};
    /* a different number for each i below 65,536 */
    unsigned mixed = i * 40503u & 0xffff;

    snprintf(out, 16, "%s%s%s%s", part[mixed & 15], part[mixed >> 4 & 15],
             part[mixed >> 8 & 15], part[mixed >> 12]);
    return out;
}

static char *words_of_1000(void)
{
    struct text t = {0};
    char w[16];

    put(&t, "root ::= (word \" \")+\nword ::= ");
    for (unsigned i = 0; i < 1000; i++)
        put(&t, "%s\"%s\"", i ? " | " : "", word(w, i));
    put(&t, "\n");
    return t.s;
}

static char *enum_of_1000(void)
{
    struct text t = {0};
    char w[16];

    put(&t, "{\"type\": \"array\", \"items\": {\"enum\": [");
    for (unsigned i = 0; i < 1000; i++)
        put(&t, "%s\"%s\"", i ? ", " : "", word(w, i));
    put(&t, "]}}");
    return t.s;
}

/* Returns the schema of an object with 40 optional properties, which may also
 * have other properties. */
static char *object_of_40(void)
{
    struct text t = {0};
    char w[16];

    put(&t, "{\"type\": \"object\", \"properties\": {");
    for (unsigned i = 0; i < 40; i++)
        put(&t, "%s\"%s\": {\"type\": \"%s\"}", i ? ", " : "", word(w, i),
            i % 3 ? "string" : "number");
    put(&t, "}, \"additionalProperties\": {\"type\": \"boolean\"}}");
    return t.s;
}

/* Returns a schema of objects that begin alike, with strings of different
 * lengths. */
static char *any_of_50(void)
{
    struct text t = {0};

    put(&t, "{\"type\": \"array\", \"items\": {\"anyOf\": [");
    for (unsigned i = 0; i < 50; i++)
        put(&t,
            "%s{\"type\": \"object\", \"properties\": {\"text\": {\"type\":"
            " \"string\", \"maxLength\": %u}, \"kind\": {\"const\": %u}},"
            " \"required\": [\"text\", \"kind\"]}",
            i ? ", " : "", 20 + 3 * i, i);
    put(&t, "]}}");
    return t.s;
}

static char *arrays_of_arrays(void)
{
    struct text t = {0};

    for (int i = 0; i < 12; i++)
        put(&t, "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 3,"
                " \"items\": ");
    put(&t, "{\"type\": \"string\", \"maxLength\": 12}");
    for (int i = 0; i < 12; i++)
        put(&t, "}");
    return t.s;
}

/* Returns a grammar of texts in which no letter stands twice in a row. Each
 * letter leads to a set of states of its own, and nearly every random text of
 * letters is valid. */
static char *no_doubles(void)
{
    struct text t = {0};

    put(&t, "root ::= (word \" \")+\nword ::= ");
    for (int c = 'a'; c <= 'z'; c++)
        put(&t, "%s\"%c\" after-%c", c > 'a' ? " | " : "", c, c);
    put(&t, "\n");
    for (int c = 'a'; c <= 'z'; c++) {
        put(&t, "after-%c ::= ", c);
        for (int d = 'a'; d <= 'z'; d++)
            if (d != c)
                put(&t, "\"%c\" after-%c | ", d, d);
        put(&t, "\"\"\n");
    }
    return t.s;
}

/* Returns a grammar of calls of twenty tools, in the form in which models write
 * them. */
static char *calls(void)
{
    struct text t = {0};
    char w[16];

    put(&t, "root ::= text (\"<tool_call>\\n\" call \"\\n</tool_call>\")*\n"
            "text ::= ([^<] | \"<\" [^t])*\n"
            "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"\\\\nt])*"
            " \"\\\"\"\n"
            "number ::= \"-\"? [0-9]{1,15} (\".\" [0-9]{1,15})?\n"
            "call ::= ");
    for (unsigned i = 0; i < 20; i++)
        put(&t, "%scall-%u", i ? " | " : "", i);
    put(&t, "\n");
    for (unsigned i = 0; i < 20; i++) {
        put(&t,
            "call-%u ::= \"{\\\"name\\\": \\\"%s\\\", \\\"arguments\\\":"
            " {\"",
            i, word(w, i));
        for (unsigned k = 0; k < 3; k++)
            put(&t, " \"%s\\\"%s\\\": \" %s", k ? ", " : "",
                word(w, 100 + 3 * i + k), (i + k) % 2 ? "string" : "number");
        put(&t, " \"}}\"\n");
    }
    return t.s;
}

/* ---- all of them --------------------------------------------------------- */

int battery_make(struct battery_item item[BATTERY_MOST])
{
    const struct battery_item all[] = {
        {"json", json, false},
        {"arithmetic", arithmetic, false},
        {"lines", lines, false},
        {"chess", chess, false},
        {"program", program, false},
        {"markup", markup, false},
        {"fenced", fenced, false},
        {"scripts", scripts, false},
        {"some-han", some_han, false},
        {"almost-letters", almost_letters, false},
        {"vowel-pairs", vowel_pairs, false},
        {"no-doubles", no_doubles(), false},
        {"ends-anywhere", ends_anywhere, false},
        {"two-ways", two_ways, false},
        {"counts-in-counts", counts_in_counts, false},
        {"long-rows", long_rows, false},
        {"ambiguous-tail", ambiguous_tail, false},
        {"brackets", brackets, false},
        {"dates", dates, false},
        {"words-1000", words_of_1000(), false},
        {"calls", calls(), false},
        {"records", records, true},
        {"any-value", any_value, true},
        {"long-string", long_string, true},
        {"patterns", patterns, true},
        {"tree", tree, true},
        {"map", map, true},
        {"enum-1000", enum_of_1000(), true},
        {"object-40", object_of_40(), true},
        {"any-of-50", any_of_50(), true},
        {"arrays", arrays_of_arrays(), true},
    };
    int n = (int)(sizeof all / sizeof all[0]);

    memcpy(item, all, sizeof all);
    return n;
}
