/* plait serve as a process of its own, and who asks it. What fails in here
 * fails the running case. */
#ifndef TEST_SERVE_TRY_H
#define TEST_SERVE_TRY_H

#include "lib/http_try.h"

#include <jansson.h>
#include <sys/types.h>

struct serve_try {
    pid_t pid;
    const char *log;   /* the file of what it says */
    struct http_try t; /* for try_connect: its port alone */
};

/* Starts it with these options, one thread a device. `before` comes before the
 * command: "" or what the shell is to do. */
void serve_try_run(struct serve_try *s, const char *before, const char *words);
/* On the bundled model; `more` are options that win over others of the same
 * name. */
void serve_try_start(struct serve_try *s, const char *before, const char *more);
/* SIGTERM; it must end well. */
void serve_try_stop(struct serve_try *s);
/* A request, its answer's body malloc'ed; the status must be this. */
char *serve_try_post(struct serve_try *s, const char *path, const char *body,
                     int status);
char *serve_try_get(struct serve_try *s, const char *path);
/* A request whose answer is not read yet. */
void serve_try_send(struct try_client *c, const char *path, const char *body);
/* JSON, to be released. */
json_t *serve_try_json(const char *text);
/* A number of /metrics; 0: it is not there. */
double serve_try_metric(struct serve_try *s, const char *name);
/* Waits until nobody has a place and nobody waits. */
void serve_try_idle(struct serve_try *s);
/* Processor seconds of its process, which no other program adds to. */
double serve_try_cpu(const struct serve_try *s);
/* Of its process: bytes of memory, open files, threads. */
struct serve_use {
    int64_t bytes;
    int n_file, n_thread;
};
struct serve_use serve_try_use(const struct serve_try *s);

#endif
