/* Downloads a model of a repository into the cache folder: queries the latest
 * revision of the repository and the list of its files, and downloads the
 * model's files that the cache does not contain. */
#include "hub_api.h"
#include "hub_cache.h"
#include "hub_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

/* ---- error and log messages ---------------------------------------------- */

/* Returns the length of the scheme of a URL, such as "https://"; 0 if it has
 * none. */
static size_t scheme_of(const char *url)
{
    size_t n = strcspn(url, ":/?#@");

    return strncmp(url + n, "://", 3) == 0 ? n + 3 : 0;
}

size_t hub_host(const char *url)
{
    size_t scheme = scheme_of(url), n = strcspn(url + scheme, "/?#");

    while (n > 0 && url[scheme + n - 1] != '@')
        n--;
    return scheme + n;
}

const char *hub_shown(char buf[HUB_SHOWN], const char *url)
{
    size_t scheme = scheme_of(url), host = hub_host(url);
    size_t n = strcspn(url + host, "?#");

    snprintf(buf, HUB_SHOWN, "%.*s%s%.*s%s", (int)(scheme < 16 ? scheme : 16),
             url, host > scheme ? "...@" : "", (int)(n < 280 ? n : 280),
             url + host, url[host + n] != '\0' ? "?..." : "");
    return buf;
}

pl_status hub_fail(pl_err *err, pl_status s, const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return s;
    err->status = s;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return s;
}

char *hub_asprintf(const char *fmt, ...)
{
    va_list ap;
    char *s;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    s = n >= 0 ? malloc((size_t)n + 1) : NULL;
    va_start(ap, fmt);
    if (s != NULL)
        vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

pl_status hub_no_memory(pl_err *err)
{
    return hub_fail(err, PL_NO_MEMORY, "no memory for a download");
}

pl_status hub_cancelled(pl_err *err)
{
    return hub_fail(err, PL_CANCELLED, "the download was cancelled");
}

void hub_log(const struct hub_options *o, pl_log_level level, const char *fmt,
             ...)
{
    char text[1400];
    va_list ap;

    if (o->log == NULL)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    o->log(o->log_user, level, text);
}

const char *hub_bytes(char buf[HUB_BYTES], uint64_t n)
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB", "PB"};
    double v = (double)n;
    int unit = 0;

    for (; v >= 999.5 && unit < 5; unit++)
        v /= 1000;
    snprintf(buf, HUB_BYTES, "%.*f %s", unit == 0 || v >= 99.95 ? 0 : 1, v,
             units[unit]);
    return buf;
}

/* ---- pausing and retrying ------------------------------------------------ */

bool hub_is_cancelled(const struct hub_options *o)
{
    return o->stop != NULL && __atomic_load_n(o->stop, __ATOMIC_RELAXED) != 0;
}

bool hub_sleep(const struct hub_options *o, int ms)
{
    for (; ms > 0 && !hub_is_cancelled(o); ms -= 20) {
        int part = ms < 20 ? ms : 20;
        const struct timespec t = {0, part * 1000000L};

        nanosleep(&t, NULL);
    }
    return !hub_is_cancelled(o);
}

struct hub_retry_state hub_retry_state(const struct hub_options *o)
{
    return (struct hub_retry_state){.left = o->n_try > 0 ? o->n_try : 6,
                                    .pause_ms =
                                        o->pause_ms > 0 ? o->pause_ms : 1000};
}

bool hub_retry(const struct hub_options *o, struct hub_retry_state *t,
               int least_s, const char *why)
{
    enum { MOST_MS = 30000, MOST_S = 60 };
    int ms = t->pause_ms;

    if (--t->left <= 0 || hub_is_cancelled(o))
        return false;
    least_s = least_s < MOST_S ? least_s : MOST_S;
    ms = ms < 1000 * least_s ? 1000 * least_s : ms;
    hub_log(o, PL_LOG_WARN, "%s; trying again in %.3g s", why, ms / 1e3);
    t->pause_ms = 2 * t->pause_ms < MOST_MS ? 2 * t->pause_ms : MOST_MS;
    return hub_sleep(o, ms);
}

/* ---- checking model names and options ------------------------------------ */

/* Returns true if s[0 ... n - 1] is a valid user name or repository name of a
 * hub. */
static bool is_name(const char *s, size_t n)
{
    if (n == 0 || n > 96 || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= 'a' && s[i] <= 'z') || strchr("-._", s[i]) != NULL))
            return false;
    return true;
}

bool hub_is_quant(const char *s)
{
    size_t n = strlen(s);

    return n <= 64 && is_name(s, n);
}

/* Splits the model name USER/REPO[:QUANT]. Sets *repo to USER/REPO, malloc'ed.
 * Sets *quant to the part of `name` after the colon, or to NULL if there is
 * none. */
static pl_status take_name(char **repo, const char **quant, const char *name,
                           pl_err *err)
{
    size_t n = strcspn(name, ":"), user = strcspn(name, "/");

    *quant = name[n] == ':' ? name + n + 1 : NULL;
    if (user >= n || !is_name(name, user) ||
        !is_name(name + user + 1, n - user - 1) ||
        (*quant != NULL && !hub_is_quant(*quant)))
        return hub_fail(err, PL_BAD_ARGUMENT,
                        "\"%.200s\" is not the name of a hub model; give "
                        "USER/REPO[:QUANT], like ggml-org/gemma-3-4b-it-GGUF "
                        "or ggml-org/gemma-3-4b-it-GGUF:Q8_0",
                        name);
    if (*quant != NULL && strcmp(*quant, "latest") == 0)
        *quant = NULL;
    *repo = strndup(name, n);
    return *repo != NULL ? PL_OK : hub_no_memory(err);
}

static pl_status check_options(const struct hub_options *o, const char *file,
                               pl_err *err)
{
    const char *endpoint = o->endpoint != NULL ? o->endpoint : HUB_ENDPOINT;

    char buf[HUB_SHOWN];

    if (hub_origin(endpoint) == 0)
        return hub_fail(err, PL_BAD_ARGUMENT,
                        "invalid hub address \"%.200s\"; set HF_ENDPOINT to "
                        "one like %s, or unset it",
                        hub_shown(buf, endpoint), HUB_ENDPOINT);
    for (const char *s = o->token; s != NULL && *s != '\0'; s++)
        if (*s <= ' ' || *s > '~')
            return hub_fail(err, PL_BAD_ARGUMENT,
                            "the hub's token has an invalid character; give it "
                            "as %s/settings/tokens shows it",
                            HUB_ENDPOINT);
    if (file != NULL && !hub_path_is_safe(file))
        return hub_fail(err, PL_BAD_ARGUMENT,
                        "\"%.200s\" is not a file path in a repository; give "
                        "one like NAME.gguf or FOLDER/NAME.gguf",
                        file);
    return PL_OK;
}

/* ---- downloading the files of a model ------------------------------------ */

/* Checks that the disk has space for the bytes that are still to be downloaded
 * of all files in `p`. Returns FULL if it has not. */
static pl_status check_room(const struct hub_cache *c, const char *revision,
                            const struct hub_pick *p, pl_err *err)
{
    char need[HUB_BYTES], free_bytes[HUB_BYTES];
    uint64_t missing = 0, room;
    struct statvfs v;

    for (int i = 0; i < p->n; i++) {
        uint64_t left = hub_cache_missing(c, revision, p->file[i]);

        if (left > UINT64_MAX - missing)
            missing = UINT64_MAX;
        else
            missing += left;
    }
    if (statvfs(c->folder, &v) != 0)
        /* The free space is unknown; if it is too small, writing will fail. */
        return PL_OK;
    room = (uint64_t)v.f_bavail * (uint64_t)v.f_frsize;
    if (missing <= room)
        return PL_OK;
    return hub_fail(
        err, PL_FULL,
        "%s, of which %s are left to download, does not fit into %s, where %s "
        "are free; free space, or set PLAIT_CACHE to another directory",
        p->file[0]->path, hub_bytes(need, missing), c->folder,
        hub_bytes(free_bytes, room));
}

static pl_status download(const struct hub_options *o,
                          const struct hub_cache *c, const char *revision,
                          const struct hub_file *f, pl_err *err)
{
    char *path = hub_cache_path(c, revision, f->path);
    char *url = hub_api_file(o, c->repo, revision, f->path);
    const struct hub_download d = {.url = url,
                                   .token = o->token,
                                   .name = f->path,
                                   .page = c->repo,
                                   .path = path,
                                   .sha256 = f->sha256,
                                   .has_size = true,
                                   .size = f->size};
    pl_status s = path != NULL && url != NULL ? PL_OK : hub_no_memory(err);

    if (s == PL_OK)
        s = hub_cache_folders(path, err);
    if (s == PL_OK)
        s = hub_download(o, &d, err);
    free(path);
    free(url);
    return s;
}

/* Downloads those files of a model that the cache does not contain. Locks the
 * cache folder before it looks for files, so that files which another process
 * is downloading are found once they are complete. */
static pl_status download_files(const struct hub_options *o,
                                struct hub_cache *c, const char *revision,
                                const struct hub_listing *l,
                                const struct hub_pick *p, pl_err *err)
{
    pl_status s = PL_OK;

    if (hub_cache_is_complete(c, revision, p))
        return PL_OK;
    s = hub_cache_lock(c, o, err);
    if (s == PL_OK)
        s = hub_cache_save_listing(c, revision, l, err);
    for (int i = 0; i < p->n && s == PL_OK; i++)
        hub_cache_link_same(c, revision, p->file[i]);
    if (s == PL_OK)
        s = check_room(c, revision, p, err);
    for (int i = 0; i < p->n && s == PL_OK; i++)
        if (!hub_cache_has(c, revision, p->file[i]))
            s = download(o, c, revision, p->file[i], err);
    hub_cache_unlock(c);
    return s;
}

static pl_status from_hub(char **path, const struct hub_options *o,
                          struct hub_cache *c, const char *quant,
                          const char *file, bool *unreachable, pl_err *err)
{
    /* If the model is cached, the cached files are used if the hub is
     * unreachable. So in this case the hub is tried only once. */
    bool has = hub_cache_find(path, c, quant, file) == PL_OK;
    struct hub_options once = *o;
    struct hub_listing l = {0};
    struct hub_pick p = {0};
    char revision[HUB_REVISION];
    pl_status s;

    free(*path);
    *path = NULL;
    if (has)
        once.n_try = 1;
    s = hub_api_list(&once, c->repo, revision, &l, unreachable, err);
    if (s == PL_OK)
        s = hub_pick(&p, &l, c->repo, quant, file, err);
    if (s == PL_OK)
        s = download_files(o, c, revision, &l, &p, err);
    if (s == PL_OK) {
        *path = hub_cache_path(c, revision, p.file[0]->path);
        s = *path != NULL ? PL_OK : hub_no_memory(err);
    }
    hub_pick_fini(&p);
    hub_listing_fini(&l);
    return s;
}

static pl_status from_cache(char **path, const struct hub_cache *c,
                            const char *quant, const char *file, pl_err *err)
{
    pl_status s = hub_cache_find(path, c, quant, file);

    if (s == PL_NO_MEMORY)
        return hub_no_memory(err);
    if (s != PL_OK)
        return hub_fail(
            err, s, "%s%s%s is not in %s; leave out --offline to download it",
            c->repo, file != NULL || quant != NULL ? ": " : "",
            file != NULL    ? file
            : quant != NULL ? quant
                            : "",
            c->folder);
    return PL_OK;
}

pl_status hub_fetch(char **path, const struct hub_options *o, const char *name,
                    const char *file, pl_err *err)
{
    struct hub_cache c = {.lock = -1};
    char *repo = NULL;
    const char *quant;
    bool unreachable = false;
    pl_status s;

    *path = NULL;
    s = check_options(o, file, err);
    if (s == PL_OK)
        s = take_name(&repo, &quant, name, err);
    if (s == PL_OK)
        s = hub_cache_open(&c, o, repo, err);
    if (s == PL_OK && o->offline) {
        s = from_cache(path, &c, quant, file, err);
    } else if (s == PL_OK) {
        s = from_hub(path, o, &c, quant, file, &unreachable, err);
        if (unreachable && hub_cache_find(path, &c, quant, file) == PL_OK) {
            hub_log(o, PL_LOG_WARN, "%s; using the cached file: %s",
                    err != NULL ? err->message : "the hub is unreachable",
                    *path);
            s = PL_OK;
        }
    }
    hub_cache_close(&c);
    free(repo);
    return s;
}
