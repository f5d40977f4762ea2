/* Registers host memory with CUDA or HIP, so that GPUs can access it in place.
 * Both APIs register a page for all GPUs at once, and unregister it for all. So
 * references to a range are counted for the whole process, over all device sets
 * and GPUs. A range that other code of the process has registered is not
 * unregistered here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/gpu/driver_stream.h"

struct stream_range {
    struct stream_range *next;
    const struct stream_vendor *vendor;
    unsigned char *p;
    size_t bytes;
    int n_holder;
    bool ours; /* false if other code had registered the range already */
};

static struct {
    pthread_mutex_t lock;
    struct stream_range *first; /* list of all registered ranges; owned */
} stream_ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct stream_range *find(const struct stream_vendor *vendor,
                                 const unsigned char *p, size_t bytes)
{
    for (struct stream_range *r = stream_ranges.first; r; r = r->next)
        if (r->vendor == vendor && p >= r->p && bytes <= r->bytes &&
            (size_t)(p - r->p) <= r->bytes - bytes)
            return r;
    return NULL;
}

/* Returns true if a registered range shares a page with p[bytes]. Unregistering
 * one range would then unregister a page of the other. */
static bool shares_page(const struct stream_vendor *vendor,
                        const unsigned char *p, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (struct stream_range *r = stream_ranges.first; r; r = r->next)
        if (r->vendor == vendor &&
            ((uintptr_t)p + bytes - 1) / page >= (uintptr_t)r->p / page &&
            ((uintptr_t)r->p + r->bytes - 1) / page >= (uintptr_t)p / page)
            return true;
    return false;
}

static pl_status add(struct stream_range **out, const struct stream_api *api,
                     void *p, size_t bytes, const char *who, pl_err *err)
{
    struct stream_range *r = calloc(1, sizeof *r);
    char what[256];
    unsigned code;

    if (shares_page(api->vendor, p, bytes)) {
        free(r);
        return err_set(err, PL_UNSUPPORTED,
                       "%s, mapping %zu bytes: parts of the range are already "
                       "mapped; map the whole range first",
                       who, bytes);
    }
    if (!r)
        return err_no_memory(err, "mapped memory");
    code = api->host_register(p, bytes, API_HOST_PORTABLE | API_HOST_MAPPED);
    if (code != API_SUCCESS && code != API_ALREADY_REGISTERED) {
        free(r);
        snprintf(what, sizeof what,
                 "%s, mapping %zu bytes (memory must be writable, and this "
                 "process's own)",
                 who, bytes);
        return stream_check(api, code, CALL_host_register, what, err);
    }
    r->vendor = api->vendor;
    r->p = p;
    r->bytes = bytes;
    r->ours = code == API_SUCCESS;
    r->next = stream_ranges.first;
    stream_ranges.first = r;
    *out = r;
    return PL_OK;
}

pl_status stream_range_hold(struct stream_range **out,
                            const struct stream_api *api, void *p, size_t bytes,
                            const char *who, pl_err *err)
{
    pl_status s = PL_OK;

    pthread_mutex_lock(&stream_ranges.lock);
    *out = find(api->vendor, p, bytes);
    if (!*out)
        s = add(out, api, p, bytes, who, err);
    if (s == PL_OK)
        (*out)->n_holder++;
    pthread_mutex_unlock(&stream_ranges.lock);
    return s;
}

void stream_range_drop(struct stream_range *r, const struct stream_api *api)
{
    struct stream_range **at = &stream_ranges.first;

    pthread_mutex_lock(&stream_ranges.lock);
    if (--r->n_holder == 0) {
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        if (r->ours)
            api->host_unregister(r->p);
        free(r);
    }
    pthread_mutex_unlock(&stream_ranges.lock);
}

bool stream_range_is_ours(const struct stream_range *r)
{
    return r->ours;
}
