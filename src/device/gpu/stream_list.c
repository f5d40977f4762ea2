/* Lists the devices of CUDA and HIP, with properties that can be queried
 * without a context. So a device that is full, in use or broken does not
 * prevent others from being listed. A device is identified by its ordinal in
 * the API. Devices that are too old for the kernels are listed too.
 *
 * Free memory can only be queried with a context. So one is created for a
 * moment, and only on the requested device. The memory of that context does not
 * count as free, which is right, because there will be a context when the
 * device is used. */
#include <stdio.h>
#include <string.h>

#include "device/gpu/driver_stream.h"

/* ---- free memory --------------------------------------------------------- */

static pl_status ask_inside(const struct stream_api *api,
                            const struct stream_device *d, uint64_t *bytes,
                            pl_err *err)
{
    size_t now = 0, total;
    int was;
    pl_status s, left;

    PL_TRY(api->vendor->enter(api, d, &was, err));
    s = stream_check(api, api->memory_info(&now, &total), CALL_memory_info,
                     d->who, err);
    left = api->vendor->leave(api, d, was, s == PL_OK ? err : NULL);
    *bytes = now;
    return s == PL_OK ? left : s;
}

static pl_status ask_device(const struct stream_api *api, int index,
                            uint64_t *bytes, pl_err *err)
{
    struct stream_device d;
    pl_status s, dropped;

    PL_TRY(stream_device(api, index, &d, err));
    PL_TRY(api->vendor->hold(api, &d, err));
    s = ask_inside(api, &d, bytes, err);
    dropped = api->vendor->drop(api, &d, s == PL_OK ? err : NULL);
    return s == PL_OK ? dropped : s;
}

pl_status stream_free_memory(const struct stream_vendor *vendor, int index,
                             uint64_t *bytes, pl_err *err)
{
    struct stream_api api;
    int n_device;
    pl_status s;

    *bytes = 0;
    PL_TRY(stream_load(&api, vendor, &n_device, err));
    s = ask_device(&api, index, bytes, err);
    stream_unload(&api);
    return s;
}

/* ---- list of devices ----------------------------------------------------- */

static pl_status speeds(const struct stream_api *api,
                        const struct stream_device *d, struct gpu_info *i,
                        pl_err *err)
{
    int khz, memory_khz, bits, maps, registers, words;

    PL_TRY(
        stream_attribute(api, d, ATTRIBUTE_N_MULTIPROCESSOR, &i->n_unit, err));
    PL_TRY(stream_attribute(api, d, ATTRIBUTE_CLOCK_KHZ, &khz, err));
    PL_TRY(
        stream_attribute(api, d, ATTRIBUTE_MEMORY_CLOCK_KHZ, &memory_khz, err));
    PL_TRY(stream_attribute(api, d, ATTRIBUTE_MEMORY_BUS_BITS, &bits, err));
    PL_TRY(stream_attribute(api, d, ATTRIBUTE_MAPS_HOST_MEMORY, &maps, err));
    PL_TRY(stream_attribute(api, d, ATTRIBUTE_REGISTERS_HOST_MEMORY, &registers,
                            err));
    PL_TRY(stream_attribute(api, d, ATTRIBUTE_STREAMS_KNOW_WORDS, &words, err));
    i->has = (unsigned)(maps && registers) << GPU_MAPS | (unsigned)(words != 0)
                                                             << GPU_WORDS;
    i->mem_bytes_per_s = (double)api->vendor->transfers(api, d, bits) *
                         memory_khz * 1e3 * bits / 8;
    api->vendor->show(api, d, khz * 1e3, i);
    return PL_OK;
}

/* Changes hexadecimal letters to lower case, because the APIs differ in their
 * case. */
static void lower_hex(char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'F')
            *s = (char)(*s - 'A' + 'a');
}

static pl_status ask(const struct stream_api *api, struct gpu_info *i,
                     pl_err *err)
{
    struct stream_device d;
    size_t bytes;

    PL_TRY(stream_device(api, i->index, &d, err));
    PL_TRY(stream_check(api,
                        api->device_name(i->title, sizeof i->title, d.handle),
                        CALL_device_name, d.who, err));
    i->title[sizeof i->title - 1] = '\0';
    PL_TRY(stream_check(api, api->device_bus(i->bus, sizeof i->bus, d.handle),
                        CALL_device_bus, d.who, err));
    i->bus[sizeof i->bus - 1] = '\0';
    lower_hex(i->bus);
    PL_TRY(stream_check(api, api->device_bytes(&bytes, d.handle),
                        CALL_device_bytes, d.who, err));
    i->total_bytes = bytes;
    PL_TRY(speeds(api, &d, i, err));
    if (api->vendor->refuses(&d, i->why, sizeof i->why))
        return err_set(err, PL_UNSUPPORTED, "%s", i->why);
    return PL_OK;
}

pl_status stream_list(const struct stream_vendor *vendor, struct gpu_info *out,
                      int max, int *n, pl_err *err)
{
    struct stream_api api;
    int n_device;

    *n = 0;
    PL_TRY(stream_load(&api, vendor, &n_device, err));
    for (; *n < n_device && *n < max; ++*n) {
        struct gpu_info *i = &out[*n];
        pl_err why;

        *i = (struct gpu_info){.index = *n};
        if (ask(&api, i, &why) != PL_OK)
            snprintf(i->why, sizeof i->why, "%.*s", (int)sizeof i->why - 1,
                     why.message);
    }
    stream_unload(&api);
    return PL_OK;
}

/* ---- peer access --------------------------------------------------------- */

static bool reaches(const struct stream_api *api, const struct gpu_info *from,
                    const struct gpu_info *to)
{
    struct stream_device d, peer;
    int yes = 0;

    return from->index != to->index && !from->why[0] && !to->why[0] &&
           stream_device(api, from->index, &d, NULL) == PL_OK &&
           stream_device(api, to->index, &peer, NULL) == PL_OK &&
           api->device_reaches(&yes, d.handle, peer.handle) == API_SUCCESS &&
           yes;
}

void stream_peers(const struct stream_vendor *vendor, struct gpu_info *gpu,
                  int n)
{
    struct stream_api api;
    int n_device;

    if (n < 2 || stream_load(&api, vendor, &n_device, NULL) != PL_OK)
        return;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (reaches(&api, &gpu[i], &gpu[k]))
                gpu[i].peers |= (uint64_t)1 << gpu[k].index;
    stream_unload(&api);
}
