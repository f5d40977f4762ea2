/* Lists the kernels that a program may launch, before its memory is allocated.
 * To find them, it creates launches as for real steps, but with invalid
 * addresses, and does not execute these launches. The choice between kernels
 * depends on whether sizes exceed thresholds. So steps with one token, with
 * each power of two and with the largest size cover all kernels, each fused and
 * not fused. */
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_image.h"

/* Returns a different invalid address for each i. It is not 0, which would mean
 * that there is no memory. */
static uint64_t nowhere(int i)
{
    return (uint64_t)(i + 1) << 48;
}

static pl_status init(struct gpu_image *m, struct device_set *set,
                      const struct device *d, pl_err *err)
{
    int n_view = device_set_size(set) * REGION_COUNT;

    for (int r = 0; r < REGION_COUNT; r++)
        m->base[r] = nowhere(r);
    for (int q = 0; q < QUEUE_COUNT; q++)
        m->scratch[q] = nowhere(q);
    m->tables_at = nowhere(0);
    m->inbox.mapped = nowhere(REGION_INBOX);
    PL_TRY(gpu_image_init(m, set, d, err));
    for (int i = 0; i < n_view; i++)
        m->view[i] = nowhere(i);
    gpu_image_place(m);
    return PL_OK;
}

/* Adds the kernels of a step with n_micro micro-batches of sizes *z, fused and
 * not fused. Returns false if out of memory. */
static bool look(struct gpu_image *m, const struct device *d, int variant,
                 int n_micro, const struct graph_sizes *z,
                 bool want[GPU_KERNEL_COUNT])
{
    struct device_run run = {.variant = variant, .n_micro = n_micro};

    for (int i = 0; i < n_micro; i++)
        run.sizes[i] = *z;
    for (int k = 0; k < 2; k++) {
        m->by_insn = k > 0;
        if (!gpu_image_prepare(m, d, &run))
            return false;
        for (int i = 0; i < m->list.n; i++)
            want[m->list.launch[i].kernel] = true;
    }
    return true;
}

/* Adds the kernels of steps with n_tok tokens per micro-batch: with one
 * sequence and one output, and with the largest numbers of both. Returns false
 * if out of memory. */
static bool look_at(struct gpu_image *m, const struct device *d, int variant,
                    int64_t n_tok, bool want[GPU_KERNEL_COUNT])
{
    const struct graph_sizes *max = &m->prog->max;
    int n_micro = m->prog->variant[variant].n_micro;
    int64_t n_out = n_tok < max->n_out ? n_tok : max->n_out;
    int64_t n_seq = n_tok < max->n_seq ? n_tok : max->n_seq;
    struct graph_sizes one = graph_sizes_of(max, n_tok, n_out > 0, n_seq > 0);
    struct graph_sizes many = graph_sizes_of(max, n_tok, n_out, n_seq);

    for (int n = 1; n <= n_micro; n += n_micro > 1 ? n_micro - 1 : 1)
        if (!look(m, d, variant, n, &one, want) ||
            !look(m, d, variant, n, &many, want))
            return false;
    return true;
}

static bool look_at_all(struct gpu_image *m, const struct device *d,
                        bool want[GPU_KERNEL_COUNT])
{
    int64_t max = m->prog->max.n_tok;

    for (int s = 0; s < m->prog->n_variant; s++) {
        for (int64_t n = 1; n < max; n *= 2)
            if (!look_at(m, d, s, n, want))
                return false;
        if (!look_at(m, d, s, max, want))
            return false;
    }
    return true;
}

pl_status gpu_list_kernels(struct device_set *set, const struct device *d,
                           const struct peer_inbox *box,
                           bool want[GPU_KERNEL_COUNT], pl_err *err)
{
    struct gpu_image m = {.box = box};
    pl_status s = init(&m, set, d, err);

    memset(want, 0, GPU_KERNEL_COUNT * sizeof *want);
    if (s == PL_OK && !look_at_all(&m, d, want))
        s = err_no_memory(err, "a device's launches");
    gpu_image_fini(&m);
    return s;
}
