/* Buffers of one device's work region: lifetimes, places, meeting points. */
#ifndef EXEC_BUFFERS_H
#define EXEC_BUFFERS_H

#include "base/arena.h"
#include "device/program.h"

struct buffer {
    size_t bytes;     /* multiple of 64 */
    int birth, death; /* first and last step that touches it; -1: before */
    size_t offset;    /* filled by buffers_place */
};

/* Gives each buffer a place so that buffers whose lifetimes meet do not
 * overlap; best fit in order of birth. *total is the region's size. */
bool buffers_place(struct buffer *b, int n, size_t *total);

/* Sets step.barrier where a step reads what an earlier one wrote, or writes
 * what an earlier one touched, since the last meeting of the device's threads;
 * and for runs of a single token step.alone, for what is too small to share,
 * and step.barrier_one: what the first thread does alone is in order by itself.
 * Tensors have their final offsets. False: out of memory. */
bool buffers_barriers(struct step *step, int n_step,
                      const struct prog_tensor *t, int dev);

#endif
