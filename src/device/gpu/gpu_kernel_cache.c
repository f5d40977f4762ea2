/* Implementation of gpu_kernel_cache.h. */
#include "device/gpu/gpu_kernel_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_place.h"
#include "base/err.h"
#include "base/hash64.h"

struct head {
    char magic[8];
    uint64_t check, n_key, n;
};
static const char magic[8] = "plaitgpu";

enum { MOST = 1 << 30 }; /* largest accepted file in bytes */

static pl_status cache_file_path(char path[CACHE_PATH], const void *key,
                                 size_t n_key, pl_err *err)
{
    char name[64];

    snprintf(name, sizeof name, "gpu/%016" PRIx64 "%016" PRIx64,
             hash64(1, key, n_key), hash64(2, key, n_key));
    return cache_path(path, name, "compiled kernels", err);
}

bool gpu_cache_is_there(void)
{
    char path[CACHE_PATH];

    return cache_path(path, "gpu/", "compiled kernels", NULL) == PL_OK &&
           cache_directories(path, NULL) == PL_OK &&
           access(path, R_OK | W_OK | X_OK) == 0;
}

/* Reads exactly n bytes from `fd`. Returns false if that fails. */
static bool take(int fd, void *out, size_t n)
{
    while (n > 0) {
        ssize_t got = read(fd, out, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        out = (char *)out + got;
        n -= (size_t)got;
    }
    return true;
}

/* Reads the header of a file. Returns true if the file belongs to this user,
 * has the size that the header implies, and its key has n_key bytes. */
static bool fits(int fd, struct head *h, size_t n_key)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_uid == geteuid() && st.st_size <= MOST &&
           take(fd, h, sizeof *h) &&
           memcmp(h->magic, magic, sizeof magic) == 0 && h->n_key == n_key &&
           h->n > 0 && h->n <= MOST &&
           (uint64_t)st.st_size == sizeof *h + h->n_key + h->n;
}

void *gpu_cache_load(const void *key, size_t n_key, size_t *n)
{
    char path[CACHE_PATH];
    struct head h;
    char *all = NULL;
    int fd;

    *n = 0;
    if (cache_file_path(path, key, n_key, NULL) != PL_OK)
        return NULL;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fits(fd, &h, n_key) && (all = malloc(n_key + (size_t)h.n)) &&
        take(fd, all, n_key + (size_t)h.n) && memcmp(all, key, n_key) == 0 &&
        hash64(0, all + n_key, (size_t)h.n) == h.check) {
        *n = (size_t)h.n;
        memmove(all, all + n_key, *n);
    } else {
        free(all);
        all = NULL;
    }
    close(fd);
    return all;
}

pl_status gpu_cache_save(const void *key, size_t n_key, const void *bytes,
                         size_t n, pl_err *err)
{
    char path[CACHE_PATH];
    pl_file *f;
    struct head h = {.n_key = n_key, .n = n, .check = hash64(0, bytes, n)};
    pl_status s;

    memcpy(h.magic, magic, sizeof magic);
    PL_TRY(cache_file_path(path, key, n_key, err));
    PL_TRY(cache_directories(path, err));
    PL_TRY(pl_file_open(&f, path, 0, err));
    pl_file_write(f, &h, sizeof h);
    pl_file_write(f, key, n_key);
    pl_file_write(f, bytes, n);
    s = pl_file_commit(f, err);
    pl_file_close(f);
    return s;
}
