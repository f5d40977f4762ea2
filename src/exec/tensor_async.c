/* Reads and writes tensors asynchronously.
 *
 * One thread per executor does the transfers in the order of the calls. The
 * first asynchronous call starts the thread. All other accesses to the
 * executor's memory first wait until no transfer is queued (exec_wait_async).
 * So a transfer never runs during a step and needs no lock on tensors. The
 * first failure is kept until a caller waits. Later transfers are then dropped,
 * because they may depend on the failed one. */
#include "exec/exec.h"

#include "base/err.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct transfer {
    struct transfer *next;
    pl_tensor t;
    unsigned char *data; /* the caller's buffer, borrowed until the transfer is
                            done */
    size_t offset, bytes;
    bool put;
};

struct exec_async {
    pl_exec *x;
    pid_t owner; /* process that created the transfer thread; a forked child
                    does not have the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields after it */
    pthread_cond_t changed;
    struct transfer *first, **end; /* owned: first transfer of the queue, which
                                      is in progress, and the end of the list */
    bool stop;
    pl_err err; /* error of the first transfer that failed; status PL_OK if
                   none */
};

static void *run(void *user)
{
    struct exec_async *a = user;

    pthread_mutex_lock(&a->lock);
    for (;;) {
        struct transfer *t = a->first;
        pl_err err;

        if (!t && a->stop)
            break;
        if (!t) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        if (a->err.status == PL_OK) {
            pthread_mutex_unlock(&a->lock);
            err.status =
                t->put ? exec_set_input(a->x, 0, t->t, t->data, t->offset,
                                        t->bytes, &err)
                       : exec_get_output(a->x, a->x->last_micro, t->t, t->data,
                                         t->offset, t->bytes, &err);
            pthread_mutex_lock(&a->lock);
            if (err.status != PL_OK)
                a->err = err;
        }
        a->first = t->next;
        if (!a->first)
            a->end = &a->first;
        free(t);
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static pl_status start(pl_exec *x, pl_err *err)
{
    struct exec_async *a = calloc(1, sizeof *a);
    int e;

    if (!a)
        return err_no_memory(err, "a transfer");
    a->x = x;
    a->owner = getpid();
    a->end = &a->first;
    x->async = a; /* Set before the transfer thread starts, because this thread
                     reads it. */
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    e = pthread_create(&a->thread, NULL, run, a);
    if (e != 0) {
        pthread_cond_destroy(&a->changed);
        pthread_mutex_destroy(&a->lock);
        free(a);
        x->async = NULL;
        return err_no_thread(err, "the transfer thread", e);
    }
    return PL_OK;
}

static pl_status append(pl_exec *x, pl_tensor t, void *data, size_t offset,
                        size_t bytes, bool put, pl_err *err)
{
    struct transfer *q;

    if (!x->async)
        PL_TRY(start(x, err));
    q = malloc(sizeof *q);
    if (!q)
        return err_no_memory(err, "a transfer");
    *q = (struct transfer){NULL, t, data, offset, bytes, put};
    pthread_mutex_lock(&x->async->lock);
    *x->async->end = q;
    x->async->end = &q->next;
    pthread_cond_broadcast(&x->async->changed);
    pthread_mutex_unlock(&x->async->lock);
    return PL_OK;
}

static pl_status queue(pl_exec *x, pl_tensor t, void *data, size_t offset,
                       size_t bytes, bool put, pl_err *err)
{
    pl_status s;

    PL_TRY(exec_enter(x, err));
    s = append(x, t, data, offset, bytes, put, err);
    exec_leave(x);
    return s;
}

pl_status exec_wait_async(pl_exec *x, pl_err *err)
{
    struct exec_async *a = x->async;
    pl_status s;

    if (!a || pthread_equal(a->thread, pthread_self()))
        return PL_OK;
    pthread_mutex_lock(&a->lock);
    while (a->first)
        pthread_cond_wait(&a->changed, &a->lock);
    s = a->err.status;
    if (s != PL_OK && err)
        *err = a->err;
    a->err.status = PL_OK;
    pthread_mutex_unlock(&a->lock);
    return s;
}

void exec_async_free(pl_exec *x)
{
    struct exec_async *a = x->async;

    if (!a)
        return;
    /* In a forked child the transfer thread does not exist and cannot be
     * joined, and `lock` may stay locked for ever. */
    if (a->owner != getpid()) {
        free(a);
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

pl_status pl_tensor_get_async(pl_exec *x, pl_tensor t, void *data,
                              size_t offset, size_t bytes, pl_err *err)
{
    PL_NEED(x, err);
    PL_NEED_ARRAY(data, bytes, err);
    return queue(x, t, data, offset, bytes, false, err);
}

pl_status pl_tensor_set_async(pl_exec *x, pl_tensor t, const void *data,
                              size_t offset, size_t bytes, pl_err *err)
{
    PL_NEED(x, err);
    PL_NEED_ARRAY(data, bytes, err);
    return queue(x, t, (unsigned char *)data, offset, bytes, true, err);
}

pl_status pl_exec_wait(pl_exec *x, pl_err *err)
{
    pl_status s;

    PL_NEED(x, err);
    PL_TRY(exec_enter(x, err));
    s = exec_wait_async(x, err);
    exec_leave(x);
    return s;
}
