/* What kernels read beside tensors: chunks of packed weights, trees of ranks,
 * spans, maps of heads. A program is given to a device once, and these with it,
 * equal ones once, in one allocation. */
#ifndef DEVICE_GPU_GPU_TABLES_H
#define DEVICE_GPU_GPU_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_table {
    const void *key;  /* of the program: what is looked up */
    const void *data; /* what lies there; most often the key */
    size_t bytes;
    size_t at; /* from the start of all */
};

struct gpu_tables {
    struct gpu_table *table; /* owned */
    int n, n_max;
    size_t bytes;   /* of all, once they are laid out */
    bool no_memory; /* something was left out */
};

void gpu_tables_free(struct gpu_tables *t);
/* `data` stays until it has been written to the device; of no bytes,
 * nothing. */
void gpu_tables_add(struct gpu_tables *t, const void *key, const void *data,
                    size_t bytes);
/* Gives each its place. */
void gpu_tables_lay(struct gpu_tables *t);
/* Writes all into out[bytes]. */
void gpu_tables_write(const struct gpu_tables *t, void *out);
/* Where what was added lies; the key and the bytes as they were then. */
size_t gpu_tables_at(const struct gpu_tables *t, const void *key, size_t bytes);

#endif
