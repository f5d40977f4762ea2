/* Properties of kernels (gpu_kernels.def), launch lists, and the table
 * gpu_entries. */
#include "device/gpu/gpu_kernel.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_launch.h"

static const struct {
    const char *name;
    int lanes;
    size_t args;
} table[GPU_KERNEL_COUNT] = {
#define GPU_KERNEL(name, args, lanes)                                          \
    [GPU_##name] = {#name, lanes, sizeof(args)},
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL
};

#define GPU_KERNEL(name, args, lanes)                                          \
    _Static_assert(sizeof(args) <= GPU_MAX_ARGS, #name);
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL

const char *gpu_kernel_name(enum gpu_kernel k)
{
    return table[k].name;
}

int gpu_kernel_lanes(enum gpu_kernel k)
{
    return table[k].lanes;
}

size_t gpu_kernel_args(enum gpu_kernel k)
{
    return table[k].args;
}

bool gpu_kernel_is_for_matrix_units(enum gpu_kernel k)
{
    switch (k) {
#define GPU_KERNEL(name, args, lanes)
#define GPU_KERNEL_MATRIX(name, args, lanes) case GPU_##name:
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL
        return true;
    default:
        return false;
    }
}

void gpu_call_set_table(struct gpu_call *c, const struct token_table *t)
{
    c->table = *t;
    c->table.pos = c->table.seq = c->table.pages = NULL;
    c->n_seq = c->n_page = 0;
    for (int64_t i = 0; i < t->n_tok; i++) {
        int64_t n = t->pos[i] / PAGE_TOKENS + 1;

        c->n_seq += i == 0 || t->seq[i] != t->seq[i - 1];
        c->n_page = n > c->n_page ? n : c->n_page;
    }
}

void gpu_list_free(struct launch_list *l)
{
    free(l->launch);
    free(l->bytes);
    *l = (struct launch_list){0};
}

/* Makes space for one more launch with `bytes` bytes of arguments. Returns
 * false if out of memory. */
static bool grow(struct launch_list *l, size_t bytes)
{
    if (l->n == l->n_max) {
        int n = l->n_max * 2 + 16;
        void *p = realloc(l->launch, (size_t)n * sizeof *l->launch);

        if (!p)
            return false;
        l->launch = p;
        l->n_max = n;
    }
    if (l->n_byte + bytes > l->n_byte_max) {
        size_t n = l->n_byte_max * 2 + 4096;
        void *p = realloc(l->bytes, n);

        if (!p)
            return false;
        l->bytes = p;
        l->n_byte_max = n;
    }
    return true;
}

void gpu_list_add(struct launch_list *l, enum gpu_kernel k, int64_t n_group,
                  const void *args)
{
    size_t bytes = (table[k].args + 15) / 16 * 16;

    if (n_group <= 0)
        return;
    if (!grow(l, bytes)) {
        l->no_memory = true;
        return;
    }
    memcpy(l->bytes + l->n_byte, args, table[k].args);
    l->launch[l->n++] = (struct gpu_launch){
        .kernel = k, .n_group = (int32_t)n_group, .args = l->n_byte};
    l->n_byte += bytes;
}

const struct gpu_entry gpu_entries[KERNEL_COUNT] = {
#define ENTRY(name, need) [KERNEL_##name] = {gpu_launch_##name, need},
    GPU_LAUNCH_MAP(ENTRY)
#undef ENTRY
};
