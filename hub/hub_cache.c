/* The folder of a repository in the cache; see hub_cache.h. A file of a
 * revision does not change once it is complete, so readers need no lock. */
#include "hub_cache.h"

#include "hub_api.h"
#include "hub_files.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LISTING = 32 << 20, MOST_REVISIONS = 256 };

/* ---- the cache folder and its files -------------------------------------- */

pl_status hub_cache_open(struct hub_cache *c, const struct hub_options *o,
                         const char *repo, pl_err *err)
{
    const char *endpoint = o->endpoint != NULL ? o->endpoint : HUB_ENDPOINT;
    char *host = strdup(endpoint + hub_host(endpoint));

    c->repo = repo;
    if (host == NULL)
        return hub_no_memory(err);
    for (size_t i = strlen(host); i > 0 && host[i - 1] == '/'; i--)
        host[i - 1] = '\0';
    for (char *s = host; *s != '\0'; s++)
        if (!((*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') ||
              (*s >= 'A' && *s <= 'Z') || strchr("-:", *s) != NULL ||
              (*s == '.' && s > host)))
            *s = '_';
    c->folder = hub_asprintf("%s/hub/%s/%s", o->cache, host, repo);
    free(host);
    return c->folder != NULL ? PL_OK : hub_no_memory(err);
}

void hub_cache_close(struct hub_cache *c)
{
    hub_cache_unlock(c);
    free(c->folder);
    c->folder = NULL;
}

pl_status hub_cache_lock(struct hub_cache *c, const struct hub_options *o,
                         pl_err *err)
{
    char *below = hub_cache_path(c, "lock", "");
    pl_status s =
        below != NULL ? hub_cache_folders(below, err) : hub_no_memory(err);

    free(below);
    return s == PL_OK ? hub_lock_folder(&c->lock, o, c->folder, err) : s;
}

void hub_cache_unlock(struct hub_cache *c)
{
    hub_unlock_folder(&c->lock);
}

char *hub_cache_path(const struct hub_cache *c, const char *revision,
                     const char *path)
{
    return hub_asprintf("%s/%s%s%s", c->folder, revision,
                        path[0] != '\0' ? "/" : "", path);
}

static bool is_whole(const char *path, uint64_t size)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == size;
}

bool hub_cache_has(const struct hub_cache *c, const char *revision,
                   const struct hub_file *f)
{
    char *path = hub_cache_path(c, revision, f->path);
    bool has = path != NULL && is_whole(path, f->size);

    free(path);
    return has;
}

static char *part_of(const struct hub_cache *c, const char *revision,
                     const char *path, const char *ending)
{
    char *whole = hub_cache_path(c, revision, path);
    char *s = whole != NULL ? hub_asprintf("%s%s", whole, ending) : NULL;

    free(whole);
    return s;
}

uint64_t hub_cache_missing(const struct hub_cache *c, const char *revision,
                           const struct hub_file *f)
{
    char *part = part_of(c, revision, f->path, ".part");
    uint64_t left = hub_cache_has(c, revision, f) ? 0 : f->size;
    struct stat st;

    if (left > 0 && part != NULL && stat(part, &st) == 0)
        left -= (uint64_t)st.st_size < left ? (uint64_t)st.st_size : left;
    free(part);
    return left;
}

/* ---- the cached revisions ------------------------------------------------ */

struct known {
    char revision[HUB_REVISION];
    /* Modification time of the revision's file list; the newest revision has
     * the latest time. */
    struct timespec kept;
};

static int by_time(const void *a, const void *b)
{
    const struct timespec *x = &((const struct known *)a)->kept;
    const struct timespec *y = &((const struct known *)b)->kept;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec > y->tv_sec ? -1 : 1;
    return x->tv_nsec > y->tv_nsec ? -1 : x->tv_nsec < y->tv_nsec;
}

/* Finds the cached revisions of a repository that have a file list, and sorts
 * them, the newest first. Returns their number. */
static int find_revisions(const struct hub_cache *c,
                          struct known known[MOST_REVISIONS])
{
    DIR *d = opendir(c->folder);
    struct dirent *e;
    struct stat st;
    int n = 0;

    while (d != NULL && (e = readdir(d)) != NULL && n < MOST_REVISIONS) {
        size_t len = strspn(e->d_name, "0123456789abcdefABCDEF");

        if (len == 0 || len >= HUB_REVISION ||
            strcmp(e->d_name + len, ".json") != 0 ||
            fstatat(dirfd(d), e->d_name, &st, 0) != 0)
            continue;
        memcpy(known[n].revision, e->d_name, len);
        known[n].revision[len] = '\0';
        known[n++].kept = st.st_mtim;
    }
    if (d != NULL)
        closedir(d);
    qsort(known, (size_t)n, sizeof *known, by_time);
    return n;
}

/* Reads the cached file list of a revision. NOT_FOUND: the list does not exist
 * or is damaged. Other errors: NO_MEMORY. */
static pl_status read_cached_listing(struct hub_listing *l,
                                     const struct hub_cache *c,
                                     const char *revision)
{
    char *path = part_of(c, revision, "", ".json"), *text = NULL;
    pl_status s = PL_NO_MEMORY;
    size_t n;

    *l = (struct hub_listing){0};
    if (path != NULL)
        s = hub_read_file(path, MOST_LISTING, &text, &n);
    if (s == PL_OK)
        s = hub_listing_read(l, text, n, NULL);
    free(path);
    free(text);
    return s == PL_BAD_FILE ? PL_NOT_FOUND : s;
}

bool hub_cache_is_complete(const struct hub_cache *c, const char *revision,
                           const struct hub_pick *p)
{
    struct hub_listing l;
    bool ok = read_cached_listing(&l, c, revision) == PL_OK;
    char *path = part_of(c, revision, "", ".json");

    for (int i = 0; i < p->n && ok; i++)
        ok = hub_cache_has(c, revision, p->file[i]);
    if (ok && path != NULL)
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    free(path);
    hub_listing_fini(&l);
    return ok;
}

pl_status hub_cache_save_listing(struct hub_cache *c, const char *revision,
                                 const struct hub_listing *l, pl_err *err)
{
    char *path = part_of(c, revision, "", ".json");
    char *text = hub_listing_write(l);
    pl_status s = path != NULL && text != NULL ? hub_write_file(path, text, err)
                                               : hub_no_memory(err);

    free(path);
    free(text);
    return s;
}

/* Makes the cached file `from` of one revision available as file `to` of
 * another revision: by a hard link if `keep`, else by moving it. Creates the
 * folders. `ending`, such as ".part", is appended to both paths. Returns false
 * on failure. */
static bool take(const struct hub_cache *c, const char *from_revision,
                 const char *from, const char *revision, const char *to,
                 const char *ending, bool keep)
{
    char *a = part_of(c, from_revision, from, ending);
    char *b = part_of(c, revision, to, ending);
    bool ok = a != NULL && b != NULL && access(a, F_OK) == 0 &&
              hub_cache_folders(b, NULL) == PL_OK &&
              (keep ? link(a, b) : rename(a, b)) == 0;

    free(a);
    free(b);
    return ok;
}

static bool adopt_from(const struct hub_cache *c, const char *from,
                       const struct hub_file *old, const char *revision,
                       const struct hub_file *f)
{
    if (hub_cache_has(c, from, old))
        return take(c, from, old->path, revision, f->path, "", true);
    if (!take(c, from, old->path, revision, f->path, ".part", false))
        return false;
    take(c, from, old->path, revision, f->path, ".part.etag", false);
    return true;
}

void hub_cache_link_same(const struct hub_cache *c, const char *revision,
                         const struct hub_file *f)
{
    struct known *known = malloc(MOST_REVISIONS * sizeof *known);
    int n = known != NULL ? find_revisions(c, known) : 0;
    bool done = f->sha256[0] == '\0' || hub_cache_has(c, revision, f) ||
                hub_cache_missing(c, revision, f) < f->size;

    for (int i = 0; i < n && !done; i++) {
        struct hub_listing l = {0};
        bool ok = strcmp(known[i].revision, revision) != 0 &&
                  read_cached_listing(&l, c, known[i].revision) == PL_OK;

        for (int k = 0; ok && k < l.n && !done; k++)
            if (l.file[k].size == f->size &&
                strcmp(l.file[k].sha256, f->sha256) == 0)
                done =
                    adopt_from(c, known[i].revision, &l.file[k], revision, f);
        hub_listing_fini(&l);
    }
    free(known);
}

/* ---- finding a cached model ---------------------------------------------- */

/* Finds a model in the listing of one revision, if all files of the model are
 * cached; see hub_cache_find. *path is NULL before the call. */
static pl_status find_listed(char **path, const struct hub_cache *c,
                             const char *revision, const struct hub_listing *l,
                             const char *quant, const char *file)
{
    struct hub_pick p = {0};
    pl_status s = hub_pick(&p, l, c->repo, quant, file, NULL);

    for (int i = p.n - 1; i >= 0 && s == PL_OK; i--) {
        free(*path);
        *path = hub_cache_path(c, revision, p.file[i]->path);
        if (*path == NULL)
            s = PL_NO_MEMORY;
        else if (!is_whole(*path, p.file[i]->size))
            s = PL_NOT_FOUND;
    }
    if (s != PL_OK) {
        free(*path);
        *path = NULL;
    }
    hub_pick_fini(&p);
    return s;
}

static pl_status find_in(char **path, const struct hub_cache *c,
                         const char *revision, const char *quant,
                         const char *file)
{
    struct hub_listing l;
    pl_status s = read_cached_listing(&l, c, revision);

    if (s == PL_OK)
        s = find_listed(path, c, revision, &l, quant, file);
    hub_listing_fini(&l);
    return s;
}

pl_status hub_cache_find(char **path, const struct hub_cache *c,
                         const char *quant, const char *file)
{
    struct known *known = malloc(MOST_REVISIONS * sizeof *known);
    int n = known != NULL ? find_revisions(c, known) : 0;
    pl_status s = known != NULL ? PL_NOT_FOUND : PL_NO_MEMORY;

    *path = NULL;
    for (int i = 0; i < n && s == PL_NOT_FOUND; i++)
        s = find_in(path, c, known[i].revision, quant, file);
    free(known);
    return s;
}

/* ---- all cached models --------------------------------------------------- */

/* Sets *is to true if the name USER/REPO:TAG chooses file `f` of the list. */
static pl_status chooses(bool *is, const struct hub_listing *l,
                         const struct hub_file *f, const char *repo,
                         const char *tag)
{
    struct hub_pick p = {0};
    pl_status s = hub_is_quant(tag) ? hub_pick(&p, l, repo, tag, NULL, NULL)
                                    : PL_NOT_FOUND;

    *is = s == PL_OK && p.file[0] == f;
    hub_pick_fini(&p);
    return s == PL_NOT_FOUND ? PL_OK : s;
}

/* Sets *name to the name of a model, USER/REPO:TAG, malloc'ed. TAG is the
 * quantization, in upper case as llama.cpp writes it, or else the file's name
 * without its ending, if hub_fetch() chooses the file by it; otherwise the
 * file's path. */
static pl_status name_model(char **name, const char *repo,
                            const struct hub_listing *l,
                            const struct hub_file *f)
{
    size_t n;
    const char *quant = hub_quant(f->path, &n), *end = quant + n;
    const char *slash = strrchr(f->path, '/');
    const char *from[] = {quant, slash != NULL ? slash + 1 : f->path, f->path};
    pl_status s = PL_OK;
    bool is = false;

    *name = NULL;
    for (int i = 0; i < 3 && s == PL_OK && !is; i++) {
        char *tag;

        free(*name);
        *name = hub_asprintf("%s:%.*s", repo, (int)(end - from[i]), from[i]);
        if (*name == NULL)
            return PL_NO_MEMORY;
        tag = *name + strlen(repo) + 1;
        for (char *c = tag; i == 0 && *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        s = chooses(&is, l, f, repo, tag);
    }
    return s;
}

/* Passes the cached models of one revision to `each`, as hub_cached does. */
static pl_status pass_revision(const struct hub_cache *c, const char *revision,
                               hub_cached_fn *each, void *user)
{
    struct hub_listing l;
    pl_status s = read_cached_listing(&l, c, revision);

    for (int i = 0; i < l.n && s == PL_OK; i++) {
        const struct hub_file *f = &l.file[i];
        char *path = NULL, *name = NULL;

        if (!hub_is_model(f->path))
            continue;
        s = find_listed(&path, c, revision, &l, NULL, f->path);
        if (s == PL_OK)
            s = name_model(&name, c->repo, &l, f);
        if (s == PL_OK && !each(user, name, path))
            s = PL_NO_MEMORY;
        free(name);
        free(path);
        s = s == PL_NOT_FOUND ? PL_OK : s;
    }
    hub_listing_fini(&l);
    return s == PL_NOT_FOUND ? PL_OK : s;
}

static pl_status pass_repo(const struct hub_options *o, const char *repo,
                           hub_cached_fn *each, void *user)
{
    struct known *known = malloc(MOST_REVISIONS * sizeof *known);
    struct hub_cache c = {.lock = -1};
    pl_status s =
        known != NULL ? hub_cache_open(&c, o, repo, NULL) : PL_NO_MEMORY;
    int n = s == PL_OK ? find_revisions(&c, known) : 0;

    for (int i = 0; i < n && s == PL_OK; i++)
        s = pass_revision(&c, known[i].revision, each, user);
    hub_cache_close(&c);
    free(known);
    return s;
}

/* The names in a folder, sorted. */
struct names {
    char **name; /* [n], owned, like its elements */
    int n;
};

static void names_fini(struct names *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->name[i]);
    free(l->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads the names in a folder that may be an owner or a repository; none if the
 * folder does not exist. Returns false if memory is short. The caller calls
 * names_fini in any case. */
static bool read_names(struct names *l, const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    bool ok = true;

    *l = (struct names){0};
    while (d != NULL && ok && (e = readdir(d)) != NULL) {
        char **more;

        if (e->d_name[0] == '.' || !hub_path_is_safe(e->d_name))
            continue;
        more = realloc(l->name, ((size_t)l->n + 1) * sizeof *more);
        l->name = more != NULL ? more : l->name;
        ok = more != NULL && (l->name[l->n] = strdup(e->d_name)) != NULL;
        l->n += ok;
    }
    if (d != NULL)
        closedir(d);
    if (l->n > 0)
        qsort(l->name, (size_t)l->n, sizeof *l->name, by_name);
    return ok;
}

/* Passes the cached models of the repositories of `owner`, whose folder is
 * `folder`/`owner`. */
static pl_status pass_owner(const struct hub_options *o, const char *folder,
                            const char *owner, hub_cached_fn *each, void *user)
{
    char *path = hub_asprintf("%s/%s", folder, owner);
    struct names in = {0};
    pl_status s = path != NULL && read_names(&in, path) ? PL_OK : PL_NO_MEMORY;

    for (int i = 0; i < in.n && s == PL_OK; i++) {
        char *repo = hub_asprintf("%s/%s", owner, in.name[i]);

        s = repo != NULL ? pass_repo(o, repo, each, user) : PL_NO_MEMORY;
        free(repo);
    }
    names_fini(&in);
    free(path);
    return s;
}

pl_status hub_cached(const struct hub_options *o, hub_cached_fn *each,
                     void *user, pl_err *err)
{
    struct hub_cache c = {.lock = -1};
    struct names in = {0};
    pl_status s = hub_cache_open(&c, o, "", NULL);

    if (s == PL_OK && !read_names(&in, c.folder))
        s = PL_NO_MEMORY;
    for (int i = 0; i < in.n && s == PL_OK; i++)
        s = pass_owner(o, c.folder, in.name[i], each, user);
    names_fini(&in);
    hub_cache_close(&c);
    return s == PL_OK ? PL_OK : hub_no_memory(err);
}
