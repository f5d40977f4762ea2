/* Shared by the files that parse programs. */
#ifndef PROGRAM_PROGRAM_READ_H
#define PROGRAM_PROGRAM_READ_H

#include "base/arena.h"
#include "program/program_form.h"
#include "program/program_lex.h"

/* What grows while it is read; it goes to the arena when its length is known.
 * Elements may be of one size now and of another one later. */
struct read_list {
    void *p;      /* owned */
    size_t bytes; /* of room */
    int n;
};

/* A device as read so far. */
struct read_dev {
    struct program p;
    struct read_list tensor, insn, dead; /* steps, deaths: of this script */
    struct variant variant[PROG_MAX_VARIANT];
    size_t end[REGION_COUNT]; /* of its tensors, a multiple of 64 */
    int end_event, end_group; /* above the highest that is named */
};

struct read {
    struct lex x;
    struct arena *a;
    int n_dev;             /* as the first line says */
    struct program common; /* largest sizes of devices that tell none */
    struct read_list dev;  /* struct read_dev, as many as there were */
    int n_variant;
    struct form_order order;
    int64_t n_chunk; /* of packings, so far */
    int64_t n_event;
    struct read_list part, item; /* while a line is read */
};

bool read_no_memory(struct read *r); /* false */
/* A new element, zeros; NULL after an error. */
void *read_add(struct read *r, struct read_list *l, size_t size);
/* The elements, moved into the arena; *n says how many. NULL: none, or an
 * error. The list is empty then. */
const void *read_take(struct read *r, struct read_list *l, size_t size, int *n);

/* Of the device whose line is read: one of several on the line. */
struct read_at {
    struct read_dev *dev;
    const int *with; /* [n_with] the line's devices */
    int n_with;
    bool first; /* it is the first of them */
};

/* A tensor's line, of device d. */
bool read_tensor_line(struct read *r, struct read_dev *d);

/* What stands behind the colon of a step's line, except `dies`. */
bool read_insn(struct read *r, const struct read_at *at, struct insn *s);

/* A kernel's: its result is what stands next. */
bool read_kernel(struct read *r, const struct read_at *at,
                 struct insn_kernel *k);

/* Entries in parentheses, each taken by `one` into a new element of r->part. */
typedef bool read_entry_fn(struct read *r, const struct read_at *at, void *out);
bool read_entries(struct read *r, const struct read_at *at, read_entry_fn *one,
                  size_t size);
/* "(0, -, 1)": as many as the device's tensor has heads, none if it has no
 * such. */
bool read_heads(struct read *r, const struct read_at *at,
                const struct read_dev *dev, int tensor, const int32_t **map);
/* NULL: the text tells of no such device. */
struct read_dev *read_device(struct read *r, int d);
bool read_adds(struct read *r, int *n);        /* the '+' behind an entry */
bool read_rank(struct read *r, int32_t *rank); /* "{3}" */

bool read_index(struct read *r, int *out); /* 0 .. INT32_MAX */
bool read_bytes(struct read *r, size_t *out);
/* "%5" */
bool read_tensor(struct read *r, int *out);

#endif
