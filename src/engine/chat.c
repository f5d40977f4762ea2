/* Implements pl_template and pl_reply_create: chooses among the chat templates
 * of a file, sets their variables, and learns the markers of replies. */
#include "chat/reply.h"
#include "chat/template.h"

#include "base/err.h"
#include "base/sized.h"
#include "engine/call_grammar.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Special tokens: key in a GGUF file, variable in templates. */
static const struct {
    const char *key, *name;
} specials[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token"},
    {"tokenizer.ggml.eos_token_id", "eos_token"},
    {"tokenizer.ggml.unknown_token_id", "unk_token"},
    {"tokenizer.ggml.seperator_token_id", "sep_token"}, /* GGUF's spelling */
    {"tokenizer.ggml.padding_token_id", "pad_token"},
    {"tokenizer.ggml.cls_token_id", "cls_token"},
    {"tokenizer.ggml.mask_token_id", "mask_token"},
};
enum { N_SPECIAL = sizeof specials / sizeof specials[0] };

struct pl_template {
    struct chat_template *usual, *tool_use;  /* owned; NULL if none */
    struct chat_variable special[N_SPECIAL]; /* texts owned */
    int n_special;
    struct reply_format format;
};

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
    copy = malloc(s.len + 1); /* the text may contain zero bytes or be empty */
    if (!copy)
        return err_no_memory(err, "a special token");
    memcpy(copy, s.s, s.len);
    *v = (struct chat_variable){
        .name = specials[i].name, .s = copy, .len = s.len};
    t->n_special++;
    return PL_OK;
}

static pl_status read_template(pl_template *t, struct chat_template **out,
                               const struct gguf *g, const char *key,
                               pl_err *err)
{
    struct gguf_str text;
    pl_err why;
    pl_status s;

    PL_TRY(gguf_get_str(g, key, &text, err));
    if (!text.s)
        return PL_OK;
    reply_format_scan(&t->format, text.s, text.len);
    s = chat_template_create(out, text.s, text.len, &why);
    return s == PL_OK
               ? s
               : err_set(err, s, "%s: %s: %s", gguf_path(g), key, why.message);
}

/* Reads the special tokens from the file and, if `own`, the chat templates,
 * because the caller gave none as text. */
static pl_status read_file(pl_template *t, const struct gguf *g, bool own,
                           pl_err *err)
{
    for (int i = 0; i < N_SPECIAL; i++)
        PL_TRY(read_special(t, g, i, err));
    if (!own)
        return PL_OK;
    PL_TRY(read_template(t, &t->usual, g, "tokenizer.chat_template", err));
    PL_TRY(read_template(t, &t->tool_use, g, "tokenizer.chat_template.tool_use",
                         err));
    if (!t->usual && !t->tool_use)
        return err_set(
            err, PL_NOT_FOUND,
            "%s has no chat template (tokenizer.chat_template); pass one",
            gguf_path(g));
    return PL_OK;
}

static pl_status render(const pl_template *t, const pl_conversation *given,
                        const struct chat_limits *limits, char **text,
                        size_t *len, pl_err *err);

/* Renders a short conversation by which reply_format_learn finds the markers of
 * a template. Small limits suffice for it. */
static pl_status render_probe(void *user, const pl_conversation *c, char **text,
                              pl_err *err)
{
    static const struct chat_limits limits = {.steps = 200 * 1000,
                                              .depth = 200,
                                              .output_bytes = 64 << 10,
                                              .memory_bytes = 4 << 20};

    return render(user, c, &limits, text, NULL, err);
}

pl_status pl_template_create(pl_template **out, const char *text, size_t len,
                             const char *path, pl_err *err)
{
    pl_template *t;
    struct gguf *g = NULL;
    pl_status s = PL_OK;

    PL_CLEAR(out);
    PL_NEED(out, err);
    if (!text && !path)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_template_create: text and path are both NULL; give "
                       "one");
    t = calloc(1, sizeof *t);
    if (!t)
        return err_no_memory(err, "a chat template");
    if (text) {
        reply_format_scan(&t->format, text, len);
        s = chat_template_create(&t->usual, text, len, err);
    }
    if (s == PL_OK && path)
        s = gguf_open(&g, path, err);
    if (s == PL_OK && path)
        s = read_file(t, g, !text, err);
    gguf_close(g);
    if (s == PL_OK)
        s = reply_format_learn(&t->format, render_probe, t, err);
    if (s == PL_OK)
        *out = t;
    else
        pl_template_free(t);
    return s;
}

void pl_template_free(pl_template *t)
{
    if (!t)
        return;
    chat_template_free(t->usual);
    chat_template_free(t->tool_use);
    for (int i = 0; i < t->n_special; i++)
        free((char *)t->special[i].s);
    reply_format_fini(&t->format);
    free(t);
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

static pl_status render(const pl_template *t, const pl_conversation *given,
                        const struct chat_limits *limits, char **text,
                        size_t *len, pl_err *err)
{
    pl_conversation c = {.size = sizeof c};
    struct chat_variable var[N_SPECIAL + 5];
    const struct chat_template *chosen;
    size_t n_text;
    int n = t->n_special;
    pl_status s;

    *text = NULL;
    PL_TRY(sized_read(&c, sizeof c, given, "pl_conversation", err));
    if (!c.messages)
        return err_set(err, PL_BAD_ARGUMENT,
                       "messages is NULL; give a JSON list");
    PL_TRY(check_list("messages", c.messages, err));
    if (c.tools)
        PL_TRY(check_list("tools", c.tools, err));
    chosen = c.tools && t->tool_use ? t->tool_use : t->usual;
    if (!chosen)
        return err_set(err, PL_NOT_FOUND,
                       "the file's only chat template is for tools, "
                       "tokenizer.chat_template.tool_use; give tools");
    memcpy(var, t->special, (size_t)n * sizeof var[0]);
    var[n++] = json("messages", c.messages);
    var[n++] = json("tools", c.tools ? c.tools : "null");
    var[n++] = json("documents", "null");
    var[n++] = json("add_generation_prompt",
                    c.no_generation_prompt ? "false" : "true");
    if (c.extra)
        var[n++] = json(NULL, c.extra);
    s = chat_template_render(chosen, var, n, c.now ? c.now : time(NULL), limits,
                             text, &n_text, err);
    if (s == PL_OK && len)
        *len = n_text;
    return s;
}

pl_status pl_template_render(const pl_template *t, const pl_conversation *c,
                             char **text, size_t *len, pl_err *err)
{
    PL_CLEAR(text);
    PL_CLEAR(len);
    PL_NEED(t, err);
    PL_NEED(c, err);
    PL_NEED(text, err);
    return render(t, c, &chat_usual_limits, text, len, err);
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

/* ---- grammars of calls --------------------------------------------------- */

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
    PL_TRY(call_grammar_write(&written, &t->format, tools, only, single,
                              content, err));
    *gbnf = written.s;
    *reasons = t->format.channels;
    return PL_OK;
}
