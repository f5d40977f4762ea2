/* The memory guard of tests. While a thread executes an instruction, device
 * memory that the instruction must not access is protected, so that an access
 * crashes.
 *
 * Protection applies to the whole process, so only one thread executes an
 * instruction at a time. An instruction may access the regions of the tensors
 * that insn_accesses() reports and the work memory of its device. Between runs
 * all memory is accessible, for the host. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "device/device_inner.h"

enum reach { NOTHING, READ, WRITE };

struct guard {
    pthread_mutex_t lock;
    /* memory of each region of each device, [n]; p is NULL if the region is
     * never protected; owned */
    struct guard_region {
        void *p;
        size_t bytes;
    } (*region)[REGION_COUNT];
    /* present protection of each region of each device (enum reach), [n];
     * owned */
    unsigned char (*now)[REGION_COUNT];
    /* protection of each region that apply() sets next, [n]; a part of the
     * allocation `now` */
    unsigned char (*want)[REGION_COUNT];
};

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (bytes / page + 1) * page;
}

pl_status device_guard_create(struct guard **out, const struct device_set *s,
                              pl_err *err)
{
    struct guard *g = calloc(1, sizeof *g);

    *out = NULL;
    if (!g)
        return err_no_memory(err, "a guard");
    g->now = calloc(2 * (size_t)s->n, sizeof *g->now);
    g->region = calloc((size_t)s->n, sizeof *g->region);
    if (!g->now || !g->region) {
        free(g->now);
        free(g->region);
        free(g);
        return err_no_memory(err, "a guard");
    }
    g->want = g->now + s->n;
    memset(g->now, WRITE, (size_t)s->n * sizeof *g->now);
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return PL_OK;
}

void device_guard_free(struct guard *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g->now);
    free(g->region);
    free(g);
}

bool device_guarded(const struct device_set *s)
{
    return s->guard != NULL;
}

void device_guard_region(struct device_set *s, const struct device *d,
                         enum region r, void *p)
{
    if (s->guard)
        s->guard->region[d - s->dev][r] = (struct guard_region){p, d->bytes[r]};
}

void *device_guard_alloc(size_t bytes)
{
    void *p = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void device_guard_dealloc(void *p, size_t bytes)
{
    if (p)
        munmap(p, whole_pages(bytes));
}

static bool apply(struct device_set *s)
{
    static const int prot[] = {
        [NOTHING] = PROT_NONE,
        [READ] = PROT_READ,
        [WRITE] = PROT_READ | PROT_WRITE,
    };
    struct guard *g = s->guard;
    bool ok = true;

    for (int i = 0; i < s->n; i++)
        for (int r = 0; r < REGION_COUNT; r++) {
            if (g->now[i][r] == g->want[i][r])
                continue;
            if (g->region[i][r].p &&
                mprotect(g->region[i][r].p, whole_pages(g->region[i][r].bytes),
                         prot[g->want[i][r]]) != 0)
                ok = false;
            g->now[i][r] = g->want[i][r];
        }
    return ok;
}

static void let(void *user, const struct insn_access *u)
{
    struct device_set *s = user;
    enum region r = s->dev[u->dev].prog->tensor[u->tensor].region;
    unsigned char *want = &s->guard->want[u->dev][r];

    if (u->access & ACCESS_WRITE)
        *want = WRITE;
    else if (*want == NOTHING)
        *want = READ;
}

void device_guard_enter(struct device_set *s, const struct device *d,
                        const struct insn *st)
{
    struct guard *g = s->guard;

    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    memset(g->want, NOTHING, (size_t)s->n * sizeof *g->want);
    /* The device's work memory stays writable, because sim devices poison dead
     * buffers while they execute any instruction. */
    g->want[d - s->dev][REGION_WORK] = WRITE;
    insn_accesses(st, (int)(d - s->dev), d->prog->tensor, let, s);
    if (!apply(s))
        device_fail(s, d, -1, "the system does not protect pages");
}

void device_guard_leave(struct device_set *s)
{
    if (s->guard)
        pthread_mutex_unlock(&s->guard->lock);
}

void device_guard_open(struct device_set *s)
{
    memset(s->guard->want, WRITE, (size_t)s->n * sizeof *s->guard->want);
    apply(s);
}
