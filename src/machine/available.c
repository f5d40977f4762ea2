/* Reads the memory and processor time that the system grants to this process;
 * see available.h. The files that it reads come from the kernel, but containers
 * may replace them, so any bytes are expected. A number that is too large
 * becomes the largest possible, and a line that does not fit in the buffer is
 * skipped. */
#include "machine/available.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    LINE = 16 << 10, /* size of the line buffer in bytes: a line may have a path
                        and mount options of 4 KiB each */
    PATH = 4096,
};

/* A cgroup hierarchy as this process sees it: the tree of cgroups of one
 * version or controller. */
struct hierarchy {
    /* path of this process's cgroup in the hierarchy; "" if the process is in
     * none */
    char path[PATH];
    /* directory in which the files of the topmost visible cgroup are mounted */
    char mount[PATH];
    /* path from the topmost visible cgroup to this process's cgroup, such as
     * "/a/b"; "" if they are the same */
    char below[PATH];
    /* quality of the mount that `mount` and `below` describe: the more parents
     * of this process's cgroup the mount shows, the greater; 0 if no usable
     * mount was found */
    int rank;
};

enum { UNIFIED, MEMORY, CPU, N_HIERARCHY };

struct reader {
    available_open *open;
    void *user;
    struct hierarchy of[N_HIERARCHY];
    char line[LINE];
    char dir[2 * PATH];
    char file[2 * PATH + 64];
};

static FILE *open_own(void *user, const char *path)
{
    (void)user;
    return fopen(path, "re");
}

/* ---- parsing lines and numbers of files ---------------------------------- */

/* Reads the next line that fits into the buffer `line`, without its newline;
 * skips longer lines. Returns false at the end of the file. */
static bool next_line(FILE *f, char line[LINE])
{
    bool whole = true;

    while (fgets(line, LINE, f)) {
        size_t n = strlen(line);
        bool ended = n > 0 && line[n - 1] == '\n';
        bool fits = whole && (ended || n + 1 < LINE);

        whole = ended || n + 1 < LINE;
        if (!fits)
            continue;
        if (ended)
            line[n - 1] = '\0';
        return true;
    }
    return false;
}

/* Parses a decimal number into *v, UINT64_MAX on overflow. Returns the rest of
 * the text, or NULL if it does not begin with a digit. */
static const char *read_digits(const char *s, uint64_t *v)
{
    if (*s < '0' || *s > '9')
        return NULL;
    for (*v = 0; *s >= '0' && *s <= '9'; s++) {
        unsigned digit = (unsigned)(*s - '0');

        *v = *v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *v * 10 + digit;
    }
    return s;
}

/* Parses a number, or "max" as UINT64_MAX, that ends at a blank or at the end
 * of the text. Returns the rest of the text, or NULL if there is no number. */
static const char *read_number(const char *s, uint64_t *v)
{
    const char *end;

    s += strspn(s, " \t");
    if (strncmp(s, "max", 3) == 0) {
        *v = UINT64_MAX;
        end = s + 3;
    } else {
        end = read_digits(s, v);
    }
    return end && (*end == '\0' || strchr(" \t", *end)) ? end : NULL;
}

/* Reads at most n numbers from the first line of the file `name` in directory
 * r->dir into v[]. Returns how many numbers the line has, at most n. */
static int read_numbers(struct reader *r, const char *name, uint64_t *v, int n)
{
    const char *at = r->line;
    FILE *f;
    int got = 0;

    snprintf(r->file, sizeof r->file, "%s/%s", r->dir, name);
    f = r->open(r->user, r->file);
    if (!f)
        return 0;
    if (next_line(f, r->line))
        while (got < n && (at = read_number(at, &v[got])))
            got++;
    fclose(f);
    return got;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds up the numbers of the file's lines "PREFIX NAME NUMBER" whose NAME is
 * one of the n names. Returns the number of such lines. */
static int sum_named(struct reader *r, const char *path, const char *prefix,
                     const char *const *name, int n, uint64_t *sum)
{
    FILE *f = r->open(r->user, path);
    size_t skip = strlen(prefix);
    int found = 0;

    *sum = 0;
    while (f && next_line(f, r->line)) {
        const char *s = r->line;
        uint64_t v;

        if (strncmp(s, prefix, skip) != 0)
            continue;
        for (int i = 0; i < n; i++) {
            size_t len = strlen(name[i]);

            if (strncmp(s + skip, name[i], len) == 0 &&
                strchr(" \t", s[skip + len]) && s[skip + len] &&
                read_number(s + skip + len, &v)) {
                *sum = add(*sum, v);
                found++;
            }
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* ---- finding where cgroups are mounted ----------------------------------- */

/* Returns true if `word` is one of the comma-separated words in list .. end. */
static bool has_word(const char *list, const char *end, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; p < end;) {
        const char *stop = memchr(p, ',', (size_t)(end - p));

        if (!stop)
            stop = end;
        if ((size_t)(stop - p) == n && memcmp(p, word, n) == 0)
            return true;
        p = stop + 1;
    }
    return false;
}

static void keep_path(struct hierarchy *h, const char *path)
{
    size_t n = strlen(path);

    if (path[0] != '/' || n >= sizeof h->path)
        return;
    memcpy(h->path, path, n + 1);
    while (n > 1 && h->path[n - 1] == '/')
        h->path[--n] = '\0';
}

/* Parses /proc/self/cgroup, whose lines are like "0::/a/b" or
 * "4:memory:/a/b". */
static void read_paths(struct reader *r)
{
    FILE *f = r->open(r->user, "/proc/self/cgroup");

    while (f && next_line(f, r->line)) {
        const char *names = strchr(r->line, ':');
        const char *path = names ? strchr(names + 1, ':') : NULL;

        if (!path)
            continue;
        names++;
        if (names == path && strncmp(r->line, "0:", 2) == 0)
            keep_path(&r->of[UNIFIED], path + 1);
        if (has_word(names, path, "memory"))
            keep_path(&r->of[MEMORY], path + 1);
        if (has_word(names, path, "cpu"))
            keep_path(&r->of[CPU], path + 1);
    }
    if (f)
        fclose(f);
}

/* Replaces the octal escapes of mountinfo, such as \040, by their bytes. */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
            s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *to++ =
                (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

/* Counts the "/.." at the beginning of a path in a cgroup hierarchy; each is a
 * level above the root of the cgroup namespace. "/../../a" has two. Sets *end
 * to the rest of the path. */
static int count_ups(const char *path, const char **end)
{
    int n = 0;

    while (strncmp(path, "/..", 3) == 0 && (path[3] == '/' || !path[3])) {
        path += 3;
        n++;
    }
    *end = path;
    return n;
}

/* Stores a mount of a cgroup hierarchy in *h if it is better than those before.
 * The mount shows the cgroup `root` and those below it, in the directory `dir`.
 * It is better if it shows more parents of this process's cgroup. If `root` is
 * above the root of the cgroup namespace, the path from it to this process's
 * cgroup is unknown, so only the limits of `root` itself are read. A mount that
 * shows neither is ignored. */
static void take_mount(struct hierarchy *h, const char *root, const char *dir)
{
    const char *own, *above, *below = "", *rest;
    int rank, n_own = count_ups(h->path, &own), n = count_ups(root, &above);
    size_t len = strcmp(above, "/") == 0 ? 0 : strlen(above);

    if (!h->path[0] || strlen(dir) >= sizeof h->mount)
        return;
    if (n == n_own && strncmp(own, above, len) == 0 &&
        (own[len] == '/' || own[len] == '\0')) {
        below = strcmp(own + len, "/") == 0 ? "" : own + len;
        rank = PATH + 2 - (int)least(len, PATH);
    } else if (n > n_own && len == 0) {
        rank = 1;
    } else {
        return;
    }
    if (rank <= h->rank || count_ups(below, &rest) > 0)
        return;
    h->rank = rank;
    snprintf(h->mount, sizeof h->mount, "%s", dir);
    snprintf(h->below, sizeof h->below, "%s", below);
}

/* Parses a line of mountinfo: "31 23 0:28 ROOT DIR rw,relatime shared:9 -
 * cgroup2 cgroup rw". */
static void read_mount(struct reader *r, char *line)
{
    char *word[6], *type, *save = NULL;
    const char *options = NULL;

    type = strstr(line, " - ");
    if (!type)
        return;
    *type = '\0';
    type += 3;
    for (int i = 0; i < 5; i++) {
        word[i] = strtok_r(i ? NULL : line, " ", &save);
        if (!word[i])
            return;
    }
    type = strtok_r(type, " ", &save);
    for (int i = 0; type && i < 2; i++)
        options = strtok_r(NULL, " ", &save);
    if (!type || strncmp(type, "cgroup", 6) != 0)
        return;
    unescape(word[3]);
    unescape(word[4]);
    if (strcmp(type, "cgroup2") == 0)
        take_mount(&r->of[UNIFIED], word[3], word[4]);
    if (strcmp(type, "cgroup") != 0 || !options)
        return;
    if (has_word(options, options + strlen(options), "memory"))
        take_mount(&r->of[MEMORY], word[3], word[4]);
    if (has_word(options, options + strlen(options), "cpu"))
        take_mount(&r->of[CPU], word[3], word[4]);
}

static void read_mounts(struct reader *r)
{
    FILE *f = r->open(r->user, "/proc/self/mountinfo");

    while (f && next_line(f, r->line))
        read_mount(r, r->line);
    if (f)
        fclose(f);
}

/* ---- reading the limits of cgroups --------------------------------------- */

/* Lowers *out to a memory limit of a cgroup. The memory that is still available
 * is the limit minus the usage in the file `use`. File pages and slabs, which
 * the kernel would reclaim first, do not count as usage. They are charged to
 * the process that read them first, so otherwise a model that was loaded once
 * would count for ever. */
static void take_limit(struct reader *r, struct available *out, uint64_t limit,
                       const char *use, const char *prefix)
{
    static const char *const dropped[] = {"active_file", "inactive_file",
                                          "slab_reclaimable"};
    uint64_t used, kept;

    out->limit_bytes = least(out->limit_bytes, limit);
    if (read_numbers(r, use, &used, 1) != 1)
        used = 0;
    snprintf(r->file, sizeof r->file, "%s/memory.stat", r->dir);
    sum_named(r, r->file, prefix, dropped, 3, &kept);
    out->available_bytes =
        least(out->available_bytes, less(limit, less(used, kept)));
}

static void take_quota(struct available *out, uint64_t quota, uint64_t period)
{
    uint64_t n;

    if (quota == UINT64_MAX || period == 0 || period == UINT64_MAX)
        return;
    n = quota / period;
    if (n < (uint64_t)out->n_core)
        out->n_core = n > 0 ? (int)n : 1;
}

/* Lowers *out to the limits of the cgroup whose files are in directory r->dir.
 * `which` selects the files' names, which depend on the version and
 * controller. */
static void read_level(struct reader *r, int which, struct available *out)
{
    uint64_t v[2], high;

    if (which == UNIFIED) {
        if (read_numbers(r, "cpu.max", v, 2) == 2)
            take_quota(out, v[0], v[1]);
        if (read_numbers(r, "memory.max", v, 1) != 1)
            v[0] = UINT64_MAX;
        if (read_numbers(r, "memory.high", &high, 1) == 1)
            v[0] = least(v[0], high);
        if (v[0] != UINT64_MAX)
            take_limit(r, out, v[0], "memory.current", "");
    } else if (which == CPU) {
        if (read_numbers(r, "cpu.cfs_quota_us", &v[0], 1) == 1 &&
            read_numbers(r, "cpu.cfs_period_us", &v[1], 1) == 1)
            take_quota(out, v[0], v[1]);
    } else if (read_numbers(r, "memory.limit_in_bytes", v, 1) == 1) {
        /* If there is no limit, the file contains a number near 2^63. */
        if (v[0] < (uint64_t)1 << 62)
            take_limit(r, out, v[0], "memory.usage_in_bytes", "total_");
    }
}

/* Lowers *out to the limits of this process's cgroup and of all its visible
 * parents. */
static void read_levels(struct reader *r, int which, struct available *out)
{
    const struct hierarchy *h = &r->of[which];
    size_t n = strlen(h->mount);

    if (h->rank == 0)
        return;
    snprintf(r->dir, sizeof r->dir, "%s%s", h->mount, h->below);
    for (;;) {
        char *slash;

        read_level(r, which, out);
        slash = strrchr(r->dir + n, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

/* ---- reading memory and limits ------------------------------------------- */

/* Returns the bytes of NUMA node `os` that are free or that cache files and can
 * be reclaimed. Returns UINT64_MAX if unknown. */
static uint64_t read_node(struct reader *r, int os)
{
    static const char *const name[] = {
        "MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:"};
    char path[64], prefix[32];
    uint64_t kib;

    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", os);
    snprintf(prefix, sizeof prefix, "Node %d ", os);
    if (sum_named(r, path, prefix, name, 4, &kib) == 0)
        return UINT64_MAX;
    return kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
}

pl_status available_read(struct available *out, struct available_node *node,
                         int n_node, available_open *open, void *user,
                         pl_err *err)
{
    static const char *const name[] = {"MemAvailable:"};
    struct reader *r = calloc(1, sizeof *r);
    uint64_t kib;

    *out = (struct available){UINT64_MAX, UINT64_MAX, INT_MAX};
    if (!r)
        return err_no_memory(err, "the limits of this process");
    r->open = open ? open : open_own;
    r->user = user;
    if (sum_named(r, "/proc/meminfo", "", name, 1, &kib) == 1)
        out->available_bytes = kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
    read_paths(r);
    read_mounts(r);
    for (int i = 0; i < N_HIERARCHY; i++)
        read_levels(r, i, out);
    for (int i = 0; i < n_node; i++)
        node[i].available_bytes = read_node(r, node[i].os);
    free(r);
    return PL_OK;
}

/* ---- parsing PLAIT_MEMORY ------------------------------------------------ */

/* Parses a size such as "12GiB": digits, then KiB, MiB, GiB or TiB. Returns the
 * text after the size, or NULL if the text does not begin with a size or the
 * size is 0. */
static const char *read_size(const char *s, uint64_t *bytes)
{
    static const char unit[] = "KMGT";

    s = read_digits(s, bytes);
    if (!s || *bytes == 0)
        return NULL;
    for (int i = 0; unit[i]; i++)
        if (s[0] == unit[i] && s[1] == 'i' && s[2] == 'B') {
            int shift = 10 * (i + 1);

            if (*bytes > UINT64_MAX >> shift)
                return NULL;
            *bytes <<= shift;
            return s + 3;
        }
    return NULL;
}

bool available_stated(const char *text, uint64_t *all, uint64_t *available)
{
    text = read_size(text, all);
    *available = *all;
    if (text && *text == ':')
        text = read_size(text + 1, available);
    return text && *text == '\0' && *available <= *all;
}
