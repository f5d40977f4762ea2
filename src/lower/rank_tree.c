/* The tree by recursion over rank ranges; see rank_tree.h. */
#include "lower/rank_tree.h"

static int left_half(int n)
{
    int p = 1;

    while (2 * p < n)
        p *= 2;
    return p;
}

struct local {
    uint64_t present;
    int lo, hi; /* the device's ranks */
    struct tree_addend *item;
    int n, height, depth, left;
};

/* Returns true if the subtree has an addend on this device. */
static bool local_walk(struct local *w, int lo, int hi)
{
    int mid;
    bool l, r;

    if (hi <= w->lo || lo >= w->hi)
        return false;
    if (hi - lo == 1) {
        if (!(w->present >> lo & 1))
            return false;
        w->item[w->n++] = (struct tree_addend){lo, 0};
        w->height++;
        w->left++;
        if (w->height > w->depth)
            w->depth = w->height;
        return true;
    }
    mid = lo + left_half(hi - lo);
    l = local_walk(w, lo, mid);
    r = local_walk(w, mid, hi);
    if (l && r && lo >= w->lo && hi <= w->hi) {
        w->item[w->n - 1].n_add++;
        w->height--;
        w->left--;
    }
    return l || r;
}

bool rank_tree_make(struct rank_tree *out, struct arena *a, int n,
                    uint64_t present, int rank0, int n_rank)
{
    struct local w = {.present = present, .lo = rank0, .hi = rank0 + n_rank};

    w.item = arena_alloc(a, (size_t)n_rank + 1, sizeof *w.item);
    if (!w.item)
        return false;
    local_walk(&w, 0, n);
    out->n = w.n;
    out->n_out = w.left;
    out->item = w.item;
    out->depth = w.depth;
    return true;
}

struct join {
    uint64_t present;
    int n_dev;
    const int *rank0, *n_rank;
    struct rank_join *out;
    int n, height, depth;
    int used[64]; /* results taken so far, by the device's first rank */
};

static bool join_walk(struct join *w, int lo, int hi)
{
    int mid;
    bool l, r;

    for (int d = 0; d < w->n_dev; d++) {
        uint64_t mask;

        if (lo < w->rank0[d] || hi > w->rank0[d] + w->n_rank[d])
            continue;
        mask = hi - lo >= 64 ? ~(uint64_t)0
                             : (((uint64_t)1 << (hi - lo)) - 1) << lo;
        if (!(w->present & mask))
            return false;
        w->out[w->n++] = (struct rank_join){d, w->used[w->rank0[d]]++, 0};
        if (++w->height > w->depth)
            w->depth = w->height;
        return true;
    }
    if (hi - lo == 1)
        return false; /* cannot happen: no device carries it */
    mid = lo + left_half(hi - lo);
    l = join_walk(w, lo, mid);
    r = join_walk(w, mid, hi);
    if (l && r) {
        w->out[w->n - 1].n_add++;
        w->height--;
    }
    return l || r;
}

int rank_tree_join(struct rank_join *out, int n, uint64_t present, int n_dev,
                   const int *rank0, const int *n_rank, int *depth)
{
    struct join w = {.present = present,
                     .n_dev = n_dev,
                     .rank0 = rank0,
                     .n_rank = n_rank,
                     .out = out};

    join_walk(&w, 0, n);
    *depth = w.depth;
    return w.n;
}
