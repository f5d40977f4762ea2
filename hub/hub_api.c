/* Requests to the API of a hub, such as Hugging Face's; see hub_api.h. */
#include "hub_api.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 32 << 20, MOST_PAGES = 200, MOST_URL = 4096 };

/* ---- requests to the hub's API ------------------------------------------- */

struct text {
    char *s; /* the body of a response, [n]; owned */
    size_t n, cap;
    /* The body of the response is longer than the limit of MOST_TEXT bytes. */
    bool long_one;
};

static bool on_begin(void *user, const struct hub_head *h)
{
    (void)h;
    ((struct text *)user)->n = 0;
    return true;
}

static bool on_data(void *user, const void *data, size_t n)
{
    struct text *t = user;

    t->long_one = n > MOST_TEXT - t->n;
    if (t->long_one)
        return false;
    if (n > t->cap - t->n) {
        size_t cap = 2 * t->cap + n;
        char *s = realloc(t->s, cap);

        if (s == NULL)
            return false;
        t->s = s;
        t->cap = cap;
    }
    memcpy(t->s + t->n, data, n);
    t->n += n;
    return true;
}

/* Returns the URL of the hub as it is shown in messages, without user name,
 * password and trailing slashes. */
static const char *shown_endpoint(const struct hub_options *o,
                                  char buf[HUB_SHOWN])
{
    size_t n;

    hub_shown(buf, o->endpoint != NULL ? o->endpoint : HUB_ENDPOINT);
    for (n = strlen(buf); n > 0 && buf[n - 1] == '/';)
        buf[--n] = '\0';
    return buf;
}

static const char *endpoint(const struct hub_options *o, int *n)
{
    const char *s = o->endpoint != NULL ? o->endpoint : HUB_ENDPOINT;

    *n = (int)strlen(s);
    while (*n > 0 && s[*n - 1] == '/')
        (*n)--;
    return s;
}

pl_status hub_api_error(const struct hub_options *o, int status,
                        const char *name, const char *page, pl_err *err)
{
    char buf[HUB_SHOWN];
    const char *at = shown_endpoint(o, buf);

    if ((status == 401 || status == 403) && page != NULL && o->token == NULL)
        return hub_fail(
            err, PL_NOT_FOUND,
            "%.200s: the hub returned status %d: it does not exist or is "
            "private; if it is gated, accept its licence at %s/%s, and give a "
            "token of %s/settings/tokens with --hf-token or in HF_TOKEN",
            name, status, at, page, at);
    if ((status == 401 || status == 403) && page != NULL)
        return hub_fail(err, PL_NOT_FOUND,
                        "%.200s: the hub returned status %d: the token is "
                        "invalid (%s/settings/tokens) or has no access; if the "
                        "repository is gated, accept its licence at %s/%s",
                        name, status, at, at, page);
    return hub_fail(err, PL_NOT_FOUND, "%.600s: the server returned status %d",
                    name, status);
}

static pl_status no_repository(const struct hub_options *o, const char *repo,
                               pl_err *err)
{
    char buf[HUB_SHOWN];
    const char *at = shown_endpoint(o, buf);

    return hub_fail(err, PL_NOT_FOUND,
                    "%s: no such repository at %s; check its name, USER/REPO",
                    repo, at);
}

/* Requests a URL of the hub, with retries, and appends the body of the response
 * to *t. Any status but 200 is an error. Sets *unreachable if no try got a
 * usable response. */
static pl_status ask(const struct hub_options *o, const char *repo,
                     const char *url, struct text *t, struct hub_head *h,
                     bool *unreachable, pl_err *err)
{
    const struct hub_transfer g = {.url = url,
                                   .token = o->token,
                                   .timeout_s =
                                       o->timeout_s > 0 ? o->timeout_s : 60,
                                   .stop = o->stop,
                                   .begin = on_begin,
                                   .data = on_data,
                                   .user = t};
    struct hub_retry_state tries = hub_retry_state(o);
    char why[HUB_WHY], said[HUB_WHY + 300];
    bool no_route;

    for (;;) {
        enum hub_end end = hub_get(&g, h, why);

        if (end == HUB_STOPPED)
            return hub_cancelled(err);
        if (end == HUB_ENDED && !t->long_one)
            return hub_no_memory(err);
        if (end == HUB_ENDED)
            return hub_fail(err, PL_BAD_FILE,
                            "%.400s: the response has more than %d MiB", url,
                            MOST_TEXT >> 20);
        if (end == HUB_WHOLE && h->status == 200)
            return PL_OK;
        if (end == HUB_WHOLE && h->status == 404)
            return no_repository(o, repo, err);
        if (end == HUB_WHOLE && !hub_status_is_transient(h->status))
            return hub_api_error(o, h->status, repo, repo, err);
        if (end == HUB_WHOLE)
            snprintf(why, sizeof why, "the hub returned status %d", h->status);
        snprintf(said, sizeof said, "%.250s: %s", repo, why);
        *unreachable = true;
        no_route = end == HUB_NO_ROUTE;
        if (no_route && tries.left > HUB_NO_ROUTE_TRIES)
            tries.left = HUB_NO_ROUTE_TRIES;
        if (end == HUB_FAILED || !hub_retry(o, &tries, h->retry_after_s, said))
            break;
        *unreachable = false;
    }
    if (hub_is_cancelled(o)) {
        *unreachable = false;
        return hub_cancelled(err);
    }
    return hub_fail(err, PL_IO, "%s%s", said,
                    no_route ? HUB_NO_ROUTE_REMEDY : "");
}

/* ---- reading revisions and file lists ------------------------------------ */

static bool is_revision(const char *s)
{
    size_t n = s != NULL ? strlen(s) : 0;

    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)s[i]))
            return false;
    return n >= 7 && n < HUB_REVISION;
}

static pl_status read_revision(char revision[HUB_REVISION],
                               const struct text *t, const char *repo,
                               pl_err *err)
{
    json_t *j = json_loadb(t->s != NULL ? t->s : "", t->n, 0, NULL);
    const char *sha = json_string_value(json_object_get(j, "sha"));
    bool ok = is_revision(sha);

    if (ok)
        strcpy(revision, sha);
    json_decref(j);
    return ok ? PL_OK
              : hub_fail(err, PL_BAD_FILE,
                         "%s: the hub's response has no revision", repo);
}

/* Replaces `url` by the URL of the next part of the file list, from the
 * response head `h`. That URL must be on the same server, because the access
 * token is sent to it. */
static pl_status next_page(char url[MOST_URL], const struct hub_head *h,
                           const char *repo, pl_err *err)
{
    size_t n = hub_origin(url);
    char buf[HUB_SHOWN];

    if (strncmp(h->next, url, n) != 0 || hub_origin(h->next) != n)
        return hub_fail(err, PL_BAD_FILE,
                        "%s: the hub's listing continues at %.300s, which is "
                        "another server",
                        repo, hub_shown(buf, h->next));
    snprintf(url, MOST_URL, "%s", h->next);
    return PL_OK;
}

static pl_status read_pages(const struct hub_options *o, const char *repo,
                            const char *revision, struct hub_listing *l,
                            struct text *t, bool *unreachable, pl_err *err)
{
    struct hub_head h;
    char url[MOST_URL];
    pl_status s = PL_OK;
    int n;
    const char *at = endpoint(o, &n);

    snprintf(url, sizeof url, "%.*s/api/models/%s/tree/%s?recursive=true", n,
             at, repo, revision);
    for (int i = 0; s == PL_OK; i++) {
        s = ask(o, repo, url, t, &h, unreachable, err);
        if (s == PL_OK)
            s = hub_listing_read(l, t->s != NULL ? t->s : "", t->n, err);
        if (s != PL_OK || h.next[0] == '\0')
            break;
        if (i == MOST_PAGES)
            return hub_fail(err, PL_BAD_FILE,
                            "%s: the hub's listing has more than %d pages",
                            repo, MOST_PAGES);
        s = next_page(url, &h, repo, err);
    }
    return s;
}

pl_status hub_api_list(const struct hub_options *o, const char *repo,
                       char revision[HUB_REVISION], struct hub_listing *l,
                       bool *unreachable, pl_err *err)
{
    struct text t = {0};
    struct hub_head h;
    char url[MOST_URL];
    pl_status s;
    int n;
    const char *at = endpoint(o, &n);

    *unreachable = false;
    snprintf(url, sizeof url, "%.*s/api/models/%s/revision/main", n, at, repo);
    s = ask(o, repo, url, &t, &h, unreachable, err);
    if (s == PL_OK)
        s = read_revision(revision, &t, repo, err);
    if (s == PL_OK)
        s = read_pages(o, repo, revision, l, &t, unreachable, err);
    free(t.s);
    return s;
}

char *hub_api_file(const struct hub_options *o, const char *repo,
                   const char *revision, const char *path)
{
    static const char kept[] = "-._~/";
    char *url, *to;
    size_t begin;
    int n;
    const char *at = endpoint(o, &n);

    begin = (size_t)n + strlen(repo) + strlen(revision) + 11;
    url = malloc(begin + 3 * strlen(path) + 1);
    if (url == NULL)
        return NULL;
    to = url + sprintf(url, "%.*s/%s/resolve/%s/", n, at, repo, revision);
    for (; *path != '\0'; path++) {
        unsigned char c = (unsigned char)*path;

        if (c < 0x80 && (isalnum(c) || strchr(kept, c) != NULL))
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    *to = '\0';
    return url;
}
