/* Compiles if what device/gpu/cuda_api.h says of the CUDA driver API is what the
 * vendor's header says. `make check-ptx` tries, where there is such a header. */
#define cuda_context    CUctx_st
#define cuda_module     CUmod_st
#define cuda_function   CUfunc_st
#define cuda_stream     CUstream_st
#define cuda_event      CUevent_st
#define cuda_graph      CUgraph_st
#define cuda_graph_exec CUgraphExec_st
#define cuda_graph_node CUgraphNode_st
#include "device/gpu/cuda_api.h"

#include <stddef.h>

#include <cuda.h>

#define LIES(own, theirs)                                                      \
    _Static_assert(offsetof(struct cuda_kernel_node, own) ==                   \
                       offsetof(CUDA_KERNEL_NODE_PARAMS_v2, theirs),           \
                   #own);
LIES(function, func)
LIES(grid_x, gridDimX)
LIES(block_x, blockDimX)
LIES(block_z, blockDimZ)
LIES(shared_bytes, sharedMemBytes)
LIES(parameter, kernelParams)
LIES(extra, extra)
LIES(kernel, kern)
LIES(context, ctx)
_Static_assert(sizeof(struct cuda_kernel_node) ==
                   sizeof(CUDA_KERNEL_NODE_PARAMS_v2),
               "size");
#define cuda_kernel_node CUDA_KERNEL_NODE_PARAMS_v2_st

#define SAME(name, suffix, parameters)                                         \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name##suffix),      \
                                                unsigned parameters),          \
                   #name #suffix);
#define IS(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own);

CUDA_CALL_MAP(SAME)
IS(CUDA_SUCCESS_CODE, CUDA_SUCCESS)
IS(CUDA_CODE_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)
IS(CUDA_CODE_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
IS(CUDA_CODE_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
IS(CUDA_CODE_INVALID_PTX, CUDA_ERROR_INVALID_PTX)
IS(CUDA_CODE_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
IS(CUDA_CODE_NOT_READY, CUDA_ERROR_NOT_READY)
IS(CUDA_CODE_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
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
IS(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
IS(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING)
IS(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
IS(CUDA_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE)
IS(CUDA_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP)
IS(CUDA_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP)
IS(CUDA_WRITE_FENCED, CU_STREAM_WRITE_VALUE_DEFAULT)
IS(CUDA_WAIT_AT_LEAST, CU_STREAM_WAIT_VALUE_GEQ)
IS(CUDA_WAIT_FLUSH, CU_STREAM_WAIT_VALUE_FLUSH)
IS(CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER)
IS(CUDA_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
