/* Fuses instructions of a program, so that a GPU does their work in fewer
 * launches.
 *
 * A rewrite (gpu_rewrites.def) is a pair of instructions whose work one launch
 * can do. The second one continues with the result of the first, or does the
 * same work with other operands, side by side. gpu_fuse_plan() applies the
 * rewrites to the instructions of a variant, once, when a GPU gets its program.
 * An instruction joins the group of an earlier one, so it is executed earlier.
 * No instruction of the queue in between may access what it writes, or write
 * what it accesses.
 *
 * The work groups of a launch run in any order. So an instruction that joins a
 * group may access nothing that the group writes, and write nothing that the
 * group accesses. The exceptions are the arguments that the rewrite names: the
 * work group that reads such a result has computed it. Some results may also
 * lie over what the group accesses if they do not in a smaller step, or over
 * what a launch of one work group has read.
 *
 * A work group may also do what needs the results of all others, if it is the
 * last that finishes. Groups count themselves for that. None waits for another,
 * so nothing depends on how many of them run at once.
 *
 * The launches of a step are made for its sizes, and gpu_fuse_launches() puts
 * those of a group together. It returns false if the kernel cannot do the work
 * of both: if a GEMM kernel was chosen, if the step has many tokens or softmax
 * states, or for operands of another shape. The instruction then keeps its own
 * launches. */
#ifndef DEVICE_GPU_GPU_FUSE_H
#define DEVICE_GPU_GPU_FUSE_H

#include "device/gpu/gpu_kernel.h"

enum gpu_rewrite {
#define GPU_REWRITE(name, first, second, kernel, reads, same, needs, after,    \
                    like, fits, fold)                                          \
    REWRITE_##name,
#include "device/gpu/gpu_rewrites.def"
#undef GPU_REWRITE
    REWRITE_COUNT
};

enum {
    /* greatest distance, in instructions, from the first of a group to one that
     * joins it */
    GPU_FUSE_REACH = 24
};

/* The plan for one instruction. */
struct gpu_fused {
    int group;      /* index of the first instruction of its group */
    unsigned parts; /* of a group's first instruction: the set of the rewrites
                       that the group had, by bits 1 << rewrite */
    /* the rewrite by which it joins, and the index of the rewrite's first
     * instruction; `with` is -1 if it joins no group */
    enum gpu_rewrite rewrite;
    int with;
    bool is_over; /* in the largest steps its result lies over what its group
                     accesses */
    /* Index of an earlier expert_matmul that sorts the same routes, which are
     * (token, expert) pairs, if the sorted ones are still in the scratch
     * memory; else -1. */
    int routes;
    bool has_scratch; /* set by the caller: the instruction may use the scratch
                         memory of its queue */
};

/* Sets plan[v->n_insn], one for each instruction of the variant, except
 * has_scratch. If `few`, the plan is for steps with few rows on a device that
 * counts finished work groups: launches of contractions then also do what
 * follows. With many rows such a plan would keep instructions apart that
 * others fuse. */
void gpu_fuse_plan(struct gpu_fused *plan, const struct program *p,
                   const struct variant *v, bool few);

/* Sets in_launch of the instructions of all variants of *p, as planned for few
 * rows. Returns false if out of memory. */
bool gpu_fuse_mark(struct program *p);

/* Returns true if the rewrite is for two instructions with these kernels. */
bool gpu_fuse_is_of(enum gpu_rewrite r, enum kernel first, enum kernel second);

/* Replaces launch `to` and the last launch of the list, which are of the two
 * instructions of a rewrite, by one launch, at `to`. `result` is the device
 * address of the first instruction's result. `count` is the device address of
 * TAIL_COUNTERS counters for the launch, or 0. *parts is the set of rewrites
 * that the instructions of launch `to` had; the rewrite is added. Returns false
 * without effect if one launch cannot do both at the sizes of the step, if it
 * has several work groups although `alone`, or if out of memory
 * (l->no_memory). */
bool gpu_fuse_launches(struct launch_list *l, int to, enum gpu_rewrite r,
                       bool alone, uint64_t result, uint64_t count,
                       unsigned *parts);

#endif
