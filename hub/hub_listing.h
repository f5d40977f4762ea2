/* The files of a repository's revision, as the hub lists them: a JSON list of
 * {"type": "file", "path", "size", "lfs": {"oid", "size"}}. Only GGUF files are
 * kept. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub_sha256.h"
#include "pl.h"

struct hub_file {
    char *path; /* owned; hub_path_is_safe */
    uint64_t size;
    char sha256[HUB_SHA256]; /* lower case; "": the hub has none */
};

struct hub_listing {
    struct hub_file *file; /* owned, [n], in the hub's order */
    int n, cap;
};

/* Adds the files of one page; *l is zeros at first. BAD_FILE: not such a list,
 * or a name in it would lead out of the cache folder. */
pl_status hub_listing_read(struct hub_listing *l, const char *json, size_t n,
                           pl_err *err);
/* Returns the listing as JSON, malloc'ed; NULL if out of memory. */
char *hub_listing_write(const struct hub_listing *l);
void hub_listing_fini(struct hub_listing *l);
/* Returns the file with this path, or NULL. */
const struct hub_file *hub_listing_find(const struct hub_listing *l,
                                        const char *path);

/* Returns true if the path is relative and stays below the folder it is
 * appended to. No part may be empty, "." or "..", or too long for a file name
 * with a suffix. Control characters and backslashes are not allowed. */
bool hub_path_is_safe(const char *path);

/* ---- choosing files ------------------------------------------------------ */

/* The files of one model. */
struct hub_pick {
    /* owned, [n], from the listing; the first is the one to open */
    const struct hub_file **file;
    int n;
};

/* Chooses the files of a model. `quant` and `path` may be NULL; see hub_fetch.
 * `repo` is for messages. NOT_FOUND: no such file, or one of a split model is
 * missing. */
pl_status hub_pick(struct hub_pick *p, const struct hub_listing *l,
                   const char *repo, const char *quant, const char *path,
                   pl_err *err);
void hub_pick_fini(struct hub_pick *p);

/* Parses "NAME-00002-of-00005.gguf": the offset of its number, the number, and
 * the count. Returns false if the name has another form. */
bool hub_split_name(const char *path, size_t *at, int *index, int *count);
/* Returns the name of another file of the set, malloc'ed; the part of a URL
 * after it is kept. NULL if out of memory. */
char *hub_split_other(const char *path, size_t at, int index);

#endif
