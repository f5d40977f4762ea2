/* Reads content parts that are files with a text: the documents and search
 * results of /v1/messages, the files of OpenAI's protocols. Their title and
 * text become text of the message. Files of other kinds are rejected, because
 * models read text alone. */
#include "request_parse.h"

#include <stdlib.h>

static const char *const file_types[] = {"document", "search_result",
                                         "input_file", "file"};

bool request_is_file(const char *type)
{
    for (size_t i = 0; i < sizeof file_types / sizeof file_types[0]; i++)
        if (strcmp(type, file_types[i]) == 0)
            return true;
    return false;
}

/* Appends s [n] as a line of its own; nothing if it is empty. */
static bool add_line(const struct fields *f, const char *s, size_t n,
                     struct text *out)
{
    if (n == 0)
        return true;
    return ((out->n == 0 || text_add(out, "\n", 1)) && text_add(out, s, n)) ||
           api_error_set_memory(f->why);
}

static bool add_field(const struct fields *f, const char *name,
                      struct text *out)
{
    const char *s = NULL;

    return field_text(f, name, &s) &&
           (s == NULL ||
            add_line(f, s, json_string_length(field(f, name)), out));
}

/* Rejects a file by the field `name`, whose value `value` is its `kind`. */
static bool refuse(const struct fields *f, const char *name, const char *kind,
                   const char *value)
{
    char what[100];

    snprintf(what, sizeof what, "a file whose %s is \"%.40s\" is", kind, value);
    return field_unsupported(f, name, what);
}

/* ---- files as data URLs -------------------------------------------------- */

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+' || c == '-' ? 62
           : c == '/' || c == '_' ? 63
                                  : -1;
}

/* Decodes base64 s [n] into a malloc'ed text of *len bytes. Sets *out to NULL
 * if the text is not base64. Returns false if out of memory. */
static bool decode(const char *s, size_t n, char **out, size_t *len)
{
    char *to = malloc(n / 4 * 3 + 3);
    uint32_t bits = 0;
    int n_bit = 0;

    *out = NULL;
    *len = 0;
    if (to == NULL)
        return false;
    while (n > 0 && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        int digit = digit_of(s[i]);

        if (digit < 0) {
            free(to);
            return true;
        }
        bits = bits << 6 | (uint32_t)digit;
        n_bit += 6;
        if (n_bit >= 8) {
            n_bit -= 8;
            to[(*len)++] = (char)(bits >> n_bit & 0xff);
        }
    }
    *out = to;
    return true;
}

/* Returns true if a media type is that of a text. */
static bool is_text(const char *type, size_t n)
{
    static const char *const texts[] = {"application/json", "application/xml",
                                        "application/yaml"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strlen(texts[i]) == n && memcmp(texts[i], type, n) == 0)
            return true;
    return n > 5 && memcmp(type, "text/", 5) == 0;
}

/* Appends the text of a file of OpenAI's protocols. Its data are a URL:
 * data:text/plain;base64,SGk= */
static bool add_data(const struct fields *f, struct text *out)
{
    const char *s = NULL, *comma, *type;
    char media[41], *text;
    size_t n, len;
    bool ok;

    if (field(f, "file_id") != NULL)
        return field_unsupported(f, "file_id", "a file by id is");
    if (field(f, "file_url") != NULL)
        return field_unsupported(f, "file_url", "a file by address is");
    if (!field_need(f, "file_data") || !field_text(f, "file_data", &s))
        return false;
    comma = strchr(s, ',');
    type = strncmp(s, "data:", 5) == 0 ? s + 5 : NULL;
    if (type == NULL || comma == NULL || comma - s < 7 ||
        memcmp(comma - 7, ";base64", 7) != 0)
        return field_wrong(f, "file_data", field(f, "file_data"),
                           "like \"data:text/plain;base64,SGk=\"");
    n = strcspn(type, ";,");
    snprintf(media, sizeof media, "%.*s", (int)(n < 40 ? n : 40), type);
    if (!is_text(type, n))
        return refuse(f, "file_data", "type", media);
    if (!decode(comma + 1, strlen(comma + 1), &text, &len))
        return api_error_set_memory(f->why);
    if (text == NULL)
        return field_wrong(f, "file_data", field(f, "file_data"),
                           "base64 after the comma");
    ok = add_field(f, "filename", out) && add_line(f, text, len, out);
    free(text);
    return ok;
}

/* ---- documents of /v1/messages ------------------------------------------- */

/* Appends the text of a document from its field `source`. */
static bool add_source(const struct fields *f, struct text *out)
{
    static const char *const texts[] = {"text", NULL};
    struct fields source;
    const char *type = NULL, *media = "text/plain";
    struct text t = {0};
    bool ok;

    if (!field_need(f, "source") || !fields_within(f, "source", &source) ||
        !field_need(&source, "type") || !field_text(&source, "type", &type))
        return false;
    if (strcmp(type, "content") == 0) {
        ok = field_need(&source, "content") &&
             request_join_text(&source, "content", texts, "\n", &t) &&
             add_line(f, t.s, t.n, out);
        text_free(&t);
        return ok;
    }
    if (strcmp(type, "text") != 0)
        return refuse(&source, "type", "source", type);
    if (!field_text(&source, "media_type", &media))
        return false;
    if (!is_text(media, strlen(media)))
        return refuse(&source, "media_type", "type", media);
    return field_need(&source, "data") && add_field(&source, "data", out);
}

bool request_add_file(const struct fields *part, const char *type,
                      struct text *out)
{
    static const char *const texts[] = {"text", NULL};
    struct text t = {0}, own = {0};
    struct fields inner = *part;
    bool ok;

    if (strcmp(type, "document") == 0) {
        ok = add_field(part, "title", &own) &&
             add_field(part, "context", &own) && add_source(part, &own);
    } else if (strcmp(type, "search_result") == 0) {
        ok = add_field(part, "title", &own) &&
             add_field(part, "source", &own) && field_need(part, "content") &&
             request_join_text(part, "content", texts, "\n", &t) &&
             add_line(part, t.s, t.n, &own);
    } else {
        /* a part of a chat has the file in an object */
        ok = strcmp(type, "file") != 0 ||
             (field_need(part, "file") && fields_within(part, "file", &inner));
        ok = ok && add_data(&inner, &own);
    }
    ok = ok && (own.n == 0 || text_add(out, own.s, own.n) ||
                api_error_set_memory(part->why));
    text_free(&t);
    text_free(&own);
    return ok;
}
