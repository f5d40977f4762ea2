/* Layouts as values: compare, print, map; and the one iterator over intervals.
 *
 * Here a `run` is a pl_interval: an interval of indices and its owners.
 *
 * pl_layout (pl_graph.h) states how ranks hold one logical tensor. Layouts are
 * immutable and live in an arena. "Normal" form: adjacent intervals with equal
 * owners are merged, the period is the shortest one (the whole size if there is
 * one interval), and a split that gives every rank everything is MIRRORED.
 * Nothing here depends on devices: a device is the set of ranks that it
 * carries.
 *
 * Short names: l is a layout, d a dimension, r a rank, w a walk over
 * intervals. */
#ifndef LAYOUT_LAYOUT_H
#define LAYOUT_LAYOUT_H

#include "base/arena.h"
#include "pl_graph.h"

typedef uint64_t rankset;

static inline rankset ranks_all(int n)
{
    return n >= 64 ? ~(rankset)0 : ((rankset)1 << n) - 1;
}

/* Returns the rank that counts an index in a sum. */
static inline int rank_first(rankset s)
{
    return s ? __builtin_ctzll(s) : -1;
}

extern const pl_layout layout_mirrored, layout_partial;

bool layout_equal(const pl_layout *a, const pl_layout *b);

/* Returns true if every rank holds under `have` what it would hold under `want`
 * (both not PARTIAL; size of the split dimension). */
bool layout_contains(const pl_layout *have, const pl_layout *want,
                     int64_t size);

/* Returns the normal form of intervals over a dimension of `size`, or NULL if
 * out of memory. */
const pl_layout *layout_split(struct arena *a, int dim, int64_t size, int n_run,
                              const pl_interval *run, int n_rank);

/* Iterates over the owners of [0, size) under a SPLIT of that dimension,
 * interval by interval. */
struct run_walk {
    const pl_layout *l;
    int64_t pos, size; /* start of the interval; size of the dimension */
    int i;             /* index of the interval */
    int64_t left;      /* rest of the interval, cut off at size */
};
bool run_walk_first(struct run_walk *w, const pl_layout *l, int64_t size);
bool run_walk_next(struct run_walk *w);
static inline rankset run_walk_owners(const struct run_walk *w)
{
    return w->l->run[w->i].owners;
}

/* Checks a layout from outside: dimension, interval lengths, period, owners
 * below n_rank and not empty. size[d] is 0 if a dimension is symbolic. */
pl_status layout_check(const pl_layout *l, int n_dim, const int64_t *size,
                       int n_rank, const char *name, pl_err *err);

/* Prints "mirrored" or "split(1: 3 {0,1} 2 {2})"; truncated to fit. */
const char *layout_print(const pl_layout *l, char *buf, size_t size);

/* The part of a dimension that a device with `ranks` stores: each index once,
 * ascending. There is one part per interval inside a period. A *logical* index
 * counts in the whole tensor, a *local* one in the stored part. */
struct layout_part {
    int64_t logical, local, n; /* logical and local start, length */
    rankset owners;
};
struct layout_local {
    int64_t size, local;          /* of the dimension: logical, stored here */
    int64_t period, local_period; /* period == size and one part if whole */
    int n_part;
    const struct layout_part *part;
};
/* Fills *out for a layout that is SPLIT or not (then whole). Returns false if
 * out of memory. */
bool layout_local_init(struct layout_local *out, struct arena *a,
                       const pl_layout *l, int64_t size, rankset ranks);
/* Return the number of stored intervals of all periods, and the i-th of them,
 * ascending. */
static inline int64_t layout_local_parts(const struct layout_local *m)
{
    return m->period ? m->size / m->period * m->n_part : 0;
}
static inline struct layout_part layout_local_part(const struct layout_local *m,
                                                   int64_t i)
{
    struct layout_part p = m->part[i % m->n_part];
    int64_t rep = i / m->n_part;

    p.logical += rep * m->period;
    p.local += rep * m->local_period;
    return p;
}
/* Returns the number of stored indices without building the table. */
int64_t layout_local_size(const pl_layout *l, int64_t size, rankset ranks);
/* Returns the local index of a logical one, or -1 if it is not stored. */
int64_t layout_local_index(const struct layout_local *m, int64_t logical);
/* Returns the number of stored indices below `logical`. */
int64_t layout_local_below(const struct layout_local *m, int64_t logical);

#endif
