/* Compiles if what device/gpu/cuda_api.h and stream_api.h say of the CUDA driver
 * API is what the vendor's header says. `make check-ptx` tries, where there is
 * such a header. */
#define cuda_context    CUctx_st
#define cuda_graph_node CUgraphNode_st
#define api_module      CUmod_st
#define api_function    CUfunc_st
#define api_stream      CUstream_st
#define api_event       CUevent_st
#define api_graph       CUgraph_st
#define api_graph_exec  CUgraphExec_st
#include "device/gpu/stream_api.h"

#include <stddef.h>

/* The header gives names their newest suffix unless told not to. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define LIES(own, theirs)                                                      \
    _Static_assert(offsetof(struct cuda_kernel_node, own) ==                   \
                       offsetof(CUDA_KERNEL_NODE_PARAMS_v1, theirs),           \
                   #own);
LIES(function, func)
LIES(grid_x, gridDimX)
LIES(block_x, blockDimX)
LIES(block_z, blockDimZ)
LIES(shared_bytes, sharedMemBytes)
LIES(parameter, kernelParams)
LIES(extra, extra)
_Static_assert(sizeof(struct cuda_kernel_node) ==
                   sizeof(CUDA_KERNEL_NODE_PARAMS_v1),
               "size");
#define cuda_kernel_node CUDA_KERNEL_NODE_PARAMS_st

#define SAME(name, suffix, parameters)                                         \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name##suffix),      \
                                                unsigned parameters),          \
                   #name #suffix);
#define SAME_IN_BOTH(own, cuda, suffix, hip, parameters)                       \
    SAME(cuda, suffix, parameters)
#define IS(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own);

STREAM_CALL_MAP(SAME_IN_BOTH)
CUDA_CALL_MAP(SAME)
#define cuda_edge       CUgraphEdgeData_st
#define cuda_words_node CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st
CUDA_LATER_CALL_MAP(SAME)
#undef cuda_edge
#undef cuda_words_node
_Static_assert(sizeof(struct cuda_words_node) ==
                   sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1),
               "size");
_Static_assert(offsetof(struct cuda_words_node, op) ==
                   offsetof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, paramArray),
               "op");
_Static_assert(sizeof(struct cuda_word_op) == sizeof(CUstreamBatchMemOpParams),
               "size");
#define WORD(own, theirs)                                                      \
    _Static_assert(                                                            \
        offsetof(struct cuda_word_op, own) ==                                  \
                offsetof(CUstreamBatchMemOpParams, waitValue.theirs) &&        \
            offsetof(struct cuda_word_op, own) ==                              \
                offsetof(CUstreamBatchMemOpParams, writeValue.theirs),         \
        #own);
WORD(at, address)
WORD(value, value64)
WORD(flags, flags)
WORD(alias, alias)
IS(CUDA_WORD_WAIT, CU_STREAM_MEM_OP_WAIT_VALUE_64)
IS(CUDA_WORD_WRITE, CU_STREAM_MEM_OP_WRITE_VALUE_64)
_Static_assert(sizeof(struct cuda_edge) == sizeof(CUgraphEdgeData), "size");
_Static_assert(offsetof(struct cuda_edge, to_port) ==
                   offsetof(CUgraphEdgeData, to_port),
               "to_port");
_Static_assert(offsetof(struct cuda_edge, type) ==
                   offsetof(CUgraphEdgeData, type),
               "type");
IS(CUDA_PORT_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
IS(CUDA_EDGE_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
IS(API_SUCCESS, CUDA_SUCCESS)
IS(API_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
IS(API_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
IS(API_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
IS(API_NOT_READY, CUDA_ERROR_NOT_READY)
IS(API_ALREADY_REACHED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
IS(API_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
IS(API_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
IS(API_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING)
IS(API_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
IS(API_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE)
IS(API_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP)
IS(API_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP)
IS(CUDA_CODE_INVALID_PTX, CUDA_ERROR_INVALID_PTX)
IS(CUDA_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
IS(CUDA_N_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
IS(CUDA_MAPS_HOST_MEMORY, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)
IS(CUDA_MEMORY_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
IS(CUDA_MEMORY_BUS_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
IS(CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
IS(CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
IS(CUDA_FLUSHES_REMOTE_WRITES, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)
IS(CUDA_REGISTERS_HOST_MEMORY, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)
IS(CUDA_STREAMS_KNOW_WORDS, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
IS(CUDA_WRITE_FENCED, CU_STREAM_WRITE_VALUE_DEFAULT)
IS(CUDA_WAIT_AT_LEAST, CU_STREAM_WAIT_VALUE_GEQ)
IS(CUDA_WAIT_FLUSH, CU_STREAM_WAIT_VALUE_FLUSH)
IS(CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER)
IS(CUDA_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
