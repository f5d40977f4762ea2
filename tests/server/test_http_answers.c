/* Responses arrive whole and in parts, on connections that stay open, with
 * clients that disconnect and clients that do not read. */
#include "lib/http_try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST " HTTP/1.1\r\nHost: a\r\n"

static void has(const char *head, const char *line)
{
    if (!strcasestr(head, line))
        fail_msg("no \"%s\" in: %s", line, head);
}

TEST(http_pipelined_requests_are_answered_in_order)
{
    enum { N = 100 };
    char *all = test_need(N, 200);
    struct try_client c;
    struct try_answer a;
    struct http_try t;
    size_t n = 0;

    try_start(&t, NULL);
    for (int i = 0; i < N; i++) {
        char body[16];

        snprintf(body, sizeof body, "body %d", i);
        if (i % 3 == 0)
            n += (size_t)sprintf(all + n, "GET /name/%d" HOST "\r\n", i);
        else if (i % 3 == 1)
            n += (size_t)sprintf(
                all + n, "POST /echo" HOST "Content-Length: %zu\r\n\r\n%s",
                strlen(body), body);
        else
            n += (size_t)sprintf(all + n, "GET /hold" HOST "\r\n");
    }
    try_connect(&t, &c);
    assert_true(try_send_bytes(&c, all, n));
    for (int i = 0; i < N; i++) {
        char want[16];

        snprintf(want, sizeof want, i % 3 == 0 ? "GET %d" : "body %d", i);
        if (i % 3 == 2)
            http_respond(try_held(&t), 200, NULL, want, strlen(want));
        try_read(&c, &a, false);
        assert_int_equal(a.status, 200);
        assert_string_equal(a.body, want);
        free(a.body);
    }
    try_load_is(&t, 1, 0);
    try_close(&c);
    try_stop(&t);
    free(all);
}

TEST(http_parts_arrive_as_they_are_sent)
{
    struct try_client c;
    struct try_answer a;
    struct http_request *r;
    struct http_try t;

    try_start(&t, NULL);
    try_connect(&t, &c);
    for (int round = 0; round < 3; round++) {
        try_send(&c, try_get("/hold", ""));
        r = try_held(&t);
        http_set_header(r, "X-More", "yes");
        http_begin(r, 200, "text/event-stream");
        try_read_head(&c, &a);
        assert_int_equal(a.status, 200);
        has(a.head, "\r\nX-More: yes\r\n");
        has(a.head, "\r\nContent-Type: text/event-stream\r\n");
        has(a.head, "\r\nTransfer-Encoding: chunked\r\n");
        free(a.body);
        assert_int_equal(c.n, 0);
        for (int i = 0; i < 50; i++) {
            char part[32];

            snprintf(part, sizeof part, "data: %d\n\n", i % 10);
            assert_true(http_send(r, part, strlen(part)));
            /* 5 bytes more than the data: "9\r\n" before it and "\r\n" after
             * it */
            assert_true(try_fill(&c, strlen(part) + 5));
            assert_int_equal(memcmp(c.buf, "9\r\n", 3), 0);
            assert_int_equal(memcmp(c.buf + 3, part, 9), 0);
            c.n = 0;
            assert_int_equal(http_backlog(r), 0);
            /* sends nothing, because an empty chunk would end the body */
            assert_true(http_send(r, "", 0));
        }
        http_end(r);
        assert_true(try_fill(&c, 5));
        assert_memory_equal(c.buf, "0\r\n\r\n", 5);
        c.n = 0;
    }
    try_close(&c);
    try_stop(&t);
}

/* Any number of parts of any size; and sent at once, before the worker has
 * begun to send. */
TEST(http_parts_make_up_the_whole)
{
    enum { N = 5 << 20 };
    uint64_t random = test_seed();
    char *all = test_need(N, 1);
    struct try_client c;
    struct try_answer a;
    struct http_try t;

    for (int i = 0; i < N; i++)
        all[i] = (char)test_random(&random);
    try_start(&t, NULL);
    try_connect(&t, &c);
    for (int round = 0; round < 4; round++) {
        size_t most = (size_t)16 << (4 * round);
        size_t total = round == 0 ? 20000 : N;
        struct http_request *r;

        try_send(&c, try_get("/hold", ""));
        r = try_held(&t);
        http_begin(r, 201, NULL);
        for (size_t at = 0; at < total;) {
            size_t n = 1 + (size_t)test_below(&random, (int64_t)most);

            n = n < total - at ? n : total - at;
            assert_true(http_send(r, all + at, n));
            at += n;
        }
        http_end(r);
        try_read(&c, &a, false);
        assert_int_equal(a.status, 201);
        assert_int_equal(a.n_body, total);
        assert_memory_equal(a.body, all, total);
        free(a.body);
    }
    try_send(&c, try_get("/hold", ""));
    http_respond(try_held(&t), 200, "application/octet-stream", all, N);
    try_read(&c, &a, false);
    assert_int_equal(a.n_body, N);
    assert_memory_equal(a.body, all, N);
    free(a.body);
    try_close(&c);
    try_stop(&t);
    free(all);
}

/* HTTP/1.0 has no chunks, and HEAD has no body. */
TEST(http_parts_reach_those_who_know_no_chunks)
{
    struct try_client c;
    struct try_answer a;
    struct http_request *r;
    struct http_try t;

    try_start(&t, NULL);
    try_connect(&t, &c);
    try_send(&c, "GET /hold HTTP/1.0\r\n\r\n");
    r = try_held(&t);
    http_begin(r, 200, NULL);
    assert_true(http_send(r, "one ", 4));
    assert_true(http_send(r, "two", 3));
    http_end(r);
    try_read(&c, &a, false);
    assert_string_equal(a.body, "one two");
    free(a.body);
    try_close(&c);

    try_connect(&t, &c);
    try_send(&c, "HEAD /hold" HOST "\r\n");
    r = try_held(&t);
    http_on_gone(r, try_gone, &t);
    http_begin(r, 200, NULL);
    try_read(&c, &a, true);
    assert_int_equal(a.status, 200);
    free(a.body);
    /* the connection is still open for another request */
    try_send(&c, try_get("/hello", ""));
    try_read(&c, &a, false);
    assert_string_equal(a.body, "hello");
    free(a.body);
    for (int i = 0; i < 1000; i++)
        assert_true(http_send(r, "nobody", 6));
    assert_int_equal(http_backlog(r), 0);
    http_end(r);
    try_gone_is(&t, 0);
    try_close(&c);
    try_stop(&t);
}

/* ---- clients that disconnect */

enum leaving { CLOSE, RESET, HALF_CLOSE, N_LEAVING };

static void leave(struct try_client *c, enum leaving how)
{
    struct linger none = {1, 0};

    if (how == HALF_CLOSE) {
        shutdown(c->fd, SHUT_WR);
        return;
    }
    if (how == RESET)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(c->fd);
    c->fd = -1;
}

TEST(http_who_leaves_before_the_answer_is_noticed_once)
{
    struct http_try t;

    try_start(&t, NULL);
    for (int how = 0; how < N_LEAVING; how++) {
        struct try_client c;
        struct http_request *r;

        try_connect(&t, &c);
        /* a pipelined request must not hide that the client has disconnected */
        try_send(&c, "POST /hold" HOST "Content-Length: 4\r\n\r\nbody"
                     "GET /hello" HOST "\r\n");
        r = try_held(&t);
        http_on_gone(r, try_gone, &t);
        try_load_is(&t, 1, 1);
        leave(&c, how);
        try_gone_is(&t, how + 1);
        /* the server closes the connection at once and keeps the request */
        try_load_is(&t, 0, 1);
        assert_string_equal(http_path(r), "/hold");
        assert_string_equal(http_header(r, "host"), "a");
        assert_string_equal(http_body(r, &(size_t){0}), "body");
        if (how == CLOSE) {
            http_respond(r, 200, NULL, "late", 4);
        } else {
            http_begin(r, 200, NULL);
            assert_false(http_send(r, "late", 4));
            assert_int_equal(http_backlog(r), 0);
            http_end(r);
        }
        try_load_is(&t, 0, 0);
        if (c.fd >= 0)
            try_close(&c);
    }
    try_gone_is(&t, N_LEAVING);
    try_stop(&t);
    assert_null(strstr(t.log, "/hello"));
    assert_non_null(strstr(t.log, "127.0.0.1 POST /hold - ms="));
    assert_non_null(strstr(t.log, "the client disconnected"));
}

TEST(http_who_leaves_within_the_answer_is_noticed_once)
{
    struct http_try t;

    try_start(&t, NULL);
    for (int how = 0; how < N_LEAVING; how++) {
        struct try_client c;
        struct try_answer a;
        struct http_request *r;

        r = try_hold(&t, &c);
        http_on_gone(r, try_gone, &t);
        http_begin(r, 200, NULL);
        try_read_head(&c, &a);
        free(a.body);
        assert_true(http_send(r, "some", 4));
        assert_true(try_fill(&c, 4));
        leave(&c, how);
        /* nothing sends, or a thread sends without end */
        while (how == CLOSE && http_send(r, "some more", 9))
            ;
        try_gone_is(&t, how + 1);
        assert_false(http_send(r, "some", 4));
        try_load_is(&t, 0, 1);
        http_end(r);
        try_load_is(&t, 0, 0);
        if (c.fd >= 0)
            try_close(&c);
        free(c.buf);
    }
    try_gone_is(&t, N_LEAVING);
    try_stop(&t);
}

TEST(http_who_leaves_after_the_answer_is_no_news)
{
    struct http_try t;

    try_start(&t, NULL);
    for (int how = 0; how < N_LEAVING; how++) {
        struct try_client c;
        struct try_answer a;
        struct http_request *r;

        r = try_hold(&t, &c);
        http_on_gone(r, try_gone, &t);
        http_respond(r, 200, NULL, "all", 3);
        try_read(&c, &a, false);
        assert_string_equal(a.body, "all");
        free(a.body);
        leave(&c, how);
        try_load_is(&t, 0, 0);
        if (c.fd >= 0)
            try_close(&c);
        free(c.buf);
    }
    try_gone_is(&t, 0);
    try_stop(&t);
}

TEST(http_who_has_left_is_told_at_once)
{
    struct try_client c;
    struct http_request *r;
    struct http_try t;

    try_start(&t, NULL);
    r = try_hold(&t, &c);
    try_close(&c);
    try_load_is(&t, 0, 1);
    http_on_gone(r, NULL, NULL);
    http_on_gone(r, try_gone, &t);
    assert_int_equal(atomic_load(&t.n_gone), 1);
    http_respond(r, 200, NULL, NULL, 0);

    r = try_hold(&t, &c);
    http_on_gone(r, try_gone, &t);
    http_on_gone(r, NULL, NULL);
    try_close(&c);
    try_load_is(&t, 0, 1);
    http_respond(r, 200, NULL, NULL, 0);
    try_load_is(&t, 0, 0);
    assert_int_equal(atomic_load(&t.n_gone), 1);
    try_stop(&t);
}

/* ---- clients that do not read ---------------------------------------------*/

TEST(http_sender_never_waits_for_who_reads_nothing)
{
    /* 64 MiB in all, more than the sockets buffer */
    enum { PART = 1 << 16, N = 1024 };
    struct http_options o = {.timeout_s = 1 << 20};
    char *part = test_need(PART, 1);
    struct try_client c;
    struct try_answer a;
    struct http_request *r;
    size_t backlog = 0;
    struct http_try t;

    try_start(&t, &o);
    r = try_hold(&t, &c);
    http_on_gone(r, try_gone, &t);
    http_begin(r, 200, NULL);
    for (int i = 0; i < N; i++) {
        memset(part, i, PART);
        assert_true(http_send(r, part, PART));
    }
    backlog = http_backlog(r);
    assert_in_range(backlog, (size_t)32 << 20, (size_t)PART * N);
    /* while this client reads nothing, others are served */
    for (int i = 0; i < 20; i++)
        try_ask(&t, try_get("/hello", ""), 200, "hello", NULL);
    http_end(r);
    try_read(&c, &a, false);
    assert_int_equal(a.n_body, (size_t)PART * N);
    for (int i = 0; i < N; i++) {
        memset(part, i, PART);
        assert_memory_equal(a.body + (size_t)i * PART, part, PART);
    }
    free(a.body);
    try_gone_is(&t, 0);
    try_close(&c);
    try_stop(&t);
    free(part);
}

TEST(http_who_reads_nothing_for_too_long_is_gone)
{
    double began = test_seconds();
    struct http_options o = {.timeout_s = 1};
    char *part = test_need(1 << 20, 1);
    struct try_client c;
    struct http_request *r;
    struct http_try t;

    try_start(&t, &o);
    r = try_hold(&t, &c);
    http_on_gone(r, try_gone, &t);
    http_begin(r, 200, NULL);
    for (int i = 0; i < 32; i++)
        http_send(r, part, 1 << 20);
    try_gone_is(&t, 1);
    assert_true(test_seconds() - began >= TRY_SECOND);
    assert_false(http_send(r, part, 1));
    http_end(r);
    try_load_is(&t, 0, 0);
    try_close(&c);
    try_stop(&t);
    free(part);
}

/* Waits until the server has closed a new connection that sends no request. */
static void outlast_timeout(struct http_try *t)
{
    struct try_client idle;

    try_connect(t, &idle);
    try_ends(&idle);
    try_close(&idle);
}

/* A client that waits for a slow response is not slow. */
TEST(http_answers_may_take_longer_than_the_timeout)
{
    struct http_options o = {.timeout_s = 1};
    struct try_client c;
    struct try_answer a;
    struct http_request *r;
    struct http_try t;

    try_start(&t, &o);
    r = try_hold(&t, &c);
    outlast_timeout(&t);
    http_begin(r, 200, NULL);
    outlast_timeout(&t);
    assert_true(http_send(r, "late", 4));
    http_end(r);
    try_read(&c, &a, false);
    assert_string_equal(a.body, "late");
    free(a.body);
    try_close(&c);
    try_stop(&t);
}
