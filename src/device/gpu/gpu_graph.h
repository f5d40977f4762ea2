/* Device graphs: launches that are the same in several steps, queued with one
 * call.
 *
 * The launches of a variant depend only on the sizes of the step and on the
 * page count of its longest sequence, rounded to a power of two. Everything
 * else that changes (positions, pages, tokens) is read from memory by the
 * kernels. When a variant is executed for the second time with the same small
 * sizes, its launches become device graphs. A graph holds the launches of one
 * queue between two events, except those of instructions for which the issuing
 * thread copies bytes. In a graph, a launch waits only for launches that access
 * the same bytes.
 *
 * If the driver's graphs can wait for words and store them, events of and for
 * other devices are part of graphs, so that a graph may hold a whole step of
 * one queue. Such an event waits for all launches before it, and all launches
 * after it wait for it. */
#ifndef DEVICE_GPU_GPU_GRAPH_H
#define DEVICE_GPU_GPU_GRAPH_H

#include "device/gpu/gpu_driver.h"

enum {
    /* most combinations of variant and sizes whose graphs are kept; the least
     * recently used one is replaced */
    GPU_GRAPH_RUNS = 32,
    /* most tokens of a micro-batch that gets graphs; with more, the GPU is busy
     * longer than the thread that issues the launches */
    GPU_GRAPH_ROWS = 64,
    GPU_GRAPH_LEAST = 4, /* minimum number of launches in a graph */
};

struct gpu_segment {
    /* indices of the segment's first and last instruction in the variant */
    int first, last;
    bool has_events;
    struct gpu_graph *graph; /* the device graph of the segment; owned */
};

/* The device graphs of a variant, for certain sizes of a step. */
struct gpu_cached_graph {
    /* variant that the graphs are of; NULL if this entry is unused */
    const struct variant *variant;
    int n_micro;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* by micro-batch: the result of gpu_image_pages() */
    int64_t n_page[PROG_MAX_MICRO];
    uint64_t used; /* number of the last step that used this
                                       entry; 0 if none */
    bool made;     /* the graphs were created, or creating them
                                       failed */
    int n_segment;
    /* the segments that became graphs, [n_segment]; owned */
    struct gpu_segment *segment;
    /* by instruction of the variant, the index of the segment that contains it;
     * -1 if none; owned */
    int *of;
};

struct gpu_graphs {
    struct gpu_cached_graph recording[GPU_GRAPH_RUNS];
    const struct gpu_cached_graph *now; /* the graphs of the step in progress;
                                           NULL if none */
};

struct gpu_device;

/* Finds or creates the graphs of the step in progress, whose launches have been
 * created already. If a graph cannot be created, its launches are queued one by
 * one. */
void gpu_graph_begin(struct gpu_device *x);
/* Sets *is_in to whether the enabled instruction i is in a graph, and *is_first
 * to whether it is the first one there; then the graph is queued, and its
 * events become points of the step. The caller queues the instruction only if
 * *is_in is false. */
pl_status gpu_graph_insn(struct gpu_device *x, int i, bool *is_in,
                         bool *is_first, pl_err *err);
/* Frees all graphs, which must not be in flight. */
void gpu_graph_end(struct gpu_device *x);

#endif
