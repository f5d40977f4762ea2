/* Combines the metrics of all models into one text in Prometheus's format. A
 * label names the model of each sample. The format requires that all samples of
 * one metric, a family, are adjacent, so the families of all models are merged.
 *
 * The counters of a service start at 0 when its model is loaded. When the model
 * is unloaded, the metrics text of the service is kept. It is added to the
 * metrics of the next load, so that totals never decrease. */
#include "models_inner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends the label model="NAME" to *out, with special characters of `name`
 * escaped. */
static bool add_label(struct text *out, const char *name)
{
    bool ok = text_add(out, "model=\"", 7);

    for (; *name && ok; name++) {
        if (*name == '"' || *name == '\\')
            ok = text_add(out, "\\", 1);
        ok = ok &&
             (*name == '\n' ? text_add(out, "\\n", 2) : text_add(out, name, 1));
    }
    return ok && text_add(out, "\"", 1);
}

/* Appends a sample, "NAME VALUE" or "NAME{LABELS} VALUE", with a label for
 * `model` added. `line` is the sample, n bytes with its newline. `only`: there
 * is one model, and samples with llama-server's names get no label, because
 * llama-server has none. */
static bool add_sample(struct text *out, const char *line, size_t n,
                       const char *model, bool only)
{
    size_t end = strcspn(line, "{ ");
    bool has = line[end] == '{', ok;

    if (only && strncmp(line, "llamacpp:", 9) == 0)
        return text_add(out, line, n);
    ok = text_add(out, line, end) && text_add(out, "{", 1) &&
         add_label(out, model);
    if (has)
        return ok && text_add(out, ",", 1) &&
               text_add(out, line + end + 1, n - end - 1);
    return ok && text_add(out, "}", 1) && text_add(out, line + end, n - end);
}

/* Appends the family of metrics that begins at *at, with a label for `model`
 * added to its samples. If `bare`, omits the lines # HELP and # TYPE. Advances
 * *at to the next family. */
static bool add_family(struct text *out, const char **at, const char *model,
                       bool bare, bool only)
{
    bool begun = false, ok = true;

    while (**at && ok) {
        size_t n = strcspn(*at, "\n");

        n += (*at)[n] == '\n';
        if (strncmp(*at, "# HELP ", 7) == 0 && begun)
            break;
        begun = true;
        if (**at != '#')
            ok = add_sample(out, *at, n, model, only);
        else if (!bare)
            ok = text_add(out, *at, n);
        *at += n;
    }
    return ok;
}

bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n, bool only)
{
    const char **at = calloc((size_t)n + 1, sizeof *at);
    bool ok = at != NULL, more = n > 0;

    for (int i = 0; i < n && ok; i++)
        at[i] = part[i].text;
    while (ok && more) {
        more = false;
        for (int i = 0; i < n && ok; i++) {
            ok = add_family(out, &at[i], part[i].model, i > 0, only);
            more |= *at[i] != '\0';
        }
    }
    free(at);
    return ok;
}

/* ---- adding the totals of earlier loads ---------------------------------- */

/* Returns the beginning of the line after `line`. */
static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Returns the length of the key "NAME{LABELS}" in the line of a sample. The key
 * is followed by a space and the value. */
static size_t key_of(const char *line)
{
    size_t n = strcspn(line, "\n");

    while (n > 0 && line[n] != ' ')
        n--;
    return n;
}

/* Returns the sample in `text` that has the same key, "NAME{LABELS}", as the
 * sample `line`; NULL if there is none. */
static const char *find_sample(const char *text, const char *line)
{
    size_t n = key_of(line);

    for (; *text; text = next_line(text))
        if (strncmp(text, line, n + 1) == 0)
            return text;
    return NULL;
}

/* Appends sample line `a` with its value replaced by the sum of the values of
 * `a` and `b`. If the name of the metric ends in "_max", the greater value
 * replaces it instead. */
static bool add_sum(struct text *out, const char *a, const char *b)
{
    size_t n = key_of(a), m = key_of(b), end_name = strcspn(a, "{ ");
    const char *end = next_line(a);
    char value[64];

    if (end_name > 4 && memcmp(a + end_name - 4, "_max", 4) == 0)
        snprintf(value, sizeof value, "%.0f\n",
                 fmax(strtod(a + n, NULL), strtod(b + m, NULL)));
    else if (memchr(a + n, '.', (size_t)(end - a) - n))
        snprintf(value, sizeof value, "%.6f\n",
                 strtod(a + n, NULL) + strtod(b + m, NULL));
    else
        snprintf(value, sizeof value, "%" PRIu64 "\n",
                 (uint64_t)strtoull(a + n, NULL, 10) +
                     (uint64_t)strtoull(b + m, NULL, 10));
    return text_add(out, a, n + 1) && text_add(out, value, strlen(value));
}

/* Returns true if the line is "# TYPE NAME gauge". The values of gauges are
 * current values, so they are not added up. */
static bool is_gauge(const char *line)
{
    static const char end[] = " gauge\n";
    size_t n = (size_t)(next_line(line) - line);

    return n > sizeof end - 1 &&
           memcmp(line + n - (sizeof end - 1), end, sizeof end - 1) == 0;
}

static bool is_type(const char *line)
{
    return strncmp(line, "# TYPE ", 7) == 0;
}

/* Appends the samples of a family of metrics that the text `past` has but `now`
 * has not, for example those of a removed device. `type` is the "# TYPE" line
 * of the family. */
static bool add_missing(struct text *out, const char *type, const char *now,
                        const char *past)
{
    size_t n = (size_t)(next_line(type) - type);
    bool ok = true;

    while (*past && strncmp(past, type, n) != 0)
        past = next_line(past);
    for (past = next_line(past); *past && *past != '#' && ok;
         past = next_line(past))
        if (!find_sample(now, past))
            ok = text_add(out, past, (size_t)(next_line(past) - past));
    return ok;
}

bool models_add_past(struct text *out, const char *now, const char *past)
{
    const char *type = NULL, *line, *old;
    bool ok = true, total = false;

    for (line = now; *line && ok; line = next_line(line)) {
        old = *line != '#' && total ? find_sample(past, line) : NULL;
        if (strncmp(line, "# HELP ", 7) == 0 && type && total)
            ok = add_missing(out, type, now, past);
        if (is_type(line)) {
            type = line;
            total = !is_gauge(line);
        }
        ok =
            ok && (old ? add_sum(out, line, old)
                       : text_add(out, line, (size_t)(next_line(line) - line)));
    }
    return ok && (!type || !total || add_missing(out, type, now, past));
}

bool models_zero_gauges(struct text *out, const char *now)
{
    bool ok = true, total = false;

    for (const char *line = now; *line && ok; line = next_line(line)) {
        size_t n = (size_t)(next_line(line) - line), key = key_of(line);

        if (is_type(line))
            total = !is_gauge(line);
        ok = *line == '#' || total
                 ? text_add(out, line, n)
                 : text_add(out, line, key) && text_add(out, " 0\n", 3);
    }
    return ok;
}

/* Appends the metrics of service `v` to *out, with the totals of earlier loads,
 * `past`, added. If `v` is NULL, appends only `past`. Returns false if out of
 * memory. */
static bool write_totals(struct service *v, const char *past, struct text *out)
{
    struct text now = {0};
    bool ok = !v || !v->loop || service_metrics(v, &now);

    if (!now.s) /* no service is loaded, so only the text `past` is written */
        ok = ok && text_add(out, past, strlen(past));
    else
        ok = ok && models_add_past(out, now.s, past);
    text_free(&now);
    return ok;
}

char *models_saved_totals(struct service *v, const char *past)
{
    struct text all = {0}, rest = {0};

    if (!write_totals(v, past ? past : "", &all) || !all.s ||
        !models_zero_gauges(&rest, all.s))
        text_free(&rest);
    text_free(&all);
    return rest.s;
}

/* ---- metrics of all models together -------------------------------------- */

/* Writes the metrics of a model to *out. Meanwhile this function counts as a
 * user of the model's service, but not as a recent use, so that reading metrics
 * does not keep the model loaded. The text stays empty if the model was never
 * loaded. Returns false if out of memory. */
static bool write_model(struct model *a, struct text *out)
{
    struct models *m = a->of;
    struct service *v;
    char *past;
    bool ok;

    pthread_mutex_lock(&m->lock);
    v = a->service;
    past = strdup(a->past ? a->past : "");
    if (v)
        models_use(a, 1);
    pthread_mutex_unlock(&m->lock);
    ok = past && write_totals(v, past, out);
    free(past);
    if (v) {
        pthread_mutex_lock(&m->lock);
        models_use(a, -1);
        pthread_mutex_unlock(&m->lock);
    }
    return ok;
}

/* Writes the metrics of the first n_model models to text[] and skips models
 * that have none. Returns how many models have metrics. */
static int write_all(struct models *m, int n_model, struct text *text,
                     struct models_text *part, bool *ok)
{
    int n = 0;

    for (int i = 0; i < n_model && *ok; i++) {
        *ok = write_model(&m->model[i], &text[n]);
        if (!text[n].s)
            continue;
        part[n] = (struct models_text){m->model[i].about.name, text[n].s};
        n++;
    }
    return n;
}

void models_on_metrics(void *user, struct http_request *r)
{
    struct models *m = user;
    struct text *text, out = {0};
    struct models_text *part;
    /* Read only once, because a scan may add models meanwhile. */
    int n_model = m->n;
    char began[32];
    bool ok;
    int n;

    text = calloc((size_t)n_model + 1, sizeof *text);
    part = calloc((size_t)n_model + 1, sizeof *part);
    ok = text && part;
    n = ok ? write_all(m, n_model, text, part, &ok) : 0;
    ok = ok && models_join_metrics(&out, part, n, m->o.any_name);
    snprintf(began, sizeof began, "%" PRId64, m->created);
    http_set_header(r, "Process-Start-Time-Unix", began);
    if (ok)
        http_respond(r, 200, "text/plain; version=0.0.4", out.s ? out.s : "",
                     out.n);
    else
        service_respond(r, NULL);
    for (int i = 0; text && i < n_model; i++)
        text_free(&text[i]);
    text_free(&out);
    free(text);
    free(part);
}
