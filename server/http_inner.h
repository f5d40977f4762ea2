/* What the files of the HTTP layer share; nobody else includes it.
 *
 * Threads: libmicrohttpd's workers read requests and write answers; a few of
 * our own call the handlers of requests that have a body (http_worker.c); one
 * accepts connections and notices clients that leave while their connection
 * sleeps (http_listen.c); handlers' threads make answers. A request's lock may
 * be held when the listener's is taken, never the other way round;
 * libmicrohttpd's own are taken within both. */
#ifndef SERVER_HTTP_INNER_H
#define SERVER_HTTP_INNER_H

#include "http.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    HTTP_MAX_SEGMENT = 16, /* of a path, "/a/b" has two */
    HTTP_MAX_LINGER = 64,  /* connections at once */
    HTTP_N_HAND = 4,       /* handlers at once */
    HTTP_LINGER_BYTES = 64 << 20,
    HTTP_HEAD_BYTES = 32 << 10, /* of a request line and its headers */
    HTTP_SMALL_BODY = 64 << 10, /* of a body, what is not counted */
};

struct http_pair {
    const char *name, *value;
};

/* A connection whose request was refused before its body was read: what still
 * arrives is thrown away for a while, since closing at once would make the
 * kernel throw away the answer instead. */
struct http_linger {
    int fd; /* owned, a copy of the connection's */
    double until;
    size_t n_left; /* bytes */
};

struct http {
    struct http_options o;          /* defaults filled in */
    const struct http_route *route; /* borrowed, [n_route] */
    int n_route;
    http_error_fn *error;
    void *user;

    struct MHD_Daemon *daemon;
    char said[256]; /* libmicrohttpd's last complaint while it starts */
    bool running;
    int port;
    bool loopback; /* it listens for this machine alone */
    int listen_fd; /* -1: none any more; the listening thread's to close */
    int watch_fd;  /* epoll: sockets of requests that sleep */
    int wake_fd;   /* eventfd: the listening thread has something to look at */
    pthread_t thread;
    bool has_thread;

    atomic_bool draining, stopping;
    pthread_mutex_t log_lock;

    pthread_t hand[HTTP_N_HAND];
    int n_hand;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t come;  /* a request for a handler has come */
    struct http_request *queue, *queue_end; /* those; by `behind` */
    bool no_more;                           /* none come any more */
    struct http_request *first;             /* all there are */
    int n_request, n_connection;
    size_t body_bytes; /* of all bodies, beyond HTTP_SMALL_BODY of each */
    double *idle; /* [n_idle], by socket: since when a connection has had no
                     request; 0: it is none of ours, HTTP_BUSY: it has one */
    int n_idle, max_fd; /* max_fd: the highest there ever was */
    struct http_linger linger[HTTP_MAX_LINGER];
    int n_linger;
};

/* A time that never comes. */
#define HTTP_BUSY 1e300

enum http_kind { HTTP_NO_RESPONSE, HTTP_WHOLE, HTTP_PARTS };

struct http_request {
    struct http *h;
    struct http_request *next, *prev; /* h->lock */
    struct http_request *behind;      /* h->lock */
    http_handler_fn *act;             /* of http_hand; NULL: the route's */
    void *act_user;
    bool cut;         /* h->lock: http_stop saw it */
    atomic_int n_ref; /* the connection, the handler, who looks at it */

    /* What is asked: constant once a handler has it. */
    const struct http_route *route;   /* NULL: none */
    struct http_pair *header, *query; /* owned as one, with their texts */
    int n_header, n_query;
    const char *method, *path;
    const char *segment[HTTP_MAX_SEGMENT]; /* of the path, decoded */
    int n_segment;                         /* -1: the path is malformed */
    const char *name;
    uint64_t client;
    bool odd;       /* a header that no client of good will sends */
    bool old;       /* of HTTP/1.0 */
    bool close;     /* what follows on the connection is not to be trusted */
    char said[512]; /* why it is refused, where that has names in it */
    char *body;     /* owned, [n_body], a NUL behind */
    size_t n_body, cap_body;
    double began;

    /* Of the worker that has the connection. */
    bool handed;   /* a handler was given it */
    bool has_body; /* one is announced */
    bool early;    /* refused before its body was read */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t told;
    struct MHD_Connection *connection; /* NULL: it is through with this */
    int fd;                            /* its socket */
    bool watched, suspended;
    bool gone;    /* the client is */
    bool broken;  /* memory ran out: the connection is to be cut */
    bool dropped; /* the rest of the answer is for nobody: HEAD */
    bool queued, ended;
    enum http_kind kind;
    int status;
    char *type;             /* owned; NULL: none */
    struct http_pair *line; /* owned, as are its texts: lines of the answer */
    int n_line;
    char *data; /* owned, [cap]: the answer, of which from..end is left */
    size_t from, end, cap;
    void (*on_gone)(void *user);
    void *gone_user;
    bool telling; /* on_gone is being called */
};

/* ---- http.c -------------------------------------------------------------- */

/* Writes a message; as pl.h's functions do. */
pl_status http_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
double http_now(void);

/* ---- http_listen.c: sockets ---------------------------------------------- */

pl_status http_listen(struct http *h, pl_err *err);
/* Accepts and watches until h->stopping, then closes its sockets. */
void *http_listen_thread(void *http);
void http_wake(struct http *h);
/* A connection has a request; it has none any more, and waits for the next. */
void http_set_busy(struct http *h, int fd, bool busy);
/* A connection was closed. */
void http_forget_fd(struct http *h, int fd);
/* Tells when the client leaves; with r->lock held. */
void http_watch(struct http_request *r);
void http_unwatch(struct http_request *r);
/* Before the connection of fd is closed. */
void http_keep_open(struct http *h, int fd);

/* ---- http_worker.c: handlers ----------------------------------------------
 */

/* False: no threads. */
bool http_workers_start(struct http *h);
/* Waits for handlers that run; those that have not begun do not. */
void http_hands_stop(struct http *h);
/* Gives a whole request to its handler, which holds it then. */
void http_dispatch(struct http_request *r);

/* ---- http_request.c: requests -------------------------------------------- */

/* NULL: no memory. The connection holds it. */
struct http_request *http_request_create(struct http *h,
                                         struct MHD_Connection *c,
                                         const char *method, const char *url,
                                         const char *version);
void http_request_hold(struct http_request *r);
void http_request_drop(struct http_request *r);
/* Is there room for a body of so many bytes, beside those of others? */
bool http_has_room(struct http *h, size_t len);
/* FULL: all bodies together are too large. */
pl_status http_request_add_body(struct http_request *r, const char *data,
                                size_t len);
/* The request's client has left: once, its handler is told. */
void http_request_leave(struct http_request *r);

/* ---- http_route.c: who answers what -------------------------------------- */

/* A status that refuses the request, with what to say, or 0: r->route is to be
 * asked, its names and its client being known. */
int http_route_find(struct http_request *r, const char **message);

/* ---- http_response.c: answers ----------------------------------------------
 */

/* Of libmicrohttpd's worker: gives it the answer, or has the connection sleep
 * until there is one. MHD_NO: cut it. */
enum MHD_Result http_proceed(struct http_request *r);
/* The answer that the table of errors gives. */
void http_reject(struct http_request *r, int status, const char *message);
/* With r->lock held: wakes the connection. */
void http_resume(struct http_request *r);

#endif
