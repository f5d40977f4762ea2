/* Functions shared by the files that parse programs. */
#ifndef PROGRAM_PROGRAM_READ_H
#define PROGRAM_PROGRAM_READ_H

#include "base/arena.h"
#include "program/program_form.h"
#include "program/program_lex.h"

/* A list that grows while a text is parsed. Its elements are moved to the arena
 * when their number is known. Afterwards the list may be used for elements of
 * another size. */
struct read_list {
    void *p;      /* owned: memory of the elements */
    size_t bytes; /* capacity of the list in bytes */
    int n;
};

/* The program of a device, as far as it has been parsed. */
struct read_dev {
    struct program p;
    /* the device's tensors; instructions and dead ranges of the variant that is
     * being parsed */
    struct read_list tensor, insn, dead;
    /* the device's buffers; the buffer of each tensor; holds of the variant
     * that is being parsed */
    struct read_list buffer, in_buffer, hold;
    struct variant variant[PROG_MAX_VARIANT];
    /* for each region, the end in bytes of the tensors read so far, a multiple
     * of 64 */
    size_t end[REGION_COUNT];
    size_t buffer_bytes; /* of all buffers together */
    /* one more than the highest event number, and than the highest group
     * number, that the text uses */
    int end_event, end_group;
};

struct read {
    struct lex x;
    struct arena *a;
    int n_dev; /* number of devices, which the first line of the text states */
    /* sizes from the `max` line that applies to all devices without a `max`
     * line of their own */
    struct program common;
    struct read_list dev; /* list of struct read_dev: the devices read so far */
    int n_variant;
    struct form_order order;
    int64_t n_chunk; /* number of struct pack_chunk of all packed weights so
                        far */
    int64_t n_event;
    struct read_list part, item; /* scratch lists for the elements of one
                                    line */
};

bool read_no_memory(struct read *r); /* Sets the error for a failed allocation.
                                        Returns false. */
/* Appends a zeroed element of `size` bytes to a list and returns it. Returns
 * NULL after an error. */
void *read_add(struct read *r, struct read_list *l, size_t size);
/* Moves the elements of a list to the arena, empties the list, and sets *n to
 * their number. Returns NULL if the list was empty, or after an error. */
const void *read_take(struct read *r, struct read_list *l, size_t size, int *n);

/* The device for which an instruction is parsed. If a line names several
 * devices, its instruction is parsed once for each. */
struct read_at {
    struct read_dev *dev;
    const int *with; /* [n_with] indices of all devices that the line names */
    int n_with;
    bool first; /* the device is the first that the line names */
};

/* Parses the line of a tensor or of a buffer of device `d`. */
bool read_tensor_line(struct read *r, struct read_dev *d);
bool read_buffer_line(struct read *r, struct read_dev *d);

/* Parses the part of an instruction's line after the colon. Dead ranges
 * (`dies`) are parsed elsewhere. */
bool read_insn(struct read *r, const struct read_at *at, struct insn *s);

/* Parses a kernel call such as "%1 = scale(%0) scale=2", beginning with its
 * result. */
bool read_kernel(struct read *r, const struct read_at *at,
                 struct insn_kernel *k);

/* Parses entries in parentheses, with commas between them. Calls `one` for each
 * entry, with a new element of r->part, which has `size` bytes. */
typedef bool read_entry_fn(struct read *r, const struct read_at *at, void *out);
bool read_entries(struct read *r, const struct read_at *at, read_entry_fn *one,
                  size_t size);
/* Parses a map of heads such as "(0, -, 1)". It must have one entry per head of
 * the tensor with index `tensor` of device `dev`, and none if the tensor has no
 * heads. */
bool read_heads(struct read *r, const struct read_at *at,
                const struct read_dev *dev, int tensor, const int32_t **map);
/* Returns device `d`, or NULL if the text has no such device. */
struct read_dev *read_device(struct read *r, int d);
/* Sets *n to the number of '+' after an addend. */
bool read_adds(struct read *r, int *n);
bool read_rank(struct read *r, int32_t *rank); /* Reads a rank such as "{3}". */

bool read_index(struct read *r, int *out); /* Reads an integer from 0 to
                                              INT32_MAX. */
bool read_bytes(struct read *r, size_t *out);
/* Reads a tensor's number, such as "%5". */
bool read_tensor(struct read *r, int *out);

#endif
