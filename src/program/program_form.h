/* Defaults for what a line of the text form of programs leaves out, and its
 * size limits. Shared by printing and parsing. */
#ifndef PROGRAM_PROGRAM_FORM_H
#define PROGRAM_PROGRAM_FORM_H

#include "program/program.h"

enum {
    FORM_MAX_DEV = 1024,
    FORM_MAX_WITH = 64,       /* devices of one line */
    FORM_MAX_EVENT = 1 << 22, /* of all devices */
    FORM_MAX_CHUNK = 1 << 20, /* of all packings */
};
/* The limit of byte counts. A size times its growth stays below, so that no
 * check of a parsed program overflows. */
#define FORM_MAX_BYTES ((int64_t)1 << 62)

extern const char *const form_regions[REGION_COUNT];

/* Computes a tensor's bytes from its format, dimensions and packing. Returns
 * false if these do not determine them. */
bool form_tensor_bytes(const struct prog_tensor *t,
                       const struct graph_sizes *max, size_t *bytes);

/* Returns the heads of tensor t, a [rows, heads, ...]; -1 if it has another
 * shape or does not exist. */
int64_t form_heads(const struct prog_tensor *tensor, int n_tensor, int t);
/* Returns the bytes of a tile of cache t; 0 if it is not a cache. */
size_t form_tile(const struct prog_tensor *tensor, int n_tensor, int t);

/* The stack on which the entries of a tree or a sum are pushed; {0} is
 * empty. */
struct form_stack {
    int top, depth;
};
void form_push(struct form_stack *s, int n_add);

/* The tree of a kernel whose line names none. */
extern const struct tree_addend form_whole;
struct rank_tree form_tree(enum kernel k);

/* The default position in the order: after the instruction above. An
 * instruction of the same barrier on a later device has that instruction's
 * position. */
struct form_order {
    int dev;
    bool any;         /* there is an instruction above */
    struct insn last; /* that instruction */
};
int64_t form_order(const struct form_order *o, int dev, const struct insn *s);
void form_order_took(struct form_order *o, int dev, const struct insn *s);

#endif
