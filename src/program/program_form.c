/* Implements program_form.h: the defaults that the text form of programs may
 * leave out. */
#include "program/program_form.h"

#include "program/cache_tile.h"
#include "quant/q8.h"

#include <string.h>

const char *const form_regions[REGION_COUNT] = {
    [REGION_WEIGHTS] = "weights",
    [REGION_CACHE] = "cache",
    [REGION_WORK] = "work",
    [REGION_INBOX] = "inbox",
};

/* Sets *out to the product of the first n dimensions of tensor t at the largest
 * sizes of a step. Returns false if it overflows or a dimension is negative. */
static bool product(const struct prog_tensor *t, int n,
                    const struct graph_sizes *max, size_t *out)
{
    *out = 1;
    for (int i = 0; i < n; i++) {
        int64_t d = dim_value(t->dim[i], max);

        if (d < 0 || __builtin_mul_overflow(*out, (size_t)d, out))
            return false;
    }
    return true;
}

bool form_tensor_bytes(const struct prog_tensor *t,
                       const struct graph_sizes *max, size_t *bytes)
{
    const struct format_info *f = format_info(t->format);
    int64_t block = t->q8 ? 32 : f->block;
    size_t size = t->q8 ? sizeof(struct q8_block) : (size_t)f->block_bytes;
    int64_t row = t->n_dim > 0 ? dim_value(t->dim[t->n_dim - 1], max) : block;

    if (t->pack)
        return product(t, t->n_dim - 2, max, bytes) &&
               !__builtin_mul_overflow(*bytes, t->pack->matrix_bytes, bytes) &&
               *bytes <= (size_t)FORM_MAX_BYTES;
    if (row < 0 || row % block != 0)
        return false;
    return product(t, t->n_dim - 1, max, bytes) &&
           !__builtin_mul_overflow(*bytes, (size_t)(row / block), bytes) &&
           !__builtin_mul_overflow(*bytes, size, bytes) &&
           *bytes <= (size_t)FORM_MAX_BYTES;
}

int64_t form_heads(const struct prog_tensor *tensor, int n_tensor, int t)
{
    if (t < 0 || t >= n_tensor || tensor[t].n_dim != 3 ||
        tensor[t].dim[1].symbol != PL_CONST)
        return -1;
    return tensor[t].dim[1].n;
}

size_t form_tile(const struct prog_tensor *tensor, int n_tensor, int t)
{
    if (form_heads(tensor, n_tensor, t) < 0 ||
        tensor[t].dim[2].symbol != PL_CONST)
        return 0;
    return cache_tile_bytes(tensor[t].format, tensor[t].dim[2].n);
}

void form_push(struct form_stack *s, int n_add)
{
    s->top++;
    s->depth = s->top > s->depth ? s->top : s->depth;
    s->top = n_add < s->top ? s->top - n_add : 0;
}

const struct tree_addend form_whole = {0, 0};

struct rank_tree form_tree(enum kernel k)
{
    if (k == KERNEL_quantize)
        return (struct rank_tree){0};
    return (struct rank_tree){1, 1, &form_whole, 1};
}

int64_t form_order(const struct form_order *o, int dev, const struct insn *s)
{
    const struct insn_merge *a = &o->last.merge, *b = &s->merge;

    if (!o->any)
        return 0;
    if (insn_is_barrier(s) && insn_is_barrier(&o->last) && dev > o->dev &&
        a->group == b->group && a->n_peer == b->n_peer &&
        o->last.micro == s->micro &&
        (a->n_peer == 0 ||
         !memcmp(a->peer, b->peer, (size_t)a->n_peer * sizeof *a->peer)))
        return o->last.order;
    return (int64_t)o->last.order + 1;
}

void form_order_took(struct form_order *o, int dev, const struct insn *s)
{
    *o = (struct form_order){dev, true, *s};
}
