/* The emulator's driver, less some functions. */
#include "lib/gpu_bare.h"

#include "device/gpu/gpu_kind.h"

static struct gpu_driver gpu_bare;

__attribute__((constructor)) static void make(void)
{
    gpu_bare = gpu_emu;
    gpu_bare.name = "bare";
    gpu_bare.map = NULL;
    gpu_bare.unmap = NULL;
    gpu_bare.post = NULL;
    gpu_bare.wait = NULL;
    gpu_bare.drop = NULL;
    gpu_bare.graph_make = NULL;
    gpu_bare.graph_run = NULL;
    gpu_bare.graph_free = NULL;
}

const struct device_ops bare_ops = GPU_KIND(bare, gpu_bare);
