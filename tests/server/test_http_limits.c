/* Rejected requests: bodies that are too large or too slow, malformed requests,
 * too many connections. Invalid options are rejected too. */
#include "lib/alloc_fail.h"
#include "lib/http_try.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HOST " HTTP/1.1\r\nHost: a\r\n"

static void has(const char *head, const char *line)
{
    if (!strcasestr(head, line))
        fail_msg("no \"%s\" in: %s", line, head);
}

/* ---- bodies ---------------------------------------------------------------*/

/* Returns a request with a body of n bytes, with a Content-Length or in
 * chunks. */
static char *posting(const char *path, size_t n, size_t chunk, size_t *len)
{
    char *s = test_need(2 * n + 1000, 1);
    size_t at;

    if (chunk == 0) {
        at = (size_t)sprintf(s, "POST %s" HOST "Content-Length: %zu\r\n\r\n",
                             path, n);
        memset(s + at, 'x', n);
        *len = at + n;
        return s;
    }
    at = (size_t)sprintf(s, "POST %s" HOST "Transfer-Encoding: chunked\r\n\r\n",
                         path);
    for (size_t left = n; left > 0;) {
        size_t now = left < chunk ? left : chunk;

        at += (size_t)sprintf(s + at, "%zx\r\n", now);
        memset(s + at, 'x', now);
        at += now + (size_t)sprintf(s + at + now, "\r\n");
        left -= now;
    }
    *len = at + (size_t)sprintf(s + at, "0\r\n\r\n");
    return s;
}

static void post(struct http_try *t, const char *path, size_t n, size_t chunk,
                 int status)
{
    struct try_client c;
    struct try_answer a;
    size_t len;
    char *s = posting(path, n, chunk, &len);

    try_connect(t, &c);
    try_send_bytes(&c, s, len);
    try_read(&c, &a, false);
    if (a.status != status)
        fail_msg("%zu in chunks of %zu: %s", n, chunk, a.head);
    if (status == 200) {
        assert_int_equal(a.n_body, n);
        for (size_t i = 0; i < n; i++)
            assert_true(a.body[i] == 'x');
    } else {
        assert_string_equal(
            a.body, "413 the request body is too large; send a smaller one");
    }
    free(a.body);
    try_close(&c);
    free(s);
}

TEST(http_bodies_have_a_limit)
{
    static const size_t chunk[] = {0, 7, 1000, 1 << 20};
    struct http_options o = {.max_body = 100000};
    struct http_try t;

    try_start(&t, &o);
    for (size_t i = 0; i < sizeof chunk / sizeof chunk[0]; i++) {
        post(&t, "/echo", 0, chunk[i], 200);
        post(&t, "/echo", 1, chunk[i], 200);
        post(&t, "/echo", 99999, chunk[i], 200);
        post(&t, "/echo", 100000, chunk[i], 200);
        post(&t, "/echo", 100001, chunk[i], 413);
        post(&t, "/echo", 3000000, chunk[i], 413);
    }
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

/* Checks that n bytes of a request, and the bytes after them, get one response
 * with this status. */
static void is_refused(struct http_try *t, const char *text, size_t n,
                       const char *behind, int status)
{
    struct try_client c;
    struct try_answer a;

    try_connect(t, &c);
    try_send_bytes(&c, text, n);
    try_send_bytes(&c, behind, strlen(behind));
    try_read(&c, &a, false);
    if (a.status != status)
        fail_msg("%s%s", text, a.head);
    has(a.head, "\r\nConnection: close\r\n");
    free(a.body);
    try_ends(&c);
    try_close(&c);
}

/* The announced body is not waited for. */
TEST(http_announced_bodies_are_refused_at_once)
{
    static const char *const keys[] = {"one"};
    static const struct {
        const char *request;
        int status;
    } rows[] = {
        {"POST /echo" HOST "x-api-key: one\r\nContent-Length: 101\r\n\r\n",
         413},
        {"POST /echo" HOST "Content-Length: 100\r\n\r\n", 401},
        {"POST /no" HOST "x-api-key: one\r\nContent-Length: 9\r\n\r\n", 404},
        {"PUT /echo" HOST "x-api-key: one\r\nContent-Length: 9\r\n\r\n", 405},
        {"POST /echo" HOST "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
         401},
        {"POST /echo" HOST "Transfer-Encoding: chunked\r\n\r\n", 401},
    };
    struct http_options o = {.max_body = 100, .key = keys, .n_key = 1};
    struct http_try t;

    try_start(&t, &o);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        is_refused(&t, rows[i].request, strlen(rows[i].request), "",
                   rows[i].status);
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

TEST(http_who_asks_before_sending_is_told_to_go_on)
{
    struct try_client c;
    struct try_answer a;
    struct http_try t;

    try_start(&t, NULL);
    try_connect(&t, &c);
    try_send(&c, "POST /echo" HOST "Expect: 100-continue\r\n"
                 "Content-Length: 4\r\n\r\n");
    try_read(&c, &a, true);
    assert_int_equal(a.status, 100);
    free(a.body);
    try_send(&c, "body");
    try_read(&c, &a, false);
    assert_string_equal(a.body, "body");
    free(a.body);
    try_close(&c);
    try_stop(&t);
}

TEST(http_bodies_announced_twice_are_refused)
{
    struct http_try t;

    try_start(&t, NULL);
    try_ask(&t,
            "POST /echo" HOST "Content-Length: 4\r\nContent-Length: 5\r\n\r\n"
            "body!",
            400,
            "400 the length of the body is given twice; send either one "
            "Content-Length or one Transfer-Encoding",
            NULL);
    try_ask(&t,
            "POST /echo" HOST "Content-Length: 4\r\n"
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "400 the length of the body is given twice; send either one "
            "Content-Length or one Transfer-Encoding",
            NULL);
    try_ask(&t, "POST /echo" HOST "Transfer-Encoding: gzip\r\n\r\nbody", 501,
            NULL, NULL);
    try_ask(&t,
            "POST /echo" HOST "Transfer-Encoding: chunked\r\n"
            "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
            501, NULL, NULL);
    try_ask(&t,
            "POST /echo" HOST "Content-Length: 99999999999999999999\r\n\r\n",
            413, NULL, NULL);
    try_stop(&t);
}

/* Others may parse these as different requests: a proxy would pass on requests
 * that it never saw. Nothing after such a request is read. */
TEST(http_requests_that_can_be_read_in_two_ways_are_refused)
{
    static const struct {
        const char *text;
        size_t n;
        int status;
    } rows[] = {
#define ROW(text, status) {text, sizeof text - 1, status}
        ROW("POST /echo" HOST "Content-Length : 2\r\n\r\n{}", 400),
        ROW("POST /echo" HOST "Transfer-Encoding : chunked\r\n\r\n"
            "2\r\n{}\r\n0\r\n\r\n",
            400),
        ROW("POST /echo" HOST "X: a\rContent-Length: 2\r\n\r\n", 400),
        ROW("POST /echo" HOST "X(y: z\r\n\r\n", 400),
        ROW("POST /echo" HOST "Host: b\r\n\r\n", 400),
        ROW("POST /echo" HOST "Transfer-Encoding: chunked\r\n"
            "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400),
        ROW("POST /echo HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n"
            "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            400),
        ROW("POST /echo" HOST "Transfer-Encoding: x, chunked\r\n\r\n"
            "2\r\n{}\r\n0\r\n\r\n",
            501),
#undef ROW
    };
    struct http_try t;

    try_start(&t, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        is_refused(&t, rows[i].text, rows[i].n, try_get("/hello", ""),
                   rows[i].status);
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

TEST(http_log_lines_steer_no_terminal)
{
    struct http_try t;

    try_start(&t, NULL);
    try_ask(&t, "\x1b[2J /hel\x1blo" HOST "\r\n", 404, NULL, NULL);
    try_load_is(&t, 0, 0);
    try_stop(&t);
    assert_non_null(strstr(t.log, "?[2J /hel?lo 404"));
    assert_null(strchr(t.log, '\x1b'));
}

/* ---- memory ---------------------------------------------------------------*/

/* Sends a body of n bytes while the server holds `held` other requests. The
 * response must have this status. */
static void expect_body(struct http_try *t, size_t n, bool chunked, int status,
                        int held)
{
    char head[128], *body = test_need(n + 16, 1);
    struct try_client c;
    struct try_answer a;

    memset(body, 'x', n);
    try_connect(t, &c);
    snprintf(head, sizeof head, "POST /echo" HOST "%s: ",
             chunked ? "Transfer-Encoding" : "Content-Length");
    try_send(&c, head);
    snprintf(head, sizeof head,
             chunked ? "chunked\r\n\r\n%zx\r\n" : "%zu\r\n\r\n", n);
    try_send(&c, head);
    try_send_bytes(&c, body, n);
    if (chunked)
        try_send_bytes(&c, "\r\n0\r\n\r\n", 7);
    try_read(&c, &a, false);
    assert_int_equal(a.status, status);
    assert_true((status == 503) ==
                (strstr(a.head, "\r\nRetry-After: 5\r\n") != NULL));
    free(a.body);
    try_close(&c);
    try_load_is(t, held, held);
    free(body);
}

/* One held body of a MiB leaves space for small ones only. */
TEST(http_bodies_at_once_have_a_limit)
{
    enum { MIB = 1 << 20 };
    struct http_options o = {.max_body = MIB, .max_bodies = MIB};
    char *body = test_need(MIB, 1);
    struct try_client c;
    struct try_answer a;
    struct http_request *r;
    struct http_try t;

    memset(body, 'x', MIB);
    try_start(&t, &o);
    expect_body(&t, MIB, false, 200, 0);
    try_connect(&t, &c);
    try_send(&c, "POST /hold" HOST "Content-Length: 1048576\r\n\r\n");
    try_send_bytes(&c, body, MIB);
    r = try_held(&t);
    expect_body(&t, MIB, false, 503, 1);
    expect_body(&t, MIB, true, 503, 1);
    expect_body(&t, 20000, false, 200, 1);
    expect_body(&t, 20000, true, 200, 1);
    http_respond(r, 200, NULL, NULL, 0);
    try_read(&c, &a, false);
    free(a.body);
    try_close(&c);
    try_load_is(&t, 0, 0);
    expect_body(&t, MIB, false, 200, 0);
    expect_body(&t, MIB, true, 200, 0);
    try_stop(&t);
    free(body);
}

/* ---- time -----------------------------------------------------------------*/

/* Silent clients, and those that send a byte now and then; none before its
 * time. */
TEST(http_slow_senders_are_cut)
{
    static const char *const begin[] = {
        "", "GET /hello HT", "POST /echo" HOST "Content-Length: 9\r\n\r\nbod",
        "POST /echo" HOST "Content-Length: 9999\r\n\r\n",
        "GET /hello HTTP/1.1\r\nX-"};
    enum { N = 5, SILENT = 3 };
    struct http_options o = {.timeout_s = 1};
    double began = test_seconds();
    struct try_client c[N];
    struct http_try t;
    int n_open = N;

    try_start(&t, &o);
    for (int i = 0; i < N; i++) {
        try_connect(&t, &c[i]);
        try_send_bytes(&c[i], begin[i], strlen(begin[i]));
    }
    while (n_open > 0) {
        n_open = 0;
        for (int i = 0; i < N; i++)
            n_open +=
                i < SILENT ? !try_closed(&c[i]) : try_send_bytes(&c[i], "x", 1);
        assert_true(n_open == N || test_seconds() - began >= TRY_SECOND);
        usleep(50000);
    }
    try_load_is(&t, 0, 0);
    for (int i = 0; i < N; i++)
        try_close(&c[i]);
    try_stop(&t);
}

/* ---- numbers --------------------------------------------------------------*/

TEST(http_connections_beyond_the_limit_wait_for_room)
{
    struct http_options o = {.max_connections = 3};
    struct try_client c[5];
    struct try_answer a;
    struct http_try t;

    try_start(&t, &o);
    for (int i = 0; i < 5; i++) {
        try_connect(&t, &c[i]);
        try_send(&c[i], try_get("/hello", ""));
    }
    for (int i = 0; i < 5; i++) {
        try_read(&c[i], &a, false);
        assert_string_equal(a.body, "hello");
        free(a.body);
        try_load_is(&t, i < 3 ? 3 : 5 - i, 0);
        try_close(&c[i]);
    }
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

/* Connections that are only open make way for new ones; those with a request
 * stay. */
TEST(http_connections_beyond_the_limit_replace_idle_ones)
{
    enum { MOST = 8, HELD = 2, IDLE = 12 };
    struct http_options o = {.max_connections = MOST};
    struct try_client held[HELD], idle[IDLE];
    struct http_request *r[HELD];
    struct try_answer a;
    struct http_try t;

    try_start(&t, &o);
    for (int i = 0; i < HELD; i++)
        r[i] = try_hold(&t, &held[i]);
    for (int i = 0; i < IDLE; i++)
        try_connect(&t, &idle[i]);
    for (int i = 0; i < 3; i++)
        try_ask(&t, try_get("/hello", ""), 200, "hello", NULL);
    try_ends(&idle[0]);
    for (int i = 0; i < HELD; i++) {
        http_respond(r[i], 200, NULL, "held", 4);
        try_read(&held[i], &a, false);
        assert_string_equal(a.body, "held");
        free(a.body);
        try_close(&held[i]);
    }
    for (int i = 0; i < IDLE; i++)
        try_close(&idle[i]);
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

TEST(http_connections_of_one_address_have_a_limit)
{
    struct http_options o = {.max_of_address = 2};
    struct try_client c[2], other;
    struct http_try t;

    try_start(&t, &o);
    for (int i = 0; i < 2; i++)
        try_connect(&t, &c[i]);
    try_load_is(&t, 2, 0);
    for (int i = 0; i < 3; i++) {
        try_connect(&t, &other);
        try_ends(&other);
        try_close(&other);
    }
    try_load_is(&t, 2, 0);
    try_close(&c[0]);
    try_load_is(&t, 1, 0);
    try_ask(&t, try_get("/hello", ""), 200, "hello", NULL);
    try_close(&c[1]);
    try_stop(&t);
}

TEST(http_heads_have_a_limit)
{
    enum { N = 1 << 20 };
    char *s = test_need(N, 1);
    struct http_try t;
    int n;

    try_start(&t, NULL);
    n = sprintf(s, "GET /hello" HOST "X-Long: ");
    memset(s + n, 'x', 10000);
    strcpy(s + n + 10000, "\r\n\r\n");
    try_ask(&t, s, 200, "hello", NULL);
    for (int kind = 0; kind < 3; kind++) {
        struct try_client c;
        struct try_answer a;

        memset(s, 'x', N);
        if (kind == 0) { /* one very long header line */
            memcpy(s + sprintf(s, "GET /hello" HOST "X-Long: "), "x", 1);
        } else if (kind == 1) { /* very many header lines */
            n = sprintf(s, "GET /hello" HOST);
            for (int i = 0; n < N - 32; i++)
                n += sprintf(s + n, "X-%d: y\r\n", i);
        } else { /* a very long path */
            memcpy(s, "GET /", 5);
        }
        try_connect(&t, &c);
        try_send_bytes(&c, s, N);
        try_read_head(&c, &a);
        assert_in_range(a.status, 400, 499);
        free(a.body);
        try_close(&c);
    }
    try_load_is(&t, 0, 0);
    try_stop(&t);
    free(s);
}

/* ---- malformed requests ---------------------------------------------------*/

/* Makes a request of well-formed parts, some of which are damaged at random.
 * Returns its length. */
static size_t damaged(uint64_t *random, char *out, size_t size)
{
    static const char *const piece[] = {
        "GET ",
        "POST ",
        "\r\n",
        "\n",
        "\r",
        " ",
        "/echo",
        "/hello",
        "/hold?",
        "/name/%2",
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/9",
        ":",
        "Host: a\r\n",
        "\r\n\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "5\r\nhello\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "Connection: close\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\n",
        "Cookie: a=\"b; c\r\n",
        " folded\r\n",
        "?a=%&&=;",
        "\t",
        "Range: x\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02",
        "\xff\xfe",
    };
    int n_piece = (int)(sizeof piece / sizeof piece[0]);
    size_t n = 0;

    if (test_below(random, 2) == 0)
        n = (size_t)sprintf(out, "POST /echo" HOST);
    for (int64_t i = test_below(random, 12); i >= 0 && n + 64 < size; i--)
        n += (size_t)sprintf(out + n, "%s", piece[test_below(random, n_piece)]);
    for (int64_t i = test_below(random, 4); i > 0 && n > 0; i--)
        out[test_below(random, (int64_t)n)] = (char)test_random(random);
    return n;
}

TEST(http_malformed_requests_harm_nobody)
{
    uint64_t random = test_seed();
    int rounds = test_long() ? 20000 : 1500;
    struct http_try t;

    try_start(&t, NULL);
    for (int i = 0; i < rounds; i++) {
        char text[2048];
        size_t n = damaged(&random, text, sizeof text), half;
        struct try_client c;

        half = (size_t)test_below(&random, (int64_t)n + 1);
        try_connect(&t, &c);
        if (try_send_bytes(&c, text, half))
            try_send_bytes(&c, text + half, n - half);
        shutdown(c.fd, SHUT_WR);
        /* reads until the server closes the connection */
        while (try_fill(&c, c.n + 1))
            ;
        try_close(&c);
        if (i % 100 == 0)
            try_ask(&t, try_get("/hello", ""), 200, "hello", NULL);
    }
    while (t.n_taken < t.n_held)
        http_respond(try_held(&t), 200, NULL, NULL, 0);
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

/* ---- starting -------------------------------------------------------------*/

static void refused(const struct http_options *o, pl_status s, const char *why)
{
    pl_err err;
    /* any value but NULL, which a failing http_start must replace */
    struct http *h = (void *)&err;

    assert_int_equal(http_start(&h, o, NULL, 0, try_error, NULL, &err), s);
    assert_null(h);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" is not in: %s", why, err.message);
    assert_int_equal(http_start(&h, o, NULL, 0, try_error, NULL, NULL), s);
}

TEST(http_start_names_what_is_wrong)
{
    static const char *const empty[] = {"one", ""};
    const char *rubbish = test_temp("rubbish.pem");
    char port[32];
    FILE *f = fopen(rubbish, "w");
    struct http_try t;

    assert_non_null(f);
    fputs("-----BEGIN RUBBISH-----\n", f);
    fclose(f);
    refused(&(struct http_options){.port = 65536}, PL_BAD_ARGUMENT,
            "port 65536");
    refused(&(struct http_options){.port = -1}, PL_BAD_ARGUMENT, "port -1");
    refused(&(struct http_options){.key = empty, .n_key = 2}, PL_BAD_ARGUMENT,
            "key 2 of 2: empty");
    refused(&(struct http_options){.prefix = "api"}, PL_BAD_ARGUMENT,
            "prefix \"api\"");
    refused(&(struct http_options){.prefix = "/"}, PL_BAD_ARGUMENT,
            "prefix \"/\"");
    refused(&(struct http_options){.prefix = ""}, PL_BAD_ARGUMENT, "prefix");
    refused(&(struct http_options){.timeout_s = -1}, PL_BAD_ARGUMENT,
            "timeout -1 s");
    refused(&(struct http_options){.host = "no such host"}, PL_BAD_ARGUMENT,
            "\"no such host\"");
    refused(&(struct http_options){.host = "192.0.2.1"}, PL_IO,
            "192.0.2.1, port 0");
    refused(&(struct http_options){.cert_file = "a"}, PL_BAD_ARGUMENT,
            "no key given");
    refused(&(struct http_options){.cert_key_file = "a"}, PL_BAD_ARGUMENT,
            "no certificate given");
    refused(&(struct http_options){.cert_file = "/no/such.pem",
                                   .cert_key_file = rubbish},
            PL_IO, "/no/such.pem: No such file");
    refused(
        &(struct http_options){.cert_file = rubbish, .cert_key_file = rubbish},
        PL_IO, "TLS: cannot use");
    try_start(&t, NULL);
    snprintf(port, sizeof port, "127.0.0.1, port %d", t.port);
    refused(&(struct http_options){.port = t.port}, PL_IO, port);
    refused(&(struct http_options){.port = t.port}, PL_IO,
            "stop the program that uses this port");
    try_stop(&t);
}

TEST(http_start_out_of_memory_gives_a_status)
{
    for (int64_t n = 0; alloc_each(&n);) {
        struct http *h;

        alloc_ran(http_start(&h, &(struct http_options){0}, NULL, 0, try_error,
                             NULL, NULL));
        http_free(h);
    }
}

/* Returns true if the connection was closed without a held request. */
static bool is_cut(struct http_try *t, struct try_client *c)
{
    char byte;

    while (!try_has_held(t)) {
        ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return true;
    }
    return false;
}

/* Each allocation fails once: the request is cut, and the next is served. */
TEST(http_requests_out_of_memory_are_cut)
{
    struct http_try t;
    bool failed = true;
    int n_cut = 0;

    try_start(&t, NULL);
    for (int64_t n = 1; failed; n++) {
        struct http_request *r;
        struct try_client c;
        bool ended = false;

        try_connect(&t, &c);
        /* a large buffer, so that the client makes no allocation that could
         * fail */
        c.cap = 1 << 20;
        c.buf = test_need(c.cap, 1);
        alloc_fail_at(n);
        try_send(&c, "POST /hold" HOST "X-Test: a\r\nContent-Length: 4\r\n\r\n"
                     "body");
        if (!is_cut(&t, &c)) {
            r = try_held(&t);
            http_set_header(r, "X-Test", "b");
            http_begin(r, 200, "text/plain");
            for (int i = 0; i < 3; i++)
                http_send(r, HOST, strlen(HOST));
            http_end(r);
            while (!ended && try_fill(&c, c.n + 1))
                ended = c.n > 5 && !memcmp(c.buf + c.n - 5, "0\r\n\r\n", 5);
        }
        failed = alloc_fail_off();
        assert_true(ended || failed);
        n_cut += !ended;
        try_close(&c);
        try_load_is(&t, 0, 0);
        try_ask(&t, try_get("/hello", ""), 200, "hello", NULL);
    }
    assert_true(n_cut > 5);
    try_stop(&t);
}

/* Asks for /hello through a Unix socket; returns false if nobody listens. */
static bool asks_at_path(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct try_client c = {.fd = fd};
    struct try_answer got;

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)(void *)&a, sizeof a) != 0) {
        close(fd);
        return false;
    }
    try_send(&c, try_get("/hello", ""));
    try_read(&c, &got, false);
    assert_string_equal(got.body, "hello");
    free(got.body);
    try_close(&c);
    return true;
}

/* A server that loads its models has bound its path: a second one is rejected
 * at once, and clients wait. Clients of a path may write any host. */
TEST(http_paths_are_taken_before_clients_are_let_in)
{
    static const char ask[] = "GET / HTTP/1.1\r\nHost: docker\r\n\r\n";
    char path[100], head[1000] = "";
    const struct http_options o = {.host = path, .held = true};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct http *first, *second = NULL;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    pl_err err;

    snprintf(path, sizeof path, "%s", test_temp("held.sock"));
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    TEST_OK(http_start(&first, &o, NULL, 0, try_error, NULL, &err), err);
    assert_int_equal(http_start(&second, &o, NULL, 0, try_error, NULL, &err),
                     PL_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(connect(fd, (struct sockaddr *)(void *)&a, sizeof a), 0);
    assert_int_equal(write(fd, ask, sizeof ask - 1), sizeof ask - 1);
    TEST_OK(http_accept(first, &err), err);
    assert_true(read(fd, head, sizeof head - 1) > 0);
    has(head, "HTTP/1.1 404");
    close(fd);
    http_stop(first);
    http_free(first);
    assert_int_equal(access(path, F_OK), -1);
}

/* A server listens at several addresses, Unix sockets among them, whose files
 * it removes. It replaces a socket that nobody listens at, and no other
 * file. */
TEST(http_listens_at_unix_sockets_and_several_addresses)
{
    char path[100], hosts[200];
    struct http_options o = {.host = hosts};
    struct http *second = NULL;
    struct http_try t;
    struct try_client c;
    struct try_answer got;
    pl_err err;

    snprintf(path, sizeof path, "%s", test_temp("a.sock"));
    snprintf(hosts, sizeof hosts, "127.0.0.1,%s", path);
    for (int again = 0; again < 2; again++) {
        try_start(&t, &o);
        assert_true(asks_at_path(path));
        try_connect(&t, &c);
        try_send(&c, try_get("/hello", ""));
        try_read(&c, &got, false);
        assert_string_equal(got.body, "hello");
        free(got.body);
        try_close(&c);
        assert_int_equal(
            http_start(&second, &o, NULL, 0, try_error, NULL, &err), PL_IO);
        assert_non_null(strstr(err.message, path));
        assert_true(asks_at_path(path));
        try_stop(&t);
        assert_int_equal(access(path, F_OK), -1);
        has(t.log, "unix GET /hello 200 ms=");
        if (!again) { /* makes the socket file that a killed server leaves */
            struct sockaddr_un a = {.sun_family = AF_UNIX};
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);

            snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
            assert_int_equal(bind(fd, (struct sockaddr *)(void *)&a, sizeof a),
                             0);
            close(fd);
        }
    }
    assert_true(http_is_path("a.sock,::1", 6) && http_is_path("a/b", 3));
    assert_false(http_is_path("::1,a.sock", 3) || http_is_path(".sock", 5));
    fclose(fopen(path, "w"));
    assert_int_equal(http_start(&second, &o, NULL, 0, try_error, NULL, &err),
                     PL_IO);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
}

TEST(http_listens_at_ipv6_where_there_is_any)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct http_options o = {.host = "::1"};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct try_client c = {.fd = fd};
    struct try_answer got;
    struct http_try t;

    if (fd < 0 || bind(fd, (struct sockaddr *)(void *)&a, sizeof a) != 0) {
        close(fd);
        TEST_SKIP("this machine has no ::1");
    }
    try_start(&t, &o);
    a.sin6_port = htons((uint16_t)t.port);
    assert_int_equal(connect(fd, (struct sockaddr *)(void *)&a, sizeof a), 0);
    try_send(&c, try_get("/hello", ""));
    try_read(&c, &got, false);
    assert_string_equal(got.body, "hello");
    free(got.body);
    try_close(&c);
    try_stop(&t);
}

TEST(http_speaks_tls)
{
    const char *cert = test_temp("cert.pem"), *key = test_temp("key.pem");
    char line[1024], text[4096] = "";
    struct http_options o = {.cert_file = cert, .cert_key_file = key};
    struct http_try t;
    FILE *f;

    if (system("command -v openssl >/dev/null 2>&1") != 0)
        TEST_SKIP("no openssl command to make a certificate with");
    snprintf(line, sizeof line,
             "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a "
             "-keyout '%s' -out '%s' >/dev/null 2>&1",
             key, cert);
    assert_int_equal(system(line), 0);
    try_start(&t, &o);
    snprintf(line, sizeof line,
             "printf 'POST /echo HTTP/1.1\\r\\nHost: a\\r\\n"
             "Connection: close\\r\\nContent-Length: 4\\r\\n\\r\\nbody' | "
             "openssl s_client -quiet -ign_eof "
             "-connect 127.0.0.1:%d 2>/dev/null",
             t.port);
    f = popen(line, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    pclose(f);
    has(text, "HTTP/1.1 200 OK\r\n");
    has(text, "\r\n\r\nbody");
    try_load_is(&t, 0, 0);
    try_stop(&t);
}
