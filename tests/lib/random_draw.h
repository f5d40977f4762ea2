/* Functions that random_graph.c, random_aim.c and random_block.c share to draw
 * one graph. */
#ifndef TEST_RANDOM_DRAW_H
#define TEST_RANDOM_DRAW_H

#include "lib/random_graph.h"
#include "lib/support.h"

enum {
    DRAW_MAX_POOL = 96,
    DRAW_MAX_NODE = 1024,
    /* greatest number of values of a tensor if n_tok is 1 */
    DRAW_MAX_COUNT = 1500,
};

struct draw {
    struct random_graph *r;
    pl_graph *g;
    uint64_t *seed;
    int n_rank;
    pl_tensor pool[DRAW_MAX_POOL];
    int n_pool, n_leaf, n_layer;
    bool roles;
    /* true for tensors that get no further layout requests and are neither
     * outputs nor kept */
    bool settled[DRAW_MAX_NODE];
    struct {
        pl_tensor t;
        /* the input `t` gets ids from 0 to below - 1; positions if 0 */
        int below;
    } note[DRAW_MAX_NODE];
    int n_note;
};

int draw_below(struct draw *d, int n);
pl_tensor draw_input(struct draw *d, pl_format f, int n_dim, const pl_dim *dim);
/* Adds an I32 input of ids from 0 to n - 1, or of positions if n is 0. */
pl_tensor draw_ids(struct draw *d, int n_dim, const pl_dim *dim, int n);
/* draw_kept draws how many tokens caches keep, draw_window the window of an
 * attention over them; 0 means all tokens. */
int64_t draw_kept(struct draw *d);
int64_t draw_window(struct draw *d, int64_t kept);
/* Returns a value of this shape that the graph has already; -1 if none. */
pl_tensor draw_alike(struct draw *d, int n_dim, const pl_dim *dim);

/* ---- aims ---------------------------------------------------------------- */

struct aim_item {
    /* letter of a dimension, a; '*' for leading dimensions; or two letters,
     * (ab) */
    char a, b;
    bool whole;
};

struct aim_operand {
    struct aim_item item[GRAPH_MAX_DIM + 1];
    int n;
    bool optional;
};

/* Reads the letters of each operand from the op's row in ops.def. Returns the
 * number of operands. */
int aim_row(enum op op, struct aim_operand in[GRAPH_MAX_IN]);
bool aim_moves(enum op op);
/* Returns true if the op maps small integers to small integers, and so may
 * occur in a graph whose results must be exact. */
bool aim_linear(enum op op);
/* aim_operands returns how many operands the op takes, optional ones included.
 * aim_takes returns true if operand i is of the kind `what`: 'f' any value, 'w'
 * a weight, 'i' ids, 'c' a cache, 's' a state. */
int aim_operands(enum op op);
bool aim_takes(enum op op, int i, char what);

#define KIND(name) (1 << NUM_##name)
enum {
    TO_ALL = KIND(ALL_REDUCE) | KIND(ALL_GATHER),
    TO_SPLIT = KIND(SLICE) | KIND(ALL_TO_ALL) | KIND(REDUCE_SCATTER),
    SUMS = KIND(ALL_REDUCE) | KIND(REDUCE_SCATTER),
};

/* Returns the conversions, as bits 1 << enum num_kind, that may occur before
 * operand `which` while `letter` is split; before any operand if which < 0. */
int aim_kinds(enum op op, int letter, int which);

/* Draws a block of nodes around the op and the conversion of an aim. Returns
 * its result, which other nodes may use. */
pl_tensor draw_aimed(struct draw *d, const struct random_aim *a);

#endif
