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
    atomic_int n_gone; /* calls of try_gone */
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct http_request *held[TRY_HELD];
    int n_held, n_taken;
    char log[1 << 16];
    size_t n_log;
};

struct try_client {
    int fd;
    char *buf; /* owned: bytes received, not yet parsed */
    size_t n, cap;
};

/* Starts the server on any free port, or fails the case; o NULL: the
 * defaults. */
void try_start(struct http_try *t, const struct http_options *o);
void try_stop(struct http_try *t);
/* Returns the next request at /hold, in order of arrival. */
struct http_request *try_held(struct http_try *t);
/* Connects and requests /hold until the request is held. A server with a short
 * timeout may close a connection before a slow machine has sent its request. */
struct http_request *try_hold(struct http_try *t, struct try_client *c);
bool try_has_held(struct http_try *t);
/* Counts its calls; try_gone_is waits until there were n. */
void try_gone(void *t);
void try_gone_is(struct http_try *t, int n);
/* Waits until there are this many connections and requests. */
void try_load_is(struct http_try *t, int n_connection, int n_request);
/* Returns the error text of try_start's server: "STATUS MESSAGE". */
char *try_error(int status, const char *message, const char *path);

struct try_answer {
    int status;
    char head[4096]; /* the lines, as received */
    char *body;      /* owned, NUL-terminated; chunks joined */
    size_t n_body, cap_body;
};

void try_connect(struct http_try *t, struct try_client *c);
/* Returns true while the server accepts connections. */
bool try_connects(const struct http_try *t);
void try_close(struct try_client *c);
void try_send(struct try_client *c, const char *text);
/* Returns true if the server has closed; received bytes stay readable. */
bool try_closed(const struct try_client *c);
/* Returns false if the server has closed. */
bool try_send_bytes(struct try_client *c, const void *data, size_t n);
/* Reads the header lines of a response. */
void try_read_head(struct try_client *c, struct try_answer *a);
/* Waits until n bytes are in buf. Returns false if the connection ends
 * before. */
bool try_fill(struct try_client *c, size_t n);
/* Reads the next response; `no_body`: to a HEAD request. */
void try_read(struct try_client *c, struct try_answer *a, bool no_body);
/* Expects the server to close without sending more. */
void try_ends(struct try_client *c);
/* Sends one request on a connection of its own. The response must have this
 * status, and this body unless it is NULL. `head` gets the lines, unless it is
 * NULL. */
void try_ask(struct http_try *t, const char *request, int status,
             const char *body, char *head);

/* Returns "GET path HTTP/1.1" with the Host line and `more` lines, in static
 * memory of the thread. */
const char *try_get(const char *path, const char *more);

#endif
