/* Shared by random_graph.c, random_aim.c and random_block.c while one graph is
 * drawn. */
#ifndef TEST_RANDOM_DRAW_H
#define TEST_RANDOM_DRAW_H

#include "lib/random_graph.h"
#include "lib/support.h"

enum {
    DRAW_MAX_POOL = 96,
    DRAW_MAX_NODE = 1024,
    DRAW_MAX_COUNT = 1500, /* values with n_tok = 1 */
};

struct draw {
    struct random_graph *r;
    pl_graph *g;
    uint64_t *seed;
    int n_rank;
    pl_tensor pool[DRAW_MAX_POOL];
    int n_pool, n_leaf, n_layer;
    bool roles;
    bool settled[DRAW_MAX_NODE]; /* gets no further layout requests or marks */
    struct {
        pl_tensor t;
        int below; /* ids below this; 0 = positions */
    } note[DRAW_MAX_NODE];
    int n_note;
};

int draw_below(struct draw *d, int n);
pl_tensor draw_input(struct draw *d, pl_format f, int n_dim, const pl_dim *dim);
/* Makes ids below n, or positions. */
pl_tensor draw_ids(struct draw *d, int n_dim, const pl_dim *dim, int n);
/* Draws how many tokens caches keep, and a window of an attention that reads
 * them; 0: all of them. */
int64_t draw_kept(struct draw *d);
int64_t draw_window(struct draw *d, int64_t kept);
/* Returns an existing value of this shape, or -1. */
pl_tensor draw_alike(struct draw *d, int n_dim, const pl_dim *dim);

/* ---- aims ---------------------------------------------------------------- */

struct aim_item {
    char a, b; /* a letter, '*', or (ab) */
    bool whole;
};

struct aim_operand {
    struct aim_item item[GRAPH_MAX_DIM + 1];
    int n;
    bool optional;
};

/* Reads the operands of a row with letters; returns their number. */
int aim_row(enum op op, struct aim_operand in[GRAPH_MAX_IN]);
bool aim_moves(enum op op);
/* Returns true if the op may be in a graph that is exact. */
bool aim_linear(enum op op);
/* Returns how many operands the op takes, optional ones included, and whether
 * operand i is an 'f' any value, 'w' a weight, 'i' ids, 'c' a cache, 's' a
 * state. */
int aim_operands(enum op op);
bool aim_takes(enum op op, int i, char what);

#define KIND(name) (1 << NUM_##name)
enum {
    TO_ALL = KIND(ALL_REDUCE) | KIND(ALL_GATHER),
    TO_SPLIT = KIND(SLICE) | KIND(ALL_TO_ALL) | KIND(REDUCE_SCATTER),
    SUMS = KIND(ALL_REDUCE) | KIND(REDUCE_SCATTER),
};

/* Returns the conversions, as bits of KIND, that may occur before operands
 * while `letter` is split: before operand `which`, or any (which < 0). */
int aim_kinds(enum op op, int letter, int which);

/* Draws a block around the op and operand of an aim. Returns its result, for
 * others to read. */
pl_tensor draw_aimed(struct draw *d, const struct random_aim *a);

#endif
