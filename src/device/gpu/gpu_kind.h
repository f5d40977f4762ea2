/* Defines a GPU backend in one line, from its name and its driver. */
#ifndef DEVICE_GPU_GPU_KIND_H
#define DEVICE_GPU_GPU_KIND_H

#include "device/cpu/cpu_image.h"
#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_fuse.h"

/* The members of struct backend_ops, for all GPU backends. */
pl_status gpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err);
pl_status gpu_show(const struct backend_ops *ops, struct gpu_info *out, int max,
                   int *n, pl_err *err);
bool gpu_has_kernel(const struct device_desc *d,
                    const struct device_options *opt,
                    const struct insn_kernel *k, const struct prog_tensor *t);
size_t gpu_scratch(const struct device_desc *d,
                   const struct device_options *opt, const struct program *p);
pl_status gpu_open(struct backend *b, pl_err *err);
void gpu_close(struct backend *b);
pl_status gpu_load(struct backend *b, pl_err *err);
void gpu_unload(struct backend *b);
pl_status gpu_write(struct device *d, enum region r, size_t offset,
                    const void *src, size_t bytes, pl_err *err);
pl_status gpu_read(struct device *d, enum region r, size_t offset, void *dst,
                   size_t bytes, pl_err *err);
pl_status gpu_flush(struct device *d, pl_err *err);
void gpu_submit(struct backend *b);
void gpu_wait(struct backend *b);

/* Initializes a struct backend_ops named `kind`. Initializers of further
 * members may follow the driver. */
#define GPU_KIND(kind, its_driver, ...)                                        \
    {                                                                          \
        .name = #kind, .accepts = #kind ", " #kind ":0, " #kind "*2",          \
        .numbered = true, .driver = &its_driver, .describe = gpu_describe,     \
        .has_kernel = gpu_has_kernel, .packing = cpu_image_packing,            \
        .activations = cpu_image_activations, .scratch = gpu_scratch,          \
        .mark_launches = gpu_fuse_mark, .open = gpu_open, .close = gpu_close,  \
        .load = gpu_load, .unload = gpu_unload, .write = gpu_write,            \
        .read = gpu_read, .flush = gpu_flush, .submit = gpu_submit,            \
        .wait = gpu_wait, __VA_ARGS__                                          \
    }

#endif
