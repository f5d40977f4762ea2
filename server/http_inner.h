/* Shared by the files of the HTTP layer; not included elsewhere.
 *
 * Threads: libmicrohttpd's workers read requests and write responses. A few
 * threads of our own run the handlers of requests that have a body
 * (http_worker.c). One accepts connections and notices clients that disconnect
 * while their connection is suspended (http_listen.c). Handlers' threads make
 * responses. The listener's lock may be taken while a request's lock is held,
 * never the other way round; libmicrohttpd's own locks are taken within
 * both. */
#ifndef SERVER_HTTP_INNER_H
#define SERVER_HTTP_INNER_H

#include "http.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    HTTP_MAX_SEGMENT = 16, /* segments of a path; "/a/b" has two */
    HTTP_MAX_LINGER = 64,  /* lingering connections at once */
    HTTP_N_HAND = 4,       /* handler threads */
    HTTP_LINGER_BYTES = 64 << 20,
    HTTP_HEAD_BYTES = 32 << 10, /* for a request line and its headers */
    HTTP_SMALL_BODY = 64 << 10, /* bytes of a body that are not counted */
};

struct http_pair {
    const char *name, *value;
};

/* A connection whose request was rejected before its body was read. What still
 * arrives is discarded for a while, because closing at once would make the
 * kernel discard the response. */
struct http_linger {
    int fd; /* owned, a duplicate of the connection's */
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
    bool loopback; /* listens on a loopback address */
    int listen_fd; /* -1: closed; closed by the listening thread */
    int watch_fd;  /* epoll: sockets of suspended requests */
    int wake_fd;   /* eventfd: wakes the listening thread */
    pthread_t thread;
    bool has_thread;

    atomic_bool draining, stopping;
    pthread_mutex_t log_lock;

    pthread_t hand[HTTP_N_HAND];
    int n_hand;

    pthread_mutex_t lock;                   /* of the following */
    pthread_cond_t wake;                    /* a request was queued */
    struct http_request *queue, *queue_end; /* for handler threads, linked by
                                               `behind` */
    bool no_more;                           /* no more are accepted */
    struct http_request *first;             /* of all requests */
    int n_request, n_connection;
    size_t body_bytes; /* of all bodies, beyond HTTP_SMALL_BODY of each */
    double *idle; /* [n_idle], by socket: since when a connection has had no
                     request; 0: not a connection of ours; HTTP_BUSY: it has
                     one */
    int n_idle, max_fd; /* max_fd: the highest ever used */
    struct http_linger linger[HTTP_MAX_LINGER];
    int n_linger;
};

/* A time later than any other. */
#define HTTP_BUSY 1e300

enum http_kind { HTTP_NO_RESPONSE, HTTP_WHOLE, HTTP_PARTS };

struct http_request {
    struct http *h;
    struct http_request *next, *prev; /* h->lock */
    struct http_request *behind;      /* h->lock */
    http_handler_fn *act;             /* set by http_hand; NULL: the route's */
    void *act_user;
    bool cut;         /* h->lock: http_stop has handled it */
    atomic_int n_ref; /* held by the connection, the handler, and threads that
                         inspect it */

    /* Constant once a handler has the request. */
    const struct http_route *route;   /* NULL: none */
    struct http_pair *header, *query; /* owned as one allocation, with their
                                         strings */
    int n_header, n_query;
    const char *method, *path;
    const char *segment[HTTP_MAX_SEGMENT]; /* of the path, decoded */
    int n_segment;                         /* -1: the path is malformed */
    const char *name;
    uint64_t client;
    bool odd;       /* a header that no well-behaved client sends */
    bool old;       /* HTTP/1.0 */
    bool close;     /* the connection must close: what follows on it cannot be
                       trusted */
    char said[512]; /* the error message, if it contains names */
    char *body;     /* owned, [n_body], terminated */
    size_t n_body, cap_body;
    double began;

    /* Used only by the worker that has the connection. */
    bool handed;   /* passed to a handler */
    bool has_body; /* a body is announced */
    bool early;    /* rejected before its body was read */

    pthread_mutex_t lock; /* of the following */
    pthread_cond_t notified;
    struct MHD_Connection *connection; /* NULL: it has finished with this
                                          request */
    int fd;                            /* its socket */
    bool watched, suspended;
    bool gone;    /* the client has disconnected */
    bool broken;  /* out of memory: the connection must be cut */
    bool dropped; /* the rest of the response is discarded: HEAD */
    bool queued, ended;
    enum http_kind kind;
    int status;
    char *type;             /* owned; NULL: none */
    struct http_pair *line; /* owned, as are its strings: response headers */
    int n_line;
    char *data; /* owned, [cap]: the response, of which from..end is unsent */
    size_t from, end, cap;
    void (*on_gone)(void *user);
    void *gone_user;
    bool notifying; /* on_gone is running */
};

/* ---- http.c -------------------------------------------------------------- */

/* Writes an error message, as pl.h's functions do. */
pl_status http_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
double http_now(void);

/* ---- http_listen.c: sockets ---------------------------------------------- */

pl_status http_listen(struct http *h, pl_err *err);
/* Accepts and watches until h->stopping, then closes its sockets. */
void *http_listen_thread(void *http);
void http_wake(struct http *h);
/* Marks the connection as having a request, or as idle until the next one. */
void http_set_busy(struct http *h, int fd, bool busy);
/* Forgets a connection that was closed. */
void http_forget_fd(struct http *h, int fd);
/* Watches for the client disconnecting. Caller holds r->lock. */
void http_watch(struct http_request *r);
void http_unwatch(struct http_request *r);
/* Keeps a duplicate of fd open for a while; called before the connection is
 * closed. */
void http_keep_open(struct http *h, int fd);

/* ---- http_worker.c: handlers --------------------------------------------- */

/* Returns false if a thread cannot be created. */
bool http_workers_start(struct http *h);
/* Waits for running handlers; those that have not begun are not run. */
void http_hands_stop(struct http *h);
/* Passes a complete request to its handler, which then owns a reference. */
void http_dispatch(struct http_request *r);

/* ---- http_request.c: requests -------------------------------------------- */

/* Returns NULL if out of memory. The connection owns the reference. */
struct http_request *http_request_create(struct http *h,
                                         struct MHD_Connection *c,
                                         const char *method, const char *url,
                                         const char *version);
void http_request_hold(struct http_request *r);
void http_request_drop(struct http_request *r);
/* Returns true if a body of len bytes fits in addition to those of other
 * requests. */
bool http_has_room(struct http *h, size_t len);
/* Appends to the body. FULL: all bodies together are too large. */
pl_status http_request_add_body(struct http_request *r, const char *data,
                                size_t len);
/* Marks the client as gone and notifies the handler once. */
void http_request_leave(struct http_request *r);

/* ---- http_route.c: routing ----------------------------------------------- */

/* Returns 0 after setting r->route, r->name and r->client, or the status that
 * rejects the request, with its *message. */
int http_route_find(struct http_request *r, const char **message);

/* ---- http_response.c: responses ------------------------------------------ */

/* Called by libmicrohttpd's worker: queues the response, or suspends the
 * connection until there is one. MHD_NO: cut the connection. */
enum MHD_Result http_proceed(struct http_request *r);
/* Sets an error response made by http.error. */
void http_reject(struct http_request *r, int status, const char *message);
/* Wakes the connection. Caller holds r->lock. */
void http_resume(struct http_request *r);

#endif
