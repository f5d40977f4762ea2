/* Pass "buffers": from lives of buffers to places in memory. */
#ifndef LOWER_BUFFERS_H
#define LOWER_BUFFERS_H

#include "base/arena.h"
#include "program/program.h"

struct buffer {
    size_t bytes;     /* multiple of 64 */
    int birth, death; /* first and last step that touches it; -1: before */
    size_t offset;    /* filled by buffers_place */
    enum region region;
};

/* Gives each buffer of a region a place there so that buffers whose lifetimes
 * meet do not overlap; best fit in order of birth. A place is used again more
 * than `rest` steps behind the last that touches it. *total is the region's
 * size. */
bool buffers_place(struct buffer *b, int n_buffer, enum region region, int rest,
                   size_t *total);

/* Gives all buffers of the programs p[n_dev] their places, and lists what dies
 * where. is_private[d]: no other device reads the memory of device d. */
pl_status buffers_pass(struct program *p, int n_dev, const bool *is_private,
                       struct arena *a, pl_err *err);

#endif
