/* Reads the fields that turn reasoning on or off, limit its length, and set
 * where it is returned. Clients of several services use several names for these
 * fields; all names work in every protocol that has conversations. */
#include "request_parse.h"

/* Sets the template variables for an effort of reasoning, such as "low". */
static bool set_effort(struct request_reader *r, const char *effort)
{
    if (json_object_get(r->extra, "reasoning_effort") == NULL)
        r->a->effort = effort;
    return (strcmp(effort, "minimal") == 0 || request_set_thinking(r, true)) &&
           request_set_extra(r, "reasoning_effort", json_string(effort)) &&
           request_set_extra(r, "thinking_effort", json_string(effort));
}

static bool is_one_of(const char *s, const char *const *list)
{
    while (*list != NULL && strcmp(*list, s) != 0)
        list++;
    return *list != NULL;
}

/* Handles a word in a request that turns reasoning on or off, or that names an
 * effort of reasoning. */
static bool take_word(struct request_reader *r, const char *word)
{
    static const char *const off[] = {"none", "off", "disabled", "no_think",
                                      NULL};
    static const char *const on[] = {"on", "enabled", NULL};
    static const char *const any[] = {"auto", "adaptive", "default", NULL};

    if (is_one_of(word, any))
        return request_set_extra(r, "thinking_mode", json_string("adaptive"));
    if (is_one_of(word, off) || is_one_of(word, on))
        return request_set_thinking(r, is_one_of(word, on));
    return set_effort(r, word);
}

/* Reads the limit of the number of reasoning tokens from field `name` of `f`;
 * -1 for no limit. The limit 0 also turns reasoning off. */
static bool take_budget(struct request_reader *r, const struct fields *f,
                        const char *name)
{
    if (field(f, name) == NULL)
        return true;
    if (!field_int(f, name, -1, INT64_MAX, &r->a->think_tokens))
        return false;
    r->a->limits_thinking = r->a->think_tokens >= 0;
    return r->a->think_tokens != 0 || request_set_thinking(r, false);
}

/* Reads field `name`, which turns reasoning on or off. Its value is true,
 * false, a word for take_word, or an object that has one of these and a
 * limit. */
static bool take_switch(struct request_reader *r, const char *name)
{
    static const char *const words[] = {"type", "effort"};
    static const char *const budgets[] = {"budget_tokens", "max_tokens"};
    const json_t *v = field(&r->f, name);
    const char *word = NULL;
    struct fields in;
    bool on = true, hidden = false;

    if (v == NULL)
        return true;
    if (json_is_boolean(v))
        return request_set_thinking(r, json_is_true(v));
    if (json_is_string(v))
        return take_word(r, json_string_value(v));
    if (!json_is_object(v))
        return field_wrong(&r->f, name, v,
                           "true, false, \"enabled\", \"disabled\", an effort, "
                           "or an object");
    if (!fields_within(&r->f, name, &in) || !field_bool(&in, "enabled", &on) ||
        !field_bool(&in, "exclude", &hidden))
        return false;
    if (field(&in, "enabled") != NULL && !request_set_thinking(r, on))
        return false;
    if (hidden)
        r->a->reasoning = REASONING_HIDDEN;
    for (int i = 0; i < 2; i++) {
        if (!field_text(&in, words[i], &word) ||
            !take_budget(r, &in, budgets[i]))
            return false;
        if (field(&in, words[i]) != NULL && !take_word(r, word))
            return false;
    }
    return true;
}

/* Chat templates have several names for the variable that turns reasoning on or
 * off. If the request sets one of these in chat_template_kwargs, sets the
 * others, too. */
static bool spread_variables(struct request_reader *r)
{
    static const char *const names[] = {"enable_thinking", "thinking"};

    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(r->extra, names[i]);

        if (json_is_boolean(v))
            return request_set_thinking(r, json_is_true(v));
    }
    return true;
}

static bool read_format(struct request_reader *r)
{
    static const char *const formats[] = {
        "auto",   "deepseek", "none",  "deepseek-legacy",
        "parsed", "raw",      "hidden"};
    static const enum request_reasoning what[] = {
        REASONING_APART, REASONING_APART,  REASONING_WITHIN, REASONING_BOTH,
        REASONING_APART, REASONING_WITHIN, REASONING_HIDDEN};
    bool shown = true, apart = true;
    int i = 0;

    if (!field_choice(&r->f, "reasoning_format", formats, 7, &i) ||
        !field_bool(&r->f, "include_reasoning", &shown) ||
        !field_bool(&r->f, "separate_reasoning", &apart))
        return false;
    r->a->reasoning = field(&r->f, "reasoning_format") != NULL
                          ? what[i]
                          : r->rules->reasoning;
    if (!apart)
        r->a->reasoning = REASONING_WITHIN;
    if (!shown)
        r->a->reasoning = REASONING_HIDDEN;
    return true;
}

bool request_read_thinking(struct request_reader *r)
{
    static const char *const switches[] = {"thinking", "reasoning", "think"};
    static const char *const budgets[] = {
        "thinking_budget_tokens", "reasoning_budget", "thinking_budget",
        "thinking_token_budget", "reasoning_budget_tokens"};
    const char *effort = NULL;
    struct fields output;
    bool on = true;

    r->a->limits_thinking = r->rules->limits_thinking;
    r->a->think_tokens = r->rules->think_tokens;
    if (!spread_variables(r) || !read_format(r) ||
        !field_bool(&r->f, "enable_thinking", &on) ||
        (field(&r->f, "enable_thinking") != NULL &&
         !request_set_thinking(r, on)))
        return false;
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
        if (!take_switch(r, switches[i]))
            return false;
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
        if (!take_budget(r, &r->f, budgets[i]))
            return false;
    if (!field_text(&r->f, "reasoning_effort", &effort) ||
        (effort != NULL && !take_word(r, effort)))
        return false;
    if (r->a->kind == REQUEST_MESSAGES) {
        effort = NULL;
        if (!fields_within(&r->f, "output_config", &output) ||
            !field_text(&output, "effort", &effort))
            return false;
        if (effort != NULL && !take_word(r, effort))
            return false;
    }
    return !r->a->limits_thinking || r->a->think_tokens > 0 ||
           request_set_thinking(r, false);
}
