/* The cache directory, for files that can be created again:
 * $XDG_CACHE_HOME/plait, else ~/.cache/plait. */
#ifndef BASE_CACHE_PLACE_H
#define BASE_CACHE_PLACE_H

#include "pl.h"

enum { CACHE_PATH = 4096 };

/* Sets `path` to the path of file `name`, which may contain directories, in the
 * cache directory. Creates nothing. Returns PL_NOT_FOUND if neither
 * XDG_CACHE_HOME nor HOME is an absolute path. `what` names the purpose of the
 * file in messages. */
pl_status cache_path(char path[CACHE_PATH], const char *name, const char *what,
                     pl_err *err);
/* Creates the directories of `path`: all components before the last slash. */
pl_status cache_directories(char path[CACHE_PATH], pl_err *err);

#endif
