/* The emulator's driver, wrapped in functions that inspect their arguments. */
#include "lib/gpu_watched.h"
#include "lib/gpu_odd.h"

#include "device/gpu/gpu_kind.h"
#include "device/gpu/gpu_launch.h"
#include "emu/emu_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANGE = 512 };

struct range {
    const struct gpu *g;
    uint64_t at;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range range[MAX_RANGE];
static int n_range;
static struct gpu_watched seen;
static pthread_t writer; /* the first thread that copied from or to a device */

void gpu_watch_reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&seen, 0, sizeof seen);
    pthread_mutex_unlock(&lock);
}

struct gpu_watched gpu_watch_seen(void)
{
    struct gpu_watched s;

    pthread_mutex_lock(&lock);
    s = seen;
    pthread_mutex_unlock(&lock);
    return s;
}

/* ---- mapped memory ------------------------------------------------------- */

bool gpu_watch_blind;
size_t gpu_watch_most;

static pl_status map(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                     pl_err *err)
{
    bool may = !gpu_watch_blind && (!gpu_watch_most || bytes <= gpu_watch_most);
    pl_status s = n_range < MAX_RANGE && may ? gpu_emu.map(g, p, bytes, at, err)
                                             : PL_NO_MEMORY;

    pthread_mutex_lock(&lock);
    if (s == PL_OK && n_range < MAX_RANGE)
        range[n_range++] = (struct range){g, *at, bytes};
    pthread_mutex_unlock(&lock);
    return s;
}

static void unmap(struct gpu *g, void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_range; i++)
        if (range[i].at == (uint64_t)(uintptr_t)p) {
            range[i] = range[--n_range];
            break;
        }
    pthread_mutex_unlock(&lock);
    gpu_emu.unmap(g, p);
}

/* Ranges of host memory that the driver allocated. */
static struct range given[MAX_RANGE];
static int n_given;

static pl_status host_alloc(struct gpu *g, size_t bytes, void **p, pl_err *err)
{
    pl_status s = gpu_emu.host_alloc(g, bytes, p, err);

    pthread_mutex_lock(&lock);
    if (s == PL_OK && n_given < MAX_RANGE)
        given[n_given++] = (struct range){g, (uint64_t)(uintptr_t)*p, bytes};
    pthread_mutex_unlock(&lock);
    return s;
}

static void host_release(struct gpu *g, void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_given; i++)
        if (given[i].at == (uint64_t)(uintptr_t)p) {
            given[i] = given[--n_given];
            break;
        }
    pthread_mutex_unlock(&lock);
    gpu_emu.host_release(g, p);
}

static bool is_given(uint64_t at)
{
    for (int i = 0; i < n_given; i++)
        if (at >= given[i].at && at - given[i].at < given[i].bytes)
            return true;
    return false;
}

static bool is_mapped(uint64_t at)
{
    for (int i = 0; i < n_range; i++)
        if (at >= range[i].at && at - range[i].at < range[i].bytes)
            return true;
    return false;
}

/* ---- launches ------------------------------------------------------------ */

/* Returns true while a GPU runs its self test: it has mapped no memory yet.
 * Copies of its tables may not have ended. */
static bool is_tested(const struct gpu *g)
{
    for (int i = 0; i < n_range; i++)
        if (range[i].g == g)
            return false;
    return true;
}

/* Returns true if any 8-byte word of the kernel's arguments is an address in
 * mapped memory. */
static bool names_mapped(enum gpu_kernel k, const void *args)
{
    for (size_t i = 0; i + 8 <= gpu_kernel_args(k); i += 8) {
        uint64_t word;

        memcpy(&word, (const char *)args + i, sizeof word);
        if (is_mapped(word))
            return true;
    }
    return false;
}

static void look_at_sum(const struct merge_tree_args *a)
{
    const struct merge_tree_addend *d =
        (const struct merge_tree_addend *)(uintptr_t)a->addend;
    const struct tree_piece *p = &a->piece;
    bool found = false;

    for (int64_t i = 0; i < a->n; i++)
        found |= is_mapped(d[i].at +
                           (uint64_t)(p->src_at - d[i].skip_tok * a->n_tok -
                                      d[i].skip_out * a->n_out));
    seen.n_summed += found;
    if (found && p->bytes * p->n0 * p->n1 > seen.most)
        seen.most = p->bytes * p->n0 * p->n1;
    if (is_mapped(p->dst))
        seen.n_worked++;
}

static void look(enum gpu_kernel k, const void *args)
{
    seen.n_launch++;
    if (k == GPU_merge_tree) {
        look_at_sum(args);
    } else if (!names_mapped(k, args)) {
        return;
    } else if (k == GPU_copy_pieces || k == GPU_pages) {
        seen.n_carried++;
    } else if (seen.n_worked++ == 0) {
        snprintf(seen.kernel, sizeof seen.kernel, "%s", gpu_kernel_name(k));
    }
}

static pl_status launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                        int32_t n_group, const void *args, pl_err *err)
{
    pthread_mutex_lock(&lock);
    if (gpu_watch_blind || !is_tested(g))
        look(k, args);
    pthread_mutex_unlock(&lock);
    return gpu_emu.launch(g, q, k, n_group, args, err);
}

static void look_at_host(const void *p, size_t bytes)
{
    if (!is_given((uintptr_t)p) && !is_mapped((uintptr_t)p))
        seen.loose += bytes;
}

static pl_status write_bytes(struct gpu *g, enum queue q, uint64_t dst,
                             const void *src, size_t bytes, pl_err *err)
{
    pthread_mutex_lock(&lock);
    if (seen.n_write++ == 0) {
        seen.n_before = seen.n_launch;
        seen.n_writer = 1;
        writer = pthread_self();
    }
    if (!pthread_equal(writer, pthread_self()))
        seen.n_writer = 2;
    look_at_host(src, bytes);
    seen.bytes += bytes;
    seen.largest = bytes > seen.largest ? bytes : seen.largest;
    pthread_mutex_unlock(&lock);
    return gpu_emu.write(g, q, dst, src, bytes, err);
}

static pl_status read_bytes(struct gpu *g, enum queue q, void *dst,
                            uint64_t src, size_t bytes, pl_err *err)
{
    pthread_mutex_lock(&lock);
    seen.n_read++;
    look_at_host(dst, bytes);
    pthread_mutex_unlock(&lock);
    return gpu_emu.read(g, q, dst, src, bytes, err);
}

bool gpu_watch_apart;

static pl_status reach(struct gpu *g, struct gpu *peer, pl_err *err)
{
    (void)g;
    (void)peer;
    (void)err;
    return gpu_watch_apart ? PL_UNSUPPORTED : PL_OK;
}

/* ---- the backend --------------------------------------------------------- */

static struct gpu_driver gpu_watch;

__attribute__((constructor)) static void make(void)
{
    gpu_watch = gpu_emu;
    /* without device graphs, so that launch() is called for each launch */
    gpu_watch.graph_make = NULL;
    gpu_watch.name = "watched";
    gpu_watch.identity = gpu_odd_identity;
    gpu_watch.map = map;
    gpu_watch.unmap = unmap;
    gpu_watch.host_alloc = host_alloc;
    gpu_watch.host_release = host_release;
    gpu_watch.enable_peer_access = reach;
    gpu_watch.no_selftest = false;
    gpu_watch.launch = launch;
    gpu_watch.write = write_bytes;
    gpu_watch.read = read_bytes;
}

const struct backend_ops watched_ops = GPU_KIND(watched, gpu_watch);
