/* The kernel source (folder text/), embedded in the library for drivers that
 * compile it: a prelude for each API and the common part, with all #includes
 * resolved. Compressed by scripts/embed_text.py during the build. */
#ifndef DEVICE_GPU_GPU_TEXT_H
#define DEVICE_GPU_GPU_TEXT_H

#include <stdint.h>

#include "base/err.h"
#include "base/xz.h"
#include "pl.h"

struct gpu_text {
    uint64_t hash; /* hash of the kernel source in this text */
    struct xz text;
};

extern const struct gpu_text gpu_text, gpu_prelude_hip, gpu_prelude_opencl;

/* Sets *out to the concatenation of `head`, the prelude and gpu_text,
 * terminated; the caller frees it. Returns PL_NO_MEMORY, or PL_DEVICE if the
 * embedded source is damaged. */
pl_status gpu_text_unpack(const char *head, const struct gpu_text *prelude,
                          char **out, pl_err *err);

/* Returns PL_DEVICE and sets the error for a source that cannot be
 * decompressed. */
static inline pl_status gpu_text_damaged(pl_err *err)
{
    return err_set(err, PL_DEVICE,
                   "the kernel source in the library is damaged; install the "
                   "library again");
}

#endif
