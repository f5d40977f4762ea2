/* Implements pl_meter: measures the peak rates of the cores, so that the
 * performance of a model can be given as a share of these rates.
 *
 * To measure reads, each thread reads memory of its own, larger than any cache
 * and in huge pages. It reads each cache line once, in 1, 2 or 4 sequential
 * streams. To measure multiplications, each thread runs a loop of one
 * instruction on registers. The loop has twelve independent chains of dependent
 * instructions, more than a core can execute at the same time. Loops are short,
 * and the best result of several is used. */
#include "base/err.h"
#include "base/sized.h"
#include "cost/calibration.h"
#include "device/team.h"
#include "machine/cpu_features.h"
#include "machine/topology.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- loops of multiply instructions -------------------------------------- */

/* A multiply instruction whose rate is measured. The processor has it if it has
 * the features `needs` (CPU_ bits); NO_UNIT stands for none. `run` executes it
 * 12 * n times. `ops` is the number of multiplications and additions of one
 * execution. */
#define NO_UNIT UINT_MAX
struct unit {
    const char *name;
    unsigned needs;
    void (*run)(long n);
    double ops;
};

/* Defines the function `name`, which runs a loop of the instruction `one`. */
#define LOOP_OF(name, one)                                                     \
    static void name(long n)                                                   \
    {                                                                          \
        LOOP(one);                                                             \
    }
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(__x86_64__)

#define LOOP(one)                                                              \
    __asm__ volatile(                                                          \
        "vpxor %%xmm12,%%xmm12,%%xmm12\n"                                      \
        "vpxor %%xmm13,%%xmm13,%%xmm13\n" TWELVE(ZERO) "1:\n" TWELVE(          \
            one) "dec %0\njnz 1b\nvzeroupper\n"                                \
        : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",     \
          "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", \
          "cc")
#define ZERO(i)    "vpxor %%xmm" #i ",%%xmm" #i ",%%xmm" #i "\n"
#define DOT_ZMM(i) "vpdpbusd %%zmm12,%%zmm13,%%zmm" #i "\n"
#define DOT_YMM(i) "%{vex%} vpdpbusd %%ymm12,%%ymm13,%%ymm" #i "\n"
#define PAIR_YMM(i)                                                            \
    "vpmaddubsw %%ymm12,%%ymm13,%%ymm14\nvpaddw %%ymm14,%%ymm" #i ",%%ymm" #i  \
    "\n"
#define FMA_ZMM(i)  "vfmadd231ps %%zmm12,%%zmm13,%%zmm" #i "\n"
#define FMA_YMM(i)  "vfmadd231ps %%ymm12,%%ymm13,%%ymm" #i "\n"
#define BF16_ZMM(i) "vdpbf16ps %%zmm12,%%zmm13,%%zmm" #i "\n"
#define MUL_XMM(i)                                                             \
    "movaps %%xmm13,%%xmm14\nmulps %%xmm12,%%xmm14\naddps %%xmm14,%%xmm" #i "\n"

LOOP_OF(dot_zmm, DOT_ZMM)
LOOP_OF(dot_ymm, DOT_YMM)
LOOP_OF(pair_ymm, PAIR_YMM)
LOOP_OF(fma_zmm, FMA_ZMM)
LOOP_OF(bf16_zmm, BF16_ZMM)
LOOP_OF(fma_ymm, FMA_YMM)

static void mul_xmm(long n)
{
    __asm__ volatile("1:\n" TWELVE(MUL_XMM) "dec %0\njnz 1b\n"
                     : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "cc");
}

/* Multiplies tiles with AMX: in each iteration, two pairs of tiles of 16 rows
 * of 64 bytes give four sums of 16 x 16 elements. */
static void amx(long n)
{
    struct {
        uint8_t palette, start, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %1\n"
                     "tilezero %%tmm0\ntilezero %%tmm1\n"
                     "tilezero %%tmm2\ntilezero %%tmm3\n"
                     "tilezero %%tmm4\ntilezero %%tmm5\n"
                     "tilezero %%tmm6\ntilezero %%tmm7\n"
                     "1:\n"
                     "tdpbssd %%tmm6,%%tmm4,%%tmm0\n"
                     "tdpbssd %%tmm7,%%tmm4,%%tmm1\n"
                     "tdpbssd %%tmm6,%%tmm5,%%tmm2\n"
                     "tdpbssd %%tmm7,%%tmm5,%%tmm3\n"
                     "dec %0\njnz 1b\ntilerelease\n"
                     : "+r"(n)
                     : "m"(shape)
                     : "memory", "cc");
}

/* Instructions that multiply bytes, the best first. The first that the
 * processor has is measured. `ops` counts the operations of one of the twelve
 * steps of a loop; a step may be several instructions. */
static const struct unit int8_units[] = {
    {"vpdpbusd zmm", CPU_AVX512_VNNI, dot_zmm, 128},
    {"vpdpbusd ymm", CPU_AVX_VNNI, dot_ymm, 64},
    {"vpmaddubsw ymm", CPU_AVX2, pair_ymm, 64},
    {"mulps xmm", 0, mul_xmm, 8},
};
static const struct unit float_units[] = {
    {"vfmadd231ps zmm", CPU_AVX512, fma_zmm, 32},
    {"vfmadd231ps ymm", CPU_AVX2, fma_ymm, 16},
    {"mulps xmm", 0, mul_xmm, 8},
};
static const struct unit bf16_unit = {"vdpbf16ps zmm", CPU_AVX512_BF16,
                                      bf16_zmm, 64};
static const struct unit amx_unit = {"tdpbssd", CPU_AMX_INT8, amx,
                                     4 * 32768 / 12.};

#elif defined(__aarch64__)

#define LOOP(one)                                                              \
    __asm__ volatile("1:\n" TWELVE(one) "subs %0,%0,#1\nb.ne 1b\n"             \
                     : "+r"(n)::"v0", "v1", "v2", "v3", "v4", "v5", "v6",      \
                       "v7", "v8", "v9", "v10", "v11", "v12", "v13", "cc")
/* The instruction sdot v<i>.4s,v12.16b,v13.16b as a number, because an
 * assembler for an older processor rejects its name. */
#define SDOT(i) ".inst 0x4e8d9580+" #i "\n"
#define FMLA(i) "fmla v" #i ".4s,v12.4s,v13.4s\n"

LOOP_OF(sdot, SDOT)
LOOP_OF(fmla, FMLA)

static const struct unit int8_units[] = {
    {"sdot", CPU_DOTPROD, sdot, 32},
    {"fmla", 0, fmla, 8},
};
static const struct unit float_units[] = {{"fmla", 0, fmla, 8}};
static const struct unit amx_unit = {"none", NO_UNIT, fmla, 8};
static const struct unit bf16_unit = {"none", NO_UNIT, fmla, 8};

#else

static void plain(long n)
{
    float v[12] = {0};

    for (; n > 0; n--)
        for (int i = 0; i < 12; i++)
            v[i] += v[i] * 0.5f;
    __asm__ volatile("" ::"m"(v));
}

static const struct unit int8_units[] = {{"plain C", 0, plain, 2}};
static const struct unit float_units[] = {{"plain C", 0, plain, 2}};
static const struct unit amx_unit = {"none", NO_UNIT, plain, 2};
static const struct unit bf16_unit = {"none", NO_UNIT, plain, 2};

#endif

/* ---- measuring on all cores ---------------------------------------------- */

enum { ROUNDS = 100, LOOPS = 8000 };

static const size_t part_bytes = (size_t)64 << 20,
                    least_bytes = (size_t)1 << 30;

struct part {
    _Alignas(64) char *p; /* owned, [bytes] memory that this thread reads */
    /* operations per second of this thread in the present round */
    double rate;
    uint64_t sum; /* sum of the words read, so that the compiler keeps the
                     reads */
};

struct pl_meter {
    pid_t owner;       /* process that created the threads; a forked child
                          does not have them */
    atomic_bool busy;  /* true while pl_meter_measure runs */
    int n;             /* number of cores, and of threads */
    struct part *part; /* owned, [n] memory and results of each thread */
    size_t bytes;      /* size in bytes of the memory that each thread reads */
    struct team *team; /* owned: the threads, one per core */
    const struct unit *unit; /* the multiply instruction that is being
                                measured */
    int streams;    /* number of sequential streams in which a thread reads */
    pl_limits best; /* best results so far; 0 for what was not measured */
};

static void multiply(void *user, int member)
{
    pl_meter *m = user;
    double start = seconds();

    m->unit->run(LOOPS);
    m->part[member].rate = 12. * LOOPS * m->unit->ops / (seconds() - start);
}

/* Measures the operations per second of all threads together, which execute
 * instruction u at the same time. Sets *best to the result if it is higher. */
static void measure_unit(pl_meter *m, const struct unit *u, double *best)
{
    m->unit = u;
    for (int r = 0; r < ROUNDS; r++) {
        double sum = 0;

        team_run(m->team, multiply, m);
        for (int i = 0; i < m->n; i++)
            sum += m->part[i].rate;
        *best = sum > *best ? sum : *best;
    }
}

/* Reads `bytes` bytes at p in n sequential streams. Reads only one word of each
 * cache line, because the processor then fetches the whole line. */
static inline __attribute__((always_inline)) uint64_t
read_streams(const char *p, size_t bytes, const int n)
{
    enum { LINE = 64, AT_ONCE = 4, AHEAD = 4096 };
    const size_t part = bytes / (size_t)n;
    uint64_t sum[AT_ONCE] = {0};

    for (size_t i = 0; i < part; i += LINE * AT_ONCE)
        for (int s = 0; s < n; s++) {
            const char *q = p + (size_t)s * part + i;

            for (int k = 0; k < AT_ONCE; k++) {
                __builtin_prefetch(q + AHEAD + LINE * k);
                sum[k] += *(const uint64_t *)(const void *)(q + LINE * k);
            }
        }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void read_part(void *user, int member)
{
    pl_meter *m = user;
    struct part *x = &m->part[member];

    x->sum += m->streams == 1   ? read_streams(x->p, m->bytes, 1)
              : m->streams == 2 ? read_streams(x->p, m->bytes, 2)
                                : read_streams(x->p, m->bytes, 4);
}

static void touch(void *user, int member)
{
    pl_meter *m = user;

    memset(m->part[member].p, member + 1, m->bytes);
}

static void measure_reads(pl_meter *m, pl_limits *to)
{
    for (m->streams = 1; m->streams <= 4; m->streams *= 2) {
        double start = seconds(), rate;

        team_run(m->team, read_part, m);
        rate = (double)m->bytes * m->n / (seconds() - start);
        if (rate > to->read_bytes_per_s) {
            to->read_bytes_per_s = rate;
            to->n_streams = m->streams;
        }
    }
}

static bool has(const struct unit *u)
{
    return u->needs != NO_UNIT && (cpu_features() & u->needs) == u->needs;
}

/* Returns the first instruction of a list that this processor supports. The
 * last one is always supported. */
static const struct unit *first(const struct unit *u)
{
    while (!has(u))
        u++;
    return u;
}

static void measure_units(pl_meter *m, pl_limits *to)
{
    const struct unit *i = first(int8_units), *f = first(float_units);

    to->int8_unit = i->name;
    measure_unit(m, i, &to->int8_ops_per_s);
    to->float_unit = f->name;
    measure_unit(m, f, &to->float_ops_per_s);
    if (has(&bf16_unit))
        measure_unit(m, &bf16_unit, &to->bf16_ops_per_s);
    if (has(&amx_unit))
        measure_unit(m, &amx_unit, &to->amx_ops_per_s);
}

static void keep_best(double *best, double now)
{
    *best = now > *best ? now : *best;
}

/* Allocates the memory that each thread reads, on the NUMA node of the thread's
 * core. All threads together get at most an eighth of the available memory.
 * Sets core[i] to the core of thread i. */
static pl_status make_parts(pl_meter *m, const struct topology *t, int *core,
                            pl_err *err)
{
    size_t all = part_bytes * (size_t)m->n;

    if (all < least_bytes)
        all = least_bytes;
    if (t->available_bytes > 0 && all > t->available_bytes / 8)
        all = t->available_bytes / 8;
    m->bytes = all / (size_t)m->n / 4096 * 4096;
    for (int i = 0; i < m->n; i++) {
        const struct topology_core *c = &t->core[i];

        core[i] = c->os;
        m->part[i].p = topology_alloc(
            t, c->node < t->n_node ? t->node[c->node].os : -1, m->bytes);
        if (!m->part[i].p)
            return err_no_memory(err, "measuring limits");
    }
    return PL_OK;
}

pl_status pl_meter_create(pl_meter **out, pl_err *err)
{
    struct calibration c;
    const struct topology *t;
    int *core = NULL;
    pl_meter *m;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_TRY(topology_open(&t, err));
    calibration_init(&c, kernel_set_best(), t);
    core = calloc((size_t)c.n_core, sizeof *core);
    m = calloc(1, sizeof *m);
    if (m) {
        m->owner = getpid();
        m->part = aligned_alloc(_Alignof(struct part),
                                (size_t)c.n_core * sizeof *m->part);
        m->n = m->part ? c.n_core : 0;
        if (m->part)
            memset(m->part, 0, (size_t)m->n * sizeof *m->part);
    }
    s = core && m && m->part ? make_parts(m, t, core, err)
                             : err_no_memory(err, "measuring limits");
    if (s == PL_OK)
        s = team_create(&m->team, m->n, core, m->n, err);
    if (s == PL_OK) {
        memcpy(m->best.cpu, c.cpu, sizeof m->best.cpu);
        m->best.n_threads = m->n;
        team_run(m->team, touch, m);
        *out = m;
    } else {
        pl_meter_free(m);
    }
    free(core);
    topology_drop(t);
    return s;
}

void pl_meter_free(pl_meter *m)
{
    bool here = m && m->owner == getpid();

    if (!m || (here && atomic_load(&m->busy)))
        return;
    team_free(m->team);
    for (int i = 0; i < m->n; i++)
        if (here)
            topology_free(m->part[i].p, m->bytes);
        else
            topology_free_copy(m->part[i].p, m->bytes);
    free(m->part);
    free(m);
}

static void measure(struct pl_meter *m, pl_limits *now)
{
    pl_limits x = {.n_threads = m->n}, *b = &m->best;

    memcpy(x.cpu, b->cpu, sizeof x.cpu);
    measure_reads(m, &x);
    measure_units(m, &x);
    if (x.read_bytes_per_s > b->read_bytes_per_s)
        b->n_streams = x.n_streams;
    b->int8_unit = x.int8_unit;
    b->float_unit = x.float_unit;
    keep_best(&b->read_bytes_per_s, x.read_bytes_per_s);
    keep_best(&b->int8_ops_per_s, x.int8_ops_per_s);
    keep_best(&b->float_ops_per_s, x.float_ops_per_s);
    keep_best(&b->amx_ops_per_s, x.amx_ops_per_s);
    keep_best(&b->bf16_ops_per_s, x.bf16_ops_per_s);
    *now = x;
}

pl_status pl_meter_measure(pl_meter *m, pl_limits *now, pl_limits *best,
                           size_t size, pl_err *err)
{
    static const pl_limits none;
    pl_limits x;

    sized_write(now, size, &none, sizeof none);
    sized_write(best, size, &none, sizeof none);
    PL_NEED(m, err);
    if (m->owner != getpid())
        return err_set(err, PL_BAD_ARGUMENT,
                       "created by process %d; this process, %d, is a fork "
                       "without its threads; create a new one here",
                       (int)m->owner, (int)getpid());
    if (atomic_exchange(&m->busy, true))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the meter is busy in another thread; wait, because "
                       "concurrent measurements disturb each other");
    measure(m, &x);
    sized_write(now, size, &x, sizeof x);
    sized_write(best, size, &m->best, sizeof m->best);
    atomic_store(&m->busy, false);
    return PL_OK;
}
