/* The listening thread: accepts connections, notices clients that disconnect
 * while their connection is suspended, and discards the bodies of rejected
 * requests.
 *
 * Connections are accepted here instead of by libmicrohttpd, for three reasons.
 * First, libmicrohttpd's MHD_quiesce_daemon, which stops listening, has a race
 * if the connection limit is reached at the same time. Second, libmicrohttpd's
 * connection limit applies to each of its threads, not to the server. Third, up
 * to version 0.9.75, a thread of libmicrohttpd that exceeds the limit never
 * releases a lock. */
#include "http_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LINGER_S = 5,
    LOOK_MS = 1000, /* milliseconds between two checks for slow clients */
    /* Milliseconds between two checks of lingering connections. Also the pause
     * after a failure to accept a connection. */
    BUSY_MS = 100,
};
#define SPARE_S                                                                \
    0.2 /* seconds without a request after which a connection may be closed to
           make space for a new one */

/* ---- opening and closing listening sockets ------------------------------- */

bool http_is_path(const char *address, size_t n)
{
    return memchr(address, '/', n) != NULL ||
           (n > 5 && memcmp(address + n - 5, ".sock", 5) == 0);
}

static pl_status cannot_listen(const struct http *h, const char *host, int e,
                               pl_err *err)
{
    const char *remedy = "";

    if (e == EADDRINUSE)
        remedy = "; stop the program that uses this port, or choose another "
                 "(0: any free port)";
    else if (e == EACCES)
        remedy = "; ports below 1024 need privileges, choose a higher one";
    else if (e == EADDRNOTAVAIL)
        remedy = "; give an address of this machine, for example 127.0.0.1 "
                 "(local only) or 0.0.0.0 (all)";
    if (http_is_path(host, strlen(host)))
        return server_fail(err, PL_IO, "cannot listen on %s: %s%s", host,
                           strerror(e), e == EADDRINUSE ? remedy : "");
    return server_fail(err, PL_IO, "cannot listen on %s, port %d: %s%s", host,
                       h->port, strerror(e), remedy);
}

static int close_with(int fd, int e)
{
    close(fd);
    errno = e;
    return -1;
}

/* Returns a socket that is bound to the address *a; -1 with errno set on
 * failure. If `both`, a socket bound to "::" also accepts IPv4 connections. */
static int bind_to(const struct addrinfo *a, bool both)
{
    int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, six = !both;

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &six, sizeof six);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0)
        return fd;
    return close_with(fd, errno);
}

/* Returns true if the file at path `a` is a Unix socket on which no server
 * listens any more. */
static bool is_left_over(const struct sockaddr_un *a)
{
    struct stat st;
    bool is_socket = lstat(a->sun_path, &st) == 0 && S_ISSOCK(st.st_mode);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool refused =
        is_socket && fd >= 0 &&
        connect(fd, (const struct sockaddr *)(const void *)a, sizeof *a) < 0 &&
        errno == ECONNREFUSED;

    if (fd >= 0)
        close(fd);
    return refused;
}

/* Returns a Unix socket that is bound to `path`; -1 with errno set on failure.
 * Replaces a socket file on which no server listens any more, but no other
 * file. */
static int bind_to_path(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const struct sockaddr *at = (const struct sockaddr *)(const void *)&a;
    int fd, e;

    if (strlen(path) >= sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(a.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    e = bind(fd, at, sizeof a) == 0 ? 0 : errno;
    if (e == EADDRINUSE && is_left_over(&a) && unlink(path) == 0)
        e = bind(fd, at, sizeof a) == 0 ? 0 : errno;
    return e == 0 ? fd : close_with(fd, e);
}

static int port_of(int fd)
{
    /* sockaddr_in6 has its port at the same offset as sockaddr_in. */
    struct sockaddr_in6 a = {0};
    socklen_t n = sizeof a;

    getsockname(fd, (struct sockaddr *)(void *)&a, &n);
    return ntohs(a.sin6_port);
}

static bool is_loopback(int fd)
{
    struct sockaddr_in6 a = {0};
    struct sockaddr_in four;
    socklen_t n = sizeof a;

    getsockname(fd, (struct sockaddr *)(void *)&a, &n);
    if (a.sin6_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a.sin6_addr);
    memcpy(&four, &a, sizeof four);
    return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* Binds a socket to an address of the host name `host`, at port h->port. Takes
 * the first of the name's addresses at which that is possible. */
static pl_status bind_to_host(struct http *h, const char *host, bool both,
                              pl_err *err)
{
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[16];
    int e, fd = -1;

    snprintf(port, sizeof port, "%d", h->port);
    e = getaddrinfo(host, port, &hint, &found);
    if (e != 0)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "cannot listen on \"%s\": %s; give an address of this "
            "machine, for example 127.0.0.1 or 0.0.0.0",
            host, gai_strerror(e));
    e = EADDRNOTAVAIL;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = bind_to(a, both);
        if (fd < 0)
            e = errno;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return cannot_listen(h, host, e, err);
    h->listen_fd[h->n_listen++] = fd;
    h->port = port_of(fd);
    h->loopback = h->loopback && is_loopback(fd);
    return PL_OK;
}

/* Binds a Unix socket and listens on it, so that other servers see that the
 * path is in use. Clients that connect before http_accept wait. */
static pl_status listen_on_path(struct http *h, const char *path, pl_err *err)
{
    const int fd = bind_to_path(path);

    if (fd < 0)
        return cannot_listen(h, path, errno, err);
    h->listen_fd[h->n_listen++] = fd;
    return listen(fd, SOMAXCONN) == 0 ? PL_OK
                                      : cannot_listen(h, path, errno, err);
}

/* Takes over the sockets http_options.given. */
static pl_status take_given(struct http *h, pl_err *err)
{
    if (h->o.n_given > HTTP_MAX_LISTEN)
        return server_fail(err, PL_BAD_ARGUMENT,
                           "%d sockets are given; at most %d are possible",
                           h->o.n_given, HTTP_MAX_LISTEN);
    for (int i = 0; i < h->o.n_given; i++) {
        struct sockaddr_storage a = {0};
        socklen_t n = sizeof a;

        h->listen_fd[h->n_listen++] = h->o.given[i];
        getsockname(h->o.given[i], (struct sockaddr *)(void *)&a, &n);
        if (a.ss_family == AF_UNIX)
            continue;
        h->port = port_of(h->o.given[i]);
        h->loopback = h->loopback && is_loopback(h->o.given[i]);
    }
    return PL_OK;
}

pl_status http_bind(struct http *h, pl_err *err)
{
    const char *list = h->o.host ? h->o.host : "127.0.0.1";
    bool both = strchr(list, ',') == NULL;
    pl_status s = PL_OK;

    if (h->o.n_given > 0)
        return take_given(h, err);
    while (s == PL_OK && *list) {
        size_t n = strcspn(list, ",");
        char host[256];

        if (h->n_listen == HTTP_MAX_LISTEN || n >= sizeof host)
            return server_fail(
                err, PL_BAD_ARGUMENT,
                "cannot listen on \"%.40s\": at most %d addresses "
                "of 255 characters are possible",
                list, HTTP_MAX_LISTEN);
        snprintf(host, sizeof host, "%.*s", (int)n, list);
        list += n + (list[n] == ',');
        s = http_is_path(host, n) ? listen_on_path(h, host, err)
                                  : bind_to_host(h, host, both, err);
    }
    return s;
}

pl_status http_listen(struct http *h, pl_err *err)
{
    for (int i = 0; i < h->n_listen; i++)
        if (listen(h->listen_fd[i], SOMAXCONN) < 0)
            return cannot_listen(h, h->o.host ? h->o.host : "127.0.0.1", errno,
                                 err);
    return PL_OK;
}

/* Removes the file of the Unix socket `fd`, on which this server listens. */
static void remove_socket(int fd)
{
    struct sockaddr_un a = {0};
    socklen_t n = sizeof a;

    if (getsockname(fd, (struct sockaddr *)(void *)&a, &n) == 0 &&
        a.sun_family == AF_UNIX)
        unlink(a.sun_path);
}

void http_unlisten(struct http *h)
{
    while (h->n_listen > 0) {
        int fd = h->listen_fd[--h->n_listen];

        if (h->o.n_given == 0)
            remove_socket(fd);
        close(fd);
    }
}

/* ---- accepting new connections ------------------------------------------- */

/* Records a new connection in http.idle and counts it. Returns false if its
 * descriptor is too large for http.idle. The descriptor may be recorded
 * already, because libmicrohttpd closes a connection without calling
 * on_connection if memory is short. */
static bool count(struct http *h, int fd)
{
    bool known = fd < h->n_idle;

    pthread_mutex_lock(&h->lock);
    if (known && h->idle[fd] == 0)
        h->n_connection++;
    if (known)
        h->idle[fd] = clock_now();
    if (known && fd > h->max_fd)
        h->max_fd = fd;
    pthread_mutex_unlock(&h->lock);
    return known;
}

void http_forget_fd(struct http *h, int fd)
{
    bool was_full;

    pthread_mutex_lock(&h->lock);
    was_full = h->n_connection >= h->o.max_connections || h->n_closing > 0;
    if (fd < h->n_idle && h->idle[fd] != 0) {
        h->n_closing -= h->idle[fd] == HTTP_CLOSING;
        h->idle[fd] = 0;
        h->n_connection--;
    }
    pthread_mutex_unlock(&h->lock);
    if (was_full)
        http_wake(h);
}

void http_set_busy(struct http *h, int fd, bool busy)
{
    pthread_mutex_lock(&h->lock);
    if (h->idle[fd] != HTTP_CLOSING)
        h->idle[fd] = busy ? HTTP_BUSY : clock_now();
    pthread_mutex_unlock(&h->lock);
}

/* Closes connections whose clients send a request head or a TLS handshake too
 * slowly. libmicrohttpd itself closes only connections on which nothing is
 * sent. While the server drains, shuts down reading from connections that are
 * idle for drain_s, so that requests already received are still answered.
 * Returns true if any connection is open; the caller then calls this function
 * again in a second. */
static bool close_slow_clients(struct http *h)
{
    bool drains = atomic_load(&h->draining);
    double late = clock_now() - (drains ? h->o.drain_s : 2 * h->o.timeout_s);
    bool any;

    pthread_mutex_lock(&h->lock);
    for (int fd = 0; fd <= h->max_fd; fd++) {
        if (h->idle[fd] != 0 && h->idle[fd] < late)
            shutdown(fd, drains ? SHUT_RD : SHUT_RDWR);
    }
    any = h->n_connection > 0;
    pthread_mutex_unlock(&h->lock);
    return any;
}

static bool has_room(const struct http *h)
{
    return h->n_connection < h->o.max_connections;
}

/* Makes space for a pending connection: closes the open connection that has had
 * no request for the longest time, if that is at least SPARE_S seconds. So
 * clients that keep idle connections open do not lock other clients out. A
 * descriptor becomes free only when libmicrohttpd notices the end of its
 * connection, so this function closes one connection at a time. Returns false
 * if it closed none. */
static bool close_idlest(struct http *h)
{
    double least = clock_now() - SPARE_S;
    int idlest = -1;

    pthread_mutex_lock(&h->lock);
    for (int fd = 0; fd <= h->max_fd && h->n_closing == 0; fd++)
        if (h->idle[fd] != 0 && h->idle[fd] < least) {
            least = h->idle[fd];
            idlest = fd;
        }
    if (idlest >= 0) {
        h->idle[idlest] = HTTP_CLOSING;
        h->n_closing++;
        shutdown(idlest, SHUT_RDWR);
    }
    pthread_mutex_unlock(&h->lock);
    return idlest >= 0;
}

/* Accepts all pending connections of a listening socket, up to the connection
 * limit. Returns false if a connection is left because of the limit, or because
 * descriptors or memory are short, and close_idlest could not close another one
 * either. */
static bool accept_clients(struct http *h, int listen_fd)
{
    if (!has_room(h))
        return close_idlest(h);
    while (has_room(h)) {
        struct sockaddr_storage from;
        struct sockaddr *a = (struct sockaddr *)(void *)&from;
        socklen_t n = sizeof from;
        int fd = accept4(listen_fd, a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                       errno == ENOBUFS))
            return close_idlest(h);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return true;
        if (fd < 0)
            continue;
        if (!count(h, fd))
            close(fd);
        else if (MHD_add_connection(h->daemon, fd, a, n) != MHD_YES)
            http_forget_fd(h, fd); /* MHD_add_connection has closed fd */
    }
    return true;
}

/* ---- noticing clients that disconnect ------------------------------------ */

void http_watch(struct http_request *r)
{
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = r};

    if (r->watched)
        return;
    pthread_mutex_lock(&r->h->lock);
    r->watched = epoll_ctl(r->h->watch_fd, EPOLL_CTL_ADD, r->fd, &e) == 0;
    pthread_mutex_unlock(&r->h->lock);
}

void http_unwatch(struct http_request *r)
{
    struct epoll_event unused = {0};

    if (!r->watched)
        return;
    pthread_mutex_lock(&r->h->lock);
    epoll_ctl(r->h->watch_fd, EPOLL_CTL_DEL, r->fd, &unused);
    pthread_mutex_unlock(&r->h->lock);
    r->watched = false;
}

/* Marks the requests whose clients the epoll set reports as disconnected. Takes
 * a reference to each of these requests with h->lock held. A reported request
 * is still in the epoll set, and removing it needs the lock, so the request
 * still exists. */
static void check_disconnects(struct http *h)
{
    struct epoll_event e[64];
    int n;

    pthread_mutex_lock(&h->lock);
    n = epoll_wait(h->watch_fd, e, 64, 0);
    for (int i = 0; i < n; i++)
        http_request_hold(e[i].data.ptr);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < n; i++) {
        http_request_leave(e[i].data.ptr);
        http_request_drop(e[i].data.ptr);
    }
}

/* ---- connections that linger after a rejected body ----------------------- */

void http_keep_open(struct http *h, int fd)
{
    int copy = -1;

    pthread_mutex_lock(&h->lock);
    if (h->n_linger < HTTP_MAX_LINGER && !atomic_load(&h->stopping))
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0)
        h->linger[h->n_linger++] = (struct http_linger){
            copy, clock_now() + LINGER_S, HTTP_LINGER_BYTES};
    pthread_mutex_unlock(&h->lock);
    if (copy >= 0)
        http_wake(h);
}

/* Receives and discards data on a lingering connection. Returns false if the
 * connection must be closed now. */
static bool linger_on(struct http_linger *l)
{
    char rest[16 << 10];

    if (clock_now() >= l->until)
        return false;
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(l->fd, rest, sizeof rest, MSG_DONTWAIT);

        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR);
        if ((size_t)n >= l->n_left)
            return false;
        l->n_left -= (size_t)n;
    }
    return true;
}

static void see_lingering(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->n_linger;) {
        if (linger_on(&h->linger[i])) {
            i++;
        } else {
            close(h->linger[i].fd);
            h->linger[i] = h->linger[--h->n_linger];
        }
    }
    pthread_mutex_unlock(&h->lock);
}

static int poll_lingering(struct http *h, struct pollfd *p)
{
    int n;

    pthread_mutex_lock(&h->lock);
    n = h->n_linger;
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = h->linger[i].fd, .events = POLLIN};
    pthread_mutex_unlock(&h->lock);
    return n;
}

/* ---- main function of the listening thread ------------------------------- */

void http_wake(struct http *h)
{
    eventfd_write(h->wake_fd, 1);
}

/* Closes all lingering connections, because the server stops. */
static void stop_lingering(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->n_linger > 0)
        close(h->linger[--h->n_linger].fd);
    pthread_mutex_unlock(&h->lock);
}

void *http_listen_thread(void *http)
{
    struct http *h = http;
    enum { LISTEN = 2, LINGER = LISTEN + HTTP_MAX_LISTEN };
    struct pollfd p[LINGER + HTTP_MAX_LINGER];
    bool sockets_left = true, watching = false;
    double look = 0;
    eventfd_t woken;

    while (!atomic_load(&h->stopping)) {
        bool paused = atomic_load(&h->paused);
        bool accepting = sockets_left && h->n_closing == 0 && !paused;
        int n = poll_lingering(h, p + LINGER), wait = -1;

        if (clock_now() >= look) {
            look = clock_now() + 1;
            watching = close_slow_clients(h);
        }

        if (atomic_load(&h->draining))
            http_unlisten(h);
        atomic_store(&h->is_paused, paused);
        p[0] = (struct pollfd){.fd = h->wake_fd, .events = POLLIN};
        p[1] = (struct pollfd){.fd = h->watch_fd, .events = POLLIN};
        for (int i = 0; i < HTTP_MAX_LISTEN; i++)
            p[LISTEN + i] = (struct pollfd){
                .fd = accepting && i < h->n_listen ? h->listen_fd[i] : -1,
                .events = POLLIN};
        if (n > 0 || !sockets_left)
            wait = BUSY_MS;
        else if (watching)
            wait = LOOK_MS;
        if (poll(p, (nfds_t)(LINGER + n), wait) < 0)
            continue;
        if (p[0].revents)
            eventfd_read(h->wake_fd, &woken);
        if (p[1].revents)
            check_disconnects(h);
        sockets_left = true;
        for (int i = 0; i < h->n_listen && !atomic_load(&h->draining); i++) {
            if (!p[LISTEN + i].revents)
                continue;
            sockets_left = accept_clients(h, h->listen_fd[i]) && sockets_left;
            watching = true;
        }
        see_lingering(h);
    }
    http_unlisten(h);
    stop_lingering(h);
    return NULL;
}
