/* The listing of the files in a revision of a repository. The hub sends it as a
 * JSON list of {"type": "file", "path", "size", "lfs": {"oid", "size"}}. Only
 * GGUF files are kept. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub_sha256.h"
#include "pl.h"

struct hub_file {
    char *path; /* owned; checked by hub_path_is_safe */
    uint64_t size;
    char sha256[HUB_SHA256]; /* SHA-256 in lower case; "" if unknown */
};

struct hub_listing {
    struct hub_file *file; /* owned, [n], in the order of the hub */
    int n, cap;
};

/* Adds the GGUF files of one page of a listing, json [n]; *l is {0} at first.
 * BAD_FILE: it is not such a list, has too many files, or has a path that is
 * not safe. Other errors: NO_MEMORY. */
pl_status hub_listing_read(struct hub_listing *l, const char *json, size_t n,
                           pl_err *err);
/* Returns the listing as JSON, malloc'ed; NULL if out of memory. */
char *hub_listing_write(const struct hub_listing *l);
void hub_listing_fini(struct hub_listing *l);
/* Returns the file with this path, or NULL. */
const struct hub_file *hub_listing_find(const struct hub_listing *l,
                                        const char *path);

/* Returns true if `path` is relative and names a file below the folder that it
 * is appended to. No component may be empty, "." or "..", or too long for a
 * file name with a suffix. Control characters and backslashes are not
 * allowed. */
bool hub_path_is_safe(const char *path);

/* ---- choice of a model's files ------------------------------------------- */

/* The files chosen for a model. */
struct hub_pick {
    /* the files in order, of which the first is opened; owned, [n], borrowed
     * from the listing */
    const struct hub_file **file;
    int n;
};

/* Chooses the files of a model from a listing. The file is that of `path` or,
 * if NULL, that of `quant` or, if NULL, the default (see hub_fetch). `repo` is
 * used in messages. NOT_FOUND: there is no such file, or a file of the split
 * model is missing. Other errors: NO_MEMORY. The caller calls hub_pick_fini in
 * all cases. */
pl_status hub_pick(struct hub_pick *p, const struct hub_listing *l,
                   const char *repo, const char *quant, const char *path,
                   pl_err *err);
void hub_pick_fini(struct hub_pick *p);

/* Parses the name of a file of a split model, "NAME-00002-of-00005.gguf". Sets
 * *at to the offset of the number 00002, *index to this number and *count to
 * the number of files. Returns false if the name has another form. */
bool hub_split_name(const char *path, size_t *at, int *index, int *count);
/* Returns the name or URL of file number `index` of the same split model,
 * malloc'ed; NULL if out of memory. `at` is the offset of the number in
 * `path`. */
char *hub_split_other(const char *path, size_t at, int index);

#endif
