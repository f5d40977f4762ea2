/* Measures the speed of whole models, in tokens a second of prompt and of
 * generation, and ratios between configurations.
 *
 * The configurations of one model are timed in turn, round by round, so that
 * other work of the machine affects all of them alike. A speed is the median
 * over the rounds, and a ratio the median of the rounds' ratios. Generation is
 * also printed as a share of the read bandwidth of all cores, which is measured
 * in the same rounds, because each token reads every weight once (of the
 * experts only those it uses).
 *
 * The last columns are the plan's estimates of the same speeds, divided by the
 * measured ones. The machine is calibrated first; DIR keeps the calibration.
 *
 *   bench-engine [DIR] [ROUNDS]    DIR has the synthetic models (written if
 *                                  absent, about 1.1 GB); build/bench */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pl.h"
#include "synthetic.h"
#include "timing.h"

enum { N_PROMPT = 512, N_GEN = 32, N_PAST = 240, MAX_CONFIG = 4 };

/* ---- configurations ------------------------------------------------------ */

struct config {
    const char *label, *devices;
    int n_ranks, n_threads;
    pl_engine *e;
    /* measured speeds of each round in tokens a second */
    double prompt[BENCH_MAX_ROUND], gen[BENCH_MAX_ROUND];
    /* the plan's estimates of these speeds, in tokens a second */
    double plan_prompt, plan_gen;
};

static void time_round(struct config *c, int64_t n_vocab, float *logits,
                       int round)
{
    int32_t id[N_PROMPT];
    uint8_t wanted[N_PROMPT] = {0};
    pl_batch b = {.size = sizeof b,
                  .n = N_PROMPT,
                  .token = id,
                  .wanted = wanted,
                  .logits = logits};
    pl_err err = {0};
    double t;

    if (pl_seq_trim(c->e, 0, 0, NULL, &err))
        bench_die(c->label, err.message);
    for (int i = 0; i < N_PROMPT; i++)
        id[i] = (int32_t)((i * 2654435761u) % (uint32_t)n_vocab);
    wanted[N_PROMPT - 1] = 1;
    t = bench_now();
    if (pl_engine_decode(c->e, &b, NULL, &err))
        bench_die(c->label, err.message);
    c->prompt[round] = N_PROMPT / (bench_now() - t);
    /* generation starts after N_PAST tokens, for which plans estimate its
     * speed */
    if (pl_seq_trim(c->e, 0, N_PAST, NULL, &err))
        bench_die(c->label, err.message);
    b.n = 1;
    b.wanted = NULL;
    t = bench_now();
    for (int i = 0; i < N_GEN; i++) {
        b.token = &id[i];
        if (pl_engine_decode(c->e, &b, NULL, &err))
            bench_die(c->label, err.message);
    }
    c->gen[round] = N_GEN / (bench_now() - t);
}

struct text {
    char *s;
    size_t n;
};

static void collect(void *user, const char *text, size_t len)
{
    struct text *t = user;
    char *s = realloc(t->s, t->n + len + 1);

    if (!s)
        exit(1);
    memcpy(s + t->n, text, len);
    t->s = s;
    t->n += len;
    s[t->n] = 0;
}

static void estimate(struct config *c)
{
    struct text t = {0};
    pl_err err = {0};
    json_t *j, *e;

    if (pl_plan_print(pl_engine_plan(c->e), true, collect, &t, &err))
        bench_die(c->label, err.message);
    j = json_loads(t.s, 0, NULL);
    e = json_object_get(j, "estimate");
    c->plan_prompt = json_number_value(json_object_get(e, "prefill_tps"));
    c->plan_gen = json_number_value(json_object_get(e, "decode_tps"));
    json_decref(j);
    free(t.s);
}

/* Returns the bytes of weights that one generated token reads. */
static double token_bytes(const pl_engine *e)
{
    pl_counters c;
    double sum = 0;

    pl_engine_counters(e, &c, sizeof c);
    for (int r = 0; r < PL_MAX_RANKS; r++)
        sum += (double)c.weight_bytes[r];
    return sum;
}

/* Returns the read bandwidth of all cores in bytes a second: the highest of a
 * dozen measurements. */
static double read_bandwidth(void)
{
    pl_meter *m;
    pl_limits l;
    pl_err err = {0};

    if (pl_meter_create(&m, &err))
        bench_die("the read bandwidth", err.message);
    for (int i = 0; i < 12; i++)
        pl_meter_measure(m, NULL, &l, sizeof l, NULL);
    pl_meter_free(m);
    return l.read_bytes_per_s;
}

static void bench(const char *name, const char *path, struct config *c, int n,
                  int rounds, bool share_too)
{
    pl_model *m;
    pl_err err = {0};
    int64_t n_vocab;
    float *logits;
    double gbs[BENCH_MAX_ROUND], share[BENCH_MAX_ROUND];

    if (pl_model_open(&m, path, &err))
        bench_die(path, err.message);
    n_vocab = pl_model_n_vocab(m);
    logits = malloc((size_t)n_vocab * sizeof *logits);
    if (!logits)
        exit(1);
    for (int i = 0; i < n; i++) {
        pl_options o = {.size = sizeof o,
                        .devices = c[i].devices,
                        .n_ranks = c[i].n_ranks,
                        .n_threads = c[i].n_threads,
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_ctx = 1024,
                        .n_seq = 1};

        if (pl_engine_create(&c[i].e, m, &o, &err))
            bench_die(c[i].label, err.message);
        /* warm-up; later rounds overwrite its times */
        time_round(&c[i], n_vocab, logits, 0);
        estimate(&c[i]);
    }
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < n; i++)
            time_round(&c[(i + r) % n], n_vocab, logits, r);
        if (share_too) {
            gbs[r] = read_bandwidth() * 1e-9;
            share[r] = c[0].gen[r] * token_bytes(c[0].e) * 1e-9 / gbs[r];
        }
    }
    printf("\n%s, %d rounds\n", name, rounds);
    printf("  %-22s %10s %9s %9s %9s %9s %9s\n", "configuration", "prompt t/s",
           "of first", "gen t/s", "of first", "plan: pr.", "plan: gen");
    for (int i = 0; i < n; i++) {
        double p[BENCH_MAX_ROUND], g[BENCH_MAX_ROUND];

        for (int r = 0; r < rounds; r++) {
            p[r] = c[i].prompt[r] / c[0].prompt[r];
            g[r] = c[i].gen[r] / c[0].gen[r];
        }
        printf("  %-22s %10.1f %9.2f %9.1f %9.2f %9.2f %9.2f\n", c[i].label,
               bench_median(c[i].prompt, rounds), bench_median(p, rounds),
               bench_median(c[i].gen, rounds), bench_median(g, rounds),
               c[i].plan_prompt / bench_median(c[i].prompt, rounds),
               c[i].plan_gen / bench_median(c[i].gen, rounds));
        pl_engine_free(c[i].e);
    }
    if (share_too)
        printf("  generation reads %.2f of %.1f GB/s, the read bandwidth of "
               "%d threads\n",
               bench_median(share, rounds), bench_median(gbs, rounds),
               c[0].n_threads);
    pl_model_free(m);
    free(logits);
}

static void drop(void *user, const char *text, size_t len)
{
    (void)user;
    (void)text;
    (void)len;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : SYNTHETIC_DIR;
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    static const char *const types[] = {"q8_0", "q4_k_m"};
    const struct synth_shape *shape = synth_shape("qwen3-0.6b", NULL);
    pl_err err = {0};
    struct config tale[] = {
        {.label = "1 device x 2 threads", .devices = "cpu*1", .n_threads = 2},
        {.label = "2 devices x 1 thread", .devices = "cpu*2", .n_threads = 1},
        {.label = "1 device x 2, 8 ranks",
         .devices = "cpu*1",
         .n_ranks = 8,
         .n_threads = 2},
        {.label = "1 device x 1 thread", .devices = "cpu*1", .n_threads = 1},
    };

    if (rounds < 1 || rounds > BENCH_MAX_ROUND) {
        fprintf(stderr, "usage: bench-engine [DIR] [ROUNDS 1..%d]\n",
                BENCH_MAX_ROUND);
        return 2;
    }
    setenv("XDG_CACHE_HOME", dir, 1);
    if (pl_devices_measure(NULL, false, drop, NULL, &err) != PL_OK)
        bench_die("calibrating", err.message);
    bench("bundled model, models/fable-moe-Q8_0.gguf",
          "models/fable-moe-Q8_0.gguf", tale, 4, rounds, false);
    for (int i = 0; i < 2; i++) {
        struct config big[] = {
            {.label = "1 device x 2 threads",
             .devices = "cpu*1",
             .n_threads = 2},
            {.label = "2 devices x 1 thread",
             .devices = "cpu*2",
             .n_threads = 1},
        };
        char path[512];

        if (synthetic_model(shape, types[i], dir, path, sizeof path, &err))
            bench_die("a synthetic model", err.message);
        bench(types[i], path, big, 2, rounds > 5 ? 5 : rounds, true);
    }
    return 0;
}
