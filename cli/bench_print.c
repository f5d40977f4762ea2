/* Result rows as JSON objects, and their output formats: JSON, CSV of the
 * scalars, a Markdown table. Keys that llama-bench has, too, have the same
 * names. */
#include "bench.h"
#include "server/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- rows ---------------------------------------------------------------- */

/* Copies the value of `option` in the options of a plan to `buf`; "" if the
 * option is absent. */
static void option_of(const json_t *plan, const char *option, char *buf,
                      size_t size)
{
    const char *s = strstr(bench_word(plan, "options"), option);

    if (s != NULL)
        s += strlen(option);
    snprintf(buf, size, "%.*s", s ? (int)strcspn(s, " ") : 0, s ? s : "");
}

static bool is_host(const json_t *device)
{
    return strcmp(bench_word(device, "name"), "host") == 0;
}

static bool is_accelerator(const json_t *device)
{
    return json_is_true(json_object_get(device, "accelerator"));
}

/* Writes the backends of the devices that compute, as in "CPU avx2", "cuda" or
 * "cuda, CPU avx2". Omits the host device unless it is the only device. */
static void backend_of(const json_t *plan, char *buf, size_t size)
{
    json_t *devices = json_object_get(plan, "devices"), *d;
    bool alone = is_host(json_array_get(devices, 0)), cores = false;
    size_t i, n = 0;

    buf[0] = '\0';
    json_array_foreach (devices, i, d) {
        const char *kind = bench_word(d, "kind");

        cores |= !is_accelerator(d) && (alone || !is_host(d));
        if (is_accelerator(d) && !strstr(buf, kind) && n + 24 < size)
            n += (size_t)snprintf(buf + n, size - n, "%s%.16s",
                                  n > 0 ? ", " : "", kind);
    }
    if (cores && n + 24 < size)
        snprintf(buf + n, size - n, "%sCPU %.16s%s", n > 0 ? ", " : "",
                 bench_word(plan, "kernels"),
                 strcmp(bench_word(plan, "numerics"), "fast") ? "" : " fast");
}

/* Sorts the values and returns their median. */
static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return (v[n / 2] + v[(n - 1) / 2]) / 2;
}

/* Adds a value to the row under the key NAME_UNIT. */
static void put(json_t **row, const char *name, const char *unit, json_t *value)
{
    char key[24];

    snprintf(key, sizeof(key), "%s_%s", name, unit);
    json_text_put(row, key, value);
}

/* Adds n measured values and their mean, standard deviation, median, minimum
 * and maximum to the row, under keys that end with `unit`. */
static void add_samples(json_t **row, const char *unit, double *v, int n)
{
    json_t *all = json_array();
    double sum = 0, squares = 0;

    for (int i = 0; i < n; i++) {
        sum += v[i];
        json_text_add(&all, json_real(v[i]));
    }
    for (int i = 0; i < n; i++)
        squares += (v[i] - sum / n) * (v[i] - sum / n);
    put(row, "avg", unit, json_real(sum / n));
    put(row, "stddev", unit, json_real(n > 1 ? sqrt(squares / (n - 1)) : 0));
    put(row, "median", unit, json_real(median(v, n)));
    put(row, "min", unit, json_real(v[0]));
    put(row, "max", unit, json_real(v[n - 1]));
    put(row, "samples", unit, all);
}

/* Adds the fractions of each device's time in a test (struct bench_share) and
 * their means over the devices to the row. They are not known with drafts. */
static void add_shares(json_t **row, const struct bench_config *c, int test,
                       bool drafts)
{
    const struct bench_share *s = c->share + test * c->n_dev;
    json_t *all = json_array(), *d;
    struct bench_share mean = {0};
    size_t i;

    json_array_foreach (json_object_get(c->plan, "devices"), i, d) {
        if (drafts)
            break;
        mean.compute += s[i].compute / c->n_dev;
        mean.wait += s[i].wait / c->n_dev;
        mean.copy += s[i].copy / c->n_dev;
        json_text_add(&all, json_pack("{s:s, s:f, s:f, s:f}", "name",
                                      bench_word(d, "name"), "compute_share",
                                      s[i].compute, "wait_share", s[i].wait,
                                      "copy_share", s[i].copy));
    }
    json_text_put(row, "compute_share",
                  drafts ? json_null() : json_real(mean.compute));
    json_text_put(row, "wait_share",
                  drafts ? json_null() : json_real(mean.wait));
    json_text_put(row, "copy_share",
                  drafts ? json_null() : json_real(mean.copy));
    json_text_put(row, "device_shares", all);
}

/* Returns true if only CPUs compute in this row. The measured limits are those
 * of the CPUs, so they do not apply to other devices. */
static bool on_processors(const json_t *row)
{
    return strncmp(bench_word(row, "backend"), "CPU", 3) == 0;
}

/* Adds the medians of the limits measured around n runs. Also adds the median
 * fraction of the upper bound of its speed that a run reached; seconds[i] is
 * the time of run i; it is NULL if the bound is not known, with drafts. `v` is
 * scratch memory for n values. */
static void add_limits(json_t **row, const pl_limits *l, const double *seconds,
                       int n, double tokens, const struct bench_work *work,
                       double *v)
{
    static const struct {
        const char *key;
        size_t offset;
    } rates[] = {
        {"read_bytes_per_s", offsetof(pl_limits, read_bytes_per_s)},
        {"int8_ops_per_s", offsetof(pl_limits, int8_ops_per_s)},
        {"float_ops_per_s", offsetof(pl_limits, float_ops_per_s)},
        {"amx_ops_per_s", offsetof(pl_limits, amx_ops_per_s)},
        {"bf16_ops_per_s", offsetof(pl_limits, bf16_ops_per_s)},
    };
    bool known = seconds != NULL && on_processors(*row);
    json_t *limits = json_array(), *shares = json_array();

    for (int i = 0; i < n && known; i++) {
        v[i] = tokens / bench_roofline_s(work, &l[i]);
        json_text_add(&limits, json_real(v[i]));
    }
    json_text_put(row, "limit_ts",
                  known ? json_real(median(v, n)) : json_null());
    for (int i = 0; i < n && known; i++) {
        v[i] = bench_roofline_s(work, &l[i]) / seconds[i];
        json_text_add(&shares, json_real(v[i]));
    }
    json_text_put(row, "limit_share",
                  known ? json_real(median(v, n)) : json_null());
    json_text_put(row, "samples_limit_ts", limits);
    json_text_put(row, "samples_limit_share", shares);
    for (size_t k = 0; k < sizeof(rates) / sizeof(rates[0]); k++) {
        for (int i = 0; i < n; i++)
            memcpy(&v[i], (const char *)&l[i] + rates[k].offset, sizeof(v[i]));
        json_text_put(row, rates[k].key, json_real(median(v, n)));
    }
    json_text_put(row, "cpu_info", json_string(l->cpu));
    json_text_put(row, "read_streams", json_integer(l->n_streams));
    json_text_put(row, "n_cores", json_integer(l->n_threads));
    json_text_put(row, "int8_unit", json_string(l->int8_unit));
    json_text_put(row, "float_unit", json_string(l->float_unit));
}

/* Adds the numbers of drafts of test i to a row: their tokens, those that were
 * accepted, both by position, and how much faster the runs with drafts are. In
 * a row without drafts they are 0 or null. `v` is scratch memory. */
static void add_drafts(json_t **row, const struct bench_config *c, int i, int n,
                       bool drafts, double *v)
{
    const struct bench_drafted none = {0};
    const struct bench_drafted *d = c->drafted ? &c->drafted[i] : &none;
    const bool hashed = c->drafted != NULL && d->hash != 0;
    json_t *drafted = json_array(), *accepted = json_array();
    char types[100] = "", hash[20] = "";

    if (!drafts)
        d = &none;
    for (int k = 0; k < PL_DRAFT_N_SOURCE && drafts; k++)
        if (drafts_enabled(&c->o) >> k & 1)
            snprintf(types + strlen(types), sizeof(types) - strlen(types),
                     "%s%.20s", types[0] != '\0' ? "," : "",
                     pl_draft_source_name(k));
    if (hashed)
        snprintf(hash, sizeof(hash), "%016" PRIx64, c->drafted[i].hash);
    json_text_put(row, "spec_type", json_string(types));
    json_text_put(row, "draft_n", json_integer((json_int_t)d->n_token));
    json_text_put(row, "draft_n_accepted",
                  json_integer((json_int_t)d->n_accepted));
    for (int k = 0; k < PL_DRAFT_MAX && d->drafted_at[k] > 0; k++) {
        json_text_add(&drafted, json_integer((json_int_t)d->drafted_at[k]));
        json_text_add(&accepted, json_integer((json_int_t)d->accepted_at[k]));
    }
    json_text_put(row, "drafted_at", drafted);
    json_text_put(row, "accepted_at", accepted);
    for (int r = 0; r < n && drafts; r++)
        v[r] = c->seconds[i * n + r] / d->seconds[r];
    json_text_put(row, "speedup",
                  drafts ? json_real(median(v, n)) : json_null());
    json_text_put(row, "text_hash", json_string(hash));
}

json_t *bench_row(const struct bench_config *c, const struct bench_set *b,
                  int i, const struct bench_model *m, bool drafts)
{
    const struct bench_test *t = &b->test[i];
    const int n = b->o->n_round;
    const double *seconds = drafts ? c->drafted[i].seconds : c->seconds + i * n;
    const struct bench_work work = bench_work(m, t, c->o.pl.numerics);
    double tokens = (double)t->n_seq * (t->n_prompt + t->n_gen);
    double *v = malloc((size_t)n * sizeof(*v));
    char mode[24], shares[200], backend[64];
    int n_thread = 0, n_dev = 0;
    json_t *row, *caches = json_object_get(c->plan, "caches"), *d;
    size_t k;

    if (v == NULL)
        return NULL;
    json_array_foreach (json_object_get(c->plan, "devices"), k, d) {
        n_thread += is_host(d) && k > 0 ? 0 : (int)bench_number(d, "threads");
        n_dev += !is_host(d) || k == 0;
    }
    option_of(c->plan, "-sm ", mode, sizeof(mode));
    option_of(c->plan, "-ts ", shares, sizeof(shares));
    backend_of(c->plan, backend, sizeof(backend));
    row = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:i, "
        "s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f}",
        "model_filename", m->name, "model_type", m->type, "model_size",
        (json_int_t)m->bytes, "model_n_params", (json_int_t)m->n_param,
        "backend", backend, "n_threads", n_thread, "devices",
        c->o.pl.devices ? c->o.pl.devices : "cpu", "n_devices", n_dev,
        "split_mode", mode, "tensor_split", shares, "varied", c->varied,
        "options", bench_word(c->plan, "options"), "n_ubatch",
        (int)bench_number(c->plan, "n_ubatch"), "numerics",
        bench_word(c->plan, "numerics"), "type_k",
        bench_word(json_array_get(caches, 0), "format"), "type_v",
        bench_word(json_array_get(caches, 1), "format"), "n_prompt",
        t->n_prompt, "n_gen", t->n_gen, "n_depth", t->n_depth, "n_seq",
        t->n_seq, "read_bytes", work.read_bytes, "int8_ops", work.int8_ops,
        "float_ops", work.float_ops, "bf16_ops", work.bf16_ops);
    for (int r = 0; r < n; r++)
        v[r] = tokens / seconds[r];
    add_samples(&row, "ts", v, n);
    for (int r = 0; r < n; r++)
        v[r] = seconds[r] * 1e9;
    add_samples(&row, "ns", v, n);
    add_shares(&row, c, i, drafts);
    if (b->meter != NULL)
        add_limits(&row, c->limits + i * n, drafts ? NULL : seconds, n, tokens,
                   &work, v);
    add_drafts(&row, c, i, n, drafts, v);
    free(v);
    return row;
}

/* ---- CSV ----------------------------------------------------------------- */

/* Prints a text between quotes. Quotes in the text are doubled. */
static void say_quoted(const char *s, char quote)
{
    putchar(quote);
    for (; *s != '\0'; s++) {
        if (*s == quote)
            putchar(quote);
        putchar(*s);
    }
    putchar(quote);
}

/* Returns true if a value can be a field in CSV and SQL. */
static bool is_scalar(const json_t *v)
{
    return !json_is_array(v) && !json_is_object(v);
}

/* Prints the rows as CSV. All rows must have the keys of the first row. */
static void print_csv(json_t *rows)
{
    json_t *row, *v;
    const char *key, *before = "";
    size_t i;

    json_object_foreach (json_array_get(rows, 0), key, v)
        if (is_scalar(v)) {
            printf("%s", before);
            say_quoted(key, '"');
            before = ",";
        }
    printf("\n");
    json_array_foreach (rows, i, row) {
        before = "";
        json_object_foreach (row, key, v) {
            char buf[40] = "";

            if (!is_scalar(v))
                continue;
            if (json_is_number(v))
                snprintf(buf, sizeof(buf), "%.17g", json_number_value(v));
            printf("%s", before);
            say_quoted(json_is_string(v) ? json_string_value(v) : buf, '"');
            before = ",";
        }
        printf("\n");
    }
}

/* ---- JSON and SQL -------------------------------------------------------- */

/* Prints statements that create the table `test` and insert the rows, as
 * llama-bench does. */
static void print_sql(json_t *rows)
{
    json_t *row, *v;
    const char *key, *before = "";
    size_t i;

    printf("CREATE TABLE IF NOT EXISTS test (\n");
    json_object_foreach (json_array_get(rows, 0), key, v)
        if (is_scalar(v)) {
            printf("%s  %s %s", before, key,
                   json_is_integer(v)  ? "INTEGER"
                   : json_is_number(v) ? "REAL"
                                       : "TEXT");
            before = ",\n";
        }
    printf("\n);\n\n");
    json_array_foreach (rows, i, row) {
        before = "";
        printf("INSERT INTO test VALUES (");
        json_object_foreach (row, key, v) {
            if (!is_scalar(v))
                continue;
            printf("%s", before);
            before = ", ";
            if (json_is_number(v))
                printf("%.17g", json_number_value(v));
            else if (json_is_string(v))
                say_quoted(json_string_value(v), '\'');
            else
                printf("NULL");
        }
        printf(");\n");
    }
}

void bench_print_data(const struct options *o, json_t *rows)
{
    json_t *row;
    size_t i;

    if (o->form == FORM_CSV)
        print_csv(rows);
    else if (o->form == FORM_SQL)
        print_sql(rows);
    else if (o->form == FORM_JSON &&
             json_dumpf(rows, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    json_array_foreach (rows, i, row)
        if (o->form == FORM_JSONL && json_dumpf(row, stdout, JSON_COMPACT) == 0)
            putchar('\n');
}

/* ---- Markdown ------------------------------------------------------------ */

void bench_cell_text(char *buf, const json_t *r, const char *key)
{
    snprintf(buf, BENCH_CELL, "%.190s", bench_word(r, key));
}

void bench_cell_count(char *buf, const json_t *r, const char *key)
{
    snprintf(buf, BENCH_CELL, "%.0f", bench_number(r, key));
}

void bench_cell_figure(char *buf, const json_t *r, const char *key)
{
    double v = bench_number(r, key);

    if (json_is_number(json_object_get(r, key)))
        snprintf(buf, BENCH_CELL, "%.*f", v < 10 ? 2 : v < 1000 ? 1 : 0, v);
    else
        snprintf(buf, BENCH_CELL, "-");
}

static void cell_model(char *buf, const json_t *r, const char *key)
{
    const char *name = bench_word(r, key), *slash = strrchr(name, '/');

    snprintf(buf, BENCH_CELL, "%.190s", slash != NULL ? slash + 1 : name);
}

static void cell_size(char *buf, const json_t *r, const char *key)
{
    double mib = bench_number(r, key) / 0x1p20;

    snprintf(buf, BENCH_CELL, mib < 1024 ? "%.2f MiB" : "%.2f GiB",
             mib < 1024 ? mib : mib / 1024);
}

static void cell_params(char *buf, const json_t *r, const char *key)
{
    double n = bench_number(r, key);

    snprintf(buf, BENCH_CELL, n < 1e9 ? "%.2f M" : "%.2f B",
             n < 1e9 ? n / 1e6 : n / 1e9);
}

static void cell_split(char *buf, const json_t *r, const char *key)
{
    const char *shares = bench_word(r, "tensor_split");

    snprintf(buf, BENCH_CELL, "%s%s%.150s", bench_word(r, key),
             shares[0] != '\0' ? " " : "", shares);
}

static void cell_test(char *buf, const json_t *r, const char *key)
{
    double p = bench_number(r, "n_prompt"), g = bench_number(r, "n_gen");
    double d = bench_number(r, "n_depth"), s = bench_number(r, "n_seq");
    int n = p > 0 && g > 0 ? snprintf(buf, BENCH_CELL,
                                      "prompt %.0f + generation %.0f", p, g)
                           : snprintf(buf, BENCH_CELL, "%s %.0f",
                                      p > 0 ? "prompt" : "generation", p + g);

    if (s > 1)
        n += snprintf(buf + n, BENCH_CELL - (size_t)n, " x %.0f", s);
    if (d > 0)
        snprintf(buf + n, BENCH_CELL - (size_t)n, " @ %.0f", d);
    (void)key;
}

static void cell_spread(char *buf, const json_t *r, const char *key)
{
    char lo[BENCH_CELL], hi[BENCH_CELL];

    (void)key;
    bench_cell_figure(lo, r, "min_ts");
    bench_cell_figure(hi, r, "max_ts");
    snprintf(buf, BENCH_CELL, "%.40s to %.40s", lo, hi);
}

static void cell_percent(char *buf, const json_t *r, const char *key)
{
    if (!json_is_number(json_object_get(r, key)))
        snprintf(buf, BENCH_CELL, "-");
    else
        snprintf(buf, BENCH_CELL, "%.0f %%", 100 * bench_number(r, key));
}

/* Writes the fraction that the row has under `key`, in percent; if it has one
 * for each device, a list: "97, 95 %". */
static void cell_shares(char *buf, const json_t *r, const char *key)
{
    json_t *all = json_object_get(r, "device_shares"), *d;
    size_t i, n = 0;

    if (json_array_size(all) == 0 ||
        json_array_size(all) > 8) { /* a longer list would make the table too
                                       wide, so show the mean */
        cell_percent(buf, r, key);
        return;
    }
    json_array_foreach (all, i, d)
        n += (size_t)snprintf(buf + n, BENCH_CELL - n, "%s%.0f",
                              i > 0 ? ", " : "", 100 * bench_number(d, key));
    snprintf(buf + n, BENCH_CELL - n, " %%");
}

/* Writes how many drafted tokens were accepted at each position, in percent of
 * the drafts that had a token there. */
static void cell_accepted(char *buf, const json_t *r, const char *key)
{
    enum { SHOWN_POSITIONS = 8 };
    const json_t *drafted = json_object_get(r, "drafted_at");
    const json_t *accepted = json_object_get(r, key);
    size_t n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < json_array_size(drafted) && i < SHOWN_POSITIONS; i++)
        n += (size_t)snprintf(
            buf + n, BENCH_CELL - n, "%s%.0f", i > 0 ? ", " : "",
            100 * json_number_value(json_array_get(accepted, i)) /
                json_number_value(json_array_get(drafted, i)));
    if (n > 0)
        snprintf(buf + n, BENCH_CELL - n, "%s %%",
                 json_array_size(drafted) > SHOWN_POSITIONS ? " ..." : "");
}

static void cell_speedup(char *buf, const json_t *r, const char *key)
{
    buf[0] = '\0';
    if (json_is_number(json_object_get(r, key)))
        bench_cell_figure(buf, r, key);
}

static const struct bench_column columns[] = {
    {"model", cell_model, "model_filename", false},
    {"size", cell_size, "model_size", true},
    {"params", cell_params, "model_n_params", true},
    {"backend", bench_cell_text, "backend", false},
    {"threads", bench_cell_count, "n_threads", true},
    {"devices", bench_cell_text, "devices", false},
    {"split", cell_split, "split_mode", false},
    {"options", bench_cell_text, "varied", false},
    {"test", cell_test, NULL, false},
    {"drafts", bench_cell_text, "spec_type", false},
    {"t/s", bench_cell_figure, "median_ts", true},
    {"spread", cell_spread, NULL, true},
    {"speedup", cell_speedup, "speedup", true},
    {"accepted", cell_accepted, "accepted_at", true},
    {"% of limit", cell_percent, "limit_share", true},
    {"compute", cell_shares, "compute_share", true},
    {"wait", cell_shares, "wait_share", true},
    {"copies", cell_shares, "copy_share", true},
};
enum { N_COLUMN = sizeof(columns) / sizeof(columns[0]), MAX_COLUMN = 32 };

/* Returns the width in bytes of the column's widest text, its title or a cell;
 * 0 if the column is empty in all rows. */
static int width_of(const struct bench_column *c, json_t *rows)
{
    size_t width = 0, i;
    json_t *row;
    char buf[BENCH_CELL];

    json_array_foreach (rows, i, row) {
        c->cell(buf, row, c->key);
        if (strlen(buf) > width)
            width = strlen(buf);
    }
    return width > 0 && width < strlen(c->title) ? (int)strlen(c->title)
                                                 : (int)width;
}

void bench_print_table(const struct bench_column *c, int n, json_t *rows)
{
    int width[MAX_COLUMN];
    char buf[BENCH_CELL];
    json_t *row;
    size_t k;

    for (int i = 0; i < n; i++)
        width[i] = width_of(&c[i], rows);
    for (int i = 0; i < n; i++)
        if (width[i] > 0)
            printf(c[i].right ? "| %*s " : "| %-*s ", width[i], c[i].title);
    printf("|\n");
    for (int i = 0; i < n; i++) {
        if (width[i] == 0)
            continue;
        printf("| ");
        for (int j = 0; j < width[i] - c[i].right; j++)
            putchar('-');
        printf(c[i].right ? ": " : " ");
    }
    printf("|\n");
    json_array_foreach (rows, k, row) {
        for (int i = 0; i < n; i++) {
            c[i].cell(buf, row, c[i].key);
            if (width[i] > 0)
                printf(c[i].right ? "| %*s " : "| %-*s ", width[i], buf);
        }
        printf("|\n");
    }
}

static void print_md(json_t *rows, const pl_limits *l)
{
    if (l != NULL) {
        printf("%s, %d cores; limits of all cores together:\n\n* read %.1f "
               "GB/s, %d stream%s per thread\n* multiply %.3g Tops/s of int8 "
               "(%s), %.3g Tops/s of float (%s)\n",
               l->cpu, l->n_threads, l->read_bytes_per_s * 1e-9, l->n_streams,
               l->n_streams > 1 ? "s" : "", l->int8_ops_per_s * 1e-12,
               l->int8_unit, l->float_ops_per_s * 1e-12, l->float_unit);
        if (l->amx_ops_per_s > 0)
            printf("* AMX, not part of any limit: %.3g Tops/s of int8\n",
                   l->amx_ops_per_s * 1e-12);
        if (l->bf16_ops_per_s > 0)
            printf("* BF16, used by --numerics fast: %.3g Tops/s\n",
                   l->bf16_ops_per_s * 1e-12);
        printf("\n");
    }
    bench_print_table(columns, N_COLUMN, rows);
}

enum exit_code bench_print(const struct options *o, json_t *rows,
                           const pl_limits *l)
{
    if (o->form == FORM_MD)
        print_md(rows, l);
    else
        bench_print_data(o, rows);
    return finish_out(o);
}
