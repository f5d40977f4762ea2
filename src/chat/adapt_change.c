/* The changes that make a chat template accept a conversation; see
 * adapt_change.h. */
#include "chat/adapt_change.h"

#include "base/whole_json.h"
#include "base/wide_json.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- functions for messages and their texts ------------------------------ */

static bool has_role(const json_t *message, const char *role)
{
    const char *s = json_string_value(json_object_get(message, "role"));

    return s && strcmp(s, role) == 0;
}

static const json_t *calls_of(const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");

    return has_role(message, "assistant") && json_array_size(calls) > 0 ? calls
                                                                        : NULL;
}

static const json_t *function_of(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");

    return function ? function : call;
}

static const char *name_of(const json_t *call)
{
    const char *s =
        json_string_value(json_object_get(function_of(call), "name"));

    return s ? s : "";
}

/* Sets object[key] to `value`, and takes ownership of `value`. A NULL `value`
 * means out of memory. */
static void set(struct conversation *w, json_t *object, const char *key,
                json_t *value)
{
    w->changed = true;
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void add(struct conversation *w, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        w->failed = true;
}

/* Returns a message. Takes ownership of its content. NULL if out of memory. */
static json_t *turn(const char *role, json_t *content)
{
    return json_pack("{ssso}", "role", role, "content", content);
}

/* Replaces the list of the conversation's messages. Takes ownership of
 * `list`. */
static void replace(struct conversation *w, json_t *list)
{
    json_decref(w->messages);
    w->messages = list;
    w->failed = w->failed || !list;
}

/* Returns the texts of a list, joined with `between`. Empty texts are left out.
 * NULL if out of memory. A value that is not a string counts as empty. */
static json_t *joined(const json_t *list, const char *between)
{
    size_t n = 0, at = 0, len = strlen(between), i;
    json_t *text, *out;
    char *s;

    json_array_foreach ((json_t *)list, i, text)
        n += json_string_length(text) + len;
    s = malloc(n + 1);
    if (!s)
        return NULL;
    json_array_foreach ((json_t *)list, i, text) {
        if (json_string_length(text) == 0)
            continue;
        if (at > 0) {
            memcpy(s + at, between, len);
            at += len;
        }
        memcpy(s + at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    out = json_stringn_nocheck(s, at);
    free(s);
    return out;
}

/* Sets message[key] to the texts of a list, joined with `between`. Takes
 * ownership of `list`; NULL means out of memory. */
static void set_joined(struct conversation *w, json_t *message, const char *key,
                       json_t *list, const char *between)
{
    set(w, message, key, list ? joined(list, between) : NULL);
    json_decref(list);
}

/* Appends the text in field `key` of a message to `list`, if the message has
 * the field. */
static void collect(struct conversation *w, json_t *list, const json_t *message,
                    const char *key)
{
    json_t *text = json_object_get(message, key);

    if (text)
        add(w, list, json_incref(text));
}

/* ---- changing system messages -------------------------------------------- */

/* Adds to the messages `out` the system texts `list`, after which no user
 * message came. If `keep`, the texts become a system message at the beginning.
 * Else they become a user message: at the end, or at the beginning if the last
 * message is the assistant's. */
static void place_rest(struct conversation *w, json_t *out, const json_t *list,
                       bool keep)
{
    size_t n = json_array_size(out);
    bool last = n > 0 && !has_role(json_array_get(out, n - 1), "assistant");
    json_t *rest = turn(keep ? "system" : "user", joined(list, "\n\n"));

    w->failed |= json_array_insert_new(out, keep || !last ? 0 : n, rest) != 0;
}

/* Joins the system messages at the beginning of the conversation to one. Adds
 * the text of each later system message to the next user message. If not
 * `keep`, adds the text of the system messages at the beginning to the next
 * user message, too. */
static void place_system(struct conversation *w, bool keep)
{
    json_t *out = json_array(), *m, *first = NULL;
    json_t *lead = json_array(), *rest = json_array();
    bool begun = !keep;
    size_t i;

    json_array_foreach (w->messages, i, m) {
        bool system = has_role(m, "system");

        w->changed |= system && (begun || first);
        if (system) {
            collect(w, begun ? rest : lead, m, "content");
        } else if (has_role(m, "user") && json_array_size(rest) > 0) {
            collect(w, rest, m, "content");
            set(w, m, "content", joined(rest, "\n\n"));
            json_array_clear(rest);
        }
        if (!system || (!begun && !first))
            add(w, out, json_incref(m));
        if (system && !begun && !first)
            first = m;
        begun |= !system;
    }
    if (first)
        w->failed |= json_array_extend(lead, rest) != 0;
    else if (json_array_size(rest) > 0)
        place_rest(w, out, rest, keep);
    if (json_array_size(lead) > 1)
        set(w, first, "content", joined(lead, "\n\n"));
    json_decref(lead);
    json_decref(rest);
    replace(w, out);
}

static void one_system(struct conversation *w)
{
    place_system(w, true);
}

static void no_system(struct conversation *w)
{
    place_system(w, false);
}

/* ---- changing the order of turns ----------------------------------------- */

/* Returns the number of system messages at the beginning. */
static size_t count_lead(const struct conversation *w)
{
    size_t n = json_array_size(w->messages), i = 0;

    while (i < n && has_role(json_array_get(w->messages, i), "system"))
        i++;
    return i;
}

/* If the conversation has only system messages, makes the last one a user
 * message. */
static void lone_system(struct conversation *w)
{
    size_t n = json_array_size(w->messages);

    if (n > 0 && count_lead(w) == n)
        set(w, json_array_get(w->messages, n - 1), "role", json_string("user"));
}

/* Inserts an empty user message after the system messages, unless a user
 * message follows them already, or lone_system changes the conversation. */
static void user_first(struct conversation *w)
{
    size_t n = json_array_size(w->messages), i = count_lead(w);

    if (i < n && has_role(json_array_get(w->messages, i), "user"))
        return;
    if (i == n && n > 0) {
        lone_system(w);
        return;
    }
    w->changed = true;
    w->failed |= json_array_insert_new(w->messages, i,
                                       turn("user", json_string(""))) != 0;
}

/* Returns the last message of `list` that counts as a turn of the user or the
 * assistant; NULL if there is none. Results of tools and messages with tool
 * calls do not count, because some templates do not count them. */
static const json_t *last_turn(const json_t *list)
{
    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *m = json_array_get(list, i);

        if (!has_role(m, "tool") && !calls_of(m))
            return m;
    }
    return NULL;
}

/* Adds a message m of the user or the assistant, without tool calls, to the
 * messages `out`. If the last turn in `out` has the same role, first adds an
 * empty message of the other role. */
static void add_turn(struct conversation *w, json_t *out, json_t *m)
{
    bool user = has_role(m, "user");
    const json_t *last = last_turn(out);

    if (last && has_role(last, user ? "user" : "assistant")) {
        w->changed = true;
        add(w, out, turn(user ? "assistant" : "user", json_string("")));
    }
    add(w, out, json_incref(m));
}

/* Appends to message `at`, which has no tool calls, the following messages of
 * the same role, up to and including one with tool calls. Returns the index of
 * the last message that was appended; `at` if there is none. */
static size_t merge(struct conversation *w, size_t at)
{
    json_t *m = json_array_get(w->messages, at), *next;
    const char *role = has_role(m, "user") ? "user" : "assistant";
    json_t *content = json_array(), *thoughts = json_array();
    size_t last = at;

    while (!calls_of(json_array_get(w->messages, last)) &&
           has_role(next = json_array_get(w->messages, last + 1), role)) {
        if (last++ == at) {
            collect(w, content, m, "content");
            collect(w, thoughts, m, "reasoning_content");
        }
        collect(w, content, next, "content");
        collect(w, thoughts, next, "reasoning_content");
        if (calls_of(next))
            set(w, m, "tool_calls", json_incref((json_t *)calls_of(next)));
    }
    if (last > at)
        set(w, m, "content", joined(content, "\n\n"));
    if (json_array_size(thoughts) > 0)
        set(w, m, "reasoning_content", joined(thoughts, "\n\n"));
    json_decref(content);
    json_decref(thoughts);
    return last;
}

static void take_turns(struct conversation *w)
{
    json_t *out = json_array();

    user_first(w);
    for (size_t i = 0; i < json_array_size(w->messages); i++) {
        json_t *m = json_array_get(w->messages, i);
        bool speaks = has_role(m, "user") || has_role(m, "assistant");

        if (speaks && !calls_of(m))
            i = merge(w, i);
        if (speaks && !calls_of(m))
            add_turn(w, out, m);
        else
            add(w, out, json_incref(m));
    }
    replace(w, out);
}

/* ---- changing tool calls and their results ------------------------------- */

/* Writes an id of nine letters and digits to `out`. The same text `id` always
 * gives the same id. */
static void nine_of(const char *id, char out[static 10])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz";
    uint64_t h = 0xcbf29ce484222325u;

    if (strlen(id) == 9 && strspn(id, digits) == 9) {
        memcpy(out, id, 10);
        return;
    }
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * 0x100000001b3u;
    for (int i = 0; i < 9; i++, h /= 62)
        out[i] = digits[h % 62];
    out[9] = '\0';
}

/* Finds the tool call of which each message is the result. Returns an array
 * with an element for each message: the call, or NULL. The call is the last one
 * before the message that has the message's id. If no call has this id, result
 * number n after a message with calls belongs to call number n of that message.
 * The caller frees the array. Returns NULL if out of memory. */
static const json_t **all_calls(struct conversation *w)
{
    size_t n = json_array_size(w->messages), i, k, first = 0;
    const json_t **of = calloc(n + 1, sizeof *of);
    json_t *by_id = json_object(), *m, *call;

    w->failed = w->failed || !of || !by_id;
    json_array_foreach (w->messages, i, m) {
        const json_t *calls = calls_of(m);
        const char *id = json_string_value(json_object_get(m, "tool_call_id"));

        json_array_foreach ((json_t *)calls, k, call) {
            const json_t *own = json_object_get(call, "id");

            if (json_is_string(own) &&
                json_object_set(by_id, json_string_value(own), call) != 0)
                w->failed = true;
        }
        if (!has_role(m, "tool")) {
            first = i + 1;
        } else if (of) {
            of[i] = json_object_get(by_id, id ? id : "");
            if (!of[i] && first > 0)
                of[i] = json_array_get(
                    calls_of(json_array_get(w->messages, first - 1)),
                    i - first);
        }
    }
    json_decref(by_id);
    return of;
}

/* Sets the id of a tool call: functions.NAME:n if `named`, else nine letters
 * and digits. n is the number of calls before it in the conversation. */
static void set_id(struct conversation *w, json_t *call, bool named, int n)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    char start[160], made[10];

    snprintf(start, sizeof start, "functions.%.128s:", name_of(call));
    if (named && id && strncmp(id, start, strlen(start)) == 0)
        return;
    if (named) {
        set(w, call, "id", json_sprintf("%s%d", start, n));
        return;
    }
    snprintf(start, sizeof start, "call%d", n);
    nine_of(id ? id : start, made);
    if (!id || strcmp(id, made) != 0)
        set(w, call, "id", json_string(made));
}

/* Sets the ids of all tool calls, as set_id does, and gives the same ids to the
 * results of these calls. */
static void set_ids(struct conversation *w, bool named)
{
    const json_t **of = all_calls(w);
    json_t *m, *call;
    size_t i, k;
    int n = 0;

    json_array_foreach (w->messages, i, m) {
        const json_t *calls = calls_of(m);

        json_array_foreach ((json_t *)calls, k, call)
            set_id(w, call, named, n++);
    }
    json_array_foreach (w->messages, i, m) {
        const char *had = json_string_value(json_object_get(m, "tool_call_id"));
        json_t *id = of && of[i] ? json_object_get(of[i], "id") : NULL;
        char made[10];

        if (!has_role(m, "tool") || (!id && named))
            continue;
        nine_of(had ? had : "", made);
        id = id ? json_incref(id) : json_string(made);
        if (had && json_is_string(id) &&
            strcmp(had, json_string_value(id)) == 0)
            json_decref(id);
        else
            set(w, m, "tool_call_id", id);
    }
    free(of);
}

static void nine_ids(struct conversation *w)
{
    set_ids(w, false);
}

static void named_ids(struct conversation *w)
{
    set_ids(w, true);
}

static void name_results(struct conversation *w)
{
    const json_t **of = all_calls(w);
    json_t *m;
    size_t i;

    json_array_foreach (w->messages, i, m)
        if (of && of[i] && !json_object_get(m, "name"))
            set(w, m, "name", json_string(name_of(of[i])));
    free(of);
}

/* Turns the results of tool calls into user messages. If `orphans`, only the
 * results whose call is not in the conversation. */
static void results_to_user(struct conversation *w, bool orphans)
{
    const json_t **of = all_calls(w);
    json_t *m;
    size_t i;

    json_array_foreach (w->messages, i, m) {
        if (!of || !has_role(m, "tool") || (orphans && of[i]))
            continue;
        set_joined(w, m, "content",
                   json_pack("[oO*]",
                             json_sprintf("Result of %s:",
                                          of[i] ? name_of(of[i]) : "a tool"),
                             json_object_get(m, "content")),
                   "\n");
        set(w, m, "role", json_string("user"));
        json_object_del(m, "tool_call_id");
        json_object_del(m, "name");
    }
    free(of);
}

static void orphans_to_user(struct conversation *w)
{
    results_to_user(w, true);
}

static void all_to_user(struct conversation *w)
{
    results_to_user(w, false);
}

static bool has_call(const json_t *message, const json_t *call)
{
    json_t *c;
    size_t i;

    json_array_foreach ((json_t *)calls_of(message), i, c)
        if (c == call)
            return true;
    return false;
}

/* Appends to the messages `out` a copy of message `at` that has only its call
 * k, and the results of this call. Only the copy with call 0 has the content
 * and the reasoning of the message. */
static void split_off(struct conversation *w, json_t *out, const json_t **of,
                      size_t at, size_t k)
{
    json_t *m = json_array_get(w->messages, at);
    json_t *call = json_array_get(calls_of(m), k);
    json_t *own =
        k == 0 ? whole_json_copy(m) : turn("assistant", json_string(""));

    if (json_object_set_new(own, "tool_calls", json_pack("[O]", call)) != 0)
        w->failed = true;
    add(w, out, own);
    for (size_t i = at + 1; has_role(json_array_get(w->messages, i), "tool");
         i++)
        if (of[i] == call)
            add(w, out, json_incref(json_array_get(w->messages, i)));
}

static void split_calls(struct conversation *w)
{
    const json_t **of = all_calls(w);
    json_t *out = json_array(), *m;
    size_t n = of ? json_array_size(w->messages) : 0;
    /* Limit of the calls in a message that are split; no model makes more at
     * once. */
    enum { MOST = 256 };

    for (size_t i = 0; i < n; i++) {
        json_t *caller = json_array_get(w->messages, i);
        size_t n_call = json_array_size(calls_of(caller));

        if (n_call < 2 || n_call > MOST) {
            add(w, out, json_incref(caller));
            continue;
        }
        w->changed = true;
        for (size_t k = 0; k < n_call; k++)
            split_off(w, out, of, i, k);
        for (; has_role(m = json_array_get(w->messages, i + 1), "tool"); i++)
            if (!has_call(caller, of[i + 1]))
                add(w, out, json_incref(m));
    }
    free(of);
    replace(w, out);
}

/* In a message that has tool calls and reasoning, appends the content to the
 * reasoning, so that the message has no content. */
static void join_thoughts(struct conversation *w, json_t *m)
{
    json_t *content = json_object_get(m, "content");
    json_t *thought = json_object_get(m, "reasoning_content");

    if (!calls_of(m) || json_string_length(content) == 0 ||
        json_string_length(thought) == 0)
        return;
    set_joined(w, m, "reasoning_content", json_pack("[OO]", thought, content),
               "\n\n");
    set(w, m, "content", json_string(""));
}

char *conversation_dump(const json_t *j)
{
    size_t n = json_dumpb(j, NULL, 0, JSON_ENCODE_ANY);
    char *s = n > 0 ? malloc(n + 1) : NULL;

    if (!s || json_dumpb(j, s, n, JSON_ENCODE_ANY) != n) {
        free(s);
        return NULL;
    }
    s[n] = '\0';
    return wide_unmark(s);
}

static json_t *dumped(const json_t *j)
{
    char *s = conversation_dump(j);
    json_t *out = s ? json_string(s) : NULL;

    free(s);
    return out;
}

static void calls_to_content(struct conversation *w, json_t *m)
{
    const json_t *calls = calls_of(m);
    json_t *texts = json_array(), *call;
    size_t k;

    collect(w, texts, m, "content");
    json_array_foreach ((json_t *)calls, k, call) {
        json_t *both =
            json_pack("{sssO*}", "name", name_of(call), "arguments",
                      json_object_get(function_of(call), "arguments"));

        add(w, texts, dumped(both));
        json_decref(both);
    }
    if (calls)
        set(w, m, "content", joined(texts, "\n\n"));
    json_object_del(m, "tool_calls");
    json_decref(texts);
}

static void arguments_to_text(struct conversation *w, json_t *m)
{
    json_t *call;
    size_t k;

    json_array_foreach ((json_t *)calls_of(m), k, call) {
        json_t *function = (json_t *)function_of(call);
        const json_t *given = json_object_get(function, "arguments");

        if (given && !json_is_string(given))
            set(w, function, "arguments", dumped(given));
    }
}

/* ---- changing content and reasoning -------------------------------------- */

static void content_to_parts(struct conversation *w, json_t *m)
{
    json_t *content = json_object_get(m, "content");

    if (json_is_string(content))
        set(w, m, "content",
            json_pack("[{sssO}]", "type", "text", "text", content));
}

/* Removes the headers of channels, such as <|channel|>final<|message|>, from
 * the content of a message of the assistant. Keeps the text after the last
 * <|message|>, up to the next marker. */
static void drop_channels(struct conversation *w, json_t *m)
{
    static const char message[] = "<|message|>";
    const char *s = json_string_value(json_object_get(m, "content"));
    const char *end, *next;

    if (!has_role(m, "assistant") || !s || !strstr(s, message))
        return;
    while ((next = strstr(s, message)))
        s = next + sizeof message - 1;
    end = strstr(s, "<|");
    set(w, m, "content", json_stringn(s, end ? (size_t)(end - s) : strlen(s)));
}

/* Sets the content of a message of the user or the assistant that has no
 * content and no tool calls to a blank. */
static void fill_empty(struct conversation *w, json_t *m)
{
    const json_t *content = json_object_get(m, "content");

    if ((has_role(m, "user") || has_role(m, "assistant")) && !calls_of(m) &&
        json_string_length(content) == 0 && !json_array_size(content))
        set(w, m, "content", json_string(" "));
}

/* Makes the reasoning `thought` of message m the first part of its content,
 * which becomes a list of parts. */
static void reasoning_to_part(struct conversation *w, json_t *m,
                              json_t *thought)
{
    json_t *content = json_object_get(m, "content");
    json_t *all =
        json_pack("[{sssO}]", "type", "thinking", "thinking", thought);

    if (json_is_array(content))
        w->failed |= json_array_extend(all, content) != 0;
    else if (json_string_length(content) > 0)
        add(w, all, json_pack("{sssO}", "type", "text", "text", content));
    set(w, m, "content", all);
}

/* Renames the field reasoning_content of all messages to `name`. If `name` is
 * "content", makes the reasoning a part of the content instead. */
static void rename_reasoning(struct conversation *w, const char *name)
{
    bool part = strcmp(name, "content") == 0;
    json_t *m;
    size_t i;

    if (strcmp(name, "reasoning_content") == 0)
        return;
    json_array_foreach (w->messages, i, m) {
        json_t *thought = json_object_get(m, "reasoning_content");

        if (!thought)
            continue;
        if (part)
            reasoning_to_part(w, m, thought);
        else
            set(w, m, name, json_incref(thought));
        json_object_del(m, "reasoning_content");
    }
}

/* ---- changing tools and template variables ------------------------------- */

static void set_missing(struct conversation *w, json_t *object, const char *key,
                        json_t *value)
{
    const json_t *had = json_object_get(object, key);

    if (had && !json_is_null(had))
        json_decref(value);
    else
        set(w, object, key, value);
}

static void complete_tool(struct conversation *w, json_t *tool)
{
    json_t *function = (json_t *)function_of(tool), *p;

    set_missing(w, function, "description", json_string(""));
    set_missing(w, function, "parameters", json_object());
    p = json_object_get(function, "parameters");
    set_missing(w, p, "type", json_string("object"));
    set_missing(w, p, "properties", json_object());
}

/* If the "type" of a JSON Schema is a list of types, replaces it by the first
 * type in it that is not "null". */
static void one_type(struct conversation *w, json_t *schema)
{
    json_t *types = json_object_get(schema, "type"), *type;
    size_t i;

    json_array_foreach (types, i, type) {
        const char *s = json_string_value(type);

        if (s && strcmp(s, "null") != 0) {
            set(w, schema, "type", json_incref(type));
            return;
        }
    }
}

/* Gives each property in a JSON Schema a single type, and a description if it
 * has none. */
static void complete_schema(struct conversation *w, json_t *schema, int depth)
{
    json_t *all = json_object_get(schema, "properties"), *p;
    json_t *items = json_object_get(schema, "items");
    const char *key;

    if (depth == 0)
        return;
    json_object_foreach (all, key, p) {
        /* Replaces the schema `true`, which allows any value, by an object,
         * which can get a type. */
        if (!json_is_object(p)) {
            set(w, all, key, json_object());
            p = json_object_get(all, key);
        }
        one_type(w, p);
        set_missing(w, p, "type", json_string("string"));
        set_missing(w, p, "description", json_string(""));
        complete_schema(w, p, depth - 1);
    }
    if (json_is_object(items)) {
        one_type(w, items);
        set_missing(w, items, "type", json_string("string"));
        complete_schema(w, items, depth - 1);
    }
}

static void complete_parameters(struct conversation *w, json_t *tool)
{
    enum { DEEPEST = 32 };

    complete_schema(w, json_object_get(function_of(tool), "parameters"),
                    DEEPEST);
}

static void set_effort(struct conversation *w)
{
    static const char name[] = "reasoning_effort";
    const char *had = json_string_value(json_object_get(w->extra, name));
    const json_t *on = json_object_get(w->extra, "enable_thinking");

    if (had && strcmp(had, "minimal") == 0)
        set(w, w->extra, name, json_string("low"));
    else if (had ? strcmp(had, "low") != 0 && strcmp(had, "high") != 0 &&
                       strcmp(had, "no_think") != 0
                 : json_is_true(on))
        set(w, w->extra, name, json_string("high"));
    else if (!had && json_is_false(on))
        set(w, w->extra, name, json_string("no_think"));
}

static void null_tools(struct conversation *w)
{
    if (!w->tools && !json_object_get(w->extra, "tools"))
        set(w, w->extra, "tools", json_null());
}

static void text_of_tools(struct conversation *w)
{
    static const char name[] = "functions";
    char *text;

    if (json_object_get(w->extra, name))
        return;
    text = conversation_dump(w->tools);
    w->failed |= w->tools && !text;
    if (!w->failed)
        set(w, w->extra, name, json_string(text ? text : ""));
    free(text);
}

/* ---- the table of all changes -------------------------------------------- */

/* The functions that make the changes, in the order in which they are called:
 * for the whole conversation, for each message, or for each tool. */
static const struct {
    enum change is;
    void (*whole)(struct conversation *w);
    void (*message)(struct conversation *w, json_t *message);
    void (*tool)(struct conversation *w, json_t *tool);
} changes[] = {
    {TOOLS, .tool = complete_tool},
    {SCHEMAS, .tool = complete_parameters},
    {EFFORT, .whole = set_effort},
    {NULL_TOOLS, .whole = null_tools},
    {NAMES, .whole = name_results},
    {SPLIT, .whole = split_calls},
    {ORPHANS, .whole = orphans_to_user},
    {IDS, .whole = nine_ids},
    {NAMED_IDS, .whole = named_ids},
    {CHANNELS, .message = drop_channels},
    {THOUGHT, .message = join_thoughts},
    {RESULTS, .whole = all_to_user},
    {CALLS, .message = calls_to_content},
    {SYSTEM, .whole = one_system},
    {NO_SYSTEM, .whole = no_system},
    {USER, .whole = user_first},
    {LONE, .whole = lone_system},
    {TURNS, .whole = take_turns},
    {FILL, .message = fill_empty},
    {ARGUMENTS, .message = arguments_to_text},
    {PARTS, .message = content_to_parts},
    {FUNCTIONS, .whole = text_of_tools},
};
static_assert(sizeof changes / sizeof changes[0] == N_CHANGE,
              "each change has a row");

unsigned conversation_change(struct conversation *w, unsigned set,
                             const char *reasoning)
{
    unsigned made = 0;
    json_t *item;
    size_t k;

    for (int i = 0; i < N_CHANGE && !w->failed; i++) {
        if (!(set >> changes[i].is & 1))
            continue;
        w->changed = false;
        if (changes[i].whole)
            changes[i].whole(w);
        json_array_foreach (changes[i].message ? w->messages : NULL, k, item)
            changes[i].message(w, item);
        json_array_foreach (changes[i].tool ? w->tools : NULL, k, item)
            changes[i].tool(w, item);
        made |= w->changed ? 1u << changes[i].is : 0;
    }
    if (reasoning && !w->failed)
        rename_reasoning(w, reasoning);
    return made;
}

void conversation_copy(struct conversation *to, const struct conversation *of)
{
    *to = (struct conversation){.messages = json_deep_copy(of->messages),
                                .tools = json_deep_copy(of->tools),
                                .extra = json_deep_copy(of->extra)};
    to->failed = !to->messages || !to->extra || (of->tools && !to->tools);
}

void conversation_fini(struct conversation *w)
{
    json_decref(w->messages);
    json_decref(w->tools);
    json_decref(w->extra);
}
