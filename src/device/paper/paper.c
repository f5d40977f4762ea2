/* The backend paper: devices that exist only as descriptions, for plans. */
#include <string.h>

#include "base/err.h"
#include "device/cpu/cpu_image.h"
#include "device/device_spec.h"

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    struct device_desc d = {.ops = &paper_ops,
                            .n_thread = 1,
                            .numa_node = -1,
                            .memory = -1,
                            .reads = true,
                            .described = true};
    struct device_list own = {0};
    double v[DEVICE_FIGURES];
    bool shared;

    PL_TRY(device_item_read(it, (1u << DEVICE_FIGURES) - 1, v, &shared, err));
    if (v[DEVICE_MEMORY] == 0 || v[DEVICE_BANDWIDTH] == 0)
        return device_item_bad(it, err, "the %s is missing",
                               v[DEVICE_MEMORY] == 0 ? "memory"
                                                     : "memory's bandwidth");
    if (shared)
        d.memory = 0;
    d.accelerator = !shared && strcmp(it->name, "host") != 0;
    if (strcmp(it->name, "host") != 0)
        return device_item_append(l, it, &d, v, err);
    if (l->host_described || it->count > 1)
        return device_item_bad(it, err, "a machine has only one host");
    if (v[DEVICE_MACHINE] >= 1)
        return device_item_bad(it, err, "the host is that of machine 0");
    PL_TRY(device_item_append(&own, it, &d, v, err));
    l->host = own.dev[0];
    l->host_described = true;
    device_list_free(&own);
    return PL_OK;
}

/* Appends the described host. If --device-spec has none, it gets the figures of
 * a server with a few memory channels. */
static pl_status add_host(struct device_list *l, int n_rank, int n_thread,
                          const struct topology *t, pl_err *err)
{
    const struct device_item it = {
        .text = "host", .len = 4, .name = "host", .accepted = ""};
    struct device_desc d = {.ops = &paper_ops,
                            .n_thread = 1,
                            .mem_bytes_per_s = 50e9,
                            .float_macs_per_s = 1e12,
                            .numa_node = -1,
                            .memory = 0,
                            .described = true};

    (void)n_rank;
    (void)n_thread;
    (void)t;
    if (l->host_described)
        d = l->host;
    d.host = true;
    d.memory = 0;
    d.reads = false;
    d.one_queue = true;
    d.n_core = 1;
    PL_TRY(device_list_append(l, &d, &it, err));
    strcpy(l->dev[l->n - 1].name, "host");
    return PL_OK;
}

static bool has_kernel(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k, const struct prog_tensor *t)
{
    (void)d;
    (void)opt;
    (void)t;
    /* the described processor may lack the instructions of BF16 kernels */
    return !insn_kernel_is_bf16(k);
}

/* Returns the scratch size in bytes. A described device other than the host is
 * taken for one that runs this machine's kernels, as a sim device does. */
static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    return d->host ? 0 : cpu_image_parts_scratch(opt, p);
}

const struct backend_ops paper_ops = {
    .name = "paper",
    .accepts =
        "NAME:MEMORY:BANDWIDTH/s[:flops=N][:link=BANDWIDTH/s]"
        "[:latency=TIME][:int8=N][:launch=TIME][:p2p=BANDWIDTH/s]"
        "[:bridge=BANDWIDTH/s][:available=MEMORY][:shared][:machine=N]"
        "[:network=BANDWIDTH/s][:network-latency=TIME][*N] as in "
        "gpu:80GiB:3TB/s:link=64GB/s:latency=5us:flops=400T*8, and one named "
        "host; items are separated by commas",
    .describe = describe,
    .add_host = add_host,
    .has_kernel = has_kernel,
    .packing = cpu_image_packing,
    .activations = cpu_image_activations,
    .scratch = scratch,
};
