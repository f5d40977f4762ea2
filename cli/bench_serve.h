/* plait bench --serve in parts: what is asked (bench_serve_ask.c), who asks
 * when and what came back (bench_serve_run.c), how an answer's events are read
 * (bench_serve_read.c), and what is printed and drawn of it
 * (bench_serve_print.c, bench_serve_svg.c).
 *
 * The server is any that speaks OpenAI's protocol. A *load* is one way to ask:
 * so many requests, as fast as so many a second, or so many at once. All times
 * are seconds of one clock; a request's count from when it was due, so that one
 * that had to wait for others is not taken for a fast one. */
#ifndef CLI_BENCH_SERVE_H
#define CLI_BENCH_SERVE_H

#include "options.h"

#include <jansson.h>

/* What the server says of itself. */
struct serve_target {
    const char *key; /* borrowed; NULL: none */
    char *origin;    /* owned: "http://127.0.0.1:8080/v1" */
    char *model;     /* owned, to be named in requests; NULL: it has no list */
    int64_t n_vocab; /* 0: it does not tell, and prompts are words */
};

/* One request, from when it is due to its end. */
struct serve_request {
    int64_t n_prompt, n_gen; /* tokens asked for */
    double due, sent, first, last, ended;
    /* As the server counts them, or events where it does not. */
    int64_t n_read, n_cached, n_written, n_event;
    double prompt_s; /* that the server says it read for; -1: it does not say */
    int failure;     /* of struct serve_load's; -1: it went well */
};

enum { SERVE_WHY = 160, SERVE_MAX_WHY = 8 };

/* Requests that failed alike: with one status of HTTP, or, being cut off or not
 * let in at all, with one message. */
struct serve_failure {
    int status;          /* of HTTP; 0: there was none, or 200 */
    char why[SERVE_WHY]; /* of the first */
    int64_t n;
};

struct serve_load {
    double rate; /* requests a second; 0: as many at once as at_once */
    int at_once; /* most at once; with a rate, 0: any number */
    struct serve_request *request; /* owned, [n_request], as they ended */
    int64_t n_request, max_request, n_done;
    double began, ended;
    double *gap; /* owned, [n_gap]: between events, of all requests */
    int64_t n_gap, max_gap;
    struct serve_failure failure[SERVE_MAX_WHY]; /* the last: all others */
    int n_failure;
};

/* ---- bench_serve.c ------------------------------------------------------- */

/* The whole of it, as cmd_bench has it. */
enum exit_code bench_serve(const struct options *o);

/* ---- bench_serve_ask.c --------------------------------------------------- */

/* Draws how long request i is, from the lists of -p and -n. */
void serve_draw(const struct options *o, int64_t i, struct serve_request *r);
/* Seconds between two that come by chance, `rate` a second. */
double serve_pause(const struct options *o, int64_t i, double rate);
/* The body of request i, malloc'ed; NULL: no memory. The same for the same
 * seed, whenever it is sent. */
char *serve_body(const struct options *o, const struct serve_target *t,
                 int64_t i, const struct serve_request *r);

/* ---- bench_serve_read.c -------------------------------------------------- */

/* Reads an answer as it comes. */
struct serve_reader {
    struct serve_request *r;
    struct serve_load *load;
    char *line; /* owned, [n]: of which the end has not come */
    size_t n, max;
    bool over;           /* the last event was there */
    char why[SERVE_WHY]; /* what the server said went wrong; "": nothing */
};

/* `now`: when it came. False: no memory. */
bool serve_read(struct serve_reader *s, const char *data, size_t n, double now);
void serve_reader_fini(struct serve_reader *s);
/* The message of an error in any of the shapes that servers have; the first
 * line of the text where there is none. */
void serve_read_error(const char *body, size_t n, char why[SERVE_WHY]);

/* ---- bench_serve_run.c --------------------------------------------------- */

/* Asks the server who it is. */
enum exit_code serve_look(struct serve_target *t, const struct options *o);
void serve_target_fini(struct serve_target *t);
/* Runs a load; a request that fails is counted, and ends nothing. */
enum exit_code serve_run(struct serve_load *l, const struct serve_target *t,
                         const struct options *o);
void serve_load_fini(struct serve_load *l);

/* ---- bench_serve_print.c, bench_serve_svg.c ------------------------------ */

/* A row: what came of a load; NULL: no memory. */
json_t *serve_row(struct serve_load *l, const struct serve_target *t,
                  const struct options *o);
enum exit_code serve_print(const struct options *o, json_t *rows);
/* Times over percentiles, and over the time of each load. The row of each
 * load is beside it. */
enum exit_code serve_draw_svg(const struct options *o,
                              const struct serve_load *load, int n);

/* Time between tokens of a request: of all it wrote, their mean; -1: it wrote
 * fewer than two. */
double serve_between(const struct serve_request *r);
/* Time that it waited for others, which is what its first token took less what
 * the server says it read for; -1: it does not say. */
double serve_queue(const struct serve_request *r);
/* Value at a share of n sorted ones: the least that so many do not exceed. */
double serve_percentile(const double *sorted, int64_t n, double share);

#endif
