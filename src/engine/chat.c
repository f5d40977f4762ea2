/* Implements pl_template and pl_reply_create: chooses among the chat templates
 * of a file, sets their variables, and learns the markers of replies. */
#include "chat/adapt.h"
#include "chat/reply.h"
#include "chat/template.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/sized.h"
#include "engine/call_grammar.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Special tokens: the key of a GGUF file with the token's id, and the name of
 * the variable in templates. */
static const struct {
    const char *key, *name;
} specials[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token"},
    {"tokenizer.ggml.eos_token_id", "eos_token"},
    {"tokenizer.ggml.unknown_token_id", "unk_token"},
    /* GGUF spells "separator" this way. */
    {"tokenizer.ggml.seperator_token_id", "sep_token"},
    {"tokenizer.ggml.padding_token_id", "pad_token"},
    {"tokenizer.ggml.cls_token_id", "cls_token"},
    {"tokenizer.ggml.mask_token_id", "mask_token"},
};
enum { N_SPECIAL = sizeof specials / sizeof specials[0] };

struct pl_template {
    /* Owned: the template for conversations without tools, and the one for
     * conversations with tools. NULL if the file or the caller has no such
     * template. */
    struct chat_template *usual, *tool_use;
    char *text[2]; /* owned: the texts of `usual` and of `tool_use` */
    /* variables with the texts of special tokens; the texts are owned */
    struct chat_variable special[N_SPECIAL];
    int n_special;
    struct reply_format format;
    struct chat_adapt adapt;
};

/* GGUF keys of the template for conversations without tools, and of the one for
 * conversations with tools. */
static const char *const templates[] = {"tokenizer.chat_template",
                                        "tokenizer.chat_template.tool_use"};

static pl_status read_special(pl_template *t, const struct gguf *g, int i,
                              pl_err *err)
{
    const struct gguf_kv *id = gguf_find(g, specials[i].key);
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    struct chat_variable *v = &t->special[t->n_special];
    struct gguf_str s;
    char *copy;
    int64_t at;

    if (!id || !tokens || !gguf_as_i64(id, 0, &at) || at < 0 ||
        !gguf_as_str(tokens, (uint64_t)at, &s))
        return PL_OK;
    copy = malloc(s.len + 1); /* malloc'ed with its length, because the token's
                                 text may be empty or contain zero bytes */
    if (!copy)
        return err_no_memory(err, "a special token");
    memcpy(copy, s.s, s.len);
    *v = (struct chat_variable){
        .name = specials[i].name, .s = copy, .len = s.len};
    t->n_special++;
    return PL_OK;
}

/* Creates a template from `text` and keeps a copy of the text: the template for
 * conversations with tools if `tools`, else the one for conversations
 * without. */
static pl_status parse(pl_template *t, bool tools, const char *text, size_t len,
                       pl_err *err)
{
    char *kept = malloc(len + 1);

    if (!kept)
        return err_no_memory(err, "a chat template");
    memcpy(kept, text, len);
    kept[len] = '\0';
    t->text[tools] = kept;
    reply_format_scan(&t->format, text, len);
    return chat_template_create(tools ? &t->tool_use : &t->usual, text, len,
                                err);
}

static pl_status read_template(pl_template *t, bool tools, const struct gguf *g,
                               pl_err *err)
{
    struct gguf_str text;
    pl_err why;
    pl_status s;

    PL_TRY(gguf_get_str(g, templates[tools], &text, err));
    if (!text.s)
        return PL_OK;
    s = parse(t, tools, text.s, text.len, &why);
    return s == PL_OK ? s
                      : err_set(err, s, "%s: %s: %s", gguf_path(g),
                                templates[tools], why.message);
}

/* Reads the special tokens from the file. If `own`, the caller gave no template
 * as text, and the chat templates are read from the file, too. */
static pl_status read_file(pl_template *t, const struct gguf *g, bool own,
                           pl_err *err)
{
    for (int i = 0; i < N_SPECIAL; i++)
        PL_TRY(read_special(t, g, i, err));
    if (!own)
        return PL_OK;
    PL_TRY(read_template(t, false, g, err));
    PL_TRY(read_template(t, true, g, err));
    if (!t->usual && !t->tool_use)
        return err_set(
            err, PL_NOT_FOUND,
            "%s has no chat template (tokenizer.chat_template); pass one",
            gguf_path(g));
    return PL_OK;
}

/* Argument of render(): the template and the limits. render() sets `len` to the
 * length of the text in bytes. */
struct rendering {
    const pl_template *t;
    struct chat_limits limits;
    size_t len;
};

static pl_status render(void *rendering, const pl_conversation *given,
                        char **text, pl_err *err);

/* Renders a conversation unchanged. If the template rejects it, renders it
 * again with the changes that pl_conversation's field `adapt` allows. */
static pl_status render_either(void *rendering, const pl_conversation *given,
                               char **text, pl_err *err)
{
    pl_conversation c = *given;
    pl_status s = render(rendering, &c, text, err);

    c.adapt = true;
    return s == PL_BAD_ARGUMENT ? render(rendering, &c, text, err) : s;
}

/* Learns the notation of a template for calls and reasoning, and which changes
 * of conversations it needs. Small limits suffice, because the conversations
 * that are rendered for this are short. */
static pl_status learn(pl_template *t, pl_err *err)
{
    struct rendering r = {.t = t,
                          .limits = {.steps = 200 * 1000,
                                     .depth = 200,
                                     .output_bytes = 64 << 10,
                                     .memory_bytes = 4 << 20}};

    PL_TRY(reply_format_learn(&t->format, render_either, &r, err));
    return chat_adapt_learn(&t->adapt, &t->format, render, &r, err);
}

/* Creates a template from a text, from a GGUF file that also has the special
 * tokens, or from both. `text` or `g` may be NULL. */
static pl_status create(pl_template **out, const char *text, size_t len,
                        const struct gguf *g, pl_err *err)
{
    pl_template *t = calloc(1, sizeof *t);
    pl_status s = PL_OK;

    if (!t)
        return err_no_memory(err, "a chat template");
    if (text)
        s = parse(t, false, text, len, err);
    if (s == PL_OK && g)
        s = read_file(t, g, !text, err);
    if (s == PL_OK)
        s = learn(t, err);
    if (s == PL_OK)
        *out = t;
    else
        pl_template_free(t);
    return s;
}

pl_status pl_template_create(pl_template **out, const char *text, size_t len,
                             const char *path, pl_err *err)
{
    struct gguf *g = NULL;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    if (!text && !path)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_template_create: text and path are both NULL; give "
                       "one");
    if (path)
        PL_TRY(gguf_open(&g, path, err));
    s = create(out, text, len, g, err);
    gguf_close(g);
    return s;
}

pl_status pl_model_template(pl_template **out, const pl_model *m,
                            const char *text, size_t len, pl_err *err)
{
    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(m, err);
    return create(out, text, len, m->file, err);
}

pl_status engine_template_keys(const struct gguf *g, pl_err *err)
{
    for (int i = 0; i < N_SPECIAL; i++)
        (void)gguf_find(g, specials[i].key);
    for (int tools = 0; tools < 2; tools++) {
        struct gguf_str text;

        PL_TRY(gguf_get_str(g, templates[tools], &text, err));
    }
    return PL_OK;
}

void pl_template_free(pl_template *t)
{
    if (!t)
        return;
    chat_template_free(t->usual);
    chat_template_free(t->tool_use);
    free(t->text[0]);
    free(t->text[1]);
    for (int i = 0; i < t->n_special; i++)
        free((char *)t->special[i].s);
    reply_format_fini(&t->format);
    free(t);
}

const char *pl_template_text(const pl_template *t, bool tools)
{
    return t ? t->text[tools] : NULL;
}

static struct chat_variable json(const char *name, const char *s)
{
    return (struct chat_variable){name, s, strlen(s), true};
}

/* Checks that a text begins like a JSON list. The JSON parser reports other
 * errors. */
static pl_status check_list(const char *name, const char *s, pl_err *err)
{
    s += strspn(s, " \t\r\n");
    if (*s == '[')
        return PL_OK;
    return err_set(
        err, PL_BAD_ARGUMENT,
        "%s: '%.20s' is not a JSON list; give [...] with an object for each",
        name, s);
}

enum { N_VARIABLE = N_SPECIAL + 10 };

/* Sets var[] to the variables that llama.cpp's server sets for every template,
 * such as the date. Their texts are stored in `dates`. Returns the number of
 * variables. */
static int usual_variables(struct chat_variable *var, int64_t now,
                           char dates[2][32])
{
    static const char *const forms[] = {"%d %b %Y", "%b %d %Y"};
    time_t at = (time_t)now;
    locale_t before = numeral_begin();
    struct tm tm;

    for (int i = 0; i < 2; i++)
        if (!localtime_r(&at, &tm) ||
            strftime(dates[i], sizeof dates[i], forms[i], &tm) == 0)
            dates[i][0] = '\0';
    numeral_end(before);
    var[0] = (struct chat_variable){.name = "bos_token", .s = ""};
    var[1] = (struct chat_variable){.name = "eos_token", .s = ""};
    var[2] = json("enable_thinking", "true");
    for (int i = 0; i < 2; i++)
        var[3 + i] =
            (struct chat_variable){.name = i ? "datetime" : "date_string",
                                   .s = dates[i],
                                   .len = strlen(dates[i])};
    return 5;
}

/* Returns the limits for rendering a conversation. They grow with the square of
 * its length, because some templates loop over all messages once for each
 * message. */
static struct chat_limits limits_for(const pl_conversation *c)
{
    struct chat_limits limits = chat_usual_limits;
    uint64_t n = c->messages ? strlen(c->messages) : 0;

    n = n < 128 * 1000 ? n : 128 * 1000;
    limits.steps += n * n / 16;
    return limits;
}

/* Renders a conversation unchanged, as a reply_render_fn. `rendering` is a
 * struct rendering. */
static pl_status render(void *rendering, const pl_conversation *c, char **text,
                        pl_err *err)
{
    struct rendering *r = rendering;
    const pl_template *t = r->t;
    struct chat_variable var[N_VARIABLE];
    const struct chat_template *chosen;
    const int64_t now = c->now ? c->now : time(NULL);
    char dates[2][32];
    int n = 0;

    *text = NULL;
    if (!c->messages)
        return err_set(err, PL_BAD_ARGUMENT,
                       "messages is NULL; give a JSON list");
    PL_TRY(check_list("messages", c->messages, err));
    if (c->tools)
        PL_TRY(check_list("tools", c->tools, err));
    chosen = c->tools && t->tool_use ? t->tool_use : t->usual;
    if (!chosen)
        return err_set(err, PL_NOT_FOUND,
                       "the file's only chat template is for tools, "
                       "tokenizer.chat_template.tool_use; give tools");
    if (c->adapt)
        n = usual_variables(var, now, dates);
    memcpy(var + n, t->special, (size_t)t->n_special * sizeof var[0]);
    n += t->n_special;
    var[n++] = json("messages", c->messages);
    if (c->tools || !c->adapt)
        var[n++] = json("tools", c->tools ? c->tools : "null");
    if (!c->adapt)
        var[n++] = json("documents", "null");
    var[n++] = json("add_generation_prompt",
                    c->no_generation_prompt ? "false" : "true");
    if (c->extra)
        var[n++] = json(NULL, c->extra);
    return chat_template_render(chosen, var, n, now, &r->limits, text, &r->len,
                                err);
}

pl_status pl_template_render(const pl_template *t, const pl_conversation *c,
                             char **text, size_t *len, pl_err *err)
{
    pl_conversation own = {.size = sizeof own};
    struct rendering r = {.t = t};

    PL_CLEAR(text);
    PL_CLEAR(len);
    PL_NEED(t, err);
    PL_NEED(c, err);
    PL_NEED(text, err);
    PL_TRY(sized_read(&own, sizeof own, c, "pl_conversation",
                      "call pl_conversation_init", err));
    r.limits = limits_for(&own);
    PL_TRY(own.adapt ? chat_adapt_render(&t->adapt, &own, render, &r, text, err)
                     : render(&r, &own, text, err));
    if (len)
        *len = r.len;
    return PL_OK;
}

pl_status pl_reply_create(pl_reply **out, const pl_template *t,
                          const char *prompt, size_t len, const char *tools,
                          pl_reply_fn *part, void *user, pl_err *err)
{
    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(t, err);
    PL_NEED_TEXT(prompt, len, err);
    return reply_create(out, &t->format, prompt, len, tools, part, user, err);
}

/* ---- grammars that force tool calls -------------------------------------- */

pl_status pl_template_calls(const pl_template *t, const char *tools,
                            const char *only, bool single, const char *content,
                            char **gbnf, bool *reasons, pl_err *err)
{
    struct gbnf_text written;

    PL_CLEAR(gbnf);
    PL_CLEAR(reasons);
    PL_NEED(t, err);
    PL_NEED(tools, err);
    PL_NEED(gbnf, err);
    PL_NEED(reasons, err);
    PL_TRY(call_grammar_write(&written, &t->format, tools, only,
                              single || t->adapt.one_call, content, err));
    *gbnf = written.s;
    *reasons = t->format.channels;
    return PL_OK;
}
