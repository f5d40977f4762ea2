/* bench-plan [FILTER]: measures the time from opening a model's file to a
 * finished plan. Cases: a model of 1,000 tensors on one device; and a model of
 * 400 billion weights over 64 devices, split by tensor and in the mode that
 * auto finds, and over 512 devices in groups of 8. The devices are paper
 * devices, which exist only as descriptions. The files have no data, because
 * planning reads no weight. Prints median, minimum and the required time of
 * each case whose name contains FILTER. */
#include "lib/hollow_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_RUN = 5 };

static const char *filter = ""; /* part of the names of the cases to run */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void give_up(const char *what, const pl_err *err)
{
    fprintf(stderr, "bench-plan: %s: %s\n", what, err->message);
    exit(1);
}

static void row(const char *name, const struct hollow_model *shape,
                const char *dir, const pl_options *opt, double limit_ms)
{
    double open_ms[N_RUN], plan_ms[N_RUN];
    char path[512];
    pl_err err;

    if (!strstr(name, filter))
        return;
    snprintf(path, sizeof path, "%s/%s.gguf", dir, name);
    if (hollow_model_write(path, shape, &err) != PL_OK)
        give_up(path, &err);
    for (int i = 0; i < N_RUN; i++) {
        double start = now_ms();
        pl_model *m;
        pl_plan *p;

        if (pl_model_open(&m, path, &err) != PL_OK)
            give_up(path, &err);
        open_ms[i] = now_ms() - start;
        start = now_ms();
        if (pl_plan_create(&p, m, opt, &err) != PL_OK)
            give_up(path, &err);
        plan_ms[i] = now_ms() - start;
        pl_plan_free(p);
        pl_model_free(m);
    }
    unlink(path);
    qsort(open_ms, N_RUN, sizeof open_ms[0], ascending);
    qsort(plan_ms, N_RUN, sizeof plan_ms[0], ascending);
    printf("%-26s  open %8.2f ms  plan %8.2f ms  least %8.2f ms  asked "
           "%6.0f ms\n",
           name, open_ms[N_RUN / 2], plan_ms[N_RUN / 2], plan_ms[0], limit_ms);
}

int main(int argc, char **argv)
{
    struct hollow_model thousand = hollow_400b;
    char dir[] = "/tmp/plait-bench-XXXXXX";
    pl_options one = {.size = sizeof one, .device_spec = "gpu:256GiB:1TB/s"};
    pl_options many = {
        .size = sizeof many,
        .device_spec = "gpu:24GiB:1TB/s:link=64GB/s:latency=5us:flops=100T*64",
        .split_mode = PL_SPLIT_TENSOR};
    pl_options groups = {
        .size = sizeof groups,
        .device_spec = "gpu:24GiB:1TB/s:link=64GB/s:latency=5us:flops=100T*512",
        .split_mode = PL_SPLIT_HYBRID,
        .hybrid_size = 8};

    if (argc > 1)
        filter = argv[1];
    if (!mkdtemp(dir)) {
        perror("bench-plan: a temporary directory");
        return 1;
    }
    thousand.n_layer = 84; /* with 84 layers the model has 1,011 tensors */
    row("plan_1011_tensors_paper1", &thousand, dir, &one, 3);
    row("plan_400b_paper64", &hollow_400b, dir, &many, 2000);
    row("plan_400b_paper512_hybrid8", &hollow_400b, dir, &groups, 2000);
    many.split_mode = PL_SPLIT_AUTO;
    row("plan_400b_paper64_auto", &hollow_400b, dir, &many, 500);
    rmdir(dir);
    return 0;
}
