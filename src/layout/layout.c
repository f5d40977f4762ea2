/* Normal form, comparison, checks and printing of layouts, and the local
 * indices of a device. */
#include "layout/layout.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const pl_layout layout_mirrored = {.kind = PL_MIRRORED};
const pl_layout layout_partial = {.kind = PL_PARTIAL};

bool layout_equal(const pl_layout *a, const pl_layout *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind)
        return false;
    if (a->kind != PL_SPLIT)
        return true;
    if (a->dim != b->dim || a->period != b->period || a->n_run != b->n_run)
        return false;
    for (int i = 0; i < a->n_run; i++)
        if (a->run[i].len != b->run[i].len ||
            a->run[i].owners != b->run[i].owners)
            return false;
    return true;
}

bool run_walk_first(struct run_walk *w, const pl_layout *l, int64_t size)
{
    *w = (struct run_walk){.l = l, .size = size};
    w->left = l->run[0].len < size ? l->run[0].len : size;
    return size > 0;
}

bool run_walk_next(struct run_walk *w)
{
    w->pos += w->left;
    if (w->pos >= w->size)
        return false;
    w->i = w->i + 1 < w->l->n_run ? w->i + 1 : 0;
    w->left = w->l->run[w->i].len;
    if (w->left > w->size - w->pos)
        w->left = w->size - w->pos;
    return true;
}

bool layout_contains(const pl_layout *have, const pl_layout *want, int64_t size)
{
    struct run_walk h, w;

    if (have->kind == PL_PARTIAL || want->kind == PL_PARTIAL)
        return have->kind == want->kind;
    if (have->kind == PL_MIRRORED)
        return true;
    if (want->kind == PL_MIRRORED || want->dim != have->dim)
        return false;
    if (layout_equal(have, want))
        return true;
    run_walk_first(&h, have, size);
    run_walk_first(&w, want, size);
    for (;;) {
        if (run_walk_owners(&w) & ~run_walk_owners(&h))
            return false;
        if (h.pos + h.left <= w.pos + w.left) {
            bool same = h.pos + h.left == w.pos + w.left;

            if (!run_walk_next(&h))
                return true;
            if (same)
                run_walk_next(&w);
        } else {
            run_walk_next(&w);
        }
    }
}

/* Returns true if the n intervals, whose lengths add up to `period`, repeat the
 * pattern of their first q indices. */
static bool repeats(const pl_interval *run, int n, int64_t q, int64_t period)
{
    int i = 0, j = 0;
    /* numbers of indices left in interval i, which is compared, and in interval
     * j, which is q indices later */
    int64_t pos = 0, li = run[0].len, lj = q;

    while (lj >= run[j].len)
        lj -= run[j++].len;
    lj = run[j].len - lj;
    while (pos + q < period) {
        int64_t step = li < lj ? li : lj;

        if (run[i].owners != run[j].owners)
            return false;
        pos += step;
        li -= step;
        lj -= step;
        if (li == 0)
            li = run[++i].len;
        if (lj == 0 && ++j < n)
            lj = run[j].len;
    }
    return true;
}

/* Shortens a list of n intervals to its shortest repeating part. *period, the
 * number of indices in the list, is set to that of the part. Returns the number
 * of intervals in the part. With two owner sets or more, the owners change at
 * the end of interval 0 and again one period later, so a period ends within an
 * interval that has the owners of interval 0. Therefore the starts of the
 * intervals are the candidates for the period. */
static int shorten(pl_interval *run, int n, int64_t *period)
{
    int64_t q = 0;

    for (int k = 1; k < n; k++) {
        q += run[k].len;
        if (q > *period / 2)
            break;
        if (*period % q || !repeats(run, n, q, *period))
            continue;
        *period = q;
        for (n = 0; q > run[n].len; n++)
            q -= run[n].len;
        run[n].len = q;
        return n + 1;
    }
    return n;
}

const pl_layout *layout_split(struct arena *a, int dim, int64_t size, int n_run,
                              const pl_interval *run, int n_rank)
{
    pl_interval *r = arena_alloc(a, (size_t)n_run + 1, sizeof *r);
    pl_layout *l = arena_alloc(a, 1, sizeof *l);
    int n = 0;
    int64_t period = 0;

    if (!r || !l)
        return &layout_mirrored;
    for (int i = 0; i < n_run; i++) {
        if (run[i].len == 0)
            continue;
        period += run[i].len;
        if (n && r[n - 1].owners == run[i].owners)
            r[n - 1].len += run[i].len;
        else
            r[n++] = run[i];
    }
    if (n == 1 && r[0].owners == ranks_all(n_rank))
        return &layout_mirrored;
    if (n == 1)
        period = r[0].len = size;
    else
        n = shorten(r, n, &period);
    l->kind = PL_SPLIT;
    l->dim = dim;
    l->period = period;
    l->n_run = n;
    l->run = r;
    return l;
}

pl_status layout_check(const pl_layout *l, int n_dim, const int64_t *size,
                       int n_rank, const char *name, pl_err *err)
{
    int64_t sum = 0;

    if (l->kind == PL_MIRRORED)
        return PL_OK;
    if (l->kind != PL_SPLIT)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: PARTIAL cannot be requested; it results only from split sums",
            name);
    if (l->dim < 0 || l->dim >= n_dim)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: cannot split dimension %d of %d", name, l->dim,
                       n_dim);
    for (int i = 0; i < l->n_run; i++) {
        if (l->run[i].len < 1 || l->run[i].len > size[l->dim] ||
            l->run[i].owners == 0 ||
            (l->run[i].owners & ~ranks_all(n_rank)) != 0)
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s: run %d of the split: its length must be "
                           "positive and its owner one of %d ranks",
                           name, i, n_rank);
        sum += l->run[i].len;
        if (sum > size[l->dim])
            break;
    }
    if (sum < 1 || sum != l->period || size[l->dim] % sum)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: the runs cover %" PRId64 ", the period is %" PRId64
            " and the dimension %" PRId64
            "; the period must be the sum of the runs and divide the size",
            name, sum, l->period, size[l->dim]);
    return PL_OK;
}

const char *layout_print(const pl_layout *l, char *buf, size_t size)
{
    size_t u;

    if (l->kind != PL_SPLIT) {
        snprintf(buf, size, "%s",
                 l->kind == PL_MIRRORED ? "mirrored" : "partial");
        return buf;
    }
    u = (size_t)snprintf(buf, size, "split(%d:", l->dim);
    for (int i = 0; i < l->n_run && u < size; i++) {
        rankset o = l->run[i].owners;
        const char *sep = "";

        u +=
            (size_t)snprintf(buf + u, size - u, " %" PRId64 "{", l->run[i].len);
        for (; o && u < size; o &= o - 1) {
            u +=
                (size_t)snprintf(buf + u, size - u, "%s%d", sep, rank_first(o));
            sep = ",";
        }
        if (u < size)
            u += (size_t)snprintf(buf + u, size - u, "}");
    }
    if (u < size)
        snprintf(buf + u, size - u, ")");
    return buf;
}

int64_t layout_local_size(const pl_layout *l, int64_t size, rankset ranks)
{
    int64_t n = 0;

    if (l->kind != PL_SPLIT)
        return size;
    for (int i = 0; i < l->n_run; i++)
        if (l->run[i].owners & ranks)
            n += l->run[i].len;
    return n * (size / l->period);
}

bool layout_local_init(struct layout_local *out, struct arena *a,
                       const pl_layout *l, int64_t size, rankset ranks)
{
    struct layout_part *p;
    int n = l->kind != PL_SPLIT, k = 0;
    int64_t logical = 0, local = 0;

    *out = (struct layout_local){.size = size};
    for (int i = 0; l->kind == PL_SPLIT && i < l->n_run; i++)
        n += (l->run[i].owners & ranks) != 0;
    p = arena_alloc(a, (size_t)n, sizeof *p);
    if (!p)
        return false;
    out->part = p;
    if (l->kind != PL_SPLIT) {
        p[0] = (struct layout_part){0, 0, size, ~(rankset)0};
        out->n_part = 1;
        out->local = out->period = out->local_period = size;
        return true;
    }
    for (int i = 0; i < l->n_run; i++) {
        if (l->run[i].owners & ranks) {
            p[k++] = (struct layout_part){logical, local, l->run[i].len,
                                          l->run[i].owners};
            local += l->run[i].len;
        }
        logical += l->run[i].len;
    }
    out->n_part = k;
    out->period = l->period;
    out->local_period = local;
    out->local = local * (size / l->period);
    return true;
}

/* Returns the index of the last stored interval (layout_part) that begins at or
 * before logical index `r` of a period. Returns -1 if there is none. */
static int part_at(const struct layout_local *m, int64_t r)
{
    int lo = 0, hi = m->n_part;

    while (lo < hi) {
        int mid = (lo + hi) / 2;

        if (m->part[mid].logical <= r)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1;
}

int64_t layout_local_index(const struct layout_local *m, int64_t logical)
{
    int64_t rep = m->period ? logical / m->period : 0;
    int64_t r = logical - rep * m->period;
    int i = part_at(m, r);

    if (i < 0 || r >= m->part[i].logical + m->part[i].n)
        return -1;
    return rep * m->local_period + m->part[i].local + (r - m->part[i].logical);
}

int64_t layout_local_below(const struct layout_local *m, int64_t logical)
{
    int64_t rep = m->period ? logical / m->period : 0;
    int64_t r = logical - rep * m->period, in;
    int i = part_at(m, r);

    if (i < 0)
        return rep * m->local_period;
    in = r - m->part[i].logical;
    if (in > m->part[i].n)
        in = m->part[i].n;
    return rep * m->local_period + m->part[i].local + in;
}
