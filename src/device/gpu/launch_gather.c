/* Creates the launches of gather_rows. */
#include <string.h>

#include "device/gpu/gpu_launch.h"

_Static_assert(sizeof(struct text_chunk) == sizeof(struct pack_chunk) &&
                   offsetof(struct text_chunk, n) ==
                       offsetof(struct pack_chunk, n) &&
                   offsetof(struct text_chunk, k_loc) ==
                       offsetof(struct pack_chunk, k_loc) &&
                   offsetof(struct text_chunk, off) ==
                       offsetof(struct pack_chunk, off),
               "chunks have the same layout on the device");
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(GATHER_Q8_0, PL_Q8_0);
SAME(GATHER_Q6_K, PL_Q6_K);
SAME(GATHER_MXFP4, PL_MXFP4);
SAME(GATHER_IQ2_S, PL_IQ2_S);
SAME(GATHER_NVFP4, PL_NVFP4);
SAME(GATHER_I32, PL_I32);
SAME(GATHER_I32 + 1, PL_FORMAT_COUNT);
SAME(TEXT_SUB_F16_MIN, PACK_SUB_F16_MIN);
SAME(TEXT_SUB_S8X2, PACK_SUB_S8X2);
SAME(TEXT_SUB_UE4M3X2, PACK_SUB_UE4M3X2);
SAME(TEXT_SUP_D_8TH, PACK_SUP_D_8TH);
SAME(TEXT_SUP_D_DMIN, PACK_SUP_D_DMIN);
#undef SAME

/* Sets the arguments for converting codes to values, and the layout of a packed
 * tile. */
static void set_rule(struct gather_args *a, const struct pack_rule *r)
{
    a->low = r->low_bits;
    a->high = r->high_bits;
    a->sub = (int32_t)r->sub;
    a->sup = (int32_t)r->sup;
    a->bias = r->bias;
    a->tile_bytes = r->tile_bytes;
    a->sup_bytes = r->sup_bytes;
    a->sub_bytes = r->sub_bytes;
    a->table = r->table != NULL;
    if (r->table)
        memcpy(a->level, r->table, sizeof a->level);
}

void gpu_launch_gather_rows(struct launch_list *l, const struct gpu_call *c)
{
    const struct gpu_tensor *t = &c->in[0];
    const struct format_info *info = format_info(t->format);
    struct gather_args a = {.out = c->out.at,
                            .x = t->at,
                            .id = c->in[1].at,
                            .span = c->span_at,
                            .item = c->tree_at,
                            .chunk = t->chunk,
                            .grid = t->grid,
                            .n_row = t->dim[0],
                            .width = t->dim[1],
                            .out_stride = (int64_t)c->out_stride,
                            .n_span = c->n_span,
                            .n_item = c->tree.n,
                            .n_out = c->tree.n_out,
                            .format = (int32_t)t->format,
                            .ints = c->out.format == PL_I32,
                            .block = info->block};

    if (info->pack)
        set_rule(&a, info->pack);
    if (t->pack) {
        a.n_chunk = t->pack->n_chunk;
        a.step = (int64_t)t->pack->panel_bytes;
    } else {
        a.tile_bytes = info->block_bytes;
        a.step = (int64_t)format_row_bytes(t->format, a.width);
    }
    gpu_list_add(l, GPU_gather,
                 gpu_count(&c->in[1]) * gpu_groups(a.width, 1024), &a);
}
