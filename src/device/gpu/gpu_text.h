/* The kernels' text (text/), for drivers that have it compiled: a prelude, then
 * what all share. Nothing is included in it any more. Packed by
 * scripts/embed_text.py while building. */
#ifndef DEVICE_GPU_GPU_TEXT_H
#define DEVICE_GPU_GPU_TEXT_H

#include <stdint.h>

#include "base/err.h"
#include "base/lzma.h"
#include "pl.h"

struct gpu_text {
    uint64_t hash; /* of the text */
    struct lzma text;
};

extern const struct gpu_text gpu_text, gpu_prelude_hip, gpu_prelude_opencl;

/* *out: `head`, the prelude and gpu_text, one behind the other and terminated;
 * the caller frees it. PL_NO_MEMORY, or PL_DEVICE: the library's file is
 * damaged. */
pl_status gpu_text_unpack(const char *head, const struct gpu_text *prelude,
                          char **out, pl_err *err);

/* The error of a text that cannot be unpacked. */
static inline pl_status gpu_text_damaged(pl_err *err)
{
    return err_set(err, PL_DEVICE,
                   "the library's text of kernels is damaged: install it "
                   "again");
}

#endif
