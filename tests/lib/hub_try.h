/* A hub of the tests' own, on this machine: a repository's listing and its
 * files, or files alone, from a server of bare sockets that does what it is
 * told to do wrong. One connection a request. */
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

/* The fields up to `lock` are set before a request, and not while one is under
 * way. */
struct hub_try {
    int port;
    char origin[40];      /* "http://127.0.0.1:PORT" */
    const char *repo;     /* "T/R"; another is not there */
    const char *revision; /* hexadecimal */
    struct hub_try_file file[HUB_TRY_FILES];
    int n_file;
    int page;             /* files a page of the listing; 0: all */
    const char *listing;  /* in place of the right one; NULL: that */
    const char *next;     /* the Link of a listing; NULL: by `page` */
    const char *token;    /* that is asked for; NULL: none */
    bool token_of_files;  /* for files alone, as of gated repositories */
    const char *redirect; /* origin where files are; NULL: here */
    int redirect_status;
    bool no_range;    /* all is sent, whatever was asked for */
    bool wrong_range; /* a part begins elsewhere than was asked */
    bool no_length;   /* bodies end with their connection */
    int64_t extra;    /* added to the length that is said */
    int slow_us;      /* pause after each block of a file ... */
    size_t block;     /* of so many bytes; 0: 64 KiB */
    size_t silent_at; /* behind so many bytes of a body it sends no more, and
                             waits for the client to leave; 0: never */
    int n_cut;        /* so many answers are cut ... */
    size_t cut_at;    /* behind so many bytes of their body */
    int n_status;     /* so many requests get ... */
    int status;       /* this */
    bool status_of_files; /* those for files alone */

    pthread_mutex_t lock;
    pthread_cond_t gone;
    int fd, n_open;
    pthread_t thread;
    atomic_int n_api, n_get, n_part; /* requests: of the API, of files, of those
                                        with a Range */
    atomic_int n_token;              /* requests with the line Authorization */
    atomic_int n_if_range, n_same;   /* with If-Range; answers 304 */
    atomic_llong n_sent;             /* bytes of files */
};

void hub_try_start(struct hub_try *t);
void hub_try_stop(struct hub_try *t);
/* Adds a file with these bytes, which are copied; right in all. */
struct hub_try_file *hub_try_add(struct hub_try *t, const char *path,
                                 const void *data, size_t n);
/* Waits for what is being answered, and forgets what was counted. */
void hub_try_count(struct hub_try *t);

/* A file of n random bytes. */
struct hub_try_file *hub_try_add_random(struct hub_try *t, const char *path,
                                        size_t n);

/* ---- who asks it --------------------------------------------------------- */

/* With a cache folder of its own, three tries, and pauses of a millisecond. */
struct hub_use {
    struct hub_options o;
    char *path;        /* owned: the answer of the last call */
    volatile int stop; /* set once `stop_at` bytes of a file are there */
    uint64_t stop_at;  /* 0: never */
    char log[1 << 14];
    pl_err err;
};

void hub_use_init(struct hub_use *u, const struct hub_try *t);
void hub_use_fini(struct hub_use *u);
/* hub_fetch, which must return `want`; its message, or what was logged, holds
 * `said` unless that is NULL. */
void hub_use(struct hub_use *u, const char *name, const char *file,
             pl_status want, const char *said);
/* hub_fetch_url, likewise. */
void hub_use_url(struct hub_use *u, const char *url, pl_status want,
                 const char *said);
/* The file at u->path has these bytes. */
void hub_use_has(const struct hub_use *u, const struct hub_try_file *f);
/* A path below the cache's folder for T/R: static memory. */
const char *hub_use_place(const struct hub_use *u, const struct hub_try *t,
                          const char *revision, const char *path);

#endif
