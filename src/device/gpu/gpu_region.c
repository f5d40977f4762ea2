/* The memory of a device's regions. A region is one allocation. If the weights
 * or the cache exceed the driver's limit of one allocation, they get several.
 * These begin and end between tensors, because kernels need each tensor in one
 * allocation. */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/err.h"
#include "device/gpu/gpu_device.h"

pl_status gpu_allocate(struct gpu_device *x, const char *what, size_t bytes,
                       uint64_t *at, pl_err *err)
{
    pl_err why = {0};
    char b[24];

    if (x->driver->alloc(x->gpu, bytes + (bytes == 0), at, &why) == PL_OK)
        return PL_OK;
    *at = 0;
    return err_set(err, PL_NO_DEVICE_MEMORY,
                   "%s: cannot allocate %s for %s: %s", x->dev->desc.name,
                   bytes_text(b, bytes), what, why.message);
}

/* ---- allocation boundaries ----------------------------------------------- */

/* A range of bytes that must be in one allocation: a tensor, or several that
 * overlap. */
struct extent {
    size_t from, to;
};

static int by_start(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Returns the *n extents of region r, in ascending order and disjoint. The
 * caller frees them. Returns NULL if out of memory. */
static struct extent *extents(const struct program *p, enum region r, int *n)
{
    struct extent *e = malloc(((size_t)p->n_tensor + 1) * sizeof *e);
    int all = 0;

    *n = 0;
    for (int i = 0; e && i < p->n_tensor; i++)
        if (p->tensor[i].region == r)
            e[all++] = (struct extent){
                p->tensor[i].offset, p->tensor[i].offset + p->tensor[i].bytes};
    if (e)
        qsort(e, (size_t)all, sizeof *e, by_start);
    for (int i = 0; i < all; i++)
        if (*n > 0 && e[i].from < e[*n - 1].to)
            e[*n - 1].to = e[i].to > e[*n - 1].to ? e[i].to : e[*n - 1].to;
        else
            e[(*n)++] = e[i];
    return e;
}

static pl_status too_large(const struct gpu_device *x, enum region r,
                           size_t bytes, pl_err *err)
{
    char has[24], most[24];

    return err_set(err, PL_NO_DEVICE_MEMORY,
                   "%s: a tensor of its %s has %s, and the driver guarantees "
                   "%s per allocation; split it over more devices (-sm "
                   "tensor), or keep it on the host (-ot, for a cache -nkvo)",
                   x->dev->desc.name, region_name(r), bytes_text(has, bytes),
                   bytes_text(most, x->dev->desc.largest_bytes));
}

/* Adds to cut[] the start of each allocation of region r but the first, using
 * as few allocations as possible. An allocation has at most `most` bytes. */
static pl_status find_cuts(struct gpu_device *x, enum region r, size_t most,
                           pl_err *err)
{
    struct gpu_image *m = &x->image;
    size_t start = 0;
    int n;
    struct extent *e = extents(x->dev->prog, r, &n);
    pl_status s = e ? PL_OK : err_no_memory(err, "a device's tables");

    for (int i = 0; i < n && s == PL_OK; i++) {
        if (e[i].to - start <= most)
            continue;
        if (e[i].to - e[i].from > most)
            s = too_large(x, r, e[i].to - e[i].from, err);
        else if (m->n_cut == GPU_MAX_CUTS)
            s = err_set(err, PL_NO_DEVICE_MEMORY,
                        "%s: its %s need more than %d allocations; assign it a "
                        "smaller part of the model",
                        x->dev->desc.name, region_name(r), GPU_MAX_CUTS);
        else
            m->cut[m->n_cut++] =
                (struct gpu_cut){.region = r, .from = start = e[i].from};
    }
    free(e);
    return s;
}

/* ---- memory -------------------------------------------------------------- */

/* Returns the offset in region r of the end of the allocation that contains
 * offset `from`. */
static size_t end_of(const struct gpu_device *x, enum region r, size_t from)
{
    const struct gpu_image *m = &x->image;
    size_t end = x->dev->bytes[r];

    for (int i = 0; i < m->n_cut; i++)
        if (m->cut[i].region == r && m->cut[i].from > from &&
            m->cut[i].from < end)
            end = m->cut[i].from;
    return end;
}

pl_status gpu_region_load(struct gpu_device *x, enum region r, pl_err *err)
{
    struct gpu_image *m = &x->image;
    size_t most = x->dev->desc.largest_bytes;
    int first = m->n_cut;

    if (most > 0 && x->dev->bytes[r] > most &&
        (r == REGION_WEIGHTS || r == REGION_CACHE))
        PL_TRY(find_cuts(x, r, most, err));
    PL_TRY(
        gpu_allocate(x, region_name(r), end_of(x, r, 0), &x->region[r], err));
    m->base[r] = x->region[r];
    for (int i = first; i < m->n_cut; i++)
        PL_TRY(gpu_allocate(x, region_name(r),
                            end_of(x, r, m->cut[i].from) - m->cut[i].from,
                            &m->cut[i].at, err));
    return PL_OK;
}

void gpu_region_unload(struct gpu_device *x)
{
    struct gpu_image *m = &x->image;

    for (int i = 0; i < m->n_cut; i++)
        if (m->cut[i].at)
            x->driver->release(x->gpu, m->cut[i].at);
    m->n_cut = 0;
    for (int r = 0; r < REGION_COUNT; r++) {
        if (r == REGION_INBOX && x->reached &&
            device_set_is_quarantined(x->set))
            x->quarantined = true;
        else if (x->region[r])
            x->driver->release(x->gpu, x->region[r]);
        x->region[r] = 0;
    }
}

/* ---- memory access between steps ----------------------------------------- */

/* Returns how many of the `bytes` bytes from `offset` in region r are in the
 * same allocation as the first one. */
static size_t in_part(const struct gpu_device *x, enum region r, size_t offset,
                      size_t bytes)
{
    size_t left = end_of(x, r, offset) - offset;

    return bytes < left ? bytes : left;
}

pl_status gpu_region_write(struct gpu_device *x, enum region r, size_t offset,
                           const void *src, size_t bytes, pl_err *err)
{
    const unsigned char *from = src;

    while (bytes > 0) {
        size_t n = in_part(x, r, offset, bytes);

        PL_TRY(gpu_stage_write(x, gpu_image_byte(&x->image, r, offset), from, n,
                               err));
        offset += n;
        from += n;
        bytes -= n;
    }
    return PL_OK;
}

pl_status gpu_region_read(struct gpu_device *x, enum region r, size_t offset,
                          void *dst, size_t bytes, pl_err *err)
{
    unsigned char *to = dst;

    while (bytes > 0) {
        size_t n = in_part(x, r, offset, bytes);

        PL_TRY(gpu_stage_read(x, to, gpu_image_byte(&x->image, r, offset), n,
                              err));
        offset += n;
        to += n;
        bytes -= n;
    }
    return PL_OK;
}
