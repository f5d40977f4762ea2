/* plait serve as a process of its own, and clients for it. A failure in here
 * fails the running case. */
#ifndef TEST_SERVE_TRY_H
#define TEST_SERVE_TRY_H

#include "lib/http_try.h"

#include <jansson.h>
#include <sys/types.h>

struct serve_try {
    pid_t pid;
    const char *log;   /* the file with its output */
    struct http_try t; /* for try_connect: only its port is set */
};

/* Starts it with these options, one thread a device. `before` precedes the
 * command: "" or words for the shell. */
void serve_try_run(struct serve_try *s, const char *before, const char *words);
/* Starts it on the bundled model; `more` are options that override others of
 * the same name. */
void serve_try_start(struct serve_try *s, const char *before, const char *more);
/* Sends SIGTERM; the server must exit with success. */
void serve_try_stop(struct serve_try *s);
/* Sends a request, which must get this status. Returns the body, malloc'ed. */
char *serve_try_post(struct serve_try *s, const char *path, const char *body,
                     int status);
char *serve_try_get(struct serve_try *s, const char *path);
/* Sends a request without reading the response. */
void serve_try_send(struct try_client *c, const char *path, const char *body);
/* Parses JSON; the caller releases it. */
json_t *serve_try_json(const char *text);
/* Returns the sum of the samples of /metrics with this name and these labels,
 * NAME or NAME{LABEL="VALUE"}; there must be one. */
double serve_try_metric(struct serve_try *s, const char *name);
/* Waits until no task is running and none is waiting. */
void serve_try_idle(struct serve_try *s);
/* Returns the processor seconds of its process, which no other program adds
 * to. */
double serve_try_cpu(const struct serve_try *s);
/* Resources of its process: bytes of memory, open files, threads. */
struct serve_use {
    int64_t bytes;
    int n_file, n_thread;
};
struct serve_use serve_try_use(const struct serve_try *s);

#endif
