/* Opens the OpenCL library and translates its error codes. */
#include "device/gpu/opencl_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Opens a library that is never unloaded, because vendors' libraries have
 * threads that run until the process ends. */
static void *open_library(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

pl_status opencl_load(struct opencl *cl, pl_err *err)
{
    const char *path = getenv("PLAIT_LIBOPENCL");
    const char *lacks = NULL;

    *cl = (struct opencl){0};
    if (!path || !*path)
        path = "libOpenCL.so.1";
    PL_TRY(opencl_probe(path, err));
    cl->handle = open_library(path);
    if (!cl->handle) {
        const char *why = dlerror();

        return err_set(err, PL_UNSUPPORTED,
                       "no OpenCL found: %s; install an OpenCL loader, or set "
                       "PLAIT_LIBOPENCL to one",
                       why && strstr(why, path) ? why : path);
    }
#define FIND(result, name, parameters)                                         \
    cl->name = (result(*) parameters)dlsym(cl->handle, #name);                 \
    if (!cl->name && !lacks)                                                   \
        lacks = #name;
    OPENCL_CALL_MAP(FIND)
#undef FIND
    if (!lacks)
        return PL_OK;
    opencl_unload(cl);
    return err_set(
        err, PL_UNSUPPORTED,
        "%s has no %s: not an OpenCL 1.2 library; set PLAIT_LIBOPENCL to one",
        path, lacks);
}

void opencl_unload(struct opencl *cl)
{
    if (cl->handle)
        dlclose(cl->handle);
    *cl = (struct opencl){0};
}

/* Error codes of OpenCL 1.2 (chapter 5 of the specification). */
#define ERROR_MAP(X)                                                           \
    X(-1, DEVICE_NOT_FOUND)                                                    \
    X(-2, DEVICE_NOT_AVAILABLE)                                                \
    X(-3, COMPILER_NOT_AVAILABLE)                                              \
    X(-4, MEM_OBJECT_ALLOCATION_FAILURE)                                       \
    X(-5, OUT_OF_RESOURCES)                                                    \
    X(-6, OUT_OF_HOST_MEMORY)                                                  \
    X(-8, MEM_COPY_OVERLAP)                                                    \
    X(-11, BUILD_PROGRAM_FAILURE)                                              \
    X(-12, MAP_FAILURE)                                                        \
    X(-13, MISALIGNED_SUB_BUFFER_OFFSET)                                       \
    X(-14, EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)                          \
    X(-15, COMPILE_PROGRAM_FAILURE)                                            \
    X(-16, LINKER_NOT_AVAILABLE)                                               \
    X(-17, LINK_PROGRAM_FAILURE)                                               \
    X(-30, INVALID_VALUE)                                                      \
    X(-31, INVALID_DEVICE_TYPE)                                                \
    X(-32, INVALID_PLATFORM)                                                   \
    X(-33, INVALID_DEVICE)                                                     \
    X(-34, INVALID_CONTEXT)                                                    \
    X(-35, INVALID_QUEUE_PROPERTIES)                                           \
    X(-36, INVALID_COMMAND_QUEUE)                                              \
    X(-37, INVALID_HOST_PTR)                                                   \
    X(-38, INVALID_MEM_OBJECT)                                                 \
    X(-42, INVALID_BINARY)                                                     \
    X(-43, INVALID_BUILD_OPTIONS)                                              \
    X(-44, INVALID_PROGRAM)                                                    \
    X(-45, INVALID_PROGRAM_EXECUTABLE)                                         \
    X(-46, INVALID_KERNEL_NAME)                                                \
    X(-47, INVALID_KERNEL_DEFINITION)                                          \
    X(-48, INVALID_KERNEL)                                                     \
    X(-49, INVALID_ARG_INDEX)                                                  \
    X(-50, INVALID_ARG_VALUE)                                                  \
    X(-51, INVALID_ARG_SIZE)                                                   \
    X(-52, INVALID_KERNEL_ARGS)                                                \
    X(-53, INVALID_WORK_DIMENSION)                                             \
    X(-54, INVALID_WORK_GROUP_SIZE)                                            \
    X(-55, INVALID_WORK_ITEM_SIZE)                                             \
    X(-56, INVALID_GLOBAL_OFFSET)                                              \
    X(-57, INVALID_EVENT_WAIT_LIST)                                            \
    X(-58, INVALID_EVENT)                                                      \
    X(-59, INVALID_OPERATION)                                                  \
    X(-61, INVALID_BUFFER_SIZE)                                                \
    X(-63, INVALID_GLOBAL_WORK_SIZE)                                           \
    X(-64, INVALID_PROPERTY)                                                   \
    X(-66, INVALID_COMPILER_OPTIONS)                                           \
    X(-1001, PLATFORM_NOT_FOUND_KHR)

const char *opencl_error(int32_t code)
{
    static const struct {
        int32_t code;
        const char *name;
    } error[] = {
#define ROW(code, name) {code, "CL_" #name},
        ERROR_MAP(ROW)
#undef ROW
    };

    for (size_t i = 0; i < sizeof error / sizeof *error; i++)
        if (error[i].code == code)
            return error[i].name;
    return "an unknown error";
}

pl_status opencl_check(int32_t code, const char *function, const char *what,
                       pl_err *err)
{
    pl_status s = code == CL_ERROR_ALLOCATION ? PL_NO_DEVICE_MEMORY
                  : code == -6                ? PL_NO_MEMORY
                                              : PL_DEVICE;

    if (code == CL_OK)
        return PL_OK;
    return err_set(err, s, "%s: %s failed: %s (%d)", what, function,
                   opencl_error(code), code);
}
