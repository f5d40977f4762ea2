/* Prints estimates of plans for GPUs that are only described, so nothing is
 * measured. Bandwidths and f32 peaks are the vendors' figures. The cost model
 * assumes what share of them kernels reach (src/cost/cost.c). If the exact
 * order of sums in blocks lets kernels use less of the integer units, `int8` is
 * lowered to what the units' issue slots allow. A launch takes 2 us, or 1 us if
 * launches overlap, as on an H200; both are guesses.
 *
 *   bench-paper      no options
 *
 * For dense models it also prints which share of the bandwidth of all devices
 * generation would use: tokens per second times the bytes of the weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_plan_read.h"
#include "pl.h"
#include "synth/synth.h"
#include "timing.h"

/* An H200 has 132 multiprocessors at 1.755 GHz. By their issue slots they reach
 * 580 TOPS with Q8_0, of which kernels are expected to reach 60 %. The cost
 * model assumes two fifths of a peak, so the peak is given as 875. */
#define H200                                                                   \
    "gpu:141GiB:4.8TB/s:flops=67T:int8=875T:"                                  \
    "link=50GB/s:latency=5us:launch=1us"

#define R4090 "gpu:24GiB:1008GB/s:flops=82T:int8=660T:link=25GB/s"
#define R3090 "gpu:24GiB:936GB/s:flops=35T:int8=284T:link=13GB/s"

static const struct machine {
    const char *name, *spec;
    double bytes_per_s; /* memory bandwidth of all devices together */
} machines[] = {
    {"H200", H200, 4.8e12},
    {"2 H200, NVLink", H200 ":p2p=450GB/s*2", 9.6e12},
    {"8 H200, NVLink", H200 ":p2p=450GB/s*8", 38.4e12},
    {"RTX 4090", R4090, 1.008e12},
    {"2 RTX 4090", R4090 "*2", 2.016e12},
    {"RTX 4090 + RTX 3090", R4090 "," R3090, 1.944e12},
};

static const struct subject {
    const char *shape, *type;
} subjects[] = {
    {"qwen3-8b", "q4_k_m"}, {"qwen3-8b", "q8_0"}, {"qwen3moe-30b", "q4_k_m"}};

static void row(const struct machine *w, const struct subject *x,
                const pl_model *m, double weights, bool dense)
{
    pl_options opt = {.size = sizeof opt,
                      .device_spec = w->spec,
                      .split_mode = PL_SPLIT_AUTO,
                      .n_ctx = 4096,
                      .n_seq = 1};
    json_t *all = bench_plan_read(m, &opt, w->name);
    const json_t *e = json_object_get(all, "estimate");
    double gen = json_number_value(json_object_get(e, "decode_tps"));

    printf("| %s %s | %s | %.0f | %.0f |", x->shape, x->type, w->name,
           json_number_value(json_object_get(e, "prefill_tps")), gen);
    if (dense)
        printf(" %.0f %% |\n", 100 * gen * weights / w->bytes_per_s);
    else
        printf(" |\n");
    json_decref(all);
}

int main(void)
{
    char path[] = "/tmp/plait-bench-XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0)
        bench_die(path, "cannot be made");
    close(fd);
    printf("| model | devices | prompt of 512, t/s | generation, t/s "
           "| of the bandwidth |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const struct subject *x = &subjects[i];
        pl_err err = {0};
        const struct synth_shape *s = synth_shape(x->shape, &err);
        struct synth_type t;
        pl_model *m = NULL;
        uint64_t bytes;

        if (!s || synth_type(&t, x->type, &err) != PL_OK ||
            synth_bytes(s, &t, &bytes, &err) != PL_OK ||
            synth_save(s, &t, path, true, NULL, &err) != PL_OK ||
            pl_model_open(&m, path, &err) != PL_OK)
            bench_die(x->shape, err.message);
        for (size_t k = 0; k < sizeof machines / sizeof *machines; k++)
            row(&machines[k], x, m, (double)bytes, s->n_expert == 0);
        pl_model_free(m);
    }
    unlink(path);
    return 0;
}
