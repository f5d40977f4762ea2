/* The folder of files that can be created again: $XDG_CACHE_HOME/plait, else
 * ~/.cache/plait. */
#ifndef BASE_CACHE_PLACE_H
#define BASE_CACHE_PLACE_H

#include "pl.h"

enum { CACHE_PATH = 4096 };

/* Writes the path of `name`, which may contain directories, in that folder.
 * Creates nothing. PL_NOT_FOUND: neither variable is an absolute path; the
 * message begins with `what`. */
pl_status cache_path(char path[CACHE_PATH], const char *name, const char *what,
                     pl_err *err);
/* Creates all directories above the last slash. */
pl_status cache_directories(char path[CACHE_PATH], pl_err *err);

#endif
