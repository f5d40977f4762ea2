/* The parts of plait bench --serve: the requests (bench_serve_ask.c), their
 * timing and results (bench_serve_run.c), parsing of response events
 * (bench_serve_read.c), and output (bench_serve_print.c, bench_serve_svg.c).
 *
 * The server may be any that speaks OpenAI's protocol. A *load* is a series of
 * requests, sent at a rate per second or with a number of requests in flight.
 * All times are seconds of one clock. Latencies are measured from the time at
 * which a request was due, so that a request delayed by others does not appear
 * fast. */
#ifndef BENCH_BENCH_SERVE_H
#define BENCH_BENCH_SERVE_H

#include "cli/options.h"

#include <jansson.h>

/* The server under load. */
struct serve_target {
    const char *key; /* API key, borrowed; NULL if none */
    char *origin;    /* owned: "http://127.0.0.1:8080/v1" */
    char *model;     /* name of the model, sent in requests; owned; NULL if
                        unknown */
    int64_t n_vocab; /* size of the vocabulary; 0 if unknown, and then prompts
                        consist of words instead of ids */
};

/* One request, from its due time to its end. */
struct serve_request {
    int64_t n_prompt, n_gen; /* tokens requested */
    double due, sent, first, last, ended;
    /* Tokens, as counted by the server. If it reports no counts, n_read is
     * n_prompt and n_written is n_event, the number of events with text. */
    int64_t n_read, n_cached, n_written, n_event;
    /* Prefill time of the request that the server reported, in seconds; -1 if
     * the server reported none. */
    double prompt_s;
    /* index of the request's failure in serve_load.failure; -1 on success */
    int failure;
};

enum { SERVE_WHY = 160, SERVE_MAX_WHY = 8 };

/* Requests that failed in the same way: with the same HTTP error status or, if
 * they have none, with the same message. */
struct serve_failure {
    int status;          /* HTTP error status; 0 if there was no response, or if
                            its status was 200 */
    char why[SERVE_WHY]; /* error message of the first of these requests */
    int64_t n;
};

struct serve_load {
    double rate; /* requests sent per second; 0 if `at_once` requests are kept
                    in flight instead */
    /* most requests in flight; 0 for no limit, which needs a rate */
    int at_once;
    /* [n_request], owned: requests in the order in which they ended */
    struct serve_request *request;
    int64_t n_request, max_request, n_done;
    double began, ended;
    /* [n_gap], owned: seconds between successive events with text of the same
     * request, for all requests of the load */
    double *gap;
    int64_t n_gap, max_gap;
    /* The distinct failures. If there are more than elements, the last element
     * counts all further ones. */
    struct serve_failure failure[SERVE_MAX_WHY];
    int n_failure;
};

/* ---- bench_serve.c ------------------------------------------------------- */

/* Runs plait bench --serve. cmd_bench calls it. */
enum exit_code bench_serve(const struct options *o);

/* ---- bench_serve_ask.c --------------------------------------------------- */

/* Draws r->n_prompt and r->n_gen of request i at random from the values of -p
 * and -n. */
void serve_draw(const struct options *o, int64_t i, struct serve_request *r);
/* Returns the seconds between request i-1 and request i in a Poisson process
 * with `rate` requests per second. */
double serve_pause(const struct options *o, int64_t i, double rate);
/* Returns the body of request i, malloc'ed; NULL if out of memory. The body
 * depends only on `i`, the options and the seed, not on the time. */
char *serve_body(const struct options *o, const struct serve_target *t,
                 int64_t i, const struct serve_request *r);

/* ---- bench_serve_read.c -------------------------------------------------- */

/* Parser of the response to request `r`, fed while the response is received. */
struct serve_reader {
    struct serve_request *r;
    struct serve_load *load;
    /* [n], owned: beginning of a line of the response whose end was not
     * received yet */
    char *line;
    size_t n, max;
    bool over; /* the event that ends the response, [DONE], was received */
    char why[SERVE_WHY]; /* the server's error message; "" if none */
};

/* Parses n bytes of the response, which were received at time `now`
 * (term_seconds). Returns false if out of memory. */
bool serve_read(struct serve_reader *s, const char *data, size_t n, double now);
void serve_reader_fini(struct serve_reader *s);
/* Copies the message of an error response to `why`, in any of the formats that
 * servers use. If the format is unknown, copies the first line of the body. */
void serve_read_error(const char *body, size_t n, char why[SERVE_WHY]);

/* ---- bench_serve_run.c --------------------------------------------------- */

/* Fills *t: queries the server's list of models and selects the one that `o`
 * names, or else the first. If the server is unreachable or rejects the
 * request, prints an error and returns its exit code. */
enum exit_code serve_look(struct serve_target *t, const struct options *o);
void serve_target_fini(struct serve_target *t);
/* Sends the requests of a load and stores the results in *l. A failed request
 * is counted and does not end the load. */
enum exit_code serve_run(struct serve_load *l, const struct serve_target *t,
                         const struct options *o);
void serve_load_fini(struct serve_load *l);

/* ---- bench_serve_print.c, bench_serve_svg.c ------------------------------ */

/* Returns a JSON object with the results of the load `l`, one row of the
 * output; NULL if out of memory. */
json_t *serve_row(struct serve_load *l, const struct serve_target *t,
                  const struct options *o);
enum exit_code serve_print(const struct options *o, json_t *rows);
/* Draws latencies over their percentile, and over the time at which the
 * requests were due, for each of n loads. */
enum exit_code serve_draw_svg(const struct options *o,
                              const struct serve_load *load, int n);

/* Returns a time of a request in seconds; -1 if unknown. */
typedef double serve_time(const struct serve_request *r);
/* Return the time to the first token, the mean time between tokens, and the
 * time that a request waited for others: that to its first token minus the
 * prefill time that the server reports. */
serve_time serve_first, serve_between, serve_queue;
/* Sets v[], which has space for l->n_request values, to the sorted times of the
 * successful requests for which the time is known. Returns their number. */
int64_t serve_times(double *v, const struct serve_load *l, serve_time *of);
/* Returns a percentile of n sorted values, where `share` is 0.9 for p90: the
 * smallest value that at least this share of the values does not exceed. */
double serve_percentile(const double *sorted, int64_t n, double share);

#endif
