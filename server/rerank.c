/* Reads requests of /rerank and makes their responses; see rerank.h. */
#include "rerank.h"

#include "json_text.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DOCUMENTS = 2048 };

/* Returns the text of document i; NULL if it is neither a string nor an object
 * with the string "text". */
static const json_t *document(const struct rerank *r, int i)
{
    const json_t *v = json_array_get(r->documents, (size_t)i);

    if (json_is_object(v))
        v = json_object_get(v, "text");
    return json_is_string(v) ? v : NULL;
}

bool rerank_read(const struct fields *f, struct rerank *out)
{
    const char *name, *show;

    *out = (struct rerank){.tei = field(f, "texts") != NULL};
    name = out->tei ? "texts" : "documents";
    show = out->tei ? "return_text" : "return_documents";
    if (!field_need(f, "query") || !field_text(f, "query", &out->query) ||
        !field_need(f, name) || !field_list(f, name, &out->documents) ||
        !field_bool(f, show, &out->texts))
        return false;
    if (json_array_size(out->documents) == 0 ||
        json_array_size(out->documents) > MOST_DOCUMENTS)
        return api_error_set(f->why, 400, "invalid_value", name,
                             "%s: %zu documents; send 1 to %d", name,
                             json_array_size(out->documents), MOST_DOCUMENTS);
    out->n = (int)json_array_size(out->documents);
    out->top = out->n;
    for (int i = 0; i < out->n; i++)
        if (!document(out, i))
            return api_error_set(f->why, 400, "invalid_value", name,
                                 "%s[%d]: not a text; send a string, or an "
                                 "object with the string \"text\"",
                                 name, i);
    if (!field_int(f, "top_n", 1, INT32_MAX, &out->top))
        return false;
    if (out->top > out->n)
        out->top = out->n;
    return true;
}

pl_status rerank_tokens(const struct rerank *r, int i, const pl_model *m,
                        int32_t **ids, int64_t *n, pl_err *err)
{
    const json_t *text = document(r, i);

    return pl_tokenize_pair(m, r->query, strlen(r->query),
                            json_string_value(text), json_string_length(text),
                            ids, n, err);
}

struct ranked {
    float score;
    int i;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

/* Returns the JSON of one result; NULL if out of memory. */
static json_t *result(const struct rerank *r, const struct ranked *x)
{
    const json_t *text = document(r, x->i);
    json_t *own;

    if (!r->texts)
        return json_pack("{s:i, s:f}", "index", x->i,
                         r->tei ? "score" : "relevance_score",
                         (double)x->score);
    own = json_text(json_string_value(text), json_string_length(text));
    if (r->tei)
        return json_pack("{s:i, s:f, s:o}", "index", x->i, "score",
                         (double)x->score, "text", own);
    return json_pack("{s:i, s:f, s:{s:o}}", "index", x->i, "relevance_score",
                     (double)x->score, "document", "text", own);
}

json_t *rerank_response(const struct rerank *r, const float *score, int n,
                        json_int_t n_token, const char *model)
{
    struct ranked *x = calloc((size_t)n + 1, sizeof *x);
    json_t *list = json_array();

    if (!x || !list) {
        free(x);
        json_decref(list);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        x[i] = (struct ranked){score[i], i};
    qsort(x, (size_t)n, sizeof *x, by_score);
    for (int64_t i = 0; i < r->top; i++)
        json_text_add(&list, result(r, &x[i]));
    free(x);
    if (r->tei || !list)
        return list;
    return json_pack("{s:o, s:s, s:{s:I, s:I}, s:o}", "model",
                     json_text(model, strlen(model)), "object", "list", "usage",
                     "prompt_tokens", n_token, "total_tokens", n_token,
                     "results", list);
}
