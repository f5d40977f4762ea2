/* The tree by recursion over rank ranges; see rank_tree.h. */
#include "lower/rank_tree.h"

/* A walk over the tree in order. Its addends are those of single ranks, or the
 * results of devices. */
struct walk {
    uint64_t present;
    int lo, hi;                /* the ranks whose addends are summed */
    int n_dev;                 /* 0: addends are of ranks */
    const int *rank0, *n_rank; /* [n_dev] */
    struct rank_join *out;     /* `shard` is the device or rank */
    int n, height, depth;
};

static int left_half(int n)
{
    int p = 1;

    while (2 * p < n)
        p *= 2;
    return p;
}

/* Returns the device or rank that has one addend for all these ranks; -1 if
 * there is none. */
static int owner(const struct walk *w, int lo, int hi)
{
    if (w->n_dev == 0)
        return hi - lo == 1 ? lo : -1;
    for (int d = 0; d < w->n_dev; d++)
        if (lo >= w->rank0[d] && hi <= w->rank0[d] + w->n_rank[d])
            return d;
    return -1;
}

static void add(struct walk *w, int from)
{
    int index = 0;

    for (int i = 0; i < w->n; i++)
        index += w->out[i].shard == from;
    w->out[w->n++] = (struct rank_join){from, index, 0};
    if (++w->height > w->depth)
        w->depth = w->height;
}

/* Returns true if the subtree has an addend. */
static bool walk(struct walk *w, int lo, int hi)
{
    int from = owner(w, lo, hi), mid;
    bool l, r;

    if (hi <= w->lo || lo >= w->hi)
        return false;
    if (from >= 0) {
        if (!((w->present >> lo) & (~(uint64_t)0 >> (64 - (hi - lo)))))
            return false;
        add(w, from);
        return true;
    }
    if (hi - lo == 1)
        return false; /* cannot happen: no device carries it */
    mid = lo + left_half(hi - lo);
    l = walk(w, lo, mid);
    r = walk(w, mid, hi);
    if (l && r && lo >= w->lo && hi <= w->hi) {
        w->out[w->n - 1].n_add++;
        w->height--;
    }
    return l || r;
}

bool rank_tree_make(struct rank_tree *out, struct arena *a, int n,
                    uint64_t present, int rank0, int n_rank)
{
    struct rank_join join[PL_MAX_RANKS];
    struct walk w = {
        .present = present, .lo = rank0, .hi = rank0 + n_rank, .out = join};
    struct tree_addend *item;

    walk(&w, 0, n);
    item = arena_alloc(a, (size_t)w.n + 1, sizeof *item);
    for (int i = 0; item && i < w.n; i++)
        item[i] = (struct tree_addend){join[i].shard, join[i].n_add};
    *out = (struct rank_tree){
        .n = w.n, .n_out = w.height, .item = item, .depth = w.depth};
    return item != NULL;
}

int rank_tree_join(struct rank_join *out, int n, uint64_t present, int n_dev,
                   const int *rank0, const int *n_rank, int *depth)
{
    struct walk w = {.present = present,
                     .hi = n,
                     .n_dev = n_dev,
                     .rank0 = rank0,
                     .n_rank = n_rank,
                     .out = out};

    walk(&w, 0, n);
    *depth = w.depth;
    return w.n;
}
