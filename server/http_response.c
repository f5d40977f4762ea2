/* Responses: the handler of a request appends data to a buffer, and
 * libmicrohttpd's worker takes data from this buffer to send it. While the
 * buffer is empty, the worker suspends the connection. */
#include "http_inner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- functions that libmicrohttpd's workers call ------------------------- */

void http_resume(struct http_request *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->connection);
}

/* Suspends the request's connection until http_resume, and adds the
 * connection's socket to the epoll set that reports disconnecting clients.
 * Caller holds r->lock. */
static void sleep_on(struct http_request *r)
{
    http_watch(r);
    r->suspended = true;
    MHD_suspend_connection(r->connection);
}

/* Copies the next bytes of a chunked response, at most `max`, to `buf` for
 * libmicrohttpd. If there are none yet, suspends the connection and returns
 * 0. */
static ssize_t take(void *user, uint64_t at, char *buf, size_t max)
{
    struct http_request *r = user;
    size_t n = 0;
    ssize_t result = 0;

    (void)at;
    pthread_mutex_lock(&r->lock);
    n = r->end - r->from < max ? r->end - r->from : max;
    if (r->broken || atomic_load(&r->h->stopping) || (r->gone && !r->ended)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        memcpy(buf, r->data + r->from, n);
        r->from += n;
        result = (ssize_t)n;
    } else if (r->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        sleep_on(r);
    }
    pthread_mutex_unlock(&r->lock);
    return result;
}

static void free_body(void *data)
{
    free(data);
}

static struct MHD_Response *response_of(struct http_request *r)
{
    struct MHD_Response *response;

    /* HEAD gets an empty response object, because libmicrohttpd would send the
     * last chunk of a chunked response even to HEAD. */
    if (r->kind == HTTP_PARTS && !strcmp(r->method, "HEAD"))
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (r->kind == HTTP_PARTS)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10,
                                                 take, r, NULL);
    response = MHD_create_response_from_buffer_with_free_callback(
        r->end, r->data, free_body);
    if (response) {
        r->data = NULL;
        r->end = r->cap = 0;
    }
    return response;
}

/* Lets scripts of other origins read the headers that the handler set. Browsers
 * hide all but a few. */
static void expose(const struct http_request *r, struct MHD_Response *response)
{
    char names[1024] = "Retry-After";
    size_t n = strlen(names);

    for (int i = 0; i < r->n_line; i++) {
        const char *name = r->line[i].name;

        if (strcmp(name, "Retry-After") != 0 &&
            strncmp(name, "Access-Control-", 15) != 0 &&
            n + strlen(name) + 2 < sizeof names)
            n += (size_t)sprintf(names + n, ", %s", name);
    }
    MHD_add_response_header(response, "Access-Control-Expose-Headers", names);
}

/* Creates the response object of libmicrohttpd with all headers; NULL if out of
 * memory. Caller holds r->lock. */
static struct MHD_Response *prepare(struct http_request *r)
{
    const char *origin = http_allowed_origin(r);
    struct MHD_Response *response = response_of(r);

    if (!response)
        return NULL;
    r->queued = true;
    if (r->type)
        MHD_add_response_header(response, "Content-Type", r->type);
    if (origin)
        MHD_add_response_header(response, "Access-Control-Allow-Origin",
                                origin);
    if (origin)
        expose(r, response);
    if (r->h->o.origin && (!origin || strcmp(origin, "*") != 0))
        MHD_add_response_header(response, "Vary", "Origin");
    if (atomic_load(&r->h->draining) || r->close)
        MHD_add_response_header(response, "Connection", "close");
    for (int i = 0; i < r->n_line; i++)
        MHD_add_response_header(response, r->line[i].name, r->line[i].value);
    if ((r->status == MHD_HTTP_TOO_MANY_REQUESTS ||
         r->status == MHD_HTTP_SERVICE_UNAVAILABLE) &&
        !MHD_get_response_header(response, "Retry-After"))
        MHD_add_response_header(response, "Retry-After", HTTP_RETRY_S);
    return response;
}

/* Queues the response of a request without holding r->lock, to avoid a
 * deadlock: libmicrohttpd calls `take`, which locks r->lock, while it holds a
 * lock of the response. */
enum MHD_Result http_proceed(struct http_request *r)
{
    struct MHD_Response *response = NULL;
    enum MHD_Result ok = MHD_NO;

    pthread_mutex_lock(&r->lock);
    if (r->broken || atomic_load(&r->h->stopping) || (r->gone && !r->ended)) {
        ok = MHD_NO;
    } else if (r->kind != HTTP_NO_RESPONSE) {
        response = prepare(r);
    } else {
        sleep_on(r);
        ok = MHD_YES;
    }
    pthread_mutex_unlock(&r->lock);
    if (response) {
        ok = MHD_queue_response(r->connection, (unsigned)r->status, response);
        MHD_destroy_response(response);
    }
    return ok;
}

/* ---- functions that handlers call ---------------------------------------- */

void http_set_header(struct http_request *r, const char *name,
                     const char *value)
{
    size_t n = strlen(name) + 1;
    struct http_pair *more;
    char *text;

    pthread_mutex_lock(&r->lock);
    more = realloc(r->line, (size_t)(r->n_line + 1) * sizeof *more);
    if (more)
        r->line = more;
    text = more ? malloc(n + strlen(value) + 1) : NULL;
    if (text) {
        memcpy(text, name, n);
        memcpy(text + n, value, strlen(value) + 1);
        r->line[r->n_line++] = (struct http_pair){text, text + n};
    } else {
        r->broken = true;
    }
    pthread_mutex_unlock(&r->lock);
}

/* Makes space in the response buffer for `len` bytes after r->end, by moving or
 * enlarging the buffer. Returns false if out of memory. Caller holds
 * r->lock. */
static bool reserve(struct http_request *r, size_t len)
{
    char *bigger;

    if (r->from == r->end)
        r->from = r->end = 0;
    if (r->cap - r->end >= len)
        return true;
    if (r->from >= r->cap / 2 && r->cap - (r->end - r->from) >= len) {
        memmove(r->data, r->data + r->from, r->end - r->from);
        r->end -= r->from;
        r->from = 0;
        return true;
    }
    if (len > SIZE_MAX / 4 - r->cap)
        return false;
    bigger = realloc(r->data, 2 * r->cap + len);
    if (!bigger)
        return false;
    r->data = bigger;
    r->cap = 2 * r->cap + len;
    return true;
}

/* Appends `len` bytes to the response buffer. Returns false if out of memory.
 * Caller holds r->lock. */
static bool append(struct http_request *r, const void *data, size_t len)
{
    if (len && !reserve(r, len)) {
        r->broken = true;
        return false;
    }
    if (len)
        memcpy(r->data + r->end, data, len);
    r->end += len;
    return true;
}

/* Sets the kind, HTTP status and Content-Type of the response. From then on the
 * response can be sent. Caller holds r->lock. */
static void begin(struct http_request *r, enum http_kind kind, int status,
                  const char *type)
{
    assert(r->kind == HTTP_NO_RESPONSE);
    r->kind = kind;
    r->status = status;
    r->type = type ? strdup(type) : NULL;
    r->broken |= type && !r->type;
}

/* Ends the request. Removes the on_gone callback; if it is being called, waits
 * until it returns. Caller holds r->lock. */
static void end(struct http_request *r)
{
    r->ended = true;
    r->on_gone = NULL;
    while (r->notifying)
        pthread_cond_wait(&r->notified, &r->lock);
    http_resume(r);
}

void http_respond(struct http_request *r, int status, const char *type,
                  const void *body, size_t len)
{
    pthread_mutex_lock(&r->lock);
    begin(r, HTTP_WHOLE, status, type);
    append(r, body, len);
    end(r);
    pthread_mutex_unlock(&r->lock);
    http_request_drop(r);
}

void http_begin(struct http_request *r, int status, const char *type)
{
    pthread_mutex_lock(&r->lock);
    begin(r, HTTP_PARTS, status, type);
    http_resume(r);
    pthread_mutex_unlock(&r->lock);
}

bool http_send(struct http_request *r, const void *data, size_t len)
{
    bool good;

    pthread_mutex_lock(&r->lock);
    assert(r->kind == HTTP_PARTS && !r->ended);
    good = !r->gone && !r->broken;
    if (good && !r->dropped)
        good = append(r, data, len);
    if (len > 0)
        http_resume(r);
    pthread_mutex_unlock(&r->lock);
    return good;
}

size_t http_backlog(const struct http_request *r)
{
    struct http_request *of = (struct http_request *)r;
    size_t n;

    pthread_mutex_lock(&of->lock);
    n = r->end - r->from;
    pthread_mutex_unlock(&of->lock);
    return n;
}

void http_end(struct http_request *r)
{
    pthread_mutex_lock(&r->lock);
    assert(r->kind == HTTP_PARTS && !r->ended);
    end(r);
    pthread_mutex_unlock(&r->lock);
    http_request_drop(r);
}

void http_reject(struct http_request *r, int status, const char *message)
{
    bool texts = status != MHD_HTTP_NO_CONTENT;
    char *body = texts ? r->h->error(status, message, r->path) : NULL;

    pthread_mutex_lock(&r->lock);
    begin(r, HTTP_WHOLE, status, body ? "application/json" : NULL);
    if (body)
        append(r, body, strlen(body));
    r->ended = true;
    pthread_mutex_unlock(&r->lock);
    free(body);
}
