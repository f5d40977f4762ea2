/* Creates the launches of kernels that process rows, which are along the last
 * dimension. */
#include "device/gpu/gpu_launch.h"

_Static_assert(sizeof(struct text_span) == sizeof(struct rank_span) &&
                   offsetof(struct text_span, rank) ==
                       offsetof(struct rank_span, rank),
               "spans have the same layout on the device");
_Static_assert(sizeof(struct text_item) == sizeof(struct tree_addend) &&
                   offsetof(struct text_item, n_add) ==
                       offsetof(struct tree_addend, n_add),
               "tree items have the same layout on the device");
_Static_assert((int)TEXT_RANKS == (int)PL_MAX_RANKS,
               "the stack fits all ranks");
_Static_assert((int)GATING_SOFTMAX == (int)PL_GATING_SOFTMAX &&
                   (int)GATING_SIGMOID == (int)PL_GATING_SIGMOID &&
                   (int)GATING_SELECTED == (int)PL_GATING_SOFTMAX_SELECTED &&
                   (int)GATING_SQRT_SOFTPLUS == (int)PL_GATING_SQRT_SOFTPLUS,
               "gatings have the same values in the kernels");

void gpu_launch_rms_norm(struct launch_list *l, const struct gpu_call *c)
{
    struct rms_norm_args a = {.out = c->out.at,
                              .x = c->in[0].at,
                              .w = c->in[1].at,
                              .d = gpu_last(&c->out),
                              .format = gpu_format(c->in[1].format),
                              .eps = c->attr->eps,
                              .n_row = (int32_t)gpu_rows(&c->out)};

    gpu_list_add(l, GPU_rms_norm, gpu_rows(&c->out), &a);
}

void gpu_launch_layer_norm(struct launch_list *l, const struct gpu_call *c)
{
    struct layer_norm_args a = {.out = c->out.at,
                                .x = c->in[0].at,
                                .w = c->in[1].at,
                                .d = gpu_last(&c->out),
                                .format = gpu_format(c->in[1].format),
                                .eps = c->attr->eps};

    gpu_list_add(l, GPU_layer_norm, gpu_rows(&c->out), &a);
}

void gpu_launch_softmax(struct launch_list *l, const struct gpu_call *c)
{
    struct softmax_args a = {
        .out = c->out.at, .x = c->in[0].at, .d = gpu_last(&c->out)};

    gpu_list_add(l, GPU_softmax, gpu_rows(&c->out), &a);
}

void gpu_launch_sinkhorn(struct launch_list *l, const struct gpu_call *c)
{
    struct sinkhorn_args a = {.out = c->out.at,
                              .x = c->in[0].at,
                              .scale = c->in[1].at,
                              .base = c->in[2].at,
                              .n = 1,
                              .n_iter = c->attr->n_iter,
                              .scale_format = gpu_format(c->in[1].format),
                              .base_format = gpu_format(c->in[2].format),
                              .eps = c->attr->eps};

    while (a.n * (a.n + 2) < gpu_last(&c->out))
        a.n++;
    gpu_list_add(l, GPU_sinkhorn, gpu_rows(&c->out), &a);
}

void gpu_launch_mix_streams(struct launch_list *l, const struct gpu_call *c)
{
    struct mix_streams_args a = {.out = c->out.at,
                                 .x = c->in[0].at,
                                 .y = c->in[1].at,
                                 .w = c->in[2].at,
                                 .e = gpu_last(&c->out),
                                 .n_tok = (int32_t)c->out.dim[0],
                                 .n = (int32_t)c->out.dim[1]};

    gpu_list_add(l, GPU_mix_streams, a.n_tok * gpu_groups(a.e, 256), &a);
}

/* Returns the number of parts into which a span is divided at multiples of
 * 256. */
static int32_t span_parts(const struct rank_span *s)
{
    int64_t end = s->logical + s->n;

    return s->n > 0 ? (int32_t)((end - 1) / 256 - s->logical / 256 + 1) : 0;
}

void gpu_launch_quantize(struct launch_list *l, const struct gpu_call *c)
{
    struct quantize_args a = {.out = c->out.at,
                              .x = c->in[0].at,
                              .span = c->span_at,
                              .k = gpu_last(&c->in[0]),
                              .n_row = gpu_rows(&c->in[0]),
                              .n_span = c->n_span};
    int64_t units, n = 0;

    for (int i = 0; i < c->n_span; i++) {
        a.n_part += span_parts(&c->span[i]);
        n += c->span[i].n;
    }
    a.whole = n == a.k;
    units = a.n_row * (c->n_span > 0 ? a.n_part : a.k / 32);
    gpu_list_add(l, GPU_quantize, gpu_groups(units, c->n_span > 0 ? 4 : 32),
                 &a);
}

size_t gpu_router_scratch(const struct gpu_call *c)
{
    return (size_t)(2 * gpu_count(&c->in[0])) * sizeof(float);
}

void gpu_launch_router_topk(struct launch_list *l, const struct gpu_call *c)
{
    const struct graph_attr *at = c->attr;
    struct router_topk_args a = {.out = c->out.at,
                                 .x = c->in[0].at,
                                 .bias = c->in[1].at,
                                 .scratch = c->scratch,
                                 .e = gpu_last(&c->in[0]),
                                 .n_used = gpu_last(&c->out),
                                 .format = gpu_format(c->in[1].format),
                                 .gating = at->gating};

    if (at->n_group > 1 && at->n_group_used > 0 &&
        at->n_group_used < at->n_group) {
        a.n_group = at->n_group;
        a.n_group_used = at->n_group_used;
    }
    gpu_list_add(l, GPU_router_topk, gpu_rows(&c->out), &a);
}

void gpu_launch_router_weights(struct launch_list *l, const struct gpu_call *c)
{
    struct router_weights_args a = {
        .out = c->out.at,
        .x = c->in[0].at,
        .id = c->in[1].at,
        .e = gpu_last(&c->in[0]),
        .n_used = gpu_last(&c->out),
        .gating = c->attr->gating,
        .normalise = c->attr->normalise,
        .scale = c->attr->scale != 0 ? c->attr->scale : 1.0f};

    gpu_list_add(l, GPU_router_weights, gpu_rows(&c->out), &a);
}

void gpu_launch_sum(struct launch_list *l, const struct gpu_call *c)
{
    struct sum_args a = {.out = c->out.at,
                         .x = c->in[0].at,
                         .span = c->span_at,
                         .item = c->tree_at,
                         .u = c->in[0].dim[c->in[0].n_dim - 2],
                         .d = gpu_last(&c->out),
                         .out_stride = (int64_t)c->out_stride,
                         .n_span = c->n_span,
                         .n_item = c->tree.n,
                         .n_out = c->tree.n_out};

    gpu_list_add(l, GPU_sum, gpu_rows(&c->out) * gpu_groups(a.d, 256), &a);
}
