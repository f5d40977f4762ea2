/* plait bench: measures how fast models run here, with all combinations of the
 * options that are given several times. plait synth: writes a model with random
 * weights.
 *
 * Each round runs all configurations of a model in turn, so that other load
 * affects all of them alike. If their weights would need more than half of the
 * free memory, the configurations are split into batches that need less. The
 * limits of the machine are measured before and after each run, and the run is
 * compared with their mean: on shared machines the memory bandwidth changes by
 * half within seconds. The trace, which shows where time is spent, is recorded
 * in a separate run at the end, because tracing itself takes time.
 *
 * With --spec-type, each generation has two rows, without drafts and with
 * them. */
#include "bench.h"
#include "bench/bench_serve.h"
#include "cmd.h"
#include "option_table.h"
#include "printable.h"

#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- tests --------------------------------------------------------------- */

/* Returns *l, or a list of the one value `v` if *l is empty. */
static struct option_list or_default(const struct option_list *l, int v)
{
    return l->n > 0 ? *l : (struct option_list){1, {v}};
}

static int most(const struct option_list *l)
{
    int m = 0;

    for (int i = 0; i < l->n; i++)
        m = l->v[i] > m ? l->v[i] : m;
    return m;
}

/* Creates all tests, and sets b->n_seq and b->n_ctx to what they need. Each
 * depth has sequences of its own. */
static enum exit_code make_tests(struct bench_set *b, const struct options *o,
                                 struct bench_test **list)
{
    const struct option_list p = or_default(&o->n_prompt, 512);
    const struct option_list g = or_default(&o->n_gen, 128);
    const struct option_list d = or_default(&o->n_depth, 0);
    const struct option_list s = or_default(&o->n_seq, 1);
    const struct option_list *both = &o->n_pair;
    enum { PAGE = 64 };
    struct bench_test *t = calloc(
        (size_t)(p.n + g.n + both->n) * (size_t)d.n * (size_t)s.n, sizeof(*t));
    int longest = most(&p) > most(&g) ? most(&p) : most(&g);

    for (int i = 0; i < both->n; i += 2)
        if (both->v[i] + both->v[i + 1] > longest)
            longest = both->v[i] + both->v[i + 1];
    *list = t;
    b->test = t;
    if (t == NULL)
        return cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the tests");
    for (int i = 0; i < d.n; i++) {
        int64_t pages = (d.v[i] + longest) / PAGE + 1;

        for (int k = 0; k < s.n; k++) {
            for (int j = 0; j < p.n + g.n; j++) {
                int n = j < p.n ? p.v[j] : g.v[j - p.n];

                if (n > 0)
                    t[b->n_test++] =
                        (struct bench_test){j < p.n ? n : 0, j < p.n ? 0 : n,
                                            d.v[i], s.v[k], b->n_seq};
            }
            for (int j = 0; j < both->n; j += 2)
                t[b->n_test++] = (struct bench_test){both->v[j], both->v[j + 1],
                                                     d.v[i], s.v[k], b->n_seq};
        }
        b->n_seq += most(&s);
        b->n_ctx += pages * PAGE * most(&s);
    }
    if (b->n_test == 0)
        return cli_error(CMD_BENCH, EXIT_USAGE,
                         "-p 0 -n 0: nothing to measure; set one of them to a "
                         "number of tokens");
    return EXIT_DONE;
}

/* ---- configurations ------------------------------------------------------ */

/* The options that were given several values, each once; options that select
 * the model come first. */
struct axes {
    const struct option_row *row[OPTION_MAX_AXIS];
    int count[OPTION_MAX_AXIS];
    /* n: number of elements of row[] and count[]; n_model: number of the first
     * ones whose options select the model */
    int n, n_model;
};

static bool of_model(const struct option_row *r)
{
    return r->offset == offsetof(struct options, model) ||
           r->offset == offsetof(struct options, shape) ||
           r->offset == offsetof(struct options, type);
}

static void find_axes(struct axes *a, const struct options *o)
{
    *a = (struct axes){0};
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < o->n_axis; i++) {
            int k = 0;

            if (of_model(o->axis[i].row) != (pass == 0))
                continue;
            while (k < a->n && a->row[k] != o->axis[i].row)
                k++;
            if (k == a->n)
                a->row[a->n++] = o->axis[i].row;
            a->count[k]++;
        }
        if (pass == 0)
            a->n_model = a->n;
    }
}

/* Returns the number of combinations of the values of rows first .. end-1. In
 * their numbering the last row changes fastest. */
static int64_t combinations(const struct axes *a, int first, int end)
{
    int64_t n = 1;

    for (int i = first; i < end && n < INT32_MAX; i++)
        n *= a->count[i];
    return n;
}

/* Returns true if the output has a column for the option even if the option has
 * only one value. */
static bool has_column(const struct option_row *r)
{
    static const char *const names[] = {"-t", "-dev", "-sm", "-ts"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(r->name[0], names[i]) == 0)
            return true;
    return of_model(r);
}

/* Sets the options of rows first .. end-1 in *to to their values in combination
 * `index`. Appends values of options without a column to `varied`. */
static void choose(struct options *to, const struct axes *a, int first, int end,
                   int64_t index, char *varied, size_t size)
{
    for (int i = end - 1; i >= first; i--) {
        int64_t k = index % a->count[i];

        index /= a->count[i];
        for (int j = 0; j < to->n_axis; j++)
            if (to->axis[j].row == a->row[i] && k-- == 0) {
                size_t n = strlen(varied);

                a->row[i]->set(&(struct option_use){
                    .o = to, .row = a->row[i], .value = to->axis[j].value});
                if (a->count[i] > 1 && !has_column(a->row[i]))
                    snprintf(varied + n, size - n, "%s%s %s", n ? " " : "",
                             a->row[i]->name[0], to->axis[j].value);
            }
    }
}

/* ---- limits -------------------------------------------------------------- */

static enum exit_code begin_limits(struct bench_set *b)
{
    pl_err err;
    pl_status r = pl_meter_create(&b->meter, &err);

    return r == PL_OK ? EXIT_DONE : report(b->o, r, &err);
}

/* Measures the limits of the machine into b->now, unless the last measurement
 * ended less than 0.1 s ago. */
static void renew_limits(struct bench_set *b)
{
    const double moment = 0.1;
    double now = term_seconds();

    if (b->meter == NULL ||
        (b->best.n_threads > 0 && now - b->measured < moment))
        return;
    (void)pl_meter_measure(b->meter, &b->now, &b->best, sizeof b->now, NULL);
    b->measured = term_seconds();
}

static void go_halfway(double *to, double from)
{
    *to = (*to + from) / 2;
}

/* Returns the mean of the machine's limits measured before and after a run. */
static pl_limits around(const pl_limits *before, const pl_limits *after)
{
    pl_limits x = *after;

    go_halfway(&x.read_bytes_per_s, before->read_bytes_per_s);
    go_halfway(&x.int8_ops_per_s, before->int8_ops_per_s);
    go_halfway(&x.float_ops_per_s, before->float_ops_per_s);
    go_halfway(&x.amx_ops_per_s, before->amx_ops_per_s);
    go_halfway(&x.bf16_ops_per_s, before->bf16_ops_per_s);
    return x;
}

/* Runs test `t` once. Stores its seconds as the result of round `r`, with the
 * machine's limits measured before and after the run. */
static enum exit_code run_once(struct bench_config *c, struct bench_set *b,
                               int t, int r)
{
    int at = t * b->o->n_round + r;
    enum exit_code code;
    pl_limits before;

    renew_limits(b);
    before = b->now;
    code = bench_has_drafts(c, &b->test[t])
               ? bench_time_drafts(c, b, t, r, &c->seconds[at])
               : bench_time(c, &b->test[t], INT32_MAX, &c->seconds[at]);
    renew_limits(b);
    c->limits[at] = around(&before, &b->now);
    return code;
}

/* ---- models -------------------------------------------------------------- */

static const char *type_of(const struct options *o)
{
    return o->type != NULL ? o->type : "q4_k_m";
}

/* Checks that a model can be opened. Called for all models before the
 * measurement of the first one, which may take hours. */
static enum exit_code check_model(const struct options *o)
{
    pl_model *m = NULL;
    uint64_t bytes;
    pl_err err;
    pl_status r = o->shape != NULL
                      ? pl_synth_size(o->shape, type_of(o), &bytes, &err)
                      : session_model(&m, o, &err);

    pl_model_free(m);
    return r == PL_OK ? EXIT_DONE : report(o, r, &err);
}

/* Returns EXIT_DONE if a directory has space for the synthetic model; else
 * prints an error with the remedy. */
static enum exit_code check_space(enum command cmd, const struct options *o,
                                  const char *dir, const char *remedy)
{
    struct statvfs fs;
    char name[SHOWN];
    uint64_t bytes;
    pl_err err;
    pl_status r = pl_synth_size(o->shape, type_of(o), &bytes, &err);

    if (r != PL_OK)
        return report(o, r, &err);
    if (statvfs(dir, &fs) != 0 || bytes <= fs.f_bavail * fs.f_frsize)
        return EXIT_DONE;
    return cli_error(cmd, EXIT_FAILED,
                     "the model has %.1f GB, but %s has only %.1f GB free; %s",
                     (double)bytes * 1e-9, clip_printable(name, dir),
                     (double)(fs.f_bavail * fs.f_frsize) * 1e-9, remedy);
}

/* Writes a model of random weights into $TMPDIR if it fits. Sets `path` to the
 * path of the file, which the caller removes. Shows progress. */
static enum exit_code make_model(const struct options *o, char *path,
                                 size_t size, struct term_progress *progress)
{
    const char *dir = getenv("TMPDIR");
    enum exit_code c;
    pl_err err;
    pl_status r;
    /* random number in the name of the file, so that other users cannot create
     * that file first */
    uint64_t chance = 0;

    if (dir == NULL || dir[0] == '\0')
        dir = "/tmp";
    c = check_space(CMD_BENCH, o, dir, "set TMPDIR to a directory with more");
    if (c != EXIT_DONE)
        return c;
    (void)!getrandom(&chance, sizeof(chance), GRND_NONBLOCK);
    snprintf(path, size, "%s/plait-bench-%ld-%016" PRIx64, dir, (long)getpid(),
             chance);
    r = pl_synth_save(o->shape, type_of(o), path, term_progress, progress,
                      &term_interrupts, &err);
    term_progress_end(progress);
    if (r == PL_IO || r == PL_NOT_FOUND)
        return cli_error(CMD_BENCH, EXIT_FAILED,
                         "%s; set TMPDIR to a writable directory", err.message);
    return r == PL_OK ? EXIT_DONE : report(o, r, &err);
}

/* Measures n configurations together, round by round. Then closes their engines
 * and records a trace of each. */
static enum exit_code measure(struct bench_config *c, int n,
                              struct bench_set *b)
{
    enum exit_code code = EXIT_DONE;
    int rounds = b->o->n_round;
    uint64_t done = 0, total = (uint64_t)rounds * (uint64_t)(b->n_test * n);

    for (int i = 0; i < n && code == EXIT_DONE; i++) {
        code = bench_check(&c[i], b);
        if (code == EXIT_DONE)
            code = bench_open_drafts(&c[i], b);
        if (code == EXIT_DONE)
            code = bench_open(&c[i], b, NULL);
        if (code == EXIT_DONE)
            code = bench_warm(&c[i], b);
    }
    for (int r = 0; r < rounds; r++)
        for (int t = 0; t < b->n_test; t++)
            for (int i = 0; i < n && code == EXIT_DONE; i++) {
                struct bench_config *x = &c[(i + r) % n];

                term_progress(&b->progress, "measuring", done++, total);
                code = run_once(x, b, t, r);
            }
    term_progress_end(&b->progress);
    for (int i = 0; i < n; i++) {
        drafts_close(&c[i].drafts);
        pl_engine_free(c[i].s.engine);
        c[i].s.engine = NULL;
    }
    for (int i = 0; i < n && code == EXIT_DONE; i++)
        code = bench_trace(&c[i], b);
    return code;
}

static enum exit_code add_rows(json_t *rows, const struct bench_config *c,
                               const struct bench_set *b, json_t *inspect)
{
    char name[80];
    struct bench_model m;
    bool ok;

    snprintf(name, sizeof(name), "%.40s %.30s", b->o->shape ? b->o->shape : "",
             type_of(b->o));
    ok = bench_model_read(
        &m, b->o->shape != NULL ? name : bench_word(inspect, "file"), inspect,
        c->plan);
    for (int t = 0; t < b->n_test && ok; t++) {
        ok = json_array_append_new(rows, bench_row(c, b, t, &m, false)) == 0;
        if (ok && bench_has_drafts(c, &b->test[t]))
            ok = json_array_append_new(rows, bench_row(c, b, t, &m, true)) == 0;
    }
    return ok ? EXIT_DONE
              : cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the results");
}

/* Measures the configurations c[0 .. n-1] of a model, whose options are set,
 * and appends their rows to `rows`. */
static enum exit_code bench_model(struct bench_config *c, int n,
                                  struct bench_set *b, json_t *rows)
{
    struct bench_text text = {0};
    char path[4096] = "";
    enum exit_code code = EXIT_DONE;
    json_t *inspect = NULL;
    int at_once = 1;

    if (b->o->shape != NULL)
        code = make_model(b->o, path, sizeof(path), &b->progress);
    for (int i = 0; i < n && code == EXIT_DONE; i++) {
        if (path[0] != '\0')
            c[i].o.model = path;
        code = session_open(&c[i].s, &c[i].o);
    }
    if (code == EXIT_DONE) {
        pl_err err;
        pl_status r =
            pl_inspect(c[0].o.model, true, bench_text_add, &text, &err);

        inspect = bench_text_json(&text);
        if (r != PL_OK)
            code = report(b->o, r, &err);
    }
    if (path[0] != '\0')
        /* only the name is removed; open sessions still read the file */
        unlink(path);
    if (code == EXIT_DONE) {
        double bytes = json_number_value(
            json_object_get(json_object_get(inspect, "totals"), "bytes"));
        uint64_t available = 0;
        double fit;

        pl_host_memory(NULL, &available, NULL);
        fit = (double)available / 2 / (bytes + 1);

        at_once = fit >= n ? n : fit > 1 ? (int)fit : 1;
    }
    for (int i = 0; i < n && code == EXIT_DONE; i += at_once)
        code = measure(c + i, n - i < at_once ? n - i : at_once, b);
    for (int i = 0; i < n && code == EXIT_DONE; i++)
        code = add_rows(rows, &c[i], b, inspect);
    json_decref(inspect);
    return code;
}

static enum exit_code bench_all(const struct options *o, struct bench_set *b,
                                json_t *rows)
{
    struct axes a;
    int64_t n_model, n_config;
    struct bench_config *c;
    struct options chosen = *o;
    size_t n_run = (size_t)b->n_test * (size_t)o->n_round;
    char none[1] = "";
    enum exit_code code = EXIT_DONE;

    find_axes(&a, o);
    n_model = combinations(&a, 0, a.n_model);
    n_config = combinations(&a, a.n_model, a.n);
    if (n_config > 1000)
        return cli_error(CMD_BENCH, EXIT_USAGE,
                         "%" PRId64 " combinations of options; give fewer than "
                         "1000",
                         n_config);
    for (int64_t m = 0; m < n_model && code == EXIT_DONE; m++) {
        choose(&chosen, &a, 0, a.n_model, m, none, sizeof(none));
        code = check_model(&chosen);
    }
    c = calloc((size_t)n_config, sizeof(*c));
    b->o = &chosen;
    for (int64_t m = 0; m < n_model && code == EXIT_DONE; m++) {
        choose(&chosen, &a, 0, a.n_model, m, none, sizeof(none));
        for (int64_t i = 0; c != NULL && i < n_config; i++) {
            c[i] = (struct bench_config){.o = chosen};
            choose(&c[i].o, &a, a.n_model, a.n, i, c[i].varied,
                   sizeof(c[i].varied));
            c[i].seconds = calloc(n_run, sizeof(*c[i].seconds));
            c[i].limits = calloc(n_run, sizeof(*c[i].limits));
            if (c[i].seconds == NULL || c[i].limits == NULL)
                code = EXIT_FAILED;
        }
        if (c == NULL || code != EXIT_DONE)
            code = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for results");
        else
            code = bench_model(c, (int)n_config, b, rows);
        for (int64_t i = 0; c != NULL && i < n_config; i++) {
            bench_close_drafts(&c[i], b);
            code = session_close(&c[i].s, code);
            json_decref(c[i].plan);
            free(c[i].share);
            free(c[i].seconds);
            free(c[i].limits);
        }
    }
    free(c);
    return code;
}

static bool of_load(const struct options *o)
{
    return o->rate.n > 0 || o->concurrency.n > 0 || o->n_request > 0 ||
           o->seconds > 0 || o->prefix > 0 || o->n_prefix > 1 || o->chat ||
           o->max_first_ms > 0 || o->max_between_ms > 0;
}

enum exit_code cmd_bench(const struct options *o)
{
    struct bench_set b = {.o = o};
    struct bench_test *tests = NULL;
    json_t *rows;
    enum exit_code c;

    if (o->serve != NULL)
        return bench_serve(o);
    if (of_load(o))
        return cli_error(
            CMD_BENCH, EXIT_USAGE,
            "--rate, --concurrency and the other load options measure a "
            "server; give its address, --serve http://127.0.0.1:8080");
    if (o->model == NULL && o->shape == NULL)
        return report_no_model(o, ", or use random weights with --shape "
                                  "qwen3-0.6b");
    if (o->model != NULL && (o->shape != NULL || o->type != NULL))
        return cli_error(
            CMD_BENCH, EXIT_USAGE,
            "-m names a file, but %s selects random weights; leave one out",
            o->shape != NULL ? "--shape" : "--type");
    if (o->file != NULL && !o->drafts_given && o->model_draft == NULL)
        return cli_error(CMD_BENCH, EXIT_USAGE,
                         "-f is the text that drafts are measured on; give "
                         "--spec-type, or leave -f out");
    rows = json_array();
    c = make_tests(&b, o, &tests);
    if (c == EXIT_DONE && !o->no_limits)
        c = begin_limits(&b);
    term_interrupts_count(1);
    if (c == EXIT_DONE)
        c = bench_all(o, &b, rows);
    if (c == EXIT_DONE)
        c = bench_print(o, rows, b.meter != NULL ? &b.best : NULL);
    if (c == EXIT_DONE && o->svg != NULL)
        c = bench_draw(o, rows);
    pl_meter_free(b.meter);
    json_decref(rows);
    free(tests);
    return c;
}

enum exit_code cmd_synth(const struct options *o)
{
    struct term_progress progress = {0};
    char dir[PATH_MAX];
    enum exit_code c;
    pl_err err;
    pl_status r;

    if (o->shape == NULL || o->output == NULL)
        return cli_error(
            CMD_SYNTH, EXIT_USAGE, "%s; see `plait synth --help`",
            o->shape == NULL
                ? "no shape; give one with --shape, like qwen3-0.6b"
                : "no file to write; give -o FILE");
    snprintf(dir, sizeof dir, "%s", o->output);
    c = check_space(CMD_SYNTH, o, dirname(dir), "write to a disk with more");
    if (c != EXIT_DONE)
        return c;
    term_interrupts_count(1);
    r = pl_synth_save(o->shape, type_of(o), o->output, term_progress, &progress,
                      &term_interrupts, &err);
    term_progress_end(&progress);
    return r == PL_OK ? EXIT_DONE : report(o, r, &err);
}
