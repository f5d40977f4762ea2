/* What a line of the text form of programs leaves out, and how large it lets
 * things be: what printing and reading share. */
#ifndef PROGRAM_PROGRAM_FORM_H
#define PROGRAM_PROGRAM_FORM_H

#include "program/program.h"

enum {
    FORM_MAX_DEV = 1024,
    FORM_MAX_WITH = 64,       /* devices of one line */
    FORM_MAX_EVENT = 1 << 22, /* of all devices */
    FORM_MAX_CHUNK = 1 << 20, /* of all packings */
};
/* Bytes; a size times what grows with it stays below, so that no check of a
 * program that was read overflows. */
#define FORM_MAX_BYTES ((int64_t)1 << 62)

extern const char *const form_regions[REGION_COUNT];

/* A tensor's bytes, told by its format, dimensions and packing: false if these
 * do not tell. */
bool form_tensor_bytes(const struct prog_tensor *t,
                       const struct graph_sizes *max, size_t *bytes);

/* Heads of tensor t, a [rows, heads, ...]; -1: it is none, or not there. */
int64_t form_heads(const struct prog_tensor *tensor, int n_tensor, int t);
/* Bytes of a tile of cache t; 0 if it is none. */
size_t form_tile(const struct prog_tensor *tensor, int n_tensor, int t);

/* The stack on which a tree's or a sum's entries are pushed; {0} is empty. */
struct form_stack {
    int top, depth;
};
void form_push(struct form_stack *s, int n_add);

/* The tree of a kernel that is told of none. */
extern const struct tree_addend form_whole;
struct rank_tree form_tree(enum kernel k);

/* The place of steps of which no place is told: behind the step above; of a
 * meeting, that of the one above if this is the same of a later device. */
struct form_order {
    int dev;
    bool any;         /* there is a step above */
    struct insn last; /* it */
};
int64_t form_order(const struct form_order *o, int dev, const struct insn *s);
void form_order_took(struct form_order *o, int dev, const struct insn *s);

#endif
