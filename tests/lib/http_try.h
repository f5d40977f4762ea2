/* A server of the HTTP layer with handlers for tests, and clients with bare
 * sockets. A failure in here fails the running case. */
#ifndef TEST_HTTP_TRY_H
#define TEST_HTTP_TRY_H

#include "lib/support.h"

#include "server/http.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TRY_HELD = 4096 };
/* The shortest time that libmicrohttpd takes for a second, because its clock
 * ticks a hundred times a second. */
#define TRY_SECOND 0.98

/* Its routes:
 *   GET  /hello      "hello"
 *   GET  /open       "open", needs no key
 *   POST /echo       the body
 *   GET, DELETE /name/{}   "METHOD NAME"; POST /name/{}/more "more NAME"
 *   GET  /query      the arguments a and b, as "A|B", "-" for none
 *   GET  /header     the header X-Test
 *   GET  /client     http_client in hexadecimal
 *   GET, POST /hold  kept for try_held
 *   GET  /wrong      a header of the response holds a line end */
struct http_try {
    struct http *h;
    int port;
    atomic_int n_gone; /* number of calls of try_gone */
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct http_request *held[TRY_HELD];
    int n_held, n_taken;
    char log[1 << 16];
    size_t n_log;
};

struct try_client {
    int fd;
    char *buf; /* [n] bytes that were received and are not parsed yet, owned */
    size_t n, cap;
};

/* Starts the server on any free port. `o` NULL means the default options. On
 * failure the case fails. */
void try_start(struct http_try *t, const struct http_options *o);
void try_stop(struct http_try *t);
/* Returns the next request for /hold, which has not been answered, in order of
 * arrival. */
struct http_request *try_held(struct http_try *t);
/* Connects and requests /hold, again until the server has the request. A server
 * with a short timeout may close a connection before a slow machine has sent
 * its request. */
struct http_request *try_hold(struct http_try *t, struct try_client *c);
bool try_has_held(struct http_try *t);
/* try_gone is a callback that counts its calls in t->n_gone; try_gone_is waits
 * until n calls were counted. */
void try_gone(void *t);
void try_gone_is(struct http_try *t, int n);
/* Waits until the server has this many connections and requests. */
void try_load_is(struct http_try *t, int n_connection, int n_request);
/* The function that formats errors in the server of try_start: "STATUS
 * MESSAGE", malloc'ed. */
char *try_error(int status, const char *message, const char *path);

struct try_answer {
    int status;
    /* status line and header lines of the response, as received */
    char head[4096];
    char *body; /* body with its chunks joined, NUL-terminated, owned */
    size_t n_body, cap_body;
};

void try_connect(struct http_try *t, struct try_client *c);
/* Returns true while the server accepts connections. */
bool try_connects(const struct http_try *t);
void try_close(struct try_client *c);
void try_send(struct try_client *c, const char *text);
/* Returns true if the server has closed the connection. Bytes received before
 * stay readable. */
bool try_closed(const struct try_client *c);
/* Sends n bytes. Returns false if the server has closed the connection. */
bool try_send_bytes(struct try_client *c, const void *data, size_t n);
/* Reads the header lines of a response. */
void try_read_head(struct try_client *c, struct try_answer *a);
/* Waits until c->buf has n bytes. Returns false if the connection ends before
 * that. */
bool try_fill(struct try_client *c, size_t n);
/* Reads the next response. `no_body`: the request was a HEAD request, so the
 * response has no body. */
void try_read(struct try_client *c, struct try_answer *a, bool no_body);
/* Fails the case unless the server closes the connection without sending
 * more. */
void try_ends(struct try_client *c);
/* Sends one request on a new connection. The response must have this status,
 * and this body unless `body` is NULL. Copies the response's header lines to
 * `head` unless NULL. */
void try_ask(struct http_try *t, const char *request, int status,
             const char *body, char *head);

/* Returns the text of a request, "GET path HTTP/1.1" with the Host line and the
 * lines `more`, in static memory of the thread. */
const char *try_get(const char *path, const char *more);

#endif
