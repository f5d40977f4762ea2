/* Downloads a GGUF file from any URL. Each URL has a folder in the cache. For a
 * split model the folder contains all files of the model, whose URLs differ
 * only in a number. Before a cached file is used, a request with its ETag asks
 * the server for a newer version. If the server is unreachable, the cached file
 * is used. */
#include "hub_files.h"
#include "hub_listing.h"
#include "hub_sha256.h"
#include "hub_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct address {
    const char *url;
    /* Offset and length of the file name in `url`, in bytes. */
    size_t name, n_name;
    char *folder; /* path of the model's folder in the cache; owned */
    int n;        /* number of files of the model; 1 if it is not split */
    /* For a split model: offset of the file's number in its file name, in
     * bytes. */
    size_t number;
};

static pl_status read_address(struct address *a, const char *url, pl_err *err)
{
    size_t origin = hub_origin(url), end = strcspn(url, "?#");
    char *name, buf[HUB_SHOWN];
    int index = 1;
    bool ok;

    *a = (struct address){.url = url, .name = end, .n = 1};
    while (a->name > origin && url[a->name - 1] != '/')
        a->name--;
    a->n_name = end - a->name;
    name = strndup(url + a->name, a->n_name);
    if (name == NULL)
        return hub_no_memory(err);
    ok = origin > 0 && a->name > origin && a->n_name > 5 &&
         strcasecmp(name + a->n_name - 5, ".gguf") == 0 &&
         hub_path_is_safe(name) && strlen(url) < 4096;
    if (ok && !hub_split_name(name, &a->number, &index, &a->n))
        a->n = 1;
    free(name);
    if (!ok)
        return hub_fail(err, PL_BAD_ARGUMENT,
                        "\"%.300s\" is not the address of a GGUF file; give "
                        "one like https://HOST/FOLDER/NAME.gguf",
                        hub_shown(buf, url));
    if (index != 1)
        return hub_fail(err, PL_BAD_ARGUMENT,
                        "%.300s is file %d of %d; give the address of the "
                        "first",
                        hub_shown(buf, url), index, a->n);
    return PL_OK;
}

static pl_status make_folder(struct address *a, const struct hub_options *o,
                             pl_err *err)
{
    char sum[HUB_SHA256], *below;
    struct hub_sha256 h;
    pl_status s;

    if (!hub_sha256_init(&h))
        return hub_no_memory(err);
    hub_sha256_add(&h, a->url, strlen(a->url));
    hub_sha256_end(&h, sum);
    hub_sha256_fini(&h);
    a->folder = hub_asprintf("%s/url/%.16s", o->cache, sum);
    below = a->folder != NULL ? hub_asprintf("%s/lock", a->folder) : NULL;
    if (below == NULL)
        return hub_no_memory(err);
    s = o->offline ? PL_OK : hub_cache_folders(below, err);
    free(below);
    return s;
}

/* Sets *url and *path to the URL and the cache path of file i of the model,
 * counted from 0. Both are malloc'ed. Returns false if out of memory. */
static bool names(const struct address *a, int i, char **url, char **path)
{
    *path = NULL;
    *url = a->n > 1 ? hub_split_other(a->url, a->name + a->number, i + 1)
                    : strdup(a->url);
    if (*url != NULL)
        *path =
            hub_asprintf("%s/%.*s", a->folder, (int)a->n_name, *url + a->name);
    return *url != NULL && *path != NULL;
}

static pl_status fetch(const struct hub_options *o, const char *url,
                       const char *path, pl_err *err)
{
    const char *slash = strrchr(path, '/');
    const struct hub_download d = {.url = url,
                                   .name = slash + 1,
                                   .path = path,
                                   .sha256 = "",
                                   .keep_etag = true};
    bool has = access(path, F_OK) == 0;
    struct hub_options once = *o;
    char buf[HUB_SHOWN];
    pl_status s;

    if (o->offline)
        return has ? PL_OK
                   : hub_fail(err, PL_NOT_FOUND,
                              "%.400s is not in the cache; leave out --offline "
                              "to download it",
                              hub_shown(buf, url));
    if (has)
        once.n_try = 1;
    s = hub_download(&once, &d, err);
    if (s != PL_IO || !has)
        return s;
    hub_log(o, PL_LOG_WARN, "%s; using the cached file: %s",
            err != NULL ? err->message : slash + 1, path);
    return PL_OK;
}

pl_status hub_fetch_url(char **path, const struct hub_options *o,
                        const char *url, pl_err *err)
{
    struct address a = {0};
    int lock = -1;
    pl_status s = read_address(&a, url, err);

    *path = NULL;
    if (s == PL_OK)
        s = make_folder(&a, o, err);
    if (s == PL_OK && !o->offline)
        s = hub_lock_folder(&lock, o, a.folder, err);
    for (int i = 0; i < a.n && s == PL_OK; i++) {
        char *from, *to;

        s = names(&a, i, &from, &to) ? fetch(o, from, to, err)
                                     : hub_no_memory(err);
        free(from);
        if (i == 0 && s == PL_OK)
            *path = to;
        else
            free(to);
    }
    hub_unlock_folder(&lock);
    free(a.folder);
    if (s != PL_OK) {
        free(*path);
        *path = NULL;
    }
    return s;
}
