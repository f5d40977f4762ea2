/* The routes of a service and their handlers. See service.h. Those that
 * generate text are in generation.c. */
#include "service.h"

#include "json_text.h"
#include "request_tasks.h"
#include "sampler_names.h"
#include "token_routes.h"
#include "ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- responses ----------------------------------------------------------- */

void service_reject(struct http_request *r, const struct api_error *why)
{
    char *body = strstr(http_path(r), "/messages")
                     ? api_error_body(why, API_ERROR_BLOCKS)
                     : api_error_body(why, API_ERROR_OPENAI);

    http_respond(r, why->status, "application/json", body ? body : "{}",
                 body ? strlen(body) : 2);
    free(body);
}

void service_respond(struct http_request *r, char *body)
{
    struct api_error why;

    if (body) {
        http_respond(r, 200, "application/json", body, strlen(body));
    } else {
        api_error_set_memory(&why);
        service_reject(r, &why);
    }
    free(body);
}

static void respond_json(struct http_request *r, json_t *j)
{
    char *body = j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

    json_decref(j);
    service_respond(r, body);
}

/* ---- users of a service -------------------------------------------------- */

void service_hold(struct service *v)
{
    if (v->owner.use)
        v->owner.use(v->owner.user, 1);
}

void service_drop(struct service *v)
{
    if (v->owner.use)
        v->owner.use(v->owner.user, -1);
}

void service_lost(void *service, const pl_err *err)
{
    struct service *v = service;

    if (v->owner.lost)
        v->owner.lost(v->owner.user, err);
}

/* ---- texts and tokens ---------------------------------------------------- */

bool service_render(const struct service *v, const struct request *a,
                    char **text, size_t *len, struct api_error *why)
{
    pl_status s;
    pl_err err;

    if (!v->form)
        return api_error_set(
            why, 400, "no_template", "messages",
            "the model has no usable chat template (%s); use /v1/completions, "
            "or start the server with --template",
            v->no_form.message);
    s = request_render(a, v->form, 0, text, len, &err);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

/* Sets piece[i] to the text of each of n tokens. The texts are in *all, which
 * must outlive them. Returns false if out of memory. */
static bool name_all(const struct service *v, const int32_t *ids, int64_t n,
                     struct tokens_piece *piece, struct text *all)
{
    pl_detokenizer *d;
    bool ok = pl_detokenizer_create(&d, v->words, true, NULL) == PL_OK;
    size_t at = 0;

    for (int64_t i = 0; i < n && ok; i++) {
        const char *s = pl_detokenize(d, ids[i]);

        ok = text_add(all, s, strlen(s));
        s = pl_detokenize_flush(d);
        ok = ok && text_add(all, s, strlen(s));
        piece[i].n = all->n - at;
        at = all->n;
    }
    at = 0;
    for (int64_t i = 0; i < n && ok; at += piece[i++].n)
        piece[i].s = all->s + at;
    pl_detokenizer_free(d);
    return ok;
}

static void on_tokenize(void *user, struct http_request *r)
{
    const struct service *v = user;
    struct tokens_request a = {0};
    struct tokens_piece *piece = NULL;
    struct text all = {0};
    struct api_error why;
    int32_t *ids = NULL;
    int64_t n = 0;
    size_t len;
    const char *body = http_body(r, &len);
    bool ok = tokens_read_text(&a, body, len, &why);
    pl_err err;
    pl_status s;

    if (ok) {
        int flags = (a.add_special ? PL_ADD_SPECIAL : 0) |
                    (a.parse_special ? PL_PARSE_SPECIAL : 0);

        s = pl_tokenize(v->words, a.text, a.len, flags, &ids, &n, &err);
        ok = s == PL_OK || api_error_set_status(&why, s, &err);
    }
    if (ok && a.pieces) {
        piece = calloc((size_t)n + 1, sizeof *piece);
        ok = (piece && name_all(v, ids, n, piece, &all)) ||
             api_error_set_memory(&why);
    }
    if (ok)
        service_respond(r, tokens_ids_body(ids, n, piece));
    else
        service_reject(r, &why);
    text_free(&all);
    free(piece);
    free(ids);
    tokens_fini(&a);
}

static void on_detokenize(void *user, struct http_request *r)
{
    const struct service *v = user;
    struct tokens_request a = {0};
    struct text all = {0};
    struct api_error why;
    pl_detokenizer *d = NULL;
    size_t len;
    const char *body = http_body(r, &len);
    bool ok =
        tokens_read_ids(&a, body, len, pl_tokenizer_n_vocab(v->words), &why);

    if (ok)
        ok = pl_detokenizer_create(&d, v->words, true, NULL) == PL_OK ||
             api_error_set_memory(&why);
    for (int64_t i = 0; i < a.n && ok; i++) {
        const char *s = pl_detokenize(d, a.ids[i]);

        ok = text_add(&all, s, strlen(s)) || api_error_set_memory(&why);
    }
    if (ok) {
        const char *s = pl_detokenize_flush(d);

        ok = text_add(&all, s, strlen(s)) || api_error_set_memory(&why);
    }
    if (ok)
        service_respond(r, tokens_text_body("content", all.s, all.n));
    else
        service_reject(r, &why);
    pl_detokenizer_free(d);
    text_free(&all);
    tokens_fini(&a);
}

/* Parses a request with a conversation and renders it with the chat template.
 * *text is malloc'ed, [*n]. Returns false with *why filled if it was
 * rejected. */
static bool read_conversation(const struct service *v, struct http_request *r,
                              enum request_kind kind, char **text, size_t *n,
                              struct api_error *why)
{
    const struct request_rules rules = {.n_vocab =
                                            pl_tokenizer_n_vocab(v->words),
                                        .words = v->words,
                                        .sampling = &v->sampling,
                                        .defaults = v->defaults,
                                        .max_tokens = -1,
                                        .limits_thinking = v->limits_thinking,
                                        .think_tokens = v->think_tokens,
                                        .calls_as_text = v->calls_as_text};
    struct request a = {0};
    size_t len;
    const char *body = http_body(r, &len);
    bool ok = request_parse(&a, kind, body, len, &rules, why) &&
              service_render(v, &a, text, n, why);

    request_fini(&a);
    return ok;
}

static void on_apply_template(void *user, struct http_request *r)
{
    struct api_error why;
    char *text = NULL;
    size_t n;

    if (read_conversation(user, r, REQUEST_CHAT, &text, &n, &why))
        service_respond(r, tokens_text_body("prompt", text, n));
    else
        service_reject(r, &why);
    free(text);
}

static bool count(const struct service *v, const char *text, size_t len,
                  int64_t *n, struct api_error *why)
{
    int32_t *ids = NULL;
    pl_err err;
    pl_status s = request_chat_tokens(v->words, text, len, &ids, n, &err);

    free(ids);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

static void on_count_tokens(void *user, struct http_request *r)
{
    struct api_error why;
    char *text = NULL;
    int64_t n_ids;
    size_t n;

    if (read_conversation(user, r, REQUEST_MESSAGES, &text, &n, &why) &&
        count(user, text, n, &n_ids, &why))
        service_respond(r, tokens_count_body(n_ids));
    else
        service_reject(r, &why);
    free(text);
}

/* ---- web UI -------------------------------------------------------------- */

static void on_page(void *user, struct http_request *r)
{
    char policy[1024];

    (void)user;
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src %s; style-src 'unsafe-inline'; "
             "img-src blob: data:; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'",
             server_page_scripts);
    http_set_header(r, "Content-Security-Policy", policy);
    http_set_header(r, "X-Content-Type-Options", "nosniff");
    http_respond(r, 200, "text/html; charset=utf-8", server_page,
                 strlen(server_page));
}

static void add_text(void *user, const char *s, size_t n)
{
    struct text *t = user;

    text_add(t, s, n); /* if out of memory, the picture is visibly truncated */
}

static void on_plan(void *user, struct http_request *r)
{
    const struct service *v = user;
    struct text out = {0};
    struct api_error why;
    pl_err err;
    pl_status s = pl_plan_svg(pl_engine_plan(v->engine), add_text, &out, &err);

    if (s == PL_OK) {
        http_respond(r, 200, "image/svg+xml", out.s, out.n);
    } else {
        api_error_set_status(&why, s, &err);
        service_reject(r, &why);
    }
    text_free(&out);
}

/* ---- status -------------------------------------------------------------- */

static void on_health(void *user, struct http_request *r)
{
    (void)user;
    respond_json(r, json_pack("{s:s}", "status", "ok"));
}

/* Returns the default sampling parameters and token limit; NULL if out of
 * memory. */
static json_t *params_json(const struct service *v)
{
    json_t *all = sampler_json(&v->sampling);

    if (json_object_update_new(all,
                               json_pack("{s:I, s:I}", "max_tokens",
                                         (json_int_t)v->max_tokens, "n_predict",
                                         (json_int_t)v->max_tokens)) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static void on_props(void *user, struct http_request *r)
{
    const struct service *v = user;
    char summary[512];

    pl_plan_summary(pl_engine_plan(v->engine), summary, sizeof summary);
    respond_json(
        r,
        json_pack("{s:{s:I, s:f, s:i, s:f, s:f, s:o}, s:i, s:s, s:s, s:s,"
                  " s:{s:b, s:b}, s:b, s:b}",
                  "default_generation_settings", "n_ctx",
                  (json_int_t)pl_engine_n_ctx(v->engine), "temperature",
                  (double)v->sampling.temperature, "top_k", v->sampling.top_k,
                  "top_p", (double)v->sampling.top_p, "min_p",
                  (double)v->sampling.min_p, "params", params_json(v),
                  "total_slots", loop_slots(v->loop, NULL, 0), "model_alias",
                  v->name, "build_info", pl_version(), "plan", summary,
                  "modalities", "vision", 0, "audio", 0, "has_chat_template",
                  v->form != NULL, "embeddings", v->pooling != EMBEDDINGS_OFF));
}

static json_t *slot_json(int i, const struct loop_slot *s, int64_t n_ctx)
{
    return json_pack(
        "{s:i, s:b, s:I, s:I, s:I, s:I, s:I}", "id", i, "is_processing",
        s->id_task != 0, "id_task", (json_int_t)s->id_task, "n_ctx",
        (json_int_t)n_ctx, "n_prompt_tokens", (json_int_t)s->n_prompt, "n_past",
        (json_int_t)s->n_done, "n_decoded", (json_int_t)s->n_written);
}

static void on_slots(void *user, struct http_request *r)
{
    const struct service *v = user;
    int n = loop_slots(v->loop, NULL, 0);
    struct loop_slot *slot = calloc((size_t)n + 1, sizeof *slot);
    json_t *list = json_array();

    if (slot)
        loop_slots(v->loop, slot, n);
    for (int i = 0; slot && i < n; i++)
        json_array_append_new(
            list, slot_json(i, &slot[i], pl_engine_n_ctx(v->engine)));
    free(slot);
    respond_json(r, list);
}

void service_settle(struct service *v)
{
    tiers_flush(v->tiers);
}

bool service_metrics(struct service *v, struct text *out)
{
    struct metrics_now now = {0};
    int n = loop_devices(v->loop, NULL, 0);
    pl_device_counters *device = calloc((size_t)n + 1, sizeof *device);
    bool ok;

    loop_counts(v->loop, &now.loop);
    if (v->tiers)
        tiers_counts(v->tiers, &now.tiers);
    if (device)
        now.n_device = loop_devices(v->loop, device, n);
    now.device = device;
    if (v->http)
        http_load(v->http, &now.n_connection, &now.n_request);
    ok = metrics_write(&v->metrics, &now, out);
    free(device);
    return ok;
}

static void on_metrics(void *user, struct http_request *r)
{
    struct text out = {0};

    if (service_metrics(user, &out))
        http_respond(r, 200, "text/plain; version=0.0.4", out.s, out.n);
    else
        service_respond(r, NULL);
    text_free(&out);
}

static void on_machine(void *user, struct http_request *r)
{
    machine_respond(user, r);
}

/* ---- text generation and embeddings -------------------------------------- */

#define WRITES(name, kind)                                                     \
    static void on_##name(void *user, struct http_request *r)                  \
    {                                                                          \
        generation_start(user, r, kind);                                       \
    }
WRITES(chat, REQUEST_CHAT)
WRITES(completions, REQUEST_COMPLETIONS)
WRITES(completion, REQUEST_COMPLETION)
WRITES(messages, REQUEST_MESSAGES)
WRITES(responses, REQUEST_RESPONSES)
WRITES(infill, REQUEST_INFILL)
#undef WRITES

static void on_embeddings(void *user, struct http_request *r)
{
    embeddings_start(user, r, false);
}

static void on_embedding(void *user, struct http_request *r)
{
    embeddings_start(user, r, true);
}

static const struct http_route routes[] = {
    {"GET", "/", on_page, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/plan.svg", on_plan, 0},
    {"GET", "/health", on_health, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/v1/health", on_health, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/props", on_props, 0},
    {"GET", "/slots", on_slots, 0},
    {"POST", "/slots/{}", slots_act, 0},
    {"GET", "/metrics", on_metrics, 0},
    {"GET", "/machine", on_machine, 0},
    {"POST", "/v1/chat/completions", on_chat, 0},
    {"POST", "/chat/completions", on_chat, 0},
    {"POST", "/v1/completions", on_completions, 0},
    {"POST", "/completion", on_completion, 0},
    {"POST", "/completions", on_completion, 0},
    {"POST", "/v1/messages", on_messages, 0},
    {"POST", "/v1/messages/count_tokens", on_count_tokens, 0},
    {"POST", "/v1/responses", on_responses, 0},
    {"POST", "/v1/embeddings", on_embeddings, 0},
    {"POST", "/embeddings", on_embedding, 0},
    {"POST", "/embedding", on_embedding, 0},
    {"POST", "/infill", on_infill, 0},
    {"POST", "/tokenize", on_tokenize, 0},
    {"POST", "/detokenize", on_detokenize, 0},
    {"POST", "/apply-template", on_apply_template, 0},
};

const struct http_route *service_routes(int *n)
{
    *n = (int)(sizeof routes / sizeof *routes);
    return routes;
}
