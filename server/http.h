/* HTTP for the server: connections, bodies, keys, limits, TLS, events. What
 * requests mean is not known here. libmicrohttpd is behind this file alone;
 * http_inner.h says which thread does what.
 *
 * A request is given to its route's handler when it is whole, on one of the
 * listener's threads. The handler owns it from then on, may hand it to any
 * other thread, and ends it by one call of http_respond, or of http_begin,
 * http_send as often as it likes, and http_end; after that the request is gone.
 * None of these waits for the client: what a client has not taken yet is held,
 * and http_backlog tells how much that is. A client that leaves early changes
 * nothing of this, except that http_send says so. Who closes its sending half
 * has left too. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "pl.h"

struct http;
struct http_request;

typedef void http_handler_fn(void *user, struct http_request *r);

enum { HTTP_OPEN = 1 }; /* a route that asks for no key */

/* GET also answers HEAD, and OPTIONS is answered from the table. */
struct http_route {
    const char *method; /* "GET", "POST", "DELETE" */
    const char *path;   /* "/v1/models"; "/slots/{}": any one name there */
    http_handler_fn *handle;
    unsigned flags;
};

/* Zeros are the defaults. Strings are borrowed until http_stop. */
struct http_options {
    const char *host; /* address to listen at; NULL: 127.0.0.1 */
    int port;         /* 0: any free one, see http_port */
    const char *const *key;
    int n_key; /* "Authorization: Bearer KEY" or "x-api-key: KEY" has one of
                  them; 0: none is asked for */
    const char *cert_file, *cert_key_file; /* PEM; NULL: no TLS */
    const char *prefix;                    /* before every path; NULL: none */
    const char *origin;  /* browsers let its pages read ("*": all pages); NULL:
                           our own alone. Without keys no others may ask */
    const char *hosts;   /* further names of this server, with commas between
                           ("*": any). Without keys a server of this machine
                           alone, or with such a list any, is asked by a name
                           of them, of its own or an address only */
    size_t max_body;     /* bytes; 0: 64 MiB */
    size_t max_bodies;   /* bytes of all bodies held at once, beyond the first
                            64 KiB of each; 0: 4 times max_body */
    int max_connections; /* 0: 1024 */
    int max_of_address;  /* connections of one address; 0: any */
    int timeout_s;       /* without a byte either way, nor an answer that is
                            being made; 0: 600. A head must be there within
                            twice that, a body that takes longer come at
                            1 KiB a second */
    int drain_s;         /* that a connection may ask for nothing while the
                            server drains; 0: 1 */
    pl_log_fn *log;      /* a line a request, one at a time; NULL: none */
    void *log_user;
};

/* Texts of errors that are answered before a handler is asked (no such path,
 * no key, too large, ...): `write` makes the body of one, malloc'ed. */
typedef char *http_error_fn(int status, const char *message, const char *path);

/* BAD_ARGUMENT, IO: it cannot listen there, or a file of TLS cannot be read;
 * the message names which. `user` goes to the handlers. */
pl_status http_start(struct http **out, const struct http_options *o,
                     const struct http_route *route, int n_route,
                     http_error_fn *error, void *user, pl_err *err);
int http_port(const struct http *h);
/* Connections that are open; requests not ended, or whose answer the client has
 * not taken yet. */
void http_load(const struct http *h, int *n_connection, int *n_request);
/* Takes no new connections, answers new requests with 503, and closes the
 * connections of whatever is answered from now on. */
void http_drain(struct http *h);
/* Cuts what is left, and waits for handlers that are running. Others may still
 * hold requests: they stay valid, their client being gone, until they are
 * ended, which must be before http_free. */
void http_stop(struct http *h);
/* Stops it too; takes NULL. */
void http_free(struct http *h);

/* ---- what is asked ------------------------------------------------------ */

/* Valid until the request ends. */
const char *http_method(const struct http_request *r);
/* As it came, behind the prefix and without arguments. */
const char *http_path(const struct http_request *r);
/* What stands where the route has its {}, decoded, so that it may hold a slash;
 * NULL: the route has none. */
const char *http_name(const struct http_request *r);
/* Which route of the table it is. */
int http_route_index(const struct http_request *r);
/* The first of that name; NULL: there is none. Arguments are decoded. */
const char *http_query(const struct http_request *r, const char *name);
const char *http_header(const struct http_request *r, const char *name);
/* Terminated; never NULL. */
const char *http_body(const struct http_request *r, size_t *len);
/* Whose it is, for sharing fairly: a hash of the key or, where none is asked
 * for, of the address; never 0. */
uint64_t http_client(const struct http_request *r);

/* Has `act`, in place of the route's handler, called on a thread for handlers,
 * as soon as one is free: for a handler that has to wait for something, and
 * does so elsewhere. It is called even if the client has left. False: the
 * server stops, and nothing is called. */
bool http_hand(struct http_request *r, http_handler_fn *act, void *user);

/* ---- answers ------------------------------------------------------------- */

/* Header lines of the answer; before it begins. One that holds a line end is
 * left out. */
void http_set_header(struct http_request *r, const char *name,
                     const char *value);
/* The whole answer; `body` is copied. */
void http_respond(struct http_request *r, int status, const char *type,
                  const void *body, size_t len);
/* An answer that comes in parts, chunked; its head is sent at once. */
void http_begin(struct http_request *r, int status, const char *type);
/* False: the client is gone, or memory is; http_end is still due. */
bool http_send(struct http_request *r, const void *data, size_t len);
/* Bytes of the answer that the client has not taken yet. */
size_t http_backlog(const struct http_request *r);
void http_end(struct http_request *r);
/* `gone` is called at most once, on a thread of the listener or in http_stop,
 * if the client leaves before the request ends; at once, before this returns,
 * if it has left. It must neither wait nor end the request: who ends it, or
 * replaces `gone`, waits for it. NULL: nobody is told any more. */
void http_on_gone(struct http_request *r, void (*gone)(void *user), void *user);
/* Has the client left, as far as is known? */
bool http_has_left(const struct http_request *r);

#endif
