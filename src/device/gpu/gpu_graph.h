/* Launches that a run has had before, put into a queue by one call.
 *
 * A script's launches depend on the sizes of its run alone, and on how many
 * pages, in powers of two, its longest sequence has; what else changes,
 * positions, pages, tokens, kernels read from memory. So when a script is run
 * for the second time with the same sizes, few rows, its launches become graphs
 * of the driver: those between two events of a queue, steps that the thread
 * must carry out itself apart. Events stay what they were. In a graph a launch
 * waits only for those whose bytes it touches. */
#ifndef DEVICE_GPU_GPU_GRAPH_H
#define DEVICE_GPU_GPU_GRAPH_H

#include "device/gpu/gpu_driver.h"

enum {
    GPU_GRAPH_RUNS = 32, /* that are kept; the one unused for longest goes */
    GPU_GRAPH_ROWS = 64, /* of a micro-batch, at most: launches of more take
                             longer than it takes to issue them */
    GPU_GRAPH_LEAST = 4, /* launches of a graph */
};

struct gpu_segment {
    int first;               /* step of the script that it begins with */
    struct gpu_graph *graph; /* owned */
};

/* A script with its sizes. */
struct gpu_cached_graph {
    const struct variant *variant; /* NULL: nothing yet */
    int n_micro;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    int64_t n_page[PROG_MAX_MICRO]; /* of gpu_image_pages() */
    uint64_t used;                  /* the last run that was like it */
    bool made;                      /* or could not be */
    int n_segment;
    struct gpu_segment *segment; /* owned */
    int *of; /* owned, [steps of the script]: segment that the step is in; -1:
                none */
};

struct gpu_graphs {
    struct gpu_cached_graph recording[GPU_GRAPH_RUNS];
    const struct gpu_cached_graph *now; /* of this run; NULL: it has none */
};

struct gpu_device;

/* Finds the graphs of a run whose launches are made, or makes them. What cannot
 * be made is done without. */
void gpu_graph_begin(struct gpu_device *x);
/* Is step i, which the run has, in a graph? Then its launches have been put
 * into its queue now, or with an earlier step. */
pl_status gpu_graph_insn(struct gpu_device *x, int i, bool *is_in, pl_err *err);
/* Gives all back; nothing of it is under way. */
void gpu_graph_end(struct gpu_device *x);

#endif
