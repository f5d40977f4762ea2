/* The parts of HIP and of its compiler hiprtc that CUDA lacks, declared under
 * our own names; stream_api.h declares what both have. `make check-hip`
 * compares the declarations with AMD's headers.
 *
 * Source: HIP Runtime API reference, 5.2 and 6.2; the numbers and parameters
 * here are the same in both versions. */
#ifndef DEVICE_GPU_HIP_API_H
#define DEVICE_GPU_HIP_API_H

#include <stddef.h>
#include <stdint.h>

struct api_stream;
struct api_graph;
struct hip_properties; /* properties of a device; only the strings are read */
struct hiprtc_program;

/* Attributes of hipDeviceGetAttribute. */
enum {
    HIP_MAPS_HOST_MEMORY = 3,
    HIP_CLOCK_KHZ = 5,
    HIP_INTEGRATED = 16,
    HIP_MEMORY_BUS_BITS = 59,
    HIP_MEMORY_CLOCK_KHZ = 60,
    HIP_N_MULTIPROCESSOR = 63,
    HIP_STREAMS_KNOW_WORDS = 10013,
};

enum {
    HIP_CODE_INVALID_DEVICE = 101, /* result of hipInit before 6.0 if there is
                                      no device */
    /* flag of an event: when it is reached, all devices see the effects of
     * earlier commands */
    HIP_EVENT_FENCED = (int)0x80000000,
    HIP_WAIT_AT_LEAST = 0,
    HIP_COPY_TO_DEVICE = 1,
    HIP_COPY_TO_HOST = 2,
    HIP_COPY_ANY = 4, /* HIP infers the direction from the addresses */
    HIP_CAPTURE_OF_THREAD = 1,
    /* flag of an allocation: other devices see each write at once */
    HIP_FINE_GRAINED = 1,
};

/* HIP_PROPERTIES_BYTES is more than the size of struct hipDeviceProp_t in any
 * version. The struct begins with a name of HIP_NAME_BYTES bytes; the offsets
 * of later members differ between versions. */
enum { HIP_PROPERTIES_BYTES = 16384, HIP_NAME_BYTES = 256 };

/* Functions of HIP's library: name, parameters. */
#define HIP_CALL_MAP(X)                                                        \
    X(hipSetDevice, (int device))                                              \
    X(hipGetDevice, (int *device))                                             \
    X(hipDeviceEnablePeerAccess, (int peer, unsigned flags))                   \
    X(hipExtMallocWithFlags,                                                   \
      (API_ADDRESS * out, size_t bytes, unsigned flags))                       \
    X(hipMemcpyAsync, (void *dst, const void *src, size_t bytes,               \
                       unsigned direction, struct api_stream *s))              \
    X(hipStreamWriteValue64,                                                   \
      (struct api_stream * s, void *at, uint64_t value, unsigned flags))       \
    X(hipStreamWaitValue64, (struct api_stream * s, void *at, uint64_t value,  \
                             unsigned flags, uint64_t mask))                   \
    X(hipStreamBeginCapture, (struct api_stream * s, unsigned mode))           \
    X(hipStreamEndCapture, (struct api_stream * s, struct api_graph * *out))   \
    X(hipGetDeviceProperties, (struct hip_properties * out, int device))

/* Functions of hiprtc: name, parameters. */
#define HIPRTC_CALL_MAP(X)                                                     \
    X(hiprtcVersion, (int *major, int *minor))                                 \
    X(hiprtcCreateProgram,                                                     \
      (struct hiprtc_program * *out, const char *text, const char *name,       \
       int n_header, const char **header, const char **header_name))           \
    X(hiprtcCompileProgram,                                                    \
      (struct hiprtc_program * p, int n_option, const char **option))          \
    X(hiprtcGetProgramLogSize, (struct hiprtc_program * p, size_t * n))        \
    X(hiprtcGetProgramLog, (struct hiprtc_program * p, char *out))             \
    X(hiprtcGetCodeSize, (struct hiprtc_program * p, size_t * n))              \
    X(hiprtcGetCode, (struct hiprtc_program * p, char *out))                   \
    X(hiprtcDestroyProgram, (struct hiprtc_program * *p))

#endif
