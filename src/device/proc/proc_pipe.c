/* Implementation of proc_pipe.h. The counts of bytes written and read only
 * increase, so a full ring and an empty one can be told apart. A side that is
 * about to sleep increments n_asleep before its last check of the count. The
 * other side advances the count before it reads n_asleep. So no wake-up is
 * lost. */
#include "device/proc/proc_pipe.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    CHUNK = 64 << 10, /* most bytes copied before the count is advanced */
    LOOKS = 100,      /* polls between two reads of the clock */
};

static void wake(struct proc_stream *s)
{
    atomic_fetch_add(&s->wake_count, 1);
    syscall(SYS_futex, &s->wake_count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void advance(struct proc_stream *s, struct device_flag *f, uint64_t v)
{
    atomic_store(&f->v, v);
    if (atomic_load(&s->n_asleep) > 0)
        wake(s);
}

static bool over(const struct proc_end *e, const struct device_flag *f,
                 uint64_t target)
{
    return atomic_load(&f->v) >= target || (e->gone && atomic_load(e->gone));
}

static bool look(struct proc_end *e, const struct device_flag *f,
                 uint64_t target)
{
    double end = device_now() + (double)e->awake_ns * 1e-9;

    do {
        for (int i = 0; i < LOOKS; i++) {
            if (over(e, f, target))
                return true;
            device_relax();
        }
        if (e->shares && !team_yield(&e->yielding))
            break;
    } while (e->awake_ns > 0 && device_now() < end);
    return false;
}

/* Waits until flag `f` has reached `target`. Returns false if the other process
 * ended first. */
static bool await(struct proc_end *e, struct proc_stream *s,
                  const struct device_flag *f, uint64_t target)
{
    while (!look(e, f, target)) {
        unsigned bell = atomic_load(&s->wake_count);

        atomic_fetch_add(&s->n_asleep, 1);
        if (!over(e, f, target))
            syscall(SYS_futex, &s->wake_count, FUTEX_WAIT, bell, NULL, NULL, 0);
        atomic_fetch_sub(&s->n_asleep, 1);
    }
    return atomic_load(&f->v) >= target;
}

/* Returns how many bytes to copy next from ring position `at`: at most
 * `wanted`, `there` and CHUNK, and not beyond the end of the ring. */
static size_t stretch(uint64_t at, size_t wanted, uint64_t there)
{
    size_t n = PROC_RING_BYTES - at % PROC_RING_BYTES;

    n = n < wanted ? n : wanted;
    n = n < there ? n : (size_t)there;
    return n < CHUNK ? n : CHUNK;
}

bool proc_send(struct proc_end *e, const void *src, size_t bytes)
{
    struct proc_stream *s = e->out;
    const unsigned char *p = src;

    while (bytes > 0) {
        uint64_t at = atomic_load_explicit(&s->put.v, memory_order_relaxed);
        uint64_t room = PROC_RING_BYTES - (at - atomic_load(&s->got.v));
        size_t n = stretch(at, bytes, room);

        if (n == 0) {
            if (!await(e, s, &s->got, at + 1 - PROC_RING_BYTES))
                return false;
            continue;
        }
        memcpy(s->ring + at % PROC_RING_BYTES, p, n);
        advance(s, &s->put, at + n);
        p += n;
        bytes -= n;
    }
    return !e->gone || !atomic_load(e->gone);
}

bool proc_receive(struct proc_end *e, void *dst, size_t bytes)
{
    struct proc_stream *s = e->in;
    unsigned char *p = dst;

    while (bytes > 0) {
        uint64_t at = atomic_load_explicit(&s->got.v, memory_order_relaxed);
        size_t n = stretch(at, bytes, atomic_load(&s->put.v) - at);

        if (n == 0) {
            if (!await(e, s, &s->put, at + 1))
                return false;
            continue;
        }
        memcpy(p, s->ring + at % PROC_RING_BYTES, n);
        advance(s, &s->got, at + n);
        p += n;
        bytes -= n;
    }
    return true;
}

void proc_pipe_wake(struct proc_pipe *p)
{
    wake(&p->to_child);
    wake(&p->to_parent);
}
