/* Implementation of gpu_compile.h. Progress is reported several times a second
 * even if it has not changed, so that a progress line on a terminal can be
 * animated. */
#include "device/gpu/gpu_compile.h"

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { MAX_THREADS = 16, TELL_NS = 100 * 1000 * 1000 };

struct compiling {
    const struct gpu_progress *progress;
    gpu_compile_fn *one;
    void *user;
    int n;
    pthread_mutex_t lock; /* protects the following fields */
    pthread_cond_t moved;
    int next, n_done;
    int n_working; /* number of worker threads that have not finished */
    pl_status s;   /* status of the first failure */
    pl_err err;
};

void gpu_tell(const struct gpu_progress *p, int more)
{
    if (p->fn && p->total > 0)
        p->fn(p->user, "compiling kernels", p->done + (uint64_t)more, p->total);
}

void gpu_tell_done(struct gpu_progress *p, int more)
{
    p->done += (uint64_t)more;
    gpu_tell(p, 0);
}

/* Compiles the next program. The caller holds the lock, which is released
 * meanwhile. */
static void compile_next(struct compiling *c)
{
    int i = c->next++;
    pl_err err = {0};
    pl_status s;

    pthread_mutex_unlock(&c->lock);
    s = c->one(c->user, i, &err);
    pthread_mutex_lock(&c->lock);
    c->n_done += s == PL_OK;
    if (s != PL_OK && c->s == PL_OK) {
        c->s = s;
        c->err = err;
    }
}

static bool has_next(struct compiling *c)
{
    if (c->s == PL_OK)
        c->s = err_cancelled(c->progress->cancel, &c->err);
    return c->s == PL_OK && c->next < c->n;
}

static void *worker(void *user)
{
    struct compiling *c = user;

    pthread_mutex_lock(&c->lock);
    while (has_next(c)) {
        compile_next(c);
        pthread_cond_signal(&c->moved);
    }
    c->n_working--;
    pthread_cond_signal(&c->moved);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Waits until a program is compiled or the next report is due. The caller holds
 * the lock. */
static void wait_a_little(struct compiling *c)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += TELL_NS;
    if (t.tv_nsec >= 1000 * 1000 * 1000) {
        t.tv_nsec -= 1000 * 1000 * 1000;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&c->moved, &c->lock, &t);
}

/* Reports progress from the calling thread until all workers have finished. No
 * lock is held during the callback, so workers never wait for it. */
static void tell_on(struct compiling *c)
{
    pthread_mutex_lock(&c->lock);
    do {
        int n_done = c->n_done;

        pthread_mutex_unlock(&c->lock);
        gpu_tell(c->progress, n_done);
        pthread_mutex_lock(&c->lock);
        if (c->n_working > 0 && c->n_done == n_done)
            wait_a_little(c);
    } while (c->n_working > 0);
    pthread_mutex_unlock(&c->lock);
}

/* Compiles on the calling thread, if no progress is reported or no worker could
 * be started. */
static void work(struct compiling *c)
{
    pthread_mutex_lock(&c->lock);
    while (has_next(c)) {
        compile_next(c);
        gpu_tell(c->progress, c->n_done);
    }
    pthread_mutex_unlock(&c->lock);
}

static void init(struct compiling *c)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->moved, &attr);
    pthread_condattr_destroy(&attr);
}

pl_status gpu_compile(const struct gpu_progress *p, int n, int n_thread,
                      gpu_compile_fn *one, void *user, pl_err *err)
{
    struct compiling c = {.progress = p, .one = one, .user = user, .n = n};
    pthread_t thread[MAX_THREADS];
    int want = n_thread < n ? n_thread : n, n_started = 0;

    want = want < MAX_THREADS ? want : MAX_THREADS;
    if (!p->fn)
        want--; /* the calling thread compiles too, because it reports no
                   progress */
    init(&c);
    pthread_mutex_lock(&c.lock);
    while (n_started < want &&
           pthread_create(&thread[n_started], NULL, worker, &c) == 0)
        n_started++;
    c.n_working = n_started;
    pthread_mutex_unlock(&c.lock);
    if (p->fn && n_started > 0)
        tell_on(&c);
    else
        work(&c);
    for (int i = 0; i < n_started; i++)
        pthread_join(thread[i], NULL);
    pthread_cond_destroy(&c.moved);
    pthread_mutex_destroy(&c.lock);
    if (c.s != PL_OK && err)
        *err = c.err;
    return c.s;
}
