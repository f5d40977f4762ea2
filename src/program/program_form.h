/* Defaults for the parts that a line of the text form of programs leaves out,
 * and limits of its sizes. Used by printing and parsing. */
#ifndef PROGRAM_PROGRAM_FORM_H
#define PROGRAM_PROGRAM_FORM_H

#include "program/program.h"

enum {
    FORM_MAX_DEV = 1024,
    FORM_MAX_WITH = 64,       /* maximum number of devices in one line */
    FORM_MAX_EVENT = 1 << 22, /* maximum number of events of all devices */
    FORM_MAX_CHUNK = 1 << 20, /* maximum number of chunks of all packings */
};
/* The limit of numbers of bytes. A size times the largest n_tok stays below, so
 * that no check of a parsed program overflows. */
#define FORM_MAX_BYTES ((int64_t)1 << 62)

extern const char *const form_regions[REGION_COUNT];

/* Sets *bytes to the size of a tensor, computed from its format, dimensions and
 * packing. Returns false if these do not determine it. */
bool form_tensor_bytes(const struct prog_tensor *t,
                       const struct graph_sizes *max, size_t *bytes);

/* Returns the number of heads of tensor t of tensor[n_tensor], which has the
 * shape [rows, heads, ...]. Returns -1 if it has another shape or does not
 * exist. */
int64_t form_heads(const struct prog_tensor *tensor, int n_tensor, int t);
/* Returns the size in bytes of a tile of cache t, or 0 if t is not a cache. */
size_t form_tile(const struct prog_tensor *tensor, int n_tensor, int t);

/* The heights of the stack on which the entries of a tree or a sum are pushed;
 * {0} is empty. form_push pushes an entry and then performs n_add additions. */
struct form_stack {
    int top, depth;
};
void form_push(struct form_stack *s, int n_add);

/* The default tree of a kernel, whose only addend is form_whole. */
extern const struct tree_addend form_whole;
struct rank_tree form_tree(enum kernel k);

/* State for the default position in the total order: one after the instruction
 * in the line above. If that instruction is of the same barrier and of an
 * earlier device, the position is the same. form_order returns the default
 * position of `s`; form_order_took records `s` as the instruction above. */
struct form_order {
    int dev;
    bool any;         /* an instruction was in a line above */
    struct insn last; /* the instruction above */
};
int64_t form_order(const struct form_order *o, int dev, const struct insn *s);
void form_order_took(struct form_order *o, int dev, const struct insn *s);

#endif
