/* Measures how fast this machine's threads are. Small graphs run on them
 * through the same executor as a model, so that threads, barriers, collectives
 * and memory cost as much as they do in a model. Each experiment finds one
 * rate.
 *
 * The time of a run is a linear function of the unknown, which is the seconds
 * per unit of work, the inverse of a rate. So the unknown is the measured time,
 * minus the time expected from the rates that are already known, divided by the
 * units of work in a run. All threads are assumed to be alike: the rate of a
 * device is its number of threads times the rate of a thread. Measurements
 * affect no bit of a result. */
#include "measure/measure.h"

#include "base/err.h"
#include "exec/exec.h"
#include "measure/measure_graphs.h"
#include "program/cache_tile.h"
#include "quant/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    MANY = 128, /* tokens per step in the large experiments */
    N_SLOT = 256,
    LEAST_RUNS = 3,
    MOST_RUNS = 200,
};
/* An experiment repeats its run until all of its runs together took this many
 * seconds. */
static const double enough_s = 0.2;

struct experiment {
    void (*build)(pl_graph *g, const struct measure_size *z);
    int n_dev;
    /* offsets in bytes in struct cost_rates: of the rate that the experiment
     * solves for, and of the rate in which the result is stored */
    size_t solve, keep;
    /* true if the expected time of a run includes the rates found by earlier
     * experiments; false if that work is negligible or overlaps with the
     * measured work */
    bool rest;
    struct measure_size z;
};

struct measuring {
    pl_options opt;
    const struct experiment *e;
    pl_graph *g;
    struct compiled *compiled;
    pl_exec *x;
    /* rates of one thread known so far; a rate that is not known yet is
     * infinite, so that its work takes no time */
    struct cost_rates rates;
    pl_err *err;
};

/* ---- table of experiments ----------------------------------------------- */

#define AT(field) offsetof(struct cost_rates, field)
static const struct experiment experiments[] = {
    {measure_layers,
     1,
     AT(read_bytes_per_s),
     AT(cached_bytes_per_s),
     false,
     {PL_Q4_K, 1, 0, 3, 1024, 2048}},
    {measure_layers,
     1,
     AT(read_bytes_per_s),
     AT(read_bytes_per_s),
     false,
     {PL_Q8_0, 1, 0, 64, 1024, 2048}},
    {measure_layers,
     1,
     AT(block_macs_per_s),
     AT(block_macs_per_s),
     false,
     {PL_Q8_0, MANY, 0, 1, 1024, 2048}},
    {measure_layers,
     1,
     AT(float_macs_per_s),
     AT(float_macs_per_s),
     false,
     {PL_F16, MANY, 0, 1, 1024, 2048}},
    {measure_attention,
     1,
     AT(attention_macs_per_s),
     AT(attention_macs_per_s),
     false,
     {PL_F16, MANY, N_SLOT / 2, 1, 0, 0}},
    {measure_layers,
     1,
     AT(insn_s),
     AT(insn_s),
     true,
     {PL_Q4_K, 1, 0, 24, 256, 256}},
    {measure_layers,
     2,
     AT(collective_s),
     AT(collective_s),
     true,
     {PL_Q4_K, 1, 0, 12, 256, 1024}},
    {measure_layers,
     2,
     AT(link_bytes_per_s),
     AT(link_bytes_per_s),
     true,
     {PL_Q4_K, MANY, 0, 12, 256, 1024}},
};
enum { N_EXPERIMENT = sizeof experiments / sizeof experiments[0] };

/* Fills the weights with bytes that decode to numbers of usual size, because
 * products near the smallest float take many times as long. Memory that was
 * never written would not do: all its pages map to one page of zeros, which
 * stays in the caches. */
static void fill_weights(struct measuring *m)
{
    const struct compiled *q = m->compiled;
    int harmless = format_info(m->e->z.format)->block == 1 ? 0x3c : 0x11;

    for (int d = 0; d < q->list.n; d++) {
        size_t n = q->low->prog[d].bytes[REGION_WEIGHTS];
        void *w = n ? device_map(m->x->set, d, REGION_WEIGHTS) : NULL;

        if (w)
            memset(w, harmless, n);
    }
}

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sets *seconds to the least CPU time that a run takes in the calling thread,
 * which is one of the worker threads. It computes or spins during all of the
 * run. So its CPU time is the time of the run without the time that other
 * processes take. */
static pl_status time_run(struct measuring *m, double *seconds)
{
    int32_t pos[MANY], pages[N_SLOT / PAGE_TOKENS];
    pl_step_tokens rows = {
        .size = sizeof rows,
        .n_tok = m->e->z.n_tok,
        .n_out = 1,
        .pos = pos,
        .pages = {pages},
        .page_stride = N_SLOT / PAGE_TOKENS,
    };
    double start = now(CLOCK_MONOTONIC), end = start;

    for (int i = 0; i < N_SLOT / PAGE_TOKENS; i++)
        pages[i] = i;
    for (int64_t i = 0; i < m->e->z.n_tok; i++)
        pos[i] = (int32_t)(m->e->z.n_past + i);
    *seconds = INFINITY;
    for (int n = 0; n < LEAST_RUNS || (n < MOST_RUNS && end - start < enough_s);
         n++) {
        double before = now(CLOCK_THREAD_CPUTIME_ID);

        PL_TRY(exec_run_micro_batches(m->x, 1, &rows, m->err));
        *seconds = fmin(*seconds, now(CLOCK_THREAD_CPUTIME_ID) - before);
        end = now(CLOCK_MONOTONIC);
    }
    return PL_OK;
}

static pl_status estimate(struct measuring *m, double *seconds)
{
    const struct compiled *q = m->compiled;
    struct cost_rates r[DEVICE_MAX];
    struct cost_machine machine = {
        .n_dev = q->list.n, .prog = q->low->prog, .rates = r};
    struct cost_micro z = {graph_sizes_of(&q->max, m->e->z.n_tok, 1, 1),
                           m->e->z.n_past};

    for (int d = 0; d < q->list.n; d++)
        r[d] = calibration_times(m->rates, q->list.dev[d].n_thread);
    return cost_run(&machine, 0, 1, &z, NULL, seconds, m->err);
}

/* Runs the experiment and sets *result to the rate at offset e->solve. Before
 * the call this rate must mean that its work takes no time: 0 for seconds,
 * INFINITY for a rate per second. */
static pl_status solve(struct measuring *m, double *result)
{
    double *rate = (double *)((char *)&m->rates + m->e->solve);
    double measured, known, count, seconds;
    bool of_seconds = *rate == 0;

    PL_TRY(time_run(m, &measured));
    PL_TRY(estimate(m, &known));
    *rate = 1;
    PL_TRY(estimate(m, &count));
    seconds = fmax(measured - known, measured / 10) / (count - known);
    *result = of_seconds ? seconds : 1 / seconds;
    return PL_OK;
}

static pl_status run(struct measuring *m, double *result)
{
    pl_status s = pl_graph_create(&m->g, m->err);

    if (s == PL_OK) {
        m->e->build(m->g, &m->e->z);
        s = compile_graph(&m->compiled, m->g, &m->opt, m->err);
    }
    if (s == PL_OK)
        s = exec_create(&m->x, m->compiled, &m->opt, m->err);
    if (s == PL_OK) {
        fill_weights(m);
        s = solve(m, result);
    }
    exec_free(m->x);
    compiled_free(m->compiled);
    pl_graph_free(m->g);
    return s;
}

/* Measures the rates of one thread while n_thread threads work. Collectives are
 * measured between two devices that have half of these threads each. */
static pl_status measure_threads(struct cost_rates *one, enum kernel_set set,
                                 bool no_pin, int n_thread, pl_err *err)
{
    const struct cost_rates nothing_costs = {
        .read_bytes_per_s = INFINITY,
        .cached_bytes_per_s = INFINITY,
        .block_macs_per_s = INFINITY,
        .float_macs_per_s = INFINITY,
        .attention_macs_per_s = INFINITY,
        .link_bytes_per_s = INFINITY,
        .one_queue = true,
    };

    *one = nothing_costs;
    for (int i = 0; i < N_EXPERIMENT; i++) {
        const struct experiment *e = &experiments[i];
        bool pair = e->n_dev == 2;
        int n = pair && n_thread > 1 ? n_thread / 2 : n_thread;
        struct measuring m = {
            .opt = {.size = sizeof(pl_options),
                    .devices = pair ? "cpu*2" : "cpu*1",
                    .split_mode = PL_SPLIT_TENSOR,
                    .n_threads = n,
                    .no_pin = no_pin,
                    .cpu = kernel_set_name(set),
                    .n_ubatch = MANY,
                    .n_ctx = N_SLOT,
                    .n_seq = 1},
            .e = e,
            .rates = nothing_costs,
            .err = err,
        };

        /* The experiment's weights are small and stay in the CPU's caches, so
         * they are read as fast as activations. */
        if (e->rest) {
            m.rates = *one;
            m.rates.read_bytes_per_s = one->cached_bytes_per_s;
        }
        PL_TRY(run(&m, (double *)((char *)one + e->keep)));
    }
    return PL_OK;
}

/* Corrects *all, the rates of one of n busy threads, by `one`, the rates of a
 * thread that works alone. If other processes are running, threads wait for
 * CPUs and not only for each other, which falsifies *all. The limits are that n
 * threads together are at least as fast as one alone, and that no thread is
 * faster than one alone. */
static void correct(struct cost_rates *all, struct cost_rates one, int n)
{
    for (int i = 0; i < CALIBRATION_FIELDS; i++) {
        const struct calibration_field *f = &calibration_field[i];
        double *v = calibration_value(all, f),
               alone = *calibration_value(&one, f);

        if (f->kind == CALIBRATION_SUM)
            *v = fmin(fmax(*v, alone / n), alone);
        else if (f->kind == CALIBRATION_SECONDS)
            *v = fmax(*v, alone);
    }
}

pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err)
{
    calibration_init(c, set, t);
    PL_TRY(measure_threads(&c->one, set, no_pin, 1, err));
    PL_TRY(measure_threads(&c->all, set, no_pin, c->n_core, err));
    correct(&c->all, c->one, c->n_core);
    return PL_OK;
}
