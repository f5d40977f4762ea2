/* Starts and stops the HTTP server, and has the callbacks that libmicrohttpd
 * calls. */
#include "http_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    N_WORKER = 4,
    MAX_PEM = 1 << 20,
    /* Least bytes per second at which a request body must arrive that takes
     * longer than http_options.timeout_s. */
    SLOWEST = 1024,
};

/* ---- functions that libmicrohttpd calls ---------------------------------- */

static enum MHD_Result on_head(struct http *h, struct MHD_Connection *c,
                               const char *url, const char *method,
                               const char *version, void **context)
{
    struct http_request *r = http_request_create(h, c, method, url, version);
    const char *message;
    int status;

    if (!r)
        return MHD_NO;
    *context = r;
    http_set_busy(h, r->fd, true);
    status = http_route_find(r, &message);
    if (status)
        http_reject(r, status, message);
    if (!status || !r->has_body)
        return MHD_YES;
    r->early = true;
    return http_proceed(r);
}

/* Rejects a request while its body is being received. libmicrohttpd accepts no
 * response at that time, so this function writes the response to the socket
 * itself. TLS connections are closed without a response. Returns MHD_NO, which
 * makes libmicrohttpd close the connection. */
static enum MHD_Result reject_body(struct http_request *r, int status,
                                   const char *reason, const char *message)
{
    struct http *h = r->h;
    char *body = h->error(status, message, r->path);
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\n"
                     "Content-Type: application/json\r\n%s"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     status, reason,
                     status == MHD_HTTP_SERVICE_UNAVAILABLE
                         ? "Retry-After: " HTTP_RETRY_S "\r\n"
                         : "",
                     body ? strlen(body) : 0);

    if (!h->o.cert_file) {
        send(r->fd, head, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
        if (body)
            send(r->fd, body, strlen(body), MSG_DONTWAIT | MSG_NOSIGNAL);
        r->status = status;
        r->queued = r->early = true;
    }
    free(body);
    return MHD_NO;
}

static enum MHD_Result on_body(struct http_request *r, const char *data,
                               size_t *len)
{
    const struct http_options *o = &r->h->o;
    double due = o->timeout_s + (double)r->n_body / SLOWEST;
    pl_status s;

    /* A body with a Content-Length was checked before (check_body_size). A
     * chunked body announces no length, so its bytes are counted here. */
    if (*len > o->max_body - r->n_body)
        return reject_body(r, MHD_HTTP_CONTENT_TOO_LARGE, "Content Too Large",
                           "the request body is too large; send a smaller one");
    if (clock_now() - r->began > due)
        return MHD_NO;
    s = http_request_add_body(r, data, *len);
    if (s == PL_FULL)
        return reject_body(
            r, MHD_HTTP_SERVICE_UNAVAILABLE, "Service Unavailable",
            "out of memory for the request body; try again later");
    *len = 0;
    return s == PL_OK ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c,
                                  const char *url, const char *method,
                                  const char *version, const char *data,
                                  size_t *len, void **context)
{
    struct http_request *r = *context;

    if (!r)
        return on_head(user, c, url, method, version, context);
    if (*len > 0)
        return on_body(r, data, len);
    if (!r->handed && r->kind == HTTP_NO_RESPONSE) {
        r->handed = true;
        http_dispatch(r);
    }
    return http_proceed(r);
}

void http_show(char *out, size_t size, const char *s, size_t n)
{
    size_t i = 0;

    for (; i < n && i + 1 < size; i++)
        out[i] = s[i] > ' ' && s[i] < 127 ? s[i] : '?';
    out[i] = '\0';
}

/* Logs a request without its query, headers and body, which may contain API
 * keys and prompts. */
void http_log_request(struct http_request *r)
{
    const struct http_options *o = &r->h->o;
    char method[17], path[160], text[512], status[16] = "-";

    if (!o->log)
        return;
    http_show(method, sizeof method, r->method, strlen(r->method));
    http_show(path, sizeof path, r->path, strlen(r->path));
    if (r->queued)
        snprintf(status, sizeof status, "%d", r->status);
    snprintf(text, sizeof text, "%s %s %s %s %s%sms=%.1f%s", r->address, method,
             path, status, r->note, r->note[0] ? " " : "", 1e3 * r->took_s,
             r->cut_off);
    pthread_mutex_lock(&r->h->log_lock);
    o->log(o->log_user, PL_LOG_INFO, text);
    pthread_mutex_unlock(&r->h->log_lock);
}

/* Called by libmicrohttpd when it has finished a request: its response was
 * sent, or its connection was closed. */
static void on_completed(void *user, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode how)
{
    struct http_request *r = *context;
    bool all = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;

    (void)user, (void)c;
    if (!r)
        return;
    *context = NULL;
    if (r->early)
        http_keep_open(r->h, r->fd);
    pthread_mutex_lock(&r->lock);
    http_unwatch(r);
    r->connection = NULL;
    r->suspended = false;
    /* A HEAD request ends after the headers of its response. Discard the body
     * that is still buffered. */
    r->dropped = all;
    r->took_s = clock_now() - r->began;
    if (!all && !r->early)
        r->cut_off = atomic_load(&r->h->stopping)
                         ? ", aborted: the server is stopping"
                         : ", the client disconnected";
    pthread_mutex_unlock(&r->lock);
    http_set_busy(r->h, r->fd, false);
    if (!all)
        http_request_leave(r);
    http_request_drop(r);
}

static void on_connection(void *user, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        http_forget_fd(
            user, MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)
                      ->connect_fd);
}

/* Leaves *s percent-encoded. libmicrohttpd expects its unescape callback to
 * decode the text, but paths and query arguments must be split before they are
 * decoded. */
static size_t on_unescape(void *user, struct MHD_Connection *c, char *s)
{
    (void)user, (void)c;
    return strlen(s);
}

static void on_complaint(void *user, const char *fmt, va_list ap)
{
    struct http *h = user;
    char text[sizeof h->said];

    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    pthread_mutex_lock(&h->log_lock);
    if (!h->running)
        memcpy(h->said, text, sizeof text);
    else if (h->o.log)
        h->o.log(h->o.log_user, PL_LOG_DEBUG, text);
    pthread_mutex_unlock(&h->log_lock);
}

/* ---- starting the server ------------------------------------------------- */

static pl_status check_options(const struct http_options *o, pl_err *err)
{
    if (o->port < 0 || o->port > 65535)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "port %d: out of range; use 0 (any free port) to 65535", o->port);
    for (int i = 0; i < o->n_key; i++) {
        if (!o->key[i] || !*o->key[i])
            return server_fail(err, PL_BAD_ARGUMENT,
                               "API key %d of %d: empty, so any client would "
                               "have it; remove the empty line or value",
                               i + 1, o->n_key);
    }
    if (o->prefix &&
        (o->prefix[0] != '/' || o->prefix[strlen(o->prefix) - 1] == '/'))
        return server_fail(err, PL_BAD_ARGUMENT,
                           "prefix \"%s\": must start with a slash and not end "
                           "with one, for example \"/api\"",
                           o->prefix);
    if (!o->cert_file != !o->cert_key_file)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "TLS: no %s given; give both the certificate and its key",
            o->cert_file ? "key" : "certificate");
    if (o->cert_file && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return server_fail(
            err, PL_UNSUPPORTED,
            "TLS: the installed libmicrohttpd was built without it; install "
            "one with TLS, or terminate TLS in a proxy");
    if (o->max_connections < 0 || o->max_of_address < 0 || o->timeout_s < 0 ||
        o->drain_s < 0)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "limits must not be negative: %d connections, %d per "
            "address, timeout %d s, drain %d s",
            o->max_connections, o->max_of_address, o->timeout_s, o->drain_s);
    return PL_OK;
}

static void fill_defaults(struct http_options *o)
{
    if (!o->max_body)
        o->max_body = (size_t)64 << 20;
    if (!o->max_bodies)
        o->max_bodies = o->max_body < SIZE_MAX / 4 ? 4 * o->max_body : SIZE_MAX;
    if (!o->max_connections)
        o->max_connections = 1024;
    if (!o->timeout_s)
        o->timeout_s = 600;
    if (!o->drain_s)
        o->drain_s = 1;
}

/* Reads the PEM file `path`. Sets *out to its text, malloc'ed and
 * NUL-terminated; to NULL on failure. */
static pl_status read_pem(char **out, const char *path, pl_err *err)
{
    FILE *f = fopen(path, "rbe");
    char *text = f ? malloc(MAX_PEM + 1) : NULL;
    size_t n = text ? fread(text, 1, MAX_PEM + 1, f) : 0;
    int e = errno;
    pl_status s = PL_OK;

    if (!f)
        s = server_fail(err, PL_IO, "%s: %s", path, strerror(e));
    else if (!text)
        s = server_fail(err, PL_NO_MEMORY, "%s: out of memory", path);
    else if (ferror(f))
        s = server_fail(err, PL_IO, "%s: %s", path, strerror(e));
    else if (n > MAX_PEM || memchr(text, '\0', n) || !strstr(text, "-----"))
        s = server_fail(err, PL_IO, "%s: not a PEM file", path);
    if (s == PL_OK)
        text[n] = '\0';
    else
        free(text);
    *out = s == PL_OK ? text : NULL;
    if (f)
        fclose(f);
    return s;
}

/* Starts libmicrohttpd. Selects its poll mode: its epoll mode, at least up to
 * version 0.9.75, misses the end of a connection that arrives together with the
 * last bytes. Poll mode is fast enough, because suspended connections are not
 * polled, so the number of polled sockets is small. */
static pl_status start_daemon(struct http *h, pl_err *err)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                     MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_USE_ERROR_LOG;
    char *cert = NULL, *key = NULL;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, NULL},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    pl_status s = PL_OK;

    if (h->o.cert_file) {
        s = read_pem(&cert, h->o.cert_file, err);
        if (s == PL_OK)
            s = read_pem(&key, h->o.cert_key_file, err);
        flags |= MHD_USE_TLS;
        tls[0].ptr_value = cert;
        tls[1].ptr_value = key;
    }
    if (s == PL_OK) {
        /* Libmicrohttpd counts connections in each of its workers. A worker
         * must never reach its limit because of a race (see http_listen.c), so
         * each worker's limit is above that of the whole server. */
        h->daemon = MHD_start_daemon(
            flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER,
            on_complaint, h, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_WORKER,
            MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)(N_WORKER * (h->o.max_connections + 1)),
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->o.timeout_s,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEAD_BYTES,
            MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)h->o.max_of_address,
            MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
            MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, h,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY,
            h->o.cert_file ? tls : tls + 2, MHD_OPTION_END);
        if (!h->daemon && h->o.cert_file)
            s = server_fail(err, PL_IO, "TLS: cannot use %s and %s (%s)",
                            h->o.cert_file, h->o.cert_key_file, h->said);
        else if (!h->daemon)
            s = server_fail(err, PL_IO, "cannot start libmicrohttpd: %s",
                            h->said[0] ? h->said : strerror(errno));
    }
    free(cert);
    if (key)
        explicit_bzero(key, strlen(key));
    free(key);
    return s;
}

/* Raises the limit of open files of this process (RLIMIT_NOFILE) to `n`, or as
 * far as is allowed. Shells usually set it to 1024. It counts not only sockets
 * but also model files and devices. */
static void raise_limit(rlim_t n)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n)
        return;
    limit.rlim_cur = n < limit.rlim_max ? n : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

pl_status http_accept(struct http *h, pl_err *err)
{
    pl_status s = http_listen(h, err);
    int e;

    if (s != PL_OK)
        return s;
    e = pthread_create(&h->thread, NULL, http_listen_thread, h);
    h->has_thread = e == 0;
    if (e != 0)
        return server_fail(err, PL_IO,
                           "cannot start the listening thread: %s; raise the "
                           "limits of threads and memory (ulimit -u, -v)",
                           strerror(e));
    return PL_OK;
}

/* Opens all file descriptors of the server, and starts libmicrohttpd and all
 * threads. On failure, the caller cleans up with http_free. */
static pl_status open_all(struct http *h, pl_err *err)
{
    struct rlimit limit = {0};
    pl_status s;

    raise_limit(2 * (rlim_t)h->o.max_connections);
    getrlimit(RLIMIT_NOFILE, &limit);
    h->n_idle = limit.rlim_cur < 1 << 20 ? (int)limit.rlim_cur : 1 << 20;
    h->idle = calloc((size_t)h->n_idle, sizeof *h->idle);
    if (!h->idle)
        return server_fail(err, PL_NO_MEMORY,
                           "out of memory for the HTTP server");
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->wake_fd < 0 || h->watch_fd < 0)
        return server_fail(err, PL_IO,
                           "cannot open file descriptors for the server: %s; "
                           "raise \"ulimit -n\"",
                           strerror(errno));
    h->port = h->o.port;
    h->loopback = true;
    s = http_bind(h, err);
    if (s == PL_OK)
        s = start_daemon(h, err);
    if (s != PL_OK)
        return s;
    h->running = true;
    if (!http_workers_start(h))
        return server_fail(
            err, PL_IO,
            "cannot start the threads that handle requests; raise "
            "the limits of threads and memory (ulimit -u, -v)");
    return h->o.held ? PL_OK : http_accept(h, err);
}

pl_status http_start(struct http **out, const struct http_options *o,
                     const struct http_route *route, int n_route,
                     http_error_fn *error, void *user, pl_err *err)
{
    struct http *h;
    pl_status s = check_options(o, err);

    *out = NULL;
    if (s != PL_OK)
        return s;
    h = calloc(1, sizeof *h);
    if (!h)
        return server_fail(err, PL_NO_MEMORY,
                           "out of memory for the HTTP server");
    h->o = *o;
    fill_defaults(&h->o);
    h->route = route;
    h->n_route = n_route;
    h->error = error;
    h->user = user;
    h->watch_fd = h->wake_fd = -1;
    h->retry_s = atoi(HTTP_RETRY_S);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->wake, NULL);
    pthread_mutex_init(&h->log_lock, NULL);
    s = open_all(h, err);
    if (s == PL_OK)
        *out = h;
    else
        http_free(h);
    return s;
}

/* ---- the running server, and stopping it --------------------------------- */

void http_pause(struct http *h, bool pause)
{
    const struct timespec moment = {0, 500000};

    atomic_store(&h->paused, pause);
    http_wake(h);
    while (h->has_thread && atomic_load(&h->is_paused) != pause)
        nanosleep(&moment, NULL);
}

const int *http_sockets(const struct http *h, int *n)
{
    *n = h->n_listen;
    return h->listen_fd;
}

void http_set_retry(struct http *h, int seconds)
{
    atomic_store(&h->retry_s, seconds);
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_load(const struct http *h, int *n_connection, int *n_request)
{
    *n_connection = h->n_connection;
    *n_request = h->n_request;
}

void http_drain(struct http *h)
{
    atomic_store(&h->draining, true);
    http_wake(h);
}

/* Returns the next request that http_stop has not cut off yet, and marks it as
 * cut off. The caller gets a reference to the request. NULL if all requests are
 * cut off. */
static struct http_request *next_to_cut(struct http *h)
{
    struct http_request *r;

    pthread_mutex_lock(&h->lock);
    for (r = h->first; r && r->cut; r = r->next)
        ;
    if (r) {
        r->cut = true;
        http_request_hold(r);
    }
    pthread_mutex_unlock(&h->lock);
    return r;
}

/* Stops the server. libmicrohttpd requires that no connection is suspended when
 * it stops, so http_request_leave resumes the connection of each request. Once
 * `stopping` is set, no connection is suspended again. */
void http_stop(struct http *h)
{
    struct http_request *r;

    atomic_store(&h->draining, true);
    atomic_store(&h->stopping, true);
    if (h->has_thread) {
        http_wake(h);
        pthread_join(h->thread, NULL);
        h->has_thread = false;
    }
    while ((r = next_to_cut(h))) {
        http_request_leave(r);
        http_request_drop(r);
    }
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
    http_hands_stop(h);
}

void http_free(struct http *h)
{
    if (!h)
        return;
    http_stop(h);
    http_unlisten(h);
    if (h->watch_fd >= 0)
        close(h->watch_fd);
    if (h->wake_fd >= 0)
        close(h->wake_fd);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->log_lock);
    free(h->idle);
    free(h);
}
