/* Replaces device_write and device_read by -Wl,--wrap; write_fail.h describes
 * the functions. */
#include "lib/write_fail.h"

#include "base/err.h"
#include "device/device.h"

#include <stdatomic.h>

pl_status __real_device_write(struct device_set *s, int dev, enum region r,
                              size_t offset, const void *src, size_t bytes,
                              pl_err *err);
pl_status __real_device_read(struct device_set *s, int dev, enum region r,
                             size_t offset, void *dst, size_t bytes,
                             pl_err *err);
pl_status __wrap_device_write(struct device_set *s, int dev, enum region r,
                              size_t offset, const void *src, size_t bytes,
                              pl_err *err);
pl_status __wrap_device_read(struct device_set *s, int dev, enum region r,
                             size_t offset, void *dst, size_t bytes,
                             pl_err *err);

static _Atomic int64_t n_write, n_read, write_bytes;
/* number of writes up to the one that fails; 0 if none shall fail */
static _Atomic int64_t fail_in;

void write_stat_reset(void)
{
    n_write = 0;
    n_read = 0;
    write_bytes = 0;
}

struct write_stat write_stat_get(void)
{
    return (struct write_stat){n_write, n_read, write_bytes};
}

void write_fail_at(int64_t n)
{
    fail_in = n;
}

pl_status __wrap_device_write(struct device_set *s, int dev, enum region r,
                              size_t offset, const void *src, size_t bytes,
                              pl_err *err)
{
    n_write++;
    write_bytes += (int64_t)bytes;
    if (fail_in > 0 && atomic_fetch_sub(&fail_in, 1) == 1)
        return err_set(err, PL_DEVICE, "the device is gone");
    return __real_device_write(s, dev, r, offset, src, bytes, err);
}

pl_status __wrap_device_read(struct device_set *s, int dev, enum region r,
                             size_t offset, void *dst, size_t bytes,
                             pl_err *err)
{
    n_read++;
    return __real_device_read(s, dev, r, offset, dst, bytes, err);
}
