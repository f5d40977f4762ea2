/* Creates the launches of recurrent layers' kernels. */
#include "device/gpu/gpu_launch.h"

_Static_assert((int)STATE_READ_WORD == (int)STATE_READ &&
                   (int)STATE_WRITTEN_WORD == (int)STATE_WRITTEN &&
                   (int)STATE_AT_WORD == (int)STATE_AT,
               "state words have the same layout in the kernels");

void gpu_launch_short_conv(struct launch_list *l, const struct gpu_call *c)
{
    struct short_conv_args a = {.out = c->out.at,
                                .x = c->in[0].at,
                                .w = c->in[1].at,
                                .state = c->in[2].at,
                                .pos = c->pos,
                                .seq = c->seq,
                                .pages = c->pages,
                                .n_channel = c->out.dim[1],
                                .page_stride = c->table.page_stride,
                                .n_tok = (int32_t)c->table.n_tok,
                                .n_tap = (int32_t)c->in[1].dim[1],
                                .silu = c->attr->silu};
    int64_t n = a.n_tok * gpu_groups(a.n_channel, 256);

    gpu_list_add(l, GPU_short_conv, n, &a);
    if (a.n_tap > 1)
        gpu_list_add(l, GPU_short_conv_state, n, &a);
}

/* The parts of the scratch memory: normalized keys, normalized queries, the dot
 * products of both, and the ranges of tokens that belong to one sequence. */
enum { PART_KEYS, PART_QUERIES, PART_PRODUCTS, PART_RUNS, N_PART };

static size_t scratch_lay(const struct gpu_call *c, uint64_t *at)
{
    int64_t n_tok = c->table.n_tok, heads = n_tok * c->in[0].dim[1];
    int64_t n[N_PART] = {heads * c->in[0].dim[2], heads * c->in[0].dim[2],
                         heads, 4 * (n_tok + 1)};
    size_t bytes = 0;

    for (int i = 0; i < N_PART; i++) {
        at[i] = c->scratch + bytes;
        bytes += ((size_t)n[i] * 4 + 63) / 64 * 64;
    }
    return bytes;
}

size_t gpu_delta_net_scratch(const struct gpu_call *c)
{
    uint64_t at[N_PART];

    return scratch_lay(c, at);
}

static enum gpu_kernel delta_kernel(int64_t d_k, bool channels)
{
    if (channels)
        return d_k <= 128 ? GPU_delta_net_channels_128 : GPU_delta_net_wide;
    return d_k <= 64    ? GPU_delta_net_64
           : d_k <= 128 ? GPU_delta_net_128
           : d_k <= 256 ? GPU_delta_net_256
                        : GPU_delta_net_wide;
}

/* most token ranges that are processed in parallel */
enum { SPLIT = 32 };

void gpu_launch_delta_net(struct launch_list *l, const struct gpu_call *c)
{
    uint64_t at[N_PART];
    struct delta_net_args a = {.out = c->out.at,
                               .q = c->in[0].at,
                               .k = c->in[1].at,
                               .v = c->in[2].at,
                               .g = c->in[3].at,
                               .beta = c->in[4].at,
                               .state = c->in[5].at,
                               .head_map = c->head_map_at,
                               .pos = c->pos,
                               .seq = c->seq,
                               .pages = c->pages,
                               .page_stride = c->table.page_stride,
                               .n_head_k = c->in[0].dim[1],
                               .n_head_v = c->out.dim[1],
                               .d_k = c->in[0].dim[2],
                               .d_v = c->out.dim[2],
                               .n_tok = (int32_t)c->table.n_tok,
                               .channels = c->in[3].n_dim == 3,
                               .eps = c->attr->eps};

    scratch_lay(c, at);
    a.kn = at[PART_KEYS];
    a.qn = at[PART_QUERIES];
    a.kq = at[PART_PRODUCTS];
    a.run = at[PART_RUNS];
    a.n_split = a.n_tok < SPLIT ? a.n_tok : SPLIT;
    if (a.n_tok == 0)
        return;
    gpu_list_add(l, GPU_delta_norm, a.n_tok * a.n_head_k + 1, &a);
    gpu_list_add(l, delta_kernel(a.d_k, a.channels),
                 a.n_split * a.n_head_v * gpu_groups(a.d_v, 32), &a);
}

void gpu_launch_delta_net_channels(struct launch_list *l,
                                   const struct gpu_call *c)
{
    gpu_launch_delta_net(l, c);
}

static enum gpu_kernel scan_kernel(int64_t d_state)
{
    return d_state <= 64    ? GPU_ssm_scan_64
           : d_state <= 128 ? GPU_ssm_scan_128
           : d_state <= 256 ? GPU_ssm_scan_256
                            : GPU_ssm_scan_wide;
}

void gpu_launch_ssm_scan(struct launch_list *l, const struct gpu_call *c)
{
    struct ssm_scan_args a = {.out = c->out.at,
                              .c = c->in[0].at,
                              .b = c->in[1].at,
                              .x = c->in[2].at,
                              .g = c->in[3].at,
                              .state = c->in[4].at,
                              .head_map = c->head_map_at,
                              .pos = c->pos,
                              .seq = c->seq,
                              .pages = c->pages,
                              .page_stride = c->table.page_stride,
                              .n_group = c->in[0].dim[1],
                              .n_head = c->out.dim[1],
                              .d_state = c->in[0].dim[2],
                              .d_head = c->out.dim[2],
                              .n_tok = (int32_t)c->table.n_tok};

    a.n_split = a.n_tok < SPLIT ? a.n_tok : SPLIT;
    if (a.n_tok > 0)
        gpu_list_add(l, scan_kernel(a.d_state),
                     a.n_split * a.n_head * gpu_groups(a.d_head, 32), &a);
}
