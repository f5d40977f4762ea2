/* Converts parsed requests to tasks of the loop. See request_tasks.h. */
#include "request_tasks.h"

#include "fail.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status no_memory(pl_err *err)
{
    return server_fail(err, PL_NO_MEMORY,
                       "out of memory for a prompt; try again later");
}

/* Replaces the effort of reasoning in the template variables `extra`, a JSON
 * text, by `effort`, or removes it if `effort` is NULL. Returns the new JSON
 * text, malloc'ed; NULL if out of memory. */
static char *with_effort(const char *extra, const char *effort)
{
    static const char *const names[] = {"reasoning_effort", "thinking_effort"};
    json_t *all =
        extra != NULL ? json_text_load(extra, strlen(extra), 0, NULL) : NULL;
    char *out;

    for (int i = 0; i < 2; i++)
        if (effort != NULL)
            json_object_set_new(all, names[i], json_string(effort));
        else
            json_object_del(all, names[i]);
    out = all != NULL ? json_text_dump(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return out;
}

/* Returns the effort of reasoning to try next, after the template has rejected
 * `effort` and i other efforts; NULL if no other effort is left. */
static const char *next_effort(const char *effort, int i)
{
    static const char *const order[][4] = {
        {"minimal", "low"},        {"low", "medium", "high"},
        {"medium", "high", "low"}, {"high", "max", "medium"},
        {"xhigh", "max", "high"},  {"max", "xhigh", "high"},
    };

    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
        if (i < 2 && strcmp(effort, order[k][0]) == 0)
            return order[k][i + 1];
    return NULL;
}

/* Renders the conversation. If the template rejects the effort of reasoning,
 * tries other efforts, and at last none, because each template knows only some
 * efforts. */
static pl_status render(const struct request *a, const char *messages,
                        const pl_template *t, int64_t now, char **text,
                        size_t *len, pl_err *err)
{
    pl_conversation c = {.size = sizeof(c),
                         .messages = messages,
                         .tools = a->tools,
                         .extra = a->extra,
                         .no_generation_prompt = a->no_generation_prompt,
                         .now = now,
                         .adapt = true};
    pl_status s = pl_template_render(t, &c, text, len, err);
    const char *effort = a->effort;
    pl_err ignored;

    for (int i = 0; s == PL_BAD_ARGUMENT && effort != NULL; i++) {
        char *extra;

        effort = next_effort(a->effort, i);
        extra = with_effort(a->extra, effort);
        if (extra == NULL)
            return no_memory(err);
        c.extra = extra;
        s = pl_template_render(t, &c, text, len, &ignored);
        free(extra);
    }
    return s;
}

/* Copies the conversation `messages` and appends a marker to field `name` of
 * its last message. The marker, which is also written to `end`, is a number
 * that the conversation does not contain; templates do not change digits.
 * Returns the JSON text of the copy, malloc'ed; NULL if out of memory. */
static char *mark_end(const char *messages, const char *name,
                      char end[static 32])
{
    json_t *all = json_text_load(messages, strlen(messages), 0, NULL);
    json_t *last, *text;
    uint64_t n = 7081542936;
    char *marked = NULL;

    if (all == NULL)
        return NULL;
    do
        snprintf(end, 32, "%" PRIu64, n++);
    while (strstr(messages, end));
    last = json_array_get(all, json_array_size(all) - 1);
    text = json_sprintf("%s%s", json_string_value(json_object_get(last, name)),
                        end);
    if (json_object_set_new(last, name, text) == 0)
        marked = json_text_dump(all, 0);
    json_decref(all);
    return marked;
}

/* Renders a conversation up to the end of a->begun, its last text, which the
 * model continues. Returns UNSUPPORTED if the template does not render this
 * text unchanged. */
static pl_status render_begun(const struct request *a, const pl_template *t,
                              int64_t now, char **text, size_t *len,
                              pl_err *err)
{
    const size_t n = strlen(a->begun);
    const char *name = a->begun_reasoning ? "reasoning_content" : "content";
    char end[32], *marked = mark_end(a->messages, name, end), *at;
    pl_status s;

    if (marked == NULL)
        return no_memory(err);
    s = render(a, marked, t, now, text, NULL, err);
    free(marked);
    if (s != PL_OK)
        return s;
    at = strstr(*text, end);
    if (at != NULL && (size_t)(at - *text) >= n &&
        memcmp(at - n, a->begun, n) == 0) {
        *at = '\0';
        if (len != NULL)
            *len = (size_t)(at - *text);
        return PL_OK;
    }
    free(*text);
    *text = NULL;
    return server_fail(
        err, PL_UNSUPPORTED,
        "messages: cannot continue the last assistant message, because the "
        "chat template does not render it unchanged; set add_generation_prompt "
        "to true");
}

pl_status request_render(const struct request *a, const pl_template *t,
                         int64_t now, char **text, size_t *len, pl_err *err)
{
    return a->begun != NULL ? render_begun(a, t, now, text, len, err)
                            : render(a, a->messages, t, now, text, len, err);
}

/* Appends the token ids more[n_more] to the malloc'ed list *ids [*n], and frees
 * `more`. */
static pl_status join(int32_t **ids, int64_t *n, int32_t *more, int64_t n_more,
                      pl_err *err)
{
    int32_t *all =
        realloc(*ids, ((size_t)*n + (size_t)n_more + 1) * sizeof(*all));

    if (all != NULL) {
        if (n_more > 0)
            memcpy(all + *n, more, (size_t)n_more * sizeof(*all));
        *ids = all;
        *n += n_more;
    }
    free(more);
    return all != NULL ? PL_OK : no_memory(err);
}

pl_status request_chat_tokens(const pl_tokenizer *words, const char *text,
                              size_t len, int32_t **ids, int64_t *n,
                              pl_err *err)
{
    int32_t bos = pl_tokenizer_bos(words), *made = NULL;
    int64_t n_made = 0;
    pl_status s;

    *ids = NULL;
    *n = 0;
    s = pl_tokenize(words, text, len, PL_PARSE_SPECIAL, &made, &n_made, err);
    if (s != PL_OK)
        return s;
    if (bos >= 0 && pl_tokenizer_adds_bos(words) &&
        (n_made == 0 || made[0] != bos)) {
        *ids = malloc(sizeof(**ids));
        if (*ids == NULL) {
            free(made);
            return no_memory(err);
        }
        (*ids)[(*n)++] = bos;
    }
    s = join(ids, n, made, n_made, err);
    if (s != PL_OK) {
        free(*ids);
        *ids = NULL;
    }
    return s;
}

/* Sets *ids to the tokens of a piece of a prompt, malloc'ed. `flags` are the
 * flags of pl_tokenize. */
static pl_status piece_tokens(const struct request_piece *p, int flags,
                              const pl_tokenizer *words, int32_t **ids,
                              int64_t *n, pl_err *err)
{
    if (p->text != NULL)
        return pl_tokenize(words, p->text, p->len, flags, ids, n, err);
    *ids = malloc(((size_t)p->n_ids + 1) * sizeof(**ids));
    if (*ids == NULL)
        return no_memory(err);
    if (p->n_ids > 0)
        memcpy(*ids, p->ids, (size_t)p->n_ids * sizeof(**ids));
    *n = p->n_ids;
    return PL_OK;
}

pl_status request_prompt_tokens(const struct request_prompt *p,
                                const pl_tokenizer *words, int32_t **ids,
                                int64_t *n, pl_err *err)
{
    pl_status s = PL_OK;

    *ids = NULL;
    *n = 0;
    for (int i = 0; i < p->n && s == PL_OK; i++) {
        int32_t *more = NULL;
        int64_t n_more = 0;

        s = piece_tokens(&p->piece[i],
                         (p->piece[i].plain ? 0 : PL_PARSE_SPECIAL) |
                             (i == 0 && !p->bare ? PL_ADD_SPECIAL : 0),
                         words, &more, &n_more, err);
        if (s == PL_OK)
            s = join(ids, n, more, n_more, err);
    }
    if (s != PL_OK) {
        free(*ids);
        *ids = NULL;
    }
    return s;
}

pl_status request_ids_text(const pl_tokenizer *words, const int32_t *ids,
                           int64_t n, struct text *out, pl_err *err)
{
    pl_detokenizer *d;
    pl_status s = pl_detokenizer_create(&d, words, true, err);
    const char *more;
    bool ok = true;

    if (s != PL_OK)
        return s;
    for (int64_t i = 0; i < n && ok; i++) {
        more = pl_detokenize(d, ids[i]);
        ok = text_add(out, more, strlen(more));
    }
    more = pl_detokenize_flush(d);
    ok = ok && text_add(out, more, strlen(more));
    pl_detokenizer_free(d);
    return ok ? PL_OK : no_memory(err);
}

pl_status request_prompt_text(const struct request_prompt *p,
                              const pl_tokenizer *words, struct text *out,
                              pl_err *err)
{
    pl_status s = PL_OK;

    for (int i = 0; i < p->n && s == PL_OK; i++) {
        const struct request_piece *piece = &p->piece[i];

        if (piece->text == NULL)
            s = request_ids_text(words, piece->ids, piece->n_ids, out, err);
        else if (!text_add(out, piece->text, piece->len))
            s = no_memory(err);
    }
    return s;
}

void request_fill_params(const struct request *a, int choice,
                         struct task_params *params, pl_sampling *own)
{
    *own = a->sampling;
    own->seed += (uint64_t)(choice % a->n);
    params->sampling = own;
    params->max_tokens = a->max_tokens;
    params->min_tokens = a->min_tokens;
    params->ignore_end = a->ignore_end;
    params->has_drafts = a->has_drafts;
    params->drafts = a->drafts;
    params->no_cache = a->no_cache;
    params->prompt_logits = a->prompt_probs;
    params->slot = a->slot;
}
