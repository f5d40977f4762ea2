/* Creates the launches of ops that only move elements. */
#include "device/gpu/gpu_launch.h"

static int32_t element_bytes(const struct gpu_tensor *t)
{
    return t->format == PL_F16 || t->format == PL_BF16 ? 2 : 4;
}

/* Returns the product of the dimensions `from` to to - 1. */
static int64_t product(const struct gpu_tensor *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

/* ---- copies -------------------------------------------------------------- */

/* Returns the largest access size, 8, 4, 2 or 1 bytes, that divides all
 * addresses and sizes of a copy. */
static int32_t unit_of(const struct text_piece *p)
{
    uint64_t all = p->dst | p->src | (uint64_t)p->bytes | (uint64_t)p->dst_s0 |
                   (uint64_t)p->src_s0 | (uint64_t)p->dst_s1 |
                   (uint64_t)p->src_s1;
    int32_t unit = 8;

    while (all % (uint64_t)unit != 0)
        unit /= 2;
    return unit;
}

/* Copies collected for one launch, at most TEXT_PIECES. */
struct copies {
    struct copy_pieces_args a;
    int64_t n_group;
};

static void copies_flush(struct launch_list *l, struct copies *x)
{
    gpu_list_add(l, GPU_copy_pieces, x->n_group, &x->a);
    *x = (struct copies){0};
}

/* Adds a copy of n_row rows of `run` bytes. Rows begin dst_step bytes apart in
 * the destination and src_step bytes apart in the source. */
static void copies_rows(struct launch_list *l, struct copies *x, uint64_t dst,
                        int64_t dst_step, uint64_t src, int64_t src_step,
                        int64_t run, int64_t n_row)
{
    struct text_piece *p;

    if (run <= 0 || n_row <= 0)
        return;
    if (dst_step == run && src_step == run) {
        run *= n_row;
        n_row = 1;
    }
    if (x->a.n == TEXT_PIECES)
        copies_flush(l, x);
    p = &x->a.piece[x->a.n++];
    *p = (struct text_piece){.dst = dst,
                             .src = src,
                             .bytes = run,
                             .n0 = 1,
                             .n1 = n_row,
                             .dst_s1 = dst_step,
                             .src_s1 = src_step,
                             .first = (int32_t)x->n_group};
    p->unit = unit_of(p);
    x->n_group += gpu_turns(run / p->unit * n_row);
}

void gpu_launch_slice(struct launch_list *l, const struct gpu_call *c)
{
    const struct gpu_tensor *in = &c->in[0];
    struct copies x = {0};
    int axis = c->attr->axis;
    int64_t inner = product(in, axis + 1, in->n_dim) * element_bytes(in);
    int64_t run = c->out.dim[axis] * inner;

    copies_rows(l, &x, c->out.at, run,
                in->at + (uint64_t)(c->attr->start * inner),
                in->dim[axis] * inner, run, product(in, 0, axis));
    copies_flush(l, &x);
}

void gpu_launch_concat(struct launch_list *l, const struct gpu_call *c)
{
    struct copies x = {0};
    int axis = c->attr->axis;
    int64_t inner =
        product(&c->out, axis + 1, c->out.n_dim) * element_bytes(&c->out);
    uint64_t to = c->out.at;

    for (int i = 0; i < c->n_in; i++) {
        int64_t run = c->in[i].dim[axis] * inner;

        copies_rows(l, &x, to, c->out.dim[axis] * inner, c->in[i].at, run, run,
                    product(&c->out, 0, axis));
        to += (uint64_t)run;
    }
    copies_flush(l, &x);
}

/* ---- permutations -------------------------------------------------------- */

static void permute(struct launch_list *l, const struct gpu_call *c,
                    const int64_t *stride)
{
    struct permute_args a = {.out = c->out.at,
                             .x = c->in[0].at,
                             .n = gpu_count(&c->out),
                             .size = element_bytes(&c->out)};

    for (int i = 0; i < TEXT_DIM; i++) {
        int at = c->out.n_dim - 1 - i;

        a.dim[i] = at >= 0 ? c->out.dim[at] : 1;
        a.stride[i] = at >= 0 ? stride[at] : 0;
    }
    gpu_list_add(l, GPU_permute, gpu_turns(a.n), &a);
}

/* Adds the launch of a tiled transpose. Dimension `inner` of the result is the
 * last dimension of the operand; stride[] are the operand's strides for the
 * result's dimensions. */
static void transpose(struct launch_list *l, const struct gpu_call *c,
                      const int64_t *stride, int inner)
{
    int last = c->out.n_dim - 1, n = 2;
    int order[TEXT_DIM] = {last, inner};
    struct transpose_args a = {
        .out = c->out.at, .x = c->in[0].at, .size = element_bytes(&c->out)};

    for (int i = 0; i < last; i++)
        if (i != inner)
            order[n++] = i;
    for (int i = 0; i < TEXT_DIM; i++) {
        a.n[i] = i < n ? c->out.dim[order[i]] : 1;
        a.stride[i] = i < n ? stride[order[i]] : 0;
        a.out_stride[i] = i < n ? product(&c->out, order[i] + 1, last + 1) : 0;
    }
    gpu_list_add(
        l, GPU_transpose,
        gpu_groups(a.n[0], 32) * gpu_groups(a.n[1], 32) * a.n[2] * a.n[3], &a);
}

void gpu_launch_permute(struct launch_list *l, const struct gpu_call *c)
{
    const int perm[GRAPH_MAX_DIM] = {c->attr->perm0, c->attr->perm1,
                                     c->attr->perm2, c->attr->perm3};
    int n = c->out.n_dim, inner = n - 1;
    int64_t stride[GRAPH_MAX_DIM] = {0}; /* strides in the operand, by dimension
                                            of the result */

    for (int i = 0; i < n; i++) {
        stride[i] = product(&c->in[0], perm[i] + 1, n);
        if (perm[i] == n - 1)
            inner = i;
    }
    if (gpu_count(&c->out) == 0)
        return;
    if (inner != n - 1 && c->out.dim[inner] > 1 && gpu_last(&c->out) > 1)
        transpose(l, c, stride, inner);
    else
        permute(l, c, stride);
}

/* Adds the launch of a broadcast: repeats the operand along dimensions that it
 * lacks or whose size is 1. */
static void broadcast(struct launch_list *l, const struct gpu_call *c)
{
    const struct gpu_tensor *x = &c->in[0];
    int64_t stride[GRAPH_MAX_DIM] = {0}, step = 1;

    for (int i = 1; i <= x->n_dim; i++) {
        if (x->dim[x->n_dim - i] > 1)
            stride[c->out.n_dim - i] = step;
        step *= x->dim[x->n_dim - i];
    }
    permute(l, c, stride);
}

void gpu_launch_contiguous(struct launch_list *l, const struct gpu_call *c)
{
    int64_t bytes = gpu_count(&c->out) * element_bytes(&c->out);
    struct copies x = {0};

    if (gpu_count(&c->in[0]) != gpu_count(&c->out)) {
        broadcast(l, c);
        return;
    }
    if (c->out.at != c->in[0].at)
        copies_rows(l, &x, c->out.at, bytes, c->in[0].at, bytes, bytes, 1);
    copies_flush(l, &x);
}
