/* The one binary tree over ranks along which all PARTIAL values are summed.
 *
 * The left subtree takes the largest power of two below the count. A rank
 * without an addend leaves a hole: a node with one present child is that child.
 * A device sums the complete subtrees it owns; the rest of the tree joins the
 * devices' results. So the additions are the same whoever carries the ranks. */
#ifndef LOWER_RANK_TREE_H
#define LOWER_RANK_TREE_H

#include "base/arena.h"
#include "program/program.h"

/* The additions of ranks [rank0, rank0 + n_rank) among n, `present` bit r set
 * where rank r has an addend. False: out of memory. */
bool rank_tree_make(struct rank_tree *out, struct arena *a, int n,
                    uint64_t present, int rank0, int n_rank);

/* Joins the results of a group's n_dev units: returns how many there are, in
 * tree order, in out[], which has room for 64: each with the unit, the index of
 * its result there, and the additions after it. Units carry ranks rank0[d] ..
 * rank0[d] + n_rank[d] - 1. */
struct rank_join {
    int shard, index, n_add;
};
int rank_tree_join(struct rank_join *out, int n, uint64_t present, int n_dev,
                   const int *rank0, const int *n_rank, int *depth);

#endif
