/* Measures how fast a device with its own processors is, above all a GPU. As
 * for threads (measure.c), small graphs run on it and each experiment finds one
 * rate. But devices differ by five orders of magnitude, and starting a run may
 * take longer than its work.
 *
 * So each experiment begins small and is repeated with more work until the work
 * takes long enough, as far as memory and time allow. On a fast device it ends
 * with data larger than its caches and with full queues, on a slow one early.
 * The first experiment measures the cost of an instruction: it compares a graph
 * of many tiny instructions with a graph of few. Each other rate follows from
 * the time of a run minus the time expected from the rates that are already
 * known. For a pair of devices, the layers of a graph are distributed over
 * both. */
#include "measure/measure.h"

#include "base/err.h"
#include "device/device_ops.h"
#include "exec/exec.h"
#include "measure/measure_graphs.h"
#include "measure/measure_links.h"
#include "program/cache_tile.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TOK = 512,
    MOST_PAST = 4096,
    MOST_RUNS = 50,
    MOST_JUMP = 5, /* maximum number of times that the work is doubled from one
                      trial to the next */
    FEW_LAYERS = 2,
    MANY_LAYERS = 512,
    /* work that takes less than 1 / NEXT_TO_NOTHING of a run may be measurement
     * noise */
    NEXT_TO_NOTHING = 30,
};
/* maximum time in seconds to measure one device, or one pair of devices */
static const double device_s = 10;
static const double pairs_s = 60; /* maximum time in seconds to measure all
                                     pairs of devices */
/* seconds of a run that the measured work should take; more is not needed */
static const double enough_s = 2e-3;
static const double enough_steps = 20;
/* total seconds after which three or more runs are enough */
static const double runs_s = 0.05;
/* total seconds after which even fewer than three runs are enough */
static const double most_runs_s = 0.3;
/* bytes of weights that exceed every cache, so that they are read from
 * memory */
static const double beyond_caches = 512e6;
static const double most_bytes = 4294967296.0;
/* a time in seconds that is practically zero, for rates in which 0 means that
 * another rate is used instead */
static const double no_time = 1e-30;

struct experiment {
    void (*build)(pl_graph *g, const struct measure_size *z);
    /* Builds another graph of the same size, whose time is subtracted; NULL if
     * there is none. */
    void (*against)(pl_graph *g, const struct measure_size *z);
    size_t rate; /* offset in bytes in struct cost_rates of the rate that the
                    experiment finds */
    /* number of doublings of the work after which the graph's shapes are like a
     * model's */
    int usual;
    bool past_caches;
    bool multiplies; /* The device reads weights while it multiplies, so the
                        expected time of reading is left out. */
    struct measure_size first, most;
};

/* ---- table of experiments ----------------------------------------------- */

#define AT(field) offsetof(struct cost_rates, field)

static const struct measure_size tiny = {PL_Q8_0, 1, 0, 0, 32, 32};

static const struct experiment alone[] = {
    {.build = measure_values,
     .rate = AT(cached_bytes_per_s),
     .usual = 10,
     .first = {PL_F32, 16, 0, 4, 64, 0},
     .most = {PL_F32, MOST_TOK, 0, 64, 16384, 0}},
    {.build = measure_into,
     .rate = AT(link_bytes_per_s),
     .usual = 10,
     .first = {PL_F32, 16, 0, 0, 64, 0},
     .most = {PL_F32, MOST_TOK, 0, 0, 32768, 0}},
    {.build = measure_out_of,
     .against = measure_values,
     .rate = AT(out_bytes_per_s),
     .usual = 10,
     .first = {PL_F32, 16, 0, 0, 64, 0},
     .most = {PL_F32, MOST_TOK, 0, 0, 32768, 0}},
    {.build = measure_layers,
     .rate = AT(read_bytes_per_s),
     .usual = 7,
     .past_caches = true,
     .first = {PL_Q8_0, 1, 0, 1, 256, 256},
     .most = {PL_Q8_0, 1, 0, 8, 8192, 32768}},
    {.build = measure_layers,
     .rate = AT(block_macs_per_s),
     .usual = 11,
     .multiplies = true,
     .first = {PL_Q8_0, 32, 0, 1, 256, 256},
     .most = {PL_Q8_0, MOST_TOK, 0, 4, 8192, 32768}},
    {.build = measure_layers,
     .rate = AT(float_macs_per_s),
     .usual = 11,
     .multiplies = true,
     .first = {PL_F16, 32, 0, 1, 256, 256},
     .most = {PL_F16, MOST_TOK, 0, 2, 8192, 32768}},
    {.build = measure_attention,
     .rate = AT(attention_macs_per_s),
     .usual = 10,
     .multiplies = true,
     .first = {PL_F16, 16, 16, 1, 0, 0},
     .most = {PL_F16, MOST_TOK, MOST_PAST, 8, 0, 0}},
};
enum {
    N_ALONE = sizeof alone / sizeof alone[0],
    /* Number of experiments at the start of `alone` after which find_steps is
     * called again, because they find the rates that it uses. */
    N_WORK = 4,
};

static const struct experiment together[] = {
    {.build = measure_layers,
     .rate = AT(p2p_s),
     .first = {PL_Q8_0, 1, 0, 8, 64, 64},
     .most = {PL_Q8_0, 1, 0, 64, 64, 64}},
    {.build = measure_layers,
     .rate = AT(p2p_bytes_per_s),
     .usual = 10,
     .first = {PL_Q8_0, 16, 0, 4, 64, 64},
     .most = {PL_Q8_0, MOST_TOK, 0, 16, 16384, 64}},
};
enum { N_TOGETHER = sizeof together / sizeof together[0] };

static void twice(int64_t *n, int64_t most, int *k)
{
    for (; *k > 0 && *n < most; --*k)
        *n *= 2;
}

/* Sets *z to the size of the experiment's graph after `k` doublings of its
 * work. Returns false if that exceeds the maximum size. First doubles the
 * numbers of tokens, then the values per token, last the layers, so that shapes
 * stay like those of models. */
static bool size_of(struct measure_size *z, const struct experiment *e, int k)
{
    const struct measure_size *most = &e->most;

    *z = e->first;
    twice(&z->n_tok, most->n_tok, &k);
    twice(&z->n_past, most->n_past, &k);
    for (; k > 0 && (z->d < most->d || z->ff < most->ff); k--)
        *(z->ff < most->ff && (z->ff <= z->d || z->d == most->d) ? &z->ff
                                                                 : &z->d) *= 2;
    twice(&z->n_layer, most->n_layer, &k);
    /* Rounds n_past, the number of cached tokens, up so that the cache is
     * filled to the end of a page. */
    if (z->n_past > 0)
        z->n_past +=
            (PAGE_TOKENS - (z->n_past + z->n_tok) % PAGE_TOKENS) % PAGE_TOKENS;
    return k == 0;
}

/* ---- running and timing a graph ----------------------------------------- */

struct probe {
    const struct measure_device_options *opt;
    struct device_desc dev[2];
    struct device_list l; /* the one or two devices dev[] as a list */
    /* rates known so far, the same for each device; a rate that is not known
     * yet is such that its work takes no time */
    struct cost_rates rates;
    double left_s; /* seconds left for the present experiment */
    pl_err *err;
};

/* A graph of one size, compiled for the devices of a probe, and its measured
 * time. */
struct trial {
    struct measure_size z;
    pl_options opt;
    pl_graph *g;
    struct compiled *q;
    pl_exec *x;
    double weights; /* size of the weights in bytes */
    double run_s;   /* shortest time of a run of this graph in seconds */
    double spent_s; /* seconds of the whole trial, without compiling the GPU's
                       kernels */
};

static double now(const struct probe *p)
{
    return p->opt->now ? p->opt->now(p->opt->user) : device_now();
}

static void end_trial(struct trial *t)
{
    exec_free(t->x);
    compiled_free(t->q);
    pl_graph_free(t->g);
    *t = (struct trial){0};
}

static pl_status plan_trial(const struct probe *p,
                            void (*build)(pl_graph *g,
                                          const struct measure_size *z),
                            const struct measure_size *z, struct trial *t)
{
    *t = (struct trial){.z = *z};
    t->opt = (pl_options){.size = sizeof t->opt,
                          .split_mode = PL_SPLIT_TENSOR,
                          .no_pin = p->opt->no_pin,
                          .cpu = kernel_set_name(p->opt->kernel_set),
                          .n_ubatch = z->n_tok,
                          .n_ctx = z->n_past + z->n_tok,
                          .n_out = 1,
                          .n_seq = 1};
    PL_TRY(pl_graph_create(&t->g, p->err));
    build(t->g, &t->z);
    PL_TRY(compile_graph_for(&t->q, t->g, &p->l, &t->opt, p->err));
    for (int d = 0; d < p->l.n; d++)
        t->weights += (double)t->q->low->prog[d].bytes[REGION_WEIGHTS];
    return PL_OK;
}

/* Returns true if the trial's graph needs at most half of the available memory
 * of each device, or a quarter if two devices are measured, and at most
 * most_bytes. */
static bool fits(const struct probe *p, const struct trial *t)
{
    for (int d = 0; d < p->l.n; d++) {
        const struct program *g = &t->q->low->prog[d];
        double has = (double)p->dev[d].available_bytes / 2 / p->l.n;
        double all =
            (double)device_scratch_bytes(&p->dev[d], p->opt->kernel_set, g);

        for (int r = 0; r < REGION_COUNT; r++)
            all += (double)g->bytes[r];
        if (all > most_bytes || (has > 0 && all > has))
            return false;
    }
    return true;
}

/* Fills the weights of the trial's graph with bytes that decode to numbers of
 * usual size, scales included. */
static pl_status fill_weights(const struct probe *p, const struct trial *t)
{
    enum { PIECE = 1 << 20 };
    int harmless = format_info(t->z.format)->block == 1 ? 0x3c : 0x11;
    unsigned char *piece = malloc(PIECE);
    pl_status s = PL_OK;

    if (!piece)
        return err_no_memory(p->err, "weights to measure with");
    memset(piece, harmless, PIECE);
    for (int d = 0; d < p->l.n; d++) {
        size_t all = t->q->low->prog[d].bytes[REGION_WEIGHTS];

        for (size_t at = 0; at < all && s == PL_OK; at += PIECE)
            s = device_write(t->x->set, d, REGION_WEIGHTS, at, piece,
                             all - at < PIECE ? all - at : PIECE, p->err);
    }
    if (s == PL_OK)
        s = device_flush(t->x->set, p->err);
    free(piece);
    return s;
}

static pl_status time_runs(const struct probe *p, struct trial *t)
{
    enum { N_PAGE = (MOST_PAST + MOST_TOK) / PAGE_TOKENS };
    int32_t pos[MOST_TOK], pages[N_PAGE];
    pl_step_tokens rows = {.size = sizeof rows,
                           .n_tok = t->z.n_tok,
                           .n_out = 1,
                           .pos = pos,
                           .pages = {pages},
                           .page_stride = t->q->page_stride};
    double sum = 0;

    for (int i = 0; i < N_PAGE; i++)
        pages[i] = i;
    for (int64_t i = 0; i < t->z.n_tok; i++)
        pos[i] = (int32_t)(t->z.n_past + i);
    PL_TRY(
        /* The first run is not measured, because it compiles the kernels. */
        exec_run_micro_batches(t->x, 1, &rows, p->err));
    t->run_s = INFINITY;
    for (int n = 0; n < MOST_RUNS && (n < 3 ? sum < most_runs_s : sum < runs_s);
         n++) {
        double begin = now(p), seconds;

        PL_TRY(exec_run_micro_batches(t->x, 1, &rows, p->err));
        seconds = fmax(now(p) - begin, 1e-9);
        t->run_s = fmin(t->run_s, seconds);
        sum += seconds;
    }
    t->spent_s += sum + t->run_s;
    return PL_OK;
}

static pl_status run_trial(struct probe *p, struct trial *t)
{
    double begin;

    PL_TRY(exec_create(&t->x, t->q, &t->opt, p->err));
    begin = now(p);
    PL_TRY(fill_weights(p, t));
    t->spent_s = now(p) - begin;
    PL_TRY(time_runs(p, t));
    p->left_s -= t->spent_s;
    return PL_OK;
}

/* ---- expected time of a run --------------------------------------------- */

/* Rates with which no work takes time. The io device, which is in each device
 * list, always has them. */
static const struct cost_rates nothing_costs = {
    .read_bytes_per_s = INFINITY,
    .cached_bytes_per_s = INFINITY,
    .block_macs_per_s = INFINITY,
    .float_macs_per_s = INFINITY,
    .attention_macs_per_s = INFINITY,
    .link_bytes_per_s = INFINITY,
    .out_bytes_per_s = INFINITY,
};

static pl_status estimate(const struct probe *p, const struct trial *t,
                          double *seconds)
{
    struct cost_rates r[DEVICE_MAX];
    struct cost_machine m = {
        .n_dev = t->q->list.n, .prog = t->q->low->prog, .rates = r};
    struct cost_micro z = {graph_sizes_of(&t->q->max, t->z.n_tok, 1, 1),
                           t->z.n_past};

    for (int d = 0; d < m.n_dev; d++)
        r[d] = d < p->l.n ? p->rates : nothing_costs;
    return cost_run(&m, 0, 1, &z, NULL, seconds, p->err);
}

/* Splits the expected time of a run into the work that the unknown rate
 * describes and everything else. Sets *known to the seconds of everything else,
 * and *times to the number of units of that work. So the unknown seconds per
 * unit are (measured - *known) / *times. */
static pl_status count(struct probe *p, const struct trial *t, double *rate,
                       double *known, double *times)
{
    double was = *rate;
    pl_status s = estimate(p, t, known);

    *rate = 1;
    if (s == PL_OK)
        s = estimate(p, t, times);
    *rate = was;
    *times -= *known;
    return s;
}

static double *rate_of(struct probe *p, const struct experiment *e)
{
    return (double *)((char *)&p->rates + e->rate);
}

/* ---- repeating an experiment with more work ----------------------------- */

/* Returns true if the status means that a trial does not fit into memory. */
static bool no_room(pl_status s)
{
    return s == PL_NO_MEMORY || s == PL_NO_DEVICE_MEMORY;
}

/* Plans the largest trial, with at most *k doublings of the work, that fits in
 * memory, and sets *k to its number of doublings. It must have more than `last`
 * doublings; if no such trial fits, sets *k to `last`. The smallest trial is
 * not tested: if it does not fit, the device reports how much memory is
 * missing. */
static pl_status plan_largest(const struct probe *p, const struct experiment *e,
                              int last, int *k, struct trial *t)
{
    struct measure_size z;
    pl_status s;

    for (; *k > last; --*k) {
        if (!size_of(&z, e, *k))
            continue;
        s = plan_trial(p, e->build, &z, t);
        if (s != PL_OK || *k == 0 || fits(p, t))
            return s;
        end_trial(t);
    }
    return PL_OK;
}

/* The times of a trial, from which the unknown rate follows. */
struct finding {
    /* seconds of a run: as measured, and as expected without the work of the
     * unknown rate */
    double run_s, known_s;
    double times; /* number of units of the unknown rate's work in a run */
};

static pl_status look(struct probe *p, struct trial *t, double *rate,
                      struct finding *f)
{
    PL_TRY(run_trial(p, t));
    f->run_s = t->run_s;
    return count(p, t, rate, &f->known_s, &f->times);
}

/* Runs a trial and sets *f to its times. Subtracts those of the graph
 * e->against of the same size, if there is one. */
static pl_status find(struct probe *p, const struct experiment *e,
                      struct trial *t, struct finding *f)
{
    struct trial base = {0};
    struct finding of_base;
    pl_status s;

    PL_TRY(look(p, t, rate_of(p, e), f));
    if (!e->against)
        return PL_OK;
    s = plan_trial(p, e->against, &t->z, &base);
    if (s == PL_OK)
        s = look(p, &base, rate_of(p, e), &of_base);
    if (s == PL_OK) {
        f->run_s -= of_base.run_s;
        f->known_s -= of_base.known_s;
        f->times -= of_base.times;
        t->spent_s += base.spent_s;
    }
    end_trial(&base);
    return s;
}

/* Returns the seconds of a run that the work of the unknown rate took, at least
 * 1 / NEXT_TO_NOTHING of the run. */
static double work_of(const struct trial *t, const struct finding *f)
{
    return fmax(f->run_s - f->known_s, t->run_s / NEXT_TO_NOTHING);
}

/* Returns by how many doublings the work of the next trial should exceed that
 * of trial `t`, which has k doublings. Returns 0 if `t` is large enough or no
 * time is left. */
static int doublings(const struct probe *p, const struct experiment *e, int k,
                     const struct trial *t, const struct finding *f)
{
    double rest = fmax(t->run_s - work_of(t, f), 0);
    double want =
        fmax(enough_s, fmax(enough_steps * p->rates.insn_s, 3 * rest));
    double more = want / work_of(t, f);
    int n;

    if (e->past_caches)
        more = fmax(more, beyond_caches / (t->weights + 1));
    more = fmax(more, ldexp(1, e->usual - k));
    if (more <= 1)
        return 0;
    n = (int)ceil(log2(more));
    n = n > MOST_JUMP ? MOST_JUMP : n;
    while (n > 0 && t->spent_s * ldexp(1, n) > p->left_s)
        n--;
    return n;
}

/* Runs the largest trial that fits in memory and has more than `last` and at
 * most *k doublings of the work. Sets *k to its number of doublings, `last` if
 * none fits. Sets *seconds to the time of one unit of work, and *more to the
 * number of doublings by which the next trial should exceed this one. */
static pl_status try_larger(struct probe *p, const struct experiment *e,
                            int last, int *k, double *seconds, int *more)
{
    struct trial t = {0};
    struct finding f;
    pl_status s = plan_largest(p, e, last, k, &t);

    *more = 0;
    if (s == PL_OK && *k > last) {
        s = find(p, e, &t, &f);
        if (s == PL_OK) {
            *seconds = work_of(&t, &f) / f.times;
            *more = doublings(p, e, *k, &t, &f);
        }
    }
    end_trial(&t);
    return s;
}

/* Finds the rate of an experiment by trials with more and more work. The last
 * trial determines the rate. */
static pl_status find_rate(struct probe *p, const struct experiment *e)
{
    double *rate = rate_of(p, e), seconds = 0;
    int last = -1, k = 0, most = INT_MAX, more;

    while (k > last) {
        pl_status s = try_larger(p, e, last, &k, &seconds, &more);

        if (last >= 0 && no_room(s)) { /* The device has less memory than it
                                          reported: tries a smaller trial. */
            most = --k;
            continue;
        }
        PL_TRY(s);
        last = k;
        k = k + more < most ? k + more : most;
    }
    /* Until now the rate meant that its work takes no time: 0 for seconds,
     * INFINITY for a rate per second. This tells in which unit it is. */
    *rate = *rate < 1 ? seconds : 1 / seconds;
    return PL_OK;
}

/* ---- cost of an instruction --------------------------------------------- */

/* Two trials of the same graph of tiny instructions, one with few layers and
 * one with many. */
struct stairs {
    struct trial few, many;
};

static pl_status climb(struct probe *p, struct trial *t, int64_t n_layer)
{
    struct measure_size z = tiny;

    z.n_layer = n_layer;
    end_trial(t);
    PL_TRY(plan_trial(p, measure_layers, &z, t));
    return run_trial(p, t);
}

/* Runs the graph with few and the graph with many layers. Increases the layers
 * of `many` until its time differs clearly from that of `few`. */
static pl_status run_stairs(struct probe *p, struct stairs *w)
{
    pl_status s = climb(p, &w->few, FEW_LAYERS);

    for (int64_t n = 4 * FEW_LAYERS; s == PL_OK && n <= MANY_LAYERS; n *= 4) {
        s = climb(p, &w->many, n);
        if (s != PL_OK || p->left_s <= 0 ||
            w->many.run_s - w->few.run_s > fmax(enough_s, w->few.run_s))
            break;
    }
    return s;
}

/* Computes the rate insn_s, the seconds that an instruction takes in addition
 * to its work, from the difference of both graphs' times and the rates known so
 * far. Then sets collective_s, the cost of a copy, to the time of `few` that is
 * still unexplained. */
static pl_status find_steps(struct probe *p, const struct stairs *w)
{
    double *step = &p->rates.insn_s, *copy = &p->rates.collective_s;
    double known[2], times[2], more = w->many.run_s - w->few.run_s;

    *step = *copy = 0;
    PL_TRY(count(p, &w->few, step, &known[0], &times[0]));
    PL_TRY(count(p, &w->many, step, &known[1], &times[1]));
    *step =
        fmax(more - (known[1] - known[0]), w->many.run_s / NEXT_TO_NOTHING) /
        (times[1] - times[0]);
    PL_TRY(count(p, &w->few, copy, &known[0], &times[0]));
    *copy = fmax(w->few.run_s - known[0], w->few.run_s / NEXT_TO_NOTHING) /
            times[0];
    return PL_OK;
}

/* ---- measuring one device ----------------------------------------------- */

static void probe_init(struct probe *p, const struct device_list *l, int d,
                       int peer, const struct measure_device_options *opt,
                       pl_err *err)
{
    *p = (struct probe){.opt = opt, .rates = nothing_costs, .err = err};
    p->dev[0] = l->dev[d];
    p->l = (struct device_list){.n = 1, .dev = p->dev, .topology = l->topology};
    if (peer >= 0)
        p->dev[p->l.n++] = l->dev[peer];
    p->rates.has_copy_engine = true;
    p->rates.one_queue = p->dev[0].one_queue;
}

/* Finds the rates of n experiments, in at most `left` seconds altogether. */
static pl_status find_all(struct probe *p, const struct experiment *e, int n,
                          double left)
{
    for (int i = 0; i < n; i++) {
        double share = left / (n - i), read = p->rates.read_bytes_per_s;

        p->left_s = share;
        if (e[i].multiplies)
            p->rates.read_bytes_per_s = INFINITY;
        PL_TRY(find_rate(p, &e[i]));
        if (e[i].multiplies)
            p->rates.read_bytes_per_s = read;
        left -= share - p->left_s;
    }
    return PL_OK;
}

static pl_status measure_alone(struct probe *p)
{
    const double each_s = device_s / (N_ALONE + 1);
    /* Not freed before the end, because some graph must stay loaded: otherwise
     * the driver would close its context and start again for each
     * experiment. */
    struct stairs w = {0};
    pl_status s;

    p->left_s = each_s;
    s = run_stairs(p, &w);
    if (s == PL_OK)
        s = find_steps(p, &w);
    if (s == PL_OK)
        s = find_all(p, alone, N_WORK, each_s * N_WORK);
    if (s == PL_OK)
        s = find_steps(p, &w);
    if (s == PL_OK)
        s = find_all(p, alone + N_WORK, N_ALONE - N_WORK,
                     each_s * (N_ALONE - N_WORK));
    end_trial(&w.many);
    end_trial(&w.few);
    return s;
}

static pl_status measure_pair(struct probe *p, const struct cost_rates *known,
                              double seconds)
{
    p->rates = *known;
    p->rates.has_copy_engine = true;
    p->rates.one_queue = p->dev[0].one_queue;
    p->rates.p2p_bytes_per_s = INFINITY;
    p->rates.p2p_s = no_time;
    return find_all(p, together, N_TOGETHER, seconds);
}

/* If the status s is an error, sets *err to the message of *why after the name
 * of the device that was measured. Returns s. */
static pl_status tell(const struct probe *p, pl_status s, const pl_err *why,
                      pl_err *err)
{
    const struct device_desc *d = &p->dev[p->l.n - 1];

    return s == PL_OK
               ? s
               : err_set(err, s, "measuring %s (%s%s%s): %.700s", d->name,
                         d->title, d->bus[0] ? ", " : "", d->bus, why->message);
}

static pl_status each(struct calibration *found, const struct device_list *l,
                      const struct measure_device_options *opt, pl_err *err)
{
    for (int d = 0; d < l->n; d++) {
        struct calibrated_device x;
        struct probe p;
        pl_err why;

        if (!l->dev[d].accelerator || calibration_device(found, &l->dev[d]))
            continue;
        probe_init(&p, l, d, -1, opt, &why);
        PL_TRY(tell(&p, measure_alone(&p), &why, err));
        calibration_name_device(&x, &l->dev[d]);
        x.rates = p.rates;
        calibration_put_device(found, &x);
    }
    return PL_OK;
}

/* ---- measuring pairs of devices ------------------------------------------ */

static void pair_up(struct calibration *found, const struct device_list *l,
                    const struct measure_links *k)
{
    for (int i = 0; i < k->n; i++) {
        struct calibrated_device x =
            *calibration_device(found, &l->dev[k->dev[i]]);

        measure_links_of(k, i, &x.rates);
        calibration_put_device(found, &x);
    }
}

/* Measures the link between each pair of devices and stores the results in
 * *k. */
static pl_status pairs(struct calibration *found, const struct device_list *l,
                       const struct measure_device_options *opt,
                       struct measure_links *k, pl_err *err)
{
    const double n_pair = k->n * (k->n - 1) / 2.0;
    const double each_s = fmin(device_s, pairs_s / n_pair);

    for (int i = 0; i < k->n; i++)
        for (int j = i + 1; j < k->n; j++) {
            const struct device_desc *d = &l->dev[k->dev[i]];
            struct probe p;
            pl_err why;

            probe_init(&p, l, k->dev[i], k->dev[j], opt, &why);
            PL_TRY(tell(
                &p,
                measure_pair(&p, &calibration_device(found, d)->rates, each_s),
                &why, err));
            measure_links_put(k, i, j, p.rates.p2p_s, p.rates.p2p_bytes_per_s);
        }
    return PL_OK;
}

static pl_status each_pair(struct calibration *found,
                           const struct device_list *l,
                           const struct measure_device_options *opt,
                           pl_err *err)
{
    struct measure_links *k = measure_links_new(l);
    pl_status s = k ? PL_OK : err_no_memory(err, "the measurements");

    if (s == PL_OK && k->n > 1)
        s = pairs(found, l, opt, k, err);
    if (s == PL_OK && k->n > 1)
        pair_up(found, l, k);
    free(k);
    return s;
}

pl_status measure_devices(struct calibration *c, const struct device_list *l,
                          const struct measure_device_options *opt, pl_err *err)
{
    struct calibration *found = calloc(1, sizeof *found);
    pl_status s = found ? PL_OK : err_no_memory(err, "the measurements");

    if (s == PL_OK)
        s = each(found, l, opt, err);
    if (s == PL_OK)
        s = each_pair(found, l, opt, err);
    for (int i = 0; s == PL_OK && i < found->n_device; i++)
        calibration_put_device(c, &found->device[i]);
    free(found);
    return s;
}
