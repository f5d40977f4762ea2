/* The HTTP layer of the server: connections, request bodies, API keys, limits,
 * TLS, streamed responses. It does not interpret requests. Only the files
 * http*.c use libmicrohttpd; http_inner.h describes the threads.
 *
 * Once a request has been received completely, its route's handler is called on
 * one of the listener's threads. The handler then owns the request and may pass
 * it to another thread. The owner ends the request either by one http_respond,
 * or by http_begin, any number of http_send, and http_end. After that the
 * request is invalid. None of these calls waits for the client: data that the
 * client has not read is buffered, and http_backlog returns its size. If a
 * client disconnects early, only http_send reports it. A client that closes its
 * sending half counts as disconnected. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "pl.h"

struct http;
struct http_request;

typedef void http_handler_fn(void *user, struct http_request *r);

enum { HTTP_OPEN = 1 }; /* value of http_route.flags: no API key is needed */

/* A method and path, and the function that handles such requests. A GET route
 * also handles HEAD. OPTIONS is answered by the HTTP layer itself. */
struct http_route {
    const char *method; /* such as "GET" or "POST" */
    const char *path;   /* such as "/v1/models" or "/slots/{}"; {} matches any
                           one segment */
    http_handler_fn *handle;
    unsigned flags;
};

/* Options of a server. Fields that are 0 or NULL select the defaults. Strings
 * are borrowed until http_stop. */
struct http_options {
    /* Addresses to listen on, separated by commas; NULL for 127.0.0.1. One with
     * a slash, or that ends in .sock, is the path of a Unix socket. */
    const char *host;
    int port; /* 0 for any free port, see http_port */
    /* The API keys, [n_key]. If there are any, a request must send one of them
     * as "Authorization: Bearer KEY" or "x-api-key: KEY". */
    const char *const *key;
    int n_key;
    const char *cert_file, *cert_key_file; /* PEM files; both NULL if no TLS */
    const char *prefix;                    /* prefix of every path, such as
                                              "/api"; NULL if none */
    /* Other origins whose pages may use this server from a browser (CORS),
     * separated by commas; "*" for any, "localhost" for those of this machine,
     * NULL if none. If there are no keys, requests from pages of all
     * other origins are rejected. */
    const char *origin;
    /* Further host names of this server, separated by commas; "*" for any, NULL
     * if none. Without keys, a server that listens on a loopback address or has
     * this list checks the Host header. It accepts its own names, these names,
     * and IP addresses. */
    const char *hosts;
    size_t max_body;     /* most bytes of one body; 0 for 64 MiB */
    size_t max_bodies;   /* Most bytes of all bodies in memory together, without
                            the first 64 KiB of each; 0 for 4 times max_body. */
    int max_connections; /* most open connections; 0 for 1024 */
    int max_of_address;  /* limit of open connections from one client address; 0
                            for none */
    /* Seconds after which a connection that transfers no byte in either
     * direction is closed, except while a handler works on its request; 0 for
     * 600. A request head must be complete within twice this time. A body that
     * takes longer than this time must arrive at 1 KiB/s at least. */
    int timeout_s;
    /* let no client connect before http_accept; those of Unix sockets wait */
    bool held;
    int drain_s; /* seconds that an idle connection stays open while the
                       server drains; 0 for 1 */
    /* Called for each request with one line, never by two threads at once:
     * client, method, path, status, note (http_set_note), milliseconds. NULL if
     * none. */
    pl_log_fn *log;
    void *log_user;
};

/* Returns the body of an error response, malloc'ed; NULL if out of memory. It
 * is called for requests that are rejected before a handler runs (unknown path,
 * missing key, body too large). */
typedef char *http_error_fn(int status, const char *message, const char *path);

/* Starts a server with a table of routes [n_route], which is borrowed until
 * http_free. `user` is passed to the handlers. BAD_ARGUMENT: an option is
 * invalid. UNSUPPORTED: libmicrohttpd has no TLS. IO: the address cannot be
 * used, a TLS file cannot be read, or a thread cannot be started. Other errors:
 * NO_MEMORY. */
pl_status http_start(struct http **out, const struct http_options *o,
                     const struct http_route *route, int n_route,
                     http_error_fn *error, void *user, pl_err *err);
/* Lets clients connect to a server that was started with `held`. Errors are
 * those of http_start for its addresses and threads. */
pl_status http_accept(struct http *h, pl_err *err);
int http_port(const struct http *h);
/* Returns true if one of the addresses of http_options.host, of n characters,
 * is the path of a Unix socket. */
bool http_is_path(const char *address, size_t n);
/* Sets *n_connection to the number of open connections. Sets *n_request to the
 * number of requests that still run, or whose response the client has not read
 * completely. */
void http_load(const struct http *h, int *n_connection, int *n_request);
/* Prepares for stopping: accepts no more connections, responds to new requests
 * with 503, and closes each connection after its current response. */
void http_drain(struct http *h);
/* Closes the remaining connections and waits for running handlers. Requests
 * that were passed to other threads stay valid, with their clients marked as
 * disconnected. Their owners must end them before http_free. */
void http_stop(struct http *h);
/* Calls http_stop, then frees the server. NULL is allowed. */
void http_free(struct http *h);

/* ---- requests ------------------------------------------------------------ */

/* The strings that these functions return are valid until the request ends. */
const char *http_method(const struct http_request *r);
/* Returns the path of the URL as received, without the server's prefix and
 * without the query. */
const char *http_path(const struct http_request *r);
/* Returns the path segment that matched the route's {}, with percent encoding
 * decoded, so it may contain a slash. NULL if the route has no {}. */
const char *http_name(const struct http_request *r);
/* Returns the index of the request's route in the table. */
int http_route_index(const struct http_request *r);
/* Returns the first query argument (?name=value) with this name, decoded; NULL
 * if there is none. */
const char *http_query(const struct http_request *r, const char *name);
const char *http_header(const struct http_request *r, const char *name);
/* Returns the body, NUL-terminated, and sets *len to its length. Never NULL. */
const char *http_body(const struct http_request *r, size_t *len);
/* Returns the seconds since the request's head arrived. */
double http_age(const struct http_request *r);
/* Returns a number that identifies the client for fair scheduling, never 0. It
 * is a hash of the API key or, if the server has no keys, of the client's
 * address. */
uint64_t http_client(const struct http_request *r);

/* Sets a text of at most 95 bytes that the request's line in the log has after
 * the status, such as a number of tokens. */
void http_set_note(struct http_request *r, const char *note);

/* Queues a call of act(user, r) on a handler thread. A handler that has to
 * wait, for example for a model to load, uses this to continue later. `act` is
 * called even if the client has disconnected by then. Returns false without
 * queueing if the server is stopping. */
bool http_hand(struct http_request *r, http_handler_fn *act, void *user);

/* ---- responses ----------------------------------------------------------- */

/* Adds a header line to the response; called before http_respond or http_begin.
 * If `name` or `value` contains a line end, the line is omitted. */
void http_set_header(struct http_request *r, const char *name,
                     const char *value);
/* Sends a whole response and ends the request. `type` is the Content-Type.
 * `body` is copied. Responses with status 429 or 503 get a Retry-After header
 * if they have none. */
void http_respond(struct http_request *r, int status, const char *type,
                  const void *body, size_t len);
/* Begins a chunked response by sending the status and headers at once. */
void http_begin(struct http_request *r, int status, const char *type);
/* Sends `len` bytes of a chunked response. Returns false if the client has
 * disconnected or memory is short; http_end must still be called. */
bool http_send(struct http_request *r, const void *data, size_t len);
/* Returns how many bytes of the response are buffered because the client has
 * not read them yet. */
size_t http_backlog(const struct http_request *r);
void http_end(struct http_request *r);
/* Registers a callback: gone(user) is called at most once, if the client
 * disconnects before the request ends. If the client has already disconnected,
 * it is called before this function returns; else on a listener thread or in
 * http_stop. The callback must neither wait nor end the request, because ending
 * the request, and replacing the callback, waits until the callback returns.
 * NULL removes the callback. */
void http_on_gone(struct http_request *r, void (*gone)(void *user), void *user);
/* Returns true if the client has disconnected, as far as is known. */
bool http_has_left(const struct http_request *r);

#endif
