/* Wrappers of malloc and the like for -Wl,--wrap: each counts the call, and
 * fails if a test requested that or calls the real function. Sizes of live
 * blocks come from malloc_usable_size, so the counts are those of the heap
 * rather than of the requests. */
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct topology;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *p);
void *__real_topology_alloc(const struct topology *t, int os, size_t bytes);
void *__real_topology_alloc_pages(const struct topology *t, int os,
                                  size_t bytes);
void *__real_topology_share(size_t bytes);
pid_t __real_fork(void);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void __wrap_free(void *p);
void *__wrap_topology_alloc(const struct topology *t, int os, size_t bytes);
void *__wrap_topology_alloc_pages(const struct topology *t, int os,
                                  size_t bytes);
void *__wrap_topology_share(size_t bytes);
pid_t __wrap_fork(void);

enum { MAX_REGION = 1024 };

/* The failure that a test requested, in memory that is shared with processes
 * forked later, whose allocations count, too. It belongs to the process
 * fail_owner, which requested the failure. */
static struct {
    /* number of allocations up to the one that fails; 0 if none shall fail */
    _Atomic int64_t in;
    atomic_bool failed;
} * fail; /* NULL before a failure is requested */
static pid_t fail_owner;
static _Atomic int64_t n_call, live_bytes, peak_bytes, max_bytes;
/* sizes in bytes of the latest regions of device memory; the i-th is at i %
 * MAX_REGION */
static size_t region[MAX_REGION];
static atomic_int n_region;

void alloc_fail_at(int64_t n)
{
    if (fail_owner != getpid()) {
        fail_owner = getpid();
        fail = mmap(NULL, sizeof *fail, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (fail == MAP_FAILED)
            fail_msg("no page for failing allocations");
    }
    fail->failed = false;
    fail->in = n;
}

bool alloc_fail_off(void)
{
    fail->in = 0;
    return fail->failed;
}

void alloc_stat_reset(void)
{
    n_call = 0;
    live_bytes = 0;
    peak_bytes = 0;
    max_bytes = 0;
    n_region = 0;
}

struct alloc_stat alloc_stat_get(void)
{
    return (struct alloc_stat){
        .n_call = n_call,
        .live_bytes = live_bytes,
        .peak_bytes = peak_bytes,
        .max_bytes = max_bytes,
    };
}

static int64_t each_n; /* number of alloc_each's current iteration, from 1 */
static bool each_failed;

bool alloc_each(int64_t *n)
{
    if (*n > 0) {
        assert_int_equal(live_bytes, 0);
        if (!each_failed)
            return false;
    }
    each_failed = false;
    each_n = ++*n;
    alloc_stat_reset();
    alloc_fail_at(each_n);
    return true;
}

bool alloc_ran(pl_status s)
{
    each_failed = alloc_fail_off();
    if (s != (each_failed ? PL_NO_MEMORY : PL_OK))
        fail_msg("allocation %lld %s: %s", (long long)each_n,
                 each_failed ? "failed" : "was not asked for",
                 pl_status_name(s));
    return each_failed;
}

static void raise_to(_Atomic int64_t *max, int64_t value)
{
    int64_t old = *max;

    while (value > old && !atomic_compare_exchange_weak(max, &old, value))
        ;
}

/* Counts an allocation of `size` bytes. Returns true if a test requested that
 * it fails. */
static bool request(size_t size)
{
    n_call++;
    raise_to(&max_bytes, size > INT64_MAX ? INT64_MAX : (int64_t)size);
    if (fail && fail->in > 0 && atomic_fetch_sub(&fail->in, 1) == 1) {
        fail->failed = true;
        errno = ENOMEM;
        return true;
    }
    return false;
}

static void grow(void *p, size_t before)
{
    int64_t more;

    if (p == NULL)
        return;
    more = (int64_t)malloc_usable_size(p) - (int64_t)before;
    raise_to(&peak_bytes, atomic_fetch_add(&live_bytes, more) + more);
}

void *__wrap_malloc(size_t size)
{
    void *p = request(size) ? NULL : __real_malloc(size);

    grow(p, 0);
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes))
        bytes = SIZE_MAX;
    p = request(bytes) ? NULL : __real_calloc(n, size);
    grow(p, 0);
    return p;
}

void *__wrap_realloc(void *p, size_t size)
{
    size_t before = p == NULL ? 0 : malloc_usable_size(p);
    void *q = request(size) ? NULL : __real_realloc(p, size);

    grow(q, before);
    return q;
}

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    int rc = request(size) ? ENOMEM : __real_posix_memalign(out, align, size);

    if (rc == 0)
        grow(*out, 0);
    return rc;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    void *p = request(size) ? NULL : __real_aligned_alloc(align, size);

    grow(p, 0);
    return p;
}

char *__wrap_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = __wrap_malloc(len + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, strlen(s));
}

void __wrap_free(void *p)
{
    if (p != NULL)
        live_bytes -= (int64_t)malloc_usable_size(p);
    __real_free(p);
}

void *__wrap_topology_alloc(const struct topology *t, int os, size_t bytes)
{
    region[n_region++ % MAX_REGION] = bytes;
    return __real_topology_alloc(t, os, bytes);
}

void *__wrap_topology_alloc_pages(const struct topology *t, int os,
                                  size_t bytes)
{
    region[n_region++ % MAX_REGION] = bytes;
    return request(0) ? NULL : __real_topology_alloc_pages(t, os, bytes);
}

void *__wrap_topology_share(size_t bytes)
{
    region[n_region++ % MAX_REGION] = bytes;
    return request(0) ? NULL : __real_topology_share(bytes);
}

pid_t __wrap_fork(void)
{
    return request(0) ? -1 : __real_fork();
}

int alloc_device_bytes(size_t *bytes, int most)
{
    int all = n_region, n = all < MAX_REGION ? all : MAX_REGION;

    n = n < most ? n : most;
    for (int i = 0; i < n; i++)
        bytes[i] = region[(all - n + i) % MAX_REGION];
    return n;
}
