/* Shared by the files that parse programs. */
#ifndef PROGRAM_PROGRAM_READ_H
#define PROGRAM_PROGRAM_READ_H

#include "base/arena.h"
#include "program/program_form.h"
#include "program/program_lex.h"

/* A list that grows while it is read and is moved to the arena when its length
 * is known. Its element size may change between uses. */
struct read_list {
    void *p;      /* owned */
    size_t bytes; /* capacity */
    int n;
};

/* A device as read so far. */
struct read_dev {
    struct program p;
    struct read_list tensor, insn, dead; /* insn, dead: of this variant */
    struct variant variant[PROG_MAX_VARIANT];
    size_t end[REGION_COUNT]; /* end of its tensors, a multiple of 64 */
    int end_event, end_group; /* one above the highest named */
};

struct read {
    struct lex x;
    struct arena *a;
    int n_dev;             /* from the first line */
    struct program common; /* largest sizes, for devices that name none */
    struct read_list dev;  /* struct read_dev, those read so far */
    int n_variant;
    struct form_order order;
    int64_t n_chunk; /* of all packings so far */
    int64_t n_event;
    struct read_list part, item; /* while a line is read */
};

bool read_no_memory(struct read *r); /* returns false */
/* Appends a zeroed element. NULL after an error. */
void *read_add(struct read *r, struct read_list *l, size_t size);
/* Moves the elements into the arena and empties the list; sets *n to their
 * number. NULL if it was empty, or after an error. */
const void *read_take(struct read *r, struct read_list *l, size_t size, int *n);

/* The device being read, one of several on the line. */
struct read_at {
    struct read_dev *dev;
    const int *with; /* [n_with] the line's devices */
    int n_with;
    bool first; /* the first of these devices */
};

/* Reads a tensor's line, of device d. */
bool read_tensor_line(struct read *r, struct read_dev *d);

/* Reads what follows the colon of an instruction's line, except `dies`. */
bool read_insn(struct read *r, const struct read_at *at, struct insn *s);

/* Reads a kernel call, starting at its result. */
bool read_kernel(struct read *r, const struct read_at *at,
                 struct insn_kernel *k);

/* Reads entries in parentheses, each by `one` into a new element of r->part. */
typedef bool read_entry_fn(struct read *r, const struct read_at *at, void *out);
bool read_entries(struct read *r, const struct read_at *at, read_entry_fn *one,
                  size_t size);
/* Reads "(0, -, 1)": as many as the device's tensor has heads, none if it has
 * no heads. */
bool read_heads(struct read *r, const struct read_at *at,
                const struct read_dev *dev, int tensor, const int32_t **map);
/* Returns NULL if the text has no such device. */
struct read_dev *read_device(struct read *r, int d);
bool read_adds(struct read *r, int *n);        /* the '+' after an entry */
bool read_rank(struct read *r, int32_t *rank); /* "{3}" */

bool read_index(struct read *r, int *out); /* 0 .. INT32_MAX */
bool read_bytes(struct read *r, size_t *out);
/* "%5" */
bool read_tensor(struct read *r, int *out);

#endif
