/* Reads and writes the list of a repository's files; see hub_listing.h. Lists
 * from a hub are not trusted: file names are checked before they are stored,
 * sizes and checksums before they are used. */
#include "hub_listing.h"

#include "hub_inner.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Limit of the number of files in a list; the largest known repositories
     * have hundreds. */
    MOST_FILES = 4096,
    MOST_PATH = 1024,
    /* Limit of the length of a path component, in bytes. File systems allow
     * 255; the rest is for the suffix ".part.etag". */
    MOST_NAME = 240,
};

/* ---- checking file names ------------------------------------------------- */

static bool name_is_safe(const char *s, size_t n)
{
    return n > 0 && n <= MOST_NAME && !(n == 1 && s[0] == '.') &&
           !(n == 2 && s[0] == '.' && s[1] == '.');
}

bool hub_path_is_safe(const char *path)
{
    size_t all = strlen(path);

    if (all > MOST_PATH)
        return false;
    for (const unsigned char *p = (const unsigned char *)path; *p != 0; p++)
        if (*p < ' ' || *p == 0x7f || *p == '\\')
            return false;
    for (;;) {
        size_t n = strcspn(path, "/");

        if (!name_is_safe(path, n))
            return false;
        if (path[n] == '\0')
            return true;
        path += n + 1;
    }
}

static bool is_gguf(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && strcasecmp(path + n - 5, ".gguf") == 0;
}

/* ---- reading and writing file lists -------------------------------------- */

static bool read_sum(char sum[HUB_SHA256], const char *text)
{
    if (strncmp(text, "sha256:", 7) == 0)
        text += 7;
    if (strlen(text) != HUB_SHA256 - 1)
        return false;
    for (int i = 0; i < HUB_SHA256 - 1; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return false;
        sum[i] = (char)tolower((unsigned char)text[i]);
    }
    sum[HUB_SHA256 - 1] = '\0';
    return true;
}

static pl_status add_file(struct hub_listing *l, const char *path,
                          uint64_t size, const char *sum, pl_err *err)
{
    struct hub_file *f;

    if (l->n == l->cap) {
        int cap = 2 * l->cap + 16;

        f = realloc(l->file, (size_t)cap * sizeof *f);
        if (f == NULL)
            return hub_no_memory(err);
        l->file = f;
        l->cap = cap;
    }
    f = &l->file[l->n];
    *f = (struct hub_file){.path = strdup(path), .size = size};
    if (f->path == NULL)
        return hub_no_memory(err);
    strcpy(f->sha256, sum);
    l->n++;
    return PL_OK;
}

static pl_status read_file(struct hub_listing *l, json_t *j, pl_err *err)
{
    json_t *lfs = json_object_get(j, "lfs");
    json_t *size = json_object_get(lfs, "size");
    const char *path = json_string_value(json_object_get(j, "path"));
    const char *type = json_string_value(json_object_get(j, "type"));
    const char *oid = json_string_value(json_object_get(lfs, "oid"));
    char sum[HUB_SHA256] = "";

    if (path == NULL || type == NULL)
        return hub_fail(err, PL_BAD_FILE,
                        "the hub's listing: an entry without path or type");
    if (strcmp(type, "file") != 0 || !is_gguf(path))
        return PL_OK;
    if (!hub_path_is_safe(path))
        return hub_fail(err, PL_BAD_FILE,
                        "the hub's listing: \"%.300s\" is not a safe file "
                        "name; the listing was rejected",
                        path);
    if (size == NULL)
        size = json_object_get(j, "size");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return hub_fail(err, PL_BAD_FILE,
                        "the hub's listing: %.300s has no size", path);
    if (oid != NULL && !read_sum(sum, oid))
        return hub_fail(
            err, PL_BAD_FILE,
            "the hub's listing: %.300s has an invalid SHA-256 sum \"%.100s\"",
            path, oid);
    if (hub_listing_find(l, path) != NULL)
        return hub_fail(err, PL_BAD_FILE,
                        "the hub's listing: %.300s is listed twice", path);
    return add_file(l, path, (uint64_t)json_integer_value(size), sum, err);
}

pl_status hub_listing_read(struct hub_listing *l, const char *json, size_t n,
                           pl_err *err)
{
    json_error_t e;
    json_t *all = json_loadb(json, n, JSON_REJECT_DUPLICATES, &e), *one;
    pl_status s = PL_OK;
    size_t i;

    if (!json_is_array(all))
        s = hub_fail(err, PL_BAD_FILE,
                     "the hub's listing is not a JSON list%s%s",
                     all == NULL ? ": " : "", all == NULL ? e.text : "");
    json_array_foreach (all, i, one) {
        if (s == PL_OK && l->n == MOST_FILES)
            s = hub_fail(err, PL_BAD_FILE,
                         "the hub's listing has more than %d GGUF files",
                         MOST_FILES);
        if (s == PL_OK)
            s = read_file(l, one, err);
    }
    json_decref(all);
    return s;
}

char *hub_listing_write(const struct hub_listing *l)
{
    json_t *all = json_array();
    char *text = NULL;
    size_t n;

    for (int i = 0; i < l->n; i++) {
        const struct hub_file *f = &l->file[i];
        json_t *one = json_pack("{s:s, s:s, s:I}", "type", "file", "path",
                                f->path, "size", (json_int_t)f->size);

        if (f->sha256[0] != '\0' &&
            json_object_set_new(one, "lfs",
                                json_pack("{s:s, s:I}", "oid", f->sha256,
                                          "size", (json_int_t)f->size)) != 0) {
            json_decref(one);
            one = NULL;
        }
        json_array_append_new(all, one);
    }
    /* json_dumps would drop a character for which it has no memory */
    n = json_dumpb(all, NULL, 0, JSON_INDENT(1));
    if ((int)json_array_size(all) == l->n && n > 0)
        text = malloc(n + 1);
    if (text != NULL && json_dumpb(all, text, n, JSON_INDENT(1)) == n) {
        text[n] = '\0';
    } else {
        free(text);
        text = NULL;
    }
    json_decref(all);
    return text;
}

void hub_listing_fini(struct hub_listing *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->file[i].path);
    free(l->file);
    *l = (struct hub_listing){0};
}

const struct hub_file *hub_listing_find(const struct hub_listing *l,
                                        const char *path)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->file[i].path, path) == 0)
            return &l->file[i];
    return NULL;
}
