/* Defaults for the parts that a line of the text form of programs leaves out,
 * and limits of its sizes. Used by printing and parsing. */
#ifndef PROGRAM_PROGRAM_FORM_H
#define PROGRAM_PROGRAM_FORM_H

#include "program/program.h"

enum {
    FORM_MAX_DEV = 1024,
    FORM_MAX_WITH = 64,       /* maximum number of devices that a line of the
                                 text names */
    FORM_MAX_EVENT = 1 << 22, /* maximum number of events of all devices
                                 together */
    FORM_MAX_CHUNK = 1 << 20, /* maximum number of struct pack_chunk of all
                                 packed tensors together */
};
/* Upper limit of numbers of bytes in the text. A size of a program times the
 * largest n_tok stays below it, so that checks of a parsed program cannot
 * overflow. */
#define FORM_MAX_BYTES ((int64_t)1 << 62)

extern const char *const form_regions[REGION_COUNT];

/* Sets *bytes to the size of a tensor as it follows from its format, dimensions
 * and packing. Returns false if it does not follow from these. */
bool form_tensor_bytes(const struct prog_tensor *t,
                       const struct graph_sizes *max, size_t *bytes);

/* Returns the number of heads of the tensor with index t, which has the shape
 * [rows, heads, ...]. Returns -1 if it has another shape or does not exist. */
int64_t form_heads(const struct prog_tensor *tensor, int n_tensor, int t);
/* Returns the size in bytes of a tile of the cache with index t, or 0 if this
 * tensor is not a cache. */
size_t form_tile(const struct prog_tensor *tensor, int n_tensor, int t);

/* Number of entries on the stack of a rank tree or sum: now (top), and at most
 * so far (depth). All zero is an empty stack. form_push pushes an addend, then
 * performs n_add additions, each of which removes an entry. */
struct form_stack {
    int top, depth;
};
void form_push(struct form_stack *s, int n_add);

/* The only addend of the default rank tree of kernels, which form_tree
 * returns. */
extern const struct tree_addend form_whole;
struct rank_tree form_tree(enum kernel k);

/* State from which the default position of an instruction in the total order is
 * computed: one after that of the instruction in the line above. If both belong
 * to the same barrier and the line above is that of an earlier device, the
 * positions are equal. form_order returns the default position of `s`;
 * form_order_took records `s` as the instruction above. */
struct form_order {
    int dev;
    bool any;         /* true if a line above has an instruction */
    struct insn last; /* the instruction in the line above */
};
int64_t form_order(const struct form_order *o, int dev, const struct insn *s);
void form_order_took(struct form_order *o, int dev, const struct insn *s);

#endif
