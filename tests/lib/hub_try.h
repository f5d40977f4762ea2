/* A hub for tests, on this machine: a repository's listing and its files, or
 * files alone. It is a server with bare sockets that misbehaves on request. One
 * connection a request. */
#ifndef TEST_HUB_TRY_H
#define TEST_HUB_TRY_H

#include "lib/support.h"

#include "hub/hub.h"

#include <pthread.h>
#include <stdatomic.h>

enum { HUB_TRY_FILES = 16 };

struct hub_try_file {
    char path[128];
    char *data; /* owned, [n] */
    size_t n;
    char sum[65];    /* as listed; "": none */
    uint64_t listed; /* size as listed */
    char etag[32];   /* "": none */
};

/* The fields up to `lock` are set before a request, and never during one. */
struct hub_try {
    int port;
    char origin[40];      /* "http://127.0.0.1:PORT" */
    const char *repo;     /* "T/R"; any other gets 404 */
    const char *revision; /* hexadecimal */
    struct hub_try_file file[HUB_TRY_FILES];
    int n_file;
    int page;             /* files on a page of the listing; 0: all */
    const char *listing;  /* sent instead of the right one; NULL: not */
    const char *next;     /* the Link of a listing; NULL: by `page` */
    const char *token;    /* required token; NULL: none */
    bool token_of_files;  /* required for files only, as in gated
                           * repositories */
    const char *redirect; /* origin of the files; NULL: here */
    int redirect_status;
    bool no_range;    /* sends all, whatever range was requested */
    bool wrong_range; /* a part begins at another offset than requested */
    bool no_length;   /* bodies end when the connection closes */
    int64_t extra;    /* added to the length in the header */
    int slow_us;      /* pause after each block of a file ... */
    size_t block;     /* of this many bytes; 0: 64 KiB */
    size_t silent_at; /* after this many bytes of a body it sends no more, and
                       * waits for the client to disconnect; 0: never */
    int n_cut;        /* this many responses are cut ... */
    size_t cut_at;    /* after this many bytes of their body */
    int n_status;     /* this many requests get ... */
    int status;       /* this status */
    bool status_of_files; /* only requests for files */

    pthread_mutex_t lock;
    pthread_cond_t gone;
    int fd, n_open;
    pthread_t thread;
    atomic_int n_api, n_get, n_part; /* requests: to the API, for files, those
                                      * with a Range */
    atomic_int n_token;              /* requests with an Authorization line */
    atomic_int n_if_range, n_same;   /* with If-Range; responses with 304 */
    atomic_llong n_sent;             /* bytes of files */
};

void hub_try_start(struct hub_try *t);
void hub_try_stop(struct hub_try *t);
/* Adds a file with these bytes, which are copied. All its other fields are
 * correct. */
struct hub_try_file *hub_try_add(struct hub_try *t, const char *path,
                                 const void *data, size_t n);
/* Waits for requests in progress, and resets the counts. */
void hub_try_count(struct hub_try *t);

/* Adds a file of n random bytes. */
struct hub_try_file *hub_try_add_random(struct hub_try *t, const char *path,
                                        size_t n);

/* ---- a client ------------------------------------------------------------ */

/* A client with a cache folder of its own, three tries, and pauses of a
 * millisecond. */
struct hub_use {
    struct hub_options o;
    char *path;        /* owned: the result of the last call */
    volatile int stop; /* set once `stop_at` bytes of a file are present */
    uint64_t stop_at;  /* 0: never */
    char log[1 << 14];
    pl_err err;
};

void hub_use_init(struct hub_use *u, const struct hub_try *t);
void hub_use_fini(struct hub_use *u);
/* Calls hub_fetch, which must return `want`. Its message or the log must
 * contain `said`, unless that is NULL. */
void hub_use(struct hub_use *u, const char *name, const char *file,
             pl_status want, const char *said);
/* Calls hub_fetch_url, with the same expectations. */
void hub_use_url(struct hub_use *u, const char *url, pl_status want,
                 const char *said);
/* Fails unless the file at u->path has these bytes. */
void hub_use_has(const struct hub_use *u, const struct hub_try_file *f);
/* Returns a path below the cache's folder for T/R, in static memory. */
const char *hub_use_place(const struct hub_use *u, const struct hub_try *t,
                          const char *revision, const char *path);

#endif
