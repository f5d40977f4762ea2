/* A repository's folder in the cache: the files and revisions that are present.
 * hub.h shows its layout. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub_inner.h"
#include "hub_listing.h"

struct hub_cache {
    const char *repo; /* borrowed */
    char *folder;     /* owned, absolute or relative like the cache's */
    int lock;         /* -1: not held */
};

/* Fills *c without creating anything. *c is zeros with lock -1 at first. */
pl_status hub_cache_open(struct hub_cache *c, const struct hub_options *o,
                         const char *repo, pl_err *err);
void hub_cache_close(struct hub_cache *c);

/* Waits for the lock; creates the folder. CANCELLED, IO. */
pl_status hub_cache_lock(struct hub_cache *c, const struct hub_options *o,
                         pl_err *err);
void hub_cache_unlock(struct hub_cache *c);

/* Returns the path of a revision's file, malloc'ed; NULL if out of memory. */
char *hub_cache_path(const struct hub_cache *c, const char *revision,
                     const char *path);
/* Returns true if the complete file is present. */
bool hub_cache_has(const struct hub_cache *c, const char *revision,
                   const struct hub_file *f);
/* Returns the number of bytes still to download. */
uint64_t hub_cache_missing(const struct hub_cache *c, const char *revision,
                           const struct hub_file *f);

/* Returns true if all files of `p` and the revision's listing are present. Then
 * makes the revision the newest, if the folder is writable. */
bool hub_cache_is_complete(const struct hub_cache *c, const char *revision,
                           const struct hub_pick *p);

/* Stores a revision's listing, which makes the revision the newest. Caller
 * holds the lock. */
pl_status hub_cache_save_listing(struct hub_cache *c, const char *revision,
                                 const struct hub_listing *l, pl_err *err);
/* Links the file, or a part of it, from another revision that has the same
 * file. Caller holds the lock. */
void hub_cache_link_same(const struct hub_cache *c, const char *revision,
                         const struct hub_file *f);

/* Finds the model in the newest revision that has all its files; *path is
 * malloc'ed. NOT_FOUND, NO_MEMORY. */
pl_status hub_cache_find(char **path, const struct hub_cache *c,
                         const char *quant, const char *file);

#endif
