/* Launches that were done before, and such that others do (gpu_fuse.h). */
#include "device/gpu/gpu_fuse.h"

#include <string.h>

#include "device/gpu/gpu_fuse_rules.h"
#include "device/gpu/gpu_launch.h"

enum { SORTING = 3 }; /* launches: keys, places, blocks */

static bool same(const struct launch_list *l, int a, int b)
{
    const struct gpu_launch *x = &l->launch[a], *y = &l->launch[b];

    return x->kernel == y->kernel && x->n_group == y->n_group &&
           memcmp(l->bytes + x->args, l->bytes + y->args,
                  gpu_kernel_args(x->kernel)) == 0;
}

static void take_out(struct launch_list *l, int first)
{
    memmove(l->launch + first, l->launch + first + SORTING,
            (size_t)(l->n - first - SORTING) * sizeof *l->launch);
    l->n -= SORTING;
}

bool gpu_fuse_routes(struct gpu_sorted *s, struct launch_list *l, int first)
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

/* ---- launches that others do --------------------------------------------- */

struct fusing {
    struct launch_list *l;
    const int *first;
    const struct gpu_fuse_insns *s;
    int *fused_into;
};

typedef bool touches_fn(const struct gpu_access *touch, const int *first, int i,
                        int k);

/* Is it so of step k and of one that h does? */
static bool with_any(touches_fn *is_so, const struct fusing *f, int h, int k)
{
    for (int i = h; i < k; i++)
        if (f->fused_into[i] == h && is_so(f->s->touch, f->s->touched, i, k))
            return true;
    return false;
}

static bool has_one(const struct fusing *f, int i)
{
    return f->first[i + 1] - f->first[i] == 1;
}

/* Can the last launch of h do the work of k too? It then does. Beside others of
 * h nothing is done. */
static bool joins(struct fusing *f, int h, int k)
{
    struct gpu_pair p;
    struct launch_list *l = f->l;
    enum gpu_fusion kind = PAIR_NONE;
    int last = f->first[h + 1] - 1;

    if (last >= f->first[h])
        kind = gpu_pair(l, last, f->first[k], &p);
    if (kind == PAIR_NONE ||
        (kind == FUSE_HORIZONTAL &&
         (!has_one(f, h) || with_any(gpu_accesses_conflict, f, h, k))) ||
        (kind == FUSE_VERTICAL_LOCAL && with_any(gpu_access_clobbers, f, h, k)))
        return false;
    gpu_list_add(l, p.kernel, p.n_group, p.args);
    if (l->no_memory)
        return false;
    l->launch[last] = l->launch[--l->n];
    f->fused_into[k] = h;
    return true;
}

static void fuse_insn(struct fusing *f, int k)
{
    const struct gpu_fuse_insns *s = f->s;

    for (int h = k - 1; h >= 0 && k - h <= GPU_FUSE_REACH; h--) {
        if (s->queue[h] != s->queue[k])
            continue;
        if (s->is_fusion_barrier[h])
            return;
        if (f->fused_into[h] == h &&
            (joins(f, h, k) || with_any(gpu_accesses_conflict, f, h, k)))
            return;
    }
}

/* The launches of steps that others do are left out. */
static void close_up(struct launch_list *l, int *first, int n, const int *host)
{
    int from = first[0], to = first[0];

    for (int i = 0; i < n; i++) {
        int end = first[i + 1];

        first[i] = to;
        for (; from < end; from++)
            if (host[i] == i)
                l->launch[to++] = l->launch[from];
    }
    first[n] = l->n = to;
}

void gpu_fuse_insns(struct launch_list *l, int *first,
                    const struct gpu_fuse_insns *s, int *host)
{
    struct fusing f = {l, first, s, host};

    for (int k = 0; k < s->n; k++) {
        host[k] = k;
        if (s->queue[k] >= 0 && !s->is_fusion_barrier[k] && has_one(&f, k))
            fuse_insn(&f, k);
    }
    close_up(l, first, s->n, host);
}
