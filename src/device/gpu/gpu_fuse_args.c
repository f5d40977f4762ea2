/* Implementation of gpu_fuse_args.h. The plan (gpu_fuse.c) has checked which
 * results the instructions read, and that no other instruction conflicts. The
 * functions here check what the kernels can do. */
#include "device/gpu/gpu_fuse_args.h"

/* Returns the number of work groups of both launches. */
static int64_t groups(const struct gpu_fold *f)
{
    return f->first.n_group + f->second.n_group;
}

/* ---- norms --------------------------------------------------------------- */

int64_t gpu_fold_sum_norm(struct gpu_fold *f)
{
    struct rms_norm_args norm = f->second.a.norm;

    norm.x = f->first.a.binary.x;
    norm.y = f->first.a.binary.y;
    norm.sum = f->first.a.binary.out;
    f->first.a.norm = norm;
    return f->second.n_group;
}

int64_t gpu_fold_norms(struct gpu_fold *f)
{
    struct rms_norm_args *a = &f->first.a.norm;
    const struct rms_norm_args *b = &f->second.a.norm;

    if (a->format != b->format)
        return 0;
    a->out_2 = b->out;
    a->x_2 = b->x;
    a->w_2 = b->w;
    return groups(f);
}

/* Lets the norm quantize its result, too. Returns false if a row is too
 * long. */
static bool set_blocks(struct rms_norm_args *a, const struct quantize_args *b)
{
    enum { LONGEST = 16384 }; /* values that one work group should quantize */

    if (a->d > LONGEST)
        return false;
    a->q8 = b->out;
    a->span = b->span;
    a->n_span = b->n_span;
    a->n_part = b->n_part;
    return true;
}

int64_t gpu_fold_norm_blocks(struct gpu_fold *f)
{
    return set_blocks(&f->first.a.norm, &f->second.a.blocks) ? f->first.n_group
                                                             : 0;
}

/* ---- values that are quantized ------------------------------------------- */

/* Returns the arguments by which the kernel quantize computes a binary kernel
 * in rows of k values. */
static struct quantize_args in_rows(const struct binary_args *a, int64_t k)
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

int64_t gpu_fold_product(struct gpu_fold *f)
{
    const struct binary_args *b = &f->second.a.binary;
    struct quantize_args a = in_rows(&f->first.a.binary, b->dim[0]);

    a.z = b->y;
    a.product = b->out;
    f->first.a.blocks = a;
    return gpu_groups(a.n_row * (a.k / 32), 32);
}

int64_t gpu_fold_blocks(struct gpu_fold *f)
{
    const struct quantize_args *b = &f->second.a.blocks;
    struct quantize_args a = f->first.kernel == GPU_binary
                                 ? in_rows(&f->first.a.binary, b->k)
                                 : f->first.a.blocks;

    /* one factor for all rows, or rows that are quantized in part */
    if (a.k != b->k || (b->n_span > 0 && !b->whole))
        return 0;
    a.out = b->out;
    a.span = b->span;
    a.n_span = b->n_span;
    a.n_part = b->n_part;
    f->first.a.blocks = a;
    return f->second.n_group;
}

/* The work groups that merge states as the last ones also quantize. Parts of
 * rows must be among their heads' columns. */
static int64_t quantize_last(struct gpu_fold *f)
{
    struct attend_args *a = &f->first.a.attend;
    const struct quantize_args *b = &f->second.a.blocks;

    if (a->e % 32 != 0 ||
        (b->n_span > 0 &&
         (b->n_span > 1 || !b->whole || b->k != (int64_t)a->n_head * a->e ||
          b->n_part != b->k / MERGE_PART || a->heads * a->e % MERGE_PART != 0 ||
          a->per_kv * a->e % MERGE_PART != 0)))
        return 0;
    a->tail.q8 = b->out;
    a->tail.by_part = b->n_span > 0;
    return f->first.n_group;
}

/* The last launch of attention also quantizes. Parts of rows are quantized by
 * groups that merge whole rows, which must have few states. */
int64_t gpu_fold_attend_blocks(struct gpu_fold *f)
{
    struct attend_merge_args *a = &f->first.a.merge;
    const struct quantize_args *b = &f->second.a.blocks;

    if (f->first.kernel != GPU_attend_merge)
        return f->first.a.attend.tail.count ? quantize_last(f) : 0;
    if (a->first != 0 || a->e % MERGE_COLUMNS != 0 ||
        (b->n_span > 0 && (!b->whole || a->n_state > PART_STATES ||
                           b->k != (int64_t)a->n_head * a->e)))
        return 0;
    a->q8 = b->out;
    a->span = b->span;
    a->n_part = b->n_part;
    return b->n_span > 0 ? b->n_row * b->n_part : f->first.n_group;
}

/* ---- RoPE and cache writes ----------------------------------------------- */

static int64_t heads_groups(int64_t n_tok, int32_t n_head)
{
    return n_tok * gpu_groups(n_head, ROPE_HEADS);
}

/* If the launch has a second norm, its heads are normalized by groups that
 * rotate nothing yet. */
int64_t gpu_fold_norm_rope(struct gpu_fold *f)
{
    const struct rms_norm_args norm = f->first.a.norm;
    struct rope_args *a = &f->first.a.rope;
    int64_t rows_2 = f->first.n_group - norm.n_row;

    if (rows_2 % f->second.a.rope.n_tok != 0)
        return 0;
    *a = f->second.a.rope;
    a->raw = norm.x;
    a->w = norm.w;
    a->w_format = norm.format;
    a->eps = norm.eps;
    a->x_2 = norm.out_2;
    a->raw_2 = norm.x_2;
    a->w_2 = norm.w_2;
    a->n_head_2 = (int32_t)(rows_2 / a->n_tok);
    a->first_2 = (int32_t)f->second.n_group;
    return a->first_2 + heads_groups(a->n_tok, a->n_head_2);
}

int64_t gpu_fold_norm_rope_2(struct gpu_fold *f)
{
    if (f->second.a.rope.x != f->first.a.rope.x_2)
        return 0;
    f->first.a.rope.out_2 = f->second.a.rope.out;
    return f->first.n_group;
}

int64_t gpu_fold_ropes(struct gpu_fold *f)
{
    struct rope_args *a = &f->first.a.rope;
    const struct rope_args *b = &f->second.a.rope;

    a->out_2 = b->out;
    a->x_2 = b->x;
    a->n_head_2 = b->n_head;
    a->first_2 = (int32_t)f->first.n_group;
    return groups(f);
}

static int64_t two_writes(struct gpu_fold *f)
{
    struct cache_write_args *a = &f->first.a.write;
    const struct cache_write_args *b = &f->second.a.write;

    a->cache_2 = b->cache;
    a->x_2 = b->x;
    a->tile_bytes_2 = b->tile_bytes;
    a->n_head_2 = b->n_head;
    a->d_2 = b->d;
    a->format_2 = b->format;
    a->values_2 = b->values;
    a->first_2 = (int32_t)f->first.n_group;
    return groups(f);
}

/* Few tokens are written by the launch that rotates. If there are many, the
 * kernel cache_write writes neighbours in a tile together. */
int64_t gpu_fold_writes(struct gpu_fold *f)
{
    struct rope_args *a = &f->first.a.rope;
    const struct cache_write_args *b = &f->second.a.write;
    bool rotated;

    if (f->first.kernel == GPU_cache_write)
        return two_writes(f);
    rotated = b->x == a->out || b->x == a->out_2;
    if (b->n_tok > CACHE_TOKENS || b->n_tok != a->n_tok ||
        (rotated && b->d != a->d))
        return 0;
    a->put[a->put[0].cache != 0] =
        (struct rope_put){.cache = b->cache,
                          .x = b->x,
                          .tile_bytes = b->tile_bytes,
                          .n_head = rotated ? 0 : b->n_head,
                          .d = b->d,
                          .format = b->format,
                          .values = b->values,
                          .first = (int32_t)f->first.n_group};
    a->put_pos = b->pos;
    a->seq = b->seq;
    a->pages = b->pages;
    a->page_stride = b->page_stride;
    return f->first.n_group + (rotated ? 0 : heads_groups(b->n_tok, b->n_head));
}

/* ---- contractions -------------------------------------------------------- */

/* Only the kernels for few rows take further matrices and biases. */
static bool is_skinny(enum gpu_kernel k)
{
    return k >= GPU_matvec_f32 && k <= GPU_matvec_tq;
}

int64_t gpu_fold_matrices(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;
    const struct contract_args *b = &f->second.a.matrix;
    int n = 0;

    while (n < CONTRACT_MORE && a->more[n].first != CONTRACT_NO_MORE)
        n++;
    if (n == CONTRACT_MORE || !is_skinny(f->first.kernel) ||
        f->first.kernel != f->second.kernel)
        return 0;
    a->more[n] = (struct contract_more){.w = b->w,
                                        .out = b->out,
                                        .matrix_bytes = b->matrix_bytes,
                                        .n = b->n,
                                        .n_panel = b->n_panel,
                                        .first = (int32_t)f->first.n_group,
                                        .each = b->each,
                                        .n_slice = b->n_slice,
                                        .sides = b->sides,
                                        .n_slice_inverse = b->n_slice_inverse};
    return groups(f);
}

/* Returns the bias of the matrix whose result is at f->result, or NULL. */
static struct contract_bias *bias_of(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;

    if (!is_skinny(f->first.kernel))
        return NULL;
    if (a->out == f->result)
        return &a->bias;
    for (int i = 0; i < CONTRACT_MORE; i++)
        if (a->more[i].first != CONTRACT_NO_MORE && a->more[i].out == f->result)
            return &a->more[i].bias;
    return NULL;
}

int64_t gpu_fold_matrix_rows(struct gpu_fold *f)
{
    struct contract_bias *bias = bias_of(f);
    const struct gather_args *b = &f->second.a.rows;

    if (!bias || bias->from)
        return 0;
    *bias = (struct contract_bias){.from = b->x, .made = b->out};
    return f->first.n_group;
}

int64_t gpu_fold_matrix_sum(struct gpu_fold *f)
{
    struct contract_bias *bias = bias_of(f);
    const struct binary_args *b = &f->second.a.binary;

    if (!bias || bias->from ||
        (b->dim[0] == b->n && b->n > f->first.a.matrix.n))
        return 0;
    *bias = (struct contract_bias){.from = b->y, .sum = b->out};
    return f->first.n_group;
}

/* Returns the address of a matrix's result with its bias; 0 if the launch only
 * looks the bias up. */
static uint64_t biased(uint64_t out, const struct contract_bias *b)
{
    return b->from ? b->sum : out;
}

/* Adds a value as large as the result, of a launch with one matrix. */
int64_t gpu_fold_residual(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;
    const struct binary_args *b = &f->second.a.binary;
    uint64_t result = biased(a->out, &a->bias);

    if (!is_skinny(f->first.kernel) || a->n_head != 1 || result == 0 ||
        a->more[0].first != CONTRACT_NO_MORE || b->dim[0] != b->n ||
        result != f->result)
        return 0;
    a->tail.y = b->x == result ? b->y : b->x;
    a->tail.sum = b->out;
    return f->first.n_group;
}

/* The last work group of all rows writes when no other reads any more. */
static void last_of_all(struct gpu_fold *f)
{
    if (f->first.n_group == f->first.a.matrix.n_slice)
        f->alone = false;
}

int64_t gpu_fold_last_norm(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;
    const struct rms_norm_args *b = &f->second.a.norm;

    if (!f->count || b->x != a->tail.sum || b->y || b->d != a->n ||
        a->mode == CONTRACT_EXPERTS || a->n_slice == 0 ||
        f->first.n_group > (int64_t)a->n_slice * TAIL_COUNTERS)
        return 0;
    a->tail.kind = TAIL_NORM;
    a->tail.last.norm = *b;
    a->tail.count = f->count;
    last_of_all(f);
    return f->first.n_group;
}

int64_t gpu_fold_last_blocks(struct gpu_fold *f)
{
    struct rms_norm_args *a = &f->first.a.matrix.tail.last.norm;

    last_of_all(f);
    return set_blocks(a, &f->second.a.blocks) ? f->first.n_group : 0;
}

/* Computes x op y of the results of two matrices. */
int64_t gpu_fold_last_values(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;
    const struct contract_more *m = &a->more[0];
    const struct binary_args *b = &f->second.a.binary;
    int64_t n_unit = gpu_groups(a->n, TAIL_COLUMNS);
    uint64_t x = biased(a->out, &a->bias), y = biased(m->out, &m->bias);

    if (!f->count || !is_skinny(f->first.kernel) || a->n_head != 1 ||
        m->first == CONTRACT_NO_MORE || a->more[1].first != CONTRACT_NO_MORE ||
        a->n != m->n || x == 0 || y == 0 || b->dim[0] != b->n ||
        !((b->x == x && b->y == y) || (b->x == y && b->y == x)) ||
        a->n % 32 != 0 || a->n_slice == 0 ||
        m->first / a->n_slice * n_unit > TAIL_COUNTERS)
        return 0;
    a->tail.kind = TAIL_VALUES;
    a->tail.count = f->count;
    a->tail.last.values = in_rows(b, a->n);
    return f->first.n_group;
}

int64_t gpu_fold_last_product(struct gpu_fold *f)
{
    struct quantize_args *a = &f->first.a.matrix.tail.last.values;
    const struct binary_args *b = &f->second.a.binary;

    if (b->x != a->made || b->dim[0] != a->k)
        return 0;
    a->z = b->y;
    a->product = b->out;
    return f->first.n_group;
}

/* A part of a row that is quantized together must be one unit of columns. */
int64_t gpu_fold_last_parts(struct gpu_fold *f)
{
    struct quantize_args *a = &f->first.a.matrix.tail.last.values;
    const struct quantize_args *b = &f->second.a.blocks;

    if (b->x != (a->z ? a->product : a->made) || a->k != b->k ||
        b->n_span > 1 ||
        (b->n_span == 1 && (!b->whole || a->k % TAIL_COLUMNS != 0 ||
                            b->n_part != a->k / TAIL_COLUMNS)))
        return 0;
    a->out = b->out;
    a->n_span = b->n_span;
    return f->first.n_group;
}

/* Chooses experts by the result of a router of floats. */
int64_t gpu_fold_last_choice(struct gpu_fold *f)
{
    struct contract_args *a = &f->first.a.matrix;
    const struct router_topk_args *b = &f->second.a.choice;

    if (!f->count || f->first.kernel < GPU_matvec_f32 ||
        f->first.kernel > GPU_matvec_bf16 || a->mode != CONTRACT_HEADS ||
        a->n_head != 1 || a->more[0].first != CONTRACT_NO_MORE ||
        a->n != b->e || b->x != biased(a->out, &a->bias) || a->n_slice == 0 ||
        f->first.n_group > (int64_t)a->n_slice * TAIL_COUNTERS)
        return 0;
    a->tail.kind = TAIL_CHOICE;
    a->tail.count = f->count;
    a->tail.last.choice = *b;
    return f->first.n_group;
}

int64_t gpu_fold_rows_sum(struct gpu_fold *f)
{
    struct contract_bias *bias = bias_of(f);
    const struct binary_args *b = &f->second.a.binary;

    if (!bias || bias->made != b->y || bias->sum)
        return 0;
    bias->sum = b->out;
    return f->first.n_group;
}

/* ---- routers ------------------------------------------------------------- */

static bool set_weights(struct router_topk_args *a,
                        const struct router_weights_args *b)
{
    if (a->gating != b->gating)
        return false;
    a->weights = b->out;
    a->normalise = b->normalise;
    a->weight = b->scale;
    return true;
}

int64_t gpu_fold_weights(struct gpu_fold *f)
{
    return set_weights(&f->first.a.choice, &f->second.a.weights)
               ? f->first.n_group
               : 0;
}

int64_t gpu_fold_last_weights(struct gpu_fold *f)
{
    return set_weights(&f->first.a.matrix.tail.last.choice,
                       &f->second.a.weights)
               ? f->first.n_group
               : 0;
}
