/* A server for tests that speaks OpenAI's protocol with bare sockets, one
 * connection per request, and answers each request as a script says. */
#ifndef TEST_LOAD_TRY_H
#define TEST_LOAD_TRY_H

#include "lib/support.h"

#include <pthread.h>

enum { LOAD_TRY_BODIES = 256 };

/* The response to a request:
 *   o  normal: n_token events, the first after first_ms, gap_ms between, then
 *      the counts and [DONE]
 *   l  likewise, but late_ms before the first, from when `behind` others ended
 *   h  likewise, once `crowd` requests are open
 *   b  likewise, each byte of it by itself
 *   q  normal, with "timings" that give prompt_ms
 *   t  429, with an error in OpenAI's shape
 *   w  500, with a text that is not JSON
 *   e  an error as the second event
 *   c  cut off after the first event
 *   d  all of it but [DONE]
 *   s  silence, until the client disconnects */
struct load_try {
    /* Set before load_try_start. */
    /* one letter for each request in order of arrival; begins again at its
     * end */
    const char *script;
    const char *key; /* API key that requests must have; NULL for none */
    /* body of the response to /v1/models; NULL for status 404 */
    const char *models;
    int n_token, first_ms, gap_ms, late_ms, behind, crowd, prompt_ms;

    int port;
    char url[48];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd, n_thread;
    pthread_t thread;
    /* requests for completions: now open, most at once, ended */
    int n_open, most_open, n_ended;
    int n_body;
    /* [n_body] bodies of the requests in order of arrival, owned */
    char *body[LOAD_TRY_BODIES];
    char path[64]; /* path of the last request */
};

void load_try_start(struct load_try *t);
void load_try_stop(struct load_try *t);

#endif
