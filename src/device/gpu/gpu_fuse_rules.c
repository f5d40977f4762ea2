/* A rule for each pair of kernels that one launch can do. A group that does two
 * things knows that its own lanes have done the first; of other groups it knows
 * nothing, so what the second writes may lie over what the first reads only
 * where there is one group, or where each element lies over its own. */
#include "device/gpu/gpu_fuse_rules.h"

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
    x.each = a->each;
    x.n_slice = a->n_slice;
    x.sides = a->sides;
    x.n_slice_inverse = a->n_slice_inverse;
    x.stack_stride = a->stack_stride;
    x.stack = a->stack;
    x.bias = a->bias;
    if (a->n_out == 1)
        x.out_stride = a->out_stride;
    memcpy(x.more, a->more, sizeof x.more);
    return memcmp(&x, a, sizeof x) == 0;
}

static enum gpu_fusion matrices(const struct pairing *p)
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
                                       .first = p->first->n_group,
                                       .each = b.each,
                                       .n_slice = b.n_slice,
                                       .sides = b.sides,
                                       .n_slice_inverse = b.n_slice_inverse};
    take(p, p->first->kernel, (int64_t)p->first->n_group + p->second->n_group,
         &a);
    return FUSE_HORIZONTAL;
}

/* One of a launch's matrices, with what is added to its result. */
struct matrix {
    struct contract_bias *bias;
    uint64_t out;
    int64_t n, n_row, bytes; /* of the result [n_row, n] */
};

/* Matrix i; false: there are not so many. */
static bool matrix_of(struct contract_args *a, int i, int n_group,
                      struct matrix *m)
{
    struct contract_more *more = i > 0 ? &a->more[i - 1] : NULL;
    int first = more ? more->first : 0,
        panels = more ? more->n_panel : a->n_panel,
        slices = more ? more->n_slice : a->n_slice;
    int end = i < CONTRACT_MORE ? a->more[i].first : CONTRACT_NO_MORE;

    if (first == CONTRACT_NO_MORE || panels < 1)
        return false;
    end = end == CONTRACT_NO_MORE ? n_group : end;
    m->bias = more ? &more->bias : &a->bias;
    m->out = more ? more->out : a->out;
    m->n = more ? more->n : a->n;
    m->n_row = a->mode == CONTRACT_HEADS ? (int64_t)a->n_tok * a->n_head
                                         : (end - first) / slices;
    m->bytes = m->n_row * m->n * 4;
    return true;
}

/* The one whose result lies there. */
static bool find_matrix(struct contract_args *a, uint64_t out, int n_group,
                        struct matrix *m)
{
    for (int i = 0; i <= CONTRACT_MORE && matrix_of(a, i, n_group, m); i++)
        if (m->out == out)
            return true;
    return false;
}

/* Is the result of the last run the only one? */
static bool has_one_result(const struct contract_args *a)
{
    int top = a->top;

    for (int i = 0; i < a->n_run; i++)
        top += i + 1 < a->n_run && a->run[i].n_add < 0
                   ? 0
                   : 1 - (a->run[i].n_add < 0 ? 0 : a->run[i].n_add);
    return a->n_run > 0 && a->n_out == 1 && top == 1 && a->share > 0 &&
           (a->mode == CONTRACT_HEADS || a->mode == CONTRACT_EXPERTS);
}

/* Does the launch write nothing there? */
static bool writes_apart(struct contract_args *a, int n_group, uint64_t at,
                         int64_t bytes)
{
    struct matrix m;

    for (int i = 0; i <= CONTRACT_MORE && matrix_of(a, i, n_group, &m); i++)
        if (!apart(at, bytes, m.out, m.bytes) ||
            !apart(at, bytes, m.bias->made, m.bytes) ||
            !apart(at, bytes, m.bias->sum, m.bytes))
            return false;
    return true;
}

/* Does it read nothing there? */
static bool reads_apart(struct contract_args *a, int n_group, uint64_t at,
                        int64_t bytes)
{
    struct matrix m;

    for (int i = 0; i <= CONTRACT_MORE && matrix_of(a, i, n_group, &m); i++)
        if (!apart(at, bytes, a->x, m.n_row / a->share * a->x_step * 4) ||
            !apart(at, bytes, a->id, m.n_row * 4) ||
            !apart(at, bytes, m.bias->from,
                   (m.bias->made ? a->n_matrix : 1) * m.n * 4))
            return false;
    return true;
}

/* Of an expert's row what stands under its id: rows [n_matrix, n]. */
static enum gpu_fusion matrix_and_rows(const struct pairing *p)
{
    struct contract_args a;
    struct gather_args b;
    int n_group = p->first->n_group;
    struct matrix m;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (a.mode != CONTRACT_EXPERTS || b.id != a.id || !has_one_result(&a) ||
        b.n_row != a.n_matrix || b.n_span != 0 || b.n_item < 1 ||
        b.n_out != 1 || b.n_chunk != 0 || b.format != GATHER_F32 ||
        b.step != b.width * 4)
        return PAIR_NONE;
    for (int i = 0; i <= CONTRACT_MORE && matrix_of(&a, i, n_group, &m); i++) {
        int64_t table = b.n_row * b.width * 4;

        if (m.bias->from || m.n != b.width ||
            m.n_row != p->second->n_group / gpu_groups(b.width, 1024))
            continue;
        if (!apart(b.x, table, b.out, m.bytes) ||
            !writes_apart(&a, n_group, b.x, table) ||
            !writes_apart(&a, n_group, b.out, m.bytes) ||
            !reads_apart(&a, n_group, b.out, m.bytes))
            return PAIR_NONE;
        *m.bias = (struct contract_bias){.from = b.x, .made = b.out};
        take(p, p->first->kernel, n_group, &a);
        return FUSE_VERTICAL;
    }
    return PAIR_NONE;
}

/* A sum of floats with a row, or with as many. */
static bool is_sum_with(const struct binary_args *b, int64_t n, int64_t n_row,
                        bool row)
{
    bool flat = b->dim[0] == b->n && b->stride_x[0] == 1 && b->stride_y[0] == 1;

    if (b->op != TEXT_ADD || b->format_x != TEXT_F32 ||
        b->format_y != TEXT_F32 || b->n != n * n_row)
        return false;
    if (!row || n_row == 1)
        return flat;
    return b->dim[0] == n && b->dim[1] == n_row && b->stride_x[0] == 1 &&
           b->stride_x[1] == n && b->stride_y[0] == 1 && b->stride_y[1] == 0;
}

static enum gpu_fusion matrix_and_sum(const struct pairing *p)
{
    struct contract_args a;
    struct binary_args b;
    int n_group = p->first->n_group;
    struct matrix m;
    bool row;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (!has_one_result(&a) || !find_matrix(&a, b.x, n_group, &m) ||
        m.bias->sum)
        return PAIR_NONE;
    row = m.bias->from == 0;
    if (!is_sum_with(&b, m.n, m.n_row, row) ||
        !writes_apart(&a, n_group, b.out, m.bytes) ||
        !reads_apart(&a, n_group, b.out, m.bytes))
        return PAIR_NONE;
    if (row ? !writes_apart(&a, n_group, b.y, m.n * 4) ||
                  !apart(b.y, m.n * 4, b.out, m.bytes)
            : b.y != m.bias->made)
        return PAIR_NONE;
    m.bias->from = row ? b.y : m.bias->from;
    m.bias->sum = b.out;
    take(p, p->first->kernel, n_group, &a);
    return FUSE_VERTICAL;
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

static enum gpu_fusion sum_and_norm(const struct pairing *p)
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
    return FUSE_VERTICAL;
}

static int64_t blocks_bytes(const struct quantize_args *b)
{
    return b->n_row * (b->k / 32) * 40;
}

static enum gpu_fusion norm_and_blocks(const struct pairing *p)
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
    return FUSE_VERTICAL;
}

static enum gpu_fusion norms(const struct pairing *p)
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
    return FUSE_HORIZONTAL;
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

static enum gpu_fusion values_and_product(const struct pairing *p)
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
    return FUSE_VERTICAL;
}

/* *a, whose results `made` and `product` are its own, quantized as *b says. */
static enum gpu_fusion blocks_of(const struct pairing *p,
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
    return FUSE_VERTICAL;
}

/* Where spans leave nothing out: those lanes make what is quantized. */
static bool takes_whole_rows(const struct quantize_args *b)
{
    return b->n_span == 0 || b->whole;
}

static enum gpu_fusion values_and_blocks(const struct pairing *p)
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

static enum gpu_fusion product_and_blocks(const struct pairing *p)
{
    struct quantize_args a, b;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (a.out || !takes_whole_rows(&b))
        return PAIR_NONE;
    return blocks_of(p, &a, &b);
}

/* ---- before attention ---------------------------------------------------- */

static int64_t heads_bytes(const struct rope_args *a, int n_head)
{
    return (int64_t)a->n_tok * n_head * a->d * 4;
}

/* Do both turn alike? *b is not normed. */
static bool same_turns(const struct rope_args *a, const struct rope_args *b)
{
    struct rope_args x = *b;

    x.x = a->x;
    x.out = a->out;
    x.n_head = a->n_head;
    x.out_2 = a->out_2;
    x.x_2 = a->x_2;
    x.n_head_2 = a->n_head_2;
    x.first_2 = a->first_2;
    x.raw = a->raw;
    x.raw_2 = a->raw_2;
    x.w = a->w;
    x.w_2 = a->w_2;
    x.w_format = a->w_format;
    x.eps = a->eps;
    return b->n_head_2 == 0 && b->raw == 0 && memcmp(&x, a, sizeof x) == 0;
}

/* The heads of a norm turn, and if it is of two, the others later, or not. */
static enum gpu_fusion norm_and_rope(const struct pairing *p)
{
    struct rms_norm_args a;
    struct rope_args b;
    int64_t n_row, bytes, bytes_2;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    n_row = p->first->n_group - a.n_row;
    bytes = heads_bytes(&b, b.n_head);
    bytes_2 = n_row * a.d * 4;
    if (a.y || a.q8 || b.n_head_2 || b.raw || b.x != a.out || b.d != a.d ||
        a.n_row != (int64_t)b.n_tok * b.n_head || n_row % b.n_tok != 0 ||
        !even(b.out, a.x, bytes) || !even(b.out, a.out, bytes) ||
        !apart(b.out, bytes, a.x_2, bytes_2) ||
        !apart(b.out, bytes, a.out_2, bytes_2) ||
        !apart(b.out, bytes, a.w, a.d * 4) ||
        !apart(b.out, bytes, a.w_2, a.d * 4))
        return PAIR_NONE;
    b.raw = a.x;
    b.w = a.w;
    b.w_format = a.format;
    b.eps = a.eps;
    b.x_2 = a.out_2;
    b.raw_2 = a.x_2;
    b.w_2 = a.w_2;
    b.n_head_2 = (int32_t)(n_row / b.n_tok);
    b.first_2 = p->second->n_group;
    take(p, GPU_rope,
         p->second->n_group + b.n_tok * gpu_groups(b.n_head_2, ROPE_HEADS), &b);
    return FUSE_VERTICAL;
}

/* *a has normed what *b turns. */
static enum gpu_fusion other_heads(const struct pairing *p, struct rope_args *a,
                                   const struct rope_args *b)
{
    int64_t bytes = heads_bytes(a, a->n_head);
    int64_t bytes_2 = heads_bytes(b, b->n_head);

    if (b->x != a->x_2 || b->n_head != a->n_head_2 ||
        !apart(b->out, bytes_2, a->raw, bytes) ||
        !apart(b->out, bytes_2, a->x, bytes) ||
        !apart(b->out, bytes_2, a->out, bytes) ||
        !apart(b->out, bytes_2, a->w, a->d * 4) ||
        !apart(b->out, bytes_2, a->w_2, a->d * 4) ||
        !even(b->out, a->raw_2, bytes_2) || !even(b->out, a->x_2, bytes_2))
        return PAIR_NONE;
    a->out_2 = b->out;
    take(p, GPU_rope, p->first->n_group, a);
    return FUSE_VERTICAL;
}

static enum gpu_fusion ropes(const struct pairing *p)
{
    struct rope_args a, b;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    if (!same_turns(&a, &b))
        return PAIR_NONE;
    if (a.n_head_2 && !a.out_2)
        return other_heads(p, &a, &b);
    if (a.n_head_2)
        return PAIR_NONE;
    a.out_2 = b.out;
    a.x_2 = b.x;
    a.n_head_2 = b.n_head;
    a.first_2 = p->first->n_group;
    take(p, GPU_rope, (int64_t)p->first->n_group + p->second->n_group, &a);
    return FUSE_HORIZONTAL;
}

/* Does a cache take what *a turns? */
static bool takes_turned(const struct rope_args *a,
                         const struct cache_write_args *b)
{
    return b->d == a->d &&
           ((b->x == a->out && b->n_head == a->n_head) ||
            (a->out_2 && b->x == a->out_2 && b->n_head == a->n_head_2));
}

/* Of few tokens: of many, cache_write has neighbours in a tile side by side. */
static enum gpu_fusion turns_and_cache(const struct pairing *p)
{
    struct rope_args a;
    struct cache_write_args b;
    int64_t n_group = p->first->n_group;
    bool turned;
    int i;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    i = a.put[0].cache != 0;
    turned = takes_turned(&a, &b);
    if (a.put[i].cache || b.n_head_2 || b.n_tok != a.n_tok ||
        b.n_tok > CACHE_TOKENS ||
        (i > 0 && (b.pos != a.put_pos || b.seq != a.seq || b.pages != a.pages ||
                   b.page_stride != a.page_stride)))
        return PAIR_NONE;
    a.put[i] = (struct rope_put){.cache = b.cache,
                                 .x = b.x,
                                 .tile_bytes = b.tile_bytes,
                                 .n_head = turned ? 0 : b.n_head,
                                 .d = b.d,
                                 .format = b.format,
                                 .values = b.values,
                                 .first = p->first->n_group};
    a.put_pos = b.pos;
    a.seq = b.seq;
    a.pages = b.pages;
    a.page_stride = b.page_stride;
    if (!turned)
        n_group += b.n_tok * gpu_groups(b.n_head, ROPE_HEADS);
    take(p, GPU_rope, n_group, &a);
    return turned ? FUSE_VERTICAL_LOCAL : FUSE_HORIZONTAL;
}

static enum gpu_fusion caches(const struct pairing *p)
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
    return FUSE_HORIZONTAL;
}

/* ---- behind attention ---------------------------------------------------- */

/* Parts of whole rows, which groups can have. */
static bool are_parts(const struct attend_merge_args *a,
                      const struct quantize_args *b)
{
    return b->whole && b->k == (int64_t)a->n_head * a->e &&
           a->n_state <= PART_STATES;
}

/* Of a tree's last launch: a group has 32 columns, which are a block, or it
 * gets those of a part. */
static enum gpu_fusion merge_and_blocks(const struct pairing *p)
{
    struct attend_merge_args a;
    struct quantize_args b;
    int64_t n, bytes;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    n = p->first->n_group / a.n_column * a.e;
    bytes = p->first->n_group / a.n_column * a.n_state * (TEXT_SOFT + a.e) * 4;
    if (a.next || a.q8 || a.first != 0 || a.e % MERGE_COLUMNS != 0 || b.y ||
        b.z || b.x != a.out || b.n_row * b.k != n ||
        (b.n_span > 0 && !are_parts(&a, &b)) ||
        !apart(b.out, blocks_bytes(&b), a.out, n * 4) ||
        !apart(b.out, blocks_bytes(&b), a.part, bytes))
        return PAIR_NONE;
    a.q8 = b.out;
    a.span = b.span;
    a.n_part = b.n_part;
    take(p, GPU_attend_merge,
         b.n_span > 0 ? b.n_row * b.n_part : p->first->n_group, &a);
    return FUSE_VERTICAL;
}

/* ---- routers ------------------------------------------------------------- */

static enum gpu_fusion choice_and_weights(const struct pairing *p)
{
    struct router_topk_args a;
    struct router_weights_args b;
    int64_t rows = p->first->n_group, bytes;

    memcpy(&a, p->a, sizeof a);
    memcpy(&b, p->b, sizeof b);
    bytes = rows * b.n_used * 4;
    if (a.weights || b.x != a.x || b.id != a.out || b.e != a.e ||
        b.n_used != a.n_used || b.gating != a.gating ||
        !apart(b.out, bytes, a.x, rows * a.e * 4) ||
        !apart(b.out, bytes, a.out, bytes) ||
        !apart(b.out, bytes, a.scratch, rows * 2 * a.e * 4))
        return PAIR_NONE;
    a.weights = b.out;
    a.normalise = b.normalise;
    a.weight = b.scale;
    take(p, GPU_router_topk, rows, &a);
    return FUSE_VERTICAL;
}

/* ---- rules --------------------------------------------------------------- */

static const struct {
    enum gpu_kernel first, second;
    enum gpu_fusion (*rule)(const struct pairing *p);
} rules[] = {
    {GPU_binary, GPU_rms_norm, sum_and_norm},
    {GPU_rms_norm, GPU_quantize, norm_and_blocks},
    {GPU_rms_norm, GPU_rms_norm, norms},
    {GPU_binary, GPU_binary, values_and_product},
    {GPU_binary, GPU_quantize, values_and_blocks},
    {GPU_quantize, GPU_quantize, product_and_blocks},
    {GPU_rms_norm, GPU_rope, norm_and_rope},
    {GPU_rope, GPU_rope, ropes},
    {GPU_rope, GPU_cache_write, turns_and_cache},
    {GPU_cache_write, GPU_cache_write, caches},
    {GPU_attend_merge, GPU_quantize, merge_and_blocks},
    {GPU_router_topk, GPU_router_weights, choice_and_weights},
};

enum gpu_fusion gpu_pair(const struct launch_list *l, int a, int b,
                         struct gpu_pair *out)
{
    struct pairing p = {.first = &l->launch[a],
                        .second = &l->launch[b],
                        .a = l->bytes + l->launch[a].args,
                        .b = l->bytes + l->launch[b].args,
                        .out = out};
    enum gpu_kernel first = p.first->kernel, second = p.second->kernel;

    if (first >= GPU_matvec_f32 && first <= GPU_matvec_tq)
        return second == first        ? matrices(&p)
               : second == GPU_gather ? matrix_and_rows(&p)
               : second == GPU_binary ? matrix_and_sum(&p)
                                      : PAIR_NONE;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].first == first && rules[i].second == second)
            return rules[i].rule(&p);
    return PAIR_NONE;
}
