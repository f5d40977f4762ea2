/* Functions on layouts: compare, print, and map indices; and an iterator over
 * the intervals of a layout.
 *
 * In names, a "run" is a pl_interval: an interval of adjacent indices and the
 * ranks that own them.
 *
 * A pl_layout (pl_graph.h) describes how the ranks hold one logical tensor:
 * MIRRORED, SPLIT or PARTIAL. Layouts are immutable and live in an arena. In
 * normal form, adjacent intervals with equal owners are merged, and the period
 * is the shortest possible (the whole size if there is one interval). A split
 * in which every rank owns all indices becomes MIRRORED. Nothing here depends
 * on devices: a device is represented by the set of ranks that it carries.
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

/* Returns the lowest rank of a set, or -1 if the set is empty. If several ranks
 * own an index, only the lowest of them contributes its value to a sum. */
static inline int rank_first(rankset s)
{
    return s ? __builtin_ctzll(s) : -1;
}

extern const pl_layout layout_mirrored, layout_partial;

bool layout_equal(const pl_layout *a, const pl_layout *b);

/* Returns true if every rank that holds an index under layout `want` also holds
 * it under layout `have`. PARTIAL contains only PARTIAL and is contained only
 * in PARTIAL. `size` is the number of indices of the split dimension. */
bool layout_contains(const pl_layout *have, const pl_layout *want,
                     int64_t size);

/* Returns the layout, in normal form, that splits dimension `dim` of the given
 * size into the n_run intervals of `run`, repeated if they are shorter. Returns
 * MIRRORED if out of memory, as all functions that make layouts do. So a pass
 * that makes many checks its arena once, at the end (arena_check). */
const pl_layout *layout_split(struct arena *a, int dim, int64_t size, int n_run,
                              const pl_interval *run, int n_rank);

/* Iterates over the intervals of a SPLIT layout that cover indices [0, size),
 * and their owners. run_walk_first begins and run_walk_next continues; both
 * return false when no interval is left. */
struct run_walk {
    const pl_layout *l;
    int64_t pos, size; /* start of the present interval; number of indices of
                          the dimension */
    int i;             /* index of the present interval in the layout's array */
    int64_t left;      /* number of indices of the present interval, less if the
                          dimension ends within it */
};
bool run_walk_first(struct run_walk *w, const pl_layout *l, int64_t size);
bool run_walk_next(struct run_walk *w);
static inline rankset run_walk_owners(const struct run_walk *w)
{
    return w->l->run[w->i].owners;
}

/* Checks a layout that a caller of the library passed: the split dimension,
 * interval lengths, the period, and that owners are below n_rank and not empty.
 * size[n_dim] are the tensor's dimensions, 0 for a symbolic one. `name` is the
 * tensor's name for the error message. */
pl_status layout_check(const pl_layout *l, int n_dim, const int64_t *size,
                       int n_rank, const char *name, pl_err *err);

/* Prints a layout to `buf`, truncated to `size` bytes, and returns `buf`. The
 * text is "mirrored", "partial", or a split. For example, "split(1: 3{0,1}
 * 2{2})" means: dimension 1 is split, the first 3 indices belong to ranks 0 and
 * 1, and the next 2 to rank 2. */
const char *layout_print(const pl_layout *l, char *buf, size_t size);

/* The indices of a dimension that one device stores: those owned by any of its
 * ranks, each once, in ascending order. A *logical* index is a position in the
 * whole tensor, a *local* index a position in the device's memory. A
 * layout_part is one stored interval of a period. */
struct layout_part {
    /* Index in the whole tensor, and on the device, at which the interval
     * begins; number of indices. */
    int64_t logical, local, n;
    rankset owners;
};
struct layout_local {
    int64_t size, local; /* number of all indices of the dimension, and
                            number of those that are stored */
    /* Number of all, and of stored, indices in one period of the layout; if all
     * indices are stored, there is one period with one part. */
    int64_t period, local_period;
    int n_part;
    const struct layout_part *part;
};
/* Sets *out to the indices that a device with `ranks` stores of a dimension of
 * `size` under layout l. If l is not SPLIT, these are all indices. Returns
 * false if out of memory. */
bool layout_local_init(struct layout_local *out, struct arena *a,
                       const pl_layout *l, int64_t size, rankset ranks);
/* layout_local_parts returns the number of stored intervals in all periods.
 * layout_local_part returns the i-th of them, in ascending order. */
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
/* Returns the number of indices that a device with `ranks` stores. Needs no
 * memory. */
int64_t layout_local_size(const pl_layout *l, int64_t size, rankset ranks);
/* Returns the local index for a logical index, or -1 if that index is not
 * stored. */
int64_t layout_local_index(const struct layout_local *m, int64_t logical);
/* Returns the number of stored indices that are less than logical index
 * `logical`. */
int64_t layout_local_below(const struct layout_local *m, int64_t logical);

#endif
