/* Builds rows with the results of a load: counts, tokens per second, and
 * percentiles of times in milliseconds. Prints rows in the output formats. */
#include "bench_serve.h"
#include "cli/bench.h"
#include "server/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- times --------------------------------------------------------------- */

double serve_between(const struct serve_request *r)
{
    return r->n_written > 1 && r->n_event > 1
               ? (r->last - r->first) / (double)(r->n_written - 1)
               : -1;
}

double serve_queue(const struct serve_request *r)
{
    double s = r->first - r->due - r->prompt_s;

    return r->prompt_s < 0 || r->n_event == 0 ? -1 : s > 0 ? s : 0;
}

double serve_first(const struct serve_request *r)
{
    return r->n_event > 0 ? r->first - r->due : -1;
}

static double whole_of(const struct serve_request *r)
{
    return r->ended - r->due;
}

double serve_percentile(const double *sorted, int64_t n, double share)
{
    int64_t i = (int64_t)ceil(share * (double)n) - 1;

    return n == 0 ? 0 : sorted[i < 0 ? 0 : i];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int64_t serve_times(double *v, const struct serve_load *l, serve_time *of)
{
    int64_t n = 0;

    for (int64_t i = 0; i < l->n_request; i++)
        if (l->request[i].failure < 0 && of(&l->request[i]) >= 0)
            v[n++] = of(&l->request[i]);
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return n;
}

/* Adds percentiles of the n sorted times v[] in seconds to the row, under keys
 * such as "first_p50_ms". They are null if n is 0. */
static void add_percentiles(json_t **row, const char *name, const double *v,
                            int64_t n)
{
    static const struct {
        const char *name;
        double share;
    } of[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};
    char key[32];

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        snprintf(key, sizeof(key), "%s_%s_ms", name, of[i].name);
        json_text_put(row, key,
                      n > 0
                          ? json_real(1e3 * serve_percentile(v, n, of[i].share))
                          : json_null());
    }
}

/* ---- rows ---------------------------------------------------------------- */

/* Returns true if the request succeeded within the limits of --max-first and
 * --max-between (goodput). A request without a first token exceeds --max-first,
 * if that is given. */
static bool is_good(const struct serve_request *r, const struct options *o)
{
    double first = 1e3 * serve_first(r);

    return r->failure < 0 &&
           (o->max_first_ms <= 0 || (first >= 0 && first <= o->max_first_ms)) &&
           (o->max_between_ms <= 0 ||
            1e3 * serve_between(r) <= o->max_between_ms);
}

struct sums {
    int64_t n_read, n_cached, n_written, n_good, n_good_written;
};

static struct sums sums_of(const struct serve_load *l, const struct options *o)
{
    struct sums s = {0};

    for (int64_t i = 0; i < l->n_request; i++) {
        const struct serve_request *r = &l->request[i];

        if (r->failure >= 0)
            continue;
        s.n_read += r->n_read;
        s.n_cached += r->n_cached;
        s.n_written += r->n_written;
        s.n_good += is_good(r, o);
        s.n_good_written += is_good(r, o) ? r->n_written : 0;
    }
    return s;
}

/* Writes a list as "72" or "72,512"; writes `otherwise` if the list is
 * empty. */
static void list_text(char *buf, size_t size, const struct option_list *l,
                      int otherwise)
{
    size_t n =
        (size_t)snprintf(buf, size, "%d", l->n > 0 ? l->v[0] : otherwise);

    for (int i = 1; i < l->n && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, ",%d", l->v[i]);
}

static json_t *failures_json(const struct serve_load *l)
{
    json_t *all = json_array();

    for (int i = 0; i < l->n_failure; i++)
        json_array_append_new(all, json_pack("{s:I, s:i, s:s}", "n",
                                             (json_int_t)l->failure[i].n,
                                             "status", l->failure[i].status,
                                             "message", l->failure[i].why));
    return all;
}

json_t *serve_row(struct serve_load *l, const struct serve_target *t,
                  const struct options *o)
{
    const struct sums s = sums_of(l, o);
    const double all = l->ended - l->began, in = all > 0 ? all : 1e-9;
    static const struct {
        const char *name;
        serve_time *of; /* NULL for the times between events */
    } times[] = {{"first", serve_first},
                 {"gap", NULL},
                 {"between", serve_between},
                 {"whole", whole_of},
                 {"queue", serve_queue}};
    double *room = malloc(((size_t)l->n_request + 1) * sizeof(*room));
    char prompts[200], gens[200];
    json_t *row;

    if (room == NULL)
        return NULL;
    list_text(prompts, sizeof(prompts), &o->n_prompt, 512);
    list_text(gens, sizeof(gens), &o->n_gen, 128);
    row = json_pack(
        "{s:s, s:s, s:s, s:f, s:i, s:s, s:s, s:f, s:i, s:I, s:I, s:I, s:f, s:f,"
        " s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f}",
        "url", t->origin, "api", o->chat ? "chat" : "completions", "model",
        t->model != NULL ? t->model : "", "rate", l->rate, "concurrency",
        l->at_once, "n_prompt", prompts, "n_gen", gens, "prefix",
        (double)o->prefix, "n_prefix", o->n_prefix, "n_request",
        (json_int_t)l->n_request, "n_done", (json_int_t)l->n_done, "n_failed",
        (json_int_t)(l->n_request - l->n_done), "seconds", all, "requests_s",
        (double)l->n_done / in, "tokens_in", (json_int_t)s.n_read,
        "tokens_cached", (json_int_t)s.n_cached, "tokens_out",
        (json_int_t)s.n_written, "in_ts", (double)s.n_read / in, "out_ts",
        (double)s.n_written / in, "all_ts",
        (double)(s.n_read + s.n_written) / in, "n_good", (json_int_t)s.n_good,
        "good_requests_s", (double)s.n_good / in, "good_ts",
        (double)s.n_good_written / in, "max_first_ms", (double)o->max_first_ms,
        "max_between_ms", (double)o->max_between_ms);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i].of != NULL)
            add_percentiles(&row, times[i].name, room,
                            serve_times(room, l, times[i].of));
        else {
            if (l->n_gap > 0)
                qsort(l->gap, (size_t)l->n_gap, sizeof(*l->gap), by_value);
            add_percentiles(&row, times[i].name, l->gap, l->n_gap);
        }
    json_text_put(&row, "failures", failures_json(l));
    free(room);
    return row;
}

/* ---- Markdown ------------------------------------------------------------ */

static void cell_load(char *buf, const json_t *r, const char *key)
{
    double rate = bench_number(r, key), most = bench_number(r, "concurrency");
    int n = 0;

    if (rate > 0)
        n = snprintf(buf, BENCH_CELL, "%g a second%s", rate,
                     most > 0 ? ", " : "");
    if (most > 0)
        snprintf(buf + n, BENCH_CELL - (size_t)n, "%.0f at once", most);
}

static void cell_tokens(char *buf, const json_t *r, const char *key)
{
    snprintf(buf, BENCH_CELL, "%.90s + %.90s", bench_word(r, key),
             bench_word(r, "n_gen"));
}

/* Writes the rates of requests and tokens within the limits. Leaves the cell
 * empty if there is no limit, because all requests are good then. */
static void cell_good(char *buf, const json_t *r, const char *key)
{
    char a[BENCH_CELL], b[BENCH_CELL];

    buf[0] = '\0';
    if (bench_number(r, "max_first_ms") <= 0 &&
        bench_number(r, "max_between_ms") <= 0)
        return;
    bench_cell_figure(a, r, key);
    bench_cell_figure(b, r, "good_ts");
    snprintf(buf, BENCH_CELL, "%.40s, %.40s t/s", a, b);
}

static void cell_percentiles(char *buf, const json_t *r, const char *name)
{
    static const char *const of[] = {"p50", "p90", "p99"};
    char key[32], v[BENCH_CELL];
    size_t n = 0;

    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof(key), "%s_%s_ms", name, of[i]);
        bench_cell_figure(v, r, key);
        n += (size_t)snprintf(buf + n, BENCH_CELL - n, "%s%.40s",
                              i > 0 ? " / " : "", v);
    }
}

static const struct bench_column columns[] = {
    {"load", cell_load, "rate", false},
    {"tokens", cell_tokens, "n_prompt", false},
    {"done", bench_cell_count, "n_done", true},
    {"failed", bench_cell_count, "n_failed", true},
    {"requests/s", bench_cell_figure, "requests_s", true},
    {"in t/s", bench_cell_figure, "in_ts", true},
    {"out t/s", bench_cell_figure, "out_ts", true},
    {"good/s", cell_good, "good_requests_s", true},
    {"first token", cell_percentiles, "first", true},
    {"between", cell_percentiles, "gap", true},
    {"whole", cell_percentiles, "whole", true},
    {"queue", cell_percentiles, "queue", true},
};

static void print_failures(json_t *rows)
{
    json_t *row, *f;
    const char *before = "\n";
    size_t i, k;
    char load[BENCH_CELL];

    json_array_foreach (rows, i, row) {
        cell_load(load, row, "rate");
        json_array_foreach (json_object_get(row, "failures"), k, f) {
            double status = bench_number(f, "status");

            printf("%s* %s, %.0f failed: ", before, load, bench_number(f, "n"));
            before = "";
            if (status > 0)
                printf("status %.0f, ", status);
            printf("%s\n", bench_word(f, "message"));
        }
    }
}

static void print_md(json_t *rows)
{
    const json_t *r = json_array_get(rows, 0);

    printf(
        "%s, %s; times are milliseconds at the 50th, 90th and 99th of 100\n\n",
        bench_word(r, "url"), bench_word(r, "api"));
    bench_print_table(columns, sizeof(columns) / sizeof(columns[0]), rows);
    print_failures(rows);
}

enum exit_code serve_print(const struct options *o, json_t *rows)
{
    if (o->form == FORM_MD)
        print_md(rows);
    else
        bench_print_data(o, rows);
    return finish_out(o);
}
