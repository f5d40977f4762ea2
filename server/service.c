/* The routes of a service and their handlers. See service.h. The handlers that
 * generate text are in generation.c. */
#include "service.h"

#include "json_text.h"
#include "request_tasks.h"
#include "response.h"
#include "token_routes.h"
#include "ui.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending responses --------------------------------------------------- */

void service_note_tokens(struct http_request *r, int64_t n_prompt,
                         int64_t n_cached, int64_t n_written)
{
    char text[96];
    int n = snprintf(text, sizeof text, "prompt=%" PRId64 " cached=%" PRId64,
                     n_prompt, n_cached);

    if (n_written >= 0)
        snprintf(text + n, sizeof text - (size_t)n, " generated=%" PRId64,
                 n_written);
    http_set_note(r, text);
}

void service_reject(struct http_request *r, const struct api_error *why)
{
    char *body = api_error_body(why, api_error_shape_of_path(http_path(r)));

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

void service_respond_json(struct http_request *r, json_t *j)
{
    char *body = j ? json_text_plain(j, JSON_COMPACT) : NULL;

    json_decref(j);
    service_respond(r, body);
}

/* ---- adding tasks to the loop -------------------------------------------- */

static void set_gone(void *gone)
{
    atomic_store((atomic_bool *)gone, true);
}

bool service_submit(struct service *v, struct http_request *r,
                    const struct task_params *params, int n, atomic_bool *gone,
                    struct api_error *why)
{
    double retry_s = 0;
    char after[32];
    pl_status s;
    pl_err err;

    http_on_gone(r, set_gone, gone);
    s = loop_add(v->loop, params, n, &retry_s, &err);
    if (s == PL_OK)
        return true;
    http_on_gone(r, NULL, NULL);
    api_error_set_status(why, s, &err);
    if (s == PL_FULL) {
        why->status = 429;
        snprintf(after, sizeof after, "%.0f", ceil(retry_s));
        http_set_header(r, "Retry-After", after);
    }
    return false;
}

/* ---- counting the users of a service ------------------------------------- */

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

/* ---- routes that convert texts and tokens -------------------------------- */

bool service_check_length(const struct service *v, int64_t n,
                          struct api_error *why)
{
    int64_t n_ctx = pl_engine_n_ctx(v->engine);

    if (pl_model_is_encoder(v->model)) /* the loop checks the length */
        return true;
    return n < n_ctx || api_error_set_overflow(why, n, n_ctx);
}

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
    if (s == PL_FULL) /* A limit of the template is exceeded.
                         api_error_set_status would report PL_FULL as if the
                         server were overloaded. */
        s = PL_BAD_ARGUMENT;
    return s == PL_OK || api_error_set_status(why, s, &err);
}

/* Sets piece[i] to the bytes of token ids[i] in the vocabulary, for n tokens.
 * Returns the memory that holds the bytes, which the caller frees; NULL if out
 * of memory. */
static char *name_all(const struct service *v, const int32_t *ids, int64_t n,
                      struct tokens_piece *piece)
{
    size_t all = 0;
    char *names, *at;

    for (int64_t i = 0; i < n; i++)
        all += piece[i].n = pl_token_bytes(v->words, ids[i], NULL, 0);
    at = names = malloc(all + 1);
    for (int64_t i = 0; i < n && names; at += piece[i++].n) {
        pl_token_bytes(v->words, ids[i], at, piece[i].n);
        piece[i].s = at;
    }
    return names;
}

static void on_tokenize(void *user, struct http_request *r)
{
    const struct service *v = user;
    struct tokens_request a = {0};
    struct tokens_piece *piece = NULL;
    struct api_error why;
    char *names = NULL;
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
        ok = (piece && (names = name_all(v, ids, n, piece))) ||
             api_error_set_memory(&why);
    }
    if (ok)
        service_respond(r, tokens_ids_body(ids, n, piece));
    else
        service_reject(r, &why);
    free(names);
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
    size_t len;
    const char *body = http_body(r, &len);
    pl_err err;
    bool ok =
        tokens_read_ids(&a, body, len, pl_tokenizer_n_vocab(v->words), &why);

    if (ok)
        ok = request_ids_text(v->words, a.ids, a.n, &all, &err) == PL_OK ||
             api_error_set_memory(&why);
    if (ok)
        service_respond(r, tokens_text_body("content", all.s, all.n));
    else
        service_reject(r, &why);
    text_free(&all);
    tokens_fini(&a);
}

struct request_rules service_rules(const struct service *v)
{
    return (struct request_rules){.sampling = &v->sampling,
                                  .drafts = v->drafter ? &v->drafts : NULL,
                                  .no_source = v->no_source,
                                  .defaults = v->defaults,
                                  .words = v->words,
                                  .n_vocab = pl_tokenizer_n_vocab(v->words),
                                  .max_tokens = v->max_tokens,
                                  .reasoning = v->reasoning,
                                  .limits_thinking = v->limits_thinking,
                                  .think_tokens = v->think_tokens,
                                  .can = REQUEST_ALL,
                                  .recall = response_store_get,
                                  .recall_item = response_store_find,
                                  .recall_user = (void *)&v->stored,
                                  .log = v->log,
                                  .log_user = v->log_user};
}

/* Parses a request that has a conversation, and renders the conversation with
 * the chat template to *text, malloc'ed, [*n]. Returns false with *why filled
 * if the request was rejected. */
static bool read_conversation(const struct service *v, struct http_request *r,
                              enum request_kind kind, char **text, size_t *n,
                              struct api_error *why)
{
    const struct request_rules rules = service_rules(v);
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

static void on_count(void *user, struct http_request *r)
{
    const struct service *v = user;
    const enum request_kind kind = (enum request_kind)http_route_arg(r);
    struct api_error why;
    char *text = NULL;
    int64_t n_ids;
    size_t n;

    if (read_conversation(v, r, kind, &text, &n, &why) &&
        count(v, text, n, &n_ids, &why))
        service_respond(r, tokens_count_body(n_ids));
    else
        service_reject(r, &why);
    free(text);
}

/* ---- the web UI ---------------------------------------------------------- */

/* Returns true if the client that requests the root path wants plain text or
 * JSON rather than the web UI. Programs that test if an Ollama server runs send
 * such requests. */
static bool is_probe(const struct http_request *r)
{
    const char *accept = http_header(r, "Accept");

    return accept && !strstr(accept, "text/html") &&
           (strstr(accept, "text/plain") || strstr(accept, "application/json"));
}

static void on_page(void *user, struct http_request *r)
{
    static const char running[] = "Ollama is running";
    char policy[1024];

    (void)user;
    http_set_header(r, "Vary", "Accept");
    if (is_probe(r)) {
        http_respond(r, 200, "text/plain; charset=utf-8", running,
                     sizeof running - 1);
        return;
    }
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

    /* Errors are ignored: if memory is short, the picture is visibly
     * truncated. */
    text_add(t, s, n);
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

/* ---- routes about the state of the server -------------------------------- */

static void on_health(void *user, struct http_request *r)
{
    (void)user;
    service_respond_json(r, json_pack("{s:s}", "status", "ok"));
}

/* Returns the object "default_generation_settings" of /props; NULL if out of
 * memory. */
static json_t *defaults_json(const struct service *v)
{
    const struct request a = {.kind = REQUEST_COMPLETION,
                              .sampling = v->sampling,
                              .drafts = v->drafts,
                              .max_tokens = v->max_tokens,
                              .words = v->words};
    const pl_sampling *s = &v->sampling;

    return json_pack("{s:I, s:f, s:i, s:f, s:f, s:o}", "n_ctx",
                     (json_int_t)pl_engine_n_ctx(v->engine), "temperature",
                     (double)s->temperature, "top_k", s->top_k, "top_p",
                     (double)s->top_p, "min_p", (double)s->min_p, "params",
                     response_settings(&a));
}

/* Returns the text of a special token as a JSON string; "" if `id` is -1. NULL
 * if out of memory. */
static json_t *special_json(const struct service *v, int32_t id)
{
    struct text t = {0};
    json_t *j = NULL;
    pl_err err;

    if (request_ids_text(v->words, &id, 1, &t, &err) == PL_OK)
        j = json_text(t.s, t.n);
    text_free(&t);
    return j;
}

json_t *service_props(const struct service *v, bool sleeps)
{
    const char *usual = pl_template_text(v->form, false);
    const char *tools = pl_template_text(v->form, true);
    char summary[512];
    json_t *j;

    pl_plan_summary(pl_engine_plan(v->engine), summary, sizeof summary);
    j = json_pack(
        "{s:o, s:i, s:s, s:o, s:o, s:{}, s:o, s:o, s:s, s:s,"
        " s:{s:b, s:b, s:b}, s:b, s:b, s:b, s:b, s:b, s:b}",
        "default_generation_settings", defaults_json(v), "total_slots",
        loop_slots(v->loop, NULL, 0), "model_alias", v->name, "model_path",
        json_text(v->path, strlen(v->path)), "chat_template",
        usual ? json_text(usual, strlen(usual)) : json_string(""),
        "chat_template_caps", "bos_token",
        special_json(v, pl_tokenizer_bos(v->words)), "eos_token",
        special_json(v, pl_tokenizer_eos(v->words)), "build_info", pl_version(),
        "plan", summary, "modalities", "vision", 0, "video", 0, "audio", 0,
        "endpoint_slots", 1, "endpoint_props", 1, "endpoint_metrics", 1,
        "has_chat_template", v->form != NULL, "embeddings",
        v->pooling != EMBEDDINGS_OFF, "is_sleeping", (int)sleeps);
    if (tools)
        json_text_put(&j, "chat_template_tool_use",
                      json_text(tools, strlen(tools)));
    return j;
}

static void on_props(void *user, struct http_request *r)
{
    service_respond_json(r, service_props(user, false));
}

/* Handles POST /props: rejects it, because clients cannot change any property
 * of the model. */
static void on_set_props(void *user, struct http_request *r)
{
    (void)user;
    service_respond_json(r, json_pack("{s:b}", "success", 1));
}

static json_t *slot_json(const struct service *v, int i,
                         const struct loop_slot *s, int64_t n_ctx)
{
    bool busy = s->id_task != 0;

    return json_pack(
        "{s:i, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
        " s:[{s:b, s:I, s:I}]}",
        "id", i, "is_processing", (int)busy, "speculative", v->drafter != NULL,
        "id_task", (json_int_t)s->id_task, "n_ctx", (json_int_t)n_ctx,
        "n_prompt_tokens", (json_int_t)s->n_prompt, "n_prompt_tokens_processed",
        (json_int_t)s->n_computed, "n_prompt_tokens_cache",
        (json_int_t)s->n_cached, "n_past", (json_int_t)s->n_done, "n_decoded",
        (json_int_t)s->n_written, "next_token", "has_next_token", (int)busy,
        "n_remain", (json_int_t)(busy ? s->n_left : -1), "n_decoded",
        (json_int_t)s->n_written);
}

static void on_slots(void *user, struct http_request *r)
{
    const struct service *v = user;
    int n;
    struct loop_slot *slot = loop_all_slots(v->loop, &n);
    const char *must = http_query(r, "fail_on_no_slot");
    json_t *list = slot ? json_array() : NULL;
    struct api_error why;
    bool idle = !must || !*must || !slot;

    for (int i = 0; i < n; i++) {
        idle |= slot[i].id_task == 0;
        json_text_add(&list,
                      slot_json(v, i, &slot[i], pl_engine_n_ctx(v->engine)));
    }
    free(slot);
    if (idle) {
        service_respond_json(r, list);
        return;
    }
    json_decref(list);
    api_error_set(&why, 503, "unavailable", NULL, "no slot is free");
    service_reject(r, &why);
}

void service_settle(struct service *v)
{
    tiers_flush(v->tiers);
}

bool service_metrics(struct service *v, struct text *out)
{
    struct metrics_now now = {0};
    int n = loop_devices(v->loop, NULL, NULL, 0);
    pl_device_counters *device = calloc((size_t)n + 1, sizeof *device);
    pl_device_traffic *traffic = calloc((size_t)n + 1, sizeof *traffic);
    bool ok;

    loop_counts(v->loop, &now.loop);
    if (v->tiers)
        tiers_counts(v->tiers, &now.tiers);
    if (device && traffic)
        now.n_device = loop_devices(v->loop, device, traffic, n);
    now.device = device;
    now.traffic = traffic;
    if (v->http)
        http_load(v->http, &now.n_connection, &now.n_request);
    ok = metrics_write(&v->metrics, &now, out);
    free(device);
    free(traffic);
    return ok;
}

/* ---- routes for features that the server lacks --------------------------- */

/* Handles POST /lora-adapters: accepts only an empty list, because the server
 * has no LoRA adapters. */
static void on_set_lora(void *user, struct http_request *r)
{
    size_t len;
    const char *body = http_body(r, &len);
    json_t *list = json_loadb(body, len, 0, NULL);
    struct api_error why;

    (void)user;
    if (json_is_array(list) && json_array_size(list) == 0) {
        service_respond_json(r, json_pack("{s:b}", "success", 1));
    } else {
        api_error_set(&why, 400, "invalid_value", NULL,
                      json_is_array(list)
                          ? "the server has no LoRA adapters; send an empty "
                            "list"
                          : "the body must be a list of LoRA adapters");
        service_reject(r, &why);
    }
    json_decref(list);
}

static void on_lora(void *user, struct http_request *r)
{
    (void)user;
    service_respond_json(r, json_array());
}

static const struct http_route routes[] = {
    {"GET", "/", on_page, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/plan.svg", on_plan, 0},
    {"GET", "/health", on_health, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/v1/health", on_health, HTTP_OPEN | SERVICE_NONE},
    {"GET", "/props", on_props, 0},
    {"POST", "/props", on_set_props, SERVICE_NONE},
    {"GET", "/slots", on_slots, 0},
    {"POST", "/slots/{}", slots_act, 0},
    {"GET", "/machine", machine_respond, 0},
    {"POST", "/v1/chat/completions", generation_start,
     REQUEST_CHAT << HTTP_ARG},
    {"POST", "/chat/completions", generation_start, REQUEST_CHAT << HTTP_ARG},
    {"POST", "/v1/completions", generation_start,
     REQUEST_COMPLETIONS << HTTP_ARG},
    {"POST", "/completion", generation_start, REQUEST_COMPLETION << HTTP_ARG},
    {"POST", "/completions", generation_start, REQUEST_COMPLETION << HTTP_ARG},
    {"POST", "/v1/messages", generation_start, REQUEST_MESSAGES << HTTP_ARG},
    {"POST", "/v1/messages/count_tokens", on_count,
     REQUEST_MESSAGES << HTTP_ARG},
    {"POST", "/v1/responses", generation_start, REQUEST_RESPONSES << HTTP_ARG},
    {"POST", "/responses", generation_start, REQUEST_RESPONSES << HTTP_ARG},
    {"POST", "/v1/chat/completions/input_tokens", on_count,
     REQUEST_CHAT << HTTP_ARG},
    {"POST", "/chat/completions/input_tokens", on_count,
     REQUEST_CHAT << HTTP_ARG},
    {"POST", "/v1/responses/input_tokens", on_count,
     REQUEST_RESPONSES << HTTP_ARG},
    {"POST", "/responses/input_tokens", on_count,
     REQUEST_RESPONSES << HTTP_ARG},
    {"POST", "/v1/embeddings", embeddings_start,
     EMBEDDINGS_AS_OPENAI << HTTP_ARG},
    {"POST", "/embeddings", embeddings_start, EMBEDDINGS_AS_LLAMA << HTTP_ARG},
    {"POST", "/embedding", embeddings_start, EMBEDDINGS_AS_LLAMA << HTTP_ARG},
    {"POST", "/infill", generation_start, REQUEST_INFILL << HTTP_ARG},
    {"POST", "/api/chat", generation_start, REQUEST_OLLAMA_CHAT << HTTP_ARG},
    {"POST", "/api/generate", generation_start,
     REQUEST_OLLAMA_GENERATE << HTTP_ARG},
    {"POST", "/api/embed", embeddings_start, EMBEDDINGS_AS_OLLAMA << HTTP_ARG},
    {"POST", "/api/embeddings", embeddings_start,
     EMBEDDINGS_AS_OLLAMA_ONE << HTTP_ARG},
    {"POST", "/tokenize", on_tokenize, 0},
    {"POST", "/detokenize", on_detokenize, 0},
    {"POST", "/apply-template", on_apply_template, 0},
    {"GET", "/lora-adapters", on_lora, SERVICE_NONE},
    {"POST", "/lora-adapters", on_set_lora, SERVICE_NONE},
    {"POST", "/rerank", embeddings_start, EMBEDDINGS_AS_RERANK << HTTP_ARG},
    {"POST", "/reranking", embeddings_start, EMBEDDINGS_AS_RERANK << HTTP_ARG},
    {"POST", "/v1/rerank", embeddings_start, EMBEDDINGS_AS_RERANK << HTTP_ARG},
    {"POST", "/v1/reranking", embeddings_start,
     EMBEDDINGS_AS_RERANK << HTTP_ARG},
};

const struct http_route *service_routes(int *n)
{
    *n = (int)(sizeof routes / sizeof *routes);
    return routes;
}
