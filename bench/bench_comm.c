/* Measures barriers and AllReduces of a vector among cpu devices. A program has
 * many AllReduces, so that the start of a step has little weight.
 *
 * Before each AllReduce every device writes its addend, as a matmul would, so
 * that its peers fetch the addend from another core's cache. The time of an
 * AllReduce runs from the moment at which the last device has written its
 * addend to the moment at which the last device has the sum. Row `idle` is the
 * time if addends are not written again: barrier and sum alone.
 *
 * Row `run` is the time of a step of an empty program: waking the threads and
 * joining them.
 *
 * Prints a line for each case: median and minimum over all AllReduces or steps,
 * in microseconds. Usage: bench-comm [SECONDS for each case] */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cpu/cpu_kernel.h"
#include "device/device.h"

/* With a single token, only the first thread executes a small instruction. */
enum { N_TOK = 2 };

enum { ROUNDS = 1000, MAX_DEV = 16, MAX_THREAD = 4, MAX_RUN = 200 };

enum { T_SEED, T_OWN, T_SUM = T_OWN + 2, N_TENSOR };

struct group {
    int n;
    struct prog_tensor tensor[N_TENSOR];
    struct copy_desc piece;
    struct merge_addend addend[2][MAX_DEV];
    struct merge_item item[2];
    struct insn insn[MAX_DEV][2 * ROUNDS + 1];
    /* attributes of each device's kernels */
    struct graph_attr attr[MAX_DEV][ROUNDS + 1];
    struct variant variant[MAX_DEV];
    struct program prog[MAX_DEV];
    int dev[MAX_DEV];
};

/* Times in microseconds at which thread i of device d began and ended to write
 * its part of the addend in round r: begun[r][d][i]. */
static double begun[ROUNDS + 1][MAX_DEV][MAX_THREAD];
static double ended[ROUNDS + 1][MAX_DEV][MAX_THREAD];
static double us[MAX_RUN * ROUNDS];

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* A kernel: copies the device's addend if attr.values is set, and notes when it
 * began and ended. attr.start is the round, attr.axis the device. */
static void fill(const struct cpu_call *c)
{
    int64_t n = c->out.dim[0];
    int64_t lo = n * c->ith / c->nth, hi = n * (c->ith + 1) / c->nth;

    begun[c->attr->start][c->attr->axis][c->ith] = now_us();
    if (c->attr->values)
        memcpy((float *)c->out.data + lo, (const float *)c->in[0].data + lo,
               (size_t)(hi - lo) * sizeof(float));
    /* all writes of the addend come before the clock is read */
    atomic_thread_fence(memory_order_seq_cst);
    ended[c->attr->start][c->attr->axis][c->ith] = now_us();
}

/* Sets n_add of each addend for the summation tree over a[n], whose left part
 * has the largest power of two below n. `below` is the depth of the stack
 * before. Returns the greatest depth. */
static int tree(struct merge_addend *a, int n, int below)
{
    int left = 1, d0, d1;

    if (n == 1)
        return below + 1;
    while (left * 2 < n)
        left *= 2;
    d0 = tree(a, left, below);
    d1 = tree(a + left, n - left, below + 1);
    a[n - 1].n_add++;
    return d0 > d1 ? d0 : d1;
}

/* Makes the programs of n devices: ROUNDS times a kernel that writes `values`
 * floats and a merge that sums them, then a kernel that only reads the clock.
 * `writes`: addends are written in every round. */
static void make(struct group *g, int n, int64_t values, bool writes)
{
    size_t bytes = (size_t)values * sizeof(float);
    size_t room = (bytes + 63) / 64 * 64;

    memset(g, 0, sizeof *g);
    g->n = n;
    for (int i = 0; i < N_TENSOR; i++)
        g->tensor[i] = (struct prog_tensor){.format = PL_F32,
                                            .n_dim = 1,
                                            .dim = {{values, PL_CONST}},
                                            .region = REGION_WORK,
                                            .offset = (size_t)i * room,
                                            .bytes = bytes};
    g->piece = (struct copy_desc){.bytes = {(int64_t)bytes, PL_CONST},
                                  .n0 = {1, PL_CONST},
                                  .n1 = {1, PL_CONST}};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < n; i++)
            g->addend[k][i] =
                (struct merge_addend){.dev = i, .tensor = T_OWN + k};
        g->item[k] = (struct merge_item){.reduce = true,
                                         .out = T_SUM,
                                         .n_piece = 1,
                                         .piece = &g->piece,
                                         .n_addend = n,
                                         .addend = g->addend[k],
                                         .depth = tree(g->addend[k], n, 0)};
    }
    for (int d = 0; d < n; d++) {
        for (int i = 0; i <= ROUNDS; i++) {
            g->attr[d][i] =
                (struct graph_attr){.start = i, .axis = d, .values = writes};
            g->insn[d][2 * i] = (struct insn){
                .kind = INSN_KERNEL,
                .order = i * (n + 1) + d,
                .kernel = {.kernel = KERNEL_contiguous,
                           .n_arg = 2,
                           .arg = {{T_OWN + i % 2, ACCESS_WRITE},
                                   {T_SEED, ACCESS_READ}},
                           .attr = &g->attr[d][i]},
            };
        }
        for (int i = 0; i < ROUNDS; i++)
            g->insn[d][2 * i + 1] = (struct insn){
                .kind = INSN_MERGE,
                .order = i * (n + 1) + n,
                .merge = {.n_item = 1,
                          .item = &g->item[i % 2],
                          .barrier = true,
                          .n_peer = n,
                          .peer = g->dev},
            };
        g->dev[d] = d;
        g->variant[d] = (struct variant){
            .n_micro = 1, .n_insn = 2 * ROUNDS + 1, .insn = g->insn[d]};
        g->prog[d] = (struct program){
            .dev = d,
            .n_tensor = N_TENSOR,
            .tensor = g->tensor,
            .n_variant = 1,
            .variant = &g->variant[d],
            .n_group = 1,
            .bytes = {[REGION_WORK] = room * N_TENSOR},
            .max = {.n_tok = N_TOK},
        };
    }
}

/* Computes for each round the microseconds from the end of the last thread that
 * wrote an addend to the moment at which the last thread has returned from the
 * merge. */
static void collect(double *out, int n_dev, int n_thread)
{
    for (int r = 0; r < ROUNDS; r++) {
        double from = 0, to = 0;

        for (int d = 0; d < n_dev; d++)
            for (int i = 0; i < n_thread; i++) {
                if (ended[r][d][i] > from)
                    from = ended[r][d][i];
                if (begun[r + 1][d][i] > to)
                    to = begun[r + 1][d][i];
            }
        out[r] = to - from;
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct result {
    double median, least;
};

static bool measure(struct device_set *s, const struct group *g, int n_thread,
                    double seconds, struct result *r, pl_err *err)
{
    struct device_run run = {.n_micro = 1, .sizes = {{.n_tok = N_TOK}}};
    double end;
    size_t n = 0;

    if (device_set_load(s, g->prog, err) != PL_OK)
        return false;
    end = now_us() + seconds * 1e6;
    do {
        if (device_set_run(s, &run, err) != PL_OK)
            return false;
        collect(us + n, g->n, n_thread);
        n += ROUNDS;
    } while (n < sizeof us / sizeof us[0] && now_us() < end);
    qsort(us, n, sizeof us[0], ascending);
    *r = (struct result){us[n / 2], us[0]};
    return true;
}

/* Measures the time of a step of programs without instructions. */
static bool measure_run(struct device_set *s, struct group *g, double seconds,
                        struct result *r, pl_err *err)
{
    struct device_run run = {.n_micro = 1, .sizes = {{.n_tok = N_TOK}}};
    double end = now_us() + seconds * 1e6;
    size_t n = 0;

    for (int d = 0; d < g->n; d++)
        g->variant[d].n_insn = 0;
    if (device_set_load(s, g->prog, err) != PL_OK)
        return false;
    do {
        double t = now_us();

        if (device_set_run(s, &run, err) != PL_OK)
            return false;
        us[n++] = now_us() - t;
    } while (n < sizeof us / sizeof us[0] && now_us() < end);
    qsort(us, n, sizeof us[0], ascending);
    *r = (struct result){us[n / 2], us[0]};
    return true;
}

static bool bench(int n_dev, int n_thread, int64_t values, double seconds,
                  pl_err *err)
{
    static struct group g;
    struct cpu_kernels kernels;
    struct device_options opt = {.kernel_set = kernel_set_best(),
                                 .kernels = &kernels};
    struct device_list l = {0};
    struct device_set *s = NULL;
    struct result fresh, idle, empty;
    char spec[32];
    bool ok = false;

    cpu_kernels_init(&kernels, opt.kernel_set);
    kernels.kernel[KERNEL_contiguous] = (struct cpu_entry){.run = fill};
    snprintf(spec, sizeof spec, "cpu*%d", n_dev);
    if (device_parse(&l, spec, n_thread, err) != PL_OK ||
        device_set_create(&s, &l, &opt, err) != PL_OK)
        goto done;
    make(&g, n_dev, values, true);
    ok = measure(s, &g, n_thread, seconds, &fresh, err);
    make(&g, n_dev, values, false);
    ok = ok && measure(s, &g, n_thread, seconds, &idle, err);
    ok = ok && measure_run(s, &g, seconds / 4, &empty, err);
    if (ok)
        printf("allreduce_%db_%dx%d  %8.3f %8.3f   idle %8.3f %8.3f"
               "   run %8.3f %8.3f\n",
               (int)(values * 4), n_dev, n_thread, fresh.median, fresh.least,
               idle.median, idle.least, empty.median, empty.least);
done:
    device_set_free(s);
    device_list_free(&l);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct {
        int n_dev, n_thread;
        int64_t values;
    } cases[] = {
        {2, 1, 16},   {2, 1, 2048}, {2, 1, 16384},
        {4, 1, 2560}, {8, 1, 2560}, {2, 2, 2048},
    };
    double seconds = argc > 1 ? atof(argv[1]) : 0.5;

    printf("us an AllReduce: median, minimum (bytes, devices x threads)\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_err err;

        if (!bench(cases[i].n_dev, cases[i].n_thread, cases[i].values, seconds,
                   &err)) {
            fprintf(stderr, "bench-comm: %s\n", err.message);
            return 1;
        }
    }
    return 0;
}
