/* Launches of kernels on rows of the last dimension. */
#include "device/gpu/gpu_launch.h"

void gpu_launch_rms_norm(struct gpu_list *l, const struct gpu_call *c)
{
    struct rms_norm_args a = {.out = c->out.at,
                              .x = c->in[0].at,
                              .w = c->in[1].at,
                              .d = gpu_last(&c->out),
                              .format = gpu_format(c->in[1].format),
                              .eps = c->attr->eps};

    gpu_list_add(l, GPU_rms_norm, gpu_rows(&c->out), &a);
}

void gpu_launch_softmax(struct gpu_list *l, const struct gpu_call *c)
{
    struct softmax_args a = {
        .out = c->out.at, .x = c->in[0].at, .d = gpu_last(&c->out)};

    gpu_list_add(l, GPU_softmax, gpu_rows(&c->out), &a);
}
