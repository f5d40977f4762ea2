/* Copies of the emulator's driver in which a function or two behave
 * differently. */
#include "lib/gpu_odd.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "device/gpu/gpu_kind.h"
#include "device/gpu/gpu_launch.h"
#include "emu/emu_driver.h"
#include "lib/own_clock.h"

/* ---- eager --------------------------------------------------------------- */

enum { MAX_GPU = 16 };

/* The kernels that each open GPU was told to compile (compile_kernels). */
static struct asked {
    struct gpu *g;
    bool kernel[GPU_KERNEL_COUNT];
} asked[MAX_GPU];

static struct asked *asked_of(const struct gpu *g)
{
    for (int i = 0; i < MAX_GPU; i++)
        if (asked[i].g == g)
            return &asked[i];
    return NULL;
}

atomic_int gpu_eager_waits;

/* Compiles a kernel, which takes until gpu_eager_waits is 0; fails after a
 * while. */
static pl_status eager_compile(void *user, int i, pl_err *err)
{
    const struct timespec ms = {.tv_nsec = 1000 * 1000};

    (void)user;
    for (int n = 0; gpu_eager_waits > 0 && n < 20 * 1000; n++)
        nanosleep(&ms, NULL);
    return gpu_eager_waits > 0
               ? err_set(err, PL_DEVICE, "kernel %d waits for ever", i)
               : PL_OK;
}

static pl_status eager_ready(struct gpu *g, const bool want[], int n_thread,
                             const struct gpu_progress *p, pl_err *err)
{
    struct asked *a = asked_of(g);
    int n = 0;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        n += want[k];
    PL_TRY(gpu_compile(p, n, n_thread, eager_compile, NULL, err));
    if (!a)
        a = asked_of(NULL);
    if (!a)
        return err_set(err, PL_DEVICE, "more than %d GPUs", MAX_GPU);
    a->g = g;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        a->kernel[k] |= want[k];
    return PL_OK;
}

static pl_status eager_launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                              int32_t n_group, const void *args, pl_err *err)
{
    const struct asked *a = asked_of(g);

    if (!a || !a->kernel[k])
        return err_set(err, PL_DEVICE, "kernel %s was not asked for",
                       gpu_kernel_name(k));
    return gpu_emu.launch(g, q, k, n_group, args, err);
}

pl_status gpu_odd_identity(struct gpu *g, char *out, size_t size, pl_err *err)
{
    (void)g;
    (void)err;
    snprintf(out, size, "emulator");
    return PL_OK;
}

static void eager_close(struct gpu *g)
{
    struct asked *a = g ? asked_of(g) : NULL;

    if (a)
        *a = (struct asked){0};
    gpu_emu.close(g);
}

/* ---- hung ---------------------------------------------------------------- */

struct gpu_hung gpu_hung;

void gpu_hung_begin(void)
{
    gpu_hung.n_left = 1 << 30;
    gpu_hung.who = NULL;
    gpu_hung.n_call = 0;
    own_clock(true);
}

void gpu_hung_end(void)
{
    gpu_hung.n_left = 1 << 30;
    own_clock(false);
}

static bool hangs(const struct gpu *g)
{
    return g == gpu_hung.who && gpu_hung.n_left <= 0;
}

/* Returns false if the GPU hangs, and then counts the call, which would not
 * return on a real GPU. */
static bool works(const struct gpu *g)
{
    if (!hangs(g))
        return true;
    gpu_hung.n_call++;
    return false;
}

/* Functions of the leak sanitizer, if it is linked in. Memory that a hung GPU
 * can no longer free is not reported as a leak. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void lasting(bool begins)
{
    void (*fn)(void) = begins ? __lsan_disable : __lsan_enable;

    if (fn)
        fn();
}

static pl_status hung_open(struct gpu **out, int index, pl_err *err)
{
    pl_status s;

    lasting(true);
    s = gpu_emu.open(out, index, err);
    if (!gpu_hung.who)
        gpu_hung.who = *out;
    lasting(false);
    return s;
}

static pl_status hung_alloc(struct gpu *g, size_t bytes, uint64_t *at,
                            pl_err *err)
{
    pl_status s;

    lasting(true);
    s = gpu_emu.alloc(g, bytes, at, err);
    lasting(false);
    if (gpu_hung.watches && g != gpu_hung.who) {
        gpu_hung.watched = *at;
        gpu_hung.watches = false;
    }
    return s;
}

static pl_status hung_host_alloc(struct gpu *g, size_t bytes, void **p,
                                 pl_err *err)
{
    pl_status s;

    lasting(true);
    s = gpu_emu.host_alloc(g, bytes, p, err);
    lasting(false);
    return s;
}

static pl_status hung_launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                             int32_t n_group, const void *args, pl_err *err)
{
    if (g == gpu_hung.who && gpu_hung.n_left > 0)
        gpu_hung.n_left--;
    return gpu_emu.launch(g, q, k, n_group, args, err);
}

static pl_status hung_copy(struct gpu *g, enum queue q, uint64_t dst,
                           uint64_t src, size_t bytes, pl_err *err)
{
    if (g == gpu_hung.who && gpu_hung.at_copy)
        gpu_hung.n_left = 0;
    return gpu_emu.copy(g, q, dst, src, bytes, err);
}

static pl_status hung_flush(struct gpu *g, enum queue q, pl_err *err)
{
    return !hangs(g) ? gpu_emu.flush(g, q, err) : PL_OK;
}

/* True for fences that were recorded before the GPU hung: these are reached. */
static atomic_bool early[GPU_MAX_MARKS];

static pl_status hung_mark(struct gpu *g, enum queue q, int i, pl_err *err)
{
    if (g == gpu_hung.who)
        early[i] = gpu_hung.n_left > 0;
    return gpu_emu.fence_record(g, q, i, err);
}

static pl_status hung_reached(struct gpu *g, int i, bool *yes, pl_err *err)
{
    *yes = early[i];
    return !hangs(g) ? gpu_emu.fence_query(g, i, yes, err) : PL_OK;
}

static bool hung_words(const struct gpu *g)
{
    (void)g;
    return !gpu_hung.wordless;
}

/* If the GPU hangs and its queues cannot write words, this call would have to
 * wait for the GPU. */
static pl_status hung_post(struct gpu *g, enum queue q, _Atomic uint64_t *word,
                           uint64_t value, pl_err *err)
{
    if (gpu_hung.wordless && !works(g))
        return PL_OK;
    return gpu_emu.signal_word(g, q, word, value, err);
}

static pl_status hung_finish(struct gpu *g, enum queue q, pl_err *err)
{
    return works(g) ? gpu_emu.finish(g, q, err) : PL_OK;
}

static void hung_close(struct gpu *g)
{
    if (works(g))
        gpu_emu.close(g);
}

static pl_status hung_reach(struct gpu *g, struct gpu *peer, pl_err *err)
{
    (void)g;
    (void)peer;
    (void)err;
    return PL_OK;
}

static void hung_release(struct gpu *g, uint64_t at)
{
    if (at == gpu_hung.watched)
        gpu_hung.watched = 0;
    if (works(g))
        gpu_emu.release(g, at);
}

static void hung_host_release(struct gpu *g, void *p)
{
    if (works(g))
        gpu_emu.host_release(g, p);
}

static pl_status hung_map(struct gpu *g, void *p, size_t bytes, uint64_t *at,
                          pl_err *err)
{
    return gpu_hung.blind ? err_set(err, PL_UNSUPPORTED, "it maps nothing")
                          : gpu_emu.map(g, p, bytes, at, err);
}

static void hung_unmap(struct gpu *g, void *p)
{
    if (works(g))
        gpu_emu.unmap(g, p);
}

/* ---- wrong --------------------------------------------------------------- */

atomic_int gpu_wrong_kernel = GPU_KERNEL_COUNT;

/* Returns the address of the result that a kernel writes. It is the first field
 * of most argument structs. */
static uint64_t result_of(enum gpu_kernel k, const void *args)
{
    const char *name = gpu_kernel_name(k);
    uint64_t at;

    if (strncmp(name, "mat", 3) == 0)
        return ((const struct contract_args *)args)->out;
    if (k == GPU_attend_merge)
        return ((const struct attend_merge_args *)args)->out;
    /* the merged result, or the sums of the first partial one */
    if (strncmp(name, "attend", 6) == 0) {
        const struct attend_args *a = args;

        return a->tail.count ? a->tail.out : a->part + 4 * TEXT_SOFT;
    }
    if (k == GPU_merge_tree)
        return ((const struct merge_tree_args *)args)->piece.dst;
    if (k == GPU_route_keys)
        return ((const struct route_args *)args)->key;
    if (k == GPU_route_places)
        return ((const struct route_args *)args)->list;
    if (k == GPU_route_blocks)
        return ((const struct route_args *)args)->block;
    if (k == GPU_short_conv_state)
        return ((const struct short_conv_args *)args)->state;
    if (k == GPU_delta_norm)
        return ((const struct delta_net_args *)args)->kn;
    memcpy(&at, args, sizeof at);
    return at;
}

/* Returns the bit of a float to flip. Other kernels may round the values that
 * they read, so for those a higher bit than the lowest. */
static uint32_t wrong_bit(enum gpu_kernel k)
{
    bool inner =
        k == GPU_delta_norm || (k >= GPU_attend_4 && k < GPU_attend_merge);

    return inner ? 1u << 16 : 1;
}

static pl_status wrong_launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                              int32_t n_group, const void *args, pl_err *err)
{
    uint32_t *word = (uint32_t *)(uintptr_t)result_of(k, args);

    PL_TRY(gpu_emu.launch(g, q, k, n_group, args, err));
    if ((int)k != gpu_wrong_kernel)
        return PL_OK;
    PL_TRY(gpu_emu.finish(g, q, err));
    word[5] ^= wrong_bit(k);
    return PL_OK;
}

/* ---- the backends -------------------------------------------------------- */

static struct gpu_driver gpu_eager, gpu_hangs, gpu_wrong;

__attribute__((constructor)) static void make(void)
{
    gpu_eager = gpu_emu;
    /* without device graphs, so that launch() is called for each launch */
    gpu_eager.graph_make = NULL;
    gpu_eager.name = "eager";
    gpu_eager.identity = gpu_odd_identity;
    gpu_eager.compile_kernels = eager_ready;
    gpu_eager.no_selftest = false;
    gpu_eager.launch = eager_launch;
    gpu_eager.close = eager_close;
    gpu_wrong = gpu_emu;
    gpu_wrong.graph_make = NULL;
    gpu_wrong.name = "wrong";
    gpu_wrong.no_selftest = false;
    gpu_wrong.launch = wrong_launch;
    gpu_hangs = gpu_emu;
    gpu_hangs.graph_make = NULL;
    gpu_hangs.name = "hung";
    /* its queues wait for nobody: tests expect the hang where the thread
     * waits */
    gpu_hangs.wait_word = NULL;
    gpu_hangs.open = hung_open;
    gpu_hangs.alloc = hung_alloc;
    gpu_hangs.host_alloc = hung_host_alloc;
    gpu_hangs.copy = hung_copy;
    gpu_hangs.no_selftest = false;
    gpu_hangs.launch = hung_launch;
    gpu_hangs.flush = hung_flush;
    gpu_hangs.fence_record = hung_mark;
    gpu_hangs.fence_query = hung_reached;
    gpu_hangs.has_mem_ops = hung_words;
    gpu_hangs.signal_word = hung_post;
    gpu_hangs.finish = hung_finish;
    gpu_hangs.close = hung_close;
    gpu_hangs.release = hung_release;
    gpu_hangs.host_release = hung_host_release;
    gpu_hangs.map = hung_map;
    gpu_hangs.unmap = hung_unmap;
    gpu_hangs.enable_peer_access = hung_reach;
}

const struct backend_ops eager_ops = GPU_KIND(eager, gpu_eager);
const struct backend_ops hung_ops = GPU_KIND(hung, gpu_hangs);
const struct backend_ops wrong_ops = GPU_KIND(wrong, gpu_wrong);
