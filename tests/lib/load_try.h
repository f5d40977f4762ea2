/* A server of the tests' own that speaks OpenAI's protocol, from bare sockets,
 * and answers each request as a script says. One connection a request. */
#ifndef TEST_LOAD_TRY_H
#define TEST_LOAD_TRY_H

#include "lib/support.h"

#include <pthread.h>

enum { LOAD_TRY_BODIES = 256 };

/* How a request is answered:
 *   o  well: n_token events, the first after first_ms, gap_ms between, then
 *      the counts and [DONE]
 *   l  likewise, but late_ms before the first, from when `behind` others ended
 *   h  likewise, once `crowd` requests are open
 *   b  likewise, each byte of it by itself
 *   q  well, with "timings" that say prompt_ms
 *   t  429, with an error in OpenAI's shape
 *   w  500, with a text that is no JSON
 *   e  an error as the second event
 *   c  cut off behind the first event
 *   d  all of it but [DONE]
 *   s  with silence, until the client leaves */
struct load_try {
    /* Set before load_try_start. */
    const char *script; /* of the requests in the order they came, over and
                           over */
    const char *key;    /* that is asked for; NULL: none */
    const char *models; /* what /v1/models says; NULL: 404 */
    int n_token, first_ms, gap_ms, late_ms, behind, crowd, prompt_ms;

    int port;
    char url[48];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd, n_thread;
    pthread_t thread;
    int n_open, most_open, n_ended; /* requests for texts */
    int n_body;
    char *body[LOAD_TRY_BODIES]; /* owned: what was asked for, as it came */
    char path[64];               /* of the last */
};

void load_try_start(struct load_try *t);
void load_try_stop(struct load_try *t);

#endif
