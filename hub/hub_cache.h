/* The folder of a repository in the cache, and the revisions and files in it.
 * hub.h shows its layout. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub_inner.h"
#include "hub_listing.h"

struct hub_cache {
    const char *repo; /* borrowed */
    char *folder;     /* path of the folder, owned */
    int lock;         /* descriptor of the lock file; -1 if not locked */
};

/* Fills *c for a repository, without creating its folder. *c is {.lock = -1} at
 * first. Errors: NO_MEMORY. The caller calls hub_cache_close in all cases. */
pl_status hub_cache_open(struct hub_cache *c, const struct hub_options *o,
                         const char *repo, pl_err *err);
void hub_cache_close(struct hub_cache *c);

/* Creates the folder if needed, and locks it, waiting while another process
 * holds the lock. Errors: CANCELLED, IO, NO_MEMORY. */
pl_status hub_cache_lock(struct hub_cache *c, const struct hub_options *o,
                         pl_err *err);
void hub_cache_unlock(struct hub_cache *c);

/* Returns the path in the cache of a file of a revision, malloc'ed; NULL if out
 * of memory. */
char *hub_cache_path(const struct hub_cache *c, const char *revision,
                     const char *path);
/* Returns true if the cache contains the complete file. */
bool hub_cache_has(const struct hub_cache *c, const char *revision,
                   const struct hub_file *f);
/* Returns the number of bytes of a file that still have to be downloaded. */
uint64_t hub_cache_missing(const struct hub_cache *c, const char *revision,
                           const struct hub_file *f);

/* Returns true if the cache contains all files of `p` and the listing of the
 * revision. If so, makes the revision the newest by setting the time of its
 * listing, if that is permitted. */
bool hub_cache_is_complete(const struct hub_cache *c, const char *revision,
                           const struct hub_pick *p);

/* Stores the listing of a revision, which makes this the newest revision.
 * Caller holds the lock. Errors: IO, FULL, NO_MEMORY. */
pl_status hub_cache_save_listing(struct hub_cache *c, const char *revision,
                                 const struct hub_listing *l, pl_err *err);
/* Looks for the same file (by checksum) in other cached revisions, so that it
 * is not downloaded again. If found, creates a hard link to it. If only a
 * partial file is found, moves that to this revision. Caller holds the lock. */
void hub_cache_link_same(const struct hub_cache *c, const char *revision,
                         const struct hub_file *f);

/* Finds a model in the cache, in the newest revision that has all its files.
 * `quant` and `file` are as in hub_pick. *path is malloc'ed, the path of the
 * model's first file. Errors: NOT_FOUND, NO_MEMORY. */
pl_status hub_cache_find(char **path, const struct hub_cache *c,
                         const char *quant, const char *file);

#endif
