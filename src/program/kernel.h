/* Kernels: what a device can be told to compute, and what a call says beside
 * its tensors. No kind of device is known here. */
#ifndef PROGRAM_KERNEL_H
#define PROGRAM_KERNEL_H

#include "graph/graph.h"

enum kernel {
#define KERNEL(name, args, values) KERNEL_##name,
#include "program/kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

/* What a step does with a tensor. */
enum access {
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_UPDATE = ACCESS_READ | ACCESS_WRITE,
};

enum { KERNEL_MAX_ARG = GRAPH_MAX_IN + 2 };

/* How a device's kernels want a weight, by what reads it: row after row in the
 * format's own blocks, or packed (quant/pack.h). */
enum packing { PACKING_ROWS, PACKING_PACKED };
enum weight_use {
    USE_CONTRACTION,
    USE_LOOKUP, /* gather_rows; it reads a packed form too if there is one */
    USE_VALUES, /* anything else */
    USE_COUNT
};
/* What a contraction multiplies a weight with. This decides bits. */
enum activations {
    ACTIVATIONS_F32,
    ACTIVATIONS_Q8, /* blocks of 8-bit values, of KERNEL_quantize */
};

const char *kernel_name(enum kernel k); /* "?" if there is no such one */
enum kernel kernel_from_name(const char *name); /* KERNEL_COUNT if unknown */
/* The kernel that computes an op by itself; KERNEL_COUNT: none does (leaves,
 * reshape). */
enum kernel kernel_of_op(enum op op);
/* What the kernel does with argument i; 0: it has no such one. */
enum access kernel_access(enum kernel k, int i);
bool kernel_arg_is_optional(enum kernel k, int i);
/* Does it multiply activations with the rows of a weight? Its arguments are
 * then: result, activations, weight, what chooses experts if it does, and the
 * quantized activations. */
bool kernel_is_contraction(enum kernel k);
/* Does it read caches by the step's tokens, each query head a KV head of its
 * own? */
bool kernel_is_attention(enum kernel k);
/* Is argument i in blocks of 8-bit values? All others are as they are. */
bool kernel_arg_is_q8(enum kernel k, int i);
/* The letter of what argument i may hold (kernels.def). */
char kernel_values(enum kernel k, int i);
/* Is argument i a memory? Those of one kernel are of one pool. */
static inline bool kernel_arg_is_memory(enum kernel k, int i)
{
    return kernel_values(k, i) == 'c' || kernel_values(k, i) == 's';
}
/* Do several heads of argument *many go with one of argument *few? Steps say
 * which: head_map. */
bool kernel_maps_heads(enum kernel k, int *many, int *few);
/* Is argument i the micro-batch's token table (program_token_table)? */
bool kernel_arg_is_token_table(enum kernel k, int i);

/* Contractions over a split letter: which ranks' addends to compute, and how
 * to sum them. item[] lists the device's ranks that have an addend, ascending.
 * A kernel computes one rank's addend after another; each is pushed on a stack,
 * then n_add times the two topmost entries are replaced by their sum
 * (lower + upper). n_out entries remain; entry i goes to out + i * out_stride.
 * A contraction that is not split has one item {0, 0} and n_out = 1. */
struct tree_addend {
    int32_t rank, n_add;
};
struct rank_tree {
    int n, n_out;
    const struct tree_addend *item; /* [n] */
    int depth;                      /* most entries the stack ever holds */
};

/* The contracted dimension of plain operands, as this device stores it:
 * ascending intervals, each counted for one rank. Packed weights carry the
 * same in their chunks. */
struct rank_span {
    int64_t logical, local, n; /* logical start, local start, length */
    int32_t rank;
};

/* An op of the caller's own: whom to call, and what is here of the operands
 * and the result. */
struct kernel_custom {
    const pl_op_def *def;
    struct kernel_custom_split {
        int dim; /* -1: all is here */
        int n;
        const pl_op_part *part;
    } in[GRAPH_MAX_IN], out;
};

/* Who the tokens of a micro-batch are: a view of its table, which is a tensor
 * (program_token_table), with the pages of one pool, as cache_tile.h has
 * them. */
struct token_table {
    int64_t n_tok, n_out;
    const int32_t *pos;   /* [n_tok] */
    const int32_t *seq;   /* [n_tok], row of `pages`; equal ones adjacent */
    const int32_t *pages; /* [n_seq, page_stride] */
    int64_t page_stride;
};

/* Multiply-adds of a contraction, for the counters: macs times the product of
 * the result's leading dimensions, for each rank. */
struct kernel_cost {
    int32_t rank;
    int64_t macs; /* a row; of head_matmul a token, of all its heads */
};
/* How many of the result's n_dim dimensions these are. */
static inline int kernel_cost_dims(enum kernel k, int n_dim)
{
    return n_dim - (k == KERNEL_head_matmul ? 2 : 1);
}

#endif
