/* Copies of the emulator's driver with a function or two of their own. */
#include "lib/gpu_odd.h"

#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_kind.h"

/* ---- eager --------------------------------------------------------------- */

enum { MAX_GPU = 16 };

/* Of each GPU that is open. */
static struct asked {
    struct gpu *g;
    bool kernel[GPU_KERNEL_COUNT];
} asked[MAX_GPU];

static struct asked *asked_of(const struct gpu *g)
{
    for (int i = 0; i < MAX_GPU; i++)
        if (asked[i].g == g)
            return &asked[i];
    return NULL;
}

static pl_status eager_ready(struct gpu *g, const bool want[], int n_thread,
                             pl_err *err)
{
    struct asked *a = asked_of(g);

    (void)n_thread;
    if (!a)
        a = asked_of(NULL);
    if (!a)
        return err_set(err, PL_DEVICE, "more than %d GPUs", MAX_GPU);
    a->g = g;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        a->kernel[k] |= want[k];
    return PL_OK;
}

static pl_status eager_launch(struct gpu *g, enum queue q, enum gpu_kernel k,
                              int32_t n_group, const void *args, pl_err *err)
{
    const struct asked *a = asked_of(g);

    if (!a || !a->kernel[k])
        return err_set(err, PL_DEVICE, "kernel %s was not asked for",
                       gpu_kernel_name(k));
    return gpu_emu.launch(g, q, k, n_group, args, err);
}

static void eager_close(struct gpu *g)
{
    struct asked *a = g ? asked_of(g) : NULL;

    if (a)
        *a = (struct asked){0};
    gpu_emu.close(g);
}

/* ---- the kinds ----------------------------------------------------------- */

static struct gpu_driver gpu_eager;

__attribute__((constructor)) static void make(void)
{
    gpu_eager = gpu_emu;
    gpu_eager.name = "eager";
    gpu_eager.ready = eager_ready;
    gpu_eager.launch = eager_launch;
    gpu_eager.close = eager_close;
}

const struct device_ops eager_ops = GPU_KIND(eager, gpu_eager);
