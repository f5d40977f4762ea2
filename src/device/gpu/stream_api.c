/* Opens the libraries of CUDA and HIP, translates their errors, and queries
 * device properties. */
#include "device/gpu/stream_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By enum stream_call: offset of the function pointer in struct stream_api. */
static const size_t offset[] = {
#define ROW(name, ...) [CALL_##name] = offsetof(struct stream_api, name),
    STREAM_CALL_MAP(ROW) CUDA_CALL_MAP(ROW) HIP_CALL_MAP(ROW)
        CUDA_LATER_CALL_MAP(ROW)
#undef ROW
};

/* A library is never unloaded, because it has threads that run until the
 * process ends. */
void *stream_open_library(const char *variable, const char *const path[],
                          const char **tried)
{
    const char *named = getenv(variable);
    const char *const only[] = {named, NULL};
    void *handle = NULL;

    if (named && *named)
        path = only;
    for (; *path && !handle; path++) {
        *tried = *path;
        handle = dlopen(*path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return handle;
}

static pl_status find_calls(struct stream_api *api, const char *path,
                            pl_err *err)
{
    const struct stream_vendor *m = api->vendor;

    for (int c = 0; c < STREAM_CALL_COUNT; c++) {
        void *f = m->symbol[c] ? dlsym(api->handle, m->symbol[c]) : NULL;

        if (m->symbol[c] && !f && c < m->later)
            return err_set(err, PL_UNSUPPORTED,
                           "%s has no %s: %s; set %s to another library", path,
                           m->symbol[c], m->least, m->variable);
        memcpy((char *)api + offset[c], &f, sizeof f);
    }
    *(void **)&api->hipGetErrorName = dlsym(api->handle, "hipGetErrorName");
    *(void **)&api->hipGetErrorString = dlsym(api->handle, "hipGetErrorString");
    return PL_OK;
}

static pl_status open_library(struct stream_api *api, pl_err *err)
{
    const struct stream_vendor *m = api->vendor;
    const char *path = "", *why;

    api->handle = stream_open_library(m->variable, m->path, &path);
    if (api->handle)
        return find_calls(api, path, err);
    why = dlerror();
    return err_set(err, PL_UNSUPPORTED,
                   "no %s found: %s; %s, or set its library in %s", m->title,
                   why && strstr(why, path) ? why : path, m->remedy,
                   m->variable);
}

static pl_status count_devices(const struct stream_api *api, int *n,
                               pl_err *err)
{
    char what[32];
    unsigned code = api->init(0);

    snprintf(what, sizeof what, "no %s found", api->vendor->title);
    if (api->vendor->is_none(code))
        return api->vendor->none(api, code, err);
    if (code != API_SUCCESS) {
        stream_check(api, code, CALL_init, what, err);
        if (err)
            err->status = PL_UNSUPPORTED;
        return PL_UNSUPPORTED;
    }
    return stream_check(api, api->device_count(n), CALL_device_count,
                        api->vendor->name, err);
}

pl_status stream_load(struct stream_api *api,
                      const struct stream_vendor *vendor, int *n_device,
                      pl_err *err)
{
    pl_status s;

    *api = (struct stream_api){.vendor = vendor};
    *n_device = 0;
    s = open_library(api, err);
    if (s == PL_OK)
        s = count_devices(api, n_device, err);
    if (s != PL_OK)
        stream_unload(api);
    return s;
}

void stream_unload(struct stream_api *api)
{
    if (api->handle)
        dlclose(api->handle);
    *api = (struct stream_api){0};
}

pl_status stream_check(const struct stream_api *api, unsigned code,
                       enum stream_call call, const char *what, pl_err *err)
{
    const struct stream_vendor *m = api->vendor;
    const char *name, *text;

    if (code == API_SUCCESS)
        return PL_OK;
    name = m->error_name(api, code);
    text = m->error_text(api, code);
    return err_set(
        err, code == API_OUT_OF_MEMORY ? PL_NO_DEVICE_MEMORY : PL_DEVICE,
        "%s: %s failed: %s (%u, %s)", what, m->call[call],
        name ? name : "an unknown error", code, text ? text : "no text");
}

pl_status stream_check_kernel(const struct stream_api *api,
                              const struct stream_device *d, unsigned code,
                              enum stream_call call, enum gpu_kernel k,
                              pl_err *err)
{
    char what[160];

    if (code == API_SUCCESS)
        return PL_OK;
    snprintf(what, sizeof what, "%s, kernel %s", d->who, gpu_kernel_name(k));
    return stream_check(api, code, call, what, err);
}

pl_status stream_attribute(const struct stream_api *api,
                           const struct stream_device *d,
                           enum stream_attribute what, int *value, pl_err *err)
{
    int number = api->vendor->attribute[what];

    *value = 1;
    if (number == NO_ATTRIBUTE)
        return PL_OK;
    return stream_check(
        api, api->device_attribute(value, (unsigned)number, d->handle),
        CALL_device_attribute, d->who, err);
}

pl_status stream_device(const struct stream_api *api, int index,
                        struct stream_device *d, pl_err *err)
{
    *d = (struct stream_device){0};
    snprintf(d->who, sizeof d->who, "%s:%d", api->vendor->name, index);
    PL_TRY(stream_check(api, api->device_get(&d->handle, index),
                        CALL_device_get, d->who, err));
    return api->vendor->examine(api, d, err);
}
