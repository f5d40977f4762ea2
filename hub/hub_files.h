/* Helpers for folders, locks and small files of the cache. */
#ifndef HUB_FILES_H
#define HUB_FILES_H

#include "hub_inner.h"

/* Creates the folders in which the file `path` is. Errors: IO, NO_MEMORY. */
pl_status hub_cache_folders(const char *path, pl_err *err);
/* Locks an existing cache folder by its file "lock", and sets *fd to the
 * descriptor of this file. Waits while another process holds the lock. *fd may
 * be open even on failure, so the caller calls hub_unlock_folder in all cases.
 * Errors: CANCELLED, IO, NO_MEMORY. */
pl_status hub_lock_folder(int *fd, const struct hub_options *o,
                          const char *folder, pl_err *err);
void hub_unlock_folder(int *fd);
/* Writes `text` to the file `path` atomically. Errors are those of pl_file_open
 * and pl_file_commit. */
pl_status hub_write_file(const char *path, const char *text, pl_err *err);
/* Reads a small file. Sets *text to its contents, malloc'ed and NUL-terminated,
 * and *n to their length in bytes; the caller frees *text in all cases.
 * NOT_FOUND: there is no such file, or it is longer than `most` bytes. Other
 * errors: NO_MEMORY. */
pl_status hub_read_file(const char *path, size_t most, char **text, size_t *n);

#endif
