/* Executes the work groups of a launch, on one thread, in random order. A fiber
 * executes lanes one after another, from begin to end. A lane that waits at a
 * barrier keeps its fiber, and another fiber begins the next lanes. So a kernel
 * without barriers needs no switches between fibers. */
#include "emu/emu_run.h"

#include <stdlib.h>
#include <string.h>

#include "emu/emu_fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum {
    /* byte of unwritten shared memory: NaN in every float format, -1 as an
     * integer */
    POISON = 0xFF,
    /* bytes between two shared arrays, inaccessible under AddressSanitizer */
    FENCE = 64,
    ARENA = EMU_LOCAL + 16 * FENCE
};

enum lane_state {
    LANE_READY,   /* has not begun, or was released from a barrier */
    LANE_BARRIER, /* waits at emu_barrier() */
    LANE_WAVE,    /* waits at emu_wave() */
    LANE_DONE
};

/* A copy that a lane has begun. */
struct copy {
    void *to;
    const void *from;
    size_t bytes;
};
enum { MAX_COPIES = 16 }; /* most copies that a lane leaves to its wait */

struct emu {
    uint64_t random;
    struct fiber main, fiber[GPU_MAX_LANES];
    /* memory of the work group's shared arrays, [ARENA]; owned */
    unsigned char *arena;
    /* bytes of `arena` that emu_local() has given to the current lane; maximum
     * over the group's lanes */
    size_t local, local_top;
    uint32_t exchange[GPU_MAX_LANES][8];
    /* the kernel and arguments of the launch in progress */
    emu_kernel *kernel;
    const void *args;
    /* the work group's lanes, and how many of them have begun: lane (first + i
     * * stride) % n_lane begins as the i-th */
    int n_lane, n_begun, first, stride;
    /* of the waiting lanes, the first n_passed in the order (from + i) % n_lane
     * have been considered for resuming */
    int from, n_passed;
    uint8_t state[GPU_MAX_LANES];    /* by lane: its enum lane_state */
    int wave;                        /* number of lanes in a wave */
    int on[GPU_MAX_LANES];           /* index of each lane's fiber; -1 if the
                                        lane has not begun */
    int n_idle, idle[GPU_MAX_LANES]; /* indices of the fibers without a lane */
    const char *wrong;               /* message about a fault; NULL if none */
    int n_copy[GPU_MAX_LANES];       /* copies that each lane has begun and that
                                        are not made yet: copy[lane] */
    struct copy copy[GPU_MAX_LANES][MAX_COPIES];
};

_Thread_local struct emu_lane emu_now;

static uint64_t draw(struct emu *e)
{
    e->random = e->random * 6364136223846793005u + 1442695040888963407u;
    return e->random >> 33;
}

/* ---- functions called by kernels ----------------------------------------- */

void *emu_local(size_t bytes)
{
    struct emu *e = emu_now.emu;
    size_t at = e->local, room = (bytes + FENCE - 1) / FENCE * FENCE;

    if (at + room + FENCE > ARENA) {
        e->wrong = "its groups use more than 32 KiB of shared memory";
        at = 0;
    } else {
        e->local = at + room + FENCE;
    }
    if (e->local > e->local_top)
        e->local_top = e->local;
    ASAN_UNPOISON_MEMORY_REGION(e->arena + at, bytes);
    return e->arena + at;
}

/* Returns the fiber to switch to: that of a released lane, else an idle fiber
 * if some lanes have not begun, else the thread's own. Fibers switch directly
 * to each other, because a detour over the thread's own fiber would take two
 * switches. */
static struct fiber *next_fiber(struct emu *e)
{
    enum { AHEAD = 3 };

    while (e->n_passed < e->n_lane) {
        int lane = (e->from + e->n_passed++) & (e->n_lane - 1);
        int soon = e->on[(lane + AHEAD) & (e->n_lane - 1)];

        if (e->state[lane] == LANE_READY && e->on[lane] >= 0) {
            if (soon >= 0)
                fiber_expect(&e->fiber[soon]);
            return &e->fiber[e->on[lane]];
        }
    }
    if (e->n_begun < e->n_lane && !e->wrong)
        return &e->fiber[e->idle[--e->n_idle]];
    return &e->main;
}

/* Suspends the current lane until go_on() releases it from the barrier
 * `why`. */
static void park(enum lane_state why)
{
    struct emu_lane here = emu_now;
    struct emu *e = here.emu;

    e->state[here.lane] = (uint8_t)why;
    fiber_switch(&e->fiber[e->on[here.lane]], next_fiber(e));
    emu_now = here;
}

void emu_barrier(void)
{
    park(LANE_BARRIER);
}

void emu_wave(int n)
{
    emu_now.emu->wave = n;
    park(LANE_WAVE);
}

uint32_t *emu_exchange(int32_t lane)
{
    return emu_now.emu->exchange[lane];
}

static void make_copies(struct emu *e, int lane)
{
    for (int i = 0; i < e->n_copy[lane]; i++)
        memcpy(e->copy[lane][i].to, e->copy[lane][i].from,
               e->copy[lane][i].bytes);
    e->n_copy[lane] = 0;
}

void emu_copy(void *to, const void *from, size_t bytes)
{
    struct emu *e = emu_now.emu;
    int lane = emu_now.lane;

    if (((uintptr_t)to | (uintptr_t)from) % bytes)
        emu_fault("it copies from or to a misaligned address");
    if (!emu_shares((uintptr_t)to) || emu_shares((uintptr_t)from))
        emu_fault("it does not copy from global to shared memory");
    if (e->n_copy[lane] == MAX_COPIES)
        make_copies(e, lane);
    e->copy[lane][e->n_copy[lane]++] = (struct copy){to, from, bytes};
    if (draw(e) & 1)
        make_copies(e, lane);
}

void emu_copy_wait(void)
{
    make_copies(emu_now.emu, emu_now.lane);
}

void emu_fault(const char *what)
{
    emu_now.emu->wrong = what;
}

bool emu_shares(uint64_t at)
{
    uint64_t first = (uintptr_t)emu_now.emu->arena;

    return at >= first && at < first + ARENA;
}

/* ---- execution of a work group ------------------------------------------- */

/* Begins lanes that have not begun and executes them one after another, on the
 * calling fiber. */
static void work(struct emu *e, int fiber)
{
    while (e->n_begun < e->n_lane && !e->wrong) {
        int lane = (e->first + e->n_begun++ * e->stride) % e->n_lane;

        e->on[lane] = fiber;
        e->local = 0;
        emu_now.lane = lane;
        e->kernel(e->args);
        if (e->n_copy[lane])
            e->wrong = "a lane ends before its copies are made";
        e->state[lane] = LANE_DONE;
    }
}

static void fiber_main(void *user, int fiber)
{
    struct emu *e = user;

    for (;;) {
        struct fiber *next;

        work(e, fiber);
        next = next_fiber(e);
        e->idle[e->n_idle++] = fiber;
        fiber_switch(&e->fiber[fiber], next);
    }
}

/* Executes lanes until each has ended or waits at a barrier. */
static void run_ready(struct emu *e)
{
    struct fiber *next;

    e->from = (int)(draw(e) % (unsigned)e->n_lane);
    e->n_passed = 0;
    next = next_fiber(e);
    if (next != &e->main)
        fiber_switch(&e->main, next);
}

static int count(const struct emu *e, int lo, int hi, enum lane_state s)
{
    int n = 0;

    for (int i = lo; i < hi; i++)
        n += e->state[i] == s;
    return n;
}

static void release(struct emu *e, int lo, int hi)
{
    for (int i = lo; i < hi; i++)
        e->state[i] = LANE_READY;
}

/* Releases the lanes of each wave whose lanes all wait at emu_wave(). If there
 * is no such wave, releases the group if all its lanes wait at emu_barrier().
 * Returns false if all lanes have ended. Also returns false, and records a
 * fault, if the waiting lanes can never be released. */
static bool go_on(struct emu *e)
{
    bool any = false;

    for (int w = 0, n = e->wave; w + n <= e->n_lane; w += n)
        if (count(e, w, w + n, LANE_WAVE) == n) {
            release(e, w, w + n);
            any = true;
        }
    if (any)
        return true;
    if (count(e, 0, e->n_lane, LANE_BARRIER) == e->n_lane) {
        release(e, 0, e->n_lane);
        return true;
    }
    if (count(e, 0, e->n_lane, LANE_DONE) < e->n_lane)
        e->wrong = "a barrier is not reached by all lanes of a group";
    return false;
}

static void run_group(struct emu *e)
{
    ASAN_POISON_MEMORY_REGION(e->arena, ARENA);
    e->n_begun = 0;
    e->first = (int)(draw(e) % (unsigned)e->n_lane);
    /* odd, so coprime to n_lane, which is a power of two */
    e->stride = (int)(draw(e) % (unsigned)e->n_lane) | 1;
    for (int i = 0; i < e->n_lane; i++) {
        e->state[i] = LANE_READY;
        e->on[i] = -1;
        e->n_copy[i] = 0;
    }
    do
        run_ready(e);
    while (!e->wrong && go_on(e));
    ASAN_UNPOISON_MEMORY_REGION(e->arena, ARENA);
    memset(e->arena, POISON, e->local_top);
    e->local_top = 0;
}

/* Creates all fibers. Frees the old ones first, because after a fault they hold
 * lanes that will never end. Returns false if out of memory. */
static bool make_fibers(struct emu *e)
{
    e->n_idle = 0;
    for (int i = 0; i < GPU_MAX_LANES; i++) {
        fiber_fini(&e->fiber[i]);
        if (!fiber_init(&e->fiber[i], fiber_main, e, i))
            return false;
        e->idle[e->n_idle++] = i;
    }
    return true;
}

/* Returns kernel k as compiled for a random one of the emulated GPUs that have
 * it. */
static emu_kernel *any_of(struct emu *e, enum gpu_kernel k)
{
    static emu_kernel *const *const tables[] = {
        emu_kernels,        emu_kernels_plain,
#ifndef EMU_PTX /* PTX is for NVIDIA's GPUs only */
        emu_kernels_mfma32, emu_kernels_mfma16,
        emu_kernels_wmma11, emu_kernels_wmma12,
#endif
    };
    emu_kernel *found = NULL;

    while (!found)
        found = tables[draw(e) % (sizeof tables / sizeof *tables)][k];
    return found;
}

/* Returns a number, at least `from`, that has no divisor in common with n. */
static int64_t coprime(int64_t from, int64_t n)
{
    for (;; from++) {
        int64_t a = from, b = n;

        while (b > 0) {
            int64_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1)
            return from;
    }
}

const char *emu_launch(struct emu *e, enum gpu_kernel k, int32_t n_group,
                       const void *args)
{
    int64_t first = n_group > 0 ? (int64_t)draw(e) % n_group : 0;
    int64_t stride = n_group > 0 ? (int64_t)draw(e) % n_group + 1 : 1;
    const char *wrong;

    stride = coprime(stride, n_group);
    e->kernel = any_of(e, k);
    e->args = args;
    e->n_lane = gpu_kernel_lanes(k);
    e->wave = 32;
    e->wrong = NULL;
    fiber_enter(&e->main);
    for (int32_t i = 0; i < n_group && !e->wrong; i++) {
        emu_now = (struct emu_lane){
            .group = (int32_t)((first + i * stride) % n_group),
            .n_group = n_group,
            .emu = e};
        run_group(e);
    }
    wrong = e->wrong;
    if (wrong && !make_fibers(e))
        return "no memory for the emulator's fibers";
    return wrong;
}

struct emu *emu_new(uint64_t seed)
{
    struct emu *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->random = seed;
    e->arena = aligned_alloc(FENCE, ARENA);
    if (!e->arena || !fiber_init(&e->main, NULL, NULL, 0) || !make_fibers(e)) {
        emu_free(e);
        return NULL;
    }
    memset(e->arena, POISON, ARENA);
    return e;
}

void emu_free(struct emu *e)
{
    if (!e)
        return;
    for (int i = 0; i < GPU_MAX_LANES; i++)
        fiber_fini(&e->fiber[i]);
    fiber_fini(&e->main);
    free(e->arena);
    free(e);
}
