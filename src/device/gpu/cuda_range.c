/* Memory of this process that CUDA was told of, so that GPUs reach it in place.
 * CUDA registers a page once, for all GPUs, and forgets it for all: so who uses
 * a range is counted for the process, whichever set or GPU it belongs to. What
 * other parts of the process have registered is theirs to give back. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/gpu/cuda_api.h"
#include "device/gpu/driver_cuda.h"

struct cuda_range {
    struct cuda_range *next;
    unsigned char *p;
    size_t bytes;
    int n_holder;
    bool ours; /* else it was registered already */
};

static struct {
    pthread_mutex_t lock;
    struct cuda_range *first; /* owned */
} cuda_ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct cuda_range *find(const unsigned char *p, size_t bytes)
{
    for (struct cuda_range *r = cuda_ranges.first; r; r = r->next)
        if (p >= r->p && bytes <= r->bytes &&
            (size_t)(p - r->p) <= r->bytes - bytes)
            return r;
    return NULL;
}

/* CUDA would take the pages that they share from one with the other. */
static bool shares_page(const unsigned char *p, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (struct cuda_range *r = cuda_ranges.first; r; r = r->next)
        if (((uintptr_t)p + bytes - 1) / page >= (uintptr_t)r->p / page &&
            ((uintptr_t)r->p + r->bytes - 1) / page >= (uintptr_t)p / page)
            return true;
    return false;
}

static pl_status add(struct cuda_range **out, const struct cuda *cu, void *p,
                     size_t bytes, const char *who, pl_err *err)
{
    struct cuda_range *r = calloc(1, sizeof *r);
    char what[256];
    unsigned code;

    if (shares_page(p, bytes)) {
        free(r);
        return err_set(err, PL_UNSUPPORTED,
                       "%s, mapping %zu bytes: parts of their pages are mapped "
                       "already, by themselves; map the whole first",
                       who, bytes);
    }
    if (!r)
        return err_no_memory(err, "mapped memory");
    code =
        cu->cuMemHostRegister(p, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED);
    if (code != CUDA_SUCCESS_CODE && code != CUDA_CODE_ALREADY_REGISTERED) {
        free(r);
        snprintf(what, sizeof what,
                 "%s, mapping %zu bytes (memory must be writable, and this "
                 "process's own)",
                 who, bytes);
        return cuda_check(cu, code, "cuMemHostRegister", what, err);
    }
    r->p = p;
    r->bytes = bytes;
    r->ours = code == CUDA_SUCCESS_CODE;
    r->next = cuda_ranges.first;
    cuda_ranges.first = r;
    *out = r;
    return PL_OK;
}

pl_status cuda_range_hold(struct cuda_range **out, const struct cuda *cu,
                          void *p, size_t bytes, const char *who, pl_err *err)
{
    pl_status s = PL_OK;

    pthread_mutex_lock(&cuda_ranges.lock);
    *out = find(p, bytes);
    if (!*out)
        s = add(out, cu, p, bytes, who, err);
    if (s == PL_OK)
        (*out)->n_holder++;
    pthread_mutex_unlock(&cuda_ranges.lock);
    return s;
}

void cuda_range_drop(struct cuda_range *r, const struct cuda *cu)
{
    struct cuda_range **at = &cuda_ranges.first;

    pthread_mutex_lock(&cuda_ranges.lock);
    if (--r->n_holder == 0) {
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        if (r->ours)
            cu->cuMemHostUnregister(r->p);
        free(r);
    }
    pthread_mutex_unlock(&cuda_ranges.lock);
}
