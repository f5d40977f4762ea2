/* Handles requests for embeddings; see embeddings.h. Once the tasks of a
 * request are submitted, its struct embeddings is used by the loop's thread
 * only, like a generation in generation.c. */
#include "embeddings.h"

#include "clock.h"
#include "ollama.h"
#include "request_parse.h"
#include "request_tasks.h"
#include "rerank.h"
#include "service.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TEXTS = 2048,
    /* If pooling is EMBEDDINGS_NONE: the most floats in all vectors of a
     * request together. */
    MOST_NUMBERS = 1 << 24,
};

/* A text of a request and its vector. Each text is one task of the loop. */
struct embedded {
    struct embeddings *of;
    /* For pooling EMBEDDINGS_MEAN: the sum of the text's rows so far,
     * [d_model]; owned. */
    double *sum;
    /* The vector of the text or, with pooling EMBEDDINGS_NONE, the rows of all
     * its tokens; [rows_of()][d_model]; owned. Freed once `json` is set. */
    float *row;
    /* The JSON of the text's vector, a part of the response body; owned. */
    char *json;
    int64_t n; /* number of tokens of the text */
    /* Number of the text's rows that the loop has passed to on_row so far. */
    int64_t seen;
};

struct embeddings {
    /* Borrowed; held (service_hold) until embeddings_free. */
    struct service *service;
    struct http_request *r;
    struct request request; /* the parsed request; only its prompts are used */
    enum embeddings_protocol as;
    struct rerank rank; /* the fields of a request of /rerank */
    /* Time of the request's arrival, in seconds by clock_now. */
    double arrival_s;
    /* Seconds for which the request waited until its model was loaded. */
    double load_s;
    bool base64;
    /* Texts that are too long for the context are truncated instead of rejected
     * (field "truncate" of the request). */
    bool cut;
    int norm;
    /* width: number of floats of a row. n_number: number of floats in all
     * vectors of the request. */
    int64_t width, n_number;
    /* Number of floats at the beginning of each vector that the response
     * contains ("dimensions"). */
    int64_t kept;
    atomic_bool gone;
    bool failed;
    struct api_error why; /* the error of the response; set if `failed` */
    /* Tokens of all texts, and how many of them were cached; for the log. */
    int64_t n_prompt, n_cached;
    int n_left, n;
    struct embedded text[]; /* the n texts of the request */
};

static void embeddings_free(struct embeddings *g)
{
    struct service *v = g->service;

    for (int i = 0; i < g->n; i++) {
        free(g->text[i].sum);
        free(g->text[i].row);
        free(g->text[i].json);
    }
    request_fini(&g->request);
    free(g);
    service_drop(v);
}

/* ---- normalizing and encoding vectors ------------------------------------ */

void embeddings_norm(float *x, size_t n, int p)
{
    double sum = 0, most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    if (p < 0 || most == 0)
        return;
    for (size_t i = 0; i < n && p > 0; i++) {
        double a = fabs((double)x[i]);

        sum += p == 1 ? a : p == 2 ? a * a : pow(a / most, p);
    }
    if (p == 0)
        sum = most / 32760;
    else if (p > 1)
        sum = p == 2 ? sqrt(sum) : most * pow(sum, 1.0 / p);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

bool embeddings_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

void embeddings_base64(const unsigned char *s, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)s[i] << 16 |
                     (i + 1 < n ? (unsigned)s[i + 1] << 8 : 0) |
                     (i + 2 < n ? s[i + 2] : 0u);

        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *out++ = i + 2 < n ? digits[v & 63] : '=';
    }
    *out = '\0';
}

/* ---- making the body of the response ------------------------------------- */

static json_t *floats(const float *x, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++)
        json_text_add(&list, json_real((double)x[i]));
    return list;
}

/* Returns n floats as a JSON string: the base64 encoding of their little-endian
 * bytes. NULL if out of memory. */
static json_t *packed(const float *x, int64_t n)
{
    size_t n_byte = 4 * (size_t)n;
    unsigned char *byte = malloc(n_byte + 1);
    char *text = malloc(n_byte / 3 * 4 + 8);
    json_t *j = NULL;

    for (int64_t i = 0; i < n && byte; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        for (int k = 0; k < 4; k++)
            byte[4 * i + k] = (unsigned char)(bits >> (8 * k));
    }
    if (byte && text) {
        embeddings_base64(byte, n_byte, text);
        j = json_string(text);
    }
    free(byte);
    free(text);
    return j;
}

static int64_t rows_of(const struct embedded *t)
{
    return t->of->service->pooling == EMBEDDINGS_NONE ? t->n : 1;
}

/* Returns the JSON of the vectors of a text: for /embedding a list of vectors,
 * for other routes one vector. NULL if out of memory. */
static json_t *vectors(const struct embedded *t)
{
    const struct embeddings *g = t->of;
    json_t *list;

    if (g->as != EMBEDDINGS_AS_LLAMA)
        return g->base64 ? packed(t->row, g->kept) : floats(t->row, g->kept);
    list = json_array();
    for (int64_t i = 0; i < rows_of(t); i++)
        json_text_add(&list, floats(t->row + i * g->width, g->kept));
    return list;
}

/* Returns false with g->why filled if a value of the text's vector is NaN or
 * infinite, because JSON has no such numbers. */
static bool check_numbers(struct embedded *t)
{
    struct embeddings *g = t->of;

    if (embeddings_finite(t->row, (size_t)(rows_of(t) * g->width)))
        return true;
    return api_error_set(
        &g->why, 500, "not_finite", "",
        "text %d: model %.100s returned values that are not finite (NaN or "
        "infinite); check the model file for damage, or use another "
        "quantization if its values overflow this one",
        (int)(t - g->text) + 1, g->service->name);
}

/* Makes the JSON of a text's vector when its task ends, and frees the vector.
 * This delays the loop's thread only a little. Making the JSON of all texts
 * together at the end of the request could delay it for seconds. */
static bool write_part(struct embedded *t)
{
    struct embeddings *g = t->of;
    bool bare = g->as >= EMBEDDINGS_AS_OLLAMA;
    json_t *j = bare ? vectors(t)
                     : json_pack("{s:i, s:o}", "index", (int)(t - g->text),
                                 "embedding", vectors(t));

    if (j && (g->as != EMBEDDINGS_AS_OPENAI ||
              json_object_set_new(j, "object", json_string("embedding")) == 0))
        t->json = json_text_plain(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(j);
    free(t->row);
    t->row = NULL;
    return t->json != NULL || api_error_set_memory(&g->why);
}

/* Returns the fields of the response that follow the list of vectors, as a
 * malloc'ed JSON object "{...}". The caller appends them to the response
 * without the opening brace. NULL if out of memory. */
static char *rest_of(const struct embeddings *g)
{
    const char *name = g->service->name;
    json_int_t n = 0;
    json_t *j;
    char *s;

    for (int i = 0; i < g->n; i++)
        n += g->text[i].n;
    if (g->as == EMBEDDINGS_AS_OLLAMA)
        j = json_pack(
            "{s:s?, s:I, s:I, s:I}", "model", g->request.model,
            "total_duration",
            (json_int_t)(1e9 * (g->load_s + clock_now() - g->arrival_s)),
            "load_duration", (json_int_t)(1e9 * g->load_s), "prompt_eval_count",
            n);
    else
        j = json_pack("{s:o, s:{s:I, s:I}}", "model",
                      json_text(name, strlen(name)), "usage", "prompt_tokens",
                      n, "total_tokens", n);
    s = j ? json_text_plain(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return s;
}

/* Responds to a request of /rerank. The first value of a text's row is its
 * score. */
static void respond_ranks(struct embeddings *g)
{
    float *score = calloc((size_t)g->n + 1, sizeof *score);
    json_int_t n = 0;

    for (int i = 0; i < g->n && score; i++) {
        score[i] = g->text[i].row[0];
        n += g->text[i].n;
    }
    service_respond_json(g->r, score ? rerank_response(&g->rank, score, g->n, n,
                                                       g->service->name)
                                     : NULL);
    free(score);
}

static void response(struct embeddings *g)
{
    static const char *const heads[] = {
        [EMBEDDINGS_AS_OPENAI] = "{\"object\":\"list\",\"data\":[",
        [EMBEDDINGS_AS_LLAMA] = "[",
        [EMBEDDINGS_AS_OLLAMA] = "{\"embeddings\":[",
        [EMBEDDINGS_AS_OLLAMA_ONE] = "{\"embedding\":",
    };
    static const char *const ends[] = {
        [EMBEDDINGS_AS_OPENAI] = "],",
        [EMBEDDINGS_AS_LLAMA] = "]",
        [EMBEDDINGS_AS_OLLAMA] = "],",
        [EMBEDDINGS_AS_OLLAMA_ONE] = "}",
    };
    const char *head = heads[g->as], *end = ends[g->as];
    char *rest = rest_of(g);
    struct text all = {0};
    bool ok = rest && text_add(&all, head, strlen(head));

    if (g->n == 0 && g->as == EMBEDDINGS_AS_OLLAMA_ONE)
        ok = ok && text_add(&all, "[]", 2);

    for (int i = 0; i < g->n && ok; i++)
        ok = text_add(&all, ",", i > 0) &&
             text_add(&all, g->text[i].json, strlen(g->text[i].json));
    ok = ok && text_add(&all, end, strlen(end)) &&
         (end[1] != ',' || text_add(&all, rest + 1, strlen(rest + 1)));
    free(rest);
    if (!ok)
        text_free(&all);
    service_respond(g->r, all.s);
}

/* ---- callbacks of the loop's tasks --------------------------------------- */

static void on_row(void *user, int64_t at, const float *row)
{
    struct embedded *t = user;
    const int64_t width = t->of->width;
    float *to = t->row;

    switch (t->of->service->pooling) {
    case EMBEDDINGS_MEAN:
        for (int64_t i = 0; i < width; i++)
            t->sum[i] = (at == 0 ? 0 : t->sum[i]) + (double)row[i];
        for (int64_t i = 0; i < width && at + 1 == t->n; i++)
            to[i] = (float)(t->sum[i] / (double)t->n);
        return;
    case EMBEDDINGS_CLS:
        if (at > 0)
            return;
        break;
    case EMBEDDINGS_RANK: /* there is one row */
        break;
    case EMBEDDINGS_NONE:
        to += at * width;
        break;
    default:
        if (at + 1 < t->n)
            return;
    }
    memcpy(to, row, (size_t)width * sizeof *to);
}

static enum client_state on_poll_client(void *user)
{
    return ((struct embedded *)user)->of->gone ? CLIENT_GONE : CLIENT_READY;
}

static void on_end(void *user, const struct task_report *report)
{
    struct embedded *t = user;
    struct embeddings *g = t->of;

    metrics_add(&g->service->metrics, report);
    g->n_prompt += report->n_prompt;
    g->n_cached += report->n_cached;
    service_note_tokens(g->r, g->n_prompt, g->n_cached, -1);
    if (report->why != FINISH_EOG && !g->failed) {
        g->failed = true;
        if (report->why == FINISH_ERROR)
            api_error_set_status(&g->why, report->err.status, &report->err);
        else if (report->why == FINISH_TIMEOUT)
            api_error_set(
                &g->why, 408, "timeout", "",
                "the request timed out after %g s; send a shorter "
                "one, or start the server with a larger --request-timeout",
                g->service->time_s);
        else
            api_error_set(&g->why, 503, "unavailable", "",
                          "the server is stopping");
        atomic_store(&g->gone, true);
    }
    if (g->service->pooling < EMBEDDINGS_NONE && !g->failed)
        embeddings_norm(t->row, (size_t)g->kept, g->norm);
    if (!g->failed && (!check_numbers(t) ||
                       (g->as != EMBEDDINGS_AS_RERANK && !write_part(t)))) {
        g->failed = true;
        atomic_store(&g->gone, true);
    }
    if (--g->n_left > 0)
        return;
    if (g->failed)
        service_reject(g->r, &g->why);
    else if (g->as == EMBEDDINGS_AS_RERANK)
        respond_ranks(g);
    else
        response(g);
    embeddings_free(g);
}

/* ---- reading the request and submitting its tasks ------------------------ */

/* Reads all fields of an embeddings request except the texts. */
static bool read_form(struct embeddings *g, const struct fields *f)
{
    static const char *const formats[] = {"float", "base64"};
    int format = 0;
    /* Ollama's older route /api/embeddings returns vectors without normalizing
     * them */
    int64_t norm = g->as == EMBEDDINGS_AS_OLLAMA_ONE ? -1 : 2;
    bool cut = g->as >= EMBEDDINGS_AS_OLLAMA;

    /* Clients may request only the first values of each vector ("dimensions").
     * The shortened vector is usable if the model was trained for it
     * (Matryoshka Representation Learning). */
    g->kept = g->width;
    if (!field_choice(f, "encoding_format", formats, 2, &format) ||
        !field_int(f, "embd_normalize", -1, 100, &norm) ||
        !field_bool(f, "truncate", &cut) ||
        !field_int(f, "dimensions", 1, g->width, &g->kept))
        return false;
    g->base64 = format == 1 && g->as < EMBEDDINGS_AS_OLLAMA;
    g->cut = cut && g->as >= EMBEDDINGS_AS_OLLAMA;
    g->norm = (int)norm;
    return true;
}

/* Parses a request of /rerank as read_request does. */
static bool read_ranks(struct service *v, struct http_request *r,
                       struct embeddings **out, struct api_error *why)
{
    struct request a = {.n = 1};
    struct rerank rank = {0};
    struct fields f;
    size_t len;
    const char *body = http_body(r, &len);

    if (!fields_read(&f, &a.body, body, len, why) ||
        !field_text(&f, "model", &a.model) || !rerank_read(&f, &rank)) {
        request_fini(&a);
        return false;
    }
    *out = calloc(1, sizeof **out + (size_t)rank.n * sizeof *(*out)->text);
    if (!*out) {
        request_fini(&a);
        return api_error_set_memory(why);
    }
    **out = (struct embeddings){.service = v,
                                .r = r,
                                .request = a,
                                .as = EMBEDDINGS_AS_RERANK,
                                .rank = rank,
                                .arrival_s = clock_now(),
                                .width = pl_model_n_label(v->model),
                                .n = rank.n,
                                .n_left = rank.n};
    service_hold(v);
    return true;
}

/* Returns true if a request of Ollama's API contains no text, so that its
 * response has no vector. */
static bool is_empty(const struct request_reader *in)
{
    const json_t *v = field(&in->f, in->prompt);

    return v == NULL || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

/* Parses a request for embeddings. Sets *out to it, malloc'ed. Returns false
 * with *why filled if the request is rejected; even then *out may be set, and
 * the caller frees it. */
static bool read_request(struct service *v, struct http_request *r,
                         enum embeddings_protocol as, struct embeddings **out,
                         struct api_error *why)
{
    const struct request_rules rules = {
        .words = v->words,
        .n_vocab = pl_tokenizer_n_vocab(v->words),
        .max_texts = MOST_TEXTS,
    };
    struct request a = {.n = 1, .n_prompt = 1};
    const char *text;
    struct request_reader in = {.f = {.why = why}, .a = &a, .rules = &rules};
    size_t len;
    const char *body = http_body(r, &len);
    bool ok = fields_read(&in.f, &a.body, body, len, why) &&
              (request_add_defaults(a.body, v->defaults) ||
               api_error_set_memory(why));

    in.prompt = as == EMBEDDINGS_AS_OLLAMA_ONE ? "prompt" : "input";
    if (as == EMBEDDINGS_AS_LLAMA && ok && !field(&in.f, "input"))
        in.prompt = "content";
    ok =
        ok && field_text(&in.f, "model", &a.model) &&
        (as != EMBEDDINGS_AS_OLLAMA_ONE || field_text(&in.f, in.prompt, &text));
    if (ok && as >= EMBEDDINGS_AS_OLLAMA && is_empty(&in))
        a.n_prompt = 0;
    else
        ok = ok && request_read_prompt(&in);
    if (ok && !(*out = calloc(1, sizeof **out + (size_t)a.n_prompt *
                                                    sizeof *(*out)->text)))
        ok = api_error_set_memory(why);
    if (!ok) {
        request_fini(&a);
        return false;
    }
    **out = (struct embeddings){.service = v,
                                .r = r,
                                .request = a,
                                .as = as,
                                .arrival_s = clock_now(),
                                .load_s = http_age(r),
                                .width = pl_model_d_model(v->model),
                                .n = a.n_prompt,
                                .n_left = a.n_prompt};
    service_hold(v);
    if (as != EMBEDDINGS_AS_LLAMA && v->pooling == EMBEDDINGS_NONE)
        return api_error_set(why, 400, "unsupported_value", "input",
                             "input: one vector per token (--pooling none) is "
                             "returned by /embedding only; use that, or start "
                             "the server with another --pooling");
    return read_form(*out, &in.f);
}

static enum task_rows rows_wanted(const struct service *v)
{
    if (v->pooling == EMBEDDINGS_RANK)
        return pl_model_is_encoder(v->model) ? TASK_FIRST_ROW : TASK_LAST_ROW;
    return v->pooling == EMBEDDINGS_LAST ? TASK_LAST_ROW : TASK_ALL_ROWS;
}

static bool make_text(struct embeddings *g, int i, struct task_params *params,
                      struct api_error *why)
{
    struct embedded *t = &g->text[i];
    const enum embeddings_pooling how = g->service->pooling;
    size_t n_row;
    int64_t most;
    int32_t *ids = NULL;
    pl_err err;
    pl_status s =
        g->as == EMBEDDINGS_AS_RERANK
            ? rerank_tokens(&g->rank, i, g->service->model, &ids, &t->n, &err)
            : request_prompt_tokens(&g->request.prompt[i], g->service->words,
                                    &ids, &t->n, &err);

    if (s != PL_OK)
        return api_error_set_status(why, s, &err);
    most = pl_engine_max_text(g->service->engine) -
           !pl_model_is_encoder(g->service->model);
    if (g->cut && t->n > most)
        t->n = most;
    if (!service_check_length(g->service, t->n, why)) {
        free(ids);
        return false;
    }
    t->of = g;
    n_row = (size_t)rows_of(t);
    g->n_number += rows_of(t) * g->width;
    if (how == EMBEDDINGS_NONE && g->n_number > MOST_NUMBERS) {
        free(ids);
        return api_error_set(
            why, 400, "invalid_value", "input",
            "input: one vector per token needs more than the limit of %d "
            "values per request; send less text per request",
            MOST_NUMBERS);
    }
    t->row = calloc(n_row * (size_t)g->width + 1, sizeof *t->row);
    if (how == EMBEDDINGS_MEAN)
        t->sum = calloc((size_t)g->width, sizeof *t->sum);
    *params = (struct task_params){.prompt = ids,
                                   .n_prompt = t->n,
                                   .rows = rows_wanted(g->service),
                                   .no_cache = how != EMBEDDINGS_LAST &&
                                               how != EMBEDDINGS_RANK,
                                   .slot = -1,
                                   .client = http_client(g->r),
                                   .time_s = g->service->time_s,
                                   .listener = {.row = on_row,
                                                .poll_client = on_poll_client,
                                                .end = on_end,
                                                .user = t}};
    return (t->row && (t->sum || how != EMBEDDINGS_MEAN)) ||
           api_error_set_memory(why);
}

/* Submits a task for each text to the loop. If this function returns true, the
 * loop's thread owns `g`. */
static bool submit_tasks(struct embeddings *g, struct api_error *why)
{
    struct task_params *params = calloc((size_t)g->n + 1, sizeof *params);
    bool ok = params ? true : api_error_set_memory(why);
    int n = g->n;

    for (int i = 0; i < n && ok; i++)
        ok = make_text(g, i, &params[i], why);
    ok = ok && service_submit(g->service, g->r, params, n, &g->gone, why);
    for (int i = 0; i < n && params; i++)
        free((int32_t *)params[i].prompt);
    free(params);
    return ok;
}

void embeddings_start(void *service, struct http_request *r)
{
    struct service *v = service;
    const enum embeddings_protocol as =
        (enum embeddings_protocol)http_route_arg(r);
    struct embeddings *g = NULL;
    struct api_error why;
    bool ok = v->pooling != EMBEDDINGS_OFF ||
              api_error_set(&why, 501, "not_supported", "",
                            as == EMBEDDINGS_AS_RERANK
                                ? "reranking is disabled; start the server "
                                  "with --rerank"
                                : "embeddings are disabled; start the server "
                                  "with --embeddings");

    if (ok && (v->pooling == EMBEDDINGS_RANK) != (as == EMBEDDINGS_AS_RERANK))
        ok = api_error_set(
            &why, 501, "not_supported", "",
            as == EMBEDDINGS_AS_RERANK
                ? "reranking is disabled; start the server with a model that "
                  "has a class head, and --rerank"
                : "the server ranks documents (/rerank); for embeddings start "
                  "it without --rerank and with --pooling last, mean, cls or "
                  "none");
    ok = ok && (as == EMBEDDINGS_AS_RERANK ? read_ranks(v, r, &g, &why)
                                           : read_request(v, r, as, &g, &why));
    if (ok && g->n > 0 && submit_tasks(g, &why))
        return;
    if (ok && g->n == 0)
        response(g);
    else
        service_reject(r, &why);
    if (g)
        embeddings_free(g);
}
