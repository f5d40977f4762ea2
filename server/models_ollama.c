/* The routes of Ollama's API about models: lists of models, descriptions of a
 * model, and requests that load or unload a model (keep_alive). A description
 * is made from the model's file, so the model need not be loaded. The API's
 * routes that change models are rejected. */
#include "models_inner.h"
#include "ollama.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- finding the model that a request names ------------------------------ */

/* Parses the body of a request into *f and returns the model that it names;
 * NULL with *why filled if there is none. *body owns the fields; the caller
 * releases it. Even if there is only one model, the name must be right, unlike
 * in other protocols: clients conclude from a 404 that a model is missing. */
static struct model *find(struct models *m, const struct http_request *r,
                          struct fields *f, json_t **body,
                          struct api_error *why)
{
    const char *name = NULL, *text;
    size_t len;
    int i;

    *body = NULL;
    *f = (struct fields){.why = why};
    text = http_body(r, &len);
    if (len == 0) {
        api_error_set(why, 400, "invalid_json", NULL,
                      "missing request body; send a JSON object");
        return NULL;
    }
    if (!fields_read(f, body, text, len, why) ||
        !field_text(f, "name", &name) || !field_text(f, "model", &name))
        return NULL;
    if (!name || !*name) {
        api_error_set(why, 400, "model_required", "model",
                      "model is required; GET /api/tags lists the names");
        return NULL;
    }
    i = models_find_anew(m, name);
    if (i < 0)
        models_reject_name(m, name, why);
    return i < 0 ? NULL : &m->model[i];
}

/* Handles a request that generates text or computes embeddings: passes the
 * request to its model. If keep_alive is 0 and the request has no text, only
 * unloads the model. */
void models_on_ollama(void *models, struct http_request *r)
{
    struct models *m = models;
    bool chats = !strcmp(http_path(r), "/api/chat");
    bool generates = chats || !strcmp(http_path(r), "/api/generate");
    struct api_error why;
    struct fields f;
    json_t *body;
    double keep = -1;
    struct model *a = find(m, r, &f, &body, &why);
    const char *name = NULL;

    if (!a || !ollama_keep_alive(&f, &keep)) {
        service_reject(r, &why);
    } else if (generates && keep == 0 && ollama_is_empty(&f, chats)) {
        pthread_mutex_lock(&m->lock);
        if (!models_unload(m, a))
            models_cancel_load(m, a);
        pthread_mutex_unlock(&m->lock);
        name = json_string_value(field(&f, "model"));
        service_respond(
            r, ollama_empty_body(chats, name ? name : a->about.name, "unload"));
    } else {
        models_dispatch(m, a, r);
    }
    json_decref(body);
}

/* ---- reading keep_alive -------------------------------------------------- */

bool models_read_keep(const struct http_request *r, double *seconds)
{
    struct api_error why;
    struct fields f = {.why = &why};
    json_t *body = NULL;
    size_t len;
    const char *text = http_body(r, &len);

    *seconds = NAN;
    if (strncmp(http_path(r), "/api/", 5) != 0)
        return false;
    if (strstr(text, "\"keep_alive\"") &&
        fields_read(&f, &body, text, len, &why) &&
        !ollama_keep_alive(&f, seconds))
        *seconds = NAN;
    json_decref(body);
    return true;
}

void models_keep(struct models *m, struct model *a, double seconds)
{
    a->idle_s = isnan(seconds) ? a->about.idle_s : fmax(seconds, 0);
    if (seconds == 0)
        models_unload(m, a);
}

/* ---- describing a model by its file -------------------------------------- */

static void add_text(void *user, const char *s, size_t n)
{
    /* Errors are ignored: if memory is short, the JSON is truncated and does
     * not parse. */
    text_add(user, s, n);
}

/* Returns the description of a file by pl_inspect, without the list of its
 * tensors; NULL if the file cannot be read. */
static json_t *inspect(const char *path)
{
    struct text t = {0};
    json_t *j = NULL;
    pl_err err;

    if (pl_inspect(path, true, add_text, &t, &err) == PL_OK)
        j = json_loadb(t.s, t.n, 0, NULL);
    text_free(&t);
    if (j)
        json_object_del(j, "tensors");
    return j;
}

/* The facts that the routes report about a model. */
struct about {
    char name[256];  /* name of the model with a tag */
    char digest[72]; /* 64 hexadecimal digits that identify the model's file */
    /* Modification time of the file, in seconds since 1970; 0 if unknown. */
    double modified;
    /* Description of the file by inspect(); owned; NULL if unknown. */
    json_t *file;
    const char *arch; /* architecture of the model; borrowed from `file` */
    char size[32];    /* number of parameters as text, such as "8.0B" */
    const char *quant;
};

/* Writes 64 hexadecimal digits to `out` that change with the path, size and
 * modification time of the model's file. They are not a checksum of its
 * contents. */
static void make_digest(char out[72], const char *path, const struct stat *st)
{
    char text[64];
    uint64_t x = 0xcbf29ce484222325u;

    snprintf(text, sizeof text, "%lld %lld", (long long)st->st_size,
             (long long)st->st_mtime);
    for (int i = 0; i < 4; i++) {
        for (const char *s = path; *s; s++)
            x = (x ^ (unsigned char)*s) * 0x100000001b3u;
        for (const char *s = text; *s; s++)
            x = (x ^ (unsigned char)*s) * 0x100000001b3u;
        snprintf(out + 16 * i, 72 - 16 * (size_t)i, "%016" PRIx64, x);
    }
}

/* Returns the value of the metadata key `key` in the description `file` of a
 * file (inspect); NULL if the key is absent or an array. */
static const json_t *meta(const json_t *file, const char *key)
{
    return json_object_get(
        json_object_get(json_object_get(file, "metadata"), key), "value");
}

/* Writes a number of parameters to `out`, such as "8.0B". */
static void name_size(char out[32], json_int_t n)
{
    if (n >= 1000000000)
        snprintf(out, 32, "%.1fB", (double)n / 1e9);
    else if (n >= 1000000)
        snprintf(out, 32, "%.2fM", (double)n / 1e6);
    else
        snprintf(out, 32, "%.0fK", (double)n / 1e3);
}

/* Names of the quantizations, indexed by the value of the metadata key
 * general.file_type. */
static const char *const file_types[] = {
    [0] = "F32",      [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",
    [7] = "Q8_0",     [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",
    [11] = "Q3_K_S",  [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
    [15] = "Q4_K_M",  [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",
    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
    [23] = "IQ3_XXS", [24] = "IQ1_S",  [25] = "IQ4_NL", [26] = "IQ3_S",
    [27] = "IQ3_M",   [28] = "IQ2_S",  [29] = "IQ2_M",  [30] = "IQ4_XS",
    [31] = "IQ1_M",   [32] = "BF16",   [36] = "TQ1_0",  [37] = "TQ2_0",
    [38] = "MXFP4",
};

/* Returns the name of a file's quantization: that of its general.file_type,
 * else the name of the format that most of its values have. */
static const char *quant_of(const json_t *file)
{
    const json_t *type = meta(file, "general.file_type"), *value;
    const json_int_t i = json_integer_value(type);
    const char *name = "unknown", *key;
    json_int_t most = 0;

    if (json_is_integer(type) && i >= 0 &&
        i < (json_int_t)(sizeof file_types / sizeof *file_types) &&
        file_types[i])
        return file_types[i];
    json_object_foreach (
        json_object_get(json_object_get(file, "totals"), "types"), key, value) {
        json_int_t n = json_integer_value(json_object_get(value, "values"));

        if (n > most) {
            most = n;
            name = key;
        }
    }
    return name;
}

/* Sets out->name to `name`, with a tag added if it has none. */
static void name_about(struct about *out, const char *name)
{
    snprintf(out->name, sizeof out->name, "%.240s%s", name,
             strchr(name, ':') ? "" : ":latest");
}

/* Fills *out with the description of a model. The model's file is read again
 * only if it has changed. The caller calls about_fini. */
static void about_init(struct about *out, struct models *m, struct model *a)
{
    char path[4096];
    struct stat st = {0};
    const json_t *arch;

    *out = (struct about){.arch = "", .quant = "unknown"};
    name_about(out, a->about.name);
    pthread_mutex_lock(&m->lock);
    snprintf(path, sizeof path, "%s",
             a->service && a->service->path ? a->service->path : a->about.path);
    if (stat(path, &st) == 0 && a->file_time == st.st_mtime &&
        a->file_bytes == st.st_size)
        out->file = json_incref(a->file);
    pthread_mutex_unlock(&m->lock);
    make_digest(out->digest, path, &st);
    out->modified = (double)st.st_mtime;
    if (!out->file && S_ISREG(st.st_mode) && (out->file = inspect(path))) {
        pthread_mutex_lock(&m->lock);
        json_decref(a->file);
        a->file = json_incref(out->file);
        a->file_time = st.st_mtime;
        a->file_bytes = st.st_size;
        pthread_mutex_unlock(&m->lock);
    }
    arch = meta(out->file, "general.architecture");
    if (arch)
        out->arch = json_string_value(arch);
    if (out->file) {
        name_size(out->size,
                  json_integer_value(json_object_get(
                      json_object_get(out->file, "totals"), "values")));
        out->quant = quant_of(out->file);
    }
}

static void about_fini(struct about *about)
{
    json_decref(about->file);
}

static json_t *details_json(const struct about *b)
{
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "",
                     "format", "gguf", "family", b->arch, "families", b->arch,
                     "parameter_size", b->size, "quantization_level", b->quant);
}

static json_int_t bytes_of(const struct about *b)
{
    return json_integer_value(json_object_get(b->file, "bytes"));
}

static void on_tags(void *models, struct http_request *r)
{
    struct models *m = models;
    json_t *list = json_array();

    models_scan(m);
    for (int i = 0; i < m->n; i++) {
        struct model *a = &m->model[i];
        char modified[OLLAMA_TIME];
        struct about b;

        if (a->hidden)
            continue;
        about_init(&b, m, a);
        ollama_time(modified, b.modified);
        for (int k = -1; k < a->about.n_alias; k++) {
            if (k >= 0)
                name_about(&b, a->about.alias[k]);
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name",
                                b.name, "model", b.name, "modified_at",
                                modified, "size", bytes_of(&b), "digest",
                                b.digest, "details", details_json(&b)));
        }
        about_fini(&b);
    }
    service_respond_json(r, json_pack("{s:o}", "models", list));
}

/* ---- the route /api/show ------------------------------------------------- */

/* Returns true if the model's options enable embeddings, or if the model is
 * loaded and returns embeddings. */
static bool has_embeddings(struct models *m, const struct model *a)
{
    bool has;

    pthread_mutex_lock(&m->lock);
    has = a->service && a->service->pooling != EMBEDDINGS_OFF;
    pthread_mutex_unlock(&m->lock);
    for (int i = 0; i < a->about.n_args; i++)
        has |= !strncmp(a->about.args[i], "--embedding", 11);
    return has;
}

/* Returns a copy of a model's chat template: that of the service if the model
 * is loaded, else that in its file. `tools`: the template for conversations
 * with tools. NULL if there is none. */
static char *form_of(struct models *m, const struct model *a,
                     const json_t *file, bool tools)
{
    const char *text =
        json_string_value(meta(file, tools ? "tokenizer.chat_template.tool_use"
                                           : "tokenizer.chat_template"));
    char *copy;

    pthread_mutex_lock(&m->lock);
    if (a->service && a->service->form)
        text = pl_template_text(a->service->form, tools);
    copy = text ? strdup(text) : NULL;
    pthread_mutex_unlock(&m->lock);
    return copy;
}

static json_t *capabilities(struct models *m, const struct model *a,
                            const json_t *file)
{
    char *form = form_of(m, a, file, false);
    char *with_tools = form_of(m, a, file, true);
    const unsigned traits = ollama_traits(form, with_tools);
    json_t *list = json_pack("[s]", "completion");

    free(form);
    free(with_tools);
    if (traits & REQUEST_TOOLS)
        json_text_add(&list, json_string("tools"));
    if (meta(file, "tokenizer.ggml.fim_pre_token_id") ||
        meta(file, "tokenizer.ggml.prefix_token_id"))
        json_text_add(&list, json_string("insert"));
    if (traits & REQUEST_THINKING)
        json_text_add(&list, json_string("thinking"));
    if (has_embeddings(m, a))
        json_text_add(&list, json_string("embedding"));
    return list;
}

/* Returns the metadata of a file as a JSON object. Arrays are null, as in
 * Ollama's own responses. The chat template is left out, because the response
 * has a field of its own for it. */
static json_t *model_info(const json_t *file)
{
    json_t *n = json_object_get(json_object_get(file, "totals"), "values");
    json_t *all = json_object(), *value;
    const char *key;

    json_object_foreach (json_object_get(file, "metadata"), key, value) {
        json_t *v = json_object_get(value, "value");

        if (strncmp(key, "tokenizer.chat_template", 23) != 0)
            json_text_put(&all, key, v ? json_incref(v) : json_null());
    }
    if (n != NULL)
        json_text_put(&all, "general.parameter_count", json_incref(n));
    return all;
}

/* Writes the parameters of a model to `out`. The only one that is reported is
 * num_ctx, the context size in tokens, if the model is loaded. */
static void name_parameters(struct models *m, const struct model *a,
                            char text[64])
{
    pthread_mutex_lock(&m->lock);
    text[0] = '\0';
    if (a->service && a->service->engine)
        snprintf(text, 64, "num_ctx                        %" PRId64,
                 pl_engine_n_ctx(a->service->engine));
    pthread_mutex_unlock(&m->lock);
}

static void on_show(void *models, struct http_request *r)
{
    struct models *m = models;
    char modified[OLLAMA_TIME], parameters[64];
    struct api_error why;
    struct fields f;
    struct about b;
    json_t *body;
    struct model *a = find(m, r, &f, &body, &why);
    char *form;

    json_decref(body);
    if (!a) {
        service_reject(r, &why);
        return;
    }
    about_init(&b, m, a);
    ollama_time(modified, b.modified);
    name_parameters(m, a, parameters);
    form = form_of(m, a, b.file, false);
    service_respond_json(
        r,
        json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:s}", "modelfile",
                  json_sprintf("FROM %s\n", b.name), "parameters", parameters,
                  "template", form ? form : "", "details", details_json(&b),
                  "model_info", model_info(b.file), "capabilities",
                  capabilities(m, a, b.file), "modified_at", modified));
    free(form);
    about_fini(&b);
}

/* ---- the routes /api/ps and /api/version --------------------------------- */

/* The facts about a loaded model that /api/ps reports. */
struct loaded {
    /* n_ctx: context size in tokens. bytes: memory of the model on all devices.
     * vram: the part of `bytes` on accelerators. */
    json_int_t n_ctx, bytes, vram;
    double idle_s; /* seconds until the model is unloaded; -1 for never */
};

/* Adds the bytes that the plan of service `v` needs on each device to
 * out->bytes and, for accelerators, to out->vram. */
static void count_bytes(const struct service *v, struct loaded *out)
{
    struct text t = {0};
    json_t *plan = NULL, *device;
    pl_err err;
    size_t i;

    if (pl_plan_print(pl_engine_plan(v->engine), true, add_text, &t, &err) ==
        PL_OK)
        plan = json_loadb(t.s, t.n, 0, NULL);
    text_free(&t);
    json_array_foreach (json_object_get(plan, "devices"), i, device) {
        const char *key;
        json_t *bytes;

        json_object_foreach (json_object_get(device, "bytes"), key, bytes) {
            out->bytes += json_integer_value(bytes);
            if (json_is_true(json_object_get(device, "accelerator")))
                out->vram += json_integer_value(bytes);
        }
    }
    json_decref(plan);
}

/* Returns true if a model is loaded, and fills *out with the facts about it for
 * /api/ps. */
static bool is_loaded(struct models *m, struct model *a, struct loaded *out)
{
    bool is;

    *out = (struct loaded){.idle_s = -1};
    pthread_mutex_lock(&m->lock);
    is = a->state == MODEL_LOADED && a->service && a->service->engine;
    if (is) {
        /* Keeps the model loaded until count_bytes has returned. */
        models_use(a, 1);
        if (a->idle_s > 0 && !a->about.pinned)
            out->idle_s = a->n_use > 1
                              ? a->idle_s
                              : fmax(a->used + a->idle_s - clock_now(), 0);
    }
    pthread_mutex_unlock(&m->lock);
    if (!is)
        return false;
    out->n_ctx = pl_engine_n_ctx(a->service->engine);
    count_bytes(a->service, out);
    pthread_mutex_lock(&m->lock);
    models_use(a, -1);
    pthread_mutex_unlock(&m->lock);
    return true;
}

static void on_ps(void *models, struct http_request *r)
{
    static const double century = 100 * 365.25 * 86400;
    struct models *m = models;
    json_t *list = json_array();

    for (int i = 0; i < m->n; i++) {
        char expires[OLLAMA_TIME];
        struct loaded l;
        struct about b;

        if (!is_loaded(m, &m->model[i], &l))
            continue;
        about_init(&b, m, &m->model[i]);
        ollama_time(expires,
                    ollama_now() + (l.idle_s < 0 ? century : l.idle_s));
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:I, s:s, s:o, s:s, s:I, s:I}", "name",
                      b.name, "model", b.name, "size", l.bytes, "digest",
                      b.digest, "details", details_json(&b), "expires_at",
                      expires, "size_vram", l.vram, "context_length", l.n_ctx));
        about_fini(&b);
    }
    service_respond_json(r, json_pack("{s:o}", "models", list));
}

static void on_version(void *models, struct http_request *r)
{
    (void)models;
    service_respond_json(r, json_pack("{s:s, s:s}", "version", OLLAMA_VERSION,
                                      "plait", pl_version()));
}

/* ---- rejecting routes that change models --------------------------------- */

/* The routes of Ollama's API that change models, by their paths after "/api/".
 * They are rejected. */
static const struct {
    const char *path, *what;
} changes[] = {
    {"pull", "downloading models while the server runs is not supported; start "
             "it with -hf USER/REPO"},
    {"push", "uploading models is not supported"},
    {"create", "creating models is not supported; put GGUF files into "
               "--models-dir, or describe them in --models-preset"},
    {"copy", "copying models is not supported; give several names with -a or "
             "in --models-preset"},
    {"delete", "deleting models is not supported; remove the file yourself"},
    {"blobs", "uploading files is not supported; put GGUF files into "
              "--models-dir"},
};

static void on_change(void *models, struct http_request *r)
{
    const char *path = http_path(r) + 5;
    struct api_error why;

    (void)models;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (!strncmp(path, changes[i].path, strlen(changes[i].path)))
            api_error_set(&why, 501, "not_supported", NULL, "/api/%s: %s",
                          changes[i].path, changes[i].what);
    service_reject(r, &why);
}

const struct http_route models_ollama_routes[] = {
    {"POST", "/api/chat", models_on_ollama, REQUEST_OLLAMA_CHAT << HTTP_ARG},
    {"POST", "/api/generate", models_on_ollama,
     REQUEST_OLLAMA_GENERATE << HTTP_ARG},
    {"POST", "/api/embed", models_on_ollama, EMBEDDINGS_AS_OLLAMA << HTTP_ARG},
    {"POST", "/api/embeddings", models_on_ollama,
     EMBEDDINGS_AS_OLLAMA_ONE << HTTP_ARG},
    {"GET", "/api/tags", on_tags, 0},
    {"POST", "/api/show", on_show, 0},
    {"GET", "/api/ps", on_ps, 0},
    {"GET", "/api/version", on_version, 0},
    {"POST", "/api/pull", on_change, 0},
    {"POST", "/api/push", on_change, 0},
    {"POST", "/api/create", on_change, 0},
    {"POST", "/api/copy", on_change, 0},
    {"DELETE", "/api/delete", on_change, 0},
    {"GET", "/api/blobs/{}", on_change, 0},
    {"POST", "/api/blobs/{}", on_change, 0},
};
const int models_n_ollama_route =
    sizeof models_ollama_routes / sizeof *models_ollama_routes;
