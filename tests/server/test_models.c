/* The table of models loads and evicts models in the right order for its
 * requests. The models here are fakes that load at once and compute nothing. */
#include "lib/serve_try.h"

#include "server/models_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_NAME = 5, N_HELD = 64 };

struct world;

/* A loaded model of the test: it has no engine and computes nothing. */
struct fake {
    struct service service; /* must be the first field */
    struct world *world;
    int index, serial;
    atomic_int n_inside; /* number of requests that use the model */
};

struct held {
    struct http_request *r;
    struct fake *f;
};

struct world {
    struct models *models;
    struct http *http;
    struct http_try t; /* for try_connect: only its port is set */
    pthread_mutex_t lock;
    pthread_cond_t come;
    struct held held[N_HELD];
    int n_held;
    /* numbers of models: loaded now, most at once, loaded ever */
    int n_open, most_open, n_ever;
    int opened[N_NAME]; /* how often each model was loaded */
    int fails[N_NAME];  /* number of loads that fail from now on */
    int how;            /* the pl_status with which these loads fail */
    int room;           /* number of models for which there is memory */
    int shut;           /* while it is not 0, no load ends */
    int n_scan;         /* number of calls of the callback `scan` */
    /* if not 0, handlers do not return after their response until memory is
     * short */
    int stays;
    int n_short;       /* how often a load found too little memory */
    atomic_bool wrong; /* one was closed with requests in it, or opened twice */
    bool is_open[N_NAME];
};

static struct world w;
static const char *const names[N_NAME] = {"a", "b", "c \"d\" \xc3\xa9/f:Q4",
                                          "e", "g"};

/* Reads a number of the world from a case's thread. */
static int get(const int *v)
{
    int now;

    pthread_mutex_lock(&w.lock);
    now = *v;
    pthread_mutex_unlock(&w.lock);
    return now;
}

static void set(int *v, int to)
{
    pthread_mutex_lock(&w.lock);
    *v = to;
    pthread_mutex_unlock(&w.lock);
}

/* ---- fake models --------------------------------------------------------- */

static pl_status open_fake(void *user, const struct model_about *about,
                           const volatile int *cancel, struct service **out,
                           pl_err *err)
{
    int i = (int)((const char *const *)about->own - names);
    struct fake *f;

    (void)user;
    *out = NULL;
    TEST_UNTIL(!get(&w.shut) || __atomic_load_n(cancel, __ATOMIC_RELAXED));
    if (get(&w.shut)) {
        snprintf(err->message, sizeof err->message, "cancelled");
        return err->status = PL_CANCELLED;
    }
    pthread_mutex_lock(&w.lock);
    err->status = PL_OK;
    if (w.fails[i] > 0) {
        w.fails[i]--;
        err->status = (pl_status)w.how;
    } else if (w.n_open >= w.room) {
        err->status = PL_NO_DEVICE_MEMORY;
        w.n_short++;
    }
    if (err->status != PL_OK) {
        snprintf(err->message, sizeof err->message, "3 bytes are missing");
        pthread_mutex_unlock(&w.lock);
        return err->status;
    }
    f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->world = &w;
    f->index = i;
    f->serial = ++w.n_ever;
    f->service.name = about->name;
    w.wrong |= w.is_open[i];
    w.is_open[i] = true;
    w.opened[i]++;
    w.n_open++;
    w.most_open = w.n_open > w.most_open ? w.n_open : w.most_open;
    *out = &f->service;
    pthread_mutex_unlock(&w.lock);
    return PL_OK;
}

static void close_fake(void *user, struct service *v)
{
    struct fake *f = (struct fake *)v;

    (void)user;
    pthread_mutex_lock(&w.lock);
    w.wrong |= f->n_inside > 0;
    w.is_open[f->index] = false;
    w.n_open--;
    pthread_mutex_unlock(&w.lock);
    free(f);
}

static void on_say(void *user, struct http_request *r)
{
    struct fake *f = user;
    const int n_short = get(&w.n_short);
    char text[100];

    f->n_inside++;
    snprintf(text, sizeof text, "%s %d", f->service.name, f->serial);
    http_respond(r, 200, "text/plain", text, strlen(text));
    TEST_UNTIL(!get(&w.stays) || get(&w.n_short) > n_short);
    f->n_inside--;
}

static void on_hold(void *user, struct http_request *r)
{
    struct fake *f = user;

    f->n_inside++;
    service_hold(&f->service);
    pthread_mutex_lock(&w.lock);
    assert_true(w.n_held < N_HELD);
    w.held[w.n_held++] = (struct held){r, f};
    pthread_cond_broadcast(&w.come);
    pthread_mutex_unlock(&w.lock);
}

static struct held take_held(void)
{
    struct held h;

    pthread_mutex_lock(&w.lock);
    while (w.n_held == 0)
        pthread_cond_wait(&w.come, &w.lock);
    h = w.held[0];
    memmove(w.held, w.held + 1, (size_t)--w.n_held * sizeof *w.held);
    pthread_mutex_unlock(&w.lock);
    return h;
}

static void let_go(struct held h)
{
    http_respond(h.r, 200, "text/plain", "held", 4);
    h.f->n_inside--;
    service_drop(&h.f->service);
}

static void on_none(void *user, struct http_request *r)
{
    assert_null(user);
    http_respond(r, 200, "text/plain", "none", 4);
}

static const struct http_route routes[] = {
    {"GET", "/say", on_say, 0},
    {"POST", "/say", on_say, 0},
    {"POST", "/hold", on_hold, 0},
    {"GET", "/none", on_none, HTTP_OPEN | SERVICE_NONE},
};

/* ---- a server of them ---------------------------------------------------- */

static void begin_with(struct models_options o, int pinned, int idle_s)
{
    struct model_about about[N_NAME];
    const struct http_route *all;
    pl_err err;
    int n;

    memset(&w, 0, sizeof w);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.come, NULL);
    w.room = N_NAME;
    for (int i = 0; i < N_NAME; i++)
        about[i] = (struct model_about){.name = names[i],
                                        .path = "nowhere",
                                        .pinned = i == pinned,
                                        .idle_s = idle_s,
                                        .own = (void *)&names[i]};
    o.open = open_fake;
    o.close = close_fake;
    assert_int_equal(
        models_create(&w.models, about, N_NAME, &o, routes, 4, &err), PL_OK);
    all = models_routes(w.models, &n);
    assert_int_equal(http_start(&w.http, &(struct http_options){0}, all, n,
                                api_error_body_of_path, w.models, &err),
                     PL_OK);
    models_set_http(w.models, w.http);
    w.t.h = w.http;
    w.t.port = http_port(w.http);
}

static void begin(int max)
{
    begin_with((struct models_options){.max_loaded = max}, -1, 0);
}

static void end(void)
{
    http_stop(w.http);
    models_free(w.models);
    http_free(w.http);
    assert_int_equal(w.n_open, 0);
    assert_false(w.wrong);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.come);
}

static void send_post(struct try_client *c, const char *path, const char *name)
{
    json_t *j = name ? json_pack("{s:s}", "model", name) : json_object();
    char *body = json_dumps(j, 0);

    try_connect(&w.t, c);
    serve_try_send(c, path, body);
    free(body);
    json_decref(j);
}

/* Reads a response; its body is valid until the next call. */
static const char *read_answer(struct try_client *c, int status)
{
    static _Thread_local char text[4096];
    struct try_answer a;

    try_read(c, &a, false);
    if (a.status != status)
        fail_msg("%d is not %d: %s", a.status, status, a.body);
    snprintf(text, sizeof text, "%s", a.body);
    free(a.body);
    try_close(c);
    return text;
}

static const char *post(const char *path, const char *name, int status)
{
    struct try_client c;

    send_post(&c, path, name);
    return read_answer(&c, status);
}

/* Copies the status of the model `name` in /models to `out`. */
static void state_of(const char *name, char out[32])
{
    struct try_client c;
    struct try_answer a;
    json_t *j;
    const json_t *e;
    size_t i;

    try_connect(&w.t, &c);
    try_send(&c, try_get("/models", ""));
    try_read(&c, &a, false);
    j = json_loads(a.body, 0, NULL);
    assert_non_null(j);
    out[0] = '\0';
    json_array_foreach (json_object_get(j, "data"), i, e)
        if (strcmp(json_string_value(json_object_get(e, "id")), name) == 0)
            snprintf(out, 32, "%s",
                     json_string_value(json_object_get(
                         json_object_get(e, "status"), "value")));
    json_decref(j);
    free(a.body);
    try_close(&c);
}

static bool is_state(const char *name, const char *state)
{
    char now[32];

    state_of(name, now);
    return strcmp(now, state) == 0;
}

static void wait_state(const char *name, const char *state)
{
    TEST_UNTIL(is_state(name, state));
}

/* ---- promises ------------------------------------------------------------ */

TEST(models_are_loaded_for_who_asks)
{
    begin(0);
    assert_int_equal(get(&w.n_ever), 0);
    assert_string_equal(post("/say", "b", 200), "b 1");
    assert_string_equal(post("/say", names[2], 200), "c \"d\" \xc3\xa9/f:Q4 2");
    assert_string_equal(post("/say", "b", 200), "b 1");
    assert_true(is_state("b", "loaded") && is_state("a", "unloaded"));
    try_ask(&w.t, try_get("/say?model=c%20%22d%22%20%C3%A9/f:Q4", ""), 200,
            "c \"d\" \xc3\xa9/f:Q4 2", NULL);
    try_ask(&w.t, try_get("/say?model=a&autoload=true", ""), 200, "a 3", NULL);
    try_ask(&w.t, try_get("/say?model=e", ""), 400, NULL, NULL);
    try_ask(&w.t, try_get("/none", ""), 200, "none", NULL);
    end();
}

TEST(models_that_are_not_there_are_refused_with_those_that_are)
{
    const char *said;

    begin(0);
    said = post("/say", "no\"ne", 404);
    assert_non_null(strstr(said, "model_not_found"));
    assert_non_null(strstr(said, "no\\\"ne"));
    assert_non_null(strstr(said, "\\\"a\\\", \\\"b\\\""));
    assert_non_null(strstr(post("/say", NULL, 400), "\"param\":\"model\""));
    assert_non_null(strstr(post("/models/load", "none", 404), "none"));
    post("/models/unload", "a", 400); /* the model is not loaded */
    try_ask(&w.t, try_get("/say", ""), 400, NULL, NULL);
    assert_int_equal(get(&w.n_ever), 0);
    end();
}

/* JSON values take more memory than their text. The search for the model's name
 * counts them first. */
TEST(models_are_not_looked_for_in_too_many_values)
{
    enum { N = (1 << 20) + 1 };
    static const char begin_of[] = "{\"model\":\"a\",\"x\":[0";
    char *body = calloc(1, sizeof begin_of + 2 * (size_t)N + 3), *at = body;
    struct try_client c;

    assert_non_null(body);
    at = stpcpy(at, begin_of);
    for (int i = 0; i < N; i++)
        at = stpcpy(at, ",0");
    at = stpcpy(at, "]}");
    begin(0);
    try_connect(&w.t, &c);
    serve_try_send(&c, "/say", body);
    assert_non_null(strstr(read_answer(&c, 400), "JSON values"));
    assert_int_equal(get(&w.n_ever), 0);
    end();
    free(body);
}

/* Returns a copy of the server's entry for model i. */
static struct model model_at(int i)
{
    struct model now;

    pthread_mutex_lock(&w.models->lock);
    now = w.models->model[i];
    pthread_mutex_unlock(&w.models->lock);
    return now;
}

/* Waits until the handler is done with the model, which may be after the
 * response. */
static void wait_unused(int i)
{
    TEST_UNTIL(model_at(i).n_use == 0);
}

/* Waits until requests for model i are queued. */
static void wait_asked(int i)
{
    TEST_UNTIL(model_at(i).queue_pos > 0);
}

static void wait_yields(int i)
{
    TEST_UNTIL(model_at(i).evict_pending);
}

static int n_waiting(void)
{
    int n;

    pthread_mutex_lock(&w.models->lock);
    n = w.models->n_waiting;
    pthread_mutex_unlock(&w.models->lock);
    return n;
}

TEST(models_make_way_when_they_were_used_least_lately)
{
    begin(2);
    post("/say", "a", 200);
    post("/say", "b", 200);
    post("/say", "a", 200);
    wait_unused(0);
    wait_unused(1);
    post("/say", "e", 200);
    assert_true(is_state("a", "loaded") && is_state("b", "unloaded"));
    assert_int_equal(get(&w.most_open), 2);
    end();
}

TEST(models_in_use_are_not_unloaded)
{
    struct try_client c, d, e;
    struct held h;

    begin(1);
    send_post(&c, "/hold", "a");
    h = take_held();
    send_post(&d, "/say", "b");
    wait_asked(1);
    assert_true(is_state("a", "loaded") && is_state("b", "unloaded"));
    post("/models/unload", "a", 200);
    /* the request is queued when its client disconnects */
    send_post(&e, "/say", "a");
    wait_asked(0);
    assert_int_equal(get(&w.n_ever), 1);
    let_go(h);
    read_answer(&c, 200);
    assert_string_equal(read_answer(&d, 200), "b 2");
    assert_string_equal(read_answer(&e, 200), "a 3");
    assert_int_equal(get(&w.most_open), 1);
    end();
}

TEST(models_that_fail_tell_who_waits_and_are_tried_again)
{
    struct try_client c[3];

    begin(0);
    set(&w.shut, 1);
    set(&w.fails[0], 2);
    set(&w.how, PL_BAD_FILE);
    for (int i = 0; i < 3; i++)
        send_post(&c[i], "/say", "a");
    TEST_UNTIL(n_waiting() == 3);
    set(&w.shut, 0);
    for (int i = 0; i < 3; i++) {
        struct try_answer a;

        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 500);
        assert_non_null(strstr(a.body, "3 bytes are missing"));
        free(a.body);
        try_close(&c[i]);
    }
    post("/say", "a", 500);
    assert_string_equal(post("/say", "a", 200), "a 1");
    end();
}

TEST(models_that_are_idle_make_room_where_memory_is_short)
{
    struct try_client c;
    struct held h;

    begin_with((struct models_options){.moment_s = 0.01}, -1, 0);
    set(&w.room, 2);
    post("/say", "a", 200);
    post("/say", "b", 200);
    wait_unused(0);
    wait_unused(1);
    post("/say", "e", 200);
    assert_true(is_state("a", "unloaded") && is_state("b", "loaded"));
    post("/say", "b", 200);
    send_post(&c, "/hold", "b");
    h = take_held();
    wait_unused(3);
    post("/say", "a", 200);
    assert_true(is_state("e", "unloaded") && is_state("b", "loaded"));
    wait_unused(0);
    /* memory for one model only, which does not suffice even if all idle ones
     * are evicted */
    set(&w.room, 1);
    assert_non_null(strstr(post("/say", "g", 503), "3 bytes are missing"));
    let_go(h);
    read_answer(&c, 200);
    end();
}

/* A response arrives before its model counts as idle; the model can be evicted
 * all the same. */
TEST(models_that_answered_just_now_make_room)
{
    begin_with((struct models_options){.moment_s = 1e6}, -1, 0);
    set(&w.room, 1);
    set(&w.stays, 1);
    assert_string_equal(post("/say", "a", 200), "a 1");
    assert_string_equal(post("/say", "b", 200), "b 2");
    assert_string_equal(post("/say", "a", 200), "a 3");
    set(&w.stays, 0);
    end();
}

TEST(models_that_are_pinned_stay)
{
    begin_with((struct models_options){.max_loaded = 2}, 0, 1);
    post("/say", "a", 200);
    post("/say", "b", 200);
    post("/say", "e", 200);
    assert_true(is_state("a", "loaded") && is_state("b", "unloaded"));
    /* the model is unloaded after it was idle for the limit */
    wait_state("e", "unloaded");
    assert_true(is_state("a", "loaded"));
    post("/models/unload", "a", 200); /* a client may unload a pinned model */
    wait_state("a", "unloaded");
    end();
}

TEST(models_that_would_wait_for_pinned_ones_for_ever_are_refused)
{
    begin_with((struct models_options){.max_loaded = 1}, 0, 0);
    post("/say", "a", 200);
    assert_non_null(strstr(post("/say", "b", 503), "pinned"));
    assert_true(is_state("a", "loaded") && is_state("b", "unloaded"));
    post("/models/unload", "a", 200);
    assert_string_equal(post("/say", "b", 200), "b 2");
    end();
}

TEST(models_are_loaded_by_requests_only_if_they_may)
{
    begin_with((struct models_options){.no_autoload = true}, -1, 0);
    assert_non_null(strstr(post("/say", "a", 400), "model_not_loaded"));
    post("/models/load", "a", 200);
    wait_state("a", "loaded");
    post("/say", "a", 200);
    try_ask(&w.t, try_get("/say?model=b&autoload=true", ""), 200, "b 2", NULL);
    end();
}

TEST(models_take_no_more_requests_to_wait_than_they_may)
{
    struct try_client c[4];

    begin_with((struct models_options){.max_waiting = 2}, -1, 0);
    set(&w.shut, 1);
    for (int i = 0; i < 2; i++)
        send_post(&c[i], "/say", "a");
    TEST_UNTIL(n_waiting() == 2);
    for (int i = 2; i < 4; i++) {
        struct try_answer a;

        send_post(&c[i], "/say", "a");
        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 429);
        assert_non_null(strstr(a.head, "Retry-After: "));
        free(a.body);
        try_close(&c[i]);
    }
    set(&w.shut, 0);
    for (int i = 0; i < 2; i++)
        read_answer(&c[i], 200);
    end();
}

TEST(models_requests_whose_clients_left_take_no_place)
{
    struct try_client c[3];

    begin_with((struct models_options){.max_waiting = 2}, -1, 0);
    set(&w.shut, 1);
    for (int i = 0; i < 2; i++)
        send_post(&c[i], "/say", "a");
    TEST_UNTIL(n_waiting() == 2);
    for (int i = 0; i < 2; i++)
        try_close(&c[i]);
    try_load_is(&w.t, 0, 2);
    send_post(&c[2], "/say", "a");
    try_load_is(&w.t, 1, 1);
    set(&w.shut, 0);
    assert_string_equal(read_answer(&c[2], 200), "a 1");
    end();
}

/* Starts a load of a that takes hours, for c; b is next, for d. */
static void begin_slow_load(struct try_client *c, struct try_client *d)
{
    begin(0);
    set(&w.shut, 1);
    send_post(c, "/say", "a");
    wait_state("a", "loading");
    send_post(d, "/say", "b");
    wait_asked(1);
}

/* A load takes hours. An unload request cancels it, and the next request starts
 * it anew. */
TEST(models_that_are_being_loaded_can_be_unloaded)
{
    struct try_client c, d;

    begin_slow_load(&c, &d);
    /* unloads a model whose load has not begun */
    post("/models/unload", "b", 200);
    assert_non_null(strstr(read_answer(&d, 503), "before it could be loaded"));
    post("/models/unload", "a", 200);
    assert_non_null(strstr(read_answer(&c, 503), "while loading"));
    assert_true(is_state("a", "unloaded"));
    post("/models/unload", "a", 400);
    assert_int_equal(get(&w.n_ever), 0);
    set(&w.shut, 0);
    assert_string_equal(post("/say", "a", 200), "a 1");
    end();
}

TEST(models_that_are_being_loaded_do_not_hold_up_the_end)
{
    struct try_client c, d;

    begin_slow_load(&c, &d);
    models_drain(w.models);
    assert_non_null(strstr(read_answer(&c, 503), "stopping"));
    assert_non_null(strstr(read_answer(&d, 503), "stopping"));
    assert_non_null(strstr(post("/say", "e", 503), "stopping"));
    end();
}

/* Requests for one model overlap without an end, so it is never unused. A
 * request that waits for its place gets it all the same, and the model is
 * loaded again in its turn. */
TEST(models_in_use_for_ever_make_way_for_who_has_waited)
{
    struct try_client a[2], b;
    struct held h;

    begin_with((struct models_options){.max_loaded = 1, .wait_s = 0.02}, -1, 0);
    send_post(&a[0], "/hold", "a");
    h = take_held();
    send_post(&b, "/say", "b");
    wait_yields(0);
    send_post(&a[1], "/hold", "a");
    wait_asked(0);
    assert_int_equal(get(&w.n_held), 0);
    let_go(h);
    read_answer(&a[0], 200);
    assert_string_equal(read_answer(&b, 200), "b 2");
    h = take_held();
    assert_int_equal(h.f->serial, 3);
    let_go(h);
    read_answer(&a[1], 200);
    assert_int_equal(get(&w.most_open), 1);
    end();
}

/* A model is not evicted before another request has waited wait_s, nor without
 * need. */
TEST(models_make_way_for_nobody_else)
{
    struct try_client a[2], b, c;
    struct held h[2];

    begin_with((struct models_options){.max_loaded = 1, .wait_s = 1e6}, -1, 0);
    send_post(&a[0], "/hold", "a");
    h[0] = take_held();
    send_post(&b, "/say", "b");
    wait_asked(1);
    /* no other request has waited longer than wait_s */
    send_post(&a[1], "/hold", "a");
    h[1] = take_held();
    for (int i = 0; i < 2; i++) {
        let_go(h[i]);
        read_answer(&a[i], 200);
    }
    read_answer(&b, 200);
    end();
    begin_with((struct models_options){.max_loaded = 2, .wait_s = 0.02}, 4, 0);
    post("/say", "g", 200); /* loads model g, which is pinned */
    send_post(&a[0], "/hold", "a");
    h[0] = take_held();
    send_post(&b, "/say", "b");
    wait_yields(0);
    assert_false(model_at(4).evict_pending);
    send_post(&a[1], "/say", "a");
    wait_asked(0);
    post("/models/unload", "g", 200); /* makes room for another model */
    read_answer(&b, 200);
    assert_string_equal(read_answer(&a[1], 200), "a 2");
    send_post(&c, "/say", "a");
    assert_string_equal(read_answer(&c, 200), "a 2");
    let_go(h[0]);
    read_answer(&a[0], 200);
    end();
}

/* Clients that wait when the server ends are disconnected, and nothing of
 * theirs is left. */
TEST(models_end_while_requests_wait)
{
    struct try_client c[3];

    begin(0);
    set(&w.shut, 1);
    for (int i = 0; i < 3; i++)
        send_post(&c[i], "/say", names[i]);
    TEST_UNTIL(n_waiting() == 3);
    end();
    for (int i = 0; i < 3; i++)
        try_close(&c[i]);
}

TEST(models_whose_device_is_lost_are_loaded_anew)
{
    struct try_client c, d;
    struct held h;
    pl_err err = {PL_DEVICE, "gone"};

    begin(0);
    send_post(&c, "/hold", "a");
    h = take_held();
    service_lost(&h.f->service, &err);
    send_post(&d, "/say", "a");
    wait_asked(0);
    assert_int_equal(get(&w.n_ever), 1);
    let_go(h);
    read_answer(&c, 200);
    assert_string_equal(read_answer(&d, 200), "a 2");
    end();
}

TEST(models_that_are_only_looked_at_are_idle)
{
    struct try_client c;
    struct try_answer a;
    double used;

    begin_with((struct models_options){0}, -1, 1);
    post("/say", "a", 200);
    wait_unused(0);
    used = model_at(0).used;
    for (int i = 0; i < 20; i++) {
        try_ask(&w.t, try_get("/metrics", ""), 200, "", NULL);
        try_connect(&w.t, &c);
        try_send(&c, try_get("/say?model=a", ""));
        try_read(&c, &a, false);
        assert_true(a.status == 200 || a.status == 400);
        free(a.body);
        try_close(&c);
    }
    assert_true(model_at(0).used == used);
    wait_state("a", "unloaded");
    try_ask(&w.t, try_get("/say?model=a", ""), 400, NULL, NULL);
    end();
}

/* Returns how many models are listed. */
static size_t n_listed(void)
{
    struct try_client c;
    struct try_answer a;
    json_t *j;
    size_t n;

    try_connect(&w.t, &c);
    try_send(&c, try_get("/v1/models", ""));
    try_read(&c, &a, false);
    j = json_loads(a.body, 0, NULL);
    n = json_array_size(json_object_get(j, "data"));
    json_decref(j);
    free(a.body);
    try_close(&c);
    return n;
}

/* In the first scan the model "new" comes, in the third it goes, and so on. */
static void scan(void *user, struct models *m)
{
    static const char *const also[] = {"newer"};
    const struct model_about about = {.name = "new",
                                      .path = "nowhere",
                                      .alias = also,
                                      .n_alias = 1,
                                      .own = (void *)&names[0]};
    int i = models_find(m, "new"), n_scan = w.n_scan++;
    pl_err err;

    (void)user;
    if (n_scan == 0) {
        assert_int_equal(i, -1);
        assert_int_equal(models_add(m, &about, &err), PL_OK);
        assert_int_equal(models_add(m, &about, &err), PL_BAD_ARGUMENT);
    } else if (n_scan == 2) {
        assert_int_equal(i, N_NAME);
        models_hide(m, N_NAME, true);
    } else if (n_scan == 5) {
        assert_int_equal(i, -1);
        models_hide(m, N_NAME, false);
    }
}

/* Requests for an unknown model, and for the list, look for new ones. A model
 * that is gone ends its requests, and is found again if it comes back. */
TEST(models_come_and_go_while_the_server_runs)
{
    struct try_client c;
    struct held h;

    begin_with((struct models_options){.scan = scan}, -1, 0);
    /* scan number 0 adds the model */
    assert_string_equal(post("/say", "newer", 200), "new 1");
    assert_int_equal(w.n_scan, 1);
    /* scan number 1 changes nothing */
    assert_int_equal(n_listed(), N_NAME + 1);
    assert_string_equal(post("/say", "new", 200), "new 1");
    assert_int_equal(w.n_scan, 2);
    send_post(&c, "/hold", "new");
    h = take_held();
    assert_int_equal(n_listed(), N_NAME); /* scan number 2 hides the model */
    assert_non_null(strstr(post("/say", "new", 404), "model_not_found"));
    assert_non_null(strstr(post("/say", "newer", 404), "use one of \\\"a\\\""));
    assert_int_equal(get(&w.n_open), 1);
    let_go(h);
    assert_string_equal(read_answer(&c, 200), "held");
    TEST_UNTIL(get(&w.n_open) == 0);
    /* scan number 5 shows the model again */
    assert_string_equal(post("/say", "new", 200), "new 2");
    end();
}

TEST(models_answer_to_all_their_names)
{
    static const char *const also[] = {"x", "y"};
    static const char *const taken[] = {"z", "x"};
    struct models_options o = {.open = open_fake, .close = close_fake};
    struct model_about about[] = {
        {.name = "a", .path = "A", .alias = also, .n_alias = 2},
        {.name = "b", .path = "B", .alias = taken, .n_alias = 1},
    };
    struct models *m;
    pl_err err;

    assert_int_equal(models_create(&m, about, 2, &o, routes, 4, &err), PL_OK);
    assert_int_equal(models_find(m, "a"), 0);
    assert_int_equal(models_find(m, "y"), 0);
    assert_int_equal(models_find(m, "z"), 1);
    assert_int_equal(models_find(m, "w"), -1);
    models_free(m);
    about[1].n_alias = 2;
    assert_int_equal(models_create(&m, about, 2, &o, routes, 4, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "\"x\" is used twice (A and B)"));
}

/* A name in other case, or without the quantization, is taken where one model
 * alone fits. */
TEST(models_names_may_lack_what_one_model_alone_has)
{
    struct models_options o = {.open = open_fake, .close = close_fake};
    const struct model_about about[] = {
        {.name = "T/R:Q4_0", .path = "0"},   {.name = "T/R:Q8_0", .path = "1"},
        {.name = "T/One:Q8_0", .path = "2"}, {.name = "tale", .path = "3"},
        {.name = "Tale", .path = "4"},       {.name = "tale:7b", .path = "5"},
        {.name = "X:latest", .path = "6"},
    };
    static const struct {
        const char *name;
        int i;
    } row[] = {
        {"t/r:q8_0", 1},    {"T/R", -1},         {"t/r", -1},
        {"T/R:Q8", -1},     {"T/R:", -1},        {"T/One", 2},
        {"t/one", 2},       {"T/One:latest", 2}, {"T/On", -1},
        {"T/One:Q4_0", -1}, {"tale", 3},         {"Tale", 4},
        {"TALE", -1},       {"TALE:7B", 5},      {"x", 6},
        {"X", 6},           {"tale:latest", 3},  {"", -1},
    };
    struct api_error why;
    struct models *m;
    pl_err err;

    assert_int_equal(models_create(&m, about, 7, &o, routes, 4, &err), PL_OK);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (models_find(m, row[i].name) != row[i].i)
            fail_msg("%s: %d", row[i].name, models_find(m, row[i].name));
    assert_false(models_reject_name(m, "t/r", &why));
    assert_int_equal(why.status, 404);
    assert_string_equal(why.message, "model \"t/r\" fits several; use one of "
                                     "\"T/R:Q4_0\", \"T/R:Q8_0\"");
    models_free(m);
}

TEST(models_metrics_are_joined_by_family)
{
    static const struct models_text part[] = {
        {"a", "# HELP n it\n# TYPE n counter\nn 1\n# HELP h is\n# TYPE h "
              "histogram\nh_bucket{le=\"1\"} 2\nh_sum 3\n"},
        {"b\"", "# HELP n it\n# TYPE n counter\nn 4\n# HELP h is\n# TYPE h "
                "histogram\nh_bucket{le=\"1\"} 5\nh_sum 6\n"},
    };
    struct text out = {0};

    assert_true(models_join_metrics(&out, part, 2, false) &&
                text_add(&out, "", 1));
    assert_string_equal(
        out.s, "# HELP n it\n# TYPE n counter\nn{model=\"a\"} 1\n"
               "n{model=\"b\\\"\"} 4\n# HELP h is\n# TYPE h histogram\n"
               "h_bucket{model=\"a\",le=\"1\"} 2\nh_sum{model=\"a\"} 3\n"
               "h_bucket{model=\"b\\\"\",le=\"1\"} 5\n"
               "h_sum{model=\"b\\\"\"} 6\n");
    text_free(&out);
}

/* The names of llama-server have no label if there is only one model. */
TEST(models_metrics_of_the_only_one_have_llama_servers_names)
{
    static const struct models_text part[] = {
        {"a", "# HELP n it\n# TYPE n counter\nn 1\n# HELP llamacpp:n it\n"
              "# TYPE llamacpp:n counter\nllamacpp:n 1\n"}};
    struct text out = {0};

    assert_true(models_join_metrics(&out, part, 1, true));
    assert_non_null(strstr(out.s, "\nn{model=\"a\"} 1\n"));
    assert_non_null(strstr(out.s, "\nllamacpp:n 1\n"));
    out.n = 0;
    assert_true(models_join_metrics(&out, part, 1, false));
    assert_non_null(strstr(out.s, "\nllamacpp:n{model=\"a\"} 1\n"));
    text_free(&out);
}

TEST(models_totals_only_grow)
{
    static const char now[] =
        "# HELP n it\n# TYPE n counter\nn{d=\"0\"} 1\nn{d=\"1\"} 2\n"
        "# HELP g is\n# TYPE g gauge\ng 7\n"
        "# HELP s of\n# TYPE s counter\ns 1.500000\n"
        "# HELP h is\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum "
        "0.250000\n# HELP m_max it\n# TYPE m_max counter\nm_max 7\n";
    static const char past[] =
        "# HELP n it\n# TYPE n counter\nn{d=\"1\"} 18446744073709551000\n"
        "n{d=\"2\"} 5\n# HELP g is\n# TYPE g gauge\ng 9\n"
        "# HELP s of\n# TYPE s counter\ns 2.000000\n"
        "# HELP h is\n# TYPE h histogram\nh_bucket{le=\"1\"} 3\n"
        "h_bucket{le=\"2\"} 4\nh_sum 1.000000\n"
        "# HELP m_max it\n# TYPE m_max counter\nm_max 9\n";
    static const char want[] =
        "# HELP n it\n# TYPE n counter\nn{d=\"0\"} 1\n"
        "n{d=\"1\"} 18446744073709551002\nn{d=\"2\"} 5\n"
        "# HELP g is\n# TYPE g gauge\ng 7\n"
        "# HELP s of\n# TYPE s counter\ns 3.500000\n"
        "# HELP h is\n# TYPE h histogram\nh_bucket{le=\"1\"} 5\n"
        "h_sum 1.250000\nh_bucket{le=\"2\"} 4\n"
        "# HELP m_max it\n# TYPE m_max counter\nm_max 9\n";
    struct text out = {0}, rest = {0};

    assert_true(models_add_past(&out, now, past));
    assert_string_equal(out.s, want);
    text_free(&out);
    /* for a model that was never loaded, the metrics stay as they are */
    assert_true(models_add_past(&out, now, ""));
    assert_string_equal(out.s, now);
    assert_true(models_zero_gauges(&rest, now));
    assert_non_null(strstr(rest.s, "\ng 0\n"));
    assert_non_null(strstr(rest.s, "n{d=\"1\"} 2\n"));
    text_free(&out);
    text_free(&rest);
}

/* ---- random clients ------------------------------------------------------ */

struct client_thread {
    pthread_t thread;
    unsigned seed;
};

static void *act_at_random(void *user)
{
    struct client_thread *t = user;

    for (int i = 0; i < 50; i++) {
        const char *name = names[rand_r(&t->seed) % N_NAME];
        struct try_client c;
        struct try_answer a;
        int what = rand_r(&t->seed) % 8;

        send_post(&c,
                  what == 0   ? "/models/load"
                  : what == 1 ? "/models/unload"
                  : what < 4  ? "/hold"
                              : "/say",
                  name);
        /* the client disconnects instead of reading the response */
        if (what == 3) {
            try_close(&c);
            continue;
        }
        try_read(&c, &a, false);
        if (a.status == 200 && what >= 4)
            w.wrong |= strncmp(a.body, name, strlen(name)) != 0;
        else if (a.status != 200)
            w.wrong |= a.status != 503 && !(what == 1 && a.status == 400);
        free(a.body);
        try_close(&c);
    }
    return NULL;
}

static atomic_bool no_more;

static void *let_all_go(void *user)
{
    (void)user;
    while (!no_more) {
        bool any;

        pthread_mutex_lock(&w.lock);
        any = w.n_held > 0;
        pthread_mutex_unlock(&w.lock);
        if (any)
            let_go(take_held());
        else
            usleep(1000);
    }
    return NULL;
}

/* Four clients do anything: at most two models are loaded, none is closed with
 * requests in it or opened twice, and each request is answered by its own
 * model. */
TEST(models_hold_their_laws_whatever_clients_do)
{
    struct client_thread t[4];
    pthread_t free_all;

    begin(2);
    set(&w.how, PL_NO_MEMORY);
    no_more = false;
    pthread_create(&free_all, NULL, let_all_go, NULL);
    for (unsigned i = 0; i < 4; i++) {
        t[i].seed = i;
        pthread_create(&t[i].thread, NULL, act_at_random, &t[i]);
    }
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&w.lock);
        w.fails[i % N_NAME] += i % 3 == 0;
        pthread_mutex_unlock(&w.lock);
        usleep(2000);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i].thread, NULL);
    try_load_is(&w.t, 0, 0);
    no_more = true;
    pthread_join(free_all, NULL);
    assert_true(get(&w.most_open) <= 2);
    end();
}
