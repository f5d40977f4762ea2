/* Folders, locks and small files of the cache. */
#ifndef HUB_FILES_H
#define HUB_FILES_H

#include "hub_inner.h"

/* The folders that a path goes through. */
pl_status hub_cache_folders(const char *path, pl_err *err);
/* A lock file in a folder that is there: its descriptor. */
pl_status hub_lock_folder(int *fd, const struct hub_options *o,
                          const char *folder, pl_err *err);
void hub_unlock_folder(int *fd);
/* A small file, whole or not at all. */
pl_status hub_write_file(const char *path, const char *text, pl_err *err);
/* *text is malloc'ed and terminated. NOT_FOUND: there is none, or it is longer
 * than `most`; NO_MEMORY. */
pl_status hub_read_file(const char *path, size_t most, char **text, size_t *n);

#endif
