/* Device graphs: launches that an earlier step had too, queued with one call.
 *
 * The launches of a variant depend only on the sizes of its step and on the
 * pages of its longest sequence, rounded to powers of two. Everything else that
 * changes (positions, pages, tokens) is read from memory by the kernels. When a
 * variant runs for the second time with the same small sizes, its launches
 * become device graphs. A graph holds the launches between two events of a
 * queue, except instructions that the thread carries out itself. Events stay
 * what they were. In a graph a launch waits only for launches that access the
 * same bytes. */
#ifndef DEVICE_GPU_GPU_GRAPH_H
#define DEVICE_GPU_GPU_GRAPH_H

#include "device/gpu/gpu_driver.h"

enum {
    GPU_GRAPH_RUNS = 32, /* cached; the least recently used one is replaced */
    /* of a micro-batch, at most: with more, launches take longer than issuing
     * them */
    GPU_GRAPH_ROWS = 64,
    GPU_GRAPH_LEAST = 4, /* fewest launches of a graph */
};

struct gpu_segment {
    int first;               /* its first instruction in the variant */
    struct gpu_graph *graph; /* owned */
};

/* A variant with its sizes. */
struct gpu_cached_graph {
    const struct variant *variant; /* NULL: unused */
    int n_micro;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    int64_t n_page[PROG_MAX_MICRO]; /* of gpu_image_pages() */
    uint64_t used;                  /* number of the last step that matched */
    bool made;                      /* made, or impossible to make */
    int n_segment;
    struct gpu_segment *segment; /* owned */
    /* owned, [instructions of the variant]: segment of each; -1: none */
    int *of;
};

struct gpu_graphs {
    struct gpu_cached_graph recording[GPU_GRAPH_RUNS];
    const struct gpu_cached_graph *now; /* of this step; NULL: it has none */
};

struct gpu_device;

/* Finds the graphs of a step whose launches are made, or makes them. Does
 * without those that cannot be made. */
void gpu_graph_begin(struct gpu_device *x);
/* Sets *is_in if instruction i, which is enabled, is in a graph. Its launches
 * were then queued now or with an earlier instruction. */
pl_status gpu_graph_insn(struct gpu_device *x, int i, bool *is_in, pl_err *err);
/* Frees all graphs; none may be in flight. */
void gpu_graph_end(struct gpu_device *x);

#endif
