/* Learns the markers in a model's replies from its chat template; see
 * reply_format.h. Renders test conversations, the probes, which are in a table
 * below. */
#include "chat/reply_format.h"

#include "base/err.h"
#include "chat/json_span.h"
#include "chat/reply_known.h"

#include <stdlib.h>
#include <string.h>

/* ---- functions of spans ------------------------------------------------- */

struct span span_of(const char *s)
{
    return (struct span){s, strlen(s)};
}

struct span span_from(struct span t, size_t from)
{
    if (from > t.n)
        from = t.n;
    return from > 0 ? (struct span){t.s + from, t.n - from} : t;
}

static struct span span_until(struct span t, size_t end)
{
    return (struct span){t.s, end < t.n ? end : t.n};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t span_blanks(struct span t)
{
    size_t n = 0;

    while (n < t.n && is_blank(t.s[n]))
        n++;
    return n;
}

static struct span trim_end(struct span t)
{
    while (t.n > 0 && is_blank(t.s[t.n - 1]))
        t.n--;
    return t;
}

struct span span_trim(struct span t)
{
    return trim_end(span_from(t, span_blanks(t)));
}

bool span_equal(struct span a, struct span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool span_begins(struct span t, struct span with)
{
    return with.n <= t.n && (with.n == 0 || memcmp(t.s, with.s, with.n) == 0);
}

bool span_ends(struct span t, struct span with)
{
    return with.n <= t.n && span_equal(span_from(t, t.n - with.n), with);
}

size_t span_find(struct span t, struct span part)
{
    const char *at =
        part.n > 0 && t.n > 0 ? memmem(t.s, t.n, part.s, part.n) : NULL;

    return at ? (size_t)(at - t.s) : t.n;
}

bool span_contains(struct span t, struct span part)
{
    return span_find(t, part) < t.n;
}

size_t span_begins_loosely(struct span t, struct span mark)
{
    size_t n = 0;

    for (size_t i = 0; i < mark.n;) {
        size_t blanks = span_blanks(span_from(mark, i));
        bool between =
            (i > 0 && mark.s[i - 1] == '>') ||
            (blanks > 0 && mark.n > i + blanks && mark.s[i + blanks] == '<');

        i += blanks;
        if (blanks > 0 || (between && mark.s[i] == '<')) {
            size_t there = span_blanks(span_from(t, n));

            if (there == 0 && !between)
                return 0;
            n += there;
        }
        if (i < mark.n && (n >= t.n || t.s[n++] != mark.s[i++]))
            return 0;
    }
    return n;
}

size_t span_name(struct span t)
{
    size_t n = 0;

    while (n < t.n && ((t.s[n] >= 'a' && t.s[n] <= 'z') ||
                       (t.s[n] >= 'A' && t.s[n] <= 'Z') ||
                       (t.s[n] >= '0' && t.s[n] <= '9') ||
                       (t.s[n] && strchr("_-.:/", t.s[n]))))
        n++;
    return n;
}

/* ---- finding tags: <...> or [...] ---------------------------------------- */

static bool opens_tag(char c)
{
    return c == '<' || c == '[';
}

/* Returns the length in bytes of the tag, <...> or [...], at the beginning of
 * `t`; 0 if there is none. */
static size_t tag_length(struct span t)
{
    if (t.n == 0 || !opens_tag(t.s[0]))
        return 0;
    for (size_t i = 1; i < t.n; i++) {
        if (t.s[i] == (t.s[0] == '<' ? '>' : ']'))
            return i + 1;
        if (opens_tag(t.s[i]) || is_blank(t.s[i]))
            return 0;
    }
    return 0;
}

/* Returns the tag at the beginning of `t`, which blanks may precede. Empty if
 * there is none. */
static struct span first_tag(struct span t)
{
    t = span_from(t, span_blanks(t));
    return span_until(t, tag_length(t));
}

/* Returns the tag at the beginning of `t`, or its first word if that begins
 * with < or [ but is not a tag, because there are unusual end markers such as
 * [e~[. Empty if there is neither. */
static struct span first_end(struct span t)
{
    struct span tag = first_tag(t);

    t = span_from(t, span_blanks(t));
    for (size_t n = 0; tag.n == 0 && n < t.n && opens_tag(t.s[0]); n++)
        if (n + 1 == t.n || is_blank(t.s[n + 1]))
            tag = span_until(t, n + 1);
    return tag;
}

/* Returns the end of the last word of `t`, from the last tag in this word on.
 * Empty if the word contains no tag. */
static struct span last_tag(struct span t)
{
    t = trim_end(t);
    for (size_t i = t.n; i-- > 0 && !is_blank(t.s[i]);)
        if (opens_tag(t.s[i]) && tag_length(span_from(t, i)) > 0)
            return span_from(t, i);
    return (struct span){0};
}

/* Returns the length of the longest common beginning of a and b, in bytes. If
 * it ended within a tag, returns the length before this tag. */
static size_t common_start(struct span a, struct span b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.s[n] == b.s[n])
        n++;
    for (size_t i = n; i-- > 0;) {
        size_t tag = tag_length(span_from(a, i));

        if (tag > 0)
            return i + tag > n ? i : n;
        /* `a` goes on as <function=name, so end before this tag */
        if (opens_tag(a.s[i]))
            return i;
        if (is_blank(a.s[i]))
            break;
    }
    return n;
}

/* Finds the longest common end of a and b, and returns the part of it that
 * begins with its first tag. If it contains no tag, returns an empty span,
 * except if it is the whole of a or b. */
static struct span common_end(struct span a, struct span b)
{
    size_t n = 0, tag;

    while (n < a.n && n < b.n && a.s[a.n - 1 - n] == b.s[b.n - 1 - n])
        n++;
    tag = n;
    while (tag > 0 && !opens_tag(a.s[a.n - tag]))
        tag--;
    if (tag > 0 || (n < a.n && n < b.n))
        n = tag;
    return span_from(a, a.n - n);
}

/* ---- the probes: test conversations ------------------------------------- */

#define USER      "Zq1user"
#define CONTENT   "Zq2content"
#define REASONING "Zq3reasoning"
#define THINKING  "Zq4thinking"
#define FIRST     "zq_first"
#define SECOND    "zq_second"
#define KEY       "zq_city" /* precedes COUNT_KEY if keys are sorted */
#define VALUE     "Zq5value"
#define COUNT_KEY "zq_count"
#define COUNT     "7193"
/* a template shows this if it prints arguments as a Python dict, so that they
 * must be passed as JSON text */
#define PYTHON_DICT "'" KEY "': '" VALUE "'"
/* Ids have nine letters or digits, because some templates require this. */
#define FIRST_ID  "zqCallId1"
#define SECOND_ID "zqCallId2"

#define TOOL(name)                                                             \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name                \
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", "      \
    "\"properties\": {\"" KEY "\": {\"type\": \"string\", \"description\": "   \
    "\"d\"}, \"" COUNT_KEY "\": {\"type\": \"integer\", \"description\": "     \
    "\"d\"}}, \"required\": [\"" KEY "\"]}}}"
#define CALL(name, id)                                                         \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": "   \
    "\"" name "\", \"arguments\": {\"" KEY "\": \"" VALUE "\", \"" COUNT_KEY   \
    "\": " COUNT "}}}"
#define CALL_TEXT(name, id)                                                    \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": "   \
    "\"" name "\", \"arguments\": \"{\\\"" KEY "\\\": \\\"" VALUE              \
    "\\\", \\\"" COUNT_KEY "\\\": " COUNT "}\"}}"
#define ASKED "[{\"role\": \"user\", \"content\": \"" USER "\"}"
#define SAID(content)                                                          \
    ASKED ", {\"role\": \"assistant\", \"content\": \"" content "\""
#define THOUGHT                                                                \
    ", \"reasoning_content\": \"" REASONING "\", \"reasoning\": \"" REASONING  \
    "\", \"thinking\": \"" THINKING "\""
#define CALLED ", \"tool_calls\": ["
#define TOOLS  "[" TOOL(FIRST) ", " TOOL(SECOND) "]"
#define ON     "{\"enable_thinking\": true, \"thinking\": true}"
#define OFF    "{\"enable_thinking\": false, \"thinking\": false}"

enum probe {
    PROMPT,
    PROMPT_ON,
    PROMPT_OFF,
    PLAIN,
    REASONED,
    REASONED_CALL,
    REASONED_PARTS,
    ONE_CALL,
    TWO_CALLS,
    N_PROBE
};

/* The probes (test conversations): messages, tools and template variables.
 * `prompt`: the beginning of the reply is rendered, too. */
static const struct {
    const char *messages, *tools, *extra;
    bool prompt;
    /* The same messages with the arguments of calls as JSON texts; NULL if
     * there are no calls. */
    const char *as_text;
} probes[N_PROBE] = {
    [PROMPT] = {ASKED "]", NULL, NULL, true, NULL},
    [PROMPT_ON] = {ASKED "]", NULL, ON, true, NULL},
    [PROMPT_OFF] = {ASKED "]", NULL, OFF, true, NULL},
    [PLAIN] = {SAID(CONTENT) "}]", NULL, NULL, false, NULL},
    [REASONED] = {SAID(CONTENT) THOUGHT "}]", NULL, ON, false, NULL},
    [REASONED_CALL] = {SAID("") THOUGHT CALLED CALL(FIRST, FIRST_ID) "]}]",
                       TOOLS, ON, false,
                       SAID("")
                           THOUGHT CALLED CALL_TEXT(FIRST, FIRST_ID) "]}]"},
    [REASONED_PARTS] = {ASKED
                        ", {\"role\": \"assistant\", \"content\": ["
                        "{\"type\": \"thinking\", \"thinking\": \"" REASONING
                        "\"}, {\"type\": \"text\", \"text\": \"" CONTENT
                        "\"}]}]",
                        NULL, ON, false, NULL},
    [ONE_CALL] = {SAID("") CALLED CALL(FIRST, FIRST_ID) "]}]", TOOLS, NULL,
                  false, SAID("") CALLED CALL_TEXT(FIRST, FIRST_ID) "]}]"},
    [TWO_CALLS] = {SAID("") CALLED CALL(FIRST, FIRST_ID) ", " CALL(
                       SECOND, SECOND_ID) "]}]",
                   TOOLS, NULL, false,
                   SAID("") CALLED CALL_TEXT(FIRST, FIRST_ID) ", " CALL_TEXT(
                       SECOND, SECOND_ID) "]}]"},
};

/* The rendered texts of the probes. text[i] is the text of probe i after the
 * user's message; empty if the template rejected the probe. */
struct answers {
    struct span text[N_PROBE];
    /* whole[i]: the whole rendered text of probe i; owned. */
    char *whole[N_PROBE];
    /* The template required the arguments of calls as JSON texts. */
    bool as_text;
};

static pl_status ask(struct answers *a, reply_render_fn *render, void *user,
                     pl_err *err)
{
    const struct span said = span_of(USER);

    for (int i = 0; i < N_PROBE; i++) {
        pl_conversation c = {.size = sizeof c,
                             .messages = probes[i].messages,
                             .tools = probes[i].tools,
                             .extra = probes[i].extra,
                             .no_generation_prompt = !probes[i].prompt};
        pl_status s = render(user, &c, &a->whole[i], err);
        struct span t;
        size_t at;

        if (probes[i].as_text &&
            (s == PL_BAD_ARGUMENT ||
             (s == PL_OK && strstr(a->whole[i], PYTHON_DICT)))) {
            free(a->whole[i]);
            a->whole[i] = NULL;
            c.messages = probes[i].as_text;
            s = render(user, &c, &a->whole[i], err);
            a->as_text = s == PL_OK;
        }
        if (s == PL_NO_MEMORY)
            return s;
        if (s != PL_OK)
            continue;
        t = span_of(a->whole[i]);
        while ((at = span_find(t, said)) < t.n)
            a->text[i] = t = span_from(t, at + said.n);
    }
    return PL_OK;
}

/* ---- learning the markers of reasoning and content ----------------------- */

/* Finds `known` in `t`. Sets *before and *after to the text before it and after
 * it. Returns false if `t` does not contain it. */
static bool around(struct span t, const char *known, struct span *before,
                   struct span *after)
{
    size_t at = span_find(t, span_of(known));

    if (at == t.n)
        return false;
    *before = span_until(t, at);
    *after = span_from(t, at + strlen(known));
    return true;
}

static bool has_reasoning(const struct reply_format *f)
{
    return f->think_open.n > 0 && f->think_close.n > 0 &&
           !span_equal(f->think_open, f->think_close);
}

/* Sets the markers of reasoning from `t`, the rendered text of a message whose
 * reasoning is `known`. */
static bool learn_thought(struct reply_format *f, struct span t,
                          const char *known)
{
    struct span before, after;
    size_t n;

    if (!around(t, known, &before, &after))
        return false;
    f->think_open = last_tag(before);
    f->think_close = first_tag(after);
    n = span_blanks(after) + f->think_close.n;
    f->think_end = span_until(after, n + span_blanks(span_from(after, n)));
    return has_reasoning(f);
}

static bool is_mentioned(const struct reply_format *f, int pair)
{
    return f->mentioned >> pair & 1;
}

void reply_format_scan(struct reply_format *f, const char *source, size_t len)
{
    const struct span t = {source, len};

    for (int i = 0; i < reply_n_pair; i++)
        if (span_contains(t, span_of(reply_pairs[i].close)) &&
            (reply_pairs[i].implied ||
             span_contains(t, span_of(reply_pairs[i].open))))
            f->mentioned |= 1u << i;
}

static void learn_reasoning(struct reply_format *f, const struct answers *a)
{
    static const enum probe shows[] = {REASONED, REASONED_CALL, REASONED_PARTS};
    struct span before, after;
    bool found = false;

    for (int i = 0; i < 3 && !found; i++) {
        f->thinking = learn_thought(f, a->text[shows[i]], THINKING);
        found = f->thinking || learn_thought(f, a->text[shows[i]], REASONING);
    }
    /* Some templates do not show reasoning. But their prompts, or a reply
     * without reasoning, may show that the model reasons. */
    for (int i = PROMPT; i <= PLAIN && !found; i++) {
        found = around(a->text[i], "<think>", &before, &after);
        f->think_open = span_of(found ? "<think>" : "");
        f->think_close = f->think_end = span_of(found ? "</think>" : "");
    }
    for (int i = 0; i < reply_n_pair && !found; i++) {
        found = is_mentioned(f, i) && !reply_pairs[i].content;
        f->think_open = span_of(found ? reply_pairs[i].open : "");
        f->think_close = f->think_end =
            span_of(found ? reply_pairs[i].close : "");
    }
}

/* Returns the part of `t` that a model writes. `t` is the beginning of an
 * assistant's message. Removes the text that `t` has in common with `plain` or
 * with a prompt, and the markers of empty reasoning. */
static struct span written(const struct reply_format *f,
                           const struct answers *a, struct span t,
                           struct span plain)
{
    struct span again;
    size_t most = common_start(t, plain);

    for (int i = PROMPT; i <= PROMPT_OFF; i++) {
        size_t n = common_start(t, a->text[i]);

        most = n > most ? n : most;
    }
    t = span_from(t, most);
    do {
        again = t;
        t = span_from(t, span_blanks(t));
        if (f->think_open.n > 0 && span_begins(t, f->think_open))
            t = span_from(t, f->think_open.n);
        else if (f->think_close.n > 0 && span_begins(t, f->think_close))
            t = span_from(t, f->think_close.n);
    } while (t.n < again.n);
    return t;
}

/* Returns true if only blanks separate the prompt from the content of the
 * reply. `before` is the text before the content. Returns false if the model
 * reasons, because the blanks then belong to the markers of reasoning. */
static bool is_led(const struct reply_format *f, const struct answers *a,
                   struct span before)
{
    const struct span prompt = a->text[PROMPT];

    return f->think_open.n == 0 && before.n > prompt.n &&
           span_begins(before, prompt) &&
           span_trim(span_from(before, prompt.n)).n == 0;
}

/* Returns the marker that begins another part of an assistant's message, if
 * parts end with the same marker `close` as messages of the user. It is the
 * text of a prompt after `close`, without the markers of reasoning and
 * content. */
static struct span learn_again(const struct reply_format *f,
                               const struct answers *a, struct span close)
{
    struct span t = a->text[PROMPT];

    t = span_from(t, span_blanks(t));
    if (close.n == 0 || !span_begins(t, close))
        return (struct span){0};
    t = span_from(t, close.n);
    t = span_until(t, span_find(t, f->think_open));
    return span_trim(span_until(t, span_find(t, f->content_open)));
}

/* Learns the markers around the content and after a message. Sets *before to
 * the text of an assistant's message before its content; empty if the template
 * does not show the content. */
static void learn_content(struct reply_format *f, const struct answers *a,
                          struct span *before)
{
    struct span after, t;
    const struct span none = {0};

    if (!around(a->text[PLAIN], CONTENT, before, &after)) {
        *before = none;
        return;
    }
    f->led = is_led(f, a, *before);
    t = trim_end(written(f, a, *before, none));
    if (t.n > 0 && tag_length(t) == t.n) {
        f->content_open = t;
        f->content_close = first_tag(after);
        after = span_from(after, span_blanks(after) + f->content_close.n);
        f->again = learn_again(f, a, f->content_close);
    }
    f->end[0] = first_end(after);
    /* A pair of tags is around content if the model reasons, or if the tags
     * are special tokens (<|...|>). Others may be a part of a text. */
    for (int i = 0; i < reply_n_pair && f->content_open.n == 0; i++)
        if (is_mentioned(f, i) && reply_pairs[i].content &&
            (has_reasoning(f) || reply_pairs[i].open[1] == '|')) {
            f->content_open = span_of(reply_pairs[i].open);
            f->content_close = span_of(reply_pairs[i].close);
        }
}

/* ---- learning the notation of tool calls --------------------------------- */

/* A tool call in the rendered text of a probe. `unit` is the text of the call:
 * the JSON object or list if the notation is CALLS_OBJECT, otherwise the name
 * with the arguments after it. `before` and `after` are the texts around
 * `unit`. */
struct seen {
    struct span before, unit, after;
    struct span name_after; /* the text after the name */
    bool wrapped; /* CALLS_NAMED: the object has the name, too; `unit` is it */
};

/* Finds the beginning of the JSON object {"zq_city": ... in `t`, whose first
 * key is at offset `key`. Sets *begin to its offset. Returns false if the key
 * does not begin an object. */
static bool object_begins(struct span t, size_t key, size_t *begin)
{
    size_t i = key;

    if (i == 0 || t.s[--i] != '"')
        return false;
    while (i > 0 && is_blank(t.s[i - 1]))
        i--;
    *begin = i - 1;
    return i > 0 && t.s[i - 1] == '{';
}

/* Sets *unit to the JSON object or list that contains the name at offset `name`
 * of t and ends at offset `least` or later. It must begin at most NEAR bytes
 * before the name. Returns false if there is none. */
enum { NEAR = 512 };
static bool object_around(struct span t, size_t name, size_t least,
                          struct span *unit, bool *no_memory)
{
    for (size_t i = name > NEAR ? name - NEAR : 0; i < name; i++) {
        struct json_scan scan = {0};
        struct span j = span_from(t, i);

        if (t.s[i] != '{' && t.s[i] != '[')
            continue;
        if (json_scan(&scan, j) && i + scan.at >= least &&
            json_is_valid(span_until(j, scan.at), no_memory)) {
            *unit = span_until(j, scan.at);
            return true;
        }
    }
    return false;
}

/* Returns the key of the object's member that contains the text `value`; empty
 * if there is none. `unit` is an object, or a list that begins with one. */
static struct span key_of(struct span unit, const char *value)
{
    struct json_walk w;
    struct span key, v;

    if (unit.s[0] == '[')
        unit = span_from(unit, 1 + span_blanks(span_from(unit, 1)));
    for (w = json_walk(unit); json_walk_next(&w, &key, &v);)
        if (span_find(v, span_of(value)) < v.n)
            return key;
    return (struct span){0};
}

#define CLOSING(key) "</" key ">"

/* Returns true if the key at offset `key` of `t` is the name of an element
 * around its value: <zq_city>Zq5value</zq_city>. */
static bool is_element(struct span t, size_t key)
{
    struct span v = span_from(t, key + strlen(KEY));

    if (key == 0 || t.s[key - 1] != '<' || !span_begins(v, span_of(">")))
        return false;
    v = span_from(v, 1 + span_blanks(span_from(v, 1)));
    return span_begins(v, span_of(VALUE)) &&
           span_contains(v, span_of(CLOSING(KEY)));
}

/* Finds the call of the tool `name` in `t`, the rendered text of a probe. Fills
 * *c and returns the notation of the call; CALLS_NONE if there is no call. */
static enum reply_calls look(struct span t, const char *name, struct seen *c,
                             bool *no_memory)
{
    size_t at = span_find(t, span_of(name)), after = at + strlen(name);
    size_t key, last, begin;
    struct json_scan scan = {0};
    struct span v;

    if (at == t.n)
        return CALLS_NONE;
    c->name_after = span_from(t, after);
    key = after + span_find(c->name_after, span_of(KEY));
    last = after + span_find(c->name_after, span_of(COUNT));
    if (key >= t.n || last >= t.n || last < key)
        return CALLS_NONE;
    last += strlen(COUNT);
    c->before = span_until(t, at);
    if (object_begins(t, key, &begin)) {
        if (!json_scan(&scan, span_from(t, begin)))
            return CALLS_NONE;
        last = begin + scan.at;
        c->unit = (struct span){t.s + at, last - at};
        c->after = span_from(t, last);
        /* The name may be in the object, too: f[ARGS]{"name": "f", ... */
        if (!object_around(t, at, last, &c->unit, no_memory)) {
            at = after + span_find(c->name_after, span_of(name));
            c->wrapped =
                at < begin && object_around(t, at, last, &c->unit, no_memory);
            if (c->wrapped)
                c->after = span_from(c->unit, c->unit.n);
            return CALLS_NAMED;
        }
        c->before = span_until(t, (size_t)(c->unit.s - t.s));
        c->after = span_from(t, (size_t)(c->unit.s - t.s) + c->unit.n);
        return CALLS_OBJECT;
    }
    v = span_from(t, key + strlen(KEY));
    if (is_element(t, key)) {
        c->unit = (struct span){t.s + at, last - at};
        c->after = span_from(t, last);
        return CALLS_NESTED;
    }
    v = span_from(v, span_blanks(v));
    if (span_begins(c->name_after, span_of("(")) &&
        span_begins(v, span_of("="))) {
        c->after = span_from(t, last);
        return CALLS_PYTHON;
    }
    if (v.n > 0 && v.s[0] == ':') {
        while (last < t.n && t.s[last] != '}')
            last++;
        if (last == t.n)
            return CALLS_NONE;
        last++;
    }
    c->unit = (struct span){t.s + at, last - at};
    c->after = span_from(t, last);
    return v.n > 0 && v.s[0] == ':' ? CALLS_QUOTED : CALLS_TAGGED;
}

/* Learns the markers around types, if the markers before values differ only in
 * a word between two tags. */
static void learn_types(struct reply_format *f)
{
    const struct span string = span_of(">string<");
    size_t at = span_find(f->value_open, string);
    struct span open = span_until(f->value_open, at + 1);
    struct span close = span_from(f->value_open, at + string.n - 1);

    if (at < f->value_open.n && open.n + close.n < f->json_open.n &&
        span_begins(f->json_open, open) && span_ends(f->json_open, close)) {
        f->type_open = open;
        f->type_close = close;
    }
}

/* Learns the marker before values that are not strings, if it differs from that
 * before strings. `t` is the text after the first value. */
static void learn_json_open(struct reply_format *f, struct span t)
{
    struct span open = span_from(t, span_find(t, span_of(COUNT_KEY)));

    open = span_from(open, open.n > 0 ? strlen(COUNT_KEY) : 0);
    open = span_trim(span_until(open, span_find(open, span_of(COUNT))));
    f->json_open = span_equal(open, f->value_open) ? (struct span){0} : open;
    learn_types(f);
}

/* Learns the markers inside a tool call in the notation CALLS_TAGGED. Returns
 * false if a required marker is missing. */
static bool learn_tags(struct reply_format *f, const struct seen *c)
{
    size_t key = span_find(c->name_after, span_of(KEY));
    struct span to_key = span_until(c->name_after, key), to_value, to_next;
    struct span t = span_from(c->name_after, key + strlen(KEY)), lead;
    size_t at = span_find(t, span_of(VALUE));

    if (at == t.n)
        return false;
    to_value = span_until(t, at);
    t = span_from(t, at + strlen(VALUE));
    to_next = span_until(t, span_find(t, span_of(COUNT_KEY)));
    f->key_open = common_end(to_key, to_next);
    f->value_open = span_trim(to_value);
    learn_json_open(f, t);
    f->name_close = span_trim(span_until(to_key, to_key.n - f->key_open.n));
    f->value_lead = span_from(to_value, trim_end(to_value).n);
    lead = span_until(to_next, to_next.n - f->key_open.n);
    f->value_close = span_trim(lead);
    f->value_tail = span_until(lead, span_blanks(lead));
    f->key_open = span_trim(f->key_open);
    return f->key_open.n > 0 && f->value_open.n > 0 && f->value_close.n > 0;
}

/* Learns the markers inside a tool call in the notation CALLS_NESTED. The same
 * text, which may be empty, must precede the < of each tag. */
static bool learn_elements(struct reply_format *f, const struct seen *c)
{
    struct span to_key =
        span_until(c->name_after, span_find(c->name_after, span_of(KEY)));
    struct span t =
        span_from(c->name_after, span_find(c->name_after, span_of(VALUE)));
    struct span lead;

    t = span_from(t, strlen(VALUE));
    t = span_from(t, span_blanks(t));
    lead = span_until(t, span_find(t, span_of(CLOSING(KEY))));
    if (to_key.n <= lead.n ||
        !span_equal(lead,
                    (struct span){to_key.s + to_key.n - 1 - lead.n, lead.n}))
        return false;
    f->value_close = span_until(t, lead.n + 2);
    f->key_open = span_from(to_key, to_key.n - 1 - lead.n);
    f->value_open = span_of(">");
    f->name_close = span_trim(span_until(to_key, to_key.n - f->key_open.n));
    return true;
}

/* Removes a tag, and blanks before it, from the beginning of *t, and returns
 * the tag. The text `lead` is a part of the tag if it precedes it. */
static struct span take_tag(struct span *t, struct span lead)
{
    struct span rest = span_from(*t, span_blanks(*t)), tag;
    size_t n = span_begins(rest, lead) ? lead.n : 0;

    n += span_find(span_from(rest, n), span_of(">")) + 1;
    tag = span_until(rest, n);
    *t = span_from(rest, n);
    return tag;
}

/* Learns the markers around tool calls in the notation CALLS_NESTED. `open` is
 * the text before the first call, `rest` the text after its last value. `next`
 * is the beginning of the second call; NULL if there is none. */
static void learn_around_elements(struct reply_format *f, struct span open,
                                  struct span rest, const char *next)
{
    struct span lead = span_until(f->key_open, f->key_open.n - 1);
    size_t at = open.n;
    const struct span last = span_of(CLOSING(COUNT_KEY));

    while (at > 0 && !span_begins(span_from(open, at), f->key_open))
        at--;
    f->call_open = span_from(open, at);
    f->calls_open = span_trim(span_until(open, at));
    rest = span_from(rest, span_find(rest, last) + last.n);
    f->call_close = take_tag(&rest, lead);
    f->each = next && f->calls_open.n > 0 && next > rest.s &&
              span_contains((struct span){rest.s, (size_t)(next - rest.s)},
                            f->calls_open);
    /* The markers that close all calls follow the last call only. */
    if (next && !f->each && next > rest.s) {
        rest = span_from(rest, (size_t)(next - rest.s));
        rest = span_from(rest, span_find(rest, last) + last.n);
        take_tag(&rest, lead);
    }
    if (f->calls_open.n > 0)
        f->calls_close = take_tag(&rest, lead);
    f->end[1] = first_end(rest);
}

/* Learns the markers inside a tool call: between its name, its arguments and
 * its identifier. Returns false if a call could not be parsed with them. */
static bool learn_inside(struct reply_format *f, const struct seen *c)
{
    struct span before, after;

    switch (f->calls) {
    case CALLS_OBJECT:
        f->name_key = key_of(c->unit, FIRST);
        f->arguments_key = key_of(c->unit, KEY);
        f->listed = c->unit.s[0] == '[';
        if (span_equal(f->arguments_key, span_of(FIRST)))
            f->name_key = f->arguments_key = (struct span){0};
        else if (f->name_key.n == 0 || f->arguments_key.n == 0)
            return false;
        return f->name_key.n == 0 || !span_equal(f->name_key, f->arguments_key);
    case CALLS_NAMED:
        f->args_open =
            span_until(c->name_after, span_find(c->name_after, span_of("{")));
        if (around(c->unit, FIRST_ID, &before, &after))
            f->id_open = last_tag(before);
        if (around(f->args_open, FIRST_ID, &before, &after))
            f->args_open = after;
        if (!c->wrapped)
            return true;
        f->name_key = key_of(c->unit, FIRST);
        f->arguments_key = key_of(c->unit, KEY);
        f->exact = f->guess = true;
        return f->name_key.n > 0 && f->arguments_key.n > 0;
    case CALLS_TAGGED:
        return learn_tags(f, c);
    case CALLS_NESTED:
        return learn_elements(f, c);
    default:
        after =
            span_from(c->name_after, span_find(c->name_after, span_of(KEY)));
        after = span_from(after, strlen(KEY));
        after = span_until(after, span_find(after, span_of(VALUE)));
        f->quote = span_trim(span_from(after, span_find(after, span_of(":"))));
        f->quote = f->quote.n > 0 ? span_trim(span_from(f->quote, 1)) : after;
        return f->quote.n > 0;
    }
}

/* Learns the markers around tool calls. `open` is the text before the first
 * call, `between` the text from its end to the name of the second call. */
static void learn_between(struct reply_format *f, struct span open,
                          struct span between)
{
    f->call_open = common_end(open, between);
    f->calls_open = span_trim(span_until(open, open.n - f->call_open.n));
    f->call_close = span_trim(span_until(between, between.n - f->call_open.n));
    f->call_open = span_trim(f->call_open);
}

/* If each tool call has two markers before and after it, such as <tool_call>
 * <function=, splits them. The outer ones become calls_open and calls_close. */
static void split_marks(struct reply_format *f)
{
    struct span mark = first_tag(f->call_open);

    if (mark.n > 0 && mark.n < f->call_open.n) {
        f->calls_open = mark;
        f->each = true;
        f->call_open = span_trim(span_from(f->call_open, mark.n));
    }
    mark = first_tag(f->call_close);
    if (mark.n > 0 && mark.n < f->call_close.n) {
        f->calls_close = span_trim(span_from(f->call_close, mark.n));
        f->call_close = mark;
    }
}

/* Learns the markers that close all tool calls and that end the message. `rest`
 * is the text after the last call. */
static void learn_end(struct reply_format *f, struct span rest)
{
    rest = span_from(rest, span_blanks(rest));
    if (span_begins(rest, f->call_close))
        rest = span_from(rest, f->call_close.n);
    if (f->calls_open.n > 0) {
        f->calls_close = first_tag(rest);
        rest = span_from(rest, span_blanks(rest) + f->calls_close.n);
    } else if (f->calls == CALLS_TAGGED) {
        split_marks(f);
    }
    f->end[1] = first_end(rest);
    if (span_equal(f->end[1], f->call_close))
        f->end[1] = (struct span){0};
}

/* Learns the markers around tool calls. `plain` is the text of a message before
 * its content. `one` is the first call of a probe; `second` is the second call,
 * NULL if there is none. */
static void learn_around(struct reply_format *f, const struct answers *a,
                         struct span plain, const struct seen *one,
                         const struct seen *second)
{
    struct span open = written(f, a, one->before, plain), rest = one->after;
    const size_t tail = f->value_tail.n + f->value_close.n;
    /* End of the text before the second call; NULL if there is no second call.
     * It is before `rest` if one list contains both calls, or if the template
     * reverses their order. */
    const char *next = second ? second->before.s + second->before.n : NULL;

    if (f->calls == CALLS_NESTED) {
        learn_around_elements(f, open, rest, next);
        return;
    }
    if (second && next >= rest.s) {
        struct span between = {rest.s, (size_t)(next - rest.s)};

        learn_between(f, open, span_from(between, tail));
        rest = span_from(second->after, tail);
    } else {
        f->call_open = span_trim(open);
        rest = span_from(rest, tail);
        if (f->call_open.n > 0)
            f->call_close =
                span_trim(span_until(rest, span_find(rest, f->end[0])));
    }
    learn_end(f, rest);
}

/* Removes the identifier `id`, and the marker after it, from the end of
 * c->before. Returns this marker, which separates the identifier from the name
 * of the tool; empty if there is no identifier. */
static struct span leave_id(struct seen *c, const char *id)
{
    struct span before, after;

    if (!around(c->before, id, &before, &after) || after.n == 0 ||
        tag_length(after) != after.n)
        return (struct span){0};
    c->before = before;
    return after;
}

/* Learns the markers around tool calls in the notation CALLS_PYTHON, such as
 * [f(k='v', n=1)]. */
static void learn_python(struct reply_format *f, const struct answers *a,
                         struct span plain, bool *no_memory)
{
    struct seen c = {0};
    struct span open, rest;

    f->calls = look(a->text[ONE_CALL], FIRST, &c, no_memory);
    if (f->calls != CALLS_PYTHON)
        return;
    open = trim_end(written(f, a, c.before, plain));
    if (span_ends(open, span_of("[")))
        open.n--;
    f->call_open = span_trim(open);
    rest = span_from(c.after, span_blanks(c.after));
    for (size_t i = 0; i < 2 && rest.n > 0 && strchr(")]", rest.s[0]); i++)
        rest = span_from(rest, 1 + span_blanks(span_from(rest, 1)));
    f->call_close = first_tag(rest);
    f->end[1] = first_end(span_from(rest, f->call_close.n));
}

/* Finds the calls of the tools name[0] and name[1] in the probe with two calls.
 * If it does not show both in the same notation, finds only the first, in the
 * probe with one call. Returns the notation of the calls. */
static enum reply_calls look_for(const struct answers *a,
                                 const char *const name[2], struct seen c[2],
                                 bool *has_two, bool *no_memory)
{
    enum reply_calls calls =
        look(a->text[TWO_CALLS], name[0], &c[0], no_memory);

    *has_two = calls != CALLS_NONE &&
               look(a->text[TWO_CALLS], name[1], &c[1], no_memory) == calls;
    return *has_two ? calls
                    : look(a->text[ONE_CALL], name[0], &c[0], no_memory);
}

/* Finds the tool calls in the probes by the names of the tools. If the template
 * shows no names, only identifiers of calls, finds the calls by identifier; a
 * model's identifiers must then contain the name. */
static void find_calls(struct reply_format *f, const struct answers *a,
                       struct seen c[2], bool *has_two, bool *no_memory)
{
    static const char *const names[] = {FIRST, SECOND};
    static const char *const ids[] = {FIRST_ID, SECOND_ID};
    const struct span one = a->text[ONE_CALL];

    f->calls = look_for(a, names, c, has_two, no_memory);
    if (f->calls != CALLS_NONE || span_find(one, span_of(FIRST)) < one.n)
        return;
    f->calls = look_for(a, ids, c, has_two, no_memory);
    f->id_named = f->calls == CALLS_NAMED;
    if (!f->id_named)
        f->calls = CALLS_NONE;
}

/* Returns true if the learned notation has the markers that distinguish a tool
 * call from content. A JSON object needs no marker. */
static bool is_marked(const struct reply_format *f)
{
    if (f->calls == CALLS_OBJECT)
        return true;
    if (f->calls == CALLS_NAMED && f->name_key.n > 0)
        return f->args_open.n > 0;
    return f->call_open.n > 0 &&
           (f->calls == CALLS_NAMED || f->call_close.n > 0);
}

/* Removes markers around content, of which there is none, from the beginning of
 * the marker of a call. */
static void leave_content(const struct reply_format *f, struct span *mark)
{
    struct span t = *mark;

    if (f->content_open.n == 0 || !span_begins(t, f->content_open))
        return;
    t = span_trim(span_from(t, f->content_open.n));
    if (span_begins(t, f->content_close))
        *mark = span_trim(span_from(t, f->content_close.n));
}

static void learn_calls(struct reply_format *f, const struct answers *a,
                        struct span plain, bool *no_memory)
{
    struct seen c[2] = {0};
    bool has_two;

    find_calls(f, a, c, &has_two, no_memory);
    if (f->calls == CALLS_NONE)
        return;
    f->as_text = a->as_text;
    if (f->calls == CALLS_NAMED) {
        f->name_open = leave_id(&c[0], FIRST_ID);
        if (f->name_open.n > 0 && has_two)
            leave_id(&c[1], SECOND_ID);
    }
    if (f->calls == CALLS_PYTHON)
        learn_python(f, a, plain, no_memory);
    else if (learn_inside(f, &c[0]))
        learn_around(f, a, plain, &c[0], has_two ? &c[1] : NULL);
    else
        f->calls = CALLS_NONE;
    if (f->again.n > 0 && span_ends(f->call_close, f->again))
        f->call_close =
            trim_end(span_until(f->call_close, f->call_close.n - f->again.n));
    leave_content(f, f->calls_open.n > 0 ? &f->calls_open : &f->call_open);
    if (!is_marked(f))
        f->calls = CALLS_NONE;
}

/* ---- learning the whole notation ----------------------------------------- */

/* Copies the markers to the arena of the format, because they point into the
 * texts of the probes, which will be freed. */
static pl_status keep(struct reply_format *f, pl_err *err)
{
    struct span *all[] = {
        &f->think_open,  &f->think_close,   &f->content_open, &f->content_close,
        &f->think_end,   &f->again,         &f->end[0],       &f->end[1],
        &f->calls_open,  &f->calls_close,   &f->call_open,    &f->call_close,
        &f->name_key,    &f->arguments_key, &f->id_open,      &f->name_open,
        &f->args_open,   &f->name_close,    &f->key_open,     &f->value_open,
        &f->value_close, &f->json_open,     &f->value_lead,   &f->value_tail,
        &f->type_open,   &f->type_close,    &f->quote};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->n > 0)
            all[i]->s = arena_strndup(&f->arena, all[i]->s, all[i]->n);
        if (all[i]->n > 0 && !all[i]->s)
            return err_no_memory(err, "the markers of a chat template");
    }
    return PL_OK;
}

/* Recognizes notations of whole messages, such as that of gpt-oss. `before` and
 * `after` are the texts around the content of a message. */
static void learn_messages(struct reply_format *f, struct span before,
                           struct span after)
{
    f->recipients = span_ends(before, span_of(">>>all\n"));
    if (span_ends(before, span_of("<|message|>")))
        f->addressed = span_contains(before, span_of(" to="));
    f->channels = f->recipients || f->addressed ||
                  (span_ends(before, span_of("<|message|>")) &&
                   span_contains(before, span_of("<|channel|>")));
    if (f->recipients)
        f->end[0] = first_end(after);
    if (span_ends(before, reply_sectioned.content_open)) {
        bool thinking = f->thinking;

        *f = reply_sectioned;
        f->thinking = thinking;
    }
}

pl_status reply_format_learn(struct reply_format *f, reply_render_fn *render,
                             void *user, pl_err *err)
{
    struct answers a = {0};
    struct span before, after;
    pl_status s = ask(&a, render, user, err);
    bool no_memory = false;

    if (s == PL_OK) {
        learn_reasoning(f, &a);
        if (around(a.text[PLAIN], CONTENT, &before, &after))
            learn_messages(f, before, after);
        if (!f->channels && !f->attributes) {
            learn_content(f, &a, &before);
            learn_calls(f, &a, before, &no_memory);
        }
        s = no_memory ? err_no_memory(err, "the markers of a chat template")
                      : keep(f, err);
    }
    for (int i = 0; i < N_PROBE; i++)
        free(a.whole[i]);
    return s;
}

void reply_format_fini(struct reply_format *f)
{
    arena_fini(&f->arena);
}
