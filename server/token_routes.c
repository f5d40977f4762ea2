/* Parses and formats the JSON of requests that convert between texts and
 * tokens. See token_routes.h. */
#include "token_routes.h"

#include "json_field.h"
#include "json_text.h"

#include <stdio.h>
#include <stdlib.h>

bool tokens_read_text(struct tokens_request *a, const char *body, size_t len,
                      struct api_error *why)
{
    struct fields f;
    const json_t *text;

    *a = (struct tokens_request){.parse_special = true};
    if (!fields_read(&f, &a->body, body, len, why) ||
        !field_need(&f, "content") || !field_text(&f, "content", &a->text) ||
        !field_bool(&f, "add_special", &a->add_special) ||
        !field_bool(&f, "parse_special", &a->parse_special) ||
        !field_bool(&f, "with_pieces", &a->pieces)) {
        tokens_fini(a);
        return false;
    }
    text = field(&f, "content");
    a->len = json_string_length(text);
    return true;
}

static bool take_ids(struct tokens_request *a, const struct fields *f,
                     const json_t *list, int64_t n_vocab)
{
    size_t n = json_array_size(list);

    a->ids = malloc((n + 1) * sizeof(*a->ids));
    if (a->ids == NULL)
        return api_error_set_memory(f->why);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id))
            return field_wrong(f, "tokens", id, "a list of token ids");
        if (json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab)
            return api_error_set(
                f->why, 400, "invalid_value", "tokens",
                "tokens: %lld is not in the vocabulary; use ids from 0 to %lld",
                (long long)json_integer_value(id), (long long)n_vocab - 1);
        a->ids[a->n++] = (int32_t)json_integer_value(id);
    }
    return true;
}

bool tokens_read_ids(struct tokens_request *a, const char *body, size_t len,
                     int64_t n_vocab, struct api_error *why)
{
    struct fields f;
    const json_t *list = NULL;

    *a = (struct tokens_request){0};
    if (fields_read(&f, &a->body, body, len, why) && field_need(&f, "tokens") &&
        field_list(&f, "tokens", &list) && take_ids(a, &f, list, n_vocab))
        return true;
    tokens_fini(a);
    return false;
}

void tokens_fini(struct tokens_request *a)
{
    free(a->ids);
    json_decref(a->body);
    *a = (struct tokens_request){0};
}

/* Returns the JSON text of `j` as a malloc'ed response body; NULL if out of
 * memory. Takes ownership of `j`. */
static char *body_of(json_t *j)
{
    char *s = json_text_plain(j, JSON_COMPACT);

    json_decref(j);
    return s;
}

static json_t *piece_json(const struct tokens_piece *p)
{
    json_t *j = json_stringn(p->s, p->n);

    if (j != NULL)
        return j;
    j = json_array();
    for (size_t i = 0; i < p->n; i++)
        json_text_add(&j, json_integer((unsigned char)p->s[i]));
    return j;
}

/* Appends a token to a list in a response body: its id or, if `piece` is not
 * NULL, an object with its id and text. */
static bool add_token(struct text *out, int32_t id,
                      const struct tokens_piece *piece)
{
    char number[16], *s;
    bool ok;

    if (piece == NULL) {
        snprintf(number, sizeof(number), "%d", id);
        return text_add(out, number, strlen(number));
    }
    s = body_of(json_pack("{s:i, s:o}", "id", id, "piece", piece_json(piece)));
    ok = s != NULL && text_add(out, s, strlen(s));
    free(s);
    return ok;
}

/* Writes the JSON text token by token. Parsed JSON values for millions of
 * tokens would take much more memory, in small blocks. */
char *tokens_ids_body(const int32_t *ids, int64_t n,
                      const struct tokens_piece *piece)
{
    static const char head[] = "{\"tokens\":[";
    struct text out = {0};
    bool ok = text_add(&out, head, sizeof(head) - 1);

    for (int64_t i = 0; i < n && ok; i++)
        ok = (i == 0 || text_add(&out, ",", 1)) &&
             add_token(&out, ids[i], piece != NULL ? &piece[i] : NULL);
    if (ok && text_add(&out, "]}", 2))
        return out.s;
    text_free(&out);
    return NULL;
}

char *tokens_text_body(const char *key, const char *s, size_t n)
{
    return body_of(json_pack("{s:o}", key, json_text(s, n)));
}

char *tokens_count_body(int64_t n)
{
    return body_of(json_pack("{s:I}", "input_tokens", (json_int_t)n));
}
