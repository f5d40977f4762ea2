/* Many threads and many connections are served, and draining and stopping end
 * them properly. */
#include "lib/http_try.h"

#include "server/http_inner.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST " HTTP/1.1\r\nHost: a\r\n"

/* Draining: accepted requests are served to the end, and new ones are rejected.
 * Even if the machine stalls for long, connections without a request yet stay
 * open. */
TEST(http_drain_serves_who_is_in)
{
    const struct http_options o = {.drain_s = 1 << 20};
    struct try_client in, kept;
    struct try_answer a;
    struct http_request *r;
    struct http_try t;

    try_start(&t, &o);
    try_connect(&t, &in);
    try_connect(&t, &kept);
    try_send(&in, try_get("/hold", ""));
    r = try_held(&t);
    http_begin(r, 200, NULL);
    try_read_head(&in, &a);
    free(a.body);
    assert_true(http_send(r, "one ", 4));
    /* otherwise the first part might arrive in one chunk with the next */
    assert_true(try_fill(&in, 9));
    try_load_is(&t, 2, 1);
    http_drain(t.h);
    TEST_UNTIL(!try_connects(&t));
    try_send(&kept, try_get("/hello", ""));
    try_read(&kept, &a, false);
    assert_int_equal(a.status, 503);
    assert_string_equal(a.body, "503 the server is stopping");
    assert_non_null(strstr(a.head, "\r\nRetry-After: 5\r\n"));
    free(a.body);
    try_ends(&kept);
    assert_true(http_send(r, "two", 3));
    http_end(r);
    /* two chunks, and the one that ends the body */
    assert_true(try_fill(&in, 22));
    assert_non_null(strstr(in.buf, "one "));
    assert_non_null(strstr(in.buf, "two"));
    try_load_is(&t, 1, 0);
    try_close(&in);
    try_close(&kept);
    try_stop(&t);
}

/* Stopping: waiting clients are cut, whatever their handlers do meanwhile or
 * later. */
TEST(http_stop_cuts_and_requests_stay_valid)
{
    enum { N = 40 };
    struct try_client c[N];
    struct http_request *r[N];
    struct http_try t;

    try_start(&t, NULL);
    for (int i = 0; i < N; i++) {
        r[i] = try_hold(&t, &c[i]);
        http_on_gone(r[i], try_gone, &t);
        if (i % 4 > 0)
            http_begin(r[i], 200, NULL);
        if (i % 4 > 1)
            assert_true(http_send(r[i], "some", 4));
        if (i % 4 > 2) {
            http_on_gone(r[i], NULL, NULL);
            for (int k = 0; k < 200; k++)
                assert_true(http_send(r[i], t.log, sizeof t.log));
        }
    }
    http_stop(t.h);
    assert_int_equal(atomic_load(&t.n_gone), N * 3 / 4);
    try_load_is(&t, 0, N);
    for (int i = 0; i < N; i++) {
        while (try_fill(&c[i], c[i].n + 1))
            ;
        assert_string_equal(http_path(r[i]), "/hold");
        if (i % 4 == 0)
            http_begin(r[i], 200, NULL);
        assert_false(http_send(r[i], "late", 4));
        http_end(r[i]);
        try_close(&c[i]);
    }
    try_load_is(&t, 0, 0);
    http_stop(t.h);
    try_stop(&t);
}

/* ---- requests in other threads */

struct hand {
    struct http_try *t;
    atomic_bool *stop;
    uint64_t random;
    pthread_t thread;
};

static struct http_request *take(struct http_try *t)
{
    struct http_request *r = NULL;

    pthread_mutex_lock(&t->lock);
    if (t->n_taken < t->n_held)
        r = t->held[t->n_taken++ % TRY_HELD];
    pthread_mutex_unlock(&t->lock);
    return r;
}

/* Responds to a held request in one of several ways, drawn at random. */
static void answer(struct http_try *t, struct http_request *r, uint64_t *random)
{
    int64_t way = test_below(random, 4);

    http_on_gone(r, try_gone, t);
    if (way == 0) {
        http_respond(r, 200, NULL, "whole", 5);
        return;
    }
    http_begin(r, 200, "text/plain");
    for (int i = 0; i < 5; i++) {
        if (way == 1 && test_below(random, 4) == 0)
            usleep(200);
        if (!http_send(r, &"whole"[i], 1) && way == 2)
            break;
    }
    if (way == 3)
        http_on_gone(r, NULL, NULL);
    http_end(r);
}

static void *answering(void *user)
{
    struct hand *h = user;

    for (;;) {
        bool over = atomic_load(h->stop);
        struct http_request *r = take(h->t);

        if (r)
            answer(h->t, r, &h->random);
        else if (over)
            return NULL;
        else
            usleep(50);
    }
}

static int n_held(struct http_try *t)
{
    int n;

    pthread_mutex_lock(&t->lock);
    n = t->n_held;
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* A client thread that sends requests again and again, reads responses, and
 * sometimes disconnects early. */
static void *asking(void *user)
{
    struct hand *h = user;

    while (!atomic_load(h->stop)) {
        struct try_client c;
        int64_t n = 1 + test_below(&h->random, 4);

        try_connect(h->t, &c);
        for (int64_t i = 0; i < n; i++)
            if (!try_send_bytes(&c, "GET /hold" HOST "\r\n",
                                strlen("GET /hold" HOST "\r\n")))
                break;
        if (test_below(&h->random, 3) > 0)
            try_fill(&c, (size_t)test_below(&h->random, 60 * n));
        try_close(&c);
    }
    return NULL;
}

TEST(http_threads_meet_whatever_clients_do)
{
    enum { N_HAND = 3, N_CLIENT = 6 };
    int rounds = test_long() ? 20 : 3;

    for (int round = 0; round < rounds; round++) {
        struct hand hand[N_HAND], client[N_CLIENT];
        atomic_bool hand_stop = false, client_stop = false;
        struct http_try t;

        try_start(&t, NULL);
        for (int i = 0; i < N_HAND; i++) {
            hand[i] =
                (struct hand){&t, &hand_stop, test_seed() + (uint64_t)i, 0};
            assert_int_equal(
                pthread_create(&hand[i].thread, NULL, answering, &hand[i]), 0);
        }
        for (int i = 0; i < N_CLIENT; i++) {
            client[i] = (struct hand){&t, &client_stop,
                                      test_seed() + 100 + (uint64_t)i, 0};
            assert_int_equal(
                pthread_create(&client[i].thread, NULL, asking, &client[i]), 0);
        }
        TEST_UNTIL(n_held(&t) >= 500);
        atomic_store(&client_stop, true);
        for (int i = 0; i < N_CLIENT; i++)
            pthread_join(client[i].thread, NULL);
        if (round % 2 == 0)
            try_load_is(&t, 0, 0);
        /* in odd rounds threads hold requests while the server stops */
        http_stop(t.h);
        atomic_store(&hand_stop, true);
        for (int i = 0; i < N_HAND; i++)
            pthread_join(hand[i].thread, NULL);
        try_load_is(&t, 0, 0);
        try_stop(&t);
    }
}

/* ---- a thousand -----------------------------------------------------------*/

TEST(http_serves_a_thousand_connections_at_once)
{
    enum { N = 1000 };
    struct try_client *c = test_need(N, sizeof *c);
    struct http_request **r = test_need(N, sizeof *r);
    struct rlimit was, more;
    struct try_answer a;
    struct http_try t;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    more = was;
    if (more.rlim_cur < 3 * N)
        more.rlim_cur = 3 * N;
    if (setrlimit(RLIMIT_NOFILE, &more) != 0) {
        free(c);
        free(r);
        TEST_SKIP("no more than %llu files may be open here",
                  (unsigned long long)was.rlim_max);
    }
    try_start(&t, NULL);
    for (int i = 0; i < N; i++) {
        try_connect(&t, &c[i]);
        try_send(&c[i], try_get("/hold", ""));
    }
    for (int i = 0; i < N; i++)
        r[i] = try_held(&t);
    try_load_is(&t, N, N);
    for (int i = 0; i < N; i++)
        http_begin(r[i], 200, NULL);
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < N; i++)
            assert_true(http_send(r[i], "part", 4));
    }
    for (int i = 0; i < N; i++)
        http_end(r[i]);
    for (int i = 0; i < N; i++) {
        try_read(&c[i], &a, false);
        assert_string_equal(a.body, "partpartpart");
        free(a.body);
    }
    try_load_is(&t, N, 0);
    for (int i = 0; i < N; i++)
        try_close(&c[i]);
    try_load_is(&t, 0, 0);
    try_stop(&t);
    setrlimit(RLIMIT_NOFILE, &was);
    free(c);
    free(r);
}

/* A draining server waits for responses, not for connections without a
 * request. */
TEST(http_idle_connections_are_closed_while_it_drains)
{
    struct try_client idle, fresh, busy;
    struct http_request *r;
    struct try_answer a;
    struct http_try t;

    try_start(&t, NULL);
    try_connect(&t, &idle);
    try_connect(&t, &fresh); /* a client that connects and sends no request */
    try_connect(&t, &busy);
    try_send(&idle, try_get("/hello", ""));
    try_read(&idle, &a, false);
    free(a.body);
    try_send(&busy, try_get("/hold", ""));
    r = try_held(&t);
    http_drain(t.h);
    try_ends(&idle);
    try_ends(&fresh);
    try_load_is(&t, 1, 1);
    http_respond(r, 200, NULL, "held", 4);
    try_read(&busy, &a, false);
    assert_string_equal(a.body, "held");
    free(a.body);
    try_ends(&busy);
    try_close(&idle);
    try_close(&fresh);
    try_close(&busy);
    try_load_is(&t, 0, 0);
    try_stop(&t);
}

/* A gate at which handlers wait until the test opens it. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t open;
    int n_in; /* number of handlers that wait at the gate */
    bool is_open;
};

static void on_slow(void *user, struct http_request *r)
{
    struct gate *g = user;

    pthread_mutex_lock(&g->lock);
    g->n_in++;
    while (!g->is_open)
        pthread_cond_wait(&g->open, &g->lock);
    pthread_mutex_unlock(&g->lock);
    http_respond(r, 200, "text/plain", "slow", 4);
}

static void on_quick(void *user, struct http_request *r)
{
    (void)user;
    http_respond(r, 200, "text/plain", "quick", 5);
}

static int n_inside(struct gate *g)
{
    int n;

    pthread_mutex_lock(&g->lock);
    n = g->n_in;
    pthread_mutex_unlock(&g->lock);
    return n;
}

/* With any number of handlers at work on large bodies, short requests are
 * answered, and a client that has disconnected by then starts no handler. */
TEST(http_slow_handlers_hold_up_nobody_else)
{
    enum { N = 12 };
    static const struct http_route routes[] = {{"POST", "/slow", on_slow, 0},
                                               {"GET", "/quick", on_quick, 0}};
    struct gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0,
                     false};
    const struct http_options o = {.hosts = "a"};
    struct try_client c[N], quick[N], gone;
    struct try_answer a;
    /* for the functions of clients; only `h` and `port` are set */
    struct http_try t = {0};
    pl_err err;

    TEST_OK(http_start(&t.h, &o, routes, 2, try_error, &g, &err), err);
    t.port = http_port(t.h);
    for (int i = 0; i < N; i++) {
        try_connect(&t, &c[i]);
        try_send(&c[i], "POST /slow" HOST "Content-Length: 1\r\n\r\nx");
    }
    /* the maximum number of handlers waits at the gate */
    TEST_UNTIL(n_inside(&g) == HTTP_N_HAND);
    for (int i = 0; i < N; i++) {
        try_connect(&t, &quick[i]);
        try_send(&quick[i], try_get("/quick", ""));
        try_read(&quick[i], &a, false);
        assert_string_equal(a.body, "quick");
        free(a.body);
        try_close(&quick[i]);
    }
    try_load_is(&t, N, N);
    try_connect(&t, &gone);
    try_send(&gone, "POST /slow" HOST "Content-Length: 1\r\n\r\nx");
    try_load_is(&t, N + 1, N + 1);
    try_close(&gone);
    try_load_is(&t, N, N + 1);
    pthread_mutex_lock(&g.lock);
    g.is_open = true;
    pthread_cond_broadcast(&g.open);
    pthread_mutex_unlock(&g.lock);
    for (int i = 0; i < N; i++) {
        try_read(&c[i], &a, false);
        assert_string_equal(a.body, "slow");
        free(a.body);
        try_close(&c[i]);
    }
    try_load_is(&t, 0, 0);
    assert_int_equal(g.n_in, N);
    http_free(t.h);
}
