/* Creates the launches of a program's kernel on a GPU.
 *
 * A launch is one kernel of the kernel source (text/), executed by a number of
 * work groups. A KERNEL instruction of a program becomes one launch, or several
 * that are executed in order. They do the same operations in the same order as
 * the CPU's kernels, so results have the same bits.
 *
 * No function here accesses a device. Addresses are the numbers that the driver
 * returns; a driver that has pointers returns these as numbers. */
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
    GPU_MAX_LANES = 256, /* most lanes of a work group */
    GPU_MAX_ARGS = 960,  /* most bytes of a kernel's arguments */
};

const char *gpu_kernel_name(enum gpu_kernel k);
/* Returns the number of lanes of a work group: 32, 64, 128 or 256. */
int gpu_kernel_lanes(enum gpu_kernel k);
/* Returns the size of the kernel's arguments in bytes. */
size_t gpu_kernel_args(enum gpu_kernel k);
/* Returns true if the kernel uses matrix units where the GPU has them. */
bool gpu_kernel_is_for_matrix_units(enum gpu_kernel k);

/* A tensor of the device, at its current size. Like cpu_tensor, but with device
 * addresses. */
struct gpu_tensor {
    uint64_t at; /* device address; 0 if the call lacks this tensor */
    pl_format format;
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    /* how a weight is packed; NULL if it is not packed */
    const struct pack *pack;
    uint64_t chunk; /* device address of a copy of the array pack->chunk */
    /* device address of the code table quant_grid(format), if the weight is not
     * packed */
    uint64_t grid;
};

/* A call of a kernel, like cpu_call. Data that a host pointer X points to is
 * also on the device, at address X_at. */
struct gpu_call {
    struct gpu_tensor out;
    struct gpu_tensor in[GRAPH_MAX_IN];
    int n_in;
    const struct graph_attr *attr;
    /* device address of the quantized in[0]; 0 if the kernel reads the floats
     * of in[0] */
    uint64_t q8;
    /* the token table, without the pointers to its arrays: they are NULL,
     * because only kernels read these. n_tok is 0 if there is no table */
    struct token_table table;
    uint64_t pos, seq, pages; /* device addresses of the token table's arrays */
    int64_t n_seq; /* number of sequences in the token table; 0 if unknown */
    /* number of pages of the sequence that has the most; 0 if unknown */
    int64_t n_page;
    int n_unit; /* number of the GPU's compute units; 0 if
                                unknown */
    /* KV head or key head of each head; NULL if the kernel needs none */
    const int32_t *head_map;
    uint64_t head_map_at;
    struct rank_tree tree;
    uint64_t tree_at; /* device address of the array tree.item */
    const struct rank_span *span;
    uint64_t span_at;
    int n_span;
    size_t out_stride;
    /* device address, a multiple of 256, of as many bytes as
     * gpu_entry.scratch() returned */
    uint64_t scratch;
    /* device address of TAIL_COUNTERS counters of work groups, all 0, that only
     * this call uses; 0 if work groups are not to be counted */
    uint64_t count;
};

/* Copies the host table `t` to c->table, except its pointers, and computes
 * n_seq and n_page from it. The caller sets pos, seq and pages. */
void gpu_call_set_table(struct gpu_call *c, const struct token_table *t);

/* A list of launches, in order. Their arguments are stored contiguously in
 * `bytes`. */
struct launch_list {
    int n, n_max; /* number of launches; allocated size of launch[] */
    struct gpu_launch {
        enum gpu_kernel kernel;
        int32_t n_group;
        size_t args;      /* offset in `bytes` of the launch's arguments */
    } * launch;           /* the launches, [n]; owned */
    unsigned char *bytes; /* the arguments of all launches; owned */
    size_t n_byte, n_byte_max;
    bool no_memory; /* out of memory: launches are missing */
};

void gpu_list_free(struct launch_list *l);
/* Adds a launch of kernel k with n_group work groups, or nothing if n_group is
 * 0. `args` is copied. */
void gpu_list_add(struct launch_list *l, enum gpu_kernel k, int64_t n_group,
                  const void *args);

struct gpu_entry {
    void (*launch)(struct launch_list *l, const struct gpu_call *c);
    /* Returns the size in bytes of the scratch memory of a call with sizes up
     * to those of `c`, whose addresses are not set. NULL if the kernel needs
     * none. */
    size_t (*scratch)(const struct gpu_call *c);
};

/* By a program's kernel, the functions that launch it. `launch` is NULL if GPUs
 * do not have the kernel. */
extern const struct gpu_entry gpu_entries[KERNEL_COUNT];

#endif
