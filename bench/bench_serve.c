/* plait bench --serve URL: measures a server under load. The loads of --rate
 * and --concurrency run one after another, with the same requests. */
#include "bench_serve.h"
#include "cli/bench.h"
#include "cli/option_table.h"

#include <stddef.h>
#include <stdlib.h>

/* Rejects options that describe a local run, because they cannot affect a
 * remote server. */
static enum exit_code check(const struct options *o)
{
    for (int i = 0; i < o->n_axis; i++)
        if (o->axis[i].row->offset != offsetof(struct options, model))
            return cli_error(CMD_BENCH, EXIT_USAGE,
                             "%s configures a local model, and --serve "
                             "measures a server; leave it out",
                             o->axis[i].row->name[0]);
    if (o->n_depth.n > 0 || o->n_seq.n > 0)
        return cli_error(CMD_BENCH, EXIT_USAGE,
                         "-d and -b configure a local model; with --serve use "
                         "--prefix for the common part of prompts, and "
                         "--concurrency for requests at once");
    if (o->hf_repo != NULL || o->model_url != NULL)
        return cli_error(CMD_BENCH, EXIT_USAGE,
                         "%s downloads a local model; with --serve, name the "
                         "server's model with -m",
                         o->hf_repo != NULL ? "-hf" : "-mu");
    for (int i = 0; i < o->n_prompt.n; i++)
        if (o->n_prompt.v[i] == 0)
            return cli_error(
                CMD_BENCH, EXIT_USAGE,
                "-p 0: with --serve a prompt needs at least one token");
    for (int i = 0; i < o->n_gen.n; i++)
        if (o->n_gen.v[i] == 0)
            return cli_error(
                CMD_BENCH, EXIT_USAGE,
                "-n 0: with --serve a response needs at least one token");
    return EXIT_DONE;
}

/* Sets *out to a load for each pair of a --rate and a --concurrency; by default
 * one with 8 requests in flight. Returns their number, or -1 if out of
 * memory. */
static int make_loads(struct serve_load **out, const struct options *o)
{
    int n_rate = o->rate.n > 0 ? o->rate.n : 1;
    int n_once = o->concurrency.n > 0 ? o->concurrency.n : 1;
    int otherwise = o->rate.n > 0 ? 0 : 8, n = 0;
    struct serve_load *l = calloc((size_t)(n_rate * n_once), sizeof(*l));

    *out = l;
    for (int i = 0; i < n_rate && l != NULL; i++)
        for (int k = 0; k < n_once; k++)
            l[n++] = (struct serve_load){
                .rate = o->rate.n > 0 ? o->rate.v[i] : 0,
                .at_once =
                    o->concurrency.n > 0 ? o->concurrency.v[k] : otherwise};
    return l != NULL ? n : -1;
}

/* Runs the loads and appends a row for each to `rows`. Sets *n_run to the
 * number of loads that ran. Ctrl-C ends the last one early. */
static enum exit_code run_all(struct serve_load *l, int n, int *n_run,
                              const struct options *o, json_t *rows)
{
    struct serve_target t = {0};
    enum exit_code c = serve_look(&t, o);
    int64_t done = 0;

    *n_run = 0;
    for (int i = 0; i < n && c == EXIT_DONE && term_interrupts == 0; i++) {
        c = serve_run(&l[i], &t, o);
        if (c == EXIT_DONE &&
            json_array_append_new(rows, serve_row(&l[i], &t, o)) != 0)
            c = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the results");
        done += l[i].n_done;
        ++*n_run;
    }
    if (c == EXIT_DONE && done == 0 && term_interrupts == 0)
        c = cli_error(CMD_BENCH, EXIT_FAILED, "no request succeeded: %s",
                      l[0].n_failure > 0 && l[0].failure[0].why[0] != '\0'
                          ? l[0].failure[0].why
                          : "the server sent no response");
    serve_target_fini(&t);
    return c;
}

enum exit_code bench_serve(const struct options *given)
{
    struct options o = *given;
    struct serve_load *l = NULL;
    json_t *rows = json_array();
    enum exit_code c = check(&o);
    int n = 0, n_run = 0;

    if (o.n_request == 0 && o.seconds == 0)
        o.n_request = 64;
    if (c == EXIT_DONE) {
        n = make_loads(&l, &o);
        if (n < 0 || rows == NULL)
            c = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the results");
    }
    term_interrupts_count(1);
    if (c == EXIT_DONE)
        c = run_all(l, n, &n_run, &o, rows);
    if (json_array_size(rows) > 0) {
        enum exit_code printed = serve_print(&o, rows);

        c = c == EXIT_DONE ? printed : c;
    }
    if (c == EXIT_DONE && o.svg != NULL)
        c = serve_draw_svg(&o, l, n_run);
    for (int i = 0; i < n; i++)
        serve_load_fini(&l[i]);
    free(l);
    json_decref(rows);
    return c;
}
