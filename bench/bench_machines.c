/* Prints what two equal machines are estimated to gain over one, in the tokens
 * per second of one text, by network. Nothing is measured: machines, networks
 * and models are described, and the cost model estimates their plans. A network
 * has the latency of a message of MPI over TCP, 17 us and the one-way delay of
 * the cable, or 4 us by RDMA.
 *
 *   bench-machines      no options
 *
 * A column of a network has the ratio of a tensor split over both machines.
 * `layer` gives each machine half of the layers, at 1 GbE; machines of two GPUs
 * split matrices within. `auto` says which mode -sm auto takes at each network:
 * T tensor over both, L layers across, 1 one machine. Its estimate, of a prompt
 * of 512 tokens and an answer of 128, is compared with that of one machine: the
 * last column has the least ratio. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_plan_read.h"
#include "pl.h"
#include "synth/synth.h"
#include "timing.h"

enum { N_NETWORK = 5, PROMPT = 512, ANSWER = 128 };

static const struct {
    const char *name, *fields;
} networks[N_NETWORK] = {
    {"1 GbE", "network=0.117GB/s:network-latency=47us"},
    {"2.5", "network=0.29GB/s:network-latency=42us"},
    {"10", "network=1.17GB/s:network-latency=27us"},
    {"25", "network=2.9GB/s:network-latency=23us"},
    {"100, RDMA", "network=11.5GB/s:network-latency=4us"},
};

/* Kernels are assumed to reach 0.8 of the bandwidth. */
static const struct {
    const char *name, *device;
    int n;
} kinds[] = {
    {"processors, 100 GB/s", "cpu:256GiB:100GB/s:flops=4T:int8=8T:shared", 1},
    {"one GPU, 1 TB/s", "gpu:192GiB:1TB/s:flops=80T:int8=320T:link=25GB/s", 1},
    {"two such GPUs",
     "gpu:96GiB:1TB/s:flops=80T:int8=320T:link=25GB/s:latency=5us", 2},
};

static const struct {
    const char *name;
    struct synth_shape shape;
} models[] = {
    {"8B",
     {"8b", "qwen3", 151936, NULL, NULL, NULL, 0, false, 36, 4096, 32, 8, 128,
      12288, 0, 0}},
    {"70B",
     {"70b", "llama", 128256, NULL, NULL, NULL, 0, false, 80, 8192, 64, 8, 128,
      28672, 0, 0}},
    {"30B-A3B",
     {"30b", "qwen3moe", 151936, NULL, NULL, NULL, 0, false, 48, 2048, 32, 4,
      128, 768, 128, 8}},
    {"235B-A22B",
     {"235b", "qwen3moe", 151936, NULL, NULL, NULL, 0, false, 94, 4096, 64, 4,
      128, 1536, 128, 8}},
};

/* An estimate of a plan. */
struct guess {
    double tps;     /* generated tokens per second */
    double seconds; /* of a prompt and its answer */
    char mode;      /* T, L or 1 */
};

/* Returns true if no weight is on machine 1, or none on machine 0. */
static bool is_one_machine(const json_t *plan)
{
    const json_t *dev = json_object_get(plan, "devices");
    bool used[2] = {false, false};

    for (size_t i = 0; i < json_array_size(dev); i++) {
        const json_t *d = json_array_get(dev, i);
        const json_t *bytes = json_object_get(d, "bytes");

        used[json_integer_value(json_object_get(d, "machine")) == 1] |=
            json_integer_value(json_object_get(bytes, "weights")) > 0;
    }
    return !used[0] || !used[1];
}

static struct guess estimate(const pl_model *m, const char *spec,
                             pl_split_mode mode, int width)
{
    pl_options opt = {.size = sizeof opt,
                      .device_spec = spec,
                      .split_mode = mode,
                      .hybrid_size = width,
                      .n_ctx = 4096,
                      .n_seq = 1};
    json_t *all = bench_plan_read(m, &opt, spec);
    const json_t *e;
    struct guess g;

    e = json_object_get(all, "estimate");
    g.tps = json_number_value(json_object_get(e, "decode_tps"));
    g.seconds = ANSWER / g.tps +
                PROMPT / json_number_value(json_object_get(e, "prefill_tps"));
    g.mode = is_one_machine(all) ? '1'
             : strstr(json_string_value(json_object_get(all, "options")),
                      "-sm tensor")
                 ? 'T'
                 : 'L';
    json_decref(all);
    return g;
}

static void row(size_t kind, const pl_model *m, const char *model)
{
    char one[256], two[512], modes[N_NETWORK + 1] = "";
    struct guess alone;
    double least = 1e9, layer = 0;

    snprintf(one, sizeof one, "%s*%d", kinds[kind].device, kinds[kind].n);
    alone = estimate(m, one, PL_SPLIT_TENSOR, 0);
    printf("| %s | %s | %.0f |", kinds[kind].name, model, alone.tps);
    for (int i = 0; i < N_NETWORK; i++) {
        struct guess g;

        snprintf(two, sizeof two, "%s,%s:machine=1:%s*%d", one,
                 kinds[kind].device, networks[i].fields, kinds[kind].n);
        g = estimate(m, two, PL_SPLIT_TENSOR, 0);
        printf(" %.2f |", g.tps / alone.tps);
        if (i == 0)
            layer = estimate(m, two, PL_SPLIT_HYBRID, -1).tps / alone.tps;
        g = estimate(m, two, PL_SPLIT_AUTO, 0);
        modes[i] = g.mode;
        if (alone.seconds / g.seconds < least)
            least = alone.seconds / g.seconds;
    }
    printf(" %.2f | %s | %.2f |\n", layer, modes, least);
    fflush(stdout);
}

int main(void)
{
    char path[] = "/tmp/plait-bench-XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0)
        bench_die(path, "cannot be made");
    close(fd);
    printf("| machines of | model | one, t/s |");
    for (int i = 0; i < N_NETWORK; i++)
        printf(" %s |", networks[i].name);
    printf(" layer | auto | least |\n| --- | --- |");
    for (int i = 0; i < N_NETWORK + 4; i++)
        printf(" ---: |");
    printf("\n");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
            struct synth_type t;
            pl_model *m = NULL;
            pl_err err = {0};

            if (synth_type(&t, "q4_k_m", &err) != PL_OK ||
                synth_save(&models[i].shape, &t, path, true, NULL, &err) !=
                    PL_OK ||
                pl_model_open(&m, path, &err) != PL_OK)
                bench_die(models[i].name, err.message);
            row(k, m, models[i].name);
            pl_model_free(m);
        }
    unlink(path);
    return 0;
}
