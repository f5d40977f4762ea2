/* The binary tree over ranks along which all PARTIAL values are summed.
 *
 * The left subtree of n ranks has the largest power of two below n. A rank
 * without an addend is left out: a node with one present child is that child. A
 * device sums the complete subtrees whose ranks it carries. The rest of the
 * tree joins the results of devices. So the additions are the same whatever
 * device carries a rank. */
#ifndef LOWER_RANK_TREE_H
#define LOWER_RANK_TREE_H

#include "base/arena.h"
#include "program/program.h"

/* Sets *out to the additions of ranks [rank0, rank0 + n_rank) among n. Bit r of
 * `present` is set if rank r has an addend. Returns false if out of memory. */
bool rank_tree_make(struct rank_tree *out, struct arena *a, int n,
                    uint64_t present, int rank0, int n_rank);

/* Joins the results of a group's n_dev shards, which carry ranks rank0[d] ..
 * rank0[d] + n_rank[d] - 1. Returns the number of results, and sets out[],
 * which has space for 64, in tree order: for each, the shard, the index of its
 * result there, and the number of additions after it. */
struct rank_join {
    int shard, index, n_add;
};
int rank_tree_join(struct rank_join *out, int n, uint64_t present, int n_dev,
                   const int *rank0, const int *n_rank, int *depth);

#endif
