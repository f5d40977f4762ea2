/* Ops that only move elements: contiguous, permute, slice, concat.
 *
 * An element has four bytes (F32, I32) or two (F16, BF16). Reshape has no
 * kernel, because its result is the operand's memory. Axes, starts and sizes
 * are those of this device's part of a tensor. */
#include "device/cpu/cpu_ops.h"

#include <string.h>

static size_t element_bytes(const struct cpu_tensor *t)
{
    return t->format == PL_F16 || t->format == PL_BF16 ? 2 : 4;
}

/* Returns the product of the sizes of dimensions from .. to - 1. */
static int64_t product(const struct cpu_tensor *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

/* Copies an F32 operand to a larger result: repeats its values along the
 * dimensions that it lacks or that have size 1 in it. */
static void broadcast_run(const struct cpu_call *c)
{
    const struct cpu_tensor *x = &c->in[0];
    int64_t n = cpu_last(&c->out), stride[GRAPH_MAX_DIM] = {0}, step = 1;
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);

    for (int i = 1; i <= x->n_dim; i++) {
        if (x->dim[x->n_dim - i] > 1)
            stride[c->out.n_dim - i] = step;
        step *= x->dim[x->n_dim - i];
    }
    for (int64_t r = p.lo; r < p.hi; r++) {
        float *out = (float *)c->out.data + r * n;
        const float *in = x->data;
        int64_t rest = r;

        for (int i = c->out.n_dim - 2; i >= 0; i--) {
            in += rest % c->out.dim[i] * stride[i];
            rest /= c->out.dim[i];
        }
        for (int64_t j = 0; j < n; j++)
            out[j] = in[j * stride[c->out.n_dim - 1]];
    }
}

/* Copies the operand to contiguous memory. If it has fewer values than the
 * result, it is F32 and is broadcast. Only the compiler of programs (src/lower)
 * generates such an instruction; graphs never have it. */
static void contiguous_run(const struct cpu_call *c)
{
    struct cpu_part p = cpu_part(cpu_count(&c->out), 64, c->ith, c->nth);
    size_t size = element_bytes(&c->out);

    if (cpu_count(&c->in[0]) != cpu_count(&c->out)) {
        broadcast_run(c);
        return;
    }
    if (c->out.data != c->in[0].data && p.lo < p.hi)
        memcpy((char *)c->out.data + (size_t)p.lo * size,
               (const char *)c->in[0].data + (size_t)p.lo * size,
               (size_t)(p.hi - p.lo) * size);
}

/* Permutes the dimensions of a tensor. The elements of a row of the result are
 * equally spaced in the operand. */
static void permute_run(const struct cpu_call *c)
{
    const int perm[GRAPH_MAX_DIM] = {c->attr->perm0, c->attr->perm1,
                                     c->attr->perm2, c->attr->perm3};
    size_t size = element_bytes(&c->out);
    int nd = c->out.n_dim;
    int64_t n = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    /* distance in the operand, in elements, between neighbours along dimension
     * i of the result */
    int64_t stride[GRAPH_MAX_DIM];

    for (int i = 0; i < nd; i++)
        stride[i] = product(&c->in[0], perm[i] + 1, nd);
    for (int64_t r = p.lo; r < p.hi; r++) {
        int64_t rest = r;
        int64_t from = 0;
        char *out = (char *)c->out.data + (size_t)(r * n) * size;
        const char *in;

        for (int i = nd - 2; i >= 0; i--) {
            from += rest % c->out.dim[i] * stride[i];
            rest /= c->out.dim[i];
        }
        in = (const char *)c->in[0].data + (size_t)from * size;
        if (stride[nd - 1] == 1) {
            memcpy(out, in, (size_t)n * size);
        } else if (size == 4) {
            for (int64_t i = 0; i < n; i++)
                ((uint32_t *)out)[i] =
                    ((const uint32_t *)in)[i * stride[nd - 1]];
        } else {
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)out)[i] =
                    ((const uint16_t *)in)[i * stride[nd - 1]];
        }
    }
}

/* Copies n_row rows of `run` bytes each. Rows begin from_step bytes apart in
 * the source and to_step bytes apart in the destination. */
static void copy_rows(const struct cpu_call *c, char *to, size_t to_step,
                      const char *from, size_t from_step, size_t run,
                      int64_t n_row)
{
    struct cpu_part p = cpu_part(n_row, 1, c->ith, c->nth);

    /* With a single row, threads divide its bytes instead of rows. */
    if (n_row == 1) {
        p = cpu_part((int64_t)run, 64, c->ith, c->nth);
        to += p.lo;
        from += p.lo;
        run = (size_t)(p.hi - p.lo);
        p = (struct cpu_part){0, 1};
    }
    for (int64_t r = p.lo; run > 0 && r < p.hi; r++)
        memcpy(to + (size_t)r * to_step, from + (size_t)r * from_step, run);
}

static void slice_run(const struct cpu_call *c)
{
    const struct cpu_tensor *in = &c->in[0];
    int axis = c->attr->axis;
    size_t inner = (size_t)product(in, axis + 1, in->n_dim) * element_bytes(in);

    copy_rows(c, c->out.data, (size_t)c->out.dim[axis] * inner,
              (const char *)in->data + (size_t)c->attr->start * inner,
              (size_t)in->dim[axis] * inner, (size_t)c->out.dim[axis] * inner,
              product(in, 0, axis));
}

static void concat_run(const struct cpu_call *c)
{
    int axis = c->attr->axis;
    size_t inner = (size_t)product(&c->out, axis + 1, c->out.n_dim) *
                   element_bytes(&c->out);
    size_t step = (size_t)c->out.dim[axis] * inner;
    char *to = c->out.data;

    for (int i = 0; i < c->n_in; i++) {
        size_t run = (size_t)c->in[i].dim[axis] * inner;

        if (run > 0)
            copy_rows(c, to, step, c->in[i].data, run, run,
                      product(&c->out, 0, axis));
        to += run;
    }
}

void cpu_move_init(struct cpu_kernels *k)
{
    k->kernel[KERNEL_contiguous].run = contiguous_run;
    k->kernel[KERNEL_permute].run = permute_run;
    k->kernel[KERNEL_slice].run = slice_run;
    k->kernel[KERNEL_concat].run = concat_run;
    k->kernel[KERNEL_custom].run = cpu_custom_run;
}
