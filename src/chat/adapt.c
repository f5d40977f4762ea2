/* Changes conversations so that a chat template accepts them; see adapt.h. */
#include "chat/adapt.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/wide_json.h"
#include "chat/adapt_change.h"

#include <stdlib.h>
#include <string.h>

/* ---- rendering with changes until one is accepted ------------------------ */

/* Parses `text`, one of the JSON texts of a conversation. Returns NULL if it is
 * absent, or not JSON of this type. */
static json_t *load(struct conversation *w, const char *text, json_type type)
{
    json_error_t e = {.line = -1};
    json_t *j =
        text ? wide_json_marked(text, strlen(text), JSON_ALLOW_NUL, &e) : NULL;

    if (j && json_typeof(j) == type)
        return j;
    /* Jansson reports some failed allocations as an unknown error. */
    w->failed |= text && !j &&
                 (json_error_code(&e) == json_error_out_of_memory ||
                  json_error_code(&e) == json_error_unknown);
    json_decref(j);
    return NULL;
}

/* Parses the texts of a conversation into *w. Returns false if a text is not
 * valid, or if out of memory. */
static bool load_all(struct conversation *w, const pl_conversation *c)
{
    json_t *m;
    size_t i;

    w->messages = load(w, c->messages, JSON_ARRAY);
    w->tools = load(w, c->tools, JSON_ARRAY);
    w->extra = load(w, c->extra ? c->extra : "{}", JSON_OBJECT);
    json_array_foreach (w->messages, i, m)
        if (!json_is_object(m))
            return false;
    return w->messages && w->extra && (w->tools || !c->tools);
}

/* The inputs of all attempts at rendering one conversation: the conversation
 * itself, and the callback that renders it. */
struct adapting {
    const struct chat_adapt *a;
    const pl_conversation *c;
    struct conversation given;
    reply_render_fn *render;
    void *user;
};

/* Renders the conversation with the changes of `set`, bits 1 << enum change. If
 * the change `must` of these changes nothing, does not render, and returns
 * PL_BAD_ARGUMENT with an empty message. `must` may be -1 for none. */
static pl_status attempt(const struct adapting *how, unsigned set, int must,
                         char **text, pl_err *err)
{
    pl_conversation c = *how->c;
    char *own[3] = {NULL};
    struct conversation w;
    unsigned made = 0;
    pl_status s = PL_BAD_ARGUMENT;

    err->message[0] = '\0';
    conversation_copy(&w, &how->given);
    if (!w.failed)
        made = conversation_change(&w, set, how->a->reasoning);
    if (!w.failed && (must < 0 || made >> must & 1)) {
        c.messages = own[0] = conversation_dump(w.messages);
        c.tools = own[1] = conversation_dump(w.tools);
        c.extra = own[2] = conversation_dump(w.extra);
        w.failed = !c.messages || !c.extra || (w.tools && !c.tools);
        if (!w.failed)
            s = how->render(how->user, &c, text, err);
    }
    if (w.failed)
        s = err_no_memory(err, "a conversation");
    for (int i = 0; i < 3; i++)
        free(own[i]);
    conversation_fini(&w);
    return s;
}

/* Renders the conversation, adding one change after the other until the
 * template accepts it. A change is kept if the template then accepts the
 * conversation, or rejects it with another error message. */
static pl_status try_all(const struct adapting *how, char **text, pl_err *err)
{
    enum { MOST = 100 };
    unsigned set = how->a->always;
    pl_status s = attempt(how, set, -1, text, err);
    pl_err now = *err, next;
    int n = 0;

    for (int i = 0; s == PL_BAD_ARGUMENT && i < N_CHANGE && n < MOST; i++) {
        pl_status t;

        if (set >> i & 1)
            continue;
        t = attempt(how, set | 1u << i, i, text, &next);
        n += next.message[0] != '\0';
        if (t == PL_OK || t == PL_NO_MEMORY) {
            *err = next;
            s = t;
        } else if (next.message[0] && strcmp(next.message, now.message) != 0) {
            set |= 1u << i;
            now = next;
            /* Start again, because a change that did not help before may help
             * now. */
            i = -1;
        }
    }
    return s;
}

/* Name of the message field in which clients send reasoning. */
static const char usual_name[] = "reasoning_content";

pl_status chat_adapt_render(const struct chat_adapt *a,
                            const pl_conversation *c, reply_render_fn *render,
                            void *user, char **text, pl_err *err)
{
    struct adapting how = {.a = a, .c = c, .render = render, .user = user};
    locale_t before;
    pl_status s = PL_BAD_ARGUMENT;
    pl_err own;

    if (!a->always && (!a->reasoning || strcmp(a->reasoning, usual_name) == 0))
        s = render(user, c, text, err);
    if (s != PL_BAD_ARGUMENT)
        return s;
    before = numeral_begin();
    if (load_all(&how.given, c))
        s = try_all(&how, text, err ? err : &own);
    else if (how.given.failed)
        s = err_no_memory(err, "a conversation");
    else /* the callback reports what is wrong with the conversation */
        s = render(user, c, text, err);
    conversation_fini(&how.given);
    numeral_end(before);
    return s;
}

/* ---- learning the changes that a template needs -------------------------- */

#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define S(text) "{\"role\": \"system\", \"content\": \"" text "\"}"
#define A(text, more)                                                          \
    "{\"role\": \"assistant\", \"content\": \"" text "\"" more "}"
#define THINKS          ", \"reasoning_content\": \"zq-thought\""
#define CALLS_OF(calls) ", \"tool_calls\": [" calls "]"
#define CALL(name, id)                                                         \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": "   \
    "\"" name "\", \"arguments\": {\"zq_key\": \"zq-value\"}}}"
#define ONE CALL("zq_first", "zqCallId1")
#define TWO ONE ", " CALL("zq_second", "zqCallId2")
#define RESULT                                                                 \
    "{\"role\": \"tool\", \"tool_call_id\": \"zqCallId1\", \"name\": "         \
    "\"zq_first\", \"content\": \"zq-result\"}"

/* The list of tools in test conversations. Templates show this list, so it must
 * not contain the names of the called tools, which the test looks for. */
static const char probe_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"zq_tool\", "
    "\"description\": \"d\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"zq_key\": {\"type\": \"string\", \"description\": "
    "\"d\"}}, \"required\": [\"zq_key\"]}}}]";

/* A test conversation, and the texts `shows` that a template must show of it.
 * If it does not show them, the changes `change` are tried in turn. The first
 * change with which the template shows the texts is added to
 * chat_adapt.always. */
struct probe {
    const char *messages;
    bool tools;
    const char *shows[2];
    /* Texts that the template must not show; NULL for none. */
    const char *hides[2];
    int n_change;
    enum change change[2];
};

static const struct probe probes[] = {
    {"[" U("zq-user") "]",
     false,
     {"zq-user", ""},
     {NULL, NULL},
     2,
     {PARTS, FUNCTIONS}},
    {"[" S("zq-system") "," U("zq-user") "]",
     false,
     {"zq-system", "zq-user"},
     {NULL, NULL},
     1,
     {NO_SYSTEM}},
    {"[" S("s") "," S("zq-second") "," U("u") "," A("a", "") "," S(
         "zq-later") "," U("u") "]",
     false,
     {"zq-second", "zq-later"},
     {NULL, NULL},
     1,
     {SYSTEM}},
    /* The template must not print a call's arguments as Python prints a dict,
     * with single quotes, because models do not expect this form. */
    {"[" U("u") "," A("", CALLS_OF(ONE)) "]",
     true,
     {"zq_first", "zq-value"},
     {"'zq_key': 'zq-value'", NULL},
     2,
     {ARGUMENTS, CALLS}},
    {"[" U("u") "," A("", CALLS_OF(ONE)) "," RESULT "]",
     true,
     {"zq-result", ""},
     {NULL, NULL},
     1,
     {RESULTS}},
    {"[" RESULT "," U("u") "]",
     true,
     {"zq-result", ""},
     {NULL, NULL},
     1,
     {ORPHANS}},
    {"[" U("u") "," A("", CALLS_OF(TWO)) "]",
     true,
     {"zq_first", "zq_second"},
     {NULL, NULL},
     1,
     {SPLIT}},
};

/* The texts that a template shows if it prints the list of content parts as it
 * is, instead of reading the reasoning in the list. */
#define RAW                                                                    \
    {                                                                          \
        "'thinking': 'zq-", "\"thinking\": \"zq-"                              \
    }

/* Test conversations with reasoning: in a message with tool calls, and in the
 * last message, where more templates read reasoning. */
static const struct probe thinks[] = {
    {"[" U("u") "," A("", CALLS_OF(ONE) THINKS) "," RESULT "]",
     true,
     {"zq-thought", ""},
     RAW,
     0,
     {0}},
    {"[" U("u") "," A("a", THINKS) "]", false, {"zq-thought", ""}, RAW, 0, {0}},
};

static const struct probe thinks_and_says = {
    "[" U("u") "," A("zq-said", CALLS_OF(ONE) THINKS) "," RESULT "]",
    true,
    {"zq-thought", "zq-said"},
    {NULL, NULL},
    1,
    {THOUGHT}};

/* The learning of the changes that a template needs. */
struct learning {
    struct chat_adapt *a;
    reply_render_fn *render;
    void *user;
    pl_err *err;
};

/* Renders a test conversation with the changes of `set`, bits 1 << enum change.
 * Sets *text to the rendered text, malloc'ed; to NULL if the template rejects
 * the conversation. Fails only with PL_NO_MEMORY. */
static pl_status show(const struct learning *l, const pl_conversation *c,
                      unsigned set, char **text)
{
    struct adapting how = {
        .a = l->a, .c = c, .render = l->render, .user = l->user};
    pl_status s = PL_NO_MEMORY;
    pl_err why;

    *text = NULL;
    if (load_all(&how.given, c))
        s = attempt(&how, set, -1, text, &why);
    conversation_fini(&how.given);
    return s == PL_NO_MEMORY ? err_no_memory(l->err, "a chat template") : PL_OK;
}

/* Sets *yes to true if the template, with the changes of `set`, shows all texts
 * of p->shows and none of p->hides. */
static pl_status ask(const struct learning *l, const struct probe *p,
                     unsigned set, bool *yes)
{
    const pl_conversation c = {
        .size = sizeof c,
        .messages = p->messages,
        .tools = p->tools ? probe_tools : NULL,
        .extra = "{\"enable_thinking\": true, \"thinking\": true}",
        .adapt = true};
    char *text;

    PL_TRY(show(l, &c, set, &text));
    *yes = text && strstr(text, p->shows[0]) && strstr(text, p->shows[1]);
    for (int i = 0; i < 2 && *yes; i++)
        *yes = !p->hides[i] || !strstr(text, p->hides[i]);
    free(text);
    return PL_OK;
}

static pl_status learn(const struct learning *l, const struct probe *p)
{
    struct chat_adapt *a = l->a;
    bool yes;

    PL_TRY(ask(l, p, a->always, &yes));
    for (int i = 0; !yes && i < p->n_change; i++) {
        unsigned set = a->always | 1u << p->change[i];

        PL_TRY(ask(l, p, set, &yes));
        a->always = yes ? set : a->always;
    }
    return PL_OK;
}

static pl_status learn_reasoning(const struct learning *l)
{
    static const char *const names[] = {usual_name, "reasoning", "thinking",
                                        "thought",  "thoughts",  "content"};
    bool yes = false;

    for (size_t k = 0; k < sizeof thinks / sizeof thinks[0]; k++)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            l->a->reasoning = names[i];
            PL_TRY(ask(l, &thinks[k], l->a->always, &yes));
            if (yes)
                return PL_OK;
        }
    l->a->reasoning = NULL;
    return PL_OK;
}

/* Sets *yes to true if the variable enable_thinking changes the end of a
 * rendered prompt, from the content of its user message on, with the changes of
 * `set`. */
static pl_status is_switched(const struct learning *l, unsigned set, bool *yes)
{
    pl_conversation c = {.size = sizeof c,
                         .messages = "[" U("zq-user") "]",
                         .extra = "{\"enable_thinking\": true}",
                         .adapt = true};
    char *on, *off = NULL, *a, *b;
    pl_status s = show(l, &c, set, &on);

    c.extra = "{\"enable_thinking\": false}";
    if (s == PL_OK)
        s = show(l, &c, set, &off);
    a = on ? strstr(on, "zq-user") : on;
    b = off ? strstr(off, "zq-user") : off;
    *yes = on && off && strcmp(a ? a : on, b ? b : off) != 0;
    free(on);
    free(off);
    return s;
}

/* Adds the change LONE if the template accepts a conversation that is a system
 * message, and does not show its text: it shows it with a user message only. */
static pl_status learn_lone(const struct learning *l)
{
    const pl_conversation c = {
        .size = sizeof c, .messages = "[" S("zq-system") "]", .adapt = true};
    char *text;

    PL_TRY(show(l, &c, l->a->always, &text));
    if (text && !strstr(text, "zq-system"))
        l->a->always |= 1u << LONE;
    free(text);
    return PL_OK;
}

static pl_status learn_effort(const struct learning *l)
{
    bool yes;

    PL_TRY(is_switched(l, l->a->always, &yes));
    if (yes)
        return PL_OK;
    PL_TRY(is_switched(l, l->a->always | 1u << EFFORT, &yes));
    l->a->always |= yes ? 1u << EFFORT : 0;
    return PL_OK;
}

pl_status chat_adapt_learn(struct chat_adapt *a, const struct reply_format *f,
                           reply_render_fn *render, void *user, pl_err *err)
{
    const struct learning l = {a, render, user, err};

    *a = (struct chat_adapt){.always = f->id_named ? 1u << NAMED_IDS : 0};
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        PL_TRY(learn(&l, &probes[i]));
    a->one_call = a->always >> SPLIT & 1;
    PL_TRY(learn_lone(&l));
    PL_TRY(learn_effort(&l));
    PL_TRY(learn_reasoning(&l));
    return learn(&l, &thinks_and_says);
}
