/* Implementation of team.h. Incrementing a generation counter starts a run; a
 * count of finished calls ends it. Threads spin on both, so runs in quick
 * succession need no system call. Workers that have spun for AWAKE_NS sleep on
 * a condition variable. No wake-up is lost: a worker counts itself as asleep
 * before its last check of the generation counter, and the caller increments
 * that counter before it checks for sleepers. */
#include "device/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

enum {
    AWAKE_NS = 80 * 1000, /* time for which a worker spins before it sleeps;
                             about the time that waking it takes */
    SPINS = 2000,         /* polls of a flag before sleeping: at least 50 us,
                             longer than any barrier */
    SPINS_SHARED = 20,
    LOOK_NS = 2 * 1000 * 1000,
    /* a sched_yield() that takes this long, in ns, has let other processes run,
     * not only other threads of this process */
    LATE_NS = 4 * 1000 * 1000,
    SLEEP_FOR_NS = 100 * 1000 * 1000,
    /* nanoseconds requested for a short sleep; the system adds about as much */
    NAP_NS = 50 * 1000,
};

struct team {
    struct device_flag generation; /* number of runs started */
    /* number of finished calls of `fn`, over all workers and runs */
    struct device_flag done;
    /* function that the workers call in this run; NULL if they must end */
    team_fn *fn;
    void *user;
    int n, n_spin;
    /* the process that started the threads; forked copies have none */
    pid_t owner;
    int n_started;            /* number of threads to join */
    struct team_thread *list; /* the threads, [n]; owned */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int n_asleep;
};

struct team_thread {
    struct team *team;
    int index, core;
    struct yielding yielding;
    pthread_t thread;
};

/* ---- yielding ------------------------------------------------------------ */

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool team_yield(struct yielding *y)
{
    int64_t begin = now_ns(), end;

    if (begin < atomic_load_explicit(&y->sleep_until, memory_order_relaxed))
        return false;
    sched_yield();
    end = now_ns();
    if (end - begin >= LATE_NS)
        atomic_store_explicit(&y->sleep_until, end + SLEEP_FOR_NS,
                              memory_order_relaxed);
    return true;
}

void team_pause(struct yielding *y)
{
    const struct timespec nap = {0, NAP_NS};

    if (!team_yield(y))
        nanosleep(&nap, NULL);
}

/* ---- flags --------------------------------------------------------------- */

/* Wakes all threads that sleep on the flag. The futex is not private, because
 * devices of several processes wait for the flag. */
void device_flag_wake(struct device_flag *f)
{
    atomic_fetch_add(&f->wake_count, 1);
    syscall(SYS_futex, &f->wake_count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps until the flag is raised or LOOK_NS have passed. A failed run does not
 * wake sleepers, so the caller must check for failure afterwards. */
static void sleep_on(struct device_flag *f, uint64_t target)
{
    const struct timespec most = {0, LOOK_NS};
    uint32_t bell = atomic_load(&f->wake_count);

    atomic_fetch_add(&f->n_asleep, 1);
    if (atomic_load(&f->v) < target)
        syscall(SYS_futex, &f->wake_count, FUTEX_WAIT, bell, &most, NULL, 0);
    atomic_fetch_sub(&f->n_asleep, 1);
}

static bool reached(const struct device_flag *f, uint64_t target)
{
    return atomic_load_explicit(&f->v, memory_order_acquire) >= target;
}

static bool spin(const struct device_flag *f, uint64_t target, int n_spin)
{
    for (int i = 0; i < n_spin; i++) {
        if (reached(f, target))
            return true;
        device_relax();
    }
    return reached(f, target);
}

bool flag_wait(struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop)
{
    bool there = spin(f, target, n_spin);

    while (!there && !atomic_load_explicit(stop, memory_order_acquire)) {
        sleep_on(f, target);
        there = reached(f, target);
    }
    return there;
}

bool flag_spin(const struct device_flag *f, uint64_t target, int n_spin,
               const atomic_bool *stop)
{
    bool there = spin(f, target, n_spin);
    struct yielding y = {0};

    while (!there && !atomic_load_explicit(stop, memory_order_acquire)) {
        team_pause(&y);
        there = reached(f, target);
    }
    return there;
}

int team_spins(const struct team *t)
{
    return t->n_spin;
}

/* ---- pinning ----------------------------------------------------------- */

/* Pins the calling thread to a logical core. Returns false if that fails or
 * `core` is -1 or exceeds the C library's cpu_set_t. */
static bool pin(int core)
{
    cpu_set_t set;

    if (core < 0 || core >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* ---- workers ----------------------------------------------------------- */

static bool started(const struct team *t, uint64_t run)
{
    return atomic_load(&t->generation.v) >= run;
}

/* Waits until run number `run` starts: spins for AWAKE_NS, then sleeps. */
static void await_run(struct team_thread *m, uint64_t run)
{
    struct team *t = m->team;
    int64_t end = now_ns() + AWAKE_NS;

    do {
        for (int i = 0; i < t->n_spin && i < 100; i++) {
            if (started(t, run))
                return;
            device_relax();
        }
        if (t->n_spin == SPINS_SHARED && !team_yield(&m->yielding))
            break;
    } while (now_ns() < end);
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->n_asleep, 1);
    while (!started(t, run))
        pthread_cond_wait(&t->wake, &t->lock);
    atomic_fetch_sub(&t->n_asleep, 1);
    pthread_mutex_unlock(&t->lock);
}

static void *work(void *p)
{
    struct team_thread *m = p;
    struct team *t = m->team;

    pin(m->core);
    for (uint64_t run = 1;; run++) {
        await_run(m, run);
        if (!t->fn)
            return NULL;
        t->fn(t->user, m->index);
        atomic_fetch_add(&t->done.v, 1);
        if (atomic_load(&t->done.n_asleep) > 0)
            device_flag_wake(&t->done);
    }
}

static void start_run(struct team *t, team_fn *fn, void *user)
{
    t->fn = fn;
    t->user = user;
    atomic_fetch_add(&t->generation.v, 1);
    if (atomic_load(&t->n_asleep) > 0) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->lock);
    }
}

void team_begin(struct team *t, team_fn *fn, void *user)
{
    if (t->n > 1)
        start_run(t, fn, user);
}

void team_end(struct team *t, team_fn *fn, void *user)
{
    const atomic_bool never = false;
    cpu_set_t before;
    bool pinned;
    uint64_t run;

    /* Pins the caller's thread only if it is not on its core already, because
     * pinning takes three system calls. The system does not move the thread
     * while the other threads keep the other cores busy. */
    pinned = t->list[0].core >= 0 && sched_getcpu() != t->list[0].core &&
             sched_getaffinity(0, sizeof before, &before) == 0 &&
             pin(t->list[0].core);
    fn(user, 0);
    run = atomic_load_explicit(&t->generation.v, memory_order_relaxed);
    flag_wait(&t->done, run * (uint64_t)(t->n - 1), t->n_spin, &never);
    if (pinned)
        sched_setaffinity(0, sizeof before, &before);
}

void team_run(struct team *t, team_fn *fn, void *user)
{
    team_begin(t, fn, user);
    team_end(t, fn, user);
}

/* ---- lifetime ---------------------------------------------------------- */

/* Returns true if some threads share a processor: two are pinned to the same
 * one, or the n_busy threads of the process are more than its processors. */
static bool shares(int n, const int *core, int n_busy)
{
    cpu_set_t set;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (core[i] >= 0 && core[i] == core[k])
                return true;
    return sched_getaffinity(0, sizeof set, &set) == 0 &&
           CPU_COUNT(&set) < n_busy;
}

static pl_status start_workers(struct team *t, pl_err *err)
{
    sigset_t all, before;
    char which[48];
    int e = 0;

    sigfillset(&all); /* workers must not run the application's signal
                         handlers */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < t->n && e == 0; i++) {
        e = pthread_create(&t->list[i].thread, NULL, work, &t->list[i]);
        if (e == 0)
            t->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e == 0)
        return PL_OK;
    snprintf(which, sizeof which, "thread %d of %d", t->n_started + 1,
             t->n - 1);
    return err_no_thread(err, which, e);
}

pl_status team_create(struct team **out, int n, const int *core, int n_busy,
                      pl_err *err)
{
    struct team *t;
    pl_status s;

    *out = NULL;
    if (posix_memalign((void **)&t, _Alignof(struct team), sizeof *t) != 0)
        return err_no_memory(err, "threads");
    memset(t, 0, sizeof *t);
    t->list = calloc((size_t)n, sizeof *t->list);
    if (!t->list) {
        free(t);
        return err_no_memory(err, "threads");
    }
    t->n = n;
    t->owner = getpid();
    t->n_spin = shares(n, core, n_busy) ? SPINS_SHARED : SPINS;
    for (int i = 0; i < n; i++)
        t->list[i] =
            (struct team_thread){.team = t, .index = i, .core = core[i]};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    s = start_workers(t, err);
    if (s == PL_OK)
        *out = t;
    else
        team_free(t);
    return s;
}

void team_free(struct team *t)
{
    if (!t)
        return;
    if (t->owner == getpid()) { /* a forked copy has no threads to end */
        if (t->n_started > 0)
            start_run(t, NULL, NULL);
        for (int i = 1; i <= t->n_started; i++)
            pthread_join(t->list[i].thread, NULL);
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    free(t->list);
    free(t);
}
