/* Functions shared by the files that parse programs. */
#ifndef PROGRAM_PROGRAM_READ_H
#define PROGRAM_PROGRAM_READ_H

#include "base/arena.h"
#include "program/program_form.h"
#include "program/program_lex.h"

/* A list that grows while a text is parsed and is moved to the arena when its
 * length is known. The size of its elements may change between uses. */
struct read_list {
    void *p;      /* owned */
    size_t bytes; /* capacity in bytes */
    int n;
};

/* A device under construction: the part of its text that has been parsed. */
struct read_dev {
    struct program p;
    /* Tensors of the device; instructions and dead ranges of the current
     * variant. */
    struct read_list tensor, insn, dead;
    struct variant variant[PROG_MAX_VARIANT];
    /* End of each region's tensors, a multiple of 64. */
    size_t end[REGION_COUNT];
    /* one more than the highest event number, and group number, used */
    int end_event, end_group;
};

struct read {
    struct lex x;
    struct arena *a;
    int n_dev; /* number of devices, from the first line */
    /* Sizes for devices without a `max` line of their own. */
    struct program common;
    struct read_list dev; /* struct read_dev, the devices read so far */
    int n_variant;
    struct form_order order;
    int64_t n_chunk; /* number of chunks of all packings so far */
    int64_t n_event;
    struct read_list part, item; /* used while a line is parsed */
};

bool read_no_memory(struct read *r); /* sets the error; returns false */
/* Appends a zeroed element of `size` bytes and returns it. Returns NULL after
 * an error. */
void *read_add(struct read *r, struct read_list *l, size_t size);
/* Moves the elements into the arena, empties the list, and sets *n to their
 * number. Returns NULL if the list was empty, or after an error. */
const void *read_take(struct read *r, struct read_list *l, size_t size, int *n);

/* The device whose instruction is being parsed. A line may have several. */
struct read_at {
    struct read_dev *dev;
    const int *with; /* [n_with], all devices of the line */
    int n_with;
    bool first; /* this is the first device of the line */
};

/* Parses the line of a tensor of device `d`. */
bool read_tensor_line(struct read *r, struct read_dev *d);

/* Parses the part of an instruction's line after the colon, except `dies`. */
bool read_insn(struct read *r, const struct read_at *at, struct insn *s);

/* Parses a kernel call, from its result on. */
bool read_kernel(struct read *r, const struct read_at *at,
                 struct insn_kernel *k);

/* Parses a list of entries in parentheses. Calls `one` for each, with a new
 * element of r->part, which has `size` bytes. */
typedef bool read_entry_fn(struct read *r, const struct read_at *at, void *out);
bool read_entries(struct read *r, const struct read_at *at, read_entry_fn *one,
                  size_t size);
/* Parses a map of heads, such as "(0, -, 1)". It must have as many entries as
 * tensor `tensor` of `dev` has heads, none if the tensor has no heads. */
bool read_heads(struct read *r, const struct read_at *at,
                const struct read_dev *dev, int tensor, const int32_t **map);
/* Returns device `d`, or NULL if the text has no such device. */
struct read_dev *read_device(struct read *r, int d);
bool read_adds(struct read *r, int *n);        /* counts '+' after an entry */
bool read_rank(struct read *r, int32_t *rank); /* reads "{3}" */

bool read_index(struct read *r, int *out); /* reads 0 .. INT32_MAX */
bool read_bytes(struct read *r, size_t *out);
/* Reads a tensor's number, such as "%5". */
bool read_tensor(struct read *r, int *out);

#endif
