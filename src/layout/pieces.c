/* The one walk from a logical range to what each device stores.
 *
 * The view is walked as rows of its innermost dimension. A row with stride 1 is
 * a run of consecutive logical values; it is cut where the split dimension's
 * owners change, and each cut part goes to every device that stores it. A row
 * with another stride is walked value by value. Local offsets follow from the
 * split dimension's table: the storage is the logical tensor with that
 * dimension shrunk to the stored indices. */
#include "layout/layout.h"

#include "base/err.h"

struct walk {
    const struct layout_tensor *t;
    const struct layout_local *local; /* one a device */
    int dim;                          /* split dimension, or -1 */
    int64_t inner, size;              /* values below it; its size */
    layout_piece_fn *each;
    void *user;
};

/* Consecutive logical values log .. log+n-1 lying at view offset `view`. */
static pl_status emit(const struct walk *w, int64_t log, int64_t view,
                      int64_t n)
{
    while (n > 0) {
        int64_t outer = 0, s = 0, in = log, len = n;

        if (w->dim >= 0) {
            int64_t row = w->inner * w->size;

            outer = log / row;
            s = log / w->inner % w->size;
            in = log % w->inner;
            if (len > row - log % row)
                len = row - log % row; /* stay inside one outer row */
        }
        /* cut where any device's interval begins or ends */
        for (int d = 0; d < w->t->n_dev && w->dim >= 0; d++) {
            const struct layout_local *m = &w->local[d];
            int64_t rep = s / m->period, r = s - rep * m->period;
            int64_t stop = m->period;

            for (int i = 0; i < m->n_part; i++) {
                if (r < m->part[i].log) {
                    stop = m->part[i].log;
                    break;
                }
                if (r < m->part[i].log + m->part[i].n) {
                    stop = m->part[i].log + m->part[i].n;
                    break;
                }
            }
            stop = (stop - r) * w->inner - in;
            if (len > stop)
                len = stop;
        }
        for (int d = 0; d < w->t->n_dev; d++) {
            struct layout_piece p = {
                .dev = d, .local = log, .view = view, .log = log, .n = len};

            if (w->dim >= 0) {
                int64_t loc = layout_local_index(&w->local[d], s);

                if (loc < 0)
                    continue;
                p.local = (outer * w->local[d].local + loc) * w->inner + in;
            }
            PL_TRY(w->each(w->user, &p));
        }
        log += len;
        view += len;
        n -= len;
    }
    return PL_OK;
}

static pl_status walk_view(const struct walk *w, const struct layout_view *v,
                           int d, int64_t log, int64_t view)
{
    enum { MOST = sizeof v->dim / sizeof *v->dim };
    int64_t below = 1;

    if (d == v->n_dim || d == MOST) /* gcc looks beyond what views have */
        return emit(w, log, view, 1);
    if (d == v->n_dim - 1 && v->stride[d] == 1)
        return emit(w, log, view, v->dim[d]);
    for (int i = d + 1; i < v->n_dim; i++)
        below *= v->dim[i];
    for (int64_t i = 0; i < v->dim[d]; i++)
        PL_TRY(
            walk_view(w, v, d + 1, log + i * v->stride[d], view + i * below));
    return PL_OK;
}

pl_status layout_pieces(const struct layout_tensor *t,
                        const struct layout_view *v, layout_piece_fn *each,
                        void *user, pl_err *err)
{
    struct arena a = {0};
    struct walk w = {.t = t, .dim = -1, .each = each, .user = user};
    struct layout_local *local = NULL;
    pl_status s = PL_OK;

    if (t->layout->kind == PL_SPLIT) {
        w.dim = t->layout->dim;
        w.size = t->dim[w.dim];
        w.inner = 1;
        for (int i = w.dim + 1; i < t->n_dim; i++)
            w.inner *= t->dim[i];
        w.local = t->local;
    }
    if (w.dim >= 0 && !w.local) {
        local = arena_alloc(&a, (size_t)t->n_dev, sizeof *local);
        if (!local)
            s = err_no_memory(err, "a table of pieces");
        for (int d = 0; d < t->n_dev && s == PL_OK; d++)
            if (!layout_local_init(&local[d], &a, t->layout, w.size, t->dev[d]))
                s = err_no_memory(err, "a table of pieces");
        w.local = local;
    }
    if (s == PL_OK)
        s = walk_view(&w, v, 0, v->start, 0);
    arena_fini(&a);
    return s;
}
