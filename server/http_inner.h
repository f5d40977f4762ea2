/* Shared by the files of the HTTP layer; not included elsewhere.
 *
 * Threads: libmicrohttpd's workers receive requests and send responses.
 * HTTP_N_HAND threads of this layer call the handlers of requests that have a
 * body (http_worker.c). One thread accepts connections and notices clients that
 * disconnect while their connection is suspended (http_listen.c). Responses are
 * made on whatever thread owns the request. Lock order: a request's lock, then
 * the listener's lock (h->lock). libmicrohttpd's own locks are taken while
 * these are held, never the other way round. */
#ifndef SERVER_HTTP_INNER_H
#define SERVER_HTTP_INNER_H

#include "http.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    HTTP_MAX_SEGMENT = 16, /* most segments of a path; "/a/b" has two */
    HTTP_MAX_LINGER = 64,  /* limit of lingering connections (struct
                              http_linger) */
    HTTP_MAX_LISTEN = 16,  /* most addresses to listen on */
    HTTP_N_HAND = 4,       /* number of handler threads */
    HTTP_LINGER_BYTES = 64 << 20,
    HTTP_HEAD_BYTES = 32 << 10, /* limit of a request line and headers in
                                   memory */
    HTTP_SMALL_BODY = 64 << 10, /* of each body, the first bytes that are not
                                   counted in http.body_bytes */
};

/* Value of Retry-After, in seconds, for requests that are rejected with 429 or
 * 503, unless the handler sets one. */
#define HTTP_RETRY_S "5"

struct http_pair {
    const char *name, *value;
};

/* A connection whose request was rejected before its body was read. The body
 * that still arrives is received and discarded for a while. If the socket were
 * closed at once, the kernel would also discard the response. */
struct http_linger {
    int fd; /* owned, a duplicate of the connection's socket */
    double until;
    size_t n_left; /* number of bytes that may still be received and
                      discarded */
};

struct http {
    struct http_options o;          /* with the defaults filled in */
    const struct http_route *route; /* borrowed, [n_route] */
    int n_route;
    http_error_fn *error;
    void *user;

    struct MHD_Daemon *daemon;
    char said[256]; /* last error message of libmicrohttpd, kept only until the
                       server runs */
    bool running;
    int port;
    bool loopback; /* listens on loopback addresses or Unix sockets alone */
    int listen_fd[HTTP_MAX_LISTEN]; /* [n_listen], closed by the listening
                                       thread */
    int n_listen;
    int watch_fd; /* epoll set of the sockets of suspended connections */
    int wake_fd;  /* eventfd that wakes the listening thread */
    pthread_t thread;
    bool has_thread;

    atomic_bool draining, stopping;
    pthread_mutex_t log_lock;

    pthread_t hand[HTTP_N_HAND];
    int n_hand;

    pthread_mutex_t lock;                   /* guards the following fields */
    pthread_cond_t wake;                    /* signalled when a request is
                                               queued */
    struct http_request *queue, *queue_end; /* queue of the handler threads,
                                               linked by http_request.behind */
    bool no_more;                           /* http_hand accepts no more
                                               requests */
    struct http_request *first;             /* list of all requests */
    int n_request, n_connection;
    /* Sum of the capacities of all request bodies, without the first
     * HTTP_SMALL_BODY bytes of each. */
    size_t body_bytes;
    /* Indexed by socket descriptor, [n_idle]: the http_now time since which a
     * connection has had no request; HTTP_BUSY while it has one; HTTP_CLOSING
     * once it is being closed; 0 if the descriptor is not a connection of this
     * server. */
    double *idle;
    int n_idle, max_fd; /* max_fd: the highest descriptor of any connection so
                           far */
    int n_closing;      /* number of connections marked HTTP_CLOSING */
    struct http_linger linger[HTTP_MAX_LINGER];
    int n_linger;
};

/* Marks a connection with a request in http.idle. It is greater than any time,
 * so the connection never counts as idle for too long. */
#define HTTP_BUSY 1e300
/* Marks a connection in http.idle that is being closed to make space for a new
 * one. It is greater than any time, too. */
#define HTTP_CLOSING 2e300

enum http_kind { HTTP_NO_RESPONSE, HTTP_WHOLE, HTTP_PARTS };

struct http_request {
    struct http *h;
    struct http_request *next, *prev; /* guarded by h->lock */
    struct http_request *behind;      /* guarded by h->lock */
    http_handler_fn *act;             /* set by http_hand; if NULL, the route's
                                         handler is called */
    void *act_user;
    bool cut;         /* guarded by h->lock; http_stop has cut the request
                         off */
    atomic_int n_ref; /* references: of the connection, of the request's owner,
                         and of threads that inspect it */

    /* Constant once the request has been passed to a handler. */
    const struct http_route *route;   /* NULL if no route matched */
    struct http_pair *header, *query; /* owned, one allocation that includes
                                         their strings */
    int n_header, n_query;
    const char *method, *path;
    const char *segment[HTTP_MAX_SEGMENT]; /* the segments of the path,
                                              decoded */
    int n_segment;                         /* -1 if the path is malformed */
    const char *name;
    uint64_t client;
    bool odd;       /* a header line is malformed */
    bool old;       /* the request uses HTTP/1.0 */
    bool close;     /* close the connection after the response, because the
                       framing of further requests cannot be trusted */
    char said[512]; /* buffer for an error message that names parts of the
                       request */
    char *body;     /* owned, [n_body], NUL-terminated; NULL if empty */
    size_t n_body, cap_body;
    double began;
    char address[INET6_ADDRSTRLEN]; /* the client's address, for the log */

    /* The following fields are used only by the libmicrohttpd worker of the
     * connection. */
    bool handed;   /* the request was passed to a handler */
    bool has_body; /* the headers announce a body */
    bool early;    /* an error response was sent before the whole body was
                      received */
    double took_s; /* time until the connection was done with the request; for
                      the log, as the next field */
    const char *cut_off; /* why the response is incomplete; "" if it is not */

    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t notified;
    struct MHD_Connection *connection; /* NULL once libmicrohttpd has finished
                                          this request */
    int fd;                            /* socket of the connection */
    bool watched, suspended;
    bool gone;    /* the client has disconnected */
    bool broken;  /* memory was short, so the connection must be cut */
    bool dropped; /* the rest of the response is discarded, because the request
                     is HEAD */
    bool queued, ended;
    enum http_kind kind;
    int status;
    char *type;             /* Content-Type; owned; NULL if none */
    struct http_pair *line; /* response headers; owned with their strings */
    int n_line;
    char *data; /* owned, [cap]; data[from ... end - 1] is not sent yet */
    size_t from, end, cap;
    char note[96]; /* for the log: what the handler adds to its line */
    void (*on_gone)(void *user);
    void *gone_user;
    bool notifying; /* on_gone is running */
};

/* ---- http.c -------------------------------------------------------------- */

/* Sets *err, which may be NULL, to a status and a formatted message. Returns
 * `s`. */
pl_status http_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
double http_now(void);
/* Logs a request that has ended. Called by the thread that frees it. */
void http_log_request(struct http_request *r);

/* ---- http_listen.c: sockets ---------------------------------------------- */

/* Binds sockets to the addresses and paths of the options. No client can
 * connect to an address yet. Listens on paths at once: another server would
 * take the file of a socket without a listener for one that is left over. */
pl_status http_bind(struct http *h, pl_err *err);
/* Listens on all sockets. */
pl_status http_listen(struct http *h, pl_err *err);
/* Stops listening. */
void http_unlisten(struct http *h);
/* The listening thread: accepts connections, notices suspended clients that
 * disconnect, and closes connections of slow ones. When h->stopping is set,
 * closes the listening socket and lingering connections, and returns NULL. */
void *http_listen_thread(void *http);
void http_wake(struct http *h);
/* Marks a connection as having a request, or as idle from now on. */
void http_set_busy(struct http *h, int fd, bool busy);
/* Removes a closed connection from the counts. */
void http_forget_fd(struct http *h, int fd);
/* Adds the request's socket to the epoll set that reports disconnecting
 * clients, or removes it. Caller holds r->lock. */
void http_watch(struct http_request *r);
void http_unwatch(struct http_request *r);
/* Keeps a connection open for at most LINGER_S seconds by a duplicate of `fd`
 * (struct http_linger). Called before libmicrohttpd closes `fd`. */
void http_keep_open(struct http *h, int fd);

/* ---- http_worker.c: handlers --------------------------------------------- */

/* Starts the handler threads. Returns false if one cannot be created. */
bool http_workers_start(struct http *h);
/* Stops the handler threads: waits for running handlers, and answers queued
 * requests with 503 instead of calling their handlers. */
void http_hands_stop(struct http *h);
/* Passes a complete request to its handler, which then owns a reference.
 * Without a body, the handler is called directly, else on a handler thread. */
void http_dispatch(struct http_request *r);

/* ---- http_request.c: requests -------------------------------------------- */

/* Creates a request from its head, with one reference, which on_completed
 * drops. Returns NULL if out of memory. */
struct http_request *http_request_create(struct http *h,
                                         struct MHD_Connection *c,
                                         const char *method, const char *url,
                                         const char *version);
void http_request_hold(struct http_request *r);
void http_request_drop(struct http_request *r);
/* Returns true if a body of `len` bytes is within the limit of all bodies
 * together (max_bodies). */
bool http_has_room(struct http *h, size_t len);
/* Appends to the body. FULL: the limit of all bodies together is exceeded.
 * Other errors: NO_MEMORY. */
pl_status http_request_add_body(struct http_request *r, const char *data,
                                size_t len);
/* Marks the client as disconnected, calls the on_gone callback if that was not
 * done yet, and resumes the connection. */
void http_request_leave(struct http_request *r);
/* Returns the address of the client, a struct in_addr or in6_addr as *family
 * says; NULL if it is connected by a Unix socket. IPv4 that is mapped to IPv6
 * is IPv4. The request must have a connection. */
const void *http_request_address(const struct http_request *r, int *family);

/* ---- http_route.c: routing ----------------------------------------------- */

/* Returns what Access-Control-Allow-Origin says: the request's origin if it is
 * allowed, "*" if all are, else NULL. */
const char *http_allowed_origin(const struct http_request *r);
/* Finds the route of a request and checks its framing, key, origin and
 * announced size. Returns 0 after setting r->route, r->name and r->client. Else
 * returns the HTTP status of the rejection and sets *message. */
int http_route_find(struct http_request *r, const char **message);

/* ---- http_response.c: responses ------------------------------------------ */

/* Called on libmicrohttpd's worker: queues the response if there is one, else
 * suspends the connection until there is one. Returns MHD_NO if the connection
 * must be cut. */
enum MHD_Result http_proceed(struct http_request *r);
/* Makes the body of h->error for this status and message the response of the
 * request, and ends the request. */
void http_reject(struct http_request *r, int status, const char *message);
/* Resumes the connection if it is suspended. Caller holds r->lock. */
void http_resume(struct http_request *r);

#endif
