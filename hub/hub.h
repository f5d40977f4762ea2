/* Downloads models from a repository of a hub, or from a URL, to files in the
 * cache folder, and returns the path of the model's file.
 *
 * A file that is already present is not downloaded again. If a download fails,
 * the bytes received so far are kept, and the next download resumes there. If
 * several processes need the same file, one downloads it and the others wait.
 * File names from a hub or URL never lead out of the cache folder. The access
 * token is sent only to the host of the hub. The cache folder contains:
 *
 *   hub/HOST/USER/REPO/REVISION/PATH    a complete file, checksum verified
 *   hub/HOST/USER/REPO/REVISION/PATH.part, PATH.part.etag    a partial file
 *   hub/HOST/USER/REPO/REVISION.json    the revision's listing
 *   url/SUM/NAME, NAME.etag             of a URL whose SHA-256 begins with SUM
 *   .../lock                            held by the writer of that folder
 *
 * HTTP is done by libcurl, which is used only by hub_transfer.c. */
#ifndef HUB_H
#define HUB_H

#include "pl.h"

/* Options of a download. Fields that are 0 or NULL select the defaults. Strings
 * are borrowed for the duration of the call. */
struct hub_options {
    /* URL of the hub's API; NULL for "https://huggingface.co". */
    const char *endpoint;
    const char *token; /* access token for the hub; NULL if none */
    const char *cache; /* path of the cache folder; must not be NULL */
    bool offline;      /* use only cached files, never the network */
    /* Number of times that a request is tried before the download fails; 0 for
     * 6. A try that receives bytes is not counted. */
    int n_try;
    /* Milliseconds between the first and the second try of a request; 0 for
     * 1000. The pause doubles after each further try, up to 30 seconds. */
    int pause_ms;
    /* a try fails after this many seconds without data; 0 for 60. */
    int timeout_s;
    /* The download is cancelled when *stop is nonzero; may be NULL. */
    const volatile int *stop;
    /* Called during a download with the name of a file, the number of its bytes
     * received so far, and its size in bytes, which is 0 if unknown. May be
     * NULL. */
    pl_progress_fn *progress;
    void *progress_user;
    pl_log_fn *log; /* receives the log messages of the download; may be NULL */
    void *log_user;
};

/* Downloads a model from the hub. `name` is USER/REPO or USER/REPO:QUANT.
 * `file` is the path of a GGUF file in the repository, which takes precedence
 * over QUANT; NULL if none. Without either, Q4_K_M, Q4_0, Q8_0 or the first
 * file is chosen. All files of a split model are fetched. *path is malloc'ed
 * and names the file of the model, of a split model the first.
 *
 * If the endpoint cannot be reached, the cached model is used, with a warning.
 * BAD_ARGUMENT: `name` or `file` has another form. NOT_FOUND: the repository
 * does not exist, the token has no access to it, or it does not contain the
 * file; the message lists the files that it contains. BAD_FILE: the received
 * bytes do not match the listing. IO: the hub cannot be reached, or the cache
 * folder cannot be written. FULL: the disk is full. CANCELLED: by `stop`. */
pl_status hub_fetch(char **path, const struct hub_options *o, const char *name,
                    const char *file, pl_err *err);

/* Downloads the GGUF file at a URL, "https://HOST/.../NAME.gguf". For a split
 * model this is the URL of the first file; the others are expected in the same
 * folder of the server. Before a cached file is used, a request with its ETag
 * asks the server for a newer version. No access token is sent. *path and the
 * errors are those of hub_fetch. */
pl_status hub_fetch_url(char **path, const struct hub_options *o,
                        const char *url, pl_err *err);

/* Receives a model that is in the cache: its name, USER/REPO:QUANT, and the
 * path of its file, of a split model the first. If QUANT chooses another file
 * of the repository, the name of the file stands for it, without its ending, or
 * its path. Returns false if out of memory. */
typedef bool hub_cached_fn(void *user, const char *name, const char *path);
/* Calls `each` for each model of the hub o->endpoint of which all files are in
 * the cache. Repositories are in the order of their names. The models of a
 * repository's newest revision are first, so a name may follow again with an
 * older file. Does not use the network. NO_MEMORY: also if `each` returned
 * false. */
pl_status hub_cached(const struct hub_options *o, hub_cached_fn *each,
                     void *user, pl_err *err);

/* Writes a URL to buf for display, and returns buf. Leaves out the user name
 * and password before the host, and the part after a "?", which may contain a
 * signature. */
enum { HUB_SHOWN = 320 };
const char *hub_shown(char buf[HUB_SHOWN], const char *url);

/* Sets *folder to the path of the default cache folder, malloc'ed:
 * $PLAIT_CACHE, else $XDG_CACHE_HOME/plait, else $HOME/.cache/plait. NOT_FOUND:
 * none of these variables is set. Other errors: NO_MEMORY. */
pl_status hub_cache_folder(char **folder, pl_err *err);

#endif
