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

/* The kind of access of an instruction to a tensor. */
enum access {
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_UPDATE = ACCESS_READ | ACCESS_WRITE,
};

enum { KERNEL_MAX_ARG = GRAPH_MAX_IN + 2 };

/* The layout in which a device's kernels read a weight: rows in the format's
 * own blocks, or packed (quant/pack.h). The layout depends on which kernels
 * read the weight, enum weight_use. */
enum packing { PACKING_ROWS, PACKING_PACKED };
enum weight_use {
    USE_CONTRACTION,
    USE_LOOKUP, /* gather_rows, which can also read packed weights */
    USE_VALUES, /* all other kernels */
    USE_COUNT
};
/* The form in which a contraction reads its activations. The form affects the
 * bits of the result. */
enum activations {
    ACTIVATIONS_F32,
    ACTIVATIONS_Q8, /* blocks of 8-bit values, written by KERNEL_quantize */
};

const char *kernel_name(enum kernel k);         /* "?" if k is unknown */
enum kernel kernel_from_name(const char *name); /* KERNEL_COUNT if unknown */
/* Returns the kernel that computes `op`, or KERNEL_COUNT if no kernel does
 * (inputs, weights, memories, reshape). */
enum kernel kernel_of_op(enum op op);
/* Returns how the kernel accesses argument i; 0 if it has no such argument. */
enum access kernel_access(enum kernel k, int i);
bool kernel_arg_is_optional(enum kernel k, int i);
/* Returns true if the kernel multiplies activations with the rows of a weight.
 * Its arguments are then the result, the activations, the weight, the choice of
 * experts if it has one, and the quantized activations. */
bool kernel_is_contraction(enum kernel k);
/* Returns true if the kernel is an attention: it reads caches through the
 * micro-batch's token table, and maps each query head to a KV head. */
bool kernel_is_attention(enum kernel k);
/* Returns true if argument i consists of blocks of 8-bit values. */
bool kernel_arg_is_q8(enum kernel k, int i);
/* Returns the letter of kernels.def for the values that argument i may hold. */
char kernel_values(enum kernel k, int i);
/* Returns true if argument i is a cache or a state. All caches and states of
 * one kernel call belong to one pool. */
static inline bool kernel_arg_is_memory(enum kernel k, int i)
{
    return kernel_values(k, i) == 'c' || kernel_values(k, i) == 's';
}
/* Returns true if several heads of argument *many share a head of argument
 * *few, and sets these argument numbers. insn_kernel.head_map has the
 * assignment. */
bool kernel_maps_heads(enum kernel k, int *many, int *few);
/* Returns true if argument i is the micro-batch's token table
 * (program_token_table). */
bool kernel_arg_is_token_table(enum kernel k, int i);

/* The ranks whose addends a contraction over a split dimension computes, and
 * how they are summed. item[] lists the device's ranks that have an addend,
 * ascending. A kernel computes one addend after another and pushes each on a
 * stack. After each addend, the two topmost entries are replaced by their sum
 * (lower + upper), n_add times. n_out entries remain; entry i is written to out
 * + i * out_stride. A contraction over a dimension that is not split has one
 * item {0, 0} and n_out = 1. */
struct tree_addend {
    int32_t rank, n_add;
};
struct rank_tree {
    int n, n_out;
    const struct tree_addend *item; /* [n] */
    int depth;                      /* greatest height of the stack */
};

/* An interval of the contracted dimension of plain (not packed) operands, as
 * this device stores it. Intervals are ascending, and each counts for one rank.
 * For packed weights, the chunks of the packing contain the same
 * information. */
struct rank_span {
    /* first index in the whole dimension, first index on this device, and
     * length, in elements */
    int64_t logical, local, n;
    int32_t rank;
};

/* A call of a caller-defined op: its functions, and the parts of its operands
 * and its result that are on this device. */
struct kernel_custom {
    const pl_op_def *def;
    struct kernel_custom_split {
        int dim; /* the split dimension; -1 if none is split */
        int n;
        const pl_op_part *part;
    } in[GRAPH_MAX_IN], out;
};

/* The token table of a micro-batch, which is a tensor (program_token_table),
 * with the pages of one pool. cache_tile.h describes pages. */
struct token_table {
    int64_t n_tok, n_out;
    const int32_t *pos; /* [n_tok] positions in the sequences */
    const int32_t *seq; /* [n_tok], row of `pages`; equal values are adjacent */
    const int32_t *pages; /* [n_seq, page_stride] page numbers */
    int64_t page_stride;
};

/* The multiply-adds of a rank in a contraction, for performance counters:
 * `macs` times the product of the result's leading dimensions. */
struct kernel_cost {
    int32_t rank;
    /* multiply-adds per row; for head_matmul, per token over all heads */
    int64_t macs;
};
/* Returns the number of leading dimensions that kernel_cost multiplies, if the
 * result has n_dim. */
static inline int kernel_cost_dims(enum kernel k, int n_dim)
{
    return n_dim - (k == KERNEL_head_matmul ? 2 : 1);
}

#endif
