/* Measures what placement costs and gains: experts on the host, pipelines, and
 * the mode that -sm auto chooses.
 *
 *   bench-place [DIR] [ROUNDS]     DIR has the synthetic models (written if
 *                                  they are absent)
 *
 * Each table runs its configurations in turn, round by round, so that other
 * work of the machine affects all alike. A ratio is the median of the rounds'
 * ratios. Generation is measured after 256 tokens.
 *
 *   host experts   two devices of one thread: all weights on the devices (the
 *                  first row), and experts on the host (-cmoe), whose threads
 *                  share the devices' cores
 *   pipeline       one device of one thread, and two with half of the layers
 *                  each; a prompt of 2,048 tokens
 *   modes          two devices of one thread: none, layer, tensor and auto */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pl.h"
#include "round.h"
#include "synthetic.h"
#include "timing.h"

enum { MAX_ROW = 5 };

/* Runs the configurations c[n] in turn and prints their speeds, and ratios to
 * the first one. */
static void table(const char *name, const char *path, struct bench_row *c,
                  int n, int n_prompt, int rounds)
{
    pl_model *m;
    pl_err err = {0};
    int64_t n_vocab;
    float *logits;

    if (pl_model_open(&m, path, &err))
        bench_die(path, err.message);
    n_vocab = pl_model_n_vocab(m);
    logits = malloc((size_t)n_vocab * sizeof *logits);
    if (!logits)
        exit(1);
    for (int i = 0; i < n; i++) {
        c[i].opt.n_ctx = n_prompt + BENCH_ROUND_BESIDE;
        c[i].opt.n_seq = 1;
        if (pl_engine_create(&c[i].e, m, &c[i].opt, &err))
            bench_die(c[i].label, err.message);
        /* warm-up; later rounds overwrite its times */
        bench_round(&c[i], n_prompt, n_vocab, logits, 0);
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++)
            bench_round(&c[(i + r) % n], n_prompt, n_vocab, logits, r);
    printf("\n%s, prompt of %d, %d rounds\n", name, n_prompt, rounds);
    printf("  %-24s %10s %9s %9s %9s\n", "configuration", "prompt t/s",
           "of first", "gen t/s", "of first");
    for (int i = 0; i < n; i++) {
        double p[BENCH_MAX_ROUND], g[BENCH_MAX_ROUND];

        for (int r = 0; r < rounds; r++) {
            p[r] = c[i].prompt[r] / c[0].prompt[r];
            g[r] = c[i].gen[r] / c[0].gen[r];
        }
        printf("  %-24s %10.1f %9.2f %9.1f %9.2f\n", c[i].label,
               bench_median(c[i].prompt, rounds), bench_median(p, rounds),
               bench_median(c[i].gen, rounds), bench_median(g, rounds));
        pl_engine_free(c[i].e);
        c[i].e = NULL;
    }
    fflush(stdout);
    pl_model_free(m);
    free(logits);
}

static pl_options two(pl_split_mode mode)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = "cpu*2",
                        .n_threads = 1,
                        .split_mode = mode,
                        .no_fit = mode != PL_SPLIT_AUTO};
}

static void host_experts(const char *name, const char *path, int rounds)
{
    struct bench_row c[] = {
        {.label = "all on 2 devices", .opt = two(PL_SPLIT_TENSOR)},
        {.label = "-cmoe", .opt = two(PL_SPLIT_TENSOR)},
    };

    c[1].opt.host_experts = "all";
    table(name, path, c, 2, 512, rounds);
}

static void pipeline(const char *name, const char *path, int rounds)
{
    struct bench_row c[] = {
        {.label = "1 device x 1 thread", .opt = two(PL_SPLIT_NONE)},
        {.label = "2 x 1, -sm layer", .opt = two(PL_SPLIT_LAYER)},
    };

    c[0].opt.devices = "cpu:0";
    table(name, path, c, 2, 2048, rounds);
}

static void modes(const char *name, const char *path, int rounds)
{
    struct bench_row c[] = {
        {.label = "none", .opt = two(PL_SPLIT_NONE)},
        {.label = "layer", .opt = two(PL_SPLIT_LAYER)},
        {.label = "tensor", .opt = two(PL_SPLIT_TENSOR)},
        {.label = "auto", .opt = two(PL_SPLIT_AUTO)},
    };

    table(name, path, c, 4, 512, rounds);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : SYNTHETIC_DIR;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    char dense[512], moe[512];
    const char *tale = "models/fable-moe-Q8_0.gguf";
    pl_err err = {0};

    if (rounds < 1 || rounds > BENCH_MAX_ROUND) {
        fprintf(stderr, "usage: bench-place [DIR] [ROUNDS 1..%d]\n",
                BENCH_MAX_ROUND);
        return 2;
    }
    if (synthetic_model(synth_shape("qwen3-0.6b", NULL), "q8_0", dir, dense,
                        sizeof dense, &err) ||
        synthetic_model(synth_shape("qwen3moe-2.75b", NULL), "q4_k_m", dir, moe,
                        sizeof moe, &err))
        bench_die("a synthetic model", err.message);
    host_experts("host experts: bundled model", tale, rounds);
    host_experts("host experts: qwen3moe-2.75b q4_k_m", moe, rounds);
    pipeline("pipeline: qwen3-0.6b q8_0", dense, rounds);
    modes("modes: bundled model", tale, rounds);
    modes("modes: qwen3-0.6b q8_0", dense, rounds);
    modes("modes: qwen3moe-2.75b q4_k_m", moe, rounds);
    return 0;
}
