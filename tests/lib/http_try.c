/* Starts the HTTP layer with handlers for tests, and clients; http_try.h
 * describes the functions. */
#include "lib/http_try.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST " HTTP/1.1\r\nHost: localhost\r\n\r\n"

/* ---- the server -----------------------------------------------------------*/

static void say(struct http_request *r, const char *text)
{
    http_respond(r, 200, "text/plain", text, strlen(text));
}

static void on_warned(void *user, struct http_request *r)
{
    (void)user;
    http_set_header(r, "Plait-Warning", "beware");
    say(r, "hello");
}

static void on_hello(void *user, struct http_request *r)
{
    (void)user;
    say(r, "hello");
}

static void on_open(void *user, struct http_request *r)
{
    (void)user;
    say(r, "open");
}

static void on_echo(void *user, struct http_request *r)
{
    size_t n;
    const char *body = http_body(r, &n);

    (void)user;
    assert_int_equal(body[n], '\0');
    http_respond(r, 200, "text/plain", body, n);
}

static void on_name(void *user, struct http_request *r)
{
    char text[300];

    (void)user;
    snprintf(text, sizeof text, "%s %s", http_method(r), http_name(r));
    say(r, text);
}

static void on_more(void *user, struct http_request *r)
{
    char text[300];

    (void)user;
    snprintf(text, sizeof text, "more %s", http_name(r));
    say(r, text);
}

static void on_query(void *user, struct http_request *r)
{
    const char *a = http_query(r, "a"), *b = http_query(r, "b");
    char text[300];

    (void)user;
    snprintf(text, sizeof text, "%s|%s", a ? a : "-", b ? b : "-");
    say(r, text);
}

static void on_header(void *user, struct http_request *r)
{
    const char *value = http_header(r, "x-TEST");

    (void)user;
    say(r, value ? value : "-");
}

static void on_client(void *user, struct http_request *r)
{
    char text[32];

    (void)user;
    snprintf(text, sizeof text, "%llx", (unsigned long long)http_client(r));
    say(r, text);
}

static void on_hold(void *user, struct http_request *r)
{
    struct http_try *t = user;

    pthread_mutex_lock(&t->lock);
    t->held[t->n_held++ % TRY_HELD] = r;
    pthread_cond_broadcast(&t->came);
    pthread_mutex_unlock(&t->lock);
}

static void on_wrong(void *user, struct http_request *r)
{
    (void)user;
    http_set_header(r, "X-Wrong", "a\r\nX-Planted: b");
    http_set_header(r, "X-Right", "c");
    say(r, "wrong");
}

static const struct http_route routes[] = {
    {"GET", "/warned", on_warned, 0},      {"GET", "/hello", on_hello, 0},
    {"GET", "/open", on_open, HTTP_OPEN},  {"POST", "/echo", on_echo, 0},
    {"GET", "/name/{}", on_name, 0},       {"DELETE", "/name/{}", on_name, 0},
    {"POST", "/name/{}/more", on_more, 0}, {"GET", "/query", on_query, 0},
    {"GET", "/header", on_header, 0},      {"GET", "/client", on_client, 0},
    {"GET", "/hold", on_hold, 0},          {"POST", "/hold", on_hold, 0},
    {"GET", "/wrong", on_wrong, 0},
};

char *try_error(int status, const char *message, const char *path)
{
    char *text;

    assert_non_null(path);
    assert_true(asprintf(&text, "%d %s", status, message) > 0);
    return text;
}

static void add_log(void *user, pl_log_level level, const char *text)
{
    struct http_try *t = user;
    size_t n = strlen(text);

    if (level == PL_LOG_DEBUG || t->n_log + n + 2 > sizeof t->log)
        return;
    memcpy(t->log + t->n_log, text, n);
    t->n_log += n;
    t->log[t->n_log++] = '\n';
}

void try_start(struct http_try *t, const struct http_options *o)
{
    struct http_options mine = o ? *o : (struct http_options){0};
    pl_err err;

    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->came, NULL);
    if (!mine.hosts) /* tests of allowed hosts set o->hosts themselves */
        mine.hosts = "*";
    if (!mine.log) {
        mine.log = add_log;
        mine.log_user = t;
    }
    TEST_OK(http_start(&t->h, &mine, routes, sizeof routes / sizeof routes[0],
                       try_error, t, &err),
            err);
    t->port = http_port(t->h);
    assert_in_range(t->port, 1, 65535);
}

void try_stop(struct http_try *t)
{
    http_free(t->h);
    pthread_cond_destroy(&t->came);
    pthread_mutex_destroy(&t->lock);
}

struct http_request *try_held(struct http_try *t)
{
    struct http_request *r;

    pthread_mutex_lock(&t->lock);
    while (t->n_taken == t->n_held)
        pthread_cond_wait(&t->came, &t->lock);
    r = t->held[t->n_taken++ % TRY_HELD];
    pthread_mutex_unlock(&t->lock);
    return r;
}

struct http_request *try_hold(struct http_try *t, struct try_client *c)
{
    for (;;) {
        try_connect(t, c);
        try_send_bytes(c, "GET /hold" HOST, strlen("GET /hold" HOST));
        TEST_UNTIL(try_has_held(t) || try_closed(c));
        if (try_has_held(t))
            return try_held(t);
        try_close(c);
    }
}

bool try_has_held(struct http_try *t)
{
    bool has;

    pthread_mutex_lock(&t->lock);
    has = t->n_taken < t->n_held;
    pthread_mutex_unlock(&t->lock);
    return has;
}

void try_gone(void *user)
{
    struct http_try *t = user;

    atomic_fetch_add(&t->n_gone, 1);
}

void try_gone_is(struct http_try *t, int n)
{
    TEST_UNTIL(atomic_load(&t->n_gone) >= n);
    assert_int_equal(atomic_load(&t->n_gone), n);
}

static bool has_load(const struct http_try *t, int n_connection, int n_request)
{
    int nc, nr;

    http_load(t->h, &nc, &nr);
    return nc == n_connection && nr == n_request;
}

void try_load_is(struct http_try *t, int n_connection, int n_request)
{
    TEST_UNTIL(has_load(t, n_connection, n_request));
}

/* ---- clients --------------------------------------------------------------*/

static bool connect_to(const struct http_try *t, int fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)t->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    assert_true(fd >= 0);
    return connect(fd, (struct sockaddr *)(void *)&a, sizeof a) == 0;
}

void try_connect(struct http_try *t, struct try_client *c)
{
    *c = (struct try_client){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    if (!connect_to(t, c->fd))
        fail_msg("connect: %s", strerror(errno));
}

bool try_connects(const struct http_try *t)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool does = connect_to(t, fd);

    close(fd);
    return does;
}

void try_close(struct try_client *c)
{
    close(c->fd);
    free(c->buf);
    *c = (struct try_client){.fd = -1};
}

bool try_closed(const struct try_client *c)
{
    char next;
    ssize_t n = recv(c->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool try_send_bytes(struct try_client *c, const void *data, size_t n)
{
    const char *from = data;

    while (n > 0) {
        ssize_t sent = send(c->fd, from, n, MSG_NOSIGNAL);

        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return false;
        if (sent < 0)
            fail_msg("send: %s", strerror(errno));
        from += sent;
        n -= (size_t)sent;
    }
    return true;
}

void try_send(struct try_client *c, const char *text)
{
    assert_true(try_send_bytes(c, text, strlen(text)));
}

/* Reads more bytes into the buffer, but not more than will soon be parsed.
 * Returns false at the end of the connection. */
static bool more(struct try_client *c)
{
    enum { MOST = 32 << 10 };
    ssize_t n;

    if (c->cap - c->n < MOST + 1) {
        c->cap = 2 * c->cap + MOST + 1;
        c->buf = realloc(c->buf, c->cap);
        assert_non_null(c->buf);
    }
    n = recv(c->fd, c->buf + c->n, MOST, 0);
    if (n < 0 && errno != ECONNRESET)
        fail_msg("the server says nothing: %s", strerror(errno));
    c->n += n > 0 ? (size_t)n : 0;
    c->buf[c->n] = '\0';
    return n > 0;
}

bool try_fill(struct try_client *c, size_t n)
{
    while (c->n < n) {
        if (!more(c))
            return false;
    }
    return true;
}

static void eat(struct try_client *c, size_t n)
{
    assert_true(n <= c->n);
    memmove(c->buf, c->buf + n, c->n - n + 1);
    c->n -= n;
}

static void add(struct try_answer *a, const char *data, size_t n)
{
    if (a->n_body + n >= a->cap_body) {
        a->cap_body = 2 * a->cap_body + n + 1;
        a->body = realloc(a->body, a->cap_body);
        assert_non_null(a->body);
    }
    memcpy(a->body + a->n_body, data, n);
    a->n_body += n;
    a->body[a->n_body] = '\0';
}

void try_read_head(struct try_client *c, struct try_answer *a)
{
    char *end;
    size_t n;

    *a = (struct try_answer){0};
    while (!(end = c->n ? strstr(c->buf, "\r\n\r\n") : NULL)) {
        if (!more(c))
            fail_msg("the answer ends in its head: \"%s\"", c->n ? c->buf : "");
    }
    n = (size_t)(end - c->buf) + 4;
    assert_true(n < sizeof a->head);
    memcpy(a->head, c->buf, n);
    assert_int_equal(sscanf(a->head, "HTTP/1.%*d %d ", &a->status), 1);
    eat(c, n);
    add(a, "", 0);
}

/* Reads a chunk of a chunked body and appends its data to the body. Returns the
 * length of the data. */
static size_t read_chunk(struct try_client *c, struct try_answer *a)
{
    char *end;
    size_t n, at;

    while (!(end = c->n ? strstr(c->buf, "\r\n") : NULL)) {
        if (!more(c))
            fail_msg("the answer ends in a chunk");
    }
    n = strtoul(c->buf, NULL, 16);
    at = (size_t)(end - c->buf) + 2;
    if (!try_fill(c, at + n + 2))
        fail_msg("the answer ends in a chunk of %zu", n);
    add(a, c->buf + at, n);
    eat(c, at + n + 2);
    return n;
}

void try_read(struct try_client *c, struct try_answer *a, bool no_body)
{
    const char *line;

    try_read_head(c, a);
    if (no_body || a->status == 204 || a->status < 200)
        return;
    if (strcasestr(a->head, "\r\nTransfer-Encoding: chunked")) {
        while (read_chunk(c, a) > 0)
            ;
    } else if ((line = strcasestr(a->head, "\r\nContent-Length: "))) {
        size_t n = strtoul(line + 18, NULL, 10);

        if (!try_fill(c, n))
            fail_msg("%zu bytes of %zu came", c->n, n);
        add(a, c->buf, n);
        if (n > 0)
            eat(c, n);
    } else {
        while (more(c))
            ;
        add(a, c->buf, c->n);
        eat(c, c->n);
    }
}

void try_ends(struct try_client *c)
{
    while (more(c))
        ;
    if (c->n > 0)
        fail_msg("more came: \"%s\"", c->buf);
}

void try_ask(struct http_try *t, const char *request, int status,
             const char *body, char *head)
{
    struct try_client c;
    struct try_answer a;

    try_connect(t, &c);
    try_send(&c, request);
    try_read(&c, &a, !strncmp(request, "HEAD", 4));
    if (a.status != status)
        fail_msg("%s: %s%s", request, a.head, a.body);
    if (body)
        assert_string_equal(a.body, body);
    if (head)
        memcpy(head, a.head, sizeof a.head);
    free(a.body);
    try_close(&c);
}

const char *try_get(const char *path, const char *more_lines)
{
    static _Thread_local char text[4096];

    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
             path, more_lines);
    return text;
}
