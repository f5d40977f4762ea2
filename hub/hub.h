/* Downloads models: a hub's repository, or a URL, becomes a file in the cache
 * folder, whose path is returned.
 *
 * A file that is already present is not downloaded again, and the received part
 * of a file stays if a download ends early. If several processes want one file,
 * one downloads it and the others wait. Names from outside never lead out of
 * the cache folder, and the token is sent only to the endpoint's host. The
 * folder contains:
 *
 *   hub/HOST/USER/REPO/REVISION/PATH    a complete file, checksum verified
 *   hub/HOST/USER/REPO/REVISION/PATH.part, PATH.part.etag    a partial file
 *   hub/HOST/USER/REPO/REVISION.json    the revision's listing
 *   url/SUM/NAME, NAME.etag             of a URL whose SHA-256 begins with SUM
 *   .../lock                            held by the writer of that folder
 *
 * HTTP is done by libcurl, which only hub_transfer.c uses. */
#ifndef HUB_H
#define HUB_H

#include "pl.h"

/* Zeros are the defaults. All members are borrowed for the call. */
struct hub_options {
    const char *endpoint; /* NULL: "https://huggingface.co" */
    const char *token;    /* NULL: none */
    const char *cache;    /* the cache folder; must be given */
    bool offline;         /* never use the network, only the cache */
    /* tries of a request before it fails; one that receives bytes does not
     * count; 0: 6 */
    int n_try;
    /* before the second try; doubles with each try, up to half a minute; 0:
     * 1000 */
    int pause_ms;
    int timeout_s;            /* without a byte; 0: 60 */
    const volatile int *stop; /* a nonzero value cancels; may be NULL */
    /* a file's name, its bytes received, and its size (0: unknown); may be
     * NULL */
    pl_progress_fn *progress;
    void *progress_user;
    pl_log_fn *log; /* may be NULL */
    void *log_user;
};

/* Downloads a model from the hub. `name` is USER/REPO or USER/REPO:QUANT.
 * `file`, unless NULL, is the path of a GGUF file in the repository and takes
 * precedence over QUANT. Without either, Q4_K_M, Q4_0, Q8_0 or the first file
 * is chosen. All files of a split model are fetched. *path is malloc'ed: the
 * model's (first) file.
 *
 * If the endpoint cannot be reached, the cached model is used, with a warning.
 * BAD_ARGUMENT: `name` or `file` is not of that form. NOT_FOUND: the repository
 * does not exist, it is closed to this token, or it lacks the file; the message
 * lists its files. BAD_FILE: the received bytes do not match the listing. IO:
 * the hub cannot be reached, or the folder cannot be written. FULL: the disk is
 * full. CANCELLED: by `stop`. */
pl_status hub_fetch(char **path, const struct hub_options *o, const char *name,
                    const char *file, pl_err *err);

/* Downloads the GGUF file at a URL, "https://HOST/.../NAME.gguf". For a split
 * model this is the first file, and the others are expected in the same place.
 * A cached file is revalidated by its ETag. No token is sent. Errors as
 * above. */
pl_status hub_fetch_url(char **path, const struct hub_options *o,
                        const char *url, pl_err *err);

/* Returns a URL for display: without the user name and password before its
 * host, and without the part after a "?", which may be a signature. */
enum { HUB_SHOWN = 320 };
const char *hub_shown(char buf[HUB_SHOWN], const char *url);

/* Returns $PLAIT_CACHE, else $XDG_CACHE_HOME/plait, else ~/.cache/plait;
 * malloc'ed. NOT_FOUND: none of them is set. */
pl_status hub_cache_folder(char **folder, pl_err *err);

#endif
