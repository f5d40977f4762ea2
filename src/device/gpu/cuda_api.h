/* The parts of the CUDA driver API that HIP lacks, declared under our own
 * names; stream_api.h declares what both have. `make check-ptx` compares the
 * declarations with NVIDIA's header.
 *
 * Source: CUDA Driver API reference, 12.0. */
#ifndef DEVICE_GPU_CUDA_API_H
#define DEVICE_GPU_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

struct cuda_context;
struct cuda_graph_node;
struct api_function;
struct api_stream;
struct api_graph;

/* Mirrors CUDA_KERNEL_NODE_PARAMS: a launch in a graph. */
struct cuda_kernel_node {
    struct api_function *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameter, **extra;
};

/* Mirrors CUstreamBatchMemOpParams, of which waits and writes of 64 bits are
 * used, and CUDA_BATCH_MEM_OP_NODE_PARAMS: such operations in a graph. */
struct cuda_word_op {
    unsigned operation; /* CUDA_WORD_WAIT or CUDA_WORD_WRITE */
    unsigned long long at;
    uint64_t value;
    unsigned flags; /* those of cuStreamWaitValue64 or cuStreamWriteValue64 */
    unsigned long long alias;
    uint64_t pad;
};
struct cuda_words_node {
    struct cuda_context *context;
    unsigned n;
    struct cuda_word_op *op; /* [n] */
    unsigned flags;
};
enum { CUDA_WORD_WAIT = 4, CUDA_WORD_WRITE = 5 };

/* Mirrors CUgraphEdgeData: the kind of an edge between two nodes of a graph. If
 * all members are zero, the second node waits for the end of the first. */
struct cuda_edge {
    unsigned char from_port, to_port, type, reserved[5];
};
enum {
    /* Programmatic dependent launch: the second node may begin when all work
     * groups of the first have signalled it or ended. Its kernel then waits for
     * the first to end. */
    CUDA_PORT_PROGRAMMATIC = 1, /* value of cuda_edge.from_port */
    CUDA_EDGE_PROGRAMMATIC = 1, /* value of cuda_edge.type */
};

/* Attributes of cuDeviceGetAttribute. */
enum {
    CUDA_CLOCK_KHZ = 13,
    CUDA_N_MULTIPROCESSOR = 16,
    CUDA_MAPS_HOST_MEMORY = 19,
    CUDA_MEMORY_CLOCK_KHZ = 36,
    CUDA_MEMORY_BUS_BITS = 37,
    CUDA_CAPABILITY_MAJOR = 75,
    CUDA_CAPABILITY_MINOR = 76,
    CUDA_FLUSHES_REMOTE_WRITES = 98,
    CUDA_REGISTERS_HOST_MEMORY = 99,
    /* attribute: 1 if streams can write 64-bit words and wait for them */
    CUDA_STREAMS_KNOW_WORDS = 122,
};

/* least compute capability (90 is 9.0) for programmatic dependent launch in
 * graphs */
enum { CUDA_OVERLAPS = 90 };

enum {
    CUDA_CODE_INVALID_PTX = 218,
    /* flag of cuStreamWriteValue64: a system-wide fence precedes the write */
    CUDA_WRITE_FENCED = 0,
    CUDA_WAIT_AT_LEAST = 0,
    /* flag of cuStreamWaitValue64: commands after the wait see what other
     * devices wrote before they wrote the word */
    CUDA_WAIT_FLUSH = 1 << 30,
    CUDA_JIT_ERROR_LOG = 5,
    CUDA_JIT_ERROR_LOG_BYTES = 6,
};

/* Functions of the library: name, suffix of the symbol, parameters. */
#define CUDA_CALL_MAP(X)                                                       \
    X(cuGetErrorName, , (unsigned code, const char **out))                     \
    X(cuGetErrorString, , (unsigned code, const char **out))                   \
    X(cuDevicePrimaryCtxRetain, , (struct cuda_context * *out, int device))    \
    X(cuDevicePrimaryCtxRelease, _v2, (int device))                            \
    X(cuCtxPushCurrent, _v2, (struct cuda_context * c))                        \
    X(cuCtxPopCurrent, _v2, (struct cuda_context * *c))                        \
    X(cuCtxEnablePeerAccess, , (struct cuda_context * peer, unsigned flags))   \
    X(cuStreamWriteValue64, _v2,                                               \
      (struct api_stream * s, unsigned long long at, uint64_t value,           \
       unsigned flags))                                                        \
    X(cuStreamWaitValue64, _v2,                                                \
      (struct api_stream * s, unsigned long long at, uint64_t value,           \
       unsigned flags))                                                        \
    X(cuMemcpyHtoDAsync, _v2,                                                  \
      (unsigned long long dst, const void *src, size_t bytes,                  \
       struct api_stream *s))                                                  \
    X(cuMemcpyDtoHAsync, _v2,                                                  \
      (void *dst, unsigned long long src, size_t bytes, struct api_stream *s)) \
    X(cuMemcpyAsync, ,                                                         \
      (unsigned long long dst, unsigned long long src, size_t bytes,           \
       struct api_stream *s))                                                  \
    X(cuGraphCreate, , (struct api_graph * *out, unsigned flags))              \
    X(cuGraphAddKernelNode, ,                                                  \
      (struct cuda_graph_node * *out, struct api_graph * g,                    \
       struct cuda_graph_node *const *after, size_t n_after,                   \
       const struct cuda_kernel_node *node))

/* Functions that drivers before CUDA 12.3 lack; their pointers are NULL
 * then. */
#define CUDA_LATER_CALL_MAP(X)                                                 \
    X(cuGraphAddDependencies, _v2,                                             \
      (struct api_graph * g, struct cuda_graph_node *const *from,              \
       struct cuda_graph_node *const *to, const struct cuda_edge *edge,        \
       size_t n))                                                              \
    X(cuGraphAddBatchMemOpNode, ,                                              \
      (struct cuda_graph_node * *out, struct api_graph * g,                    \
       struct cuda_graph_node *const *after, size_t n_after,                   \
       const struct cuda_words_node *node))

#endif
