/* A rule for each pair of kernels that one launch can do. A group that does two
 * things knows that its own lanes have done the first; of other groups it knows
 * nothing, so what the second writes may lie over what the first reads only
 * where there is one group, or where each element lies over its own. */
#include "device/gpu/gpu_pair.h"

#include <string.h>

#include "device/gpu/gpu_launch.h"

/* Two launches, and what is made of them. */
struct pairing {
    const struct gpu_launch *first, *second;
    const void *a, *b; /* their arguments */
    struct gpu_pair *out;
};

static void take(const struct pairing *p, enum gpu_kernel k, int64_t n_group,
                 const void *args)
{
    p->out->kernel = k;
    p->out->n_group = n_group;
    memcpy(p->out->args, args, gpu_kernel_args(k));
}

static bool apart(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes)
{
    return a == 0 || b == 0 || a + (uint64_t)a_bytes <= b ||
           b + (uint64_t)b_bytes <= a;
}

/* Of as many elements: apart, or each over its own. */
static bool even(uint64_t a, uint64_t b, int64_t bytes)
{
    return a == b || apart(a, bytes, b, bytes);
}

/* ---- contractions -------------------------------------------------------- */

/* Does it never have more sums on its stack than results? */
static bool needs_no_stack(const struct contract_args *a)
{
    int top = a->top;

    for (int i = 0; i < a->n_run; i++) {
        if (top + 1 > a->n_out)
            return false;
        if (a->run[i].n_add >= 0)
            top += 1 - a->run[i].n_add;
    }
    return a->open == 0;
}

/* Are they alike but for the matrix? */
static bool same_rows(const struct contract_args *a,
                      const struct contract_args *b)
{
    struct contract_args x = *b;

    x.w = a->w;
    x.out = a->out;
    x.matrix_bytes = a->matrix_bytes;
    x.n = a->n;
    x.n_panel = a->n_panel;
    x.stack_stride = a->stack_stride;
    x.stack = a->stack;
    if (a->n_out == 1)
        x.out_stride = a->out_stride;
    memcpy(x.more, a->more, sizeof x.more);
    return memcmp(&x, a, sizeof x) == 0;
}

static enum gpu_pairing matrices(const struct pairing *p)
{
    struct contract_args a, b;
    int n = 0;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    while (n < CONTRACT_MORE && a.more[n].first != CONTRACT_NO_MORE)
        n++;
    if (n == CONTRACT_MORE || b.more[0].first != CONTRACT_NO_MORE ||
        !same_rows(&a, &b) || !needs_no_stack(&a) || !needs_no_stack(&b))
        return PAIR_NONE;
    a.more[n] = (struct contract_more){.w = b.w,
                                       .out = b.out,
                                       .matrix_bytes = b.matrix_bytes,
                                       .n = b.n,
                                       .n_panel = b.n_panel,
                                       .first = p->first->n_group};
    take(p, p->first->kernel, (int64_t)p->first->n_group + p->second->n_group,
         &a);
    return PAIR_BESIDE;
}

/* ---- norms --------------------------------------------------------------- */

enum { MOST_OF_ROW = 16384 }; /* values that one group quantizes */

static bool is_plain_norm(const struct rms_norm_args *a)
{
    return !a->y && !a->q8 && !a->out_2;
}

/* Neither operand is broadcast, nor anything but floats. */
static bool is_plain_binary(const struct binary_args *a)
{
    return a->format_x == TEXT_F32 && a->format_y == TEXT_F32 &&
           a->dim[0] == a->n && a->stride_x[0] == 1 && a->stride_y[0] == 1;
}

static enum gpu_pairing sum_and_norm(const struct pairing *p)
{
    struct binary_args a;
    struct rms_norm_args b;
    int64_t bytes;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    bytes = a.n * 4;
    if (a.op != TEXT_ADD || !is_plain_binary(&a) || !is_plain_norm(&b) ||
        b.x != a.out || b.n_row * b.d != a.n ||
        !apart(b.w, b.d * 4, a.out, bytes))
        return PAIR_NONE;
    if (b.n_row > 1 && (!even(b.out, a.x, bytes) || !even(b.out, a.y, bytes)))
        return PAIR_NONE;
    b.x = a.x;
    b.y = a.y;
    b.sum = a.out;
    take(p, GPU_rms_norm, p->second->n_group, &b);
    return PAIR_BEHIND;
}

static int64_t blocks_bytes(const struct quantize_args *b)
{
    return b->n_row * (b->k / 32) * 40;
}

static enum gpu_pairing norm_and_blocks(const struct pairing *p)
{
    struct rms_norm_args a;
    struct quantize_args b;
    int64_t bytes;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    bytes = a.n_row * a.d * 4;
    if (a.q8 || a.out_2 || b.y || b.z || b.x != a.out || b.k != a.d ||
        b.n_row != a.n_row || b.k > MOST_OF_ROW ||
        !apart(b.out, blocks_bytes(&b), a.out, bytes))
        return PAIR_NONE;
    if (a.n_row > 1 && (!apart(b.out, blocks_bytes(&b), a.x, bytes) ||
                        !apart(b.out, blocks_bytes(&b), a.y, bytes) ||
                        !apart(b.out, blocks_bytes(&b), a.sum, bytes)))
        return PAIR_NONE;
    a.q8 = b.out;
    a.span = b.span;
    a.n_span = b.n_span;
    a.n_part = b.n_part;
    take(p, GPU_rms_norm, p->first->n_group, &a);
    return PAIR_BEHIND;
}

static enum gpu_pairing norms(const struct pairing *p)
{
    struct rms_norm_args a, b;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (!is_plain_norm(&a) || !is_plain_norm(&b) || a.d != b.d ||
        a.format != b.format || memcmp(&a.eps, &b.eps, sizeof a.eps) != 0)
        return PAIR_NONE;
    a.out_2 = b.out;
    a.x_2 = b.x;
    a.w_2 = b.w;
    take(p, GPU_rms_norm, (int64_t)a.n_row + b.n_row, &a);
    return PAIR_BESIDE;
}

/* ---- what is quantized --------------------------------------------------- */

/* As a kernel that goes through rows by quantize's lanes. */
static struct quantize_args as_rows(const struct binary_args *a, int64_t k)
{
    return (struct quantize_args){.x = a->x,
                                  .y = a->y,
                                  .made = a->out,
                                  .k = k,
                                  .n_row = a->n / k,
                                  .op = a->op,
                                  .lo = a->lo,
                                  .hi = a->hi,
                                  .alpha = a->alpha};
}

/* A product with a number for each row. */
static bool is_row_product(const struct binary_args *b)
{
    return b->op == TEXT_MUL && b->format_x == TEXT_F32 &&
           b->format_y == TEXT_F32 && b->stride_x[0] == 1 &&
           b->stride_y[0] == 0 && b->dim[0] % 32 == 0 &&
           (b->dim[0] == b->n ||
            (b->dim[0] * b->dim[1] == b->n && b->stride_x[1] == b->dim[0] &&
             b->stride_y[1] == 1));
}

static enum gpu_pairing values_and_product(const struct pairing *p)
{
    struct binary_args a, b;
    struct quantize_args q;
    int64_t bytes;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    bytes = a.n * 4;
    if (!is_plain_binary(&a) || !is_row_product(&b) || b.x != a.out ||
        b.n != a.n || !even(b.out, a.x, bytes) || !even(b.out, a.y, bytes) ||
        !even(b.out, a.out, bytes) ||
        !apart(b.y, b.n / b.dim[0] * 4, a.out, bytes) ||
        !apart(b.y, b.n / b.dim[0] * 4, b.out, bytes))
        return PAIR_NONE;
    q = as_rows(&a, b.dim[0]);
    q.z = b.y;
    q.product = b.out;
    take(p, GPU_quantize, gpu_groups(q.n_row * (q.k / 32), 32), &q);
    return PAIR_BEHIND;
}

/* *a, whose results `made` and `product` are its own, quantized as *b says. */
static enum gpu_pairing blocks_of(const struct pairing *p,
                                  struct quantize_args *a,
                                  const struct quantize_args *b)
{
    int64_t bytes = a->n_row * a->k * 4, rows = a->n_row * 4;

    if (b->y || b->z || a->n_row * a->k != b->n_row * b->k ||
        (a->z && a->k != b->k) || b->x != (a->z ? a->product : a->made) ||
        !apart(b->out, blocks_bytes(b), a->made, bytes) ||
        !apart(b->out, blocks_bytes(b), a->product, bytes))
        return PAIR_NONE;
    if (p->second->n_group > 1 &&
        (!apart(b->out, blocks_bytes(b), a->x, bytes) ||
         !apart(b->out, blocks_bytes(b), a->y, bytes) ||
         !apart(b->out, blocks_bytes(b), a->z, rows)))
        return PAIR_NONE;
    a->out = b->out;
    a->span = b->span;
    a->k = b->k;
    a->n_row = b->n_row;
    a->n_span = b->n_span;
    a->n_part = b->n_part;
    take(p, GPU_quantize, p->second->n_group, a);
    return PAIR_BEHIND;
}

/* Where spans leave nothing out: those lanes make what is quantized. */
static bool takes_whole_rows(const struct quantize_args *b)
{
    return b->n_span == 0 || b->whole;
}

static enum gpu_pairing values_and_blocks(const struct pairing *p)
{
    struct binary_args a;
    struct quantize_args b, q;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (!is_plain_binary(&a) || !takes_whole_rows(&b) || a.n % b.k != 0)
        return PAIR_NONE;
    q = as_rows(&a, b.k);
    return blocks_of(p, &q, &b);
}

static enum gpu_pairing product_and_blocks(const struct pairing *p)
{
    struct quantize_args a, b;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (a.out || !takes_whole_rows(&b))
        return PAIR_NONE;
    return blocks_of(p, &a, &b);
}

/* ---- before attention ---------------------------------------------------- */

static enum gpu_pairing ropes(const struct pairing *p)
{
    struct rope_args a, b, x;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    x = b;
    x.x = a.x;
    x.out = a.out;
    x.n_head = a.n_head;
    if (a.n_head_2 || b.n_head_2 || memcmp(&x, &a, sizeof x) != 0)
        return PAIR_NONE;
    a.out_2 = b.out;
    a.x_2 = b.x;
    a.n_head_2 = b.n_head;
    a.first_2 = p->first->n_group;
    take(p, GPU_rope, (int64_t)p->first->n_group + p->second->n_group, &a);
    return PAIR_BESIDE;
}

static enum gpu_pairing caches(const struct pairing *p)
{
    struct cache_write_args a, b;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (a.n_head_2 || b.n_head_2 || a.pos != b.pos || a.seq != b.seq ||
        a.pages != b.pages || a.page_stride != b.page_stride ||
        a.n_tok != b.n_tok)
        return PAIR_NONE;
    a.cache_2 = b.cache;
    a.x_2 = b.x;
    a.tile_bytes_2 = b.tile_bytes;
    a.n_head_2 = b.n_head;
    a.d_2 = b.d;
    a.format_2 = b.format;
    a.values_2 = b.values;
    a.first_2 = p->first->n_group;
    take(p, GPU_cache_write, (int64_t)p->first->n_group + p->second->n_group,
         &a);
    return PAIR_BESIDE;
}

/* ---- rules --------------------------------------------------------------- */

static const struct {
    enum gpu_kernel first, second;
    enum gpu_pairing (*rule)(const struct pairing *p);
} rules[] = {
    {GPU_binary, GPU_rms_norm, sum_and_norm},
    {GPU_rms_norm, GPU_quantize, norm_and_blocks},
    {GPU_rms_norm, GPU_rms_norm, norms},
    {GPU_binary, GPU_binary, values_and_product},
    {GPU_binary, GPU_quantize, values_and_blocks},
    {GPU_quantize, GPU_quantize, product_and_blocks},
    {GPU_rope, GPU_rope, ropes},
    {GPU_cache_write, GPU_cache_write, caches},
};

enum gpu_pairing gpu_pair(const struct gpu_list *l, int a, int b,
                          struct gpu_pair *out)
{
    struct pairing p = {.first = &l->launch[a],
                        .second = &l->launch[b],
                        .a = l->bytes + l->launch[a].args,
                        .b = l->bytes + l->launch[b].args,
                        .out = out};
    enum gpu_kernel first = p.first->kernel, second = p.second->kernel;

    if (first == second && first >= GPU_matvec_f32 && first <= GPU_matvec_tq)
        return matrices(&p);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].first == first && rules[i].second == second)
            return rules[i].rule(&p);
    return PAIR_NONE;
}
