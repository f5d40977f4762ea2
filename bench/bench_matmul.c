/* Measures how fast contractions read their weights, compared with the
 * bandwidth of memory.
 *
 * Successive calls read successive parts of a buffer of weights that is larger
 * than any cache, as the layers of a model are. The read bandwidth is measured
 * by the same threads on the same buffer, and so is the peak rate of the
 * threads' multiplications. Only the ratios are comparable between machines.
 * Prints a line for each case: OP_FORMAT_ROWSxK_nTOKENS_tTHREADS. The program
 * allocates and draws the weights itself, without a model. */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "device/cpu/cpu_kernel.h"

enum {
    MAX_THREAD = 64,
    MAX_RANK = 64,
    MAX_RUN = 4000,
    N_EXPERT = 128,
    N_USED = 8
};

static const struct bench_case {
    enum kernel kernel;
    int n, k, n_tok;
} cases[] = {
    {KERNEL_matmul, 4096, 4096, 1},
    {KERNEL_matmul, 4096, 4096, 4},
    {KERNEL_matmul, 4096, 4096, 8},
    {KERNEL_matmul, 4096, 4096, 64},
    {KERNEL_matmul, 1024, 1024, 512},
    {KERNEL_matmul, 1024, 3072, 1},
    {KERNEL_matmul, 1024, 3072, 512},
    {KERNEL_matmul, 3072, 1024, 512},
    {KERNEL_matmul, 256, 256, 1},
    {KERNEL_matmul, 256, 256, 64},
    {KERNEL_expert_matmul, 768, 2048, 1},
    {KERNEL_expert_down, 2048, 768, 1},
    {KERNEL_expert_matmul, 768, 2048, 8},
    {KERNEL_expert_down, 2048, 768, 8},
    {KERNEL_expert_matmul, 768, 2048, 128},
    {KERNEL_expert_down, 2048, 768, 128},
    {KERNEL_expert_down, 256, 256, 1},
    {KERNEL_expert_down, 256, 256, 128},
};
enum { N_CASE = sizeof(cases) / sizeof(cases[0]) };

/* MXFP4 is missing: the weights are random bytes, and half of its scales would
 * be subnormal or exceed the range of floats. */
static const pl_format formats[] = {
    PL_Q8_0, PL_Q4_0, PL_Q5_0,   PL_IQ4_NL, PL_Q2_K, PL_Q3_K, PL_Q4_K,
    PL_Q5_K, PL_Q6_K, PL_IQ4_XS, PL_F16,    PL_BF16, PL_F32};
enum { N_FORMAT = sizeof(formats) / sizeof(formats[0]) };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Allocates `size` bytes as the cpu backend does: in huge pages if the system
 * has some. */
static void *get(size_t size)
{
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;

    if (posix_memalign(&p, size < huge ? 4096 : huge, size > 0 ? size : 1)) {
        fprintf(stderr, "bench-matmul: no memory for %zu bytes; lower -b\n",
                size);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    if (size >= huge)
        madvise(p, size / huge * huge, MADV_HUGEPAGE);
#endif
    return p;
}

/* ---- a team -------------------------------------------------------------- */

/* Threads that run job(user, i, ith) together for i = 0, 1, ... Thread 0 is the
 * caller and measures the time of each i. */
struct team {
    int nth, n_run;
    double seconds;
    void (*job)(void *user, int run, int ith);
    void *user;
    atomic_int arrived, round;
    atomic_bool stop;
    double us[MAX_RUN];
};

struct member {
    struct team *team;
    int ith;
};

static void barrier(struct team *t)
{
    int round = atomic_load(&t->round);

    if (atomic_fetch_add(&t->arrived, 1) + 1 == t->nth) {
        atomic_store(&t->arrived, 0);
        atomic_fetch_add(&t->round, 1);
        return;
    }
    for (int i = 0; atomic_load(&t->round) == round; i++) {
        if (i > 10000)
            sched_yield();
    }
}

static void *member_run(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    double start = now_us();

    for (int i = 0; i < MAX_RUN; i++) {
        double before;

        barrier(t);
        if (atomic_load(&t->stop))
            break;
        before = now_us();
        t->job(t->user, i, m->ith);
        barrier(t);
        if (m->ith > 0)
            continue;
        t->us[i] = now_us() - before;
        t->n_run = i + 1;
        atomic_store(&t->stop, i >= 4 && now_us() - start > t->seconds * 1e6);
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Runs the jobs on all threads. Afterwards t->us[n_run] has their times in
 * microseconds, sorted. */
static void team_run(struct team *t, void (*job)(void *, int, int), void *user)
{
    pthread_t thread[MAX_THREAD];
    struct member member[MAX_THREAD];

    t->job = job;
    t->user = user;
    atomic_store(&t->stop, false);
    for (int i = 0; i < t->nth; i++)
        member[i] = (struct member){t, i};
    for (int i = 1; i < t->nth; i++) {
        if (pthread_create(&thread[i], NULL, member_run, &member[i]) != 0) {
            fprintf(stderr, "bench-matmul: cannot start %d threads\n", t->nth);
            exit(1);
        }
    }
    member_run(&member[0]);
    for (int i = 1; i < t->nth; i++)
        pthread_join(thread[i], NULL);
    qsort(t->us, (size_t)t->n_run, sizeof(t->us[0]), ascending);
}

/* ---- memory alone -------------------------------------------------------- */

struct memory {
    const uint64_t *data;
    /* n: 64-bit words in data[]; piece: words that one job reads */
    size_t n, piece;
    int nth;
    atomic_ulong sink;
};

static void memory_job(void *user, int run, int ith)
{
    struct memory *m = user;
    size_t n = m->piece / (size_t)m->nth / 32 * 32;
    size_t at = (size_t)run * m->piece % (m->n - m->piece + 1);
    const uint64_t *p = m->data + at / 32 * 32 + (size_t)ith * n;
    uint64_t sum[8] = {0};

    /* Each j is a stream of cache lines; reading one word of a line fetches all
     * of it. */
    for (size_t i = 0; i < n; i += 32) {
        __builtin_prefetch(p + i + 512);
        for (int j = 0; j < 4; j++)
            sum[j] += p[i + (size_t)j * 8];
    }
    for (int j = 1; j < 8; j++)
        sum[0] += sum[j];
    atomic_fetch_add(&m->sink, sum[0]);
}

/* ---- contractions -------------------------------------------------------- */

struct work {
    struct graph_attr attr;
    const struct cpu_kernels *k;
    const struct bench_case *c;
    struct pack pack;
    struct pack_chunk chunk[2 * MAX_RANK];
    uint8_t *weights;
    /* number of matrices in `weights` with which a call may begin */
    int64_t room;
    float *x, *out;
    struct q8_block *q8;
    int32_t *id;
    struct cpu_call call;
    struct tree_addend item[MAX_RANK];
    void *scratch[MAX_THREAD];
    int nth, n_rank;
};

/* Returns the index of the first matrix of a call. A call with experts uses
 * matrices 17 apart for its first token, so that 17 successive calls share no
 * matrix. */
static int64_t first_matrix(const struct work *w, int run)
{
    return w->c->kernel == KERNEL_matmul ? run
                                         : run % 17 + run / 17 * (17 * N_USED);
}

static void work_job(void *user, int run, int ith)
{
    struct work *w = user;
    struct cpu_call c = w->call;

    c.in[1].data = w->weights + (size_t)(first_matrix(w, run) % w->room) *
                                    w->pack.matrix_bytes;
    c.ith = ith;
    c.scratch = w->scratch[ith];
    cpu_entry_of(w->k, w->c->kernel, c.attr)->run(&c);
}

static void dims(struct cpu_tensor *t, int n, int64_t a, int64_t b, int64_t c)
{
    t->n_dim = n;
    t->dim[0] = a;
    t->dim[1] = b;
    t->dim[2] = c;
}

/* Fills the buffer of weights with copies of one packed panel, whose rows have
 * random codes and small scales. */
static void weights_fill(struct work *w, size_t size, unsigned *seed)
{
    const struct format_info *f = format_info(w->pack.format);
    size_t row_bytes = format_row_bytes(w->pack.format, w->c->k);
    uint8_t *row = get(row_bytes);

    memset(w->weights, 0, w->pack.panel_bytes);
    for (int r = 0; r < PACK_ROWS; r++) {
        for (size_t i = 0; i < row_bytes; i++)
            row[i] = (uint8_t)(rand_r(seed) & 0x1f);
        if (f->encode != NULL) {
            for (int i = 0; i < w->c->k; i++)
                w->x[i] = (float)rand_r(seed) / (float)RAND_MAX - 0.5f;
            f->encode(row, w->x, w->c->k);
        }
        pack_row(&w->pack, w->weights, r, row);
    }
    for (size_t i = w->pack.panel_bytes; i + w->pack.panel_bytes <= size;
         i += w->pack.panel_bytes)
        memcpy(w->weights + i, w->weights, w->pack.panel_bytes);
    free(row);
}

/* Divides k equally among n_rank ranks, a power of two, whose addends are
 * summed along a binary tree. The number of additions after rank r is the
 * number of times that 2 divides r + 1. */
static int ranks_init(struct work *w, struct pack_span *span, int k)
{
    int n = 0;

    for (int r = 0; r < w->n_rank; r++) {
        int lo = k / 32 * r / w->n_rank * 32;
        int hi = k / 32 * (r + 1) / w->n_rank * 32;

        w->item[r] = (struct tree_addend){r, __builtin_ctz((unsigned)r + 1)};
        if (hi > lo)
            span[n++] = (struct pack_span){lo, hi - lo, r};
    }
    return n;
}

static void work_init(struct work *w, uint8_t *buffer, size_t size,
                      const struct bench_case *c, pl_format f)
{
    struct pack_span span[MAX_RANK];
    int n_span = ranks_init(w, span, c->k);
    struct cpu_call *call = &w->call;
    bool expert = c->kernel != KERNEL_matmul;
    int64_t rows =
        (int64_t)c->n_tok * (c->kernel == KERNEL_expert_down ? N_USED : 1);
    unsigned seed = 1;

    w->c = c;
    w->weights = buffer;
    pack_init(&w->pack, f, c->n, c->k, span, n_span, w->chunk);
    w->room =
        (int64_t)(size / w->pack.matrix_bytes) - (expert ? N_EXPERT : 1) + 1;
    w->x = get((size_t)(rows * c->k) * sizeof(float));
    w->q8 = get((size_t)(rows * c->k / 32) * sizeof(struct q8_block));
    w->out = get((size_t)c->n_tok * N_USED * (size_t)c->n * sizeof(float));
    w->id = get((size_t)c->n_tok * N_USED * sizeof(int32_t));
    weights_fill(w, size, &seed);
    for (int64_t i = 0; i < rows * c->k; i++)
        w->x[i] = (float)rand_r(&seed) / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < c->n_tok * N_USED; i++)
        w->id[i] = (i % N_USED * 17 + i / N_USED * 29) % N_EXPERT;
    w->k->q8(w->q8, w->x, rows * c->k, 32);
    *call = (struct cpu_call){
        .n_in = expert ? 3 : 2,
        .q8 = cpu_wants_q8(w->k, c->kernel, f) ? w->q8 : NULL,
        .attr = &w->attr,
        .tree = {.n = w->n_rank, .n_out = 1, .item = w->item, .depth = 7},
        .nth = w->nth,
    };
    if (expert) {
        dims(&call->in[0], 3, c->n_tok, rows / c->n_tok, c->k);
        dims(&call->in[1], 3, N_EXPERT, c->n, c->k);
        dims(&call->in[2], 2, c->n_tok, N_USED, 0);
    } else {
        dims(&call->in[0], 2, c->n_tok, c->k, 0);
        dims(&call->in[1], 2, c->n, c->k, 0);
    }
    if (c->kernel == KERNEL_expert_matmul)
        dims(&call->out, 3, c->n_tok, N_USED, c->n);
    else
        dims(&call->out, 2, c->n_tok, c->n, 0);
    call->in[1].format = f;
    call->in[1].pack = &w->pack;
    for (int i = 0; i < w->nth; i++)
        w->scratch[i] =
            get(cpu_entry_of(w->k, c->kernel, call->attr)->scratch(call));
    call->in[0].data = w->x;
    call->in[2].data = w->id;
    call->out.data = w->out;
}

static void work_fini(struct work *w)
{
    free(w->x);
    free(w->q8);
    free(w->out);
    free(w->id);
    for (int i = 0; i < w->nth; i++)
        free(w->scratch[i]);
}

/* Returns the bytes of weights that one call reads. */
static double bytes_read(const struct work *w)
{
    bool used[N_EXPERT] = {false};
    double n = 0;

    if (w->c->kernel == KERNEL_matmul)
        return (double)w->pack.matrix_bytes;
    for (int i = 0; i < w->c->n_tok * N_USED; i++)
        used[w->id[i]] = true;
    for (int e = 0; e < N_EXPERT; e++)
        n += used[e];
    return n * (double)w->pack.matrix_bytes;
}

static double products(const struct bench_case *c)
{
    return (double)c->n * c->k * c->n_tok *
           (c->kernel == KERNEL_matmul ? 1 : N_USED);
}

static void case_name(char *s, size_t size, const struct bench_case *c,
                      pl_format f, int nth)
{
    int n = snprintf(s, size, "%s_", kernel_name(c->kernel));

    for (const char *p = format_info(f)->name; *p != '\0'; p++)
        s[n++] = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
    snprintf(s + n, size - (size_t)n, "_%dx%d_n%d_t%d", c->n, c->k, c->n_tok,
             nth);
}

/* Returns the read bandwidth of the threads: the best of many short
 * measurements, so that other load on the machine does not lower it. */
static double memory_bandwidth(struct team *team, const void *buffer,
                               size_t size)
{
    struct memory m = {.data = buffer,
                       .n = size / 8 - 512,
                       .piece = 1 << 21,
                       .nth = team->nth};

    team_run(team, memory_job, &m);
    return (double)(m.piece * 8) / team->us[0] * 1e-3;
}

static void case_run(struct team *team, const struct cpu_kernels *k, int n_rank,
                     const pl_limits *limits, uint8_t *buffer, size_t size,
                     const struct bench_case *c, pl_format f, bool fast,
                     const char *filter)
{
    bool bf16 = fast && (f == PL_F16 || f == PL_BF16);
    double peak = format_info(f)->block > 1 ? limits->int8_ops_per_s
                  : bf16 && limits->bf16_ops_per_s > 0
                      ? limits->bf16_ops_per_s
                      : limits->float_ops_per_s;
    struct work *w;
    char name[96];
    double median, gbs, memory;

    case_name(name, sizeof(name), c, f, team->nth);
    if (strstr(name, filter) == NULL)
        return;
    w = get(sizeof(*w));
    *w = (struct work){
        .k = k, .nth = team->nth, .n_rank = n_rank, .attr = {.bf16 = bf16}};
    work_init(w, buffer, size, c, f);
    memory = memory_bandwidth(team, buffer, size);
    if (w->room > 0) {
        team_run(team, work_job, w);
        median = team->us[team->n_run / 2];
        gbs = bytes_read(w) / median * 1e-3;
        /* from operations per second of all cores to multiply-adds per
         * microsecond of these threads */
        peak *= 0.5e-6 * team->nth / limits->n_threads;
        printf("%-38s %9.1f %9.1f us %7.2f GB/s %4.0f %% %8.1f Gmac/s "
               "%4.0f %%\n",
               name, median, team->us[0], gbs, 100 * gbs / memory,
               products(c) / median * 1e-3, 100 * products(c) / median / peak);
    } else {
        printf("%-38s needs a larger -b\n", name);
    }
    fflush(stdout);
    work_fini(w);
    free(w);
}

static const char usage[] =
    "usage: bench-matmul [-t THREADS] [-r RANKS] [-f SET] [-b MIB] [-s S] "
    "[-F] [FILTER]\n"
    "Cases whose name contains FILTER: median and least time, weights read a\n"
    "second, their share of the memory's read bandwidth, multiply-adds a "
    "second,\n"
    "their share of what so many threads multiply at best: 8-bit integers by\n"
    "vectors, or floats where weights are floats.\n"
    "  -r  cut k over this many ranks, a power of two (1)\n"
    "  -b  buffer the weights are cycled through (512); beyond all caches\n"
    "  -s  time for each case (0.3)\n"
    "  -F  as --numerics fast: weights of 16 bits are multiplied as BF16\n";

int main(int argc, char **argv)
{
    static struct team team = {.nth = 2, .seconds = 0.3};
    enum kernel_set set = kernel_set_best();
    struct cpu_kernels k;
    pl_limits limits;
    pl_meter *meter;
    pl_err err;
    size_t size = (size_t)512 << 20;
    uint8_t *buffer;
    bool known = true, fast = false;
    int n_rank = 1;
    int o;

    while ((o = getopt(argc, argv, "t:r:f:b:s:Fh")) != -1) {
        if (o == 't')
            team.nth = atoi(optarg);
        else if (o == 'r')
            n_rank = atoi(optarg);
        else if (o == 'f')
            known = kernel_set_find(&set, optarg, false, NULL) == PL_OK;
        else if (o == 'b')
            size = (size_t)atoi(optarg) << 20;
        else if (o == 's')
            team.seconds = atof(optarg);
        else if (o == 'F')
            fast = true;
        else
            return fputs(usage, o == 'h' ? stdout : stderr), o == 'h' ? 0 : 2;
    }
    if (team.nth < 1 || team.nth > MAX_THREAD || n_rank < 1 ||
        n_rank > MAX_RANK || (n_rank & (n_rank - 1)) != 0 ||
        size < (size_t)32 << 20 || !known)
        return fputs(usage, stderr), 2;
    if (pl_meter_create(&meter, &err) != PL_OK)
        return fprintf(stderr, "bench-matmul: %s\n", err.message), 1;
    for (int i = 0; i < 4; i++)
        pl_meter_measure(meter, NULL, &limits, sizeof limits, NULL);
    pl_meter_free(meter);
    cpu_kernels_init(&k, set);
    buffer = get(size);
    memset(buffer, 1, size);
    printf("kernels %s, read bandwidth %.2f GB/s on %d threads\n",
           kernel_set_name(set), memory_bandwidth(&team, buffer, size),
           team.nth);
    for (int c = 0; c < N_CASE; c++) {
        for (int f = 0; f < N_FORMAT; f++)
            case_run(&team, &k, n_rank, &limits, buffer, size, &cases[c],
                     formats[f], fast, optind < argc ? argv[optind] : "");
    }
    free(buffer);
    return 0;
}
