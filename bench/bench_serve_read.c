/* Parses the events of a response while they are received. An event is a line,
 * "data: " followed by JSON. The last event is "data: [DONE]". Other lines are
 * skipped. */
#include "bench_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------- */

/* Returns the message of an error response, {"error": {"message": ...}},
 * {"error": "..."} or {"message": ...}; NULL if the response has none of these
 * forms. */
static const char *message_of(const json_t *j)
{
    const json_t *e = json_object_get(j, "error");

    if (json_is_string(e))
        return json_string_value(e);
    if (json_is_object(e))
        return json_string_value(json_object_get(e, "message"));
    return json_string_value(json_object_get(j, "message"));
}

void serve_read_error(const char *body, size_t n, char why[SERVE_WHY])
{
    json_t *j = json_loadb(body, n, 0, NULL);
    const char *s = message_of(j);
    size_t line = 0;

    while (line < n && line < SERVE_WHY && !strchr("\r\n", body[line]))
        /* strchr finds the NUL of the string as well, so the loop also ends at
         * a NUL */
        line++;
    if (s != NULL)
        snprintf(why, SERVE_WHY, "%s", s);
    else
        snprintf(why, SERVE_WHY, "%.*s", (int)line, body);
    json_decref(j);
}

/* ---- events -------------------------------------------------------------- */

static bool says(const json_t *part, const char *key)
{
    const json_t *v = json_object_get(part, key);

    return json_string_length(v) > 0 || json_array_size(v) > 0;
}

/* Returns true if the event contains generated text: content, reasoning or a
 * tool call. */
static bool has_text(const json_t *j)
{
    const json_t *c = json_array_get(json_object_get(j, "choices"), 0);
    const json_t *d = json_object_get(c, "delta");

    return says(c, "text") || says(d, "content") || says(d, "reasoning") ||
           says(d, "reasoning_content") || says(d, "tool_calls");
}

static void take_counts(struct serve_request *r, const json_t *j)
{
    const json_t *usage = json_object_get(j, "usage");
    const json_t *timings = json_object_get(j, "timings"), *v;

    if (json_is_object(usage)) {
        r->n_read = json_integer_value(json_object_get(usage, "prompt_tokens"));
        r->n_written =
            json_integer_value(json_object_get(usage, "completion_tokens"));
        r->n_cached = json_integer_value(json_object_get(
            json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
    }
    v = json_object_get(timings, "prompt_ms");
    if (json_is_number(v))
        r->prompt_s = 1e-3 * json_number_value(v);
}

static bool add_gap(struct serve_load *l, double seconds)
{
    if (l->n_gap == l->max_gap) {
        int64_t max = l->max_gap > 0 ? 2 * l->max_gap : 4096;
        double *more = realloc(l->gap, (size_t)max * sizeof(*more));

        if (more == NULL)
            return false;
        l->gap = more;
        l->max_gap = max;
    }
    l->gap[l->n_gap++] = seconds;
    return true;
}

static bool take_event(struct serve_reader *s, const char *text, size_t n,
                       double now)
{
    struct serve_request *r = s->r;
    json_t *j;
    bool ok = true;

    if (n >= 6 && memcmp(text, "[DONE]", 6) == 0) {
        s->over = true;
        return true;
    }
    j = json_loadb(text, n, 0, NULL);
    if (json_object_get(j, "error") != NULL && s->why[0] == '\0')
        serve_read_error(text, n, s->why);
    if (has_text(j)) {
        if (r->n_event > 0)
            ok = add_gap(s->load, now - r->last);
        else
            r->first = now;
        r->last = now;
        r->n_event++;
    }
    take_counts(r, j);
    json_decref(j);
    return ok;
}

static bool take_line(struct serve_reader *s, double now)
{
    static const char mark[] = "data:";
    const char *at = s->line;
    size_t n = s->n, skip = sizeof(mark) - 1;

    if (n < skip || memcmp(at, mark, skip) != 0)
        return true;
    while (skip < n && at[skip] == ' ')
        skip++;
    return take_event(s, at + skip, n - skip, now);
}

/* Enlarges s->line so that n more bytes and a NUL fit. Returns false if out of
 * memory. */
static bool make_room(struct serve_reader *s, size_t n)
{
    size_t max = s->max > 0 ? s->max : 4096;
    char *more;

    while (max < s->n + n + 1)
        max *= 2;
    if (max == s->max)
        return true;
    more = realloc(s->line, max);
    if (more == NULL)
        return false;
    s->line = more;
    s->max = max;
    return true;
}

bool serve_read(struct serve_reader *s, const char *data, size_t n, double now)
{
    bool ok = true;

    while (n > 0 && ok) {
        const char *end = memchr(data, '\n', n);
        size_t part = end != NULL ? (size_t)(end - data) : n;

        if (!make_room(s, part))
            return false;
        memcpy(s->line + s->n, data, part);
        s->n += part;
        s->line[s->n] = '\0';
        if (end != NULL) {
            ok = take_line(s, now);
            s->n = 0;
            part++;
        }
        data += part;
        n -= part;
    }
    return ok;
}

void serve_reader_fini(struct serve_reader *s)
{
    free(s->line);
    *s = (struct serve_reader){0};
}
