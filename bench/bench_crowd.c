/* Measures how much slower a model runs while another process keeps a core
 * busy, and with more threads than cores.
 *
 *   bench-crowd [DIR] [ROUNDS]     DIR has the synthetic model (written if it
 *                                  is absent)
 *
 * In every round each configuration runs twice: alone, and together with a
 * process that computes for ever on the last of the machine's cores. Prints the
 * speed together as a share of the speed alone in the same round, as median
 * over the rounds. If the process takes half of one of two cores, the best
 * possible share is three quarters. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pl.h"
#include "round.h"
#include "synthetic.h"
#include "timing.h"

enum { N_PROMPT = 256, N_ROW = 3 };

/* Returns the last core that this process may use. */
static int last_core(void)
{
    cpu_set_t set;
    int last = -1;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        bench_die("cores", "the system does not tell them");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            last = i;
    return last;
}

static pid_t neighbour_start(void)
{
    pid_t p = fork();
    cpu_set_t set;

    if (p < 0)
        bench_die("neighbour", "the system gives no more processes");
    if (p > 0)
        return p;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&set);
    CPU_SET(last_core(), &set);
    sched_setaffinity(0, sizeof set, &set);
    for (volatile unsigned long n = 0;; n++)
        ;
}

static void neighbour_end(pid_t p)
{
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
}

/* Runs a round of a configuration alone, stored in `alone`, then a round
 * together with the process that keeps a core busy, stored in `beside`. */
static void run_both(struct bench_row *alone, struct bench_row *beside,
                     int64_t n_vocab, float *logits, int round)
{
    pid_t p;

    bench_round(alone, N_PROMPT, n_vocab, logits, round);
    p = neighbour_start();
    bench_round(beside, N_PROMPT, n_vocab, logits, round);
    neighbour_end(p);
}

static void print(const struct bench_row *alone, const struct bench_row *beside,
                  int rounds)
{
    double p[BENCH_MAX_ROUND], g[BENCH_MAX_ROUND];

    for (int r = 0; r < rounds; r++) {
        p[r] = beside->prompt[r] / alone->prompt[r];
        g[r] = beside->gen[r] / alone->gen[r];
    }
    printf("  %-28s %10.1f %8.2f %9.1f %8.2f\n", alone->label,
           bench_median(alone->prompt, rounds), bench_median(p, rounds),
           bench_median(alone->gen, rounds), bench_median(g, rounds));
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : SYNTHETIC_DIR;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    int n_core = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct bench_row row[2 * N_ROW] = {
        {.label = "1 device, a thread a core", .opt = {.devices = "cpu"}},
        {.label = "2 devices, half of them each", .opt = {.devices = "cpu*2"}},
        {.label = "1 device, twice the threads",
         .opt = {.devices = "cpu", .n_threads = 2 * n_core}}};
    char path[512];
    pl_model *m;
    pl_err err = {0};
    float *logits;
    int64_t n_vocab;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("rounds", "1 to 64");
    if (synthetic_model(synth_shape("qwen3-0.6b", NULL), "q4_k_m", dir, path,
                        sizeof path, &err) ||
        pl_model_open(&m, path, &err))
        bench_die(dir, err.message);
    n_vocab = pl_model_n_vocab(m);
    logits = malloc((size_t)n_vocab * sizeof *logits);
    if (!logits)
        bench_die("logits", "out of memory");
    for (int i = 0; i < N_ROW; i++) {
        row[i].opt.size = sizeof row[i].opt;
        row[i].opt.n_ctx = N_PROMPT + BENCH_ROUND_BESIDE;
        row[i].opt.n_seq = 1;
        if (pl_engine_create(&row[i].e, m, &row[i].opt, &err))
            bench_die(row[i].label, err.message);
        row[N_ROW + i].label = row[i].label;
        row[N_ROW + i].e = row[i].e;
        /* warm-up; later rounds overwrite its times */
        bench_round(&row[i], N_PROMPT, n_vocab, logits, 0);
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < N_ROW; i++)
            run_both(&row[i], &row[N_ROW + i], n_vocab, logits, r);
    printf("%d cores; beside a process that keeps one of them busy; %d rounds\n"
           "  %-28s %10s %8s %9s %8s\n",
           n_core, rounds, "configuration", "prompt t/s", "beside", "gen t/s",
           "beside");
    for (int i = 0; i < N_ROW; i++) {
        print(&row[i], &row[N_ROW + i], rounds);
        pl_engine_free(row[i].e);
    }
    pl_model_free(m);
    free(logits);
    return 0;
}
