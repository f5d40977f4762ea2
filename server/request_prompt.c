/* Reads the prompts of a request. A prompt is a string, a list of token ids, or
 * a list of both. A field may contain one prompt or a list of prompts. */
#include "request_parse.h"

#include <stdlib.h>

static bool is_id(const json_t *v)
{
    return json_is_integer(v);
}

/* Makes a piece of a prompt from the consecutive token ids that begin at item i
 * of the list. Sets *n to the number of these ids. */
static bool take_ids(struct request_reader *r, const json_t *list, size_t i,
                     struct request_piece *p, size_t *n)
{
    int64_t n_vocab = r->rules->n_vocab;
    size_t end = i;

    while (end < json_array_size(list) && is_id(json_array_get(list, end)))
        end++;
    *n = end - i;
    p->ids = malloc((*n + 1) * sizeof(*p->ids));
    if (p->ids == NULL)
        return api_error_set_memory(r->f.why);
    for (; i < end; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));

        if (id < 0 || id >= n_vocab)
            return api_error_set(r->f.why, 400, "invalid_value", r->prompt,
                                 "%s: token %lld is not in the vocabulary; use "
                                 "ids from 0 to %lld",
                                 r->prompt, (long long)id,
                                 (long long)n_vocab - 1);
        p->ids[p->n_ids++] = (int32_t)id;
    }
    return true;
}

/* Sets the member "prompt_string" of a prompt {"content": [...]} to its parts
 * {"type": "text", "text": ...} one after the other. Leaves the prompt as it is
 * if it has other parts. */
static bool join_parts(struct request_reader *r, json_t *v)
{
    const json_t *parts = json_object_get(v, "content"), *part;
    struct text all = {0};
    bool is_text = json_array_size(parts) > 0, ok = true;
    size_t i;

    json_array_foreach (parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));

        is_text = is_text && type != NULL && strcmp(type, "text") == 0 &&
                  json_is_string(text);
        if (is_text)
            ok = ok && text_add(&all, json_string_value(text),
                                json_string_length(text));
    }
    if (is_text)
        ok = ok &&
             json_object_set_new(v, "prompt_string",
                                 json_stringn(all.s ? all.s : "", all.n)) == 0;
    text_free(&all);
    return ok || api_error_set_memory(r->f.why);
}

/* Sets *text to the text in an object {"prompt_string": ...} or {"content":
 * [...]}, which llama-server accepts for prompts with images. Rejects the
 * request if `v` is not such an object, or has images or audio. */
static bool read_text_within(struct request_reader *r, const json_t *v,
                             const json_t **text)
{
    const json_t *data = json_object_get(v, "multimodal_data");
    bool is_plain = json_array_size(data) == 0 && !json_is_string(data);

    if (json_object_get(v, "prompt_string") == NULL &&
        !join_parts(r, (json_t *)v)) /* it belongs to the request */
        return false;
    *text = json_object_get(v, "prompt_string");
    return (is_plain && json_is_string(*text)) ||
           field_unsupported(&r->f, r->prompt, "images and audio are");
}

/* Reads one prompt: a string, or a list of strings and token ids. */
static bool take_prompt(struct request_reader *r, const json_t *v,
                        struct request_prompt *p)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;

    p->piece = calloc(n + 1, sizeof(*p->piece));
    if (p->piece == NULL)
        return api_error_set_memory(r->f.why);
    for (size_t i = 0; i < n;) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        size_t used = 1;

        if (json_is_object(item) && !read_text_within(r, item, &item))
            return false;
        if (!json_is_string(item) && !(json_is_array(v) && is_id(item)))
            return field_wrong(&r->f, r->prompt, item,
                               "a string, a list of strings and token ids, or "
                               "a list of such prompts");
        p->n++;
        if (json_is_string(item)) {
            p->piece[p->n - 1].text = json_string_value(item);
            p->piece[p->n - 1].len = json_string_length(item);
        } else if (!take_ids(r, v, i, &p->piece[p->n - 1], &used)) {
            return false;
        }
        i += used;
    }
    return true;
}

/* Returns true if `v` is a list of prompts. A list that contains a token id is
 * a single prompt. */
static bool is_several(const json_t *v)
{
    if (!json_is_array(v))
        return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (is_id(json_array_get(v, i)))
            return false;
    return true;
}

bool request_read_prompt(struct request_reader *r)
{
    struct request *a = r->a;
    const json_t *v = field(&r->f, r->prompt);
    bool several = is_several(v), special = true;
    size_t n = several ? json_array_size(v) : 1;
    int most = r->rules->max_texts > 0 ? r->rules->max_texts : 128;

    if (!field_need(&r->f, r->prompt))
        return false;
    if (n == 0)
        return field_wrong(&r->f, r->prompt, v, "a non-empty list of prompts");
    if (n * (size_t)a->n > (size_t)most)
        return api_error_set(r->f.why, 400, "invalid_value", r->prompt,
                             "%s: %zu prompts with %d choices each exceed the "
                             "limit of %d tasks per request; send fewer",
                             r->prompt, n, a->n, most);
    a->n_prompt = (int)n;
    if (!field_bool(&r->f, "add_special_tokens", &special))
        return false;
    a->prompt = calloc(n, sizeof(*a->prompt));
    if (a->prompt == NULL)
        return api_error_set_memory(r->f.why);
    for (size_t i = 0; i < n; i++)
        a->prompt[i].bare = !special;
    for (size_t i = 0; i < n; i++)
        if (!take_prompt(r, several ? json_array_get(v, i) : v, &a->prompt[i]))
            return false;
    return true;
}
