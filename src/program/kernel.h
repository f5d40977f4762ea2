/* Kernels, the operations that a device can compute, and the parameters of a
 * kernel call besides its tensors. Independent of backends. */
#ifndef PROGRAM_KERNEL_H
#define PROGRAM_KERNEL_H

#include "graph/graph.h"

enum kernel {
#define KERNEL(name, args, values) KERNEL_##name,
#include "program/kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

/* The way in which an instruction accesses a tensor. */
enum access {
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_UPDATE = ACCESS_READ | ACCESS_WRITE,
};

enum { KERNEL_MAX_ARG = GRAPH_MAX_IN + 2 };

/* The form in which a device's kernels read a weight: rows in the format's own
 * blocks, or panels (quant/pack.h). It depends on the kernels that read the
 * weight, enum weight_use. */
enum packing { PACKING_ROWS, PACKING_PACKED };
enum weight_use {
    USE_CONTRACTION,
    USE_LOOKUP, /* read by gather_rows, which can read plain and packed
                   weights */
    USE_VALUES, /* read by a kernel that is neither a contraction nor
                   gather_rows */
    USE_COUNT
};
/* The form in which a contraction reads its activations. It affects the bits of
 * the result. */
enum activations {
    ACTIVATIONS_F32,
    ACTIVATIONS_Q8, /* blocks of 8-bit values with a scale each, written by
                       KERNEL_quantize */
};

/* Returns the kernel's name, or "?" if there is no kernel k. */
const char *kernel_name(enum kernel k);
/* Returns the kernel with this name, or KERNEL_COUNT if there is none. */
enum kernel kernel_from_name(const char *name);
/* Returns the kernel that computes `op`, or KERNEL_COUNT if no kernel does
 * (inputs, weights, memories, reshape). */
enum kernel kernel_of_op(enum op op);
/* Returns the way in which the kernel accesses argument i: read, write or
 * update; 0 if it has no such argument. */
enum access kernel_access(enum kernel k, int i);
bool kernel_arg_is_optional(enum kernel k, int i);
/* Returns true if the kernel multiplies activations with the rows of a weight.
 * Its arguments are then the result, the activations, the weight, the choice of
 * experts if it has one, and the quantized activations. */
bool kernel_is_contraction(enum kernel k);
/* Returns true if the kernel is an attention: it reads caches through the
 * micro-batch's token table, and maps each query head to a KV head. */
bool kernel_is_attention(enum kernel k);
/* Returns true for kernels that choose positions or blocks for attention. */
bool kernel_is_index(enum kernel k);
/* Returns true if the kernel reads or writes argument i as blocks of 8-bit
 * values (struct q8_block). */
bool kernel_arg_is_q8(enum kernel k, int i);
/* Returns the letter that kernels.def has for the values of argument i, such as
 * 'f' for F32. */
char kernel_values(enum kernel k, int i);
/* Returns true if argument i is a cache or a state. All caches and states of
 * one kernel call belong to one pool. */
static inline bool kernel_arg_is_memory(enum kernel k, int i)
{
    return kernel_values(k, i) == 'c' || kernel_values(k, i) == 's';
}
/* Returns true if several heads of one argument share a head of another, as
 * query heads share a KV head. Sets *many and *few to the numbers of these
 * arguments. insn_kernel.head_map tells which heads belong together. */
bool kernel_maps_heads(enum kernel k, int *many, int *few);
/* Returns true if argument i is the micro-batch's token table
 * (program_token_table). */
bool kernel_arg_is_token_table(enum kernel k, int i);

/* The ranks whose addends a contraction over a split dimension computes, and
 * the order in which they are summed. item[] lists, in ascending order, the
 * device's ranks that have an addend. A kernel computes one addend after
 * another and pushes each on a stack. After each addend, it replaces the two
 * topmost entries by their sum (lower + upper), n_add times. n_out entries
 * remain; entry i is written to the result's address plus i * out_stride bytes.
 * A contraction over a dimension that is not split has one item {0, 0} and
 * n_out = 1. */
struct tree_addend {
    int32_t rank, n_add;
};
struct rank_tree {
    int n, n_out;
    const struct tree_addend *item; /* [n] the ranks and their numbers of
                                       additions */
    int depth; /* greatest number of entries on the stack */
};

/* An interval of the dimension over which plain (not packed) operands are
 * summed, as this device stores it. Intervals are ascending, and each belongs
 * to one rank. For packed weights, struct pack has the same information. */
struct rank_span {
    /* first index in the whole dimension, first index on this device, and
     * number of indices */
    int64_t logical, local, n;
    int32_t rank;
};

/* A call of a caller-defined op: its functions, and the parts of its operands
 * and its result that are on this device. */
struct kernel_custom {
    const pl_op_def *def;
    struct kernel_custom_split {
        int dim; /* index of the dimension that is split; -1 if none is */
        int n;
        const pl_op_part *part;
    } in[GRAPH_MAX_IN], out;
};

/* The token table of a micro-batch, with the page table of one pool. In device
 * memory the token table is a tensor (program_token_table); the pointers here
 * refer to it. cache_tile.h describes pages. */
struct token_table {
    int64_t n_tok, n_out;
    const int32_t *pos;   /* [n_tok] position of each token in its sequence */
    const int32_t *seq;   /* [n_tok] for each token, the row of `pages` for its
                             sequence; tokens of a sequence are adjacent */
    const int32_t *pages; /* [n_seq, page_stride] the numbers of each sequence's
                             pages */
    int64_t page_stride;
};

/* For performance counters, the number of multiply-adds of one rank in a
 * contraction: `macs` times the product of the result's leading dimensions. */
struct kernel_cost {
    int32_t rank;
    /* multiply-adds per row of activations; for head_matmul, per token over all
     * heads */
    int64_t macs;
};
/* Returns the number of the result's leading dimensions by which
 * kernel_cost.macs is multiplied, if the result has n_dim dimensions. */
static inline int kernel_cost_dims(enum kernel k, int n_dim)
{
    return n_dim - (k == KERNEL_head_matmul ? 2 : 1);
}

#endif
