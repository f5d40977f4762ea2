/* The disk tier of the prefix cache; see tier_disk.h. A file is created without
 * a name, by Linux's O_TMPFILE. When it is complete, linkat gives it a
 * temporary name, and renameat moves it atomically to its final name, replacing
 * an older file. */
#include "tier_disk.h"

#include "fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ENDING ".page"
#define PART   ".part"

enum {
    HEX = 2 * sizeof(struct tier_key),
    MAX_NAME = HEX + 64,
    /* Age in seconds after which a file under a temporary name is deleted,
     * because its writer has ended. */
    PART_S = 600,
};

static void name_of(const struct tier_key *key, char name[static MAX_NAME])
{
    for (size_t i = 0; i < sizeof *key; i++)
        snprintf(name + 2 * i, 3, "%02x", key->b[i]);
    memcpy(name + HEX, ENDING, sizeof ENDING);
}

/* ---- the folder, and evicting entries ------------------------------------ */

struct found {
    char name[MAX_NAME];
    uint64_t bytes;
    struct timespec used;
};

struct listing {
    struct found *file; /* the entries in the folder, [n]; owned */
    size_t n, cap;
    uint64_t bytes;
};

/* Returns true if `name` is the file name of an entry. The folder may contain
 * other files. */
static bool is_page(const char *name)
{
    return strspn(name, "0123456789abcdef") == HEX &&
           strcmp(name + HEX, ENDING) == 0;
}

/* Returns true if `name` is a temporary name from new_file, that of an
 * unfinished file. */
static bool is_part(const char *name)
{
    int n = 0;

    (void)sscanf(name, "%*[0-9].%*[0-9].%*[0-9a-f]%n", &n);
    return n > 0 && n + (int)sizeof PART <= MAX_NAME &&
           strcmp(name + n, PART) == 0;
}

/* Adds a file of the folder to the listing if it is an entry or an unfinished
 * entry. Deletes an old unfinished entry instead. Returns false if out of
 * memory. */
static bool look_at(int dir, const char *name, struct listing *l)
{
    bool part = is_part(name);
    struct stat st;
    struct found *f;

    if ((!part && !is_page(name)) ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(st.st_mode))
        return true;
    if (part && time(NULL) - st.st_mtime > PART_S) {
        unlinkat(dir, name, 0);
        return true;
    }
    if (l->n == l->cap) {
        size_t cap = 2 * l->cap + 64;
        void *more = realloc(l->file, cap * sizeof *l->file);

        if (!more)
            return false;
        l->file = more;
        l->cap = cap;
    }
    f = &l->file[l->n++];
    /* The name fits in f->name, because is_page or is_part checked its
     * length. */
    memcpy(f->name, name, strlen(name) + 1);
    f->bytes = (uint64_t)st.st_size;
    f->used = st.st_mtim;
    l->bytes += f->bytes;
    return true;
}

static bool list(int folder, struct listing *l)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    bool ok = dir != NULL;

    *l = (struct listing){0};
    if (!dir && fd >= 0)
        close(fd);
    while (ok && (entry = readdir(dir)))
        ok = look_at(folder, entry->d_name, l);
    if (dir)
        closedir(dir);
    return ok;
}

static int older(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used;
    const struct timespec *y = &((const struct found *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Scans the folder. If its files and `more` bytes together exceed the limit
 * d->limit, deletes the least recently used files until an eighth of the limit
 * is free. Returns false with errno set if the folder cannot be read. */
static bool evict_for(struct tier_disk *d, uint64_t more)
{
    struct listing l;
    bool ok = list(d->dir, &l);

    if (ok && l.bytes + more > d->limit) {
        uint64_t want = d->limit - d->limit / 8;

        qsort(l.file, l.n, sizeof *l.file, older);
        for (size_t i = 0; i < l.n && l.bytes + more > want; i++)
            if (unlinkat(d->dir, l.file[i].name, 0) == 0 || errno == ENOENT)
                l.bytes -= l.file[i].bytes;
    }
    if (ok) {
        d->bytes = l.bytes;
        d->since = 0;
    }
    free(l.file);
    return ok;
}

static pl_status cannot_open(struct tier_disk *d, const char *path, pl_status s,
                             const char *why, pl_err *err)
{
    tier_disk_close(d);
    return server_fail(err, s, "cache folder %.700s: %.200s", path, why);
}

/* Opens the folder `path`, creating it if needed, and returns its descriptor.
 * On failure returns -1 with errno set. If the folder is world-writable, sets
 * errno to EACCES and *open_to_all to true. */
static int open_folder(const char *path, bool *open_to_all)
{
    struct stat st;
    int fd = -1;

    *open_to_all = false;
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !(st.st_mode & S_IWOTH))
        return fd;
    close(fd);
    *open_to_all = true;
    errno = EACCES;
    return -1;
}

pl_status tier_disk_open(struct tier_disk *d, const char *path, uint64_t limit,
                         pl_err *err)
{
    bool open_to_all;

    *d = (struct tier_disk){.dir = -1, .limit = limit, .path = strdup(path)};
    if (!d->path)
        return cannot_open(d, path, PL_NO_MEMORY, "out of memory", err);
    d->dir = open_folder(path, &open_to_all);
    if (open_to_all)
        return cannot_open(d, path, PL_BAD_ARGUMENT,
                           "world-writable, so other users could plant cache "
                           "pages; remove that permission (chmod o-w)",
                           err);
    if (d->dir >= 0 && faccessat(d->dir, ".", W_OK, 0) == 0 && evict_for(d, 0))
        return PL_OK;
    return cannot_open(d, path, errno == ENOENT ? PL_NOT_FOUND : PL_IO,
                       strerror(errno), err);
}

/* Opens the folder again after it was removed or replaced by a new one. d->dir
 * stays the same number, so that reading threads use the new folder, too.
 * Returns false with errno set on failure. */
static bool reopen(struct tier_disk *d)
{
    bool open_to_all;
    int fd = open_folder(d->path, &open_to_all), error;
    bool ok = fd >= 0 && dup3(fd, d->dir, O_CLOEXEC) >= 0;

    error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return ok && evict_for(d, 0);
}

void tier_disk_close(struct tier_disk *d)
{
    if (d->dir >= 0)
        close(d->dir);
    d->dir = -1;
    free(d->path);
    d->path = NULL;
}

/* ---- writing an entry to a file ------------------------------------------ */

/* Creates a file for an entry and returns its descriptor; -1 with errno set on
 * failure. If the file system supports it, the file has no name yet. Otherwise
 * it has the temporary name `part`, and *named is true. Fills `part` in both
 * cases, because a file without a name gets this name later. */
static int new_file(struct tier_disk *d, char part[static MAX_NAME],
                    bool *named)
{
    /* Number for temporary names, one counter for the whole process, because
     * the caches of several models may share a folder. Processes in different
     * containers may have the same process id, so the name also contains a
     * random number. */
    static uint64_t n_name;
    int fd = openat(d->dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    uint32_t chance = (uint32_t)time(NULL);

    (void)!getrandom(&chance, sizeof chance, GRND_NONBLOCK);
    snprintf(part, MAX_NAME, "%ld.%" PRIu64 ".%08" PRIx32 PART, (long)getpid(),
             __atomic_fetch_add(&n_name, 1, __ATOMIC_RELAXED), chance);
    *named = fd < 0;
    if (fd < 0)
        fd =
            openat(d->dir, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd;
}

static bool write_whole(int fd, const struct tier_entry *e)
{
    unsigned char head[TIER_HEAD];
    struct iovec v[2] = {{head, TIER_HEAD}, {e->data, e->bytes}};

    tier_entry_put_head(e, head);
    for (int i = 0; i < 2;) {
        ssize_t n = writev(fd, v + i, 2 - i);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return false;
        }
        for (; i < 2 && (size_t)n >= v[i].iov_len; i++)
            n -= (ssize_t)v[i].iov_len;
        if (i < 2) {
            v[i].iov_base = (char *)v[i].iov_base + n;
            v[i].iov_len -= (size_t)n;
        }
    }
    return true;
}

static bool publish_file(const struct tier_disk *d, int fd, bool named,
                         const char *part, const char *name)
{
    char self[40];

    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!named && linkat(AT_FDCWD, self, d->dir, part, AT_SYMLINK_FOLLOW) != 0)
        return false;
    return renameat(d->dir, part, d->dir, name) == 0;
}

static bool write_file(struct tier_disk *d, const struct tier_entry *e)
{
    uint64_t bytes = tier_entry_size(e);
    char name[MAX_NAME], part[MAX_NAME];
    bool named, ok;
    int fd = new_file(d, part, &named), error;

    if (fd < 0)
        return false;
    name_of(&e->key, name);
    ok = write_whole(fd, e) && publish_file(d, fd, named, part, name);
    error = errno;
    close(fd);
    if (!ok)
        unlinkat(d->dir, part, 0);
    d->bytes += ok ? bytes : 0;
    d->since += ok ? bytes : 0;
    errno = error;
    return ok;
}

bool tier_disk_write(struct tier_disk *d, const struct tier_entry *e)
{
    uint64_t bytes = tier_entry_size(e);

    if (bytes > d->limit / 2) {
        errno = EFBIG;
        return false;
    }
    if (d->bytes + bytes > d->limit || d->since > d->limit / 16)
        evict_for(d, bytes);
    return write_file(d, e) ||
           (errno == ENOENT && reopen(d) && write_file(d, e));
}

/* ---- reading an entry from a file ---------------------------------------- */

static bool read_whole(int fd, void *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = read(fd, (char *)data + at, n - at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

/* Reads an entry from the open file fd; its key must be *key. Returns NULL and
 * sets *damaged if the file is damaged. Returns NULL with *damaged false if out
 * of memory. */
static struct tier_entry *read_open(int fd, const struct tier_key *key,
                                    bool head, bool *damaged)
{
    unsigned char b[TIER_HEAD];
    struct tier_entry *e = calloc(1, sizeof *e);
    struct stat st;

    if (!e)
        return NULL;
    *damaged = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
               !read_whole(fd, b, sizeof b) ||
               !tier_entry_get_head(e, key, b, (uint64_t)st.st_size);
    if (!*damaged && !head) {
        e->data = malloc(e->bytes + 1);
        if (e->data)
            *damaged = !read_whole(fd, e->data, e->bytes);
    }
    if (!*damaged && (head || e->data))
        return e;
    free(e->data);
    free(e);
    return NULL;
}

struct tier_entry *tier_disk_read(const struct tier_disk *d,
                                  const struct tier_key *key, bool head,
                                  bool *damaged)
{
    struct tier_entry *e = NULL;
    char name[MAX_NAME];
    int fd;

    *damaged = false;
    if (d->dir < 0)
        return NULL;
    name_of(key, name);
    fd = openat(d->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    e = read_open(fd, key, head, damaged);
    if (e && !head)
        (void)futimens(fd, NULL); /* marks the entry as used; if that fails, the
                                     entry only seems less recently used */
    close(fd);
    if (*damaged)
        tier_disk_drop(d, key);
    return e;
}

void tier_disk_touch(const struct tier_disk *d, const struct tier_key *key)
{
    char name[MAX_NAME];

    if (d->dir < 0)
        return;
    name_of(key, name);
    (void)!utimensat(d->dir, name, NULL, AT_SYMLINK_NOFOLLOW);
}

void tier_disk_drop(const struct tier_disk *d, const struct tier_key *key)
{
    char name[MAX_NAME];

    if (d->dir < 0)
        return;
    name_of(key, name);
    unlinkat(d->dir, name, 0);
}
