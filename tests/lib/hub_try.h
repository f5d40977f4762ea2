/* A hub for tests, on this machine, that has a repository's listing and its
 * files, or files alone. It is a server with bare sockets, one connection per
 * request, that misbehaves on request. */
#ifndef TEST_HUB_TRY_H
#define TEST_HUB_TRY_H

#include "lib/support.h"

#include "hub/hub.h"

#include <pthread.h>
#include <stdatomic.h>

enum { HUB_TRY_FILES = 16 };

struct hub_try_file {
    char path[128];
    char *data; /* [n] contents of the file, owned */
    size_t n;
    char sum[65];    /* checksum in the listing; "" for none */
    uint64_t listed; /* size in bytes in the listing */
    char etag[32];   /* ETag of responses with this file; "" for none */
};

/* The hub. Tests set the fields before `lock` while no request is running. */
struct hub_try {
    int port;
    char origin[40]; /* address of the hub: "http://127.0.0.1:PORT" */
    /* name of the repository, "T/R"; requests for others get 404 */
    const char *repo;
    const char *revision; /* the repository's commit, in hexadecimal */
    struct hub_try_file file[HUB_TRY_FILES];
    int n_file;
    int page; /* number of files on each page of the listing; 0 for one page */
    /* text to send in place of the listing; NULL for the listing */
    const char *listing;
    /* the Link line of a listing; NULL for the one that `page` requires */
    const char *next;
    const char *token; /* token that requests must have; NULL for none */
    /* only requests for files need the token, as in gated repositories */
    bool token_of_files;
    /* origin to which requests for files are redirected; NULL for no
     * redirect */
    const char *redirect;
    int redirect_status;
    bool no_range; /* sends the whole file even if a range was requested */
    /* sends a part that begins at another offset than requested */
    bool wrong_range;
    /* sends no length, so that a body ends with the connection */
    bool no_length;
    /* number that is added to the length in the response's header */
    int64_t extra;
    int slow_us;  /* pause in microseconds after each `block` bytes of a file */
    size_t block; /* number of bytes sent at once; 0 for 64 KiB */
    /* number of bytes of a body after which the hub sends nothing more and
     * waits for the client to disconnect; 0 for never */
    size_t silent_at;
    /* number of responses that will be cut off after `cut_at` bytes of their
     * body */
    int n_cut;
    size_t cut_at; /* length in bytes to which bodies are cut */
    /* number of requests that will get `status` as their response */
    int n_status;
    int status;           /* HTTP status of these responses */
    bool status_of_files; /* true if only requests for files get `status` */

    pthread_mutex_t lock;
    pthread_cond_t gone;
    int fd, n_open;
    pthread_t thread;
    /* number of requests to the API, of requests for files, and of those with a
     * Range */
    atomic_int n_api, n_get, n_part;
    atomic_int n_token; /* number of requests with an Authorization line */
    /* number of requests with If-Range, and of responses with status 304 */
    atomic_int n_if_range, n_same;
    atomic_llong n_sent; /* bytes of files that were sent */
};

void hub_try_start(struct hub_try *t);
void hub_try_stop(struct hub_try *t);
/* Adds a file with a copy of these bytes. Its size, checksum and ETag are
 * correct until a test changes them. */
struct hub_try_file *hub_try_add(struct hub_try *t, const char *path,
                                 const void *data, size_t n);
/* Waits until no request is running, and sets all counts to 0. */
void hub_try_count(struct hub_try *t);

/* Adds a file of n random bytes. */
struct hub_try_file *hub_try_add_random(struct hub_try *t, const char *path,
                                        size_t n);

/* ---- a client ------------------------------------------------------------ */

/* A client of the hub, with a cache folder of its own, three tries per request,
 * and pauses of a millisecond between them. */
struct hub_use {
    struct hub_options o;
    char *path; /* path that the last call returned, owned */
    /* becomes nonzero, which cancels the download, when the client has
     * `stop_at` bytes of a file */
    volatile int stop;
    uint64_t stop_at; /* number of bytes after which to cancel; 0 for never */
    char log[1 << 14];
    pl_err err;
};

void hub_use_init(struct hub_use *u, const struct hub_try *t);
void hub_use_fini(struct hub_use *u);
/* Calls hub_fetch, which must return the status `want`. Its message or the log
 * must contain `said`, unless that is NULL. */
void hub_use(struct hub_use *u, const char *name, const char *file,
             pl_status want, const char *said);
/* Calls hub_fetch_url and checks the result as hub_use does. */
void hub_use_url(struct hub_use *u, const char *url, pl_status want,
                 const char *said);
/* Fails the case unless the file at u->path has the bytes of `f`. */
void hub_use_has(const struct hub_use *u, const struct hub_try_file *f);
/* Returns a path below the cache's folder for T/R, in static memory. */
const char *hub_use_place(const struct hub_use *u, const struct hub_try *t,
                          const char *revision, const char *path);

#endif
