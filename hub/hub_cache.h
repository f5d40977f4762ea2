/* A repository's folder in the cache: which files of which revisions are
 * there. hub.h draws it. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub_inner.h"
#include "hub_listing.h"

struct hub_cache {
    const char *repo; /* borrowed */
    char *folder;     /* owned, absolute or as the cache's is */
    int lock;         /* -1: not held */
};

/* Nothing is made yet. *c is zeros with lock -1 at first. */
pl_status hub_cache_open(struct hub_cache *c, const struct hub_options *o,
                         const char *repo, pl_err *err);
void hub_cache_close(struct hub_cache *c);

/* Waits for who holds it; makes the folder. CANCELLED, IO. */
pl_status hub_cache_lock(struct hub_cache *c, const struct hub_options *o,
                         pl_err *err);
void hub_cache_unlock(struct hub_cache *c);

/* Where a file of a revision goes, malloc'ed; NULL: no memory. */
char *hub_cache_path(const struct hub_cache *c, const char *revision,
                     const char *path);
/* Is it there, whole? */
bool hub_cache_has(const struct hub_cache *c, const char *revision,
                   const struct hub_file *f);
/* Bytes that are still to come. */
uint64_t hub_cache_missing(const struct hub_cache *c, const char *revision,
                           const struct hub_file *f);

/* Are all files of it there, and a listing that says so? Then the revision is
 * the newest from now on, where that can be written. */
bool hub_cache_is_complete(const struct hub_cache *c, const char *revision,
                           const struct hub_pick *p);

/* Under the lock. Keeps a revision's listing, which makes it the newest. */
pl_status hub_cache_save_listing(struct hub_cache *c, const char *revision,
                                 const struct hub_listing *l, pl_err *err);
/* Under the lock. If another revision has the same file, or a part of it, it is
 * this one's too. */
void hub_cache_link_same(const struct hub_cache *c, const char *revision,
                         const struct hub_file *f);

/* The model in the newest revision that has all files of it; *path is
 * malloc'ed. NOT_FOUND, NO_MEMORY. */
pl_status hub_cache_find(char **path, const struct hub_cache *c,
                         const char *quant, const char *file);

#endif
