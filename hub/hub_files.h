/* Folders, locks and small files of the cache. */
#ifndef HUB_FILES_H
#define HUB_FILES_H

#include "hub_inner.h"

/* Creates all folders of a path. */
pl_status hub_cache_folders(const char *path, pl_err *err);
/* Locks an existing folder by a lock file and returns its descriptor in *fd. */
pl_status hub_lock_folder(int *fd, const struct hub_options *o,
                          const char *folder, pl_err *err);
void hub_unlock_folder(int *fd);
/* Writes a small file, complete or not at all. */
pl_status hub_write_file(const char *path, const char *text, pl_err *err);
/* Reads a small file. *text is malloc'ed and terminated. NOT_FOUND: the file
 * does not exist, or is longer than `most`; NO_MEMORY. */
pl_status hub_read_file(const char *path, size_t most, char **text, size_t *n);

#endif
