/* plait: large language models split over several devices as if they were one.
 *
 * This is the whole public interface. What can fail returns a pl_status and
 * takes a `pl_err *` last, which may be NULL; the message names the thing, the
 * value and the remedy. Nothing here aborts, exits or prints. Objects are
 * opaque, owned by whoever created them, and freed by one call that takes NULL.
 *
 * Shapes are written outermost first, the last dimension contiguous. */
#ifndef PL_H
#define PL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_API __attribute__((visibility("default")))

/* ---- status ------------------------------------------------------------ */

/* code, one-line meaning. The enum, the names and the texts come from here. */
#define PL_STATUS_MAP(X)                                                       \
    X(OK, "no error")                                                          \
    X(NO_MEMORY, "out of host memory")                                         \
    X(NO_DEVICE_MEMORY, "out of device memory")                                \
    X(BAD_FILE, "the file is damaged or not what it claims to be")             \
    X(BAD_ARGUMENT, "an argument is out of range or contradicts another")      \
    X(UNSUPPORTED, "valid, but not supported")                                 \
    X(NOT_FOUND, "no such thing")                                              \
    X(IO, "reading or writing failed")                                         \
    X(FULL, "a fixed capacity is used up")                                     \
    X(DEVICE, "a device failed")                                               \
    X(CANCELLED, "stopped on request")

typedef enum pl_status {
#define PL_STATUS_ENUM(name, text) PL_##name,
    PL_STATUS_MAP(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
} pl_status;

/* Filled by a call that fails. Needs no initialisation and owns nothing. */
typedef struct pl_err {
    pl_status status;
    char message[1024]; /* always terminated */
} pl_err;

/* "NO_MEMORY" and "out of host memory"; never NULL, any value allowed. */
PL_API const char *pl_status_name(pl_status s);
PL_API const char *pl_status_text(pl_status s);

/* ---- element formats --------------------------------------------------- */

/* name, GGUF id. One row a format in src/quant/format.c gives the rest. */
#define PL_FORMAT_MAP(X)                                                       \
    X(F32, 0)                                                                  \
    X(F16, 1)                                                                  \
    X(BF16, 30)                                                                \
    X(Q8_0, 8)                                                                 \
    X(Q4_0, 2)                                                                 \
    X(Q4_1, 3)                                                                 \
    X(Q5_0, 6)                                                                 \
    X(Q5_1, 7)                                                                 \
    X(Q2_K, 10)                                                                \
    X(Q3_K, 11)                                                                \
    X(Q4_K, 12)                                                                \
    X(Q5_K, 13)                                                                \
    X(Q6_K, 14)                                                                \
    X(IQ4_NL, 20)                                                              \
    X(IQ4_XS, 23)                                                              \
    X(MXFP4, 39)                                                               \
    X(I32, 26)

typedef enum pl_format {
#define PL_FORMAT_ENUM(name, id) PL_##name,
    PL_FORMAT_MAP(PL_FORMAT_ENUM)
#undef PL_FORMAT_ENUM
        PL_FORMAT_COUNT
} pl_format;

#ifdef __cplusplus
}
#endif
#endif
