/* A hub for tests that misbehaves on request; hub_try.h describes the
 * functions. */
#include "lib/hub_try.h"

#include "hub/hub_sha256.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct client {
    struct hub_try *t;
    int fd;
    char head[8192]; /* request line and header lines */
    char path[2048];
};

/* ---- bytes --------------------------------------------------------------- */

static bool send_all(const struct client *c, const void *data, size_t n)
{
    const char *from = data;

    while (n > 0) {
        ssize_t sent = send(c->fd, from, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        from += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool read_head(struct client *c)
{
    size_t n = 0;

    while (n < sizeof c->head - 1) {
        ssize_t got = recv(c->fd, c->head + n, sizeof c->head - 1 - n, 0);

        if (got <= 0)
            return false;
        n += (size_t)got;
        c->head[n] = '\0';
        if (strstr(c->head, "\r\n\r\n"))
            return sscanf(c->head, "GET %2047s ", c->path) == 1;
    }
    return false;
}

/* Returns the value of the request's header line `name`, in static memory of
 * the thread; NULL if there is none. */
static const char *line_of(const struct client *c, const char *name)
{
    static _Thread_local char value[1024];
    char mark[64];
    const char *at;

    snprintf(mark, sizeof mark, "\r\n%s: ", name);
    at = strcasestr(c->head, mark);
    if (!at)
        return NULL;
    at += strlen(mark);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static void say(const struct client *c, int status, const char *lines,
                const char *body)
{
    char head[4096];

    snprintf(head, sizeof head,
             "HTTP/1.1 %d Said\r\nConnection: close\r\nContent-Length: "
             "%zu\r\n%s\r\n",
             status, strlen(body), lines);
    if (send_all(c, head, strlen(head)))
        (void)send_all(c, body, strlen(body));
}

/* ---- the API ------------------------------------------------------------- */

static bool takes(struct hub_try *t, int *count)
{
    bool some;

    pthread_mutex_lock(&t->lock);
    some = *count > 0;
    *count -= some;
    pthread_mutex_unlock(&t->lock);
    return some;
}

static void say_listing(struct client *c)
{
    struct hub_try *t = c->t;
    const char *cursor = strstr(c->path, "cursor=");
    int first = cursor ? atoi(cursor + 7) : 0;
    int end = t->page > 0 && first + t->page < t->n_file ? first + t->page
                                                         : t->n_file;
    char lines[1024] = "", *body = test_need(HUB_TRY_FILES + 2, 1024);
    size_t n;

    n = (size_t)sprintf(body, "[{\"type\":\"directory\",\"path\":\"a\",\"oid\":"
                              "\"0\",\"size\":0}");
    for (int i = first; i < end; i++) {
        const struct hub_try_file *f = &t->file[i];

        n += (size_t)sprintf(body + n,
                             ",{\"type\":\"file\",\"path\":\"%s\",\"oid\":"
                             "\"0\",\"size\":%llu",
                             f->path, (unsigned long long)f->listed);
        if (f->sum[0])
            n += (size_t)sprintf(body + n,
                                 ",\"lfs\":{\"oid\":\"%s\",\"size\":%llu}",
                                 f->sum, (unsigned long long)f->listed);
        n += (size_t)sprintf(body + n, "}");
    }
    sprintf(body + n, "]");
    if (t->next)
        snprintf(lines, sizeof lines, "Link: <%s>; rel=\"next\"\r\n", t->next);
    else if (end < t->n_file)
        snprintf(lines, sizeof lines,
                 "Link: <%s/api/models/%s/tree/%s?recursive=true&cursor=%d>; "
                 "rel=\"next\"\r\n",
                 t->origin, t->repo, t->revision, end);
    say(c, 200, lines, t->listing ? t->listing : body);
    free(body);
}

static void say_api(struct client *c)
{
    struct hub_try *t = c->t;
    char path[256], body[256];

    snprintf(path, sizeof path, "/api/models/%s/revision/main", t->repo);
    if (!strcmp(c->path, path)) {
        snprintf(body, sizeof body, "{\"id\":\"%s\",\"sha\":\"%s\"}", t->repo,
                 t->revision);
        say(c, 200, "", body);
        return;
    }
    snprintf(path, sizeof path, "/api/models/%s/tree/%s?recursive=true",
             t->repo, t->revision);
    if (!strncmp(c->path, path, strlen(path)))
        say_listing(c);
    else
        say(c, 404, "", "{\"error\":\"Repository not found\"}");
}

/* ---- files --------------------------------------------------------------- */

/* Returns the file that the request's path names after "/T/R/resolve/REVISION/"
 * or after "/"; NULL if there is none. */
static const struct hub_try_file *find(const struct client *c)
{
    const struct hub_try *t = c->t;
    char prefix[256];
    const char *at = c->path + 1;

    if (t->repo) {
        snprintf(prefix, sizeof prefix, "/%s/resolve/%s/", t->repo,
                 t->revision);
        if (strncmp(c->path, prefix, strlen(prefix)) != 0)
            return NULL;
        at = c->path + strlen(prefix);
    }
    for (int i = 0; i < t->n_file; i++)
        if (!strcmp(t->file[i].path, at))
            return &t->file[i];
    return NULL;
}

static size_t asked_from(const struct client *c, const struct hub_try_file *f)
{
    const char *range = line_of(c, "Range");
    unsigned long long from;

    if (!range || sscanf(range, "bytes=%llu-", &from) != 1)
        return 0;
    atomic_fetch_add(&c->t->n_part, 1);
    range = line_of(c, "If-Range");
    if (range)
        atomic_fetch_add(&c->t->n_if_range, 1);
    return c->t->no_range || (range && strcmp(range, f->etag) != 0)
               ? 0
               : (size_t)from;
}

static void wait_until_gone(const struct client *c)
{
    char more;

    while (recv(c->fd, &more, 1, 0) > 0)
        ;
}

static void send_file(struct client *c, const char *data, size_t n)
{
    struct hub_try *t = c->t;
    size_t block = t->block > 0 ? t->block : 64 << 10;
    bool silent = t->silent_at > 0 && n > t->silent_at;

    if (n > t->cut_at && takes(t, &t->n_cut))
        n = t->cut_at;
    if (silent)
        n = t->silent_at;
    for (size_t at = 0; at < n; at += block) {
        size_t part = n - at < block ? n - at : block;

        /* counted before sending, because a client that has the bytes may read
         * the count */
        atomic_fetch_add(&t->n_sent, (long long)part);
        if (!send_all(c, data + at, part)) {
            atomic_fetch_sub(&t->n_sent, (long long)part);
            return;
        }
        if (t->slow_us > 0)
            usleep((useconds_t)t->slow_us);
    }
    if (silent)
        wait_until_gone(c);
}

static void say_file(struct client *c)
{
    struct hub_try *t = c->t;
    const struct hub_try_file *f = find(c);
    const char *known = line_of(c, "If-None-Match");
    char head[1024];
    size_t from, n = 0;

    atomic_fetch_add(&t->n_get, 1);
    if (!f) {
        say(c, 404, "", "Entry not found");
        return;
    }
    if (known && f->etag[0] && !strcmp(known, f->etag)) {
        atomic_fetch_add(&t->n_same, 1);
        say(c, 304, "", "");
        return;
    }
    from = asked_from(c, f);
    if (from > f->n) {
        say(c, 416, "", "");
        return;
    }
    n = (size_t)snprintf(head, sizeof head,
                         "HTTP/1.1 %d Said\r\nConnection: close\r\n",
                         from > 0 ? 206 : 200);
    if (from > 0)
        n += (size_t)snprintf(head + n, sizeof head - n,
                              "Content-Range: bytes %zu-%zu/%zu\r\n",
                              from - t->wrong_range, f->n - 1, f->n);
    if (!t->no_length)
        n += (size_t)snprintf(head + n, sizeof head - n,
                              "Content-Length: %lld\r\n",
                              (long long)(f->n - from) + t->extra);
    if (f->etag[0])
        n += (size_t)snprintf(head + n, sizeof head - n, "ETag: %s\r\n",
                              f->etag);
    snprintf(head + n, sizeof head - n, "\r\n");
    if (send_all(c, head, strlen(head)))
        send_file(c, f->data + from, f->n - from);
}

/* ---- connections --------------------------------------------------------- */

static bool is_let_in(const struct client *c, bool api)
{
    const char *line = line_of(c, "Authorization");
    char want[256];

    if (line)
        atomic_fetch_add(&c->t->n_token, 1);
    if (!c->t->token || (api && c->t->token_of_files))
        return true;
    snprintf(want, sizeof want, "Bearer %s", c->t->token);
    return line && !strcmp(line, want);
}

static void answer(struct client *c)
{
    struct hub_try *t = c->t;
    bool api = !strncmp(c->path, "/api/", 5);
    char line[4096];

    if (api)
        atomic_fetch_add(&t->n_api, 1);
    if (!is_let_in(c, api)) {
        say(c, 401, "", "Invalid username or password.");
    } else if ((!api || !t->status_of_files) && takes(t, &t->n_status)) {
        say(c, t->status, "", "");
    } else if (api) {
        say_api(c);
    } else if (t->redirect) {
        snprintf(line, sizeof line, "Location: %s%s\r\n", t->redirect, c->path);
        say(c, t->redirect_status ? t->redirect_status : 302, line, "moved");
    } else {
        say_file(c);
    }
}

static void *serve_one(void *arg)
{
    struct client *c = arg;
    struct hub_try *t = c->t;

    if (read_head(c))
        answer(c);
    shutdown(c->fd, SHUT_WR);
    close(c->fd);
    free(c);
    pthread_mutex_lock(&t->lock);
    t->n_open--;
    pthread_cond_broadcast(&t->gone);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void *serve(void *arg)
{
    struct hub_try *t = arg;

    for (;;) {
        int fd = accept(t->fd, NULL, NULL);
        struct client *c;
        pthread_t thread;

        if (fd < 0)
            return NULL;
        c = test_need(1, sizeof *c);
        *c = (struct client){.t = t, .fd = fd};
        pthread_mutex_lock(&t->lock);
        t->n_open++;
        pthread_mutex_unlock(&t->lock);
        if (pthread_create(&thread, NULL, serve_one, c) == 0)
            pthread_detach(thread);
        else
            (void)serve_one(c);
    }
}

void hub_try_start(struct hub_try *t)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;

    *t = (struct hub_try){.repo = "T/R", .revision = "0123abcd0123abcd"};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->gone, NULL);
    t->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(t->fd >= 0);
    assert_int_equal(bind(t->fd, (struct sockaddr *)(void *)&a, sizeof a), 0);
    assert_int_equal(listen(t->fd, 64), 0);
    assert_int_equal(getsockname(t->fd, (struct sockaddr *)(void *)&a, &n), 0);
    t->port = ntohs(a.sin_port);
    snprintf(t->origin, sizeof t->origin, "http://127.0.0.1:%d", t->port);
    assert_int_equal(pthread_create(&t->thread, NULL, serve, t), 0);
}

static void wait_for_all(struct hub_try *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->n_open > 0)
        pthread_cond_wait(&t->gone, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void hub_try_stop(struct hub_try *t)
{
    shutdown(t->fd, SHUT_RDWR);
    pthread_join(t->thread, NULL);
    close(t->fd);
    wait_for_all(t);
    for (int i = 0; i < t->n_file; i++)
        free(t->file[i].data);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->gone);
}

struct hub_try_file *hub_try_add(struct hub_try *t, const char *path,
                                 const void *data, size_t n)
{
    struct hub_try_file *f = &t->file[t->n_file++];
    struct hub_sha256 h;

    assert_true(t->n_file <= HUB_TRY_FILES);
    *f = (struct hub_try_file){.n = n, .listed = n};
    snprintf(f->path, sizeof f->path, "%s", path);
    snprintf(f->etag, sizeof f->etag, "\"tag-%d\"", t->n_file);
    f->data = test_need(n + 1, 1);
    memcpy(f->data, data, n);
    assert_true(hub_sha256_init(&h));
    hub_sha256_add(&h, data, n);
    hub_sha256_end(&h, f->sum);
    hub_sha256_fini(&h);
    return f;
}

void hub_try_count(struct hub_try *t)
{
    wait_for_all(t);
    t->n_api = t->n_get = t->n_part = t->n_token = t->n_if_range = 0;
    t->n_same = 0;
    t->n_sent = 0;
}

struct hub_try_file *hub_try_add_random(struct hub_try *t, const char *path,
                                        size_t n)
{
    uint64_t random = test_seed() + (uint64_t)t->n_file;
    char *data = test_need(n + 1, 1);
    struct hub_try_file *f;

    for (size_t i = 0; i < n; i++)
        data[i] = (char)test_random(&random);
    f = hub_try_add(t, path, data, n);
    free(data);
    return f;
}

/* ---- the client ---------------------------------------------------------- */

static void on_log(void *user, pl_log_level level, const char *text)
{
    struct hub_use *u = user;
    size_t n = strlen(u->log);

    (void)level;
    snprintf(u->log + n, sizeof u->log - n, "%s\n", text);
}

static void on_progress(void *user, const char *what, uint64_t done,
                        uint64_t total)
{
    struct hub_use *u = user;

    assert_non_null(what);
    assert_true(done <= total || total == 0);
    if (u->stop_at > 0 && done >= u->stop_at)
        u->stop = 1;
}

void hub_use_init(struct hub_use *u, const struct hub_try *t)
{
    static int n;
    char name[32];

    snprintf(name, sizeof name, "cache-%d", n++);
    *u = (struct hub_use){.o = {.endpoint = t->origin,
                                .cache = test_temp(name),
                                .n_try = 3,
                                .pause_ms = 1,
                                .timeout_s = 1 << 20,
                                .progress = on_progress,
                                .progress_user = u,
                                .log = on_log,
                                .log_user = u}};
    u->o.stop = &u->stop;
}

void hub_use_fini(struct hub_use *u)
{
    free(u->path);
    u->path = NULL;
}

static void check(struct hub_use *u, pl_status got, pl_status want,
                  const char *said)
{
    if (got != want)
        fail_msg("%s, not %s: %s", pl_status_name(got), pl_status_name(want),
                 got != PL_OK ? u->err.message : u->log);
    if (got != PL_OK && u->err.status != got)
        fail_msg("%s: %s", pl_status_name(u->err.status), u->err.message);
    assert_true((got == PL_OK) == (u->path != NULL));
    if (said && !strstr(u->log, said) &&
        (got == PL_OK || !strstr(u->err.message, said)))
        fail_msg("it should say \"%s\": %s\nand said: %s", said,
                 got != PL_OK ? u->err.message : "", u->log);
}

void hub_use(struct hub_use *u, const char *name, const char *file,
             pl_status want, const char *said)
{
    free(u->path);
    u->log[0] = '\0';
    check(u, hub_fetch(&u->path, &u->o, name, file, &u->err), want, said);
}

void hub_use_url(struct hub_use *u, const char *url, pl_status want,
                 const char *said)
{
    free(u->path);
    u->log[0] = '\0';
    check(u, hub_fetch_url(&u->path, &u->o, url, &u->err), want, said);
}

void hub_use_has(const struct hub_use *u, const struct hub_try_file *f)
{
    size_t n;
    char *data = test_read(u->path, &n);

    assert_int_equal(n, f->n);
    assert_memory_equal(data, f->data, n);
    free(data);
}

const char *hub_use_place(const struct hub_use *u, const struct hub_try *t,
                          const char *revision, const char *path)
{
    static char place[2048];

    snprintf(place, sizeof place, "%s/hub/127.0.0.1:%d/T/R/%s/%s", u->o.cache,
             t->port, revision, path);
    return place;
}
