/* Launches that were done before (gpu_fuse.h). */
#include "device/gpu/gpu_fuse.h"

#include <string.h>

#include "device/gpu/gpu_launch.h"

enum { SORTING = 3 }; /* launches: keys, places, blocks */

static bool same(const struct gpu_list *l, int a, int b)
{
    const struct gpu_launch *x = &l->launch[a], *y = &l->launch[b];

    return x->kernel == y->kernel && x->n_group == y->n_group &&
           memcmp(l->bytes + x->args, l->bytes + y->args,
                  gpu_kernel_args(x->kernel)) == 0;
}

static void take_out(struct gpu_list *l, int first)
{
    memmove(l->launch + first, l->launch + first + SORTING,
            (size_t)(l->n - first - SORTING) * sizeof *l->launch);
    l->n -= SORTING;
}

bool gpu_fuse_routes(struct gpu_sorted *s, struct gpu_list *l, int first)
{
    struct route_args r;
    bool again = s->launch >= 0;

    if (l->n < first + SORTING || l->launch[first].kernel != GPU_route_keys)
        return false;
    for (int i = 0; again && i < SORTING; i++)
        again = same(l, s->launch + i, first + i);
    if (again) {
        take_out(l, first);
        return true;
    }
    memcpy(&r, l->bytes + l->launch[first].args, sizeof r);
    *s = (struct gpu_sorted){
        .launch = first, .from = r.id, .to = r.id + (uint64_t)r.n_pair * 4};
    return true;
}

void gpu_fuse_written(struct gpu_sorted *s, uint64_t from, uint64_t to)
{
    if (from < s->to && s->from < to)
        s->launch = -1;
}
