/* The file list of one revision of a repository. The hub sends it as a JSON
 * list of {"type": "file", "path", "size", "lfs": {"oid", "size"}}. Only GGUF
 * files are kept in the list. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub_sha256.h"
#include "pl.h"

struct hub_file {
    /* Path of the file in the repository, which hub_path_is_safe accepts;
     * owned. */
    char *path;
    uint64_t size;
    /* SHA-256 of the file, 64 hexadecimal digits in lower case; "" if
     * unknown. */
    char sha256[HUB_SHA256];
};

struct hub_listing {
    /* The files, [n], in the order in which the hub lists them; owned. */
    struct hub_file *file;
    int n, cap;
};

/* Adds the GGUF files in json [n], one part of a hub's file list, to *l, which
 * is {0} at first. BAD_FILE: the JSON is not such a list, has too many files,
 * or has a path that is not safe. Other errors: NO_MEMORY. */
pl_status hub_listing_read(struct hub_listing *l, const char *json, size_t n,
                           pl_err *err);
/* Returns the file list as JSON text, malloc'ed; NULL if out of memory. */
char *hub_listing_write(const struct hub_listing *l);
void hub_listing_fini(struct hub_listing *l);
/* Returns the file of the list that has this path; NULL if there is none. */
const struct hub_file *hub_listing_find(const struct hub_listing *l,
                                        const char *path);

/* Returns true if `path` is a relative path that stays below the folder to
 * which it is appended. No component may be empty, "." or "..", or so long that
 * the file name with a suffix is too long. Control characters and backslashes
 * are not allowed. */
bool hub_path_is_safe(const char *path);

/* ---- choosing the files of a model --------------------------------------- */

/* The files of a model, chosen from a repository's file list. */
struct hub_pick {
    /* The files in order, [n]; the first one is the file to open; the array is
     * owned, its elements are borrowed from the file list. */
    const struct hub_file **file;
    int n;
};

/* Chooses the files of a model from the file list *l: the file with the path
 * `path`; if that is NULL, the file of the quantization `quant`; if both are
 * NULL, the default (see hub_fetch). `repo` is the repository's name for
 * messages. NOT_FOUND: there is no such file, or a file of the split model is
 * missing. Other errors: NO_MEMORY. The caller calls hub_pick_fini in all
 * cases. */
pl_status hub_pick(struct hub_pick *p, const struct hub_listing *l,
                   const char *repo, const char *quant, const char *path,
                   pl_err *err);
void hub_pick_fini(struct hub_pick *p);

/* Returns true if `path` is the only file of a model, or the first of a split
 * one. Companion files, such as projectors, draft models and importance
 * matrices, are not models. */
bool hub_is_model(const char *path);
/* Returns the last word of a file name before ".gguf" or, in a split model,
 * before the file's number. Sets *n to the length of the word. Usually this
 * word is the quantization, such as Q4_K_M. */
const char *hub_quant(const char *path, size_t *n);
/* Parses the file name of a split model, "NAME-00002-of-00005.gguf". Sets *at
 * to the offset of the number 00002 in `path`, *index to this number (2), and
 * *count to the number of files (5). Returns false if the name has another
 * form. */
bool hub_split_name(const char *path, size_t *at, int *index, int *count);
/* Returns the name or URL of file number `index` of a split model, malloc'ed;
 * NULL if out of memory. `path` is the name or URL of another file of this
 * model, and `at` the offset of the number in it. */
char *hub_split_other(const char *path, size_t at, int index);

#endif
