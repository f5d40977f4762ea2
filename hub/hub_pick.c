/* Chooses the files of a model from a repository's file list by llama.cpp's
 * rules, so that the same arguments select the same file. There is one
 * difference: a file name in which QUANT is a whole word takes precedence over
 * one in which QUANT only ends a word, as Q4_XS ends IQ4_XS. */
#include "hub_inner.h"
#include "hub_listing.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- properties of file names -------------------------------------------- */

static bool digits(const char *s, int n, int *value)
{
    *value = 0;
    for (int i = 0; i < n; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        *value = 10 * *value + (s[i] - '0');
    }
    return true;
}

bool hub_split_name(const char *path, size_t *at, int *index, int *count)
{
    /* Length of the end of a split model's file name, "-00002-of-00005.gguf",
     * in bytes. */
    enum { TAIL = 20 };
    size_t n = strlen(path);
    const char *s = path + n - TAIL;

    if (n <= TAIL || s[0] != '-' || !digits(s + 1, 5, index) ||
        strncmp(s + 6, "-of-", 4) != 0 || !digits(s + 10, 5, count) ||
        strcasecmp(s + 15, ".gguf") != 0)
        return false;
    *at = n - TAIL + 1;
    return *index >= 1 && *index <= *count;
}

char *hub_split_other(const char *path, size_t at, int index)
{
    char *other = strdup(path);
    char number[16];

    snprintf(number, sizeof number, "%05d", index);
    if (other != NULL)
        memcpy(other + at, number, 5);
    return other;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

bool hub_is_model(const char *path)
{
    static const char *const beside[] = {"mtp-", "eagle3-", "dflash-",
                                         "dspark-"};
    const char *base = base_of(path);
    size_t at;
    int index, count;

    if (strcasestr(base, "mmproj") != NULL ||
        strcasestr(base, "imatrix") != NULL)
        return false;
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        if (strstr(base, beside[i]) != NULL)
            return false;
    return !hub_split_name(path, &at, &index, &count) || index == 1;
}

const char *hub_quant(const char *path, size_t *n)
{
    const char *base = base_of(path);
    size_t all = strlen(base) - 5, at, begin;
    int index, count;

    if (hub_split_name(path, &at, &index, &count))
        all -= 15;
    begin = all;
    while (begin > 0 && base[begin - 1] != '-' && base[begin - 1] != '.')
        begin--;
    *n = all - begin;
    return base + begin;
}

/* Returns true if the path contains the text `quant`, in upper or lower case,
 * followed by '-' or '.'. If `alone`, a separator must precede it, unless it
 * begins the path. */
static bool has_quant(const char *path, const char *quant, bool alone)
{
    size_t n = strlen(quant);

    for (const char *s = path; (s = strcasestr(s, quant)) != NULL; s++)
        if ((s[n] == '-' || s[n] == '.') &&
            (!alone || s == path || strchr("-._/", s[-1]) != NULL))
            return true;
    return false;
}

/* ---- lists of files for error messages ----------------------------------- */

static void add(char *list, size_t size, const char *s, size_t n)
{
    size_t have = strlen(list);

    if (have + n + 8 < size)
        snprintf(list + have, size - have, "%s%.*s", have > 0 ? ", " : "",
                 (int)n, s);
    else if (have + 6 < size && !strstr(list, ", ..."))
        strcat(list, ", ...");
}

static bool is_listed(const char *list, const char *s, size_t n)
{
    for (const char *at = list; *at != '\0';) {
        size_t len = strcspn(at, ",");

        if (len == n && strncasecmp(at, s, n) == 0)
            return true;
        at += len;
        at += strspn(at, ", ");
    }
    return false;
}

/* Writes a list for error messages to `text`: the paths of all files if
 * `paths`, else the quantizations of all models. */
static void list(char *text, size_t size, const struct hub_listing *l,
                 bool paths)
{
    text[0] = '\0';
    for (int i = 0; i < l->n; i++) {
        const char *path = l->file[i].path, *s = path;
        size_t n = strlen(path);

        if (!paths && !hub_is_model(path))
            continue;
        if (!paths)
            s = hub_quant(path, &n);
        if (!is_listed(text, s, n))
            add(text, size, s, n);
    }
}

/* ---- choosing the files of a model --------------------------------------- */

static const struct hub_file *of_quant(const struct hub_listing *l,
                                       const char *quant)
{
    for (int alone = 1; alone >= 0; alone--)
        for (int i = 0; i < l->n; i++)
            if (hub_is_model(l->file[i].path) &&
                has_quant(l->file[i].path, quant, alone))
                return &l->file[i];
    return NULL;
}

static const struct hub_file *of_default(const struct hub_listing *l)
{
    static const char *const quants[] = {"Q4_K_M", "Q4_0", "Q8_0"};
    const struct hub_file *f = NULL;

    for (size_t i = 0; i < sizeof quants / sizeof quants[0] && f == NULL; i++)
        f = of_quant(l, quants[i]);
    for (int i = 0; i < l->n && f == NULL; i++)
        if (hub_is_model(l->file[i].path))
            f = &l->file[i];
    return f;
}

static pl_status not_there(const struct hub_listing *l, const char *repo,
                           const char *quant, const char *path, pl_err *err)
{
    char text[600];

    list(text, sizeof text, l, path != NULL);
    if (text[0] == '\0')
        return hub_fail(err, PL_NOT_FOUND,
                        "%s has no GGUF file of a model; look for a repository "
                        "whose name ends in -GGUF",
                        repo);
    if (path != NULL)
        return hub_fail(err, PL_NOT_FOUND, "%s has no file %.100s; it has: %s",
                        repo, path, text);
    return hub_fail(err, PL_NOT_FOUND, "%s has no %.100s; it has: %s", repo,
                    quant, text);
}

static pl_status pick_split(struct hub_pick *p, const struct hub_listing *l,
                            const struct hub_file *f, size_t at, int count,
                            pl_err *err)
{
    if (count > l->n)
        return hub_fail(err, PL_NOT_FOUND,
                        "%.300s: the hub lacks some of its %d files", f->path,
                        count);
    p->file = calloc((size_t)count, sizeof *p->file);
    if (p->file == NULL)
        return hub_no_memory(err);
    for (p->n = 0; p->n < count; p->n++) {
        char *path = hub_split_other(f->path, at, p->n + 1);

        if (path == NULL)
            return hub_no_memory(err);
        p->file[p->n] = hub_listing_find(l, path);
        if (p->file[p->n] == NULL)
            hub_fail(err, PL_NOT_FOUND, "%.300s: the hub lacks it", path);
        free(path);
        if (p->file[p->n] == NULL)
            return PL_NOT_FOUND;
    }
    return PL_OK;
}

pl_status hub_pick(struct hub_pick *p, const struct hub_listing *l,
                   const char *repo, const char *quant, const char *path,
                   pl_err *err)
{
    const struct hub_file *f = path != NULL    ? hub_listing_find(l, path)
                               : quant != NULL ? of_quant(l, quant)
                                               : of_default(l);
    size_t at;
    int index, count;

    *p = (struct hub_pick){0};
    if (f == NULL)
        return not_there(l, repo, quant, path, err);
    if (hub_split_name(f->path, &at, &index, &count))
        return pick_split(p, l, f, at, count, err);
    p->file = calloc(1, sizeof *p->file);
    if (p->file == NULL)
        return hub_no_memory(err);
    p->file[0] = f;
    p->n = 1;
    return PL_OK;
}

void hub_pick_fini(struct hub_pick *p)
{
    free(p->file);
    *p = (struct hub_pick){0};
}
