/* Computes grammar masks on a worker thread; see mask_worker.h. The thread is
 * created on first use. It and the loop's thread take samplers from the list,
 * one by one, until none is left. */
#include "mask_worker.h"

#include <stdlib.h>

bool ahead_init(struct ahead *a, int most)
{
    *a = (struct ahead){.most = most};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    pthread_cond_init(&a->done, NULL);
    a->sampler = calloc((size_t)most, sizeof(pl_sampler *));
    return a->sampler != NULL;
}

void ahead_fini(struct ahead *a)
{
    if (a->most == 0)
        return;
    pthread_mutex_lock(&a->lock);
    a->stops = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    if (a->started)
        pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->done);
    pthread_mutex_destroy(&a->lock);
    free(a->sampler);
}

static void prepare_all(struct ahead *a)
{
    int i;

    while ((i = a->next++) < a->n)
        pl_sampler_prepare(a->sampler[i]);
}

static void *mask_thread(void *user)
{
    struct ahead *a = user;

    pthread_mutex_lock(&a->lock);
    while (!a->stops) {
        if (!a->due) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        a->due = false;
        a->busy = true;
        pthread_mutex_unlock(&a->lock);
        prepare_all(a);
        pthread_mutex_lock(&a->lock);
        a->busy = false;
        pthread_cond_signal(&a->done);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

void ahead_add(struct ahead *a, pl_sampler *s)
{
    if (a->n < a->most)
        a->sampler[a->n++] = s;
}

void ahead_begin(struct ahead *a)
{
    if (a->n == 0)
        return;
    if (!a->started && !a->failed) {
        a->started = pthread_create(&a->thread, NULL, mask_thread, a) == 0;
        a->failed = !a->started;
    }
    a->next = 0;
    pthread_mutex_lock(&a->lock);
    a->due = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

void ahead_end(struct ahead *a)
{
    if (a->n == 0)
        return;
    prepare_all(a);
    pthread_mutex_lock(&a->lock);
    /* The worker thread may not have begun this step's masks; from here on it
     * must not. */
    a->due = false;
    while (a->busy)
        pthread_cond_wait(&a->done, &a->lock);
    pthread_mutex_unlock(&a->lock);
    a->n = 0;
}
