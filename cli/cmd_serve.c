/* plait serve: a model behind HTTP, for many at once, until Ctrl-C or SIGTERM.
 */
#include "cmd.h"
#include "input.h"
#include "session.h"
#include "shown.h"

#include "server/service.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DRAIN_S = 30 }; /* what is being answered has so long to its end */

struct serve {
    const struct options *o;
    struct session s;
    struct service service;
    bool begun; /* the service has grammars */
    struct http *http;
    char **key; /* owned, [n_key], each too */
    int n_key;
};

static volatile sig_atomic_t ended;

static void on_term(int sig)
{
    (void)sig;
    ended = 1;
}

/* ---- keys ---------------------------------------------------------------- */

static bool add_key(struct serve *v, const char *key, size_t len)
{
    char **more = realloc(v->key, (size_t)(v->n_key + 1) * sizeof(*more));

    if (more == NULL)
        return false;
    v->key = more;
    more[v->n_key] = strndup(key, len);
    return more[v->n_key] != NULL && ++v->n_key > 0;
}

/* Of --api-key, with commas between, and of a file, one a line. */
static bool add_keys(struct serve *v, const char *text, const char *ends)
{
    bool ok = true;

    while (*text != '\0' && ok) {
        size_t n = strcspn(text, ends);

        if (n > 0)
            ok = add_key(v, text, n);
        text += n + (text[n] != '\0');
    }
    return ok;
}

static enum exit_code read_keys(struct serve *v)
{
    const struct options *o = v->o;
    struct input in = {0};
    enum exit_code c = EXIT_DONE;
    bool ok = o->api_key == NULL || add_keys(v, o->api_key, ",");

    if (o->api_key_file != NULL)
        c = input_file(&in, o, o->api_key_file);
    if (c == EXIT_DONE && in.s != NULL)
        ok = ok && add_keys(v, in.s, "\r\n");
    input_free(&in);
    if (c == EXIT_DONE && !ok)
        c = complain(CMD_SERVE, EXIT_FAILED, "no memory for the keys");
    if (c == EXIT_DONE && v->n_key == 0 &&
        (o->api_key != NULL || o->api_key_file != NULL))
        c = complain(CMD_SERVE, EXIT_USAGE,
                     "%s has no key in it; give one, or leave it out",
                     o->api_key != NULL ? "--api-key" : "--api-key-file");
    return c;
}

/* ---- beginning ----------------------------------------------------------- */

static enum exit_code open_template(struct serve *v)
{
    const struct options *o = v->o;
    struct input text = {0};
    enum exit_code c = EXIT_DONE;
    pl_status s;

    if (o->chat_template != NULL)
        c = input_file(&text, o, o->chat_template);
    if (c != EXIT_DONE)
        return c;
    s = pl_template_create(&v->service.form, text.s, text.len, o->model,
                           &v->service.no_form);
    input_free(&text);
    if (s == PL_OK)
        return EXIT_DONE;
    if (s == PL_NO_MEMORY || o->chat_template != NULL)
        return report(o, s, &v->service.no_form);
    return complain(CMD_SERVE, EXIT_DONE, "no chats: %s",
                    v->service.no_form.message);
}

/* The model's name for clients: the file's, without its ending. */
static char *name_of(const struct options *o)
{
    const char *at = o->alias != NULL ? o->alias : o->model;
    const char *slash = o->alias != NULL ? NULL : strrchr(at, '/');
    size_t n;

    at = slash != NULL ? slash + 1 : at;
    n = strlen(at);
    if (o->alias == NULL && n > 5 && strcmp(at + n - 5, ".gguf") == 0)
        n -= 5;
    return strndup(at, n);
}

static void log_line(void *user, pl_log_level level, const char *text)
{
    const struct options *o = user;

    if (o->verbose || level >= PL_LOG_INFO)
        complain(o->command, EXIT_DONE, "%s", text);
}

static const enum embeddings_pooling poolings[] = {
    [POOLING_LAST] = EMBEDDINGS_LAST,
    [POOLING_MEAN] = EMBEDDINGS_MEAN,
    [POOLING_CLS] = EMBEDDINGS_CLS,
    [POOLING_NONE] = EMBEDDINGS_NONE,
};

static enum exit_code start_loop(struct serve *v)
{
    const struct options *o = v->o;
    const struct loop_options lo = {
        .n_seq = o->n_parallel,
        .max_waiting = o->n_waiting,
        .step = v->s.piece,
        .d_model = o->embeddings ? pl_model_d_model(v->s.model) : 0,
        .log = log_line,
        .log_user = (void *)o};
    struct service *w = &v->service;
    pl_err err;
    pl_status s;

    w->model = v->s.model;
    w->engine = v->s.engine;
    w->words = v->s.words;
    grammars_init(&w->grammars, w->words);
    metrics_init(&w->metrics);
    v->begun = true;
    w->created = (int64_t)time(NULL);
    w->sampling = o->sampling;
    w->max_tokens = o->n_predict;
    w->time_s = o->timeout_s;
    w->pooling = o->embeddings ? poolings[o->pooling] : EMBEDDINGS_OFF;
    w->name = name_of(o);
    if (w->name == NULL)
        return complain(CMD_SERVE, EXIT_FAILED, "no memory for a name");
    s = loop_create(&w->loop, w->engine, w->words, &lo, &err);
    return s == PL_OK ? EXIT_DONE : report(o, s, &err);
}

static enum exit_code start_http(struct serve *v)
{
    const struct options *o = v->o;
    const struct http_options ho = {
        .host = o->host,
        .port = o->port,
        .key = (const char *const *)v->key,
        .n_key = v->n_key,
        .cert_file = o->cert_file,
        .cert_key_file = o->cert_key_file,
        .prefix = o->api_prefix,
        .origin = o->cors_origin,
        .log = log_line,
        .log_user = (void *)o,
    };
    int n;
    const struct http_route *routes = service_routes(&n);
    pl_err err;
    pl_status s = http_start(&v->http, &ho, routes, n, refusal_body_of_path,
                             &v->service, &err);

    if (s != PL_OK)
        return report(o, s, &err);
    v->service.http = v->http;
    return complain(CMD_SERVE, EXIT_DONE, "%s listens at http%s://%s:%d",
                    v->service.name, o->cert_file != NULL ? "s" : "",
                    o->host != NULL ? o->host : "127.0.0.1",
                    http_port(v->http));
}

/* ---- end ----------------------------------------------------------------- */

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* New requests are refused; those that are being answered go on for a while, or
 * until the next Ctrl-C. */
static void drain(struct serve *v)
{
    double began = term_seconds();
    int n_connection, n_request;

    term_interrupts_reset();
    http_drain(v->http);
    do {
        pause_ms(50);
        http_load(v->http, &n_connection, &n_request);
    } while (n_request > 0 && term_interrupts == 0 &&
             term_seconds() - began < DRAIN_S);
}

static void serve_free(struct serve *v)
{
    if (v->http != NULL)
        http_stop(v->http);
    loop_free(v->service.loop); /* ends the requests that are left */
    http_free(v->http);
    if (v->begun) {
        grammars_fini(&v->service.grammars);
        metrics_fini(&v->service.metrics);
    }
    pl_template_free(v->service.form);
    free((char *)v->service.name);
    for (int i = 0; i < v->n_key; i++)
        free(v->key[i]);
    free(v->key);
}

enum exit_code cmd_serve(const struct options *o)
{
    static const char *const kept[] = {"result_norm"};
    struct serve v = {.o = o};
    enum exit_code c = session_open(&v.s, o);

    v.s.pl.n_seq = o->n_parallel;
    v.s.pl.prefix_cache = true;
    if (o->embeddings) {
        v.s.pl.keep = kept;
        v.s.pl.n_keep = 1;
    }
    if (c == EXIT_DONE)
        c = session_need_words(&v.s, o);
    if (c == EXIT_DONE)
        c = read_keys(&v);
    if (c == EXIT_DONE)
        c = open_template(&v);
    if (c == EXIT_DONE)
        c = session_load(&v.s, o);
    if (c == EXIT_DONE)
        c = start_loop(&v);
    if (c == EXIT_DONE) { /* who reads that it listens may end it at once */
        signal(SIGTERM, on_term);
        term_interrupts_count(2);
        c = start_http(&v);
    }
    if (c == EXIT_DONE) {
        while (!ended && term_interrupts == 0)
            pause_ms(100);
        drain(&v);
    }
    serve_free(&v);
    return session_close(&v.s, c);
}
