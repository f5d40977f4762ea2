/* Constant data that kernels read besides tensors: chunks of packed weights,
 * rank trees, spans, head maps. They are written once, when the program is
 * loaded, in one allocation. Equal tables are stored once. */
#ifndef DEVICE_GPU_GPU_TABLES_H
#define DEVICE_GPU_GPU_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_table {
    const void *key;  /* pointer of the program that is looked up */
    const void *data; /* the bytes; usually the key */
    size_t bytes;
    size_t at; /* offset in the allocation */
};

struct gpu_tables {
    struct gpu_table *table; /* owned */
    int n, n_max;
    size_t bytes;   /* of all, once they are laid out */
    bool no_memory; /* something was left out */
};

void gpu_tables_free(struct gpu_tables *t);
/* Adds a table, or nothing for 0 bytes. `data` must stay valid until it is
 * written to the device. */
void gpu_tables_add(struct gpu_tables *t, const void *key, const void *data,
                    size_t bytes);
/* Assigns the offsets. */
void gpu_tables_lay(struct gpu_tables *t);
/* Writes all into out[bytes]. */
void gpu_tables_write(const struct gpu_tables *t, void *out);
/* Returns the offset of a table added with this key and size. */
size_t gpu_tables_at(const struct gpu_tables *t, const void *key, size_t bytes);

#endif
