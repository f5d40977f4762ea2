/* Fuzzes the HTTP layer: a client sends the bytes in two pieces, cut where the
 * first byte says, and then closes its side. The server must close the
 * connection, free all memory of it, and send valid HTTP. Handlers must see
 * only complete requests. */
#include "server/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int fuzz_http(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static void on_echo(void *user, struct http_request *r)
{
    const char *name = http_name(r), *a = http_query(r, "a");
    size_t n;
    const char *body = http_body(r, &n);

    require(user && http_client(r) != 0 && body[n] == '\0' && n <= 4096);
    require(strcmp(http_method(r), "POST") == 0);
    http_set_header(r, "X-Name", name ? name : "-");
    http_set_header(r, "X-A", a ? a : "-");
    http_begin(r, 200, "text/plain");
    http_send(r, body, n);
    http_end(r);
}

static void on_get(void *user, struct http_request *r)
{
    (void)user;
    http_respond(r, 200, "text/plain", "get", 3);
}

static char *make_error(int status, const char *message, const char *path)
{
    require(status >= 400 && strlen(message) > 0 && path);
    return strdup(message);
}

static const struct http_route routes[] = {
    {"GET", "/", on_get, HTTP_OPEN},
    {"POST", "/echo", on_echo, 0},
    {"POST", "/echo/{}", on_echo, 0},
};

static int connect_to(const struct http *h)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)http_port(h)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval most = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    require(fd >= 0);
    require(connect(fd, (struct sockaddr *)(void *)&a, sizeof a) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    return fd;
}

/* Reads until the server closes the connection. Copies the first bytes of the
 * response to head[9]. Returns the number of bytes. */
static size_t read_all(int fd, char head[9])
{
    char buf[4096];
    size_t all = 0;
    ssize_t n;

    while ((n = recv(fd, buf, sizeof buf, 0)) > 0) {
        for (ssize_t i = 0; i < n && all + (size_t)i < 9; i++)
            head[all + (size_t)i] = buf[i];
        all += (size_t)n;
    }
    require(n == 0 || errno == ECONNRESET);
    return all;
}

static void wait_until_empty(const struct http *h)
{
    const struct timespec t = {.tv_nsec = 100000};
    int n_connection = 1, n_request = 1;

    for (int i = 0; i < 100000 && n_connection + n_request > 0; i++) {
        http_load(h, &n_connection, &n_request);
        if (n_connection + n_request > 0)
            nanosleep(&t, NULL);
    }
    require(n_connection + n_request == 0);
}

int fuzz_http(const uint8_t *data, size_t n)
{
    const struct http_options o = {
        .max_body = 4096, .max_bodies = 8192, .hosts = "b.example,a"};
    struct http *h;
    char head[9] = "";
    size_t first, said;
    pl_err err;
    int fd;

    if (n == 0)
        return 0;
    require(http_start(&h, &o, routes, 3, make_error, &err, &err) == PL_OK);
    fd = connect_to(h);
    first = (size_t)data[0] * (n - 1) / 255;
    send(fd, data + 1, first, MSG_NOSIGNAL);
    send(fd, data + 1 + first, n - 1 - first, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    said = read_all(fd, head);
    require(said == 0 || (said > 9 && memcmp(head, "HTTP/1.", 7) == 0));
    close(fd);
    wait_until_empty(h);
    http_free(h);
    return 0;
}
