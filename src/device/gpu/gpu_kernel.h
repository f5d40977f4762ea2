/* Turns a kernel of a program into launches on a GPU.
 *
 * A launch is one kernel of the kernel source (text/), run by a number of work
 * groups. An instruction of a program becomes one launch or a few, one after
 * another. Their order of operations is that of the CPU's kernels, to the bit.
 *
 * Nothing here accesses a device. Addresses are the numbers that the driver
 * returns; a driver with pointers returns those. */
#ifndef DEVICE_GPU_GPU_KERNEL_H
#define DEVICE_GPU_GPU_KERNEL_H

#include "program/program.h"

enum gpu_kernel {
#define GPU_KERNEL(name, args, lanes) GPU_##name,
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL
    GPU_KERNEL_COUNT
};

enum {
    GPU_MAX_LANES = 256, /* of a work group */
    GPU_MAX_ARGS = 640,  /* bytes of a kernel's arguments */
};

const char *gpu_kernel_name(enum gpu_kernel k);
/* of a work group: 32, 64, 128 or 256 */
int gpu_kernel_lanes(enum gpu_kernel k);
size_t gpu_kernel_args(enum gpu_kernel k); /* bytes */
/* if the GPU has them */
bool gpu_kernel_is_for_matrix_units(enum gpu_kernel k);

/* A local tensor on the device: like cpu_tensor, except for its address. */
struct gpu_tensor {
    uint64_t at; /* 0: absent */
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    const struct pack *pack; /* NULL: not packed */
    uint64_t chunk;          /* pack->chunk, on the device */
    uint64_t grid; /* quant_grid(format) of a plain weight, on the device */
};

/* A call of a kernel, like cpu_call. The data of a host pointer also lies on
 * the device: its address has the same name and _at. */
struct gpu_call {
    struct gpu_tensor out;
    struct gpu_tensor in[GRAPH_MAX_IN];
    int n_in;
    const struct graph_attr *attr;
    uint64_t q8;              /* in[0] quantized; 0: floats are read */
    struct token_table table; /* n_tok 0: none. Its pointers are NULL */
    uint64_t pos, seq, pages; /* addresses for these pointers */
    int64_t n_seq;            /* of the table; 0: unknown */
    /* most pages in which a sequence has positions; 0: unknown */
    int64_t n_page;
    int n_unit;              /* compute units of the GPU; 0: unknown */
    const int32_t *head_map; /* or NULL */
    uint64_t head_map_at;
    struct rank_tree tree;
    uint64_t tree_at; /* of tree.item */
    const struct rank_span *span;
    uint64_t span_at;
    int n_span;
    size_t out_stride;
    uint64_t scratch; /* gpu_entry.scratch bytes, 256-aligned */
};

/* Takes over the values of a table on the host, except the addresses. */
void gpu_call_set_table(struct gpu_call *c, const struct token_table *t);

/* Launches, in order; their arguments follow one another. */
struct launch_list {
    int n, n_max; /* n_max: capacity */
    struct gpu_launch {
        enum gpu_kernel kernel;
        int32_t n_group;
        size_t args;      /* offset in `bytes` */
    } * launch;           /* owned */
    unsigned char *bytes; /* owned */
    size_t n_byte, n_byte_max;
    bool no_memory; /* something was left out */
};

void gpu_list_free(struct launch_list *l);
/* Adds a launch unless n_group is 0. `args` is copied. */
void gpu_list_add(struct launch_list *l, enum gpu_kernel k, int64_t n_group,
                  const void *args);

struct gpu_entry {
    void (*launch)(struct launch_list *l, const struct gpu_call *c);
    /* Returns the scratch for a call of at most these sizes (addresses unset).
     * NULL: none. */
    size_t (*scratch)(const struct gpu_call *c);
};

/* By kernel of the program; launch == NULL: not on GPUs. */
extern const struct gpu_entry gpu_entries[KERNEL_COUNT];

#endif
