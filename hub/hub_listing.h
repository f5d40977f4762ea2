/* Which files a revision of a repository has, as the hub lists them: a JSON
 * list of {"type": "file", "path", "size", "lfs": {"oid", "size"}}. Only GGUF
 * files are kept. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub_sha256.h"
#include "pl.h"

struct hub_file {
    char *path; /* owned; hub_path_is_safe */
    uint64_t size;
    char sha256[HUB_SHA256]; /* in small letters; "": the hub has none */
};

struct hub_listing {
    struct hub_file *file; /* owned, [n], in the hub's order */
    int n, cap;
};

/* Adds the files of one page; *l is zeros at first. BAD_FILE: it is no such
 * list, or a name in it would lead out of the cache folder. */
pl_status hub_listing_read(struct hub_listing *l, const char *json, size_t n,
                           pl_err *err);
/* The same as JSON, malloc'ed; NULL: no memory. */
char *hub_listing_write(const struct hub_listing *l);
void hub_listing_fini(struct hub_listing *l);
/* The file of this path, or NULL. */
const struct hub_file *hub_listing_find(const struct hub_listing *l,
                                        const char *path);

/* Relative, below where it is joined to: no part of it is empty, "." or "..";
 * none is too long for a file's name with an ending; no controls, no
 * backslashes. */
bool hub_path_is_safe(const char *path);

/* ---- which of them ------------------------------------------------------- */

/* The files of one model. */
struct hub_pick {
    const struct hub_file **file; /* owned, [n], of the listing; the first is
                                     what is opened */
    int n;
};

/* `quant` and `path` may be NULL; see hub_fetch. `repo` is for messages.
 * NOT_FOUND: there is no such file, or one of a split model is missing. */
pl_status hub_pick(struct hub_pick *p, const struct hub_listing *l,
                   const char *repo, const char *quant, const char *path,
                   pl_err *err);
void hub_pick_fini(struct hub_pick *p);

/* "NAME-00002-of-00005.gguf": where its number begins, and how many there are;
 * false: it is no such name. */
bool hub_split_name(const char *path, size_t *at, int *index, int *count);
/* The name of another file of the set, malloc'ed; `behind`, of an address, is
 * kept. NULL: no memory. */
char *hub_split_other(const char *path, size_t at, int index);

#endif
