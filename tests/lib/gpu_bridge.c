/* From a cpu_call to launches of the emulator (gpu_bridge.h). */
#include "lib/gpu_bridge.h"

#include "lib/support.h"

#include <stdlib.h>

#include "device/gpu/emu/emu_run.h"
#include "quant/grid.h"

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static struct gpu_tensor tensor(const struct cpu_tensor *t)
{
    size_t bytes;
    struct gpu_tensor g = {.at = address(t->data),
                           .format = t->format,
                           .n_dim = t->n_dim,
                           .pack = t->pack,
                           .chunk = t->pack ? address(t->pack->chunk) : 0,
                           .grid = address(quant_grid(t->format, &bytes))};

    memcpy(g.dim, t->dim, sizeof g.dim);
    return g;
}

static struct gpu_call translate(const struct cpu_call *c)
{
    struct gpu_call g = {.out = tensor(&c->out),
                         .n_in = c->n_in,
                         .attr = c->attr,
                         .q8 = address(c->q8),
                         .head_map = c->head_map,
                         .head_map_at = address(c->head_map),
                         .tree = c->tree,
                         .tree_at = address(c->tree.item),
                         .span = c->span,
                         .span_at = address(c->span),
                         .n_span = c->n_span,
                         .out_stride = c->out_stride};

    for (int i = 0; i < GRAPH_MAX_IN; i++)
        g.in[i] = tensor(&c->in[i]);
    if (c->table) {
        g.table = *c->table;
        g.table.pos = g.table.seq = g.table.pages = NULL;
        g.pos = address(c->table->pos);
        g.seq = address(c->table->seq);
        g.pages = address(c->table->pages);
    }
    return g;
}

static void run(const struct cpu_call *c, enum kernel k)
{
    static _Thread_local struct emu *emu;
    struct gpu_list l = {0};
    struct gpu_call g;
    size_t bytes;
    void *scratch;

    if (c->ith > 0)
        return;
    if (!emu)
        emu = emu_new(1);
    assert_non_null(emu);
    g = translate(c);
    bytes = gpu_entries[k].scratch ? gpu_entries[k].scratch(&g) : 0;
    scratch = aligned_alloc(256, (bytes + 256) / 256 * 256);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes);
    g.scratch = address(scratch);
    gpu_entries[k].launch(&l, &g);
    assert_false(l.no_memory);
    for (int i = 0; i < l.n; i++) {
        const char *wrong =
            emu_launch(emu, l.launch[i].kernel, l.launch[i].n_group,
                       l.bytes + l.launch[i].args);

        if (wrong)
            fail_msg("%s: %s", gpu_kernel_name(l.launch[i].kernel), wrong);
    }
    gpu_list_free(&l);
    free(scratch);
}

#define KERNEL(name, args, values)                                             \
    static void run_##name(const struct cpu_call *c)                           \
    {                                                                          \
        run(c, KERNEL_##name);                                                 \
    }
#include "program/kernels.def"
#undef KERNEL

bool gpu_bridge_has(enum kernel k)
{
    return gpu_entries[k].launch != NULL;
}

void gpu_bridge_init(struct cpu_kernels *k)
{
    cpu_kernels_init(k, KERNEL_SET_GENERIC);
#define KERNEL(name, args, values)                                             \
    if (gpu_bridge_has(KERNEL_##name))                                         \
        k->kernel[KERNEL_##name] = (struct cpu_entry){run_##name, NULL};
#include "program/kernels.def"
#undef KERNEL
}
