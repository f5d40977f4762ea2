/* The HTTP layer of the server: connections, request bodies, API keys, limits,
 * TLS, streamed responses. It does not interpret requests. Only the files
 * http*.c use libmicrohttpd; http_inner.h describes the threads.
 *
 * Once a request has been received completely, its route's handler is called on
 * a thread of the HTTP layer. The handler then owns the request and may pass it
 * to another thread. The owner ends the request either by one http_respond, or
 * by http_begin, any number of http_send, and http_end. After that the request
 * is invalid. None of these calls waits for the client: data that the client
 * has not read is buffered, and http_backlog returns its size. If a client
 * disconnects early, only http_send reports it. A client that closes its
 * sending half counts as disconnected. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "pl.h"

struct http;
struct http_request;

typedef void http_handler_fn(void *user, struct http_request *r);

/* Values of http_route.flags. HTTP_OPEN: requests of this route need no API
 * key. The bits from HTTP_ARG on are the number that http_route_arg returns, so
 * that several routes can share a handler. */
enum { HTTP_OPEN = 1, HTTP_ARG = 8 };

/* A method and a path, and the function that handles requests with both. A GET
 * route also handles HEAD. OPTIONS requests are answered by the HTTP layer
 * itself. */
struct http_route {
    const char *method; /* HTTP method, such as "GET" or "POST" */
    /* Path of the route, such as "/v1/models" or "/slots/{}". {} matches any
     * one segment. */
    const char *path;
    http_handler_fn *handle;
    unsigned flags;
};

/* Options of an HTTP server. Fields that are 0 or NULL select the defaults.
 * Strings are borrowed until http_stop. */
struct http_options {
    /* Addresses to listen on, separated by commas; NULL for 127.0.0.1. One with
     * a slash, or that ends in .sock, is the path of a Unix socket. */
    const char *host;
    int port; /* TCP port; 0 for any free port, which http_port returns */
    /* The valid API keys, [n_key]. If there are any, a request must send one of
     * them as "Authorization: Bearer KEY" or "x-api-key: KEY". */
    const char *const *key;
    int n_key;
    /* Paths of the TLS certificate and its private key, PEM files; both NULL
     * for no TLS. */
    const char *cert_file, *cert_key_file;
    /* Prefix of the paths of all URLs, such as "/api"; NULL if none. */
    const char *prefix;
    /* Other origins whose pages may use this server from a browser (CORS),
     * separated by commas; "*" for any, "localhost" for those of this machine,
     * NULL for none. If the server has no API keys, it rejects requests from
     * pages of all other origins. */
    const char *origin;
    /* Further host names of this server, separated by commas; "*" for any, NULL
     * for none. A server without API keys checks the Host header if it listens
     * on a loopback address or has this list. It accepts its own names, these
     * names, and IP addresses. */
    const char *hosts;
    size_t max_body; /* limit of one request body, in bytes; 0 for 64 MiB */
    /* Limit of all request bodies in memory together, in bytes. The first 64
     * KiB of each body are not counted. 0 for 4 times max_body. */
    size_t max_bodies;
    int max_connections; /* limit of open connections; 0 for 1024 */
    int max_of_address;  /* limit of open connections from one client address; 0
                            for none */
    /* Seconds after which a connection that transfers no byte in either
     * direction is closed, except while a handler works on its request; 0 for
     * 600. A request head must be complete within twice this time. A body that
     * takes longer than this time must arrive at 1 KiB/s at least. */
    int timeout_s;
    /* let no client connect before http_accept; those of Unix sockets wait */
    bool held;
    /* The sockets of another server, [n_given], which http_sockets returns
     * there. This server takes them over instead of binding `host`, closes them
     * at its end, and leaves the files of Unix sockets alone. */
    const int *given;
    int n_given;
    /* Respond to every request with status 503 and this message; NULL for the
     * routes. */
    const char *unavailable;
    int drain_s; /* seconds that an idle connection stays open while the
                       server drains; 0 for 1 */
    /* Called for each request with one line, never by two threads at once:
     * client, method, path, status, note (http_set_note), milliseconds. NULL if
     * none. */
    pl_log_fn *log;
    void *log_user;
};

/* Returns the body of an error response, malloc'ed; NULL if out of memory. The
 * HTTP layer calls it for requests that it rejects before a handler runs
 * (unknown path, missing API key, body too large). */
typedef char *http_error_fn(int status, const char *message, const char *path);

/* Starts a server with the routes route[n_route], which are borrowed until
 * http_free. `user` is passed to the handlers. BAD_ARGUMENT: an option is
 * invalid. UNSUPPORTED: libmicrohttpd has no TLS. IO: the address cannot be
 * used, a TLS file cannot be read, or a thread cannot be started. Other errors:
 * NO_MEMORY. */
pl_status http_start(struct http **out, const struct http_options *o,
                     const struct http_route *route, int n_route,
                     http_error_fn *error, void *user, pl_err *err);
/* Lets clients connect to a server that was started with http_options.held.
 * Errors are those of http_start for addresses and threads. */
pl_status http_accept(struct http *h, pl_err *err);
/* Makes a server that has called http_accept stop accepting clients, or start
 * again, and waits until it does. Its sockets stay open, so that those who
 * connect wait, or another process that has the sockets accepts them. */
void http_pause(struct http *h, bool pause);
/* Returns the sockets that the server is bound to, and sets *n to their number,
 * at most HTTP_MAX_SOCKET. */
enum { HTTP_MAX_SOCKET = 16 };
const int *http_sockets(const struct http *h, int *n);
/* Sets the seconds that a server with http_options.unavailable names in its
 * header Retry-After. */
void http_set_retry(struct http *h, int seconds);
int http_port(const struct http *h);
/* Returns true if address[0 ... n - 1], one of the addresses in
 * http_options.host, is the path of a Unix socket. */
bool http_is_path(const char *address, size_t n);
/* Sets *n_connection to the number of open connections. Sets *n_request to the
 * number of requests that still run, or whose response the client has not read
 * completely. */
void http_load(const struct http *h, int *n_connection, int *n_request);
/* Prepares the server for stopping: accepts no more connections, responds to
 * new requests with 503, and closes each connection after its current
 * response. */
void http_drain(struct http *h);
/* Closes the remaining connections and waits for running handlers. Requests
 * that were passed to other threads stay valid, and their clients count as
 * disconnected. The owners of these requests must end them before http_free. */
void http_stop(struct http *h);
/* Calls http_stop, then frees the server. NULL is allowed. */
void http_free(struct http *h);

/* ---- reading a request --------------------------------------------------- */

/* The strings that the following functions return are valid until the request
 * ends. */
const char *http_method(const struct http_request *r);
/* Returns the path of the request's URL as received, still percent-encoded,
 * without the server's prefix and without the query. */
const char *http_path(const struct http_request *r);
/* Returns the segment of the request's path that matched {} in the route,
 * percent-decoded, so that it may contain a slash. NULL if the route has no
 * {}. */
const char *http_name(const struct http_request *r);
/* Returns the index of the request's route in the table passed to
 * http_start. */
int http_route_index(const struct http_request *r);
int http_route_arg(const struct http_request *r);
/* Returns the value of the first query argument ?name=value with this name,
 * percent-decoded; NULL if there is none. */
const char *http_query(const struct http_request *r, const char *name);
const char *http_header(const struct http_request *r, const char *name);
/* Returns the body of the request, NUL-terminated and never NULL. Sets *len to
 * its length in bytes. */
const char *http_body(const struct http_request *r, size_t *len);
/* Returns the number of seconds since the head of the request arrived. */
double http_age(const struct http_request *r);
/* Returns a number that identifies the client for fair scheduling, never 0. It
 * is a hash of the API key or, if the server has no keys, of the client's
 * address. */
uint64_t http_client(const struct http_request *r);

/* Sets a text of at most 95 bytes, such as a number of tokens. The line of the
 * request in the log contains it after the HTTP status. */
void http_set_note(struct http_request *r, const char *note);

/* Makes a handler thread call act(user, r) soon. A handler that has to wait,
 * for example for a model to load, uses this to continue later. `act` is called
 * even if the client has disconnected by then. Returns false without queueing
 * the call if the server is stopping. */
bool http_hand(struct http_request *r, http_handler_fn *act, void *user);

/* ---- sending a response -------------------------------------------------- */

/* Adds a header line to the response. Called before http_respond or http_begin.
 * If `name` or `value` contains a line break, the header line is omitted. */
void http_set_header(struct http_request *r, const char *name,
                     const char *value);
/* Sends a whole response and ends the request. `type` is the Content-Type.
 * `body` is copied. Responses with status 429 or 503 get a Retry-After header
 * if they have none. */
void http_respond(struct http_request *r, int status, const char *type,
                  const void *body, size_t len);
/* Begins a chunked response: sends the HTTP status and the headers at once. */
void http_begin(struct http_request *r, int status, const char *type);
/* Sends `len` bytes of a chunked response. Returns false if the client has
 * disconnected or memory is short; http_end must still be called. */
bool http_send(struct http_request *r, const void *data, size_t len);
/* Returns the number of bytes of the response that are still buffered, because
 * the client has not read them yet. */
size_t http_backlog(const struct http_request *r);
void http_end(struct http_request *r);
/* Registers a callback: gone(user) is called at most once, if the client
 * disconnects before the request ends. If the client has already disconnected,
 * it is called before this function returns; else on a listener thread or in
 * http_stop. The callback must neither wait nor end the request, because
 * http_respond, http_end and this function wait until a running callback has
 * returned. NULL removes the callback. */
void http_on_gone(struct http_request *r, void (*gone)(void *user), void *user);
/* Returns true if the server has noticed that the client disconnected. */
bool http_has_left(const struct http_request *r);

#endif
