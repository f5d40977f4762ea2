/* The cache folder of a repository, and the revisions and files in it. The
 * header hub.h shows the layout of the cache. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub_inner.h"
#include "hub_listing.h"

struct hub_cache {
    const char *repo; /* name of the repository, USER/REPO; borrowed */
    char *folder;     /* path of the repository's folder in the cache; owned */
    /* Descriptor of the folder's lock file; -1 if this process has not locked
     * the folder. */
    int lock;
};

/* Fills *c for a repository, without creating its folder. *c is {.lock = -1}
 * before the call. Errors: NO_MEMORY. The caller calls hub_cache_close in all
 * cases. */
pl_status hub_cache_open(struct hub_cache *c, const struct hub_options *o,
                         const char *repo, pl_err *err);
void hub_cache_close(struct hub_cache *c);

/* Creates the folder of the repository if needed, and locks it. Waits while
 * another process holds the lock. Errors: CANCELLED, IO, NO_MEMORY. */
pl_status hub_cache_lock(struct hub_cache *c, const struct hub_options *o,
                         pl_err *err);
void hub_cache_unlock(struct hub_cache *c);

/* Returns the path in the cache of a file of a revision, malloc'ed; NULL if out
 * of memory. `path` is its path in the repository. */
char *hub_cache_path(const struct hub_cache *c, const char *revision,
                     const char *path);
/* Returns true if the cache contains file `f` of a revision, complete. */
bool hub_cache_has(const struct hub_cache *c, const char *revision,
                   const struct hub_file *f);
/* Returns how many bytes of file `f` of a revision still have to be
 * downloaded. */
uint64_t hub_cache_missing(const struct hub_cache *c, const char *revision,
                           const struct hub_file *f);

/* Returns true if the cache contains all files of `p` and the file list of the
 * revision. If so, sets the modification time of the list to now, if that is
 * permitted, so that the revision is the newest one. */
bool hub_cache_is_complete(const struct hub_cache *c, const char *revision,
                           const struct hub_pick *p);

/* Stores the file list of a revision in the cache. The revision is then the
 * newest one. Caller holds the lock of the folder. Errors: IO, FULL,
 * NO_MEMORY. */
pl_status hub_cache_save_listing(struct hub_cache *c, const char *revision,
                                 const struct hub_listing *l, pl_err *err);
/* Looks for file `f` of a revision, by its checksum, in other cached revisions,
 * so that it is not downloaded again. If a complete file is found, makes a hard
 * link to it in this revision. If only a partial file is found, moves it to
 * this revision. Caller holds the lock of the folder. */
void hub_cache_link_same(const struct hub_cache *c, const char *revision,
                         const struct hub_file *f);

/* Finds a model in the cache, in the newest revision of which all files of the
 * model are cached. `quant` and `file` are those of hub_pick. Sets *path to the
 * malloc'ed path of the model's first file. Errors: NOT_FOUND, NO_MEMORY. */
pl_status hub_cache_find(char **path, const struct hub_cache *c,
                         const char *quant, const char *file);

#endif
