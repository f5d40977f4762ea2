/* Implements pl_tensor_get_view and pl_tensor_set_view: access to a strided
 * view of a tensor on devices.
 *
 * The rows that the view touches are copied to a buffer, the window, and
 * elements are copied from or to the window. The window is read and written as
 * a byte range of the tensor, so this code does not depend on layouts, packings
 * or pages. For a view larger than the window, such as a transposed large
 * matrix, rows may be read several times. This costs time but no further
 * memory. */
#include "exec/exec.h"

#include "base/err.h"
#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 16 << 20 };

struct view {
    pl_exec *x;
    pl_tensor t;
    const struct graph_node *n;
    int64_t row;      /* number of elements in a row; 1 if the tensor is read or
                         written element by element */
    size_t row_bytes; /* size in bytes of a row in the tensor's own format */
    size_t size;      /* size in bytes of an element in the caller's buffer */
    bool put;
    int64_t first_row, last_row; /* first and last row of the tensor that the
                                    view touches */
    /* first row in the window, number of rows in it, and its capacity in
     * rows */
    int64_t have, n_have, cap;
    unsigned char *window; /* owned: buffer with some adjacent rows of the
                              tensor */
    bool dirty;
    float *decoded;      /* owned: one row converted to floats, if the tensor's
                            format is quantized */
    int64_t decoded_row; /* index in the tensor of the row in `decoded`, -1 if
                            there is none */
    pl_err *err;
};

static pl_status set(const struct view *v, const void *data, size_t offset,
                     size_t bytes)
{
    return exec_set_input(v->x, 0, v->t, data, offset, bytes, v->err);
}

static pl_status get(const struct view *v, void *data, size_t offset,
                     size_t bytes)
{
    return exec_get_output(v->x, v->x->last_micro, v->t, data, offset, bytes,
                           v->err);
}

static pl_status store(struct view *v)
{
    if (!v->dirty)
        return PL_OK;
    v->dirty = false;
    return set(v, v->window, (size_t)v->have * v->row_bytes,
               (size_t)v->n_have * v->row_bytes);
}

/* Makes the window, a buffer of adjacent rows, contain row `row` of the tensor.
 * First writes the window's rows back to the tensor if they were changed. */
static pl_status load(struct view *v, int64_t row)
{
    if (row >= v->have && row < v->have + v->n_have)
        return PL_OK;
    PL_TRY(store(v));
    v->have = row - (row - v->first_row) % v->cap;
    v->n_have = v->last_row - v->have + 1;
    if (v->n_have > v->cap)
        v->n_have = v->cap;
    return get(v, v->window, (size_t)v->have * v->row_bytes,
               (size_t)v->n_have * v->row_bytes);
}

/* Copies n adjacent elements of one row of the tensor, from element index `at`,
 * to or from the caller's `data`. */
static pl_status piece(struct view *v, int64_t at, int64_t n,
                       unsigned char *data)
{
    int64_t row = at / v->row, in_row = at % v->row;
    unsigned char *p;

    PL_TRY(load(v, row));
    p = v->window + (size_t)(row - v->have) * v->row_bytes;
    if (v->decoded) {
        if (v->decoded_row != row)
            format_info(v->n->format)->decode(v->decoded, p, v->row);
        v->decoded_row = row;
        p = (unsigned char *)v->decoded;
    }
    p += (size_t)in_row * v->size;
    if (v->put)
        memcpy(p, data, (size_t)n * v->size);
    else
        memcpy(data, p, (size_t)n * v->size);
    v->dirty = v->put;
    return PL_OK;
}

/* Copies the view's elements along its innermost dimension: n elements, which
 * are `stride` elements apart in the tensor, from element index `at`. */
static pl_status line(struct view *v, int64_t at, int64_t n, int64_t stride,
                      unsigned char *data)
{
    while (n > 0) {
        int64_t run = 1;

        if (stride == 1) {
            run = v->row == 1 ? n : v->row - at % v->row;
            run = run < n ? run : n;
        }
        /* An input has no rows on devices. Its elements are written directly,
         * without the window. */
        if (v->row == 1 && v->put)
            PL_TRY(set(v, data, (size_t)at * v->size, (size_t)run * v->size));
        else
            for (int64_t i = 0; i < run; i += v->row == 1 ? 1 : run)
                PL_TRY(piece(v, at + i, v->row == 1 ? 1 : run,
                             data + (size_t)i * v->size));
        at += run * stride;
        n -= run;
        data += (size_t)run * v->size;
    }
    return PL_OK;
}

/* Copies all elements of the view, line by line along its innermost dimension.
 * i[] are the indices of the other dimensions. */
static pl_status lines(struct view *v, const pl_view *w, unsigned char *data)
{
    int last = w->n_dim - 1;
    int64_t i[4] = {0}, at = w->start;
    int d;

    do {
        PL_TRY(line(v, at, w->dim[last], w->stride[last], data));
        data += (size_t)w->dim[last] * v->size;
        for (d = last - 1; d >= 0; d--) {
            at += w->stride[d];
            if (++i[d] < w->dim[d])
                break;
            at -= w->stride[d] * w->dim[d];
            i[d] = 0;
        }
    } while (d >= 0);
    return store(v);
}

static pl_status bad(pl_err *err, const struct graph_node *n, const char *what)
{
    return err_set(err, PL_BAD_ARGUMENT, "%s: %s", n->name, what);
}

/* Sets *lo and *hi to the least and the greatest element index that the view
 * touches. Sets *empty to true if the view has no elements. */
static pl_status bounds(const pl_view *w, const struct graph_node *n,
                        int64_t *lo, int64_t *hi, bool *empty, pl_err *err)
{
    int64_t count = 8; /* upper bound of the size in bytes of all elements; one
                          element has at most 8 */

    *lo = *hi = w->start;
    *empty = false;
    if (w->n_dim < 1 || w->n_dim > 4)
        return bad(err, n, "a view has one to four dimensions");
    for (int d = 0; d < w->n_dim; d++) {
        int64_t far;

        if (w->dim[d] < 0)
            return bad(err, n, "a view with a negative dimension");
        if (w->dim[d] == 0) {
            *empty = true;
            continue;
        }
        if (__builtin_mul_overflow(w->dim[d] - 1, w->stride[d], &far) ||
            __builtin_add_overflow(far < 0 ? *lo : *hi, far, far < 0 ? lo : hi))
            return bad(err, n, "a view that exceeds the tensor");
        if (__builtin_mul_overflow(count, w->dim[d], &count))
            return bad(err, n, "a view with too many values");
    }
    if (!*empty && (*lo < 0 || *hi >= (int64_t)1 << 46))
        return bad(err, n, "a view that exceeds the tensor");
    return PL_OK;
}

static pl_status move(pl_exec *x, pl_tensor t, const pl_view *w, void *data,
                      bool put, pl_err *err)
{
    struct view v = {.x = x, .t = t, .put = put, .decoded_row = -1, .err = err};
    const struct format_info *f;
    int64_t lo, hi;
    bool empty;
    pl_status s;

    if (t < 0 || t >= x->plan->g->n_node)
        return err_set(err, PL_BAD_ARGUMENT,
                       "tensor %d is not in this graph, which has 0 to %d",
                       (int)t, x->plan->g->n_node - 1);
    v.n = &x->plan->g->node[t];
    f = format_info(v.n->format);
    PL_TRY(bounds(w, v.n, &lo, &hi, &empty, err));
    if (empty) /* A view without elements transfers nothing, but this call
                  checks the other arguments. */
        return put ? set(&v, NULL, 0, 0) : get(&v, NULL, 0, 0);
    if (put && f->block > 1)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: single values of %s cannot be set; set whole rows "
                       "with pl_tensor_set",
                       v.n->name, f->name);
    v.row = 1;
    v.row_bytes = v.size = 4;
    if (v.n->op == OP_weight || v.n->op == OP_memory) {
        v.row = v.n->dim[v.n->n_dim - 1].n;
        v.row_bytes = format_row_bytes(v.n->format, v.row);
        v.size = f->block == 1 ? format_row_bytes(v.n->format, 1) : 4;
    }
    v.first_row = lo / v.row;
    v.last_row = hi / v.row;
    v.cap = WINDOW_BYTES / (int64_t)v.row_bytes;
    if (v.cap < 1)
        v.cap = 1;
    if (v.cap > v.last_row - v.first_row + 1)
        v.cap = v.last_row - v.first_row + 1;
    v.have = -1;
    v.window = malloc((size_t)v.cap * v.row_bytes);
    if (f->block > 1)
        v.decoded = malloc((size_t)v.row * sizeof *v.decoded);
    if (!v.window || (f->block > 1 && !v.decoded))
        s = err_no_memory(err, "a view of a tensor");
    else
        s = lines(&v, w, data);
    free(v.window);
    free(v.decoded);
    return s;
}

/* Returns true if the view has no elements. Ignores invalid dimensions, which
 * bounds() reports. */
static bool is_empty(const pl_view *w)
{
    for (int d = 0; d < w->n_dim && d < 4; d++)
        if (w->dim[d] == 0)
            return true;
    return false;
}

static pl_status move_alone(const char *name, pl_exec *x, pl_tensor t,
                            const pl_view *w, void *data, bool put, pl_err *err)
{
    bool in_callback = false;
    pl_status s;

    if (!x || !w)
        return err_null(err, name, x ? "v" : "x");
    if (!data && !is_empty(w))
        return err_null(err, name, "data");
    PL_TRY(put ? exec_enter(x, err) : exec_enter_reading(x, &in_callback, err));
    s = move(x, t, w, data, put, err);
    exec_leave_reading(x, in_callback);
    return s;
}

pl_status pl_tensor_get_view(pl_exec *x, pl_tensor t, const pl_view *v,
                             void *data, pl_err *err)
{
    return move_alone(__func__, x, t, v, data, false, err);
}

pl_status pl_tensor_set_view(pl_exec *x, pl_tensor t, const pl_view *v,
                             const void *data, pl_err *err)
{
    return move_alone(__func__, x, t, v, (unsigned char *)data, true, err);
}
