/* Fuzzes the reader of the system's files on memory and cgroups: text that is
 * not a number gives no limit, and a path never overflows its buffer. The input
 * is a list of files, each a line "=== PATH" and its text. The reader gets the
 * file with the same last component of the path. */
#include "machine/available.h"

#include <stdlib.h>
#include <string.h>

int fuzz_limits(const uint8_t *data, size_t n);

struct files {
    char *text;
    size_t n;
};

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static FILE *open_one(void *user, const char *path)
{
    static const char mark[] = "=== ";
    const struct files *f = user;
    const char *name = strrchr(path, '/');
    size_t len = strlen(name);
    char *end = f->text + f->n;

    for (char *p = f->text; p < end;) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        char *text = stop ? stop + 1 : end;
        size_t n_line = (size_t)((stop ? stop : end) - p);
        char *next;

        if (n_line < len + 4 || memcmp(p, mark, 4) != 0 ||
            memcmp(p + n_line - len, name, len) != 0) {
            p = text;
            continue;
        }
        for (next = text; next < end && memcmp(next, mark, 4) != 0;) {
            stop = memchr(next, '\n', (size_t)(end - next));
            next = stop ? stop + 1 : end;
        }
        return next > text ? fmemopen(text, (size_t)(next - text), "r") : NULL;
    }
    return NULL;
}

int fuzz_limits(const uint8_t *data, size_t n)
{
    /* four extra bytes, so that comparing a marker "=== " stays inside the
     * buffer */
    struct files f = {malloc(n + 4), n};
    struct available_node node[] = {{.os = 0}, {.os = 31}};
    struct available a;
    uint64_t all, now;

    if (!f.text)
        return 0;
    if (n > 0)
        memcpy(f.text, data, n);
    memset(f.text + n, 0, 4);
    require(available_read(&a, node, 2, open_one, &f, NULL) == PL_OK);
    require(a.n_core >= 1);
    require(a.limit_bytes == UINT64_MAX || a.available_bytes <= a.limit_bytes);
    if (available_stated(f.text, &all, &now))
        require(now > 0 && now <= all);
    free(f.text);
    return 0;
}
