/* Buffers of one device's work region: lifetimes and places. */
#ifndef EXEC_BUFFERS_H
#define EXEC_BUFFERS_H

#include "base/arena.h"
#include "program/program.h"

struct buffer {
    size_t bytes;     /* multiple of 64 */
    int birth, death; /* first and last step that touches it; -1: before */
    size_t offset;    /* filled by buffers_place */
};

/* Gives each buffer a place so that buffers whose lifetimes meet do not
 * overlap; best fit in order of birth. *total is the region's size. */
bool buffers_place(struct buffer *b, int n, size_t *total);

#endif
