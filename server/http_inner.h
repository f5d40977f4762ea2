/* Shared by the files of the HTTP layer; not included elsewhere.
 *
 * Threads: libmicrohttpd's workers receive requests and send responses.
 * HTTP_N_HAND threads of this layer, the handler threads, call the handlers of
 * requests that have a body (http_worker.c). One thread, the listening thread,
 * accepts connections and notices clients that disconnect while their
 * connection is suspended (http_listen.c). A response is made on the thread
 * that owns its request. Lock order: a request's lock, then the listener's lock
 * (h->lock). libmicrohttpd's own locks are taken while these are held, never
 * the other way round. */
#ifndef SERVER_HTTP_INNER_H
#define SERVER_HTTP_INNER_H

#include "clock.h"
#include "fail.h"
#include "http.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    /* Limit of the number of segments of a URL's path; "/a/b" has two. */
    HTTP_MAX_SEGMENT = 16,
    /* Limit of the number of lingering connections (struct http_linger). */
    HTTP_MAX_LINGER = 64,
    /* limit of the addresses that a server listens on */
    HTTP_MAX_LISTEN = HTTP_MAX_SOCKET,
    HTTP_N_HAND = 4, /* number of handler threads (http_worker.c) */
    HTTP_LINGER_BYTES = 64 << 20,
    /* Limit of the memory for a request's line and headers, in bytes. */
    HTTP_HEAD_BYTES = 32 << 10,
    /* The first bytes of each request body, up to this number, are not counted
     * in http.body_bytes. */
    HTTP_SMALL_BODY = 64 << 10,
};

/* Value of the Retry-After header, in seconds, for responses with status 429 or
 * 503 whose handler sets no such header. */
#define HTTP_RETRY_S "5"

struct http_pair {
    const char *name, *value;
};

/* A connection whose request was rejected before its body was read. The body
 * that still arrives is received and discarded for a while. If the socket were
 * closed at once, the kernel would also discard the response. */
struct http_linger {
    int fd; /* duplicate of the connection's socket; owned */
    double until;
    /* Number of bytes of the body that may still be received and discarded. */
    size_t n_left;
};

struct http {
    /* The options of http_start, with defaults filled in. */
    struct http_options o;
    /* The table of routes, [n_route]; borrowed. */
    const struct http_route *route;
    int n_route;
    http_error_fn *error;
    void *user;

    struct MHD_Daemon *daemon;
    /* The last error message of libmicrohttpd, recorded only until the server
     * has started. */
    char said[256];
    bool running;
    int port;
    /* The server listens on loopback addresses or Unix sockets only. */
    bool loopback;
    /* The sockets that the server listens on, [n_listen]; closed by the
     * listening thread. */
    int listen_fd[HTTP_MAX_LISTEN];
    int n_listen;
    /* Descriptor of the epoll set that has the sockets of suspended
     * connections. */
    int watch_fd;
    int wake_fd; /* descriptor of the eventfd that wakes the listening thread */
    pthread_t thread;
    bool has_thread;

    atomic_bool draining, stopping, paused;
    atomic_bool is_paused; /* the listening thread has seen `paused` */
    atomic_int retry_s;    /* see http_set_retry */
    pthread_mutex_t log_lock;

    pthread_t hand[HTTP_N_HAND];
    int n_hand;

    /* Guards the fields from here to the end of the struct. */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* signalled when a request is added to `queue` */
    /* Requests that wait for a handler thread, linked by
     * http_request.behind. */
    struct http_request *queue, *queue_end;
    /* No more requests may be queued for the handler threads, because they
     * end. */
    bool no_more;
    /* List of all requests that are not freed yet. */
    struct http_request *first;
    /* Read without the lock, too. */
    atomic_int n_request, n_connection;
    /* Sum of the capacities of all request bodies in bytes, without the first
     * HTTP_SMALL_BODY bytes of each body. */
    size_t body_bytes;
    /* idle[fd], [n_idle]: state of the connection with socket descriptor fd.
     * Time by clock_now, in seconds, since which it has had no request;
     * HTTP_BUSY while it has one; HTTP_CLOSING once it is being closed; 0 if fd
     * is not a connection of this server. */
    double *idle;
    /* max_fd: the highest socket descriptor of any connection so far. */
    int n_idle, max_fd;
    /* Number of connections that are HTTP_CLOSING in `idle`; read without the
     * lock, too. */
    atomic_int n_closing;
    struct http_linger linger[HTTP_MAX_LINGER];
    int n_linger;
};

/* The value in http.idle of a connection that has a request. It is greater than
 * any time, so the connection never counts as idle for too long. */
#define HTTP_BUSY 1e300
/* The value in http.idle of a connection that is being closed to make space for
 * a new one. It is greater than any time, so the connection is not chosen
 * again. */
#define HTTP_CLOSING 2e300

enum http_kind { HTTP_NO_RESPONSE, HTTP_WHOLE, HTTP_PARTS };

struct http_request {
    struct http *h;
    /* Neighbours in the list http.first; guarded by h->lock. */
    struct http_request *next, *prev;
    /* Next request in http.queue; guarded by h->lock. */
    struct http_request *behind;
    /* The function that a handler thread calls with the request, set by
     * http_hand; NULL for the route's handler. */
    http_handler_fn *act;
    void *act_user;
    bool cut; /* http_stop has cut the request off; guarded by h->lock */
    /* Number of references: by the connection, by the owner of the request, and
     * by threads that inspect it. */
    atomic_int n_ref;

    /* The fields from here to `address` do not change once the request has been
     * passed to a handler. */
    /* The route of the request; NULL if none matched. */
    const struct http_route *route;
    /* Headers and query arguments; owned, one allocation that includes their
     * strings. */
    struct http_pair *header, *query;
    int n_header, n_query;
    const char *method, *path;
    /* The segments of the URL's path, percent-decoded. */
    const char *segment[HTTP_MAX_SEGMENT];
    int n_segment; /* number of path segments; -1 if the path is malformed */
    const char *name;
    uint64_t client;
    bool odd; /* a header line of the request is malformed */
    bool old; /* the request uses HTTP/1.0 */
    /* The connection is closed after the response, because it is not certain
     * where the next request begins. */
    bool close;
    char said[512]; /* buffer for an error message that names parts of the
                       request */
    /* The request's body, [n_body], NUL-terminated; owned; NULL if empty. */
    char *body;
    size_t n_body, cap_body;
    double began;
    char address[INET6_ADDRSTRLEN]; /* the client's address, for the log */

    /* The fields from here to `cut_off` are used only by the libmicrohttpd
     * worker of the connection. */
    bool handed;   /* the request was passed to a handler */
    bool has_body; /* the headers announce that a body follows */
    bool early;    /* an error response was sent before the whole body was
                      received */
    /* Seconds from the arrival of the request until libmicrohttpd had finished
     * it; for the log. */
    double took_s;
    /* The reason for an incomplete response, for the log; "" if the response is
     * complete. */
    const char *cut_off;

    /* Guards the fields from here to the end of the struct. */
    pthread_mutex_t lock;
    pthread_cond_t notified;
    /* Connection of the request; NULL once libmicrohttpd has finished the
     * request. */
    struct MHD_Connection *connection;
    int fd; /* socket descriptor of the connection */
    bool watched, suspended;
    atomic_bool gone; /* the client has disconnected; read without the lock */
    /* Memory was short for the response, so the connection must be cut. */
    bool broken;
    /* The rest of the response is discarded, because libmicrohttpd has finished
     * a HEAD request. */
    bool dropped;
    bool queued, ended;
    enum http_kind kind;
    int status;
    char *type; /* Content-Type of the response; owned; NULL if none */
    struct http_pair *line; /* response headers; owned with their strings */
    int n_line;
    /* Buffer of the response body, [cap]; owned; bytes data[from ... end - 1]
     * are not sent yet. */
    char *data;
    size_t from, end, cap;
    /* Text that the handler adds to the request's line in the log. */
    char note[96];
    void (*on_gone)(void *user);
    void *gone_user;
    bool notifying; /* the on_gone callback is being called */
};

/* ---- functions of http.c ------------------------------------------------- */

/* Copies n bytes of untrusted text to `out` for the log or a message,
 * truncated. Replaces blanks, and bytes that could control a terminal. */
void http_show(char *out, size_t size, const char *s, size_t n);
/* Writes the log line of a request that has ended. Called by the thread that
 * frees the request. */
void http_log_request(struct http_request *r);

/* ---- functions of http_listen.c: sockets --------------------------------- */

/* Binds sockets to the addresses and paths of the options. No client can
 * connect to an address yet. Listens on paths at once: another server would
 * take the file of a socket without a listener for one that is left over. */
pl_status http_bind(struct http *h, pl_err *err);
/* Listens on all sockets. */
pl_status http_listen(struct http *h, pl_err *err);
/* Stops listening: closes the listening sockets and removes their files. */
void http_unlisten(struct http *h);
/* The main function of the listening thread: accepts connections, notices
 * suspended clients that disconnect, and closes connections of slow ones. When
 * h->stopping is set, closes the listening socket and lingering connections,
 * and returns NULL. */
void *http_listen_thread(void *http);
void http_wake(struct http *h);
/* Records in http.idle that a connection has a request or, unless `busy`, that
 * it is idle from now on. */
void http_set_busy(struct http *h, int fd, bool busy);
/* Removes a closed connection from http.idle and from the number of
 * connections. */
void http_forget_fd(struct http *h, int fd);
/* Adds the socket of the request's connection to the epoll set that reports
 * disconnecting clients (http_watch), or removes it (http_unwatch). Caller
 * holds r->lock. */
void http_watch(struct http_request *r);
void http_unwatch(struct http_request *r);
/* Keeps a connection open for at most LINGER_S more seconds, by a duplicate of
 * its socket `fd` (struct http_linger). Called before libmicrohttpd closes
 * `fd`. */
void http_keep_open(struct http *h, int fd);

/* ---- functions of http_worker.c: handler threads ------------------------- */

/* Starts the handler threads. Returns false if one cannot be created. */
bool http_workers_start(struct http *h);
/* Stops the handler threads: waits for handlers that are running, and responds
 * with 503 to queued requests instead of calling their handlers. */
void http_hands_stop(struct http *h);
/* Passes a request that was received completely to its handler. The handler
 * then owns a reference. The handler of a request without a body is called
 * directly, on libmicrohttpd's worker; else it is called on a handler
 * thread. */
void http_dispatch(struct http_request *r);

/* ---- functions of http_request.c: requests ------------------------------- */

/* Creates a request from its head. The request has one reference, which
 * on_completed drops. Returns NULL if out of memory. */
struct http_request *http_request_create(struct http *h,
                                         struct MHD_Connection *c,
                                         const char *method, const char *url,
                                         const char *version);
void http_request_hold(struct http_request *r);
void http_request_drop(struct http_request *r);
/* Returns true if a body of `len` bytes fits in the limit of all request bodies
 * together (max_bodies). */
bool http_has_room(struct http *h, size_t len);
/* Appends data[0 .. len - 1] to the request's body. FULL: the limit of all
 * request bodies together is exceeded. Other errors: NO_MEMORY. */
pl_status http_request_add_body(struct http_request *r, const char *data,
                                size_t len);
/* Records that the client of a request has disconnected, calls the on_gone
 * callback if that was not done yet, and resumes the connection. */
void http_request_leave(struct http_request *r);
/* Returns the IP address of the client: a struct in_addr or in6_addr, according
 * to *family. NULL if the client is connected by a Unix socket. An IPv4 address
 * that is mapped to IPv6 is returned as IPv4. The request must still have a
 * connection. */
const void *http_request_address(const struct http_request *r, int *family);

/* ---- functions of http_route.c: finding the route ------------------------ */

/* Returns the value for the header Access-Control-Allow-Origin: the origin of
 * the request if it is allowed, "*" if all origins are, else NULL. */
const char *http_allowed_origin(const struct http_request *r);
/* Finds the route of a request, and checks its framing, API key, origin and
 * announced size. If all is valid, sets r->route, r->name and r->client, and
 * returns 0. Else sets *message and returns the HTTP status of the
 * rejection. */
int http_route_find(struct http_request *r, const char **message);

/* ---- functions of http_response.c: responses ----------------------------- */

/* Continues a request on libmicrohttpd's worker: queues the response if it
 * exists, else suspends the connection until it does. Returns MHD_NO if the
 * connection must be cut. */
enum MHD_Result http_proceed(struct http_request *r);
/* Responds to a request with an error: HTTP status `status`, and the body that
 * h->error makes of `message`. Ends the request. */
void http_reject(struct http_request *r, int status, const char *message);
/* Resumes the request's connection if it is suspended. Caller holds r->lock. */
void http_resume(struct http_request *r);

#endif
