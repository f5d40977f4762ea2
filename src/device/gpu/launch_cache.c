/* Creates the launches of RoPE and of cache writes. */
#include "device/gpu/gpu_launch.h"

#include "base/exact.h"
#include "program/cache_tile.h"

/* Returns base^(-2/n), with the same operations as the CPU's kernel. */
static double rope_step(double base, int n)
{
    double x = -2.0 / n * exact_log(base);

    return x <= 0 ? exact_exp(x) : 1 / exact_exp(-x);
}

/* Sets a->power[] to every stride-th power of a->step; the device computes
 * those in between. */
static void set_powers(struct rope_args *a)
{
    int half = a->n_rot / 2;
    double power = 1;

    a->stride = (half + ROPE_POWERS - 1) / ROPE_POWERS;
    for (int i = 0; i < half; i++) {
        if (i % a->stride == 0)
            a->power[i / a->stride] = power;
        power *= a->step;
    }
}

void gpu_launch_rope(struct launch_list *l, const struct gpu_call *c)
{
    const struct graph_attr *t = c->attr;
    double width = (double)t->yarn_high - (double)t->yarn_low;
    struct rope_args a = {
        .out = c->out.at,
        .x = c->in[0].at,
        .pos = c->in[1].at,
        .factors = c->in[2].at,
        .n_tok = (int32_t)c->out.dim[0],
        .n_head = (int32_t)c->out.dim[1],
        .d = (int32_t)c->out.dim[2],
        .n_rot = t->n_rot,
        .format = gpu_format(c->in[2].format),
        .neox = t->neox,
        .yarn = t->yarn,
        .step = t->n_rot > 0 ? rope_step((double)t->base, t->n_rot) : 1,
        .scale = t->freq_scale != 0 ? (double)t->freq_scale : 1,
        .mscale = t->mscale != 0 ? (double)t->mscale : 1,
        .temp = (double)t->scale,
        .temp_length = (int32_t)t->window,
        .start = (int32_t)t->start,
        .back = t->back,
        .low = (double)t->yarn_low,
        .width = width < 0.001 ? 0.001 : width};

    set_powers(&a);
    gpu_list_add(l, GPU_rope, c->out.dim[0] * gpu_groups(a.n_head, ROPE_HEADS),
                 &a);
}

void gpu_launch_cache_write(struct launch_list *l, const struct gpu_call *c)
{
    struct cache_write_args a = {
        .cache = c->out.at,
        .x = c->in[1].at,
        .pos = c->pos,
        .seq = c->seq,
        .pages = c->pages,
        .page_stride = c->table.page_stride,
        .tile_bytes = (int64_t)cache_tile_bytes(c->out.format, c->out.dim[2]),
        .n_tok = (int32_t)c->table.n_tok,
        .n_head = (int32_t)c->out.dim[1],
        .d = (int32_t)c->out.dim[2],
        .format = gpu_cache_format(c->out.format),
        .values = c->attr->values};

    gpu_list_add(l, GPU_cache_write,
                 a.n_head * gpu_groups(a.n_tok, CACHE_TOKENS) *
                     gpu_groups(a.d, CACHE_VALUES),
                 &a);
}
