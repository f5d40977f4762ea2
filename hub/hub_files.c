/* Helpers for folders, locks and small files of the cache; see hub_files.h. */
#include "hub_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

pl_status hub_cache_folder(char **folder, pl_err *err)
{
    const char *own = getenv("PLAIT_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (own != NULL && own[0] != '\0')
        *folder = hub_asprintf("%s", own);
    else if (xdg != NULL && xdg[0] == '/')
        *folder = hub_asprintf("%s/plait", xdg);
    else if (home != NULL && home[0] == '/')
        *folder = hub_asprintf("%s/.cache/plait", home);
    else
        return hub_fail(err, PL_NOT_FOUND,
                        "no directory for downloads; set PLAIT_CACHE");
    return *folder != NULL ? PL_OK : hub_no_memory(err);
}

pl_status hub_cache_folders(const char *path, pl_err *err)
{
    char *at = strdup(path);
    pl_status s = at != NULL ? PL_OK : hub_no_memory(err);

    for (char *slash = at; s == PL_OK && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(at, 0755) != 0 && errno != EEXIST)
            s = hub_fail(err, PL_IO,
                         "%s: %s; set PLAIT_CACHE to a writable directory", at,
                         strerror(errno));
        *slash = '/';
    }
    free(at);
    return s;
}

pl_status hub_lock_folder(int *fd, const struct hub_options *o,
                          const char *folder, pl_err *err)
{
    char *path = hub_asprintf("%s/lock", folder);
    bool told = false;

    if (path == NULL)
        return hub_no_memory(err);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0)
        hub_fail(err, PL_IO, "%s: %s", path, strerror(errno));
    free(path);
    if (*fd < 0)
        return PL_IO;
    while (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return hub_fail(err, PL_IO, "%s/lock: %s", folder, strerror(errno));
        if (!told)
            hub_log(o, PL_LOG_INFO,
                    "another process is downloading into %s; waiting for it",
                    folder);
        told = true;
        if (!hub_sleep(o, 100))
            return hub_cancelled(err);
    }
    return PL_OK;
}

void hub_unlock_folder(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

pl_status hub_write_file(const char *path, const char *text, pl_err *err)
{
    pl_file *f;
    pl_status s = pl_file_open(&f, path, 0, err);

    if (s != PL_OK)
        return s;
    pl_file_write(f, text, strlen(text));
    s = pl_file_commit(f, err);
    pl_file_close(f);
    return s;
}

pl_status hub_read_file(const char *path, size_t most, char **text, size_t *n)
{
    struct stat st;
    bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    FILE *f = regular ? fopen(path, "rbe") : NULL; /* a FIFO would block */
    pl_status s = PL_NOT_FOUND;

    *text = NULL;
    *n = 0;
    if (f != NULL && fstat(fileno(f), &st) == 0 &&
        (uint64_t)st.st_size <= most) {
        *text = malloc((size_t)st.st_size + 1);
        s = *text != NULL ? PL_OK : PL_NO_MEMORY;
    }
    if (s == PL_OK) {
        *n = fread(*text, 1, (size_t)st.st_size, f);
        (*text)[*n] = '\0';
    }
    if (f != NULL)
        fclose(f);
    return s;
}
