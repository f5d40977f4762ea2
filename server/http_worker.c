/* The handler threads, on which handlers of requests with a body run. A handler
 * may need seconds to parse megabytes of text. On a libmicrohttpd worker it
 * would delay other connections of this worker for that time. Requests without
 * a body are short, so their handlers run directly on the worker. A handler
 * that has to wait for something continues later on a handler thread
 * (http_hand). */
#include "http_inner.h"

/* Appends a request to http.queue, the queue of the handler threads. Caller
 * holds h->lock. */
static void queue(struct http *h, struct http_request *r)
{
    r->behind = NULL;
    if (h->queue)
        h->queue_end->behind = r;
    else
        h->queue = r;
    h->queue_end = r;
    pthread_cond_signal(&h->wake);
}

void http_dispatch(struct http_request *r)
{
    struct http *h = r->h;

    http_request_hold(r);
    if (!r->has_body) {
        r->route->handle(h->user, r);
        return;
    }
    pthread_mutex_lock(&h->lock);
    queue(h, r);
    pthread_mutex_unlock(&h->lock);
}

bool http_hand(struct http_request *r, http_handler_fn *act, void *user)
{
    struct http *h = r->h;
    bool ok;

    pthread_mutex_lock(&h->lock);
    ok = !h->no_more;
    if (ok) {
        r->act = act;
        r->act_user = user;
        queue(h, r);
    }
    pthread_mutex_unlock(&h->lock);
    return ok;
}

/* Waits for a request in http.queue, removes and returns it. NULL if the
 * handler threads must end. */
static struct http_request *next(struct http *h)
{
    struct http_request *r;

    pthread_mutex_lock(&h->lock);
    while (!h->queue && !h->no_more)
        pthread_cond_wait(&h->wake, &h->lock);
    r = h->queue;
    if (r)
        h->queue = r->behind;
    pthread_mutex_unlock(&h->lock);
    return r;
}

static void *hand_thread(void *http)
{
    struct http *h = http;
    struct http_request *r;

    while ((r = next(h))) {
        if (r->act)
            r->act(r->act_user, r);
        else if (atomic_load(&h->stopping) || http_has_left(r))
            http_respond(r, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, NULL, 0);
        else
            r->route->handle(h->user, r);
    }
    return NULL;
}

bool http_workers_start(struct http *h)
{
    while (h->n_hand < HTTP_N_HAND) {
        if (pthread_create(&h->hand[h->n_hand], NULL, hand_thread, h) != 0)
            return false;
        h->n_hand++;
    }
    return true;
}

void http_hands_stop(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    h->no_more = true;
    pthread_cond_broadcast(&h->wake);
    pthread_mutex_unlock(&h->lock);
    while (h->n_hand > 0)
        pthread_join(h->hand[--h->n_hand], NULL);
}
