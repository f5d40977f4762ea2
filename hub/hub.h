/* Models from elsewhere: a hub's repository, or an address, becomes a file in
 * the cache folder, whose path is handed out.
 *
 * What is there already is not downloaded again, and what has come of a file
 * stays when a download ends early. Of several processes that want one file one
 * downloads it and the others wait. Names that come from outside never lead out
 * of the cache folder, and the token goes to no other host than the endpoint.
 * In the folder:
 *
 *   hub/HOST/USER/REPO/REVISION/PATH    a whole file, its checksum seen to
 *   hub/HOST/USER/REPO/REVISION/PATH.part, PATH.part.etag    one that is coming
 *   hub/HOST/USER/REPO/REVISION.json    the revision's listing
 *   url/SUM/NAME, NAME.etag             of an address whose SHA-256 begins so
 *   .../lock                            held by who writes beside it
 *
 * HTTP is libcurl's, known in hub_transfer.c only. */
#ifndef HUB_H
#define HUB_H

#include "pl.h"

/* Zeros are the defaults. All is borrowed for the call. */
struct hub_options {
    const char *endpoint; /* NULL: "https://huggingface.co" */
    const char *token;    /* NULL: none */
    const char *cache;    /* the cache folder; must be given */
    bool offline;         /* ask nobody: what is in the cache, or nothing */
    int n_try;     /* of a request before it fails; what brings bytes does not
                      count; 0: 6 */
    int pause_ms;  /* before the second try; doubles from try to try up to half
                      a minute; 0: 1000 */
    int timeout_s; /* without a byte; 0: 60 */
    const volatile int *stop; /* nonzero ends it soon; NULL: nothing does */
    pl_progress_fn *progress; /* a file's name, bytes of it that are there, and
                                 all (0: not known); NULL: nobody */
    void *progress_user;
    pl_log_fn *log; /* NULL: nobody is told */
    void *log_user;
};

/* `name` is USER/REPO or USER/REPO:QUANT; `file`, unless NULL, the path of a
 * GGUF file in there, which goes before QUANT. Without either Q4_K_M, Q4_0,
 * Q8_0 or the first file is taken. Of a split model all files are fetched.
 * *path is malloc'ed: the model's (first) file.
 *
 * If the endpoint cannot be reached, what the cache has is taken, with a
 * warning. BAD_ARGUMENT: `name` or `file` is not of that form. NOT_FOUND: there
 * is no such repository, it is closed to this token, or it lacks the file; the
 * message lists what it has. BAD_FILE: what has come is not what the listing
 * says. IO: the hub cannot be reached, or the folder not be written to. FULL:
 * the disk is. CANCELLED: by `stop`. */
pl_status hub_fetch(char **path, const struct hub_options *o, const char *name,
                    const char *file, pl_err *err);

/* The GGUF file at an address, "https://HOST/.../NAME.gguf"; of a split model
 * the first, and the others are taken to lie beside it. What is in the cache is
 * asked for again by its ETag. No token is sent. Errors as above. */
pl_status hub_fetch_url(char **path, const struct hub_options *o,
                        const char *url, pl_err *err);

/* An address as people may see it: without the name and the password before its
 * host, and without what is behind a "?", which may be a signature. */
enum { HUB_SHOWN = 320 };
const char *hub_shown(char buf[HUB_SHOWN], const char *url);

/* $PLAIT_CACHE, else $XDG_CACHE_HOME/plait, else ~/.cache/plait; malloc'ed.
 * NOT_FOUND: none of them is set. */
pl_status hub_cache_folder(char **folder, pl_err *err);

#endif
