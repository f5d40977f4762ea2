/* Implements cache_place.h: the paths of files in the cache directory. */
#include "base/cache_place.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ignores XDG_CACHE_HOME or HOME if its value is not an absolute path, as the
 * XDG specification demands. */
pl_status cache_path(char path[CACHE_PATH], const char *name, const char *what,
                     pl_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;

    if (cache && cache[0] == '/')
        n = snprintf(path, CACHE_PATH, "%s/plait/%s", cache, name);
    else if (home && home[0] == '/')
        n = snprintf(path, CACHE_PATH, "%s/.cache/plait/%s", home, name);
    else
        return err_set(err, PL_NOT_FOUND,
                       "no directory for %s; set XDG_CACHE_HOME or HOME to an "
                       "absolute path",
                       what);
    return n < CACHE_PATH
               ? PL_OK
               : err_set(err, PL_IO,
                         "the path of the cache directory is too long; set "
                         "XDG_CACHE_HOME to a shorter one");
}

pl_status cache_directories(char path[CACHE_PATH], pl_err *err)
{
    pl_status s = PL_OK;

    for (char *slash = path; (slash = strchr(slash + 1, '/')) && s == PL_OK;) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            s = err_set(err, PL_IO, "%s: %s", path, strerror(errno));
        *slash = '/';
    }
    return s;
}
