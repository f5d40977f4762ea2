/* Compiles if what device/gpu/hip_api.h and stream_api.h say of HIP and of
 * hiprtc is what the vendor's headers say. `make check-hip` tries. */
#define __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_HCC__ /* by which older ones go */

#define api_module           ihipModule_t
#define api_function         ihipModuleSymbol_t
#define api_stream           ihipStream_t
#define api_event            ihipEvent_t
#define api_graph            ihipGraph
#define api_graph_exec       hipGraphExec
#define hiprtc_program       _hiprtcProgram
/* The one difference that is meant: an address is a number of ours, and they
 * are passed alike. */
#define API_ADDRESS void *
#include "device/gpu/stream_api.h"

#include <stddef.h>

#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

_Static_assert(sizeof(void *) == sizeof(unsigned long long), "addresses");

#define hip_properties hipDeviceProp_t
#define SAME(name, parameters)                                                 \
    _Static_assert(                                                            \
        __builtin_types_compatible_p(__typeof__(name), unsigned parameters),   \
        #name);
#define SAME_IN_BOTH(own, cuda, suffix, hip, parameters) SAME(hip, parameters)
#define IS(own, theirs)                                  _Static_assert((int)(own) == (int)(theirs), #own);

STREAM_CALL_MAP(SAME_IN_BOTH)
HIP_CALL_MAP(SAME)
HIPRTC_CALL_MAP(SAME)
_Static_assert(__builtin_types_compatible_p(__typeof__(hipGetErrorName),
                                            const char *(unsigned)),
               "hipGetErrorName");
_Static_assert(__builtin_types_compatible_p(__typeof__(hipGetErrorString),
                                            const char *(unsigned)),
               "hipGetErrorString");
_Static_assert(__builtin_types_compatible_p(__typeof__(hiprtcGetErrorString),
                                            const char *(unsigned)),
               "hiprtcGetErrorString");
_Static_assert(sizeof(hipDeviceProp_t) <= HIP_PROPERTIES_BYTES, "properties");
_Static_assert(offsetof(hipDeviceProp_t, name) == 0, "name");
_Static_assert(sizeof((hipDeviceProp_t){0}.name) == HIP_NAME_BYTES, "name");
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) >= HIP_NAME_BYTES,
               "arch");
IS(API_SUCCESS, hipSuccess)
IS(API_SUCCESS, HIPRTC_SUCCESS)
IS(API_OUT_OF_MEMORY, hipErrorOutOfMemory)
IS(API_NO_DEVICE, hipErrorNoDevice)
IS(API_NOT_FOUND, hipErrorNotFound)
IS(API_NOT_READY, hipErrorNotReady)
IS(API_ALREADY_REACHED, hipErrorPeerAccessAlreadyEnabled)
IS(API_ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered)
IS(API_STREAM_NON_BLOCKING, hipStreamNonBlocking)
IS(API_EVENT_NO_TIMING, hipEventDisableTiming)
IS(API_HOST_PORTABLE, hipHostMallocPortable)
IS(API_HOST_PORTABLE, hipHostRegisterPortable)
IS(API_HOST_MAPPED, hipHostMallocMapped)
IS(API_HOST_MAPPED, hipHostRegisterMapped)
IS(HIP_CODE_INVALID_DEVICE, hipErrorInvalidDevice)
IS(HIP_MAPS_HOST_MEMORY, hipDeviceAttributeCanMapHostMemory)
IS(HIP_CLOCK_KHZ, hipDeviceAttributeClockRate)
IS(HIP_INTEGRATED, hipDeviceAttributeIntegrated)
IS(HIP_MEMORY_BUS_BITS, hipDeviceAttributeMemoryBusWidth)
IS(HIP_MEMORY_CLOCK_KHZ, hipDeviceAttributeMemoryClockRate)
IS(HIP_N_MULTIPROCESSOR, hipDeviceAttributeMultiprocessorCount)
IS(HIP_STREAMS_KNOW_WORDS, hipDeviceAttributeCanUseStreamWaitValue)
IS(HIP_EVENT_FENCED, hipEventReleaseToSystem)
IS(HIP_WAIT_AT_LEAST, hipStreamWaitValueGte)
IS(HIP_COPY_TO_DEVICE, hipMemcpyHostToDevice)
IS(HIP_COPY_TO_HOST, hipMemcpyDeviceToHost)
IS(HIP_COPY_ANY, hipMemcpyDefault)
IS(HIP_CAPTURE_OF_THREAD, hipStreamCaptureModeThreadLocal)
IS(HIP_FINE_GRAINED, hipDeviceMallocFinegrained)
