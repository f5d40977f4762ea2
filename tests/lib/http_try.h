/* A server of the HTTP layer with handlers of the tests' own, and clients of
 * bare sockets. What fails in here fails the running case. */
#ifndef TEST_HTTP_TRY_H
#define TEST_HTTP_TRY_H

#include "lib/support.h"

#include "server/http.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TRY_HELD = 4096 };
/* The least that a second of libmicrohttpd takes: its clock ticks a hundred
 * times a second. */
#define TRY_SECOND 0.98

/* Its routes:
 *   GET  /hello      "hello"
 *   GET  /open       "open", asks for no key
 *   POST /echo       the body
 *   GET, DELETE /name/{}   "METHOD NAME"; POST /name/{}/more "more NAME"
 *   GET  /query      the arguments a and b, as "A|B", "-" for none
 *   GET  /header     the header X-Test
 *   GET  /client     http_client in hexadecimal
 *   GET, POST /hold  kept for try_held
 *   GET  /wrong      a header of the answer holds a line end */
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
    char *buf; /* owned: what has come and was not read as an answer */
    size_t n, cap;
};

/* Fails the case unless it starts; o NULL: the defaults. Any free port. */
void try_start(struct http_try *t, const struct http_options *o);
void try_stop(struct http_try *t);
/* The next request at /hold, in the order they came. */
struct http_request *try_held(struct http_try *t);
/* Connects and asks for /hold until the request is held: a server whose timeout
 * is short may close a connection before a slow machine has asked. */
struct http_request *try_hold(struct http_try *t, struct try_client *c);
bool try_has_held(struct http_try *t);
/* Waits until n calls of it were made. */
void try_gone(void *t);
void try_gone_is(struct http_try *t, int n);
/* Waits until there are so many. */
void try_load_is(struct http_try *t, int n_connection, int n_request);
/* The error texts of try_start's server: "STATUS MESSAGE". */
char *try_error(int status, const char *message, const char *path);

struct try_answer {
    int status;
    char head[4096]; /* the lines, as they came */
    char *body;      /* owned, a NUL behind; chunks joined */
    size_t n_body, cap_body;
};

void try_connect(struct http_try *t, struct try_client *c);
/* Returns true while it takes connections. */
bool try_connects(const struct http_try *t);
void try_close(struct try_client *c);
void try_send(struct try_client *c, const char *text);
/* Returns true if the server has closed; what has come stays there. */
bool try_closed(const struct try_client *c);
/* False: the server has closed. */
bool try_send_bytes(struct try_client *c, const void *data, size_t n);
/* The lines of an answer. */
void try_read_head(struct try_client *c, struct try_answer *a);
/* Waits until n bytes are in buf. False: the connection ends before. */
bool try_fill(struct try_client *c, size_t n);
/* The next answer; `no_body`: of HEAD. */
void try_read(struct try_client *c, struct try_answer *a, bool no_body);
/* Nothing more comes, and the server closes. */
void try_ends(struct try_client *c);
/* One request on one connection: its answer's status is this, and its body,
 * unless it is NULL. `head` gets the lines, unless it is NULL. */
void try_ask(struct http_try *t, const char *request, int status,
             const char *body, char *head);

/* "GET path HTTP/1.1" with the host's line and these more; static memory of
 * the thread. */
const char *try_get(const char *path, const char *more);

#endif
