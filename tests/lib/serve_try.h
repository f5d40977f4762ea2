/* Runs plait serve as a process of its own, with clients for it. A failure in
 * here fails the running case. */
#ifndef TEST_SERVE_TRY_H
#define TEST_SERVE_TRY_H

#include "lib/http_try.h"

#include <jansson.h>
#include <sys/types.h>

struct serve_try {
    pid_t pid;
    const char *log;   /* path of the file with the server's output */
    struct http_try t; /* for try_connect; only the port is set */
};

/* Starts a server with the options `words` and one thread per device. `before`
 * stands before the command: "" or words for the shell. */
void serve_try_run(struct serve_try *s, const char *before, const char *words);
/* Starts a server with the bundled model. The options `more` override others of
 * the same name. */
void serve_try_start(struct serve_try *s, const char *before, const char *more);
/* Sends SIGTERM to the server, which must exit with code 0. */
void serve_try_stop(struct serve_try *s);
/* Sends a POST request, whose response must have this status. Returns the
 * response's body, malloc'ed. */
char *serve_try_post(struct serve_try *s, const char *path, const char *body,
                     int status);
char *serve_try_get(struct serve_try *s, const char *path);
/* Sends a request without reading the response. */
void serve_try_send(struct try_client *c, const char *path, const char *body);
/* Parses JSON text, which must be valid. The caller releases the value. */
json_t *serve_try_json(const char *text);
/* Returns the sum of the samples in /metrics with this name and these labels,
 * NAME or NAME{LABEL="VALUE"}. Fails the case if there is none. */
double serve_try_metric(struct serve_try *s, const char *name);
/* Waits until the server runs no task and none is waiting. */
void serve_try_idle(struct serve_try *s);
/* Returns the processor seconds that the server's process has used; other
 * programs do not change them. */
double serve_try_cpu(const struct serve_try *s);
/* Resources of the server's process: bytes of memory, open files, threads. */
struct serve_use {
    int64_t bytes;
    int n_file, n_thread;
};
struct serve_use serve_try_use(const struct serve_try *s);

#endif
