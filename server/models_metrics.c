/* What all models have done, in one text for Prometheus: the texts of each,
 * with a label that names it, joined family by family, as the format wants. */
#include "models_inner.h"

#include <stdlib.h>
#include <string.h>

/* A label's value, with what would end it escaped. */
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

/* A sample, "NAME VALUE" or "NAME{LABELS} VALUE", of a model. */
static bool add_sample(struct text *out, const char *line, size_t n,
                       const char *model)
{
    size_t end = strcspn(line, "{ ");
    bool has = line[end] == '{', ok;

    ok = text_add(out, line, end) && text_add(out, "{", 1) &&
         add_label(out, model);
    if (has)
        return ok && text_add(out, ",", 1) &&
               text_add(out, line + end + 1, n - end - 1);
    return ok && text_add(out, "}", 1) && text_add(out, line + end, n - end);
}

/* Adds the family that *at begins with, without the lines about it if `bare`,
 * and moves *at behind it. */
static bool add_family(struct text *out, const char **at, const char *model,
                       bool bare)
{
    bool begun = false, ok = true;

    while (**at && ok) {
        size_t n = strcspn(*at, "\n");

        n += (*at)[n] == '\n';
        if (strncmp(*at, "# HELP ", 7) == 0 && begun)
            break;
        begun = true;
        if (**at != '#')
            ok = add_sample(out, *at, n, model);
        else if (!bare)
            ok = text_add(out, *at, n);
        *at += n;
    }
    return ok;
}

bool models_join_metrics(struct text *out, const struct models_text *part,
                         int n)
{
    const char **at = calloc((size_t)n + 1, sizeof *at);
    bool ok = at != NULL, more = n > 0;

    for (int i = 0; i < n && ok; i++)
        at[i] = part[i].text;
    while (ok && more) {
        more = false;
        for (int i = 0; i < n && ok; i++) {
            ok = add_family(out, &at[i], part[i].model, i > 0);
            more |= *at[i] != '\0';
        }
    }
    free(at);
    return ok;
}

/* The text of each loaded model, whose users we are meanwhile: without being
 * counted as a use of late, or who reads figures would keep it awake. */
static int write_all(struct models *m, struct text *text,
                     struct models_text *part, bool *ok)
{
    int n = 0;

    for (int i = 0; i < m->n && *ok; i++) {
        struct model *a = &m->model[i];
        struct service *v;

        pthread_mutex_lock(&m->lock);
        v = a->service;
        if (v)
            models_use(a, 1);
        pthread_mutex_unlock(&m->lock);
        if (!v)
            continue;
        *ok = !v->loop || service_metrics(v, &text[n]);
        *ok = *ok && text_add(&text[n], "", 1); /* terminated */
        part[n] = (struct models_text){a->about.name, text[n].s};
        n++;
        pthread_mutex_lock(&m->lock);
        models_use(a, -1);
        pthread_mutex_unlock(&m->lock);
    }
    return n;
}

void models_on_metrics(void *user, struct http_request *r)
{
    struct models *m = user;
    struct text *text, out = {0};
    struct models_text *part;
    bool ok;
    int n;

    if (m->o.any_name) {
        models_on_request(m, r);
        return;
    }
    text = calloc((size_t)m->n + 1, sizeof *text);
    part = calloc((size_t)m->n + 1, sizeof *part);
    ok = text && part;
    n = ok ? write_all(m, text, part, &ok) : 0;
    ok = ok && models_join_metrics(&out, part, n);
    if (ok)
        http_answer(r, 200, "text/plain; version=0.0.4", out.s ? out.s : "",
                    out.n);
    else
        service_answer(r, NULL);
    for (int i = 0; text && i < m->n; i++)
        text_free(&text[i]);
    text_free(&out);
    free(text);
    free(part);
}
