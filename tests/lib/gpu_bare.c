/* Copies of the emulator's driver that lack some functions, or whose
 * allocations are limited. */
#include "lib/gpu_bare.h"
#include "lib/gpu_odd.h"

#include "device/gpu/gpu_kind.h"
#include "emu/emu_driver.h"

static struct gpu_driver gpu_bare, gpu_parts;

static pl_status list_parts(struct gpu_info *out, int max, int *n, pl_err *err)
{
    pl_status s = gpu_emu.list(out, max, n, err);

    for (int i = 0; s == PL_OK && i < *n; i++)
        out[i].largest_bytes = GPU_PARTS_LARGEST;
    return s;
}

__attribute__((constructor)) static void make(void)
{
    gpu_bare = gpu_emu;
    gpu_bare.name = "bare";
    gpu_bare.identity = gpu_odd_identity;
    gpu_bare.map = NULL;
    gpu_bare.unmap = NULL;
    gpu_bare.signal_word = NULL;
    gpu_bare.wait_word = NULL;
    gpu_bare.graph_make = NULL;
    gpu_bare.graph_run = NULL;
    gpu_bare.graph_free = NULL;
    gpu_parts = gpu_emu;
    gpu_parts.name = "parts";
    gpu_parts.identity = gpu_odd_identity;
    gpu_parts.list = list_parts;
}

const struct backend_ops bare_ops = GPU_KIND(bare, gpu_bare);
const struct backend_ops parts_ops = GPU_KIND(parts, gpu_parts);
