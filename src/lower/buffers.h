/* Pass "buffers": assigns offsets to buffers by their lifetimes. */
#ifndef LOWER_BUFFERS_H
#define LOWER_BUFFERS_H

#include "base/arena.h"
#include "program/program.h"

struct buffer {
    size_t bytes; /* multiple of 64 */
    /* first and last instruction that accesses it; -1: before */
    int birth, death;
    size_t offset; /* set by buffers_place */
    enum region region;
};

/* Assigns an offset to each buffer of a region, so that buffers whose lifetimes
 * intersect do not overlap: best fit in order of birth. Memory is used again
 * more than `rest` instructions after its last access. Sets *total to the
 * region's size. Returns false if out of memory. */
bool buffers_place(struct buffer *b, int n_buffer, enum region region, int rest,
                   size_t *total);

/* Assigns offsets to all buffers of the programs p[n_dev], and lists the memory
 * that becomes unused (dead_range). Afterwards the programs have no buffers and
 * no holds. is_private[d]: no other device reads the memory of device d.
 * Returns PL_BAD_ARGUMENT if an instruction names a tensor that its device does
 * not have. Only a parsed text can. */
pl_status buffers_pass(struct program *p, int n_dev, const bool *is_private,
                       struct arena *a, pl_err *err);

#endif
