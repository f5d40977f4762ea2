/* HTTP for the server: connections, bodies, keys, limits, TLS, events. It does
 * not know what requests mean. Only these files use libmicrohttpd; http_inner.h
 * describes the threads.
 *
 * A complete request is passed to its route's handler on one of the listener's
 * threads. The handler owns it from then on and may pass it to any other
 * thread. It ends the request by one http_respond, or by http_begin, any number
 * of http_send, and http_end; the request is invalid after that. None of these
 * calls waits for the client: unread data is buffered, and http_backlog returns
 * its size. If a client disconnects early, only http_send reports it. Closing
 * the sending half counts as disconnecting. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "pl.h"

struct http;
struct http_request;

typedef void http_handler_fn(void *user, struct http_request *r);

enum { HTTP_OPEN = 1 }; /* a route that needs no key */

/* GET also answers HEAD; OPTIONS is answered from the table. */
struct http_route {
    const char *method; /* "GET", "POST", "DELETE" */
    const char *path;   /* "/v1/models"; "/slots/{}": {} is any one segment */
    http_handler_fn *handle;
    unsigned flags;
};

/* Zeros are the defaults. Strings are borrowed until http_stop. */
struct http_options {
    const char *host; /* address to listen on; NULL: 127.0.0.1 */
    int port;         /* 0: any free one, see http_port */
    const char *const *key;
    int n_key; /* a request must have one of them as "Authorization: Bearer KEY"
                  or "x-api-key: KEY"; 0: no key is needed */
    const char *cert_file, *cert_key_file; /* PEM; NULL: no TLS */
    const char *prefix;                    /* of every path; NULL: none */
    /* a foreign origin whose pages browsers may let read responses ("*": any);
     * NULL: none. Without keys, requests from pages of all others are
     * rejected */
    const char *origin;
    /* further names of this server, comma-separated ("*": any). Without keys, a
     * server that is local or has this list accepts only its own names, these,
     * and IP addresses as Host */
    const char *hosts;
    size_t max_body;     /* bytes; 0: 64 MiB */
    size_t max_bodies;   /* bytes of all bodies held at once, not counting the
                            first 64 KiB of each; 0: 4 times max_body */
    int max_connections; /* 0: 1024 */
    int max_of_address;  /* connections per address; 0: any number */
    /* seconds without a byte in either direction, unless a response is being
     * made; 0: 600. A request head must be complete within twice that. A body
     * that takes longer must arrive at 1 KiB/s */
    int timeout_s;
    int drain_s;    /* seconds that an idle connection stays open while the
                            server drains; 0: 1 */
    pl_log_fn *log; /* logs one line per request, serialized; NULL: none */
    void *log_user;
};

/* Makes the body of an error that is sent before a handler runs (unknown path,
 * missing key, too large, ...), malloc'ed. */
typedef char *http_error_fn(int status, const char *message, const char *path);

/* Starts a server; `user` is passed to handlers. BAD_ARGUMENT, IO: it cannot
 * listen there, or a TLS file cannot be read; the message names which. */
pl_status http_start(struct http **out, const struct http_options *o,
                     const struct http_route *route, int n_route,
                     http_error_fn *error, void *user, pl_err *err);
int http_port(const struct http *h);
/* Counts open connections, and requests that have not ended or whose response
 * has not been read completely. */
void http_load(const struct http *h, int *n_connection, int *n_request);
/* Stops accepting connections, answers new requests with 503, and closes each
 * connection after its current response. */
void http_drain(struct http *h);
/* Cuts remaining connections and waits for running handlers. Requests held
 * elsewhere stay valid, with their client marked gone, until they are ended;
 * that must happen before http_free. */
void http_stop(struct http *h);
/* Stops the server too; takes NULL. */
void http_free(struct http *h);

/* ---- requests ------------------------------------------------------------ */

/* Results are valid until the request ends. */
const char *http_method(const struct http_request *r);
/* Returns the path as received, without prefix and arguments. */
const char *http_path(const struct http_request *r);
/* Returns the segment at the route's {}, decoded, so that it may contain a
 * slash; NULL if the route has no {}. */
const char *http_name(const struct http_request *r);
/* Returns the index of the request's route in the table. */
int http_route_index(const struct http_request *r);
/* Returns the first argument of that name, decoded; NULL if there is none. */
const char *http_query(const struct http_request *r, const char *name);
const char *http_header(const struct http_request *r, const char *name);
/* Returns the body, terminated; never NULL. */
const char *http_body(const struct http_request *r, size_t *len);
/* Returns the client's identity for fair sharing: a hash of the key or, if no
 * key is needed, of the address; never 0. */
uint64_t http_client(const struct http_request *r);

/* Queues `act`, in place of the route's handler, to run on a handler thread:
 * for handlers that have to wait for something and do so elsewhere. It runs
 * even if the client has disconnected. Returns false if the server is stopping;
 * then nothing runs. */
bool http_hand(struct http_request *r, http_handler_fn *act, void *user);

/* ---- responses ----------------------------------------------------------- */

/* Adds a header line, before the response begins. A line that contains a line
 * end is omitted. */
void http_set_header(struct http_request *r, const char *name,
                     const char *value);
/* Sends a whole response; `body` is copied. */
void http_respond(struct http_request *r, int status, const char *type,
                  const void *body, size_t len);
/* Begins a chunked response; its head is sent at once. */
void http_begin(struct http_request *r, int status, const char *type);
/* Returns false if the client is gone or memory is short; http_end is still
 * required. */
bool http_send(struct http_request *r, const void *data, size_t len);
/* Returns how many bytes of the response the client has not read yet. */
size_t http_backlog(const struct http_request *r);
void http_end(struct http_request *r);
/* Has `gone` called at most once if the client disconnects before the request
 * ends, on a listener thread or in http_stop; immediately, before this returns,
 * if it already has. It must neither wait nor end the request, because ending
 * the request or replacing `gone` waits for it. NULL: removes it. */
void http_on_gone(struct http_request *r, void (*gone)(void *user), void *user);
/* Returns true if the client is known to have disconnected. */
bool http_has_left(const struct http_request *r);

#endif
