/* A server for tests that answers by a script; load_try.h describes the
 * functions. */
#include "lib/load_try.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct client {
    struct load_try *t;
    int fd;
    char *said; /* text of the whole request, NUL-terminated, owned */
    size_t n;
    bool open; /* true while the request counts as not answered */
};

static void pause_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static bool send_all(const struct client *c, const char *s, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(c->fd, s, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        s += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Reads a request up to its end. Returns the start of its body, or NULL if the
 * connection ends before. */
static const char *read_request(struct client *c)
{
    const char *body = NULL, *length;
    size_t want = 1;

    c->said = calloc(1, 1);
    while (c->said && (!body || c->n < want)) {
        char buf[4096], *more;
        ssize_t got = recv(c->fd, buf, sizeof buf, 0);

        if (got <= 0)
            return NULL;
        more = realloc(c->said, c->n + (size_t)got + 1);
        if (!more)
            return NULL;
        c->said = more;
        memcpy(c->said + c->n, buf, (size_t)got);
        c->n += (size_t)got;
        c->said[c->n] = '\0';
        body = strstr(c->said, "\r\n\r\n");
        if (!body)
            continue;
        body += 4;
        length = strcasestr(c->said, "\r\nContent-Length: ");
        want = (size_t)(body - c->said);
        want += length && length < body ? strtoul(length + 18, NULL, 10) : 0;
    }
    return body;
}

/* Counts the request as answered. Called before the last bytes are sent,
 * because the client may send another request as soon as it has them. */
static void end(struct client *c)
{
    pthread_mutex_lock(&c->t->lock);
    c->t->n_open -= c->open;
    c->t->n_ended += c->open;
    c->open = false;
    pthread_cond_broadcast(&c->t->changed);
    pthread_mutex_unlock(&c->t->lock);
}

static void answer(struct client *c, int status, const char *body)
{
    char head[256];

    end(c);
    snprintf(head, sizeof head,
             "HTTP/1.1 %d Said\r\nConnection: close\r\nContent-Length: %zu\r\n"
             "\r\n",
             status, strlen(body));
    if (send_all(c, head, strlen(head)))
        (void)send_all(c, body, strlen(body));
}

/* ---- events -------------------------------------------------------------- */

/* Sends the text `s` as one chunk or, if `bytes`, as one chunk per byte.
 * Returns false on failure. */
static bool chunk(const struct client *c, const char *s, bool bytes)
{
    size_t n = strlen(s), part = bytes ? 1 : n;
    char head[32];

    for (size_t i = 0; i < n; i += part) {
        snprintf(head, sizeof head, "%zx\r\n", part);
        if (!send_all(c, head, strlen(head)) || !send_all(c, s + i, part) ||
            !send_all(c, "\r\n", 2))
            return false;
    }
    return true;
}

static bool say_token(const struct client *c, bool chat, bool bytes)
{
    return chunk(c,
                 chat ? "data: {\"choices\":[{\"index\":0,\"delta\":{\"content"
                        "\":\"a\"}}]}\n\n"
                      : "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}"
                        "\n\n",
                 bytes);
}

static void say_counts(const struct client *c, char how)
{
    char text[512], timings[64] = "";

    if (how == 'q')
        snprintf(timings, sizeof timings, ",\"timings\":{\"prompt_ms\":%d}",
                 c->t->prompt_ms);
    snprintf(text, sizeof text,
             "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,"
             "\"completion_tokens\":%d,\"prompt_tokens_details\":"
             "{\"cached_tokens\":3}}%s}\n\n",
             c->t->n_token, timings);
    (void)chunk(c, text, how == 'b');
}

/* Waits until the first token of the response `how` is due. */
static void come_to_it(struct load_try *t, char how)
{
    pthread_mutex_lock(&t->lock);
    while ((how == 'l' && t->n_ended < t->behind) ||
           (how == 'h' && t->most_open < t->crowd))
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    pause_ms(how == 'l' ? t->late_ms : t->first_ms);
}

static void stream(struct client *c, char how, bool chat)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        "Content-Type: text/event-stream\r\n\r\n";
    struct load_try *t = c->t;
    bool bytes = how == 'b', ok = send_all(c, head, sizeof head - 1);

    if (chat)
        ok = ok && chunk(c,
                         ": a comment\n\ndata: {\"choices\":[{\"delta\":"
                         "{\"role\":\"assistant\",\"content\":null}}]}\n\n",
                         bytes);
    come_to_it(t, how);
    for (int i = 0; i < t->n_token && ok; i++) {
        if (i > 0)
            pause_ms(t->gap_ms);
        ok = say_token(c, chat, bytes);
        if (how == 'c')
            return;
        if (how == 'e') {
            end(c);
            chunk(c, "data: {\"error\":{\"message\":\"it broke\"}}\n\n", false);
            break;
        }
    }
    if (!ok)
        return;
    end(c);
    say_counts(c, how);
    if (how != 'd')
        chunk(c, "data: [DONE]\n\n", bytes);
    (void)send_all(c, "0\r\n\r\n", 5);
}

/* Sends nothing and waits until the client disconnects. */
static void be_silent(const struct client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};

    (void)poll(&p, 1, -1);
}

static void write_text(struct client *c, char how)
{
    bool chat = strstr(c->said, "/chat/") != NULL;

    switch (how) {
    case 't':
        answer(c, 429, "{\"error\":{\"message\":\"too many\",\"code\":429}}");
        break;
    case 'w':
        answer(c, 500, "it is broken\nall of it");
        break;
    case 's':
        be_silent(c);
        break;
    default:
        stream(c, how, chat);
    }
}

/* ---- requests ------------------------------------------------------------ */

static char begin(struct client *c, const char *body)
{
    struct load_try *t = c->t;
    char how;

    pthread_mutex_lock(&t->lock);
    how = t->script[(size_t)t->n_body % strlen(t->script)];
    if (t->n_body < LOAD_TRY_BODIES)
        t->body[t->n_body] = strdup(body);
    t->n_body++;
    snprintf(t->path, sizeof t->path, "%.*s", (int)strcspn(c->said + 5, " "),
             c->said + 5);
    t->n_open++;
    c->open = true;
    t->most_open = t->n_open > t->most_open ? t->n_open : t->most_open;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return how;
}

static bool has_key(const struct client *c)
{
    static const char bearer[] = "\r\nAuthorization: Bearer ";
    const char *key = c->t->key, *at = strstr(c->said, bearer);
    size_t n = key ? strlen(key) : 0;

    at = at ? at + sizeof bearer - 1 : "";
    return !key || (!strncmp(at, key, n) && at[n] == '\r');
}

static void *serve(void *user)
{
    struct client *c = user;
    struct load_try *t = c->t;
    const char *body = read_request(c);

    if (body && !has_key(c)) {
        answer(c, 401, "{\"error\":{\"message\":\"no key\"}}");
    } else if (body && !strncmp(c->said, "GET /v1/models ", 15)) {
        answer(c, t->models ? 200 : 404, t->models ? t->models : "no");
    } else if (body) {
        char how = begin(c, body);

        write_text(c, how);
        end(c);
    }
    close(c->fd);
    pthread_mutex_lock(&t->lock);
    t->n_thread--;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    free(c->said);
    free(c);
    return NULL;
}

static void *listen_on(void *user)
{
    struct load_try *t = user;
    int fd;

    while ((fd = accept(t->fd, NULL, NULL)) >= 0) {
        struct client *c = calloc(1, sizeof *c);
        pthread_t thread;
        int one = 1;

        if (!c) {
            close(fd);
            continue;
        }
        *c = (struct client){.t = t, .fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_mutex_lock(&t->lock);
        t->n_thread++;
        pthread_mutex_unlock(&t->lock);
        if (pthread_create(&thread, NULL, serve, c) == 0)
            pthread_detach(thread);
        else
            serve(c);
    }
    return NULL;
}

void load_try_start(struct load_try *t)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;

    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(t->fd >= 0);
    assert_int_equal(bind(t->fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(t->fd, 256), 0);
    assert_int_equal(getsockname(t->fd, (struct sockaddr *)&a, &n), 0);
    t->port = ntohs(a.sin_port);
    snprintf(t->url, sizeof t->url, "http://127.0.0.1:%d", t->port);
    assert_int_equal(pthread_create(&t->thread, NULL, listen_on, t), 0);
}

void load_try_stop(struct load_try *t)
{
    shutdown(t->fd, SHUT_RDWR);
    pthread_join(t->thread, NULL);
    close(t->fd);
    pthread_mutex_lock(&t->lock);
    while (t->n_thread > 0)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_body && i < LOAD_TRY_BODIES; i++)
        free(t->body[i]);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}
