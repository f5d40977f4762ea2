/* plait serve: serves models over HTTP to many clients, until Ctrl-C, SIGTERM
 * or SIGHUP. */
#include "cmd.h"
#include "front_link.h"
#include "input.h"
#include "receipt_file.h"
#include "serve_front.h"
#include "serve_models.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum {
    DRAIN_S = 30, /* limit in seconds for running requests to end after a
                     signal */
    CUT_S = 2,    /* limit in seconds for clients to receive the error that ends
                     their requests */
};

struct serve {
    const struct options *o;
    struct serve_list list;
    struct serve_models all; /* the models of `list`, with their limits */
    struct models *models;
    struct http *http;
    char **key; /* [n_key] API keys; the array and its strings are owned */
    int n_key;
    struct serve_receipts *receipts; /* owned; NULL if none are kept */
};

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

/* Adds the API keys in `text`, which the characters `ends` separate: commas for
 * --api-key, line ends for a file. */
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
        c = cli_error(CMD_SERVE, EXIT_FAILED, "no memory for the keys");
    if (c == EXIT_DONE && v->n_key == 0 &&
        (o->api_key != NULL || o->api_key_file != NULL))
        c = cli_error(CMD_SERVE, EXIT_USAGE,
                      "%s has no key; add one, or leave out the option",
                      o->api_key != NULL ? "--api-key" : "--api-key-file");
    return c;
}

/* ---- start --------------------------------------------------------------- */

/* Opens the file of --receipt, unless it is one that a model of a preset or of
 * --models-dir reads. */
static enum exit_code open_receipts(struct serve *v)
{
    enum exit_code c = EXIT_DONE;

    if (v->o->receipt == NULL)
        return EXIT_DONE;
    for (int i = 0; i < v->list.n && c == EXIT_DONE; i++)
        c = whole_compare(v->list.entry[i].o, "--receipt", v->o->receipt);
    return c == EXIT_DONE ? serve_receipts_open(&v->receipts, v->o) : c;
}

/* A models_options.scan; `user` is a struct serve_models. */
static void scan_models(void *user, struct models *m)
{
    struct serve_models *all = user;

    serve_list_scan(all->list, m, &all->n);
}

/* A models_options.lost; `user` is a struct serve_models. */
static void on_lost(void *user)
{
    struct serve_models *all = user;

    atomic_store(&all->lost, true);
}

static enum exit_code make_models(struct serve *v)
{
    const struct options *o = v->o;
    const struct models_options mo = {
        .any_name = v->list.any_name,
        .max_loaded = o->n_models,
        .no_autoload = o->no_autoload,
        .wait_s = o->models_wait_s,
        .open = serve_model_open,
        .close = serve_model_close,
        .scan = v->list.scanned != NULL ? scan_models : NULL,
        .lost = on_lost,
        .user = &v->all,
        .log = serve_log,
        .log_user = (void *)o,
    };
    int n, most = v->list.n;
    const struct http_route *routes = service_routes(&n);
    pl_err err;
    pl_status s;

    if (o->n_models > 0 && o->n_models < most)
        most = o->n_models;
    v->all = (struct serve_models){.entry = v->list.entry,
                                   .n = v->list.n,
                                   .most = most,
                                   .list = &v->list,
                                   .receipts = v->receipts,
                                   .receipt_flags = receipt_flags(o)};
    s = models_create(&v->models, v->list.about, v->list.n, &mo, routes, n,
                      &err);

    return s == PL_OK ? EXIT_DONE : report(o, s, &err);
}

/* Loads the models to be loaded at the start, at most as many as may be loaded
 * at once. If the load of the only model fails, returns its exit code. If there
 * are several models, the server starts in spite of a failure, and clients that
 * request the failed model get the error. */
static enum exit_code load_first(struct serve *v)
{
    enum exit_code c = EXIT_DONE;
    int n = 0;
    pl_err err;

    for (int i = 0; i < v->list.n && c == EXIT_DONE; i++) {
        const struct serve_entry *e = v->list.about[i].own;
        pl_status s = PL_OK;

        if (e->at_start && (v->o->n_models == 0 || n++ < v->o->n_models))
            s = models_load(v->models, i, &err);
        if (s != PL_OK && v->list.any_name)
            c = exit_code_of(s); /* the server's log already has the error */
    }
    return c;
}

static void tell_addresses(const struct serve *v)
{
    const struct options *o = v->o;
    const char *list = o->host != NULL ? o->host : "127.0.0.1";
    const char *name = v->list.n == 1 ? v->list.about[0].name : "plait";

    while (*list != '\0') {
        int n = (int)strcspn(list, ",");
        bool six = memchr(list, ':', (size_t)n) != NULL;

        if (http_is_path(list, (size_t)n))
            cli_error(CMD_SERVE, EXIT_DONE, "%s listens at unix:%.*s", name, n,
                      list);
        else
            cli_error(CMD_SERVE, EXIT_DONE,
                      "%s listens at http%s://%s%.*s%s:%d", name,
                      o->cert_file != NULL ? "s" : "", six ? "[" : "", n, list,
                      six ? "]" : "", http_port(v->http));
        list += n + (list[n] == ',');
    }
}

struct http_options serve_http_options(const struct options *o)
{
    return (struct http_options){
        .host = o->host,
        .port = o->port,
        .cert_file = o->cert_file,
        .cert_key_file = o->cert_key_file,
        .prefix = o->api_prefix,
        .origin = o->cors_origin,
        .hosts = o->allowed_hosts,
        .timeout_s = o->socket_s,
        .held = true,
        .log = serve_log,
        .log_user = (void *)o,
    };
}

static enum exit_code start_http(struct serve *v)
{
    const struct options *o = v->o;
    struct http_options ho = serve_http_options(o);
    int n;
    const struct http_route *routes = models_routes(v->models, &n);
    pl_err err;
    pl_status s;

    ho.key = (const char *const *)v->key;
    ho.n_key = v->n_key;
    ho.given = front_sockets(&ho.n_given);
    s = http_start(&v->http, &ho, routes, n, api_error_body_of_path, v->models,
                   &err);
    if (s != PL_OK)
        return report(o, s, &err);
    models_set_http(v->models, v->http);
    return EXIT_DONE;
}

/* Starts to accept clients and prints the addresses. Sets the limit of counted
 * signals first, because a program that reads the addresses may send a signal
 * at once. */
static enum exit_code accept_clients(struct serve *v)
{
    pl_err err;
    pl_status s;

    term_interrupts_count(2);
    s = http_accept(v->http, &err);
    if (s != PL_OK)
        return report(v->o, s, &err);
    front_take_over();
    tell_addresses(v);
    return EXIT_DONE;
}

/* ---- end ----------------------------------------------------------------- */

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

static int count_requests(const struct serve *v)
{
    int n_connection, n_request;

    http_load(v->http, &n_connection, &n_request);
    return n_request;
}

/* Waits until no request is running, until a signal arrives, or for `seconds`.
 * Returns the number of requests that are still running. */
static int await_requests(const struct serve *v, double seconds)
{
    double began = term_seconds();
    int n;

    do {
        pause_ms(50);
        n = count_requests(v);
    } while (n > 0 && term_interrupts == 0 && term_seconds() - began < seconds);
    return n;
}

/* Logs that the server drains. */
static void log_drain(const struct serve *v, int n_request)
{
    char text[120] = "stopping: no request is running";

    if (n_request > 0)
        snprintf(text, sizeof text,
                 "stopping: %d request%s may finish within %d s; another "
                 "signal ends %s at once",
                 n_request, n_request == 1 ? "" : "s", DRAIN_S,
                 n_request == 1 ? "it" : "them");
    serve_log((void *)v->o, PL_LOG_INFO, text);
}

/* Rejects new requests, and waits for the running ones until the next signal,
 * at most DRAIN_S seconds. Then ends these with an error that tells their
 * clients why, and waits until a third signal, at most CUT_S seconds. */
static void drain(struct serve *v)
{
    char text[80];
    int n;

    term_interrupts_clear();
    http_drain(v->http);
    front_tell(FRONT_CLOSED, 0);
    models_drain(v->models);
    log_drain(v, count_requests(v));
    n = await_requests(v, DRAIN_S);
    if (n == 0)
        return;
    snprintf(text, sizeof text, "ending %d request%s %s", n, n == 1 ? "" : "s",
             term_interrupts > 0 ? "at once" : "that did not finish");
    serve_log((void *)v->o, PL_LOG_INFO, text);
    term_interrupts_clear();
    models_cancel(v->models);
    await_requests(v, CUT_S);
}

static void serve_free(struct serve *v)
{
    if (v->http != NULL)
        http_stop(v->http);
    models_free(v->models); /* ends requests that are still running */
    http_free(v->http);
    serve_list_fini(&v->list);
    for (int i = 0; i < v->n_key; i++)
        free(v->key[i]);
    free(v->key);
}

/* Makes malloc return buffers of 256 KiB or more to the system as soon as they
 * are freed. By default glibc raises this size up to 32 MiB, and keeps smaller
 * buffers for each thread. */
static void return_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

/* Returns true if a device has failed and the model cannot be loaded again,
 * because the machines of a job end with it. */
static bool is_lost(const struct serve *v)
{
    return v->o->pl.machines != NULL && atomic_load(&v->all.lost);
}

enum exit_code cmd_serve(const struct options *o)
{
    struct serve v = {.o = o};
    enum exit_code c;
    bool served;

    return_memory();
    c = serve_list_make(&v.list, o);

    if (c == EXIT_DONE)
        c = read_keys(&v);
    if (c == EXIT_DONE)
        c = open_receipts(&v);
    if (c == EXIT_DONE)
        c = make_models(&v);
    /* The server binds its address before it loads models, so that an address
     * in use is reported at once. */
    if (c == EXIT_DONE)
        c = start_http(&v);
    if (c == EXIT_DONE)
        c = load_first(&v);
    if (c == EXIT_DONE)
        c = accept_clients(&v);
    served = c == EXIT_DONE;
    if (served) {
        while (term_interrupts == 0 && !is_lost(&v))
            pause_ms(100);
        drain(&v);
        if (is_lost(&v))
            c = EXIT_LOST;
    }
    serve_free(&v);
    c = serve_receipts_close(v.receipts, c);
    if (served)
        serve_log((void *)o, PL_LOG_INFO, "stopped");
    return c;
}
