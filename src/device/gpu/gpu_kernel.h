/* From a kernel of a program to launches on a GPU.
 *
 * A *launch* is one kernel of the text (text/), run by so many groups. What a
 * step of a program asks for is one launch or a few, one after another. Their
 * order of operations is that of the CPU's kernels, to the bit.
 *
 * Nothing here touches a device: addresses are numbers, as the driver gives
 * them. A driver that knows pointers gives those. */
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
    GPU_MAX_LANES = 256, /* of a group */
    GPU_MAX_ARGS = 640,  /* bytes of a kernel's arguments */
};

const char *gpu_kernel_name(enum gpu_kernel k);
int gpu_kernel_lanes(enum gpu_kernel k);   /* of a group: 32, 64, 128 or 256 */
size_t gpu_kernel_args(enum gpu_kernel k); /* bytes */
bool gpu_kernel_is_for_matrix_units(enum gpu_kernel k); /* where there are */

/* A local tensor on the device: cpu_tensor's, but for its address. */
struct gpu_tensor {
    uint64_t at; /* 0: absent */
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    const struct pack *pack; /* NULL for plain tensors */
    uint64_t chunk;          /* pack->chunk, on the device */
    uint64_t grid;           /* of a plain weight: quant_grid(format), there */
};

/* A call of a kernel, as cpu_call. What a pointer of the host names lies on the
 * device too: its address has the same name and _at. */
struct gpu_call {
    struct gpu_tensor out;
    struct gpu_tensor in[GRAPH_MAX_IN];
    int n_in;
    const struct graph_attr *attr;
    uint64_t q8;              /* in[0] quantized; 0: floats are read */
    struct token_table table; /* n_tok 0: none. Its pointers are NULL */
    uint64_t pos, seq, pages; /* what they would point at */
    int64_t n_seq;            /* of the table; 0: unknown */
    int64_t n_page; /* that a sequence has positions in, at most; 0: unknown */
    int n_unit;     /* of the GPU, that run groups side by side; 0: unknown */
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

/* Takes over what a table on the host says, but for the addresses. */
void gpu_call_set_table(struct gpu_call *c, const struct token_table *t);

/* Launches, in order; the arguments of one behind another. */
struct launch_list {
    int n, n_max; /* n_max: room */
    struct gpu_launch {
        enum gpu_kernel kernel;
        int32_t n_group;
        size_t args;      /* where in `bytes` */
    } * launch;           /* owned */
    unsigned char *bytes; /* owned */
    size_t n_byte, n_byte_max;
    bool no_memory; /* something was left out */
};

void gpu_list_free(struct launch_list *l);
/* Adds a launch; of no groups, nothing. `args` is copied. */
void gpu_list_add(struct launch_list *l, enum gpu_kernel k, int64_t n_group,
                  const void *args);

struct gpu_entry {
    void (*launch)(struct launch_list *l, const struct gpu_call *c);
    /* Scratch for a call of at most these sizes (addresses unset); NULL:
     * none. */
    size_t (*scratch)(const struct gpu_call *c);
};

/* By kernel of the program; launch == NULL: GPUs have none. */
extern const struct gpu_entry gpu_entries[KERNEL_COUNT];

#endif
